package window

import (
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

const (
	// dataTokens is the assumed size of an image or file: about as much as a large image.
	dataTokens = 1500

	// overhead is the size of the role and separators of a message. A call or result, which also has an id, has twice that.
	overhead = 4
)

// Text estimates the number of tokens of text. The first byte of a rune counts as a quarter of a token, each further byte
// as a third: a token has about four bytes of Latin text, somewhat fewer of other scripts.
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

// estimate is like [Message]. If limit is not 0, the texts of results count as cut to limit bytes; with noData, images and
// files count as replaced by notes.
func estimate(m *message.Message, limit int, noData bool) int {
	text, data := estimateBlocks(m.Blocks, limit, noData)
	return overhead + text + data
}

// estimateBlocks is like estimate, and returns the sizes of texts and of images and files separately.
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
