package agent

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// Limits bound what one input may cost. A run that reaches one asks the model
// for a last answer, without tools, and ends with [EndLimit]. They are looked at
// before each model call; only ToolCalls also stops the rest of a batch. The
// zero value of a field other than Steps sets no limit. What sub-agents ([AsTool])
// do counts as it happens, but for their steps.
type Limits struct {
	Steps     int           // model calls with tools; 0 means 50
	ToolCalls int           // calls that the model may make
	Tokens    int           // input and output together, as the server reports them
	Time      time.Duration // since the input, waiting for people included
	Cost      float64       // in the currency of Price

	// What tools, and the MCP servers behind them, may have the model answer
	// (sampling): how often, 0 means 10, and how many tokens for all of it, input
	// and output together, 0 means 50,000; negative is not at all. The other limits
	// count it too. The policy decides about each as about a call of a tool named
	// mcp__SERVER__sampling; what it asks about [Config.Elicit] must allow. With
	// [Seams.Step] there is none of it.
	Samples, SampleTokens int

	// Price returns what the tokens of an answer cost. Cost needs it.
	Price func(modelName string, u message.Usage) float64
}

// loopWarn and loopStop are after how many identical rounds, the same calls with
// the same results, the model is warned and the run is ended.
const (
	loopWarn = 3
	loopStop = 6
)

// spent is what the current input has cost so far.
type spent struct {
	Steps   int       `json:"steps,omitempty"`
	Calls   int       `json:"calls,omitempty"`
	Tokens  int       `json:"tokens,omitempty"`
	Cost    float64   `json:"cost,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Stopped string    `json:"stopped,omitempty"` // the limit because of which the last answer was asked for

	Samples      int `json:"samples,omitempty"`
	SampleTokens int `json:"sample_tokens,omitempty"`
}

// reached names the limit that is used up, "" for none, of those that an agent
// shares with the agents that work for it.
func (l *Limits) reached(s *spent, now time.Time) string {
	switch {
	case l.ToolCalls > 0 && s.Calls >= l.ToolCalls:
		return fmt.Sprintf("the limit of %d tool calls", l.ToolCalls)
	case l.Tokens > 0 && s.Tokens >= l.Tokens:
		return fmt.Sprintf("the limit of %d tokens", l.Tokens)
	case l.Time > 0 && now.Sub(s.Since) >= l.Time:
		return fmt.Sprintf("the limit of %v", l.Time)
	case l.Cost > 0 && s.Cost >= l.Cost:
		return fmt.Sprintf("the limit of %g in money", l.Cost)
	}
	return ""
}

// repeats counts how many rounds at the end of the conversation are identical:
// the same calls, in the same order, with the same results.
func repeats(msgs []*message.Message) int {
	n := 0
	for end := len(msgs); end >= 2; end -= 2 {
		if !isRound(msgs[end-2:end]) || n > 0 && !sameRound(msgs[end-2:end], msgs[len(msgs)-2:]) {
			break
		}
		n++
		for end >= 3 && window.IsHint(msgs[end-3]) { // warnings stand between rounds
			end--
		}
	}
	return n
}

// isRound reports whether two messages are an answer with calls and their
// results.
func isRound(m []*message.Message) bool {
	return m[0].Role == message.RoleAssistant && m[1].Role == message.RoleTool
}

// sameRound compares the calls and the results of two rounds. What the model says
// with them does not count: it apologises in other words each time.
func sameRound(a, b []*message.Message) bool {
	return sameBlocks(a[0].Blocks, b[0].Blocks) && sameBlocks(a[1].Blocks, b[1].Blocks)
}

func sameBlocks(a, b message.Blocks) bool {
	i := 0
	for _, block := range a {
		if !isCallOrResult(block) {
			continue
		}
		for i < len(b) && !isCallOrResult(b[i]) {
			i++
		}
		if i == len(b) || !sameCallOrResult(block, b[i]) {
			return false
		}
		i++
	}
	return !slices.ContainsFunc(b[i:], isCallOrResult)
}

func isCallOrResult(b message.Block) bool {
	switch b.(type) {
	case *message.ToolCall, *message.ToolResult:
		return true
	}
	return false
}

func sameCallOrResult(a, b message.Block) bool {
	switch a := a.(type) {
	case *message.ToolCall:
		b, ok := b.(*message.ToolCall)
		return ok && a.Name == b.Name && bytes.Equal(a.Input, b.Input)
	case *message.ToolResult:
		b, ok := b.(*message.ToolResult)
		return ok && a.Outcome == b.Outcome && a.Text() == b.Text()
	}
	return false
}

// limit asks for a last answer without tools. What comes of it is kept if it is
// of use; a failure changes nothing, the run is over anyway.
func (r *run) limit() error {
	if err := errors.Join(r.landAll(), r.report()); err != nil {
		return err
	}
	r.st.spent.Stopped = r.limitReached()
	hint := "Say what you have found and what is left to do, without calling a tool."
	if r.final != nil {
		hint = hintFinal
	}
	if err := r.hint("This is the end: " + r.st.spent.Stopped + " was reached. " + hint); err != nil {
		return err
	}
	r.lastAnswer = true
	ans, err := r.generate()
	r.lastAnswer = false
	if err == nil && r.final != nil {
		return r.keepFinal(ans)
	}
	if err == nil {
		r.spend(ans.Message)
	}
	return r.keepText(ans, string(ans.Finish))
}

// limitReached names the limit because of which this run may not go on, "" for none.
// Steps and loops are each run's own: that a caller is in its last step is no reason
// for a sub-agent to stop in that step.
func (r *run) limitReached() string {
	switch {
	case r.st.spent.Steps >= r.cfg.Limits.Steps:
		return fmt.Sprintf("the limit of %d steps", r.cfg.Limits.Steps)
	case repeats(r.st.Messages) >= loopStop:
		return fmt.Sprintf("a loop: the same calls had the same results %d times", loopStop)
	}
	return r.sharedLimit()
}

// sharedLimit names the limit that is used up of this run or of one that it works
// for.
func (r *run) sharedLimit() string {
	if name := r.cfg.Limits.reached(&r.st.spent, r.cfg.Now()); name != "" || r.a.over == nil {
		return name
	}
	var name string
	// An error means that the outer run has ended, and this one is about to.
	_ = r.a.over.do(func(outer *run, _ *openCall) error {
		name = outer.sharedLimit()
		return nil
	})
	return name
}

// takeCall counts a call of the model and reports whether the limits, of this run
// and of those that it works for, allow it.
func (r *run) takeCall() bool {
	ok := r.cfg.Limits.ToolCalls <= 0 || r.st.spent.Calls < r.cfg.Limits.ToolCalls
	r.st.spent.Calls++
	if r.a.over == nil {
		return ok
	}
	outerOK := true
	// At once: agents that work side by side must not both have the last one.
	err := r.a.over.do(func(outer *run, _ *openCall) error {
		outerOK = outer.takeCall()
		return nil
	})
	return ok && outerOK && err == nil
}

// A charge is what a sub-agent has cost altogether, but for its calls. With a call
// stands what the outer run was charged so far.
type charge struct {
	Usage message.Usage `json:"usage,omitzero"`
	Cost  float64       `json:"cost,omitempty"`
}

// charge counts what the sub-agent that works on c has cost since the last time.
// It is stored together with the sub-agent's State, so that after a crash, too,
// nothing is charged twice or forgotten.
func (r *run) charge(c *openCall, total charge) {
	old := c.Charged.Usage
	r.addUsage(message.Usage{Input: total.Usage.Input - old.Input, Output: total.Usage.Output - old.Output,
		Cached: total.Usage.Cached - old.Cached, CacheWrite: total.Usage.CacheWrite - old.CacheWrite,
		Reasoning: total.Usage.Reasoning - old.Reasoning})
	r.st.spent.Cost += total.Cost - c.Charged.Cost
	c.Charged = total
}

// spend adds what an answer cost.
func (r *run) spend(m *message.Message) {
	if m.Usage == nil {
		return
	}
	u := *m.Usage
	r.addUsage(u)
	if r.cfg.Limits.Price != nil {
		r.st.spent.Cost += r.cfg.Limits.Price(m.Model, u)
	}
}

// addUsage counts tokens, of this agent or of one that worked for it.
func (r *run) addUsage(u message.Usage) {
	r.usage.Add(u)
	r.st.Usage.Add(u)
	r.st.spent.Tokens += u.Input + u.Output
}

// choice returns what the model may do in the next request. The tools stay listed
// when none may be called, or the provider's cache would be lost for the last answer.
func (r *run) choice() model.ToolChoice {
	if r.lastAnswer {
		return model.ToolChoice{Mode: model.ChoiceNone}
	}
	return model.ToolChoice{}
}
