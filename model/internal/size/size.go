// Package size measures requests to models, for estimates of their tokens.
package size

import (
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// Of returns the number of bytes of text that a model will read, and of files. Reasoning does not count, since most of it
// is not sent back.
func Of(req *model.Request) (text, files int) {
	text = len(req.System)
	for i := range req.Tools {
		t := &req.Tools[i]
		text += len(t.Name) + len(t.Description) + len(t.Input)
	}
	var add func(message.Blocks)
	add = func(blocks message.Blocks) {
		for _, b := range blocks {
			switch b := b.(type) {
			case *message.Text:
				text += len(b.Text)
			case *message.Hint:
				text += len(b.Text)
			case *message.ToolCall:
				text += len(b.Name) + len(b.Input)
			case *message.ToolResult:
				add(b.Blocks)
			case *message.Data:
				files++
			}
		}
	}
	for _, m := range req.Messages {
		add(m.Blocks)
	}
	return text, files
}
