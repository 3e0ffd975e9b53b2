package provider

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
)

// Hints returns the hints among blocks, which can only be sent in a user message.
func Hints(blocks message.Blocks) (found message.Blocks) {
	for _, b := range blocks {
		if h, ok := b.(*message.Hint); ok {
			found = append(found, h)
		}
	}
	return found
}

// StrayResults returns, as text, the results in blocks that are not in used: those
// without a call, and second ones.
func StrayResults(blocks message.Blocks, used map[string]*message.ToolResult) (texts message.Blocks) {
	for _, b := range blocks {
		if r, ok := b.(*message.ToolResult); ok && used[r.ID] != r {
			texts = append(texts, &message.Text{Text: "Result of " + r.Name + " (" + r.ID + "):\n" + r.Text()})
		}
	}
	return texts
}

// HasCall reports whether a call in a conversation has the id. It searches, which costs less than
// a set of the ids: most answers have one call.
func HasCall(conversation []*message.Message, id string) bool {
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
	var in func(message.Blocks) bool
	in = func(blocks message.Blocks) bool {
		return slices.ContainsFunc(blocks, func(b message.Block) bool {
			switch b := b.(type) {
			case *message.Data:
				return strings.HasPrefix(b.MediaType, "image/")
			case *message.ToolResult:
				return in(b.Blocks)
			}
			return false
		})
	}
	return slices.ContainsFunc(messages, func(m *message.Message) bool { return in(m.Blocks) })
}
