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

// Calls returns the calls of the assistant message msgs[0], and the first result of each call by the call's id. The
// results may be spread over several messages if some calls had to wait for approval; n is the number of messages read,
// including the first. later has the hints and unmatched results of these messages, which must be sent after the
// results: the APIs allow nothing between calls and results. Calls fails on an id that is empty or used twice.
func Calls(msgs []*message.Message) (calls []*message.ToolCall, results map[string]*message.ToolResult, later message.Blocks, n int, err error) {
	calls = msgs[0].ToolCalls()
	isCall := make(map[string]bool, len(calls))
	for _, c := range calls {
		if c.ID == "" || isCall[c.ID] {
			return nil, nil, nil, 0, fmt.Errorf("tool call %q (%s) has an id that is empty or used twice in the message; give each call a unique id", c.ID, c.Name)
		}
		isCall[c.ID] = true
	}
	results = map[string]*message.ToolResult{}
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
	return calls, results, later, n, nil
}

// Unmatched returns the blocks of a tool message that must be sent in a user message: its hints and, as text, its
// results that are not in used: those without a call, and those whose call has an earlier result.
func Unmatched(m *message.Message, used map[string]*message.ToolResult) message.Blocks {
	blocks := hints(m.Blocks)
	for _, b := range m.Blocks {
		if r, ok := b.(*message.ToolResult); ok && used[r.ID] != r {
			blocks = append(blocks, &message.Text{Text: "Result of " + r.Name + " (" + r.ID + "):\n" + r.Text()})
		}
	}
	return blocks
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

// UniqueID returns the id for the call with the given index in an answer: a new id if id is empty or already used in
// the conversation or the answer. A new id is a hash of the conversation's length, the index and the answer's id. It has
// nine letters and digits, the only form that Mistral accepts.
func UniqueID(id string, conversation []*message.Message, answerID string, index int, inAnswer func(id string) bool) string {
	for try := 0; id == "" || inAnswer(id) || hasCall(conversation, id); try++ {
		h := fnv.New64a()
		fmt.Fprint(h, len(conversation), " ", index, " ", try, " ", answerID)
		s := "00000000" + strconv.FormatUint(h.Sum64(), 36)
		id = "c" + s[len(s)-8:]
	}
	return id
}

// hasCall reports whether a call in a conversation has the id. A set of the ids would cost more than this search: most
// answers have one call.
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

// IsText reports whether a file can be sent as text.
func IsText(d *message.Data) bool {
	return (strings.HasPrefix(d.MediaType, "text/") || d.MediaType == "application/json") && utf8.Valid(d.Bytes)
}

// DescribeFile returns the type and the name of a file, for the model.
func DescribeFile(d *message.Data) string {
	kind := cmp.Or(d.MediaType, "file")
	if d.Name == "" {
		return kind
	}
	return fmt.Sprintf("%s %q", kind, d.Name)
}

// FileNote returns the text that is sent in place of a file that the API does not accept.
func FileNote(d *message.Data) string {
	note := "(" + DescribeFile(d) + ", which cannot be shown here"
	if d.URL != "" {
		note += ": " + d.URL
	}
	return note + ")"
}

// hasImage reports whether messages or results in them contain an image.
func hasImage(messages []*message.Message) bool {
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
