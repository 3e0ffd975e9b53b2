package window

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
)

// How many bytes of a result's text a compaction keeps at least.
const (
	OldResult   = 1000 // of an old result
	newResult   = 2000 // of one of the newest results, if that avoids a summary
	leastResult = 500  // of one of the newest results, after a summary
)

// noteTokens is the maximum size of a note that replaces removed content.
const noteTokens = 60

// A Keeper stores the whole text of a result that is about to be cut. It returns the result to cut, with Kept set if the
// text is stored. why says why it is not stored, "" if there is no store.
type Keeper func(*message.ToolResult) (res *message.ToolResult, why string)

// Cuttable reports whether [Shorten] would cut a result to about limit bytes.
func Cuttable(res *message.ToolResult, limit int) bool {
	least := limit + min(limit/2, 200) // a note takes about 200 bytes
	if res.Kept {                      // was cut before: what stays at the beginning must end before the old note
		least = 2 * limit
	}
	return len(res.Text()) > least && !res.Pinned
}

// Shorten returns a copy of res with about limit bytes of text: the beginning, a note that says how to read the rest, and
// the end. A pinned result, and one that is not much longer than limit, is returned unchanged.
func Shorten(res *message.ToolResult, limit int, keep Keeper) *message.ToolResult {
	if !Cuttable(res, limit) {
		return res
	}
	res, why := keep(res)
	text := res.Text()
	if len(text) <= limit { // keep has removed secrets
		return res
	}
	head, tail := headAndTail(text, limit)
	cp := *res
	note := cutNote(res, len(head), len(text)-len(head)-len(tail), why)
	cp.Blocks = message.Blocks{&message.Text{Text: head + "\n" + note + "\n" + tail}}
	for _, b := range res.Blocks {
		if d, ok := b.(*message.Data); ok {
			cp.Blocks = append(cp.Blocks, d)
		}
	}
	return &cp
}

// headAndTail returns the beginning and the end of text, which together have about limit bytes.
func headAndTail(text string, limit int) (head, tail string) {
	return text[:runeStart(text, limit*2/3)], text[runeStart(text, len(text)-limit/3):]
}

// Abridge shortens text to about the given number of tokens: its beginning and its end.
func Abridge(text string, tokens int) string {
	all := Text(text)
	if all <= tokens {
		return text
	}
	head, tail := headAndTail(text, max(0, tokens*len(text)/all))
	return head + "\n[… the middle of this text was too long and was removed]\n" + tail
}

// runeStart returns the start of the rune that contains the byte at index at.
func runeStart(text string, at int) int {
	for i := 0; i < utf8.UTFMax-1 && at > i && at < len(text); i++ {
		if utf8.RuneStart(text[at-i]) {
			return at - i
		}
	}
	return at
}

// cutNote returns the note that says what is missing in a result, and how to get it.
func cutNote(res *message.ToolResult, offset, missing int, why string) string {
	if res.Kept {
		return fmt.Sprintf("[… %d bytes left out here; read them with %s]", missing, ReadCall(Read{Call: res.ID, Offset: offset}))
	}
	if why != "" {
		why = ", which could not be kept (" + why + ")"
	}
	return fmt.Sprintf("[… %d bytes left out here%s; to read them call %s again, for less at a time]", missing, why, res.Name)
}

// A Read has the arguments of read_result.
type Read struct {
	Call  string `json:"call" jsonschema_description:"the id of the result, from the place where it was cut"`
	Lines string `json:"lines,omitempty" jsonschema_description:"which lines to return, such as 200-300; the first line is 1"`
	Grep  string `json:"grep,omitempty" jsonschema_description:"only lines that match this regular expression (RE2), with their numbers"`
	Path  string `json:"path,omitempty" jsonschema_description:"for a result that is JSON: a JSON Pointer (RFC 6901) to the part, such as /items/0/name"`

	Offset int `json:"offset,omitempty" jsonschema:"minimum=0" jsonschema_description:"how many bytes to skip at the beginning of the selected text"`
}

// ReadCall returns the call that reads a kept result from an offset, as text for the model.
func ReadCall(in Read) string {
	var b strings.Builder
	b.WriteString("read_result ")
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(in) // cannot fail for strings and a number
	return strings.TrimSuffix(b.String(), "\n")
}

// Page returns at most limit bytes of text from the offset of in, and how to read more.
func Page(text string, limit int, in Read) (string, error) {
	if in.Offset < 0 || in.Offset > 0 && in.Offset >= len(text) {
		return "", fmt.Errorf("offset %d is outside the %d bytes of the result; use a smaller one", in.Offset, len(text))
	}
	start := runeStart(text, in.Offset)
	text = text[start:]
	if len(text) <= limit {
		return text, nil
	}
	end := runeStart(text, limit)
	if end == 0 { // not even one rune fits
		end = limit
	}
	in.Offset = start + end
	return fmt.Sprintf("%s\n[… %d bytes more; read them with %s]", text[:end], len(text)-end, ReadCall(in)), nil
}

// DataIn returns the images and files in blocks, and in results in blocks.
func DataIn(blocks message.Blocks) (found []*message.Data) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *message.Data:
			found = append(found, b)
		case *message.ToolResult:
			found = append(found, DataIn(b.Blocks)...)
		}
	}
	return found
}

// A Note returns the text that replaces the image or file d, "" to keep d. tool is the name of the tool
// that returned d, "" if d is not from a tool.
type Note func(d *message.Data, tool string) string

// RemovedNote is the Note for images and files that were removed to shorten a conversation.
func RemovedNote(d *message.Data, tool string) string {
	again := "ask for it"
	if tool != "" {
		again = "call " + tool
	}
	return "[" + label(d) + " was removed to save space; " + again + " again if you need it]"
}

func label(d *message.Data) string { return strings.TrimSpace(d.MediaType + " " + d.Name) }

// Damaged returns the note for an image that cannot be sent.
func Damaged(d *message.Data, why string) string {
	return "[" + label(d) + " cannot be shown: " + why + "; continue without it, or get it in another form]"
}

// WithoutData returns msgs with the images and files replaced for which note returns a text.
func WithoutData(msgs []*message.Message, note Note) []*message.Message {
	out := slices.Clone(msgs)
	for i, m := range out {
		out[i] = mapMessage(m, withoutData(m.Blocks, "", note))
	}
	return out
}

// withoutData returns a function that replaces an image or file in blocks with its note.
func withoutData(blocks message.Blocks, tool string, note Note) func(message.Block) message.Block {
	return func(b message.Block) message.Block {
		switch b := b.(type) {
		case *message.Data:
			text := note(b, tool)
			if text == "" {
				return b
			}
			if h, ok := blocks[0].(*message.Hint); ok { // a Text would make the message one of the user
				return &message.Hint{Source: h.Source, Text: text}
			}
			return &message.Text{Text: text}
		case *message.ToolResult:
			if inner, changed := MapBlocks(b.Blocks, withoutData(b.Blocks, b.Name, note)); changed {
				b = new(*b)
				b.Blocks = inner
				return b
			}
		}
		return b
	}
}

// mapMessage returns m with fn applied to each block, or m itself if that changes nothing.
func mapMessage(m *message.Message, fn func(message.Block) message.Block) *message.Message {
	blocks, changed := MapBlocks(m.Blocks, fn)
	if changed {
		m = new(*m)
		m.Blocks = blocks
	}
	return m
}

// MapBlocks returns blocks with fn applied to each, or blocks itself if that changes nothing.
func MapBlocks(blocks message.Blocks, fn func(message.Block) message.Block) (out message.Blocks, changed bool) {
	out = blocks
	for i, b := range blocks {
		if replaced := fn(b); replaced != b {
			if !changed {
				out, changed = slices.Clone(blocks), true
			}
			out[i] = replaced
		}
	}
	return out, changed
}
