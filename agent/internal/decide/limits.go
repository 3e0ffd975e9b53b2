package decide

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

// Limits are the limits for one input; 0 is no limit, except for Steps, Samples and SampleTokens.
type Limits struct {
	Steps     int
	ToolCalls int
	Tokens    int
	Time      time.Duration
	Cost      float64

	Samples, SampleTokens int // the number and the tokens of the sampling requests of MCP servers
}

// Spent is what was used since the last input.
type Spent struct {
	Steps   int       `json:"steps,omitempty"`
	Calls   int       `json:"calls,omitempty"`
	Tokens  int       `json:"tokens,omitempty"`
	Cost    float64   `json:"cost,omitempty"`
	Since   time.Time `json:"since,omitzero"`    // when the last input came
	Stopped string    `json:"stopped,omitempty"` // the limit that ends the run, "" for none

	Samples      int `json:"samples,omitempty"`
	SampleTokens int `json:"sample_tokens,omitempty"`
}

// A Charge is what model calls have used.
type Charge struct {
	Usage message.Usage `json:"usage,omitzero"`
	Cost  float64       `json:"cost,omitempty"`
}

// Minus returns the difference between c and an earlier charge.
func (c Charge) Minus(old Charge) Charge {
	u, o := c.Usage, old.Usage
	return Charge{message.Usage{Input: u.Input - o.Input, Output: u.Output - o.Output, Cached: u.Cached - o.Cached,
		CacheWrite: u.CacheWrite - o.CacheWrite, Reasoning: u.Reasoning - o.Reasoning}, c.Cost - old.Cost}
}

// Add adds a charge. Nonsense cannot lift a limit: negative tokens count as none, and a cost that is negative or not a number
// as more than any limit.
func (s *Spent) Add(c Charge) {
	s.Tokens = addTokens(s.Tokens, c.Usage)
	if s.Cost += c.Cost; !(c.Cost >= 0 && s.Cost <= math.MaxFloat64) {
		s.Cost = math.MaxFloat64 // not infinity, which JSON does not have
	}
}

// AddSample adds the tokens of a request of a tool to the model, which Add has counted, too.
func (s *Spent) AddSample(u message.Usage) { s.SampleTokens = addTokens(s.SampleTokens, u) }

func addTokens(sum int, u message.Usage) int {
	for _, tokens := range [...]int{u.Input, u.Output} {
		sum += min(max(tokens, 0), math.MaxInt-max(sum, 0))
	}
	return sum
}

// CountCall counts a call that the model makes, and reports whether the limit allows it.
func (s *Spent) CountCall(l Limits) bool {
	s.Calls++
	return l.ToolCalls <= 0 || s.Calls <= l.ToolCalls
}

// Left returns how much time is left, and whether time is limited.
func (s *Spent) Left(l Limits, now time.Time) (left time.Duration, limited bool) {
	return l.Time - now.Sub(s.Since), l.Time > 0
}

// LastAnswerTime returns how long a last answer may take when Limits.Time has passed.
func (l Limits) LastAnswerTime() time.Duration {
	return min(max(l.Time/4, time.Second), 30*time.Second)
}

// ReachedShared returns the name of the limit that is reached, "" for none, among the limits that also count the work of
// sub-agents.
func (s *Spent) ReachedShared(l Limits, now time.Time) string {
	switch {
	case l.ToolCalls > 0 && s.Calls >= l.ToolCalls:
		return "the limit of " + quantity(l.ToolCalls, "tool call")
	case l.Tokens > 0 && s.Tokens >= l.Tokens:
		return fmt.Sprintf("the limit of %d tokens", l.Tokens)
	case l.Time > 0 && now.Sub(s.Since) >= l.Time:
		return l.TimeLimit()
	case l.Cost > 0 && s.Cost >= l.Cost:
		return fmt.Sprintf("the cost limit of %g", l.Cost)
	}
	return ""
}

func quantity(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// TimeLimit returns the name of the limit of time, for errors and results.
func (l Limits) TimeLimit() string { return fmt.Sprintf("the limit of %v", l.Time) }

// AdmitSample decides whether the limits allow a sampling request with the given number of input tokens, and counts the
// request if they do. wanted is the length of the answer, in tokens, that the server asks for; 0 for any. maxTokens is the
// length that is allowed. refused says why the request is not allowed.
func (s *Spent) AdmitSample(l Limits, input, wanted int) (maxTokens int, refused string) {
	if s.Samples >= l.Samples {
		return 0, fmt.Sprintf("the limit of %s was reached", quantity(l.Samples, "sample"))
	}
	left := l.SampleTokens - s.SampleTokens
	if l.Tokens > 0 {
		left = min(left, l.Tokens-s.Tokens)
	}
	left -= input
	if left <= 0 {
		return 0, fmt.Sprintf("the request has about %d tokens, more than what remains of the budget", input)
	}
	s.Samples++
	if wanted > 0 {
		left = min(left, wanted)
	}
	return left, ""
}

// The numbers of identical steps: the same calls with the same results.
const (
	loopWarn = 3 // then a hint warns the model
	loopStop = 6 // then the run ends
)

// Reached returns the name of the limit because of which a run may not call the model again, "" for none. The
// limits of steps and loops apply to each run by itself: an outer run in its last step does not stop a sub-agent.
func (s *State) Reached(in Situation) string {
	switch {
	case s.Spent.Steps >= in.Limits.Steps:
		return "the limit of " + quantity(in.Limits.Steps, "step")
	case Repeats(in.Messages) >= loopStop:
		return fmt.Sprintf("a loop: the same calls had the same results %d times", loopStop)
	}
	if limit := s.Spent.ReachedShared(in.Limits, in.Now); limit != "" {
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
		for end >= 3 && isHint(msgs[end-3]) { // such as the warning between two steps
			end--
		}
	}
	return n
}

// isHint reports whether m is a hint from the program, perhaps with images and files, and has no text of the user.
func isHint(m *message.Message) bool {
	if m.Role != message.RoleUser || len(m.Blocks) == 0 {
		return false
	}
	_, ok := m.Blocks[0].(*message.Hint)
	return ok && !slices.ContainsFunc(m.Blocks, func(b message.Block) bool { _, isText := b.(*message.Text); return isText })
}

// isStep reports whether two messages are an answer with calls and their results.
func isStep(m []*message.Message) bool {
	return m[0].Role == message.RoleAssistant && m[1].Role == message.RoleTool
}

// sameStep compares the calls and the results of two steps. Text is ignored: a model apologises in different words each
// time.
func sameStep(a, b []*message.Message) bool {
	return slices.EqualFunc(callsAndResults(a), callsAndResults(b), sameCallOrResult)
}

func callsAndResults(step []*message.Message) (out message.Blocks) {
	for _, m := range step {
		for _, b := range m.Blocks {
			switch b.(type) {
			case *message.ToolCall, *message.ToolResult:
				out = append(out, b)
			}
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
