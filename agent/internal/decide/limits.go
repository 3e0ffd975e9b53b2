package decide

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

// Limits are the limits for one input; 0 is no limit, except for Steps.
type Limits struct {
	Steps     int
	ToolCalls int
	Tokens    int
	Time      time.Duration
	Cost      float64

	Samples, SampleTokens int // of the sampling requests of servers
}

// Spent is what was used for the current input so far.
type Spent struct {
	Steps   int       `json:"steps,omitempty"`
	Calls   int       `json:"calls,omitempty"`
	Tokens  int       `json:"tokens,omitempty"`
	Cost    float64   `json:"cost,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Stopped string    `json:"stopped,omitempty"` // the limit that ends the run

	Samples      int `json:"samples,omitempty"`
	SampleTokens int `json:"sample_tokens,omitempty"`
}

// A Charge is what model calls have used. In a Call it is what the outer run was charged so far for a sub-agent.
type Charge struct {
	Usage message.Usage `json:"usage,omitzero"`
	Cost  float64       `json:"cost,omitempty"`
}

// Since returns the difference between c and an earlier charge.
func (c Charge) Since(old Charge) Charge {
	u, o := c.Usage, old.Usage
	return Charge{message.Usage{Input: u.Input - o.Input, Output: u.Output - o.Output, Cached: u.Cached - o.Cached,
		CacheWrite: u.CacheWrite - o.CacheWrite, Reasoning: u.Reasoning - o.Reasoning}, c.Cost - old.Cost}
}

// Add adds a charge.
func (s *Spent) Add(c Charge) {
	s.Tokens += c.Usage.Input + c.Usage.Output
	s.Cost += c.Cost
}

// CountCall counts a call that the model makes, and reports whether the limit allows it.
func (s *Spent) CountCall(l Limits) bool {
	s.Calls++
	return l.ToolCalls <= 0 || s.Calls <= l.ToolCalls
}

// Left returns how much time is left, and whether it is limited.
func (s *Spent) Left(l Limits, now time.Time) (time.Duration, bool) {
	return l.Time - now.Sub(s.Since), l.Time > 0
}

// maxLastAnswerTime is the maximum time for the model's last answer when the time is up.
const maxLastAnswerTime = 30 * time.Second

// LastAnswerTime returns how long a last answer may take beyond Limits.Time: a quarter of that, but at least a
// second and at most half a minute.
func (l Limits) LastAnswerTime() time.Duration {
	return min(max(l.Time/4, time.Second), maxLastAnswerTime)
}

// Shared returns the name of the limit that is reached, "" for none, among those that an agent shares with
// its sub-agents.
func (s *Spent) Shared(l Limits, now time.Time) string {
	switch {
	case l.ToolCalls > 0 && s.Calls >= l.ToolCalls:
		return "the limit of " + count(l.ToolCalls, "tool call")
	case l.Tokens > 0 && s.Tokens >= l.Tokens:
		return fmt.Sprintf("the limit of %d tokens", l.Tokens)
	case l.Time > 0 && now.Sub(s.Since) >= l.Time:
		return l.TimeUp()
	case l.Cost > 0 && s.Cost >= l.Cost:
		return fmt.Sprintf("the cost limit of %g", l.Cost)
	}
	return ""
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// TimeUp returns the name of the time limit.
func (l Limits) TimeUp() string { return fmt.Sprintf("the limit of %v", l.Time) }

// Sample decides whether a server may have the model answer a request of the given number of input tokens,
// counts it, and returns the maximum length of the answer. refused says why it may not.
func (s *Spent) Sample(l Limits, input, wanted int) (maxTokens int, refused string) {
	if s.Samples >= l.Samples {
		return 0, fmt.Sprintf("the limit of %s was reached", count(l.Samples, "sample"))
	}
	left := l.SampleTokens - s.SampleTokens
	if l.Tokens > 0 {
		left = min(left, l.Tokens-s.Tokens)
	}
	if left -= input; left <= 0 {
		return 0, fmt.Sprintf("it needs about %d tokens, more than what remains of the budget", input)
	}
	s.Samples++
	if wanted > 0 {
		left = min(left, wanted)
	}
	return left, ""
}

// The numbers of identical steps (the same calls with the same results) after which the model is warned and
// the run is ended.
const (
	loopWarn = 3
	loopStop = 6
)

// Reached returns the name of the limit because of which a run may not call the model again, "" for none. The
// limits of steps and loops apply to each run by itself: a caller in its last step does not stop its sub-agent.
func (s *State) Reached(in Situation) string {
	switch {
	case s.Spent.Steps >= in.Limits.Steps:
		return "the limit of " + count(in.Limits.Steps, "step")
	case Repeats(in.Messages) >= loopStop:
		return fmt.Sprintf("a loop: the same calls had the same results %d times", loopStop)
	}
	if limit := s.Spent.Shared(in.Limits, in.Now); limit != "" {
		return limit
	}
	return in.OuterLimit
}

// Repeats counts how many steps at the end of the conversation are identical: the same calls, in the
// same order, with the same results.
func Repeats(msgs []*message.Message) int {
	n := 0
	for end := len(msgs); end >= 2; end -= 2 {
		if !isStep(msgs[end-2:end]) || n > 0 && !sameStep(msgs[end-2:end], msgs[len(msgs)-2:]) {
			break
		}
		n++
		for end >= 3 && isHint(msgs[end-3]) { // there may be a warning between steps
			end--
		}
	}
	return n
}

// isHint reports whether m is a hint of the program to the model.
func isHint(m *message.Message) bool {
	if m.Role != message.RoleUser || len(m.Blocks) == 0 {
		return false
	}
	_, ok := m.Blocks[0].(*message.Hint)
	return ok
}

// isStep reports whether two messages are an answer with calls and their results.
func isStep(m []*message.Message) bool {
	return m[0].Role == message.RoleAssistant && m[1].Role == message.RoleTool
}

// sameStep compares the calls and the results of two steps. The model's text is ignored: it apologises in
// different words each time.
func sameStep(a, b []*message.Message) bool {
	return slices.EqualFunc(callsAndResults(a[0]), callsAndResults(b[0]), sameCallOrResult) && slices.EqualFunc(callsAndResults(a[1]), callsAndResults(b[1]), sameCallOrResult)
}

func callsAndResults(m *message.Message) (out message.Blocks) {
	for _, b := range m.Blocks {
		switch b.(type) {
		case *message.ToolCall, *message.ToolResult:
			out = append(out, b)
		}
	}
	return out
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
