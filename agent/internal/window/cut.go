package window

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
)

const (
	// OldResult is how much text of an old result survives the first step of a
	// compaction, in bytes.
	OldResult = 1000

	// newResult is how much of each of the newest results stays if they are too long together and a
	// summary is to be saved; leastResult is what stays of them at the very least.
	newResult   = 2000
	leastResult = 500

	// noteTokens is what a note in place of what was cut costs at most.
	noteTokens = 60
)

// A Keeper keeps the whole of a result that is about to be cut. It returns the result
// to cut, with Kept set if it was kept, and why it was not.
type Keeper func(*message.ToolResult) (res *message.ToolResult, why string)

// Cuttable reports whether a result is cut to about limit bytes: not if that saves no
// more than the note takes. What was cut before is left alone unless it becomes much
// shorter, since its beginning must be that of the whole.
func Cuttable(res *message.ToolResult, limit int) bool {
	least := limit + min(limit/2, 200)
	if res.Kept {
		least = 2 * limit
	}
	return len(res.Text()) > least && !res.Pinned
}

// Shorten returns a copy of res with limit bytes of text: the beginning, a note that says
// how to read the rest, and the end.
func Shorten(res *message.ToolResult, limit int, keep Keeper) *message.ToolResult {
	if !Cuttable(res, limit) {
		return res
	}
	res, why := keep(res)
	text := res.Text()
	if len(text) <= limit { // the keeper took something out
		return res
	}
	head, tail := text[:runeStart(text, limit*2/3)], text[runeStart(text, len(text)-limit/3):]
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

// Abridge returns a text of at most about so many tokens: the beginning and the end of a
// longer one.
func Abridge(text string, tokens int) string {
	all := Text(text)
	if all <= tokens {
		return text
	}
	limit := max(0, tokens*len(text)/all)
	head, tail := text[:runeStart(text, limit*2/3)], text[runeStart(text, len(text)-limit/3):]
	return head + "\n[… the middle of this text was too long and is gone]\n" + tail
}

// runeStart returns at, or where the rune begins that it is within.
func runeStart(text string, at int) int {
	for i := 0; i < utf8.UTFMax-1 && at > i && at < len(text); i++ {
		if utf8.RuneStart(text[at-i]) {
			return at - i
		}
	}
	return at
}

// cutNote says what is missing in a result, and how to get it.
func cutNote(res *message.ToolResult, offset, missing int, why string) string {
	if res.Kept {
		return fmt.Sprintf("[… %d bytes left out here; they begin with %s]", missing, ReadOn(Read{Call: res.ID, Offset: offset}))
	}
	if why != "" {
		why = ", which could not be kept (" + why + ")"
	}
	return fmt.Sprintf("[… %d bytes left out here%s; call %s again, for less at a time, to read them]", missing, why, res.Name)
}

// A Read is the arguments of read_result.
type Read struct {
	Call   string `json:"call"`
	Lines  string `json:"lines,omitempty"`
	Grep   string `json:"grep,omitempty"`
	Path   string `json:"path,omitempty"`
	Offset int    `json:"offset,omitempty"`
}

// ReadOn returns the call that reads a kept result from an offset on, as a model reads it.
func ReadOn(in Read) string {
	var b strings.Builder
	b.WriteString("read_result ")
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(in) // strings and a number
	return strings.TrimSuffix(b.String(), "\n")
}

// Page returns at most limit bytes of text from the offset of in on, and how to read on.
func Page(text string, limit int, in Read) (string, error) {
	if in.Offset < 0 || in.Offset > 0 && in.Offset >= len(text) {
		return "", fmt.Errorf("offset %d: there are %d bytes", in.Offset, len(text))
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
	return fmt.Sprintf("%s\n[… %d bytes more; they begin with %s]", text[:end], len(text)-end, ReadOn(in)), nil
}

// DataIn returns the pictures and files among blocks, those in results too.
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

// A Note says why a picture or a file is gone, "" for one that stays. tool names the tool
// that returned it, "" for none.
type Note func(d *message.Data, tool string) string

// SavedRoom is the note for what was taken out of a conversation for its size.
func SavedRoom(d *message.Data, tool string) string {
	again := "ask for it"
	if tool != "" {
		again = "call " + tool
	}
	return "[" + name(d) + " was taken out to save room; " + again + " again if you need it]"
}

func name(d *message.Data) string { return strings.TrimSpace(d.MediaType + " " + d.Name) }

// Damaged is the note for a picture that cannot be sent.
func Damaged(d *message.Data, why string) string {
	return "[" + name(d) + " cannot be shown: " + why + "]"
}

// WithoutData returns msgs with the pictures and files replaced for which there is a note.
func WithoutData(msgs []*message.Message, note Note) []*message.Message {
	out := slices.Clone(msgs)
	for i, m := range out {
		out[i] = withBlocks(m, withoutData(m.Blocks, "", note))
	}
	return out
}

// withoutData returns what puts a note in the place of a picture or a file among blocks.
func withoutData(blocks message.Blocks, tool string, note Note) func(message.Block) message.Block {
	return func(b message.Block) message.Block {
		switch b := b.(type) {
		case *message.Data:
			text := note(b, tool)
			if h, ok := blocks[0].(*message.Hint); ok && text != "" { // or it would be the user's words
				return &message.Hint{Source: h.Source, Text: text}
			}
			if text != "" {
				return &message.Text{Text: text}
			}
		case *message.ToolResult:
			if inner, changed := Each(b.Blocks, withoutData(b.Blocks, b.Name, note)); changed {
				b = new(*b)
				b.Blocks = inner
				return b
			}
		}
		return b
	}
}

// withBlocks returns m with fn applied to its blocks, m itself if that changes nothing.
func withBlocks(m *message.Message, fn func(message.Block) message.Block) *message.Message {
	blocks, changed := Each(m.Blocks, fn)
	if changed {
		m = new(*m)
		m.Blocks = blocks
	}
	return m
}

// Each returns blocks with fn applied to each, blocks itself if that changes nothing.
func Each(blocks message.Blocks, fn func(message.Block) message.Block) (out message.Blocks, changed bool) {
	out = blocks
	for i, b := range blocks {
		if with := fn(b); with != b {
			if !changed {
				out, changed = slices.Clone(blocks), true
			}
			out[i] = with
		}
	}
	return out, changed
}
