package provider

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
)

// Batch reads an assistant message and the results of its calls, which may be spread over several messages if some
// calls had to wait for approval. It puts the first result of each call into results. It returns the number of
// messages, and their other content, which must be sent after the results, since the APIs allow nothing before
// them. It fails on an id that is empty or used twice.
func Batch(msgs []*message.Message, results map[string]*message.ToolResult) (calls []*message.ToolCall, later message.Blocks, n int, err error) {
	calls = msgs[0].ToolCalls()
	isCall := make(map[string]bool, len(calls))
	for _, c := range calls {
		if c.ID == "" || isCall[c.ID] {
			return nil, nil, 0, fmt.Errorf("tool call %q (%s) has an id that is empty or used twice in the message; give each call a unique id", c.ID, c.Name)
		}
		isCall[c.ID] = true
	}
	later = hints(msgs[0].Blocks)
	for n = 1; n < len(msgs) && len(results) < len(calls); n++ {
		m := msgs[n]
		if m == nil || m.Role != message.RoleTool {
			break
		}
		for _, b := range m.Blocks {
			if r, ok := b.(*message.ToolResult); ok && isCall[r.ID] && results[r.ID] == nil {
				results[r.ID] = r
			}
		}
		later = append(later, Unmatched(m, results)...)
	}
	return calls, later, n, nil
}

// Unmatched returns the blocks of a tool message that must be sent in a user message: its hints and, as text, its
// results that are not in used. These have no call, or their call has an earlier result.
func Unmatched(m *message.Message, used map[string]*message.ToolResult) message.Blocks {
	found := hints(m.Blocks)
	for _, b := range m.Blocks {
		if r, ok := b.(*message.ToolResult); ok && used[r.ID] != r {
			found = append(found, &message.Text{Text: "Result of " + r.Name + " (" + r.ID + "):\n" + r.Text()})
		}
	}
	return found
}

// hints returns the hints among blocks, which can only be sent in a user message.
func hints(blocks message.Blocks) (found message.Blocks) {
	for _, b := range blocks {
		if h, ok := b.(*message.Hint); ok {
			found = append(found, h)
		}
	}
	return found
}

// UniqueID returns the id for the call at the given place of an answer: a new one if id is empty or already used in
// the conversation or the answer. A new id is derived from the conversation's length, the answer's id and the
// place. It has nine letters and digits, the only form that Mistral accepts.
func UniqueID(id string, conversation []*message.Message, answer string, place int, inAnswer func(id string) bool) string {
	for n := 0; id == "" || inAnswer(id) || hasCall(conversation, id); n++ {
		h := fnv.New64a()
		fmt.Fprint(h, len(conversation), " ", place, " ", n, " ", answer)
		s := "00000000" + strconv.FormatUint(h.Sum64(), 36)
		id = "c" + s[len(s)-8:]
	}
	return id
}

// hasCall reports whether a call in a conversation has the id. It searches, which costs less than
// a set of the ids: most answers have one call.
func hasCall(conversation []*message.Message, id string) bool {
	for _, m := range conversation {
		if m.Role != message.RoleAssistant {
			continue
		}
		for _, b := range m.Blocks {
			if c, ok := b.(*message.ToolCall); ok && c.ID == id {
				return true
			}
		}
	}
	return false
}

// IsText reports whether a file can be shown as text.
func IsText(d *message.Data) bool {
	return (strings.HasPrefix(d.MediaType, "text/") || d.MediaType == "application/json") && utf8.Valid(d.Bytes)
}

// FileName returns a description of a file for the model: its type and its name.
func FileName(d *message.Data) string {
	kind := cmp.Or(d.MediaType, "file")
	if d.Name == "" {
		return kind
	}
	return fmt.Sprintf("%s %q", kind, d.Name)
}

// FileNote returns the text that is sent in place of a file.
func FileNote(d *message.Data) string {
	note := "(" + FileName(d) + ", which cannot be shown here"
	if d.URL != "" {
		note += ": " + d.URL
	}
	return note + ")"
}

// holdsImage reports whether messages contain an image, also in results.
func holdsImage(messages []*message.Message) bool {
	var inBlocks func(message.Blocks) bool
	inBlocks = func(blocks message.Blocks) bool {
		return slices.ContainsFunc(blocks, func(b message.Block) bool {
			switch b := b.(type) {
			case *message.Data:
				return strings.HasPrefix(b.MediaType, "image/")
			case *message.ToolResult:
				return inBlocks(b.Blocks)
			}
			return false
		})
	}
	return slices.ContainsFunc(messages, func(m *message.Message) bool { return inBlocks(m.Blocks) })
}
