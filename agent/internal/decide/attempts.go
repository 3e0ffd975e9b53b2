package decide

import (
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/message"
)

// The hints for the model when its last answer cannot be used.
const (
	HintEmpty  = "Your last answer was empty. Answer the user, or call a tool."
	HintCutOff = "Your last answer was cut off by a lost connection. Go on from where it stopped, without repeating it."
	hintLoop   = "You have made the same calls %d times with the same results. Do something else, or say what prevents you."
)

// loopHint returns the hint to add before the model is called again, "" for none.
func loopHint(msgs []*message.Message) string {
	if n := Repeats(msgs); n >= loopWarn && n%loopWarn == 0 {
		return fmt.Sprintf(hintLoop, n)
	}
	return ""
}

// maxAgain is how often the model is called again because its answer was empty or broke off.
const maxAgain = 2

// Attempts counts the model calls for one answer that can be used.
type Attempts struct{ answers int }

// An Answer describes the result of a model call.
type Answer struct {
	Failed    bool // it ended with an error
	Retryable bool // the error may not occur again
	Refused   bool // the error says that the conversation cannot be sent as it is

	HasBlocks bool
	HasText   bool
	Empty     bool // it has neither text nor a call
}

// A Reaction is the reaction to an answer. The zero Reaction accepts an answer that did not fail, and ends the run
// with the error of one that did.
type Reaction struct {
	Fix      bool   // change the conversation so that it can be sent
	KeepText bool   // keep the part that was shown
	Discard  bool   // discard its deltas
	Again    bool   // call the model again
	Hint     string // the hint to add before, "" for none
}

// React decides the reaction to an answer. A failure without any content ends the run: the model has already retried
// what can be retried.
func (n *Attempts) React(a Answer) Reaction {
	if a.Refused { // not counted: the request never reached the model
		return Reaction{Fix: true, Again: true}
	}
	again := n.answers < maxAgain && (!a.Failed || a.Retryable)
	n.answers++
	switch {
	case !a.Failed && a.Empty:
		return Reaction{Again: again, Hint: HintEmpty}
	case a.Failed && a.HasText:
		return Reaction{KeepText: true, Again: again, Hint: HintCutOff}
	case a.Failed && a.HasBlocks:
		return Reaction{Discard: true, Again: again}
	}
	return Reaction{}
}

// Answers returns the number of answers so far.
func (n *Attempts) Answers() int { return n.answers }

// FullAnswer returns the model's last message. If that continues an answer that broke off, it returns one
// message of all the parts, with the id of the last.
func FullAnswer(msgs []*message.Message) *message.Message {
	last := len(msgs) - 1
	m := msgs[last]
	for ; last >= 2 && isCutOffHint(msgs[last-1]) && msgs[last-2].Role == message.RoleAssistant; last -= 2 {
		cp := *m
		cp.Blocks = joined(msgs[last-2].Blocks, m.Blocks)
		m = &cp
	}
	return m
}

// AnswerOf returns [FullAnswer] of the model's last message since the user's; nil if there is none.
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

// isCutOffHint reports whether m is the hint that follows an answer that broke off.
func isCutOffHint(m *message.Message) bool {
	if m.Role != message.RoleUser || len(m.Blocks) != 1 {
		return false
	}
	h, ok := m.Blocks[0].(*message.Hint)
	return ok && h.Source == HintSource && h.Text == HintCutOff
}

// HintSource is the source of the hints that the loop gives the model.
const HintSource = "agent"

// joined joins two parts of one answer. The texts that meet become one text.
func joined(a, b message.Blocks) message.Blocks {
	i := slices.IndexFunc(b, func(b message.Block) bool { _, thinks := b.(*message.Thinking); return !thinks })
	if len(a) > 0 && i >= 0 {
		head, endsInText := a[len(a)-1].(*message.Text)
		tail, beginsWithText := b[i].(*message.Text)
		if endsInText && beginsWithText {
			seam := &message.Text{ID: head.ID, Text: head.Text + tail.Text}
			return slices.Concat(a[:len(a)-1], message.Blocks{seam}, b[i+1:])
		}
	}
	return slices.Concat(a, b)
}
