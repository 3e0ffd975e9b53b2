package openai

import (
	"bytes"
	"encoding/json"
)

// A frame is what a server repeats around the text of every delta. A payload
// with the same bytes before and after its text need not be decoded: what
// stands between is the text.
//
// That is safe because a frame is tried before it is used: with another text
// between, full decoding must give just that text and nothing else. So the
// first part of a frame ends inside the string, the second begins with its
// end, and any well-formed piece of a string fits in between.
type frame struct {
	before, after []byte
	padded        []byte    // what follows the random letters behind after; nil for none
	kind          deltaKind // of its text; 0 while there is no frame
	index         int       // our index of the call, for arguments
	tries         int       // frames learned since one was of use

	quoted, trial []byte // to work in
	decoder       usual
}

const (
	// maxTries is how many frames are learned in vain before a server is
	// thought to have none, because something varies in each delta.
	maxTries = 8
	// probe is a text that no server would send.
	probe = "\u2060kitbag\u2060"
	// padding begins the random letters by which OpenAI makes all deltas of the
	// same size.
	padding = `"obfuscation":"`
)

// match returns what a payload says if it fits into the frame: its kind, our index of the
// call, and the text, in memory of the slabs.
func (f *frame) match(payload []byte, s *slabs) (deltaKind, int, string, bool) {
	if f.kind == 0 || !bytes.HasPrefix(payload, f.before) {
		return 0, 0, "", false
	}
	text, n, ok := s.unquote(payload[len(f.before):])
	if !ok || !f.fits(payload[len(f.before)+n:]) {
		return 0, 0, "", false
	}
	f.tries = 0
	return f.kind, f.index, text, true
}

// fits reports whether tail is what the frame has after its text.
func (f *frame) fits(tail []byte) bool {
	if f.padded == nil {
		return bytes.Equal(tail, f.after)
	}
	if len(tail) < len(f.after)+len(f.padded) || !bytes.HasPrefix(tail, f.after) || !bytes.HasSuffix(tail, f.padded) {
		return false
	}
	for _, c := range tail[len(f.after) : len(tail)-len(f.padded)] {
		if !isNameByte(c) {
			return false
		}
	}
	return true
}

// learn makes a frame of a payload that was decoded in full. place returns our
// index of the call that a piece of arguments is for.
func (f *frame) learn(c *chunk, payload []byte, place func(*callDelta) int) {
	if f.tries >= maxTries || len(payload) > readSize {
		return
	}
	kind, text := c.plain()
	if kind == 0 {
		return
	}
	// Where the text stands must be certain: once, and written as we would.
	f.quoted = appendString(f.quoted[:0], text)
	quoted := f.quoted
	at := bytes.Index(payload, quoted)
	if at < 0 || bytes.LastIndex(payload, quoted) != at {
		return
	}
	f.tries++
	f.kind = 0
	f.before = append(f.before[:0], payload[:at+1]...)
	tail := payload[at+len(quoted)-1:]
	f.after, f.padded = append(f.after[:0], tail...), nil
	trial := append(append(f.trial[:0], f.before...), probe...)
	if i := bytes.Index(tail, []byte(padding)); i >= 0 {
		i += len(padding)
		n := bytes.IndexByte(tail[i:], '"')
		if n < 0 {
			return
		}
		f.after = f.after[:i]
		f.padded = bytes.Clone(tail[i+n:])
		trial = append(append(append(trial, f.after...), "kitbag"...), f.padded...)
	} else {
		trial = append(trial, tail...)
	}
	f.trial = trial
	// The trial: the same payload with another text must say that text and nothing else.
	again := f.decoder.decode(trial)
	if again == nil {
		again = new(chunk)
		if json.Unmarshal(trial, again) != nil {
			return
		}
	}
	if k, t := again.plain(); k != kind || t != probe {
		return
	}
	f.kind, f.index = kind, 0
	if kind == argsDelta {
		f.index = place(&c.Choices[0].Delta.ToolCalls[0])
	}
}

// reset makes a frame as good as new that keeps its memory.
func (f *frame) reset() {
	*f = frame{before: f.before[:0], after: f.after[:0], quoted: f.quoted[:0], trial: f.trial[:0]}
}

// forget is needed where a call begins: the server may use an index again, so that the same
// bytes now mean the new call.
func (f *frame) forget() { f.kind = 0 }

// plain returns the text of a chunk that holds nothing else, and 0 for any
// other chunk.
func (c *chunk) plain() (deltaKind, string) {
	if len(c.Choices) != 1 || c.Usage != nil || present(c.Error) {
		return 0, ""
	}
	ch := &c.Choices[0]
	if ch.Index != 0 || ch.Delta == nil || ch.Message != nil || ch.FinishReason != "" || ch.Usage != nil {
		return 0, ""
	}
	return ch.Delta.plain()
}

// plain returns the text of a delta that holds nothing else, and its kind. Arguments must
// name their call by its index alone: where they have an id or a name, they may begin a
// call.
func (d *delta) plain() (deltaKind, string) {
	if d.Refusal != "" || parts(d.Content) != nil || d.ReasoningDetails != nil || d.Images != nil || present(d.ExtraContent) {
		return 0, ""
	}
	content := d.text()
	thought := d.ReasoningContent + d.Reasoning
	switch {
	case len(d.ToolCalls) == 1 && content == "" && thought == "":
		c := d.ToolCalls[0]
		if c.Index == nil || c.ID != "" || c.Name != "" || c.Extra != nil || c.Args == "" {
			return 0, ""
		}
		return argsDelta, string(c.Args)
	case len(d.ToolCalls) > 0:
		return 0, ""
	case content == "" && thought != "" && (d.ReasoningContent == "" || d.Reasoning == ""):
		return thinkingDelta, string(thought)
	case content != "" && thought == "":
		return textDelta, content
	}
	return 0, ""
}
