package decide

import (
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/message"
)

// HintSource is the source of the hints that the loop gives the model.
const HintSource = "agent"

// Hints for the model, about an answer that cannot be used and about a loop.
const (
	HintEmpty  = "Your last answer was empty. Answer the user, or call a tool."
	HintCutOff = "Your last answer was cut off by a lost connection. Go on from where it stopped, without repeating it."
	hintLoop   = "You have made the same calls %d times with the same results. Do something else, or say what prevents you."
)

// loopHint returns the hint to add before the model is called again, "" for none.
func loopHint(msgs []*message.Message) string {
	if Repeats(msgs) == loopWarn {
		return fmt.Sprintf(hintLoop, loopWarn)
	}
	return ""
}

// maxAgain is how often the model is called again because an answer was empty or broke off.
const maxAgain = 2

// Attempts counts the answers to one request until one can be used.
type Attempts struct{ answers int }

// An Answer describes the result of a model call.
type Answer struct {
	Failed    bool // the call ended with an error
	Retryable bool // the error may not occur again
	Refused   bool // the error says that the conversation cannot be sent as it is

	HasBlocks bool // also if the call failed: what came before the error
	HasText   bool
	Empty     bool // the answer has neither text nor a call
}

// A Reaction is the reaction to an answer. The zero Reaction accepts an answer that did not fail, and ends the run
// with the error of a failed one.
type Reaction struct {
	Fix      bool   // change the conversation so that it can be sent
	KeepText bool   // add the text before the error to the conversation
	Discard  bool   // tell the consumer that the deltas before the error are not part of the conversation
	Again    bool   // call the model again
	Hint     string // the hint to add to the conversation before that call, "" for none
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

// FullAnswer returns the last message. If that message continues an answer that broke off, FullAnswer returns a message of
// all the parts, with the id of the last part.
func FullAnswer(msgs []*message.Message) *message.Message {
	last := len(msgs) - 1
	m := msgs[last]
	for ; last >= 2 && isCutOffHint(msgs[last-1]) && msgs[last-2].Role == message.RoleAssistant; last -= 2 {
		cp := *m
		cp.Blocks = join(msgs[last-2].Blocks, m.Blocks)
		m = &cp
	}
	return m
}

// AnswerOf returns [FullAnswer] of the model's last message after the user's last message; nil if there is none.
func AnswerOf(msgs []*message.Message) *message.Message {
	for i, m := range slices.Backward(msgs) {
		switch {
		case m.Role == message.RoleAssistant:
			return FullAnswer(msgs[:i+1])
		case m.Role == message.RoleUser && !isHint(m):
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

// join joins two parts of one answer. If the first part ends and the second begins with text, these become one text, and
// the thinking between them is left out.
func join(first, second message.Blocks) message.Blocks {
	i := slices.IndexFunc(second, func(b message.Block) bool { _, isThinking := b.(*message.Thinking); return !isThinking })
	if len(first) > 0 && i >= 0 {
		head, endsWithText := first[len(first)-1].(*message.Text)
		tail, beginsWithText := second[i].(*message.Text)
		if endsWithText && beginsWithText {
			joined := &message.Text{ID: head.ID, Text: head.Text + tail.Text}
			return slices.Concat(first[:len(first)-1], message.Blocks{joined}, second[i+1:])
		}
	}
	return slices.Concat(first, second)
}
