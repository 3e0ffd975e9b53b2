package decide

import (
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/message"
)

// What the model reads when its last answer cannot be used.
const (
	HintEmpty  = "Your last answer was empty. Answer the user, or call a tool."
	HintCutOff = "Your last answer was cut off by a lost connection. Go on from where it stopped, without repeating it."
	hintLoop   = "You have made the same calls %d times and had the same results. Do something else, or say what stops you."
)

// loopHint is what the model reads before it is asked again, "" for nothing.
func loopHint(msgs []*message.Message) string {
	if n := Repeats(msgs); n >= loopWarn && n%loopWarn == 0 {
		return fmt.Sprintf(hintLoop, n)
	}
	return ""
}

// maxMends is how often one question is asked again because the answer was empty or broke off.
const maxMends = 2

// A Question is one question to the model, which may take several model calls.
type Question struct{ mends int }

// An Answer is what came of a model call.
type Answer struct {
	Failed    bool // it ended with an error, which:
	Retryable bool // may not come again
	Refused   bool // says that the conversation cannot be sent as it is

	Any   bool // it holds blocks
	Shown bool // it holds text
	Empty bool // it neither says anything nor calls a tool
}

// A Reaction is what is done about an answer. The zero Reaction to one that did not fail is to accept
// it; to another, to end the run with its error.
type Reaction struct {
	Relieve bool   // change the conversation so that it may be sent
	Keep    bool   // what was shown of it
	Void    bool   // its pieces are
	Again   bool   // ask again
	Hint    string // what the model reads before it is asked again, "" for nothing
}

// React decides what is done about an answer. One that broke off with nothing in it was tried often
// enough by the retries.
func (q *Question) React(a Answer) Reaction {
	if a.Refused { // which says nothing about the answer
		return Reaction{Relieve: true, Again: true}
	}
	again := q.mends < maxMends && (!a.Failed || a.Retryable)
	q.mends++
	switch {
	case !a.Failed && a.Empty:
		return Reaction{Again: again, Hint: HintEmpty}
	case a.Failed && a.Shown:
		return Reaction{Keep: true, Again: again, Hint: HintCutOff}
	case a.Failed && a.Any:
		return Reaction{Void: true, Again: again}
	}
	return Reaction{}
}

// Answers is how many answers there were.
func (q *Question) Answers() int { return q.mends }

// FullAnswer returns the model's last message. Where that continues an answer that broke off it is
// a message of both parts, or of more, with the id of the last.
func FullAnswer(msgs []*message.Message) *message.Message {
	last := len(msgs) - 1
	m := msgs[last]
	for ; last >= 2 && isCutOff(msgs[last-1]) && msgs[last-2].Role == message.RoleAssistant; last -= 2 {
		cp := *m
		cp.Blocks = joined(msgs[last-2].Blocks, m.Blocks)
		m = &cp
	}
	return m
}

// AnswerOf returns [FullAnswer] of the model's last message since the user spoke; nil if it has said
// nothing yet.
func AnswerOf(msgs []*message.Message) *message.Message {
	for i, m := range slices.Backward(msgs) {
		switch {
		case m.Role == message.RoleAssistant:
			return FullAnswer(msgs[:i+1])
		case m.Role == message.RoleUser && slices.ContainsFunc(m.Blocks, func(b message.Block) bool { _, hint := b.(*message.Hint); return !hint }):
			return nil
		}
	}
	return nil
}

// isCutOff reports whether m is the hint that follows an answer that broke off.
func isCutOff(m *message.Message) bool {
	if m.Role != message.RoleUser || len(m.Blocks) != 1 {
		return false
	}
	h, ok := m.Blocks[0].(*message.Hint)
	return ok && h.Source == HintSource && h.Text == HintCutOff
}

// HintSource is the source of the hints that the loop gives the model.
const HintSource = "agent"

// joined puts two parts of one answer together. The text at the seam is one text.
func joined(a, b message.Blocks) message.Blocks {
	i := slices.IndexFunc(b, func(b message.Block) bool { _, thinks := b.(*message.Thinking); return !thinks })
	if len(a) > 0 && i >= 0 {
		head, ok := a[len(a)-1].(*message.Text)
		tail, too := b[i].(*message.Text)
		if ok && too {
			seam := &message.Text{ID: head.ID, Text: head.Text + tail.Text}
			return slices.Concat(a[:len(a)-1], message.Blocks{seam}, b[i+1:])
		}
	}
	return slices.Concat(a, b)
}
