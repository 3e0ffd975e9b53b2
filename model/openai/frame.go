package openai

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/model"
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
	padded        []byte // what follows the random letters behind after; nil for none
	kind          deltaKind
	index         int
	tries         int
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

// match returns what a payload says if it fits into the frame.
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
	quoted := appendString(nil, text)
	at := bytes.Index(payload, quoted)
	if at < 0 || bytes.LastIndex(payload, quoted) != at {
		return
	}
	f.tries++
	f.kind = 0
	f.before = append(f.before[:0], payload[:at+1]...)
	tail := payload[at+len(quoted)-1:]
	f.after, f.padded = append(f.after[:0], tail...), nil
	trial := probe
	if i := bytes.Index(tail, []byte(padding)); i >= 0 {
		i += len(padding)
		n := bytes.IndexByte(tail[i:], '"')
		if n < 0 {
			return
		}
		f.after = f.after[:i]
		f.padded = bytes.Clone(tail[i+n:])
		trial += string(f.after) + "kitbag" + string(f.padded)
	} else {
		trial += string(tail)
	}
	var again chunk
	if json.Unmarshal(append(bytes.Clone(f.before), trial...), &again) != nil {
		return
	}
	if k, t := again.plain(); k != kind || t != probe {
		return
	}
	f.kind, f.index = kind, 0
	if kind == argsDelta {
		f.index = place(&c.Choices[0].Delta.ToolCalls[0])
	}
}

// forget is needed where a call begins: the server may use an index again.
func (f *frame) forget() { f.kind = 0 }

// plain returns the text of a chunk that holds nothing else, and 0 for any
// other chunk.
func (c *chunk) plain() (deltaKind, string) {
	if len(c.Choices) != 1 || c.Usage != nil || c.Error != nil {
		return 0, ""
	}
	ch := &c.Choices[0]
	if ch.Index != 0 || ch.Delta == nil || ch.Message != nil || ch.FinishReason != "" || ch.Usage != nil {
		return 0, ""
	}
	return ch.Delta.plain()
}

func (d *delta) plain() (deltaKind, string) {
	if d.Refusal != "" || parts(d.Content) != nil || d.ReasoningDetails != nil || d.Images != nil || d.ExtraContent != nil {
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

// slabs hand out deltas and the text in them from larger pieces of memory, so
// that a delta costs a fraction of an allocation.
type slabs struct {
	buf       strings.Builder
	texts     []model.TextDelta
	thoughts  []model.ThinkingDelta
	callArgs  []model.ToolCallDelta
	nextBytes int
}

const (
	minSlab = 256
	maxSlab = 4096
)

func (s *slabs) text(text string) model.Chunk {
	d := take(&s.texts)
	d.Text = text
	return d
}

func (s *slabs) thinking(text string) model.Chunk {
	d := take(&s.thoughts)
	d.Text = text
	return d
}

func (s *slabs) args(index int, text string) model.Chunk {
	d := take(&s.callArgs)
	d.Index, d.Args = index, text
	return d
}

// take returns the next unused element, of a new slab if the last is used up.
func take[T any](slab *[]T) *T {
	n := len(*slab)
	if n == cap(*slab) {
		*slab = make([]T, 0, min(max(4, 2*n), 64))
		n = 0
	}
	*slab = (*slab)[:n+1]
	return &(*slab)[n]
}

// unquote returns the string that starts inside of b and ends before the first
// quote, and the length of its JSON form; false if it is not well-formed, or
// needs full decoding. The string shares memory with its neighbours.
func (s *slabs) unquote(b []byte) (text string, n int, ok bool) {
	n = bytes.IndexByte(b, '"')
	for n > 0 && b[n-1] == '\\' { // an escaped quote, or an escaped backslash
		next := bytes.IndexByte(b[n+1:], '"')
		if next < 0 || escapesAtEnd(b[:n])%2 == 0 {
			break
		}
		n += 1 + next
	}
	if n < 0 {
		return "", 0, false
	}
	s.reserve(n)
	start, copied := s.buf.Len(), 0
	for i := 0; i < n; {
		c := b[i]
		switch {
		case c < ' ':
			return "", 0, false
		case c >= utf8.RuneSelf:
			if r, size := utf8.DecodeRune(b[i:n]); r != utf8.RuneError {
				i += size
				continue
			}
			return "", 0, false // full decoding says what becomes of it
		case c != '\\':
			i++
			continue
		}
		plain := byte(0)
		if i+1 < n {
			plain = unescape(b[i+1])
		}
		if plain == 0 {
			return "", 0, false
		}
		s.buf.Write(b[copied:i])
		s.buf.WriteByte(plain)
		i += 2
		copied = i
	}
	s.buf.Write(b[copied:n])
	return s.buf.String()[start:], n, true
}

// escapesAtEnd returns how many backslashes b ends with.
func escapesAtEnd(b []byte) (n int) {
	for n < len(b) && b[len(b)-1-n] == '\\' {
		n++
	}
	return n
}

// reserve makes room for n bytes of text. A builder that is full is left to
// the strings that were cut from it.
func (s *slabs) reserve(n int) {
	if s.buf.Cap()-s.buf.Len() >= n {
		return
	}
	s.nextBytes = min(max(2*s.nextBytes, minSlab), maxSlab)
	s.buf = strings.Builder{}
	s.buf.Grow(max(s.nextBytes, n))
}

// unescape returns the byte that a backslash and c stand for, 0 if that is not
// one byte.
func unescape(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	}
	return 0
}
