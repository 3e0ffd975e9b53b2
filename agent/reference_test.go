package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
)

// A reference computes what a run of a waitScript must do: which events at which times, which results and
// which conversation. It simulates one action after the other with its own clock, and shares no code with the agent.
// It has no concurrency.
type reference struct {
	s        waitScript
	now      time.Duration
	end      time.Duration // of the run's context
	left     bool          // the consumer has stopped
	events   int
	told     []string
	messages []string
	turn     int
}

const never = 1 << 60

func (m *reference) emit(format string, args ...any) {
	if m.left {
		return
	}
	m.told = append(m.told, fmt.Sprintf("%v ", m.now)+fmt.Sprintf(format, args...))
	if m.events++; m.s.leaves == "breaks" && m.events == m.s.at {
		m.left, m.end = true, min(m.end, m.now)
	}
}

func (m *reference) add(format string, args ...any) {
	m.messages = append(m.messages, fmt.Sprintf(format, args...))
	m.emit("message "+format, args...)
}

func (m *reference) ended() bool { return m.now >= m.end }

// run is one run; the first one gets a message and ends with s.whole.
func (m *reference) run(words string, end time.Duration) {
	m.end, m.left = end, false
	m.emit("run_start")
	if words != "" {
		m.add("user %s", words)
	}
	for {
		last := m.messages[len(m.messages)-1]
		switch {
		case m.ended():
			m.emit("end interrupted")
			return
		case strings.HasPrefix(last, "assistant") && !strings.Contains(last, "call "):
			m.emit("end completed")
			return
		}
		if failed := m.step(); failed {
			m.emit("end error")
			return
		}
	}
}

// step is an answer of the model and its calls. It reports whether the run fails.
func (m *reference) step() (failed bool) {
	m.emit("model_start")
	m.turn++ // the model has been asked
	if m.ended() {
		return false
	}
	if m.turn > 2 {
		text := []string{"one", "two", "three"}[m.turn-3]
		m.emit("text_delta %s", text)
		m.add("assistant %s", text) // including the part of an answer that broke off
		return false
	}
	id := fmt.Sprintf("c%d", m.turn)
	m.emit("tool_call_delta %s", id)
	if m.ended() {
		return false
	}
	m.emit("tool_call_delta %s", id)
	if m.ended() {
		return false
	}
	m.add("assistant call %s", id)
	m.emit("tool_call %s", id)
	res := "interrupted: The run was interrupted before this call ended."
	if !m.ended() {
		m.emit("tool_start %s", id)
		res, failed = m.call(id)
	}
	m.emit("tool_result %s %s", id, res)
	m.add("tool %s %s", id, res)
	return failed && !m.ended()
}

var (
	errAbort   = errors.New("abort the run")
	errRefLate = errors.New("context deadline exceeded")
	errRefLeft = errors.New("context canceled")
)

// A refCall is a running call.
type refCall struct {
	*reference
	id    string
	limit time.Duration // when it times out
	said  []string
	fail  error // that the model does not get
	over  bool  // an error came: later chunks are ignored
}

type exit struct{}

// call makes the call and returns its outcome with the text.
func (m *reference) call(id string) (res string, failed bool) {
	c := &refCall{reference: m, id: id, limit: never}
	if m.s.limit > 0 {
		c.limit = m.now + m.s.limit
	}
	outcome, exited := "success", false
	func() {
		defer func() {
			switch v := recover().(type) {
			case nil:
			case exit:
				exited = true
			default:
				if !c.over {
					outcome = "error"
					c.say(fmt.Sprintf("tool odd failed unexpectedly (panic: %v); this is a bug in the tool: try other arguments or another tool", v))
				}
			}
		}()
		c.through(m.s.middleware, c.limit, func(text string, err error) bool {
			if c.over {
				panic("middleware continued after yield returned false")
			}
			if err != nil {
				c.over, outcome = true, "error"
				if errors.Is(err, errAbort) || c.now >= min(c.limit, c.end) {
					c.fail = err
					return false
				}
				text = err.Error()
			}
			return c.say(text) && err == nil
		})
	}()
	switch {
	case exited:
		return "error: The call failed: its goroutine ended before it returned. It may have had an effect: check before you call it again.", false
	case c.fail == nil:
	case errors.Is(c.fail, errAbort):
		c.said = append(c.said, c.fail.Error())
		return "error: " + strings.Join(c.said, "|"), true
	case c.limit < c.end:
		c.said = append(c.said, fmt.Sprintf("The call took longer than %v and was stopped. It may have had an effect: check, then ask for less at a time.", c.s.limit))
	default:
		outcome = "interrupted"
		c.said = append(c.said, "The call was interrupted before it ended. It may have had an effect: check before you call it again.")
	}
	return outcome + ": " + strings.Join(c.said, "|"), false
}

// say adds a chunk to the call's result.
func (c *refCall) say(text string) bool {
	c.said = append(c.said, text)
	c.emit("tool_delta %s %s", c.id, text)
	return true
}

// through makes the call through middleware. Its context ends at until, or with the run.
func (c *refCall) through(middleware []string, until time.Duration, yield func(string, error) bool) {
	if len(middleware) == 0 {
		c.isolated(until, yield)
		return
	}
	how := middleware[0]
	next := func(until time.Duration, yield func(string, error) bool) { c.through(middleware[1:], until, yield) }
	c.now += time.Millisecond
	switch how {
	case "ranges", "wraps the context":
		next(until, yield)
	case "limits the time":
		next(min(until, c.now+30*time.Millisecond+300), yield)
	case "asks":
		c.ask(until)
		next(until, yield)
	case "goes elsewhere":
		func() {
			defer func() { _ = recover() }()
			next(until, yield)
		}()
	case "tries twice":
		next(until, func(string, error) bool { return true })
		next(until, yield)
	case "never calls", "panics before", "exits before":
	case "panics after", "exits after":
		next(until, yield)
		c.now += time.Millisecond
	}
	switch {
	case strings.HasPrefix(how, "panics"):
		panic("ouch")
	case strings.HasPrefix(how, "exits"):
		panic(exit{})
	}
}

// why returns the error of a context that ended at until.
func (c *refCall) why(until time.Duration) error {
	if c.left && c.end <= until {
		return errRefLeft
	}
	return errRefLate
}

// isolated runs the tool, which has 200 ms to end after its context.
func (c *refCall) isolated(until time.Duration, yield func(string, error) bool) {
	if c.now >= min(until, c.end) {
		yield("", fmt.Errorf("not started: %w", c.why(until)))
		return
	}
	stopped := false
	err := c.play(until, func(text string) bool {
		stopped = !yield(text, nil)
		return !stopped
	})
	if end := min(until, c.end) + 200*time.Millisecond; c.now > end {
		c.now = end
		yield("", fmt.Errorf("%w; the tool did not stop when it was cancelled and may still be running", c.why(until)))
	} else if err != nil && !stopped {
		yield("", err)
	}
}

// play does what the tool does.
func (c *refCall) play(until time.Duration, yield func(string) bool) error {
	said := ""
	for i, act := range c.s.tool {
		end := min(until, c.end)
		if c.now+10*time.Millisecond >= end {
			c.now = max(c.now, end)
			return fmt.Errorf("asked to end: %w", c.why(until))
		}
		c.now += 10 * time.Millisecond
		switch act {
		case "says":
			if text := fmt.Sprintf("%d ", i); !c.s.streams {
				said += text
			} else if !yield(text) {
				return nil
			}
		case "asks", "asks elsewhere":
			c.ask(until)
		case "waits":
			c.now = min(c.now+40*time.Millisecond, end)
		case "stays":
			if c.now += 400 * time.Millisecond; c.now > end+200*time.Millisecond {
				return nil // nothing waits any more
			}
		case "fails":
			return errors.New("no luck")
		case "panics":
			return errors.New("tool odd failed unexpectedly (panic: ouch); this is a bug in the tool: try other arguments or another tool")
		case "exits":
			return errors.New("the tool ended its goroutine instead of returning")
		case "aborts":
			return errAbort
		}
	}
	if !c.s.streams {
		yield(said)
	}
	return nil
}

// ask asks the user, who needs a millisecond.
func (c *refCall) ask(until time.Duration) {
	end := min(until, c.end)
	if c.now >= end {
		return
	}
	c.emit("elicitation %s ", c.id)
	if end = min(end, c.end); c.now+time.Millisecond > end { // the consumer may have left
		c.now = max(c.now, end)
		c.emit("elicitation %s cancel", c.id)
		return
	}
	c.now += time.Millisecond
	c.emit("elicitation %s accept", c.id)
}

// TestRunMatchesReference compares runs with the reference: events, their times and order, results, and the
// conversation, also after the consumer has stopped or the time of the run has ended.
func TestRunMatchesReference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawWaitScript(rt)
		if s.leaves != "" {
			s.leaves = "breaks"
		}
		s.middleware = slices.DeleteFunc(s.middleware, func(how string) bool { return how == "tries two at a time" || how == "leaves it behind" })
		m := &reference{s: s}
		m.run("go", s.whole)
		for range 2 {
			m.now += time.Hour
			m.run("", never)
		}
		want := append(m.told, m.messages...)
		for _, background := range []time.Duration{0, time.Hour} {
			got := s.observe(t, Config{Background: background})
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					rt.Fatalf("%+v, background %v: line %d is\n\t%s\nwant\n\t%s", s, background, i,
						strings.Join(got[min(i, len(got)):], "\n\t"), strings.Join(want[min(i, len(want)):], "\n\t"))
				}
			}
		}
	})
}

// observe runs the conversation of a reference, and records it in the same form.
func (s waitScript) observe(t *testing.T, cfg Config) (told []string) {
	synctest.Test(t, func(t *testing.T) {
		a := s.agent(t, cfg)
		began, st, n := time.Now(), new(State), 0
		run := func(ctx context.Context, inputs ...Input) {
			for ev, err := range a.Run(ctx, st, inputs...) {
				if err != nil {
					continue
				}
				told = append(told, fmt.Sprintf("%v %s", ev.Head().Time.Sub(began), observed(ev)))
				if n++; n == s.at && s.leaves != "" {
					break
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), s.whole)
		defer cancel()
		run(ctx, Say("go"))
		for range 2 {
			time.Sleep(time.Hour)
			run(t.Context())
		}
		for _, m := range st.Messages {
			told = append(told, observedMessage(m))
		}
		time.Sleep(time.Hour)
	})
	return told
}

func observed(ev event.Event) string {
	text := event.TypeOf(ev)
	switch ev := ev.(type) {
	case *event.ToolCallDelta:
		text += " " + ev.Call
	case *event.ToolCall:
		text += " " + ev.Call
	case *event.ToolStart:
		text += " " + ev.Call
	case *event.ToolDelta:
		text += " " + ev.Call + " " + ev.Text
	case *event.ToolResult:
		text += " " + ev.Call + " " + observedResult(ev.Result)
	case *event.TextDelta:
		text += " " + ev.Text
	case *event.Elicitation:
		text += " " + ev.Call + " " + string(ev.Action)
	case *event.Message:
		text += " " + observedMessage(ev.Message)
	case *event.End:
		text += " " + string(ev.Reason)
	}
	return text
}

func observedResult(r *message.ToolResult) string {
	var texts []string
	for _, b := range r.Blocks {
		texts = append(texts, b.(*message.Text).Text)
	}
	return string(r.Outcome) + ": " + strings.Join(texts, "|")
}

func observedMessage(m *message.Message) string {
	text := string(m.Role) + " " + m.Text()
	for _, c := range m.ToolCalls() {
		text += "call " + c.ID
	}
	for _, r := range m.ToolResults() {
		text += r.ID + " " + observedResult(r)
	}
	return text
}
