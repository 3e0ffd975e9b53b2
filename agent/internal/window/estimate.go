package window

import (
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

const (
	// dataTokens is what a picture or a file is taken to cost: about as much as a
	// large picture does.
	dataTokens = 1500

	// overhead is what the roles and separators of a message or a call cost.
	overhead = 4
)

// Text estimates how many tokens text costs: four bytes of Latin text are one, of other
// scripts somewhat fewer, so the second and later bytes of a rune count for more.
func Text(text string) int { return (4*len(text) - utf8.RuneCountInString(text)) / 12 }

// Fixed estimates what stays the same in every request: the system prompt and the tools.
func Fixed(system string, tools []tool.Info) int { return Text(system) + Tools(tools) }

// Tools estimates what a list of tools costs.
func Tools(tools []tool.Info) int {
	n := 0
	for i := range tools {
		n += (len(tools[i].Name) + len(tools[i].Description) + len(tools[i].Input)) / 4
	}
	return n
}

// Messages estimates what a conversation costs.
func Messages(msgs []*message.Message) int {
	n := 0
	for _, m := range msgs {
		n += Message(m)
	}
	return n
}

// Message estimates what a message costs. It leaves thinking out: most servers drop that of earlier
// turns.
func Message(m *message.Message) int { return estimate(m, 0, false) }

// estimate is [Message] with results cut to limit bytes of text, 0 for as they are, and, with noData,
// without pictures and files.
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
