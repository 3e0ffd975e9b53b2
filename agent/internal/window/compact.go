package window

import (
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// IsHint reports whether m is a hint from the program, perhaps with images and files, and has no text of the user.
func IsHint(m *message.Message) bool {
	if m.Role != message.RoleUser || len(m.Blocks) == 0 {
		return false
	}
	_, ok := m.Blocks[0].(*message.Hint)
	return ok && !slices.ContainsFunc(m.Blocks, func(b message.Block) bool { _, isText := b.(*message.Text); return isText })
}

// TurnStart returns the index of the user's last message, 0 if there is none. Hints, which also have the user's role, do
// not count.
func TurnStart(msgs []*message.Message) int {
	for i := len(msgs) - 1; i > 0; i-- {
		if msgs[i].Role == message.RoleUser && !IsHint(msgs[i]) {
			return i
		}
	}
	return 0
}

// KeepFrom returns the index of the first message to keep unchanged: the earliest start of a turn from which all
// messages fit the budget. If the current turn alone is too long, KeepFrom returns the start of a step in that turn; the
// newest step is kept even if it is too long.
func KeepFrom(msgs []*message.Message, budget int) int {
	start := TurnStart(msgs)
	from, sum := len(msgs), 0
	for i := len(msgs) - 1; i >= 0; i-- {
		sum += Message(msgs[i])
		startsTurnOrStep := i > start && msgs[i].Role == message.RoleAssistant || i <= start && msgs[i].Role == message.RoleUser
		if sum > budget && from < len(msgs) {
			break
		}
		if startsTurnOrStep {
			from = i
		}
	}
	return from
}

// Newest returns the index from which the messages fit into budget if their results are cut to OldResult and their images
// and files removed. The last message, with its calls if it has results, is kept even if it does not fit.
func Newest(msgs []*message.Message, budget int) int {
	from, sum := len(msgs), 0
	for i := len(msgs) - 1; i >= 0; i-- {
		sum += estimate(msgs[i], OldResult, true)
		if sum > budget && from < len(msgs) {
			break
		}
		if msgs[i].Role != message.RoleTool {
			from = i
		}
	}
	return from
}

// A Cut says which results of a conversation are shortened, and which images and files removed.
type Cut struct {
	From int // index of the first of the newest messages
	Old  int // bytes of text to keep of each result before From; 0 means all
	New  int // bytes of text to keep of each result from From on; 0 means all
	Data int // images and files in messages before this index are removed
}

// limit returns how many bytes to keep of each result in message i, 0 for all.
func (c Cut) limit(i int) int {
	if i < c.From {
		return c.Old
	}
	return c.New
}

// Size estimates msgs with the cut.
func (c Cut) Size(msgs []*message.Message) int {
	n := 0
	for i, m := range msgs {
		n += estimate(m, c.limit(i), i < c.Data)
	}
	return n
}

// Apply returns msgs with the cut.
func (c Cut) Apply(msgs []*message.Message, keep Keeper) []*message.Message {
	out := slices.Clone(msgs)
	for i, m := range out {
		if limit := c.limit(i); limit > 0 {
			out[i] = mapMessage(m, func(b message.Block) message.Block {
				if res, ok := b.(*message.ToolResult); ok {
					return Shorten(res, limit, keep)
				}
				return b
			})
		}
	}
	return append(WithoutData(out[:c.Data], RemovedNote), out[c.Data:]...)
}

// WithoutSummary returns the mildest cut that makes msgs fit into budget, if there is one. It shortens the results before
// from, which the model can read again; then it also removes the images and files before from; then, if the messages from
// there on are larger than keep, it also shortens the results in them.
func WithoutSummary(msgs []*message.Message, from, keep, budget int) (cut Cut, fits bool) {
	cuts := []Cut{{From: from, Old: OldResult}, {From: from, Old: OldResult, Data: from}}
	if Messages(msgs[from:]) > keep {
		cuts = append(cuts, cuts[1].narrower(newResult)...)
	}
	return firstThatFits(cuts, msgs, budget)
}

// WithSummary returns the mildest cut that makes msgs, in which a summary has replaced the messages before from, fit into
// budget; if no cut does, the strongest one.
func WithSummary(msgs []*message.Message, from, budget int) (cut Cut, fits bool) {
	cuts := append([]Cut{{From: from}}, Cut{From: from}.narrower(leastResult)...)
	cuts = append(cuts, Cut{From: from, New: leastResult, Data: len(msgs)})
	return firstThatFits(cuts, msgs, budget)
}

// narrower returns copies of the cut that keep less and less of each newest result: from 64 KiB down to least bytes.
func (c Cut) narrower(least int) (cuts []Cut) {
	for c.New = 64 << 10; c.New > least; c.New /= 2 {
		cuts = append(cuts, c)
	}
	c.New = least
	return append(cuts, c)
}

func firstThatFits(cuts []Cut, msgs []*message.Message, budget int) (cut Cut, fits bool) {
	for _, cut = range cuts {
		if cut.Size(msgs) <= budget {
			return cut, true
		}
	}
	return cut, false
}

// The sources of the hints that replace removed messages.
const (
	SummarySource = "summary"
	CutSource     = "cut" // replaces messages without a summary
	pinnedSource  = "pinned"
)

// pinnedIntro comes before a pinned result in a hint.
const pinnedIntro = "%s returned this before; it is still valid.\n\n"

// source returns the source of a hint, "" if m is not a hint.
func source(m *message.Message) string {
	if !IsHint(m) {
		return ""
	}
	return m.Blocks[0].(*message.Hint).Source
}

// replacesMessages reports whether m is a hint in place of removed messages, with or without a summary.
func replacesMessages(m *message.Message) bool {
	s := source(m)
	return s == SummarySource || s == CutSource
}

// Summaries returns the summaries in msgs.
func Summaries(msgs []*message.Message) []*message.Message {
	return slices.DeleteFunc(slices.Clone(msgs), func(m *message.Message) bool { return source(m) != SummarySource })
}

// Summarised reports whether a summary of the messages before from would gain nothing: they are only hints that replace
// messages, and the user's last message, which stays.
func Summarised(msgs []*message.Message, from int) bool {
	start := TurnStart(msgs)
	for i, m := range msgs[:from] {
		if !replacesMessages(m) && (i != start || m.Role != message.RoleUser) {
			return false
		}
	}
	return true
}

// Pinned returns, as hints to add to a summary, the pinned results in msgs, in order and without duplicates. Of results
// that do not all fit into budget, newer ones are preferred.
func Pinned(msgs []*message.Message, budget int) message.Blocks {
	var pinned message.Blocks
	seen := map[string]bool{}
	add := func(h *message.Hint) {
		if n := Text(h.Text); !seen[h.Text] && n <= budget {
			budget -= n
			seen[h.Text] = true
			pinned = append(pinned, h)
		}
	}
	for _, m := range slices.Backward(msgs) {
		for _, b := range slices.Backward(m.Blocks) {
			switch b := b.(type) {
			case *message.ToolResult:
				if b.Pinned {
					add(&message.Hint{Source: pinnedSource, Text: fmt.Sprintf(pinnedIntro, b.Name) + b.Text()})
				}
			case *message.Hint:
				if b.Source == pinnedSource {
					add(b)
				}
			}
		}
	}
	slices.Reverse(pinned)
	return pinned
}

// Replace returns msgs with the messages before from replaced by hint. The user's last message
// stays. If hint has no summary, earlier summaries stay too.
func Replace(msgs []*message.Message, from int, hint *message.Message) []*message.Message {
	var out []*message.Message
	start := TurnStart(msgs) // 0 if there is no message of the user: then message 0 has another role or is a hint
	if m := msgs[start]; start < from && m.Role == message.RoleUser && !replacesMessages(m) {
		out = append(out, m)
	}
	if source(hint) != SummarySource {
		for _, m := range Summaries(msgs[:from]) {
			if len(m.Blocks) > 1 { // the new hint repeats the pinned results
				m = new(*m)
				m.Blocks = m.Blocks[:1]
			}
			out = append(out, m)
		}
	}
	return append(append(out, hint), msgs[from:]...)
}

// Largest describes what fills a request that cannot be shortened further.
func (g *Gauge) Largest(system string, tools []tool.Info, msgs []*message.Message) string {
	longest := slices.MaxFunc(msgs, func(a, b *message.Message) int { return Message(a) - Message(b) })
	return fmt.Sprintf("nothing more can be removed: the system prompt has about %d tokens, its %d tools %d, and the longest message, "+
		"with role %s, %d; shorten one of them, or use a model with a larger window",
		g.Tokens(Text(system)), len(tools), g.Tokens(Tools(tools)), longest.Role, g.Tokens(Message(longest)))
}
