package window

import (
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

const (
	// dataTokens is the assumed size of an image or file: about as much as a large image.
	dataTokens = 1500

	// overhead is the size of the role and separators of a message or call.
	overhead = 4
)

// Text estimates the number of tokens of text: four bytes of Latin text are one, of other
// scripts somewhat fewer, so the second and later bytes of a rune count for more.
func Text(text string) int { return (4*len(text) - utf8.RuneCountInString(text)) / 12 }

// Fixed estimates the size of what is the same in every request: the system prompt and the tools.
func Fixed(system string, tools []tool.Info) int { return Text(system) + Tools(tools) }

// Tools estimates the size of a list of tools.
func Tools(tools []tool.Info) int {
	n := 0
	for i := range tools {
		n += (len(tools[i].Name) + len(tools[i].Description) + len(tools[i].Input)) / 4
	}
	return n
}

// Messages estimates the size of a conversation.
func Messages(msgs []*message.Message) int {
	n := 0
	for _, m := range msgs {
		n += Message(m)
	}
	return n
}

// Message estimates the size of a message. It ignores thinking, which most servers drop from earlier turns.
func Message(m *message.Message) int { return estimate(m, 0, false) }

// estimate is like [Message] with the text of results cut to limit bytes, if limit is not 0, and, if noData is
// set, without images and files.
func estimate(m *message.Message, limit int, noData bool) int {
	text, data := estimateBlocks(m.Blocks, limit, noData)
	return overhead + text + data
}

func estimateBlocks(blocks message.Blocks, limit int, noData bool) (text, data int) {
	for _, b := range blocks {
		switch b := b.(type) {
		case *message.Text:
			text += Text(b.Text)
		case *message.Hint:
			text += Text(b.Text)
		case *message.Data:
			if noData {
				data += noteTokens
			} else {
				data += dataTokens
			}
		case *message.ToolCall:
			text += Text(b.Name) + Text(string(b.Input)) + 2*overhead
		case *message.ToolResult:
			t, d := estimateBlocks(b.Blocks, 0, noData)
			if limit > 0 && Cuttable(b, limit) {
				t = t*limit/len(b.Text()) + noteTokens
			}
			text, data = text+t+2*overhead, data+d
		}
	}
	return text, data
}
