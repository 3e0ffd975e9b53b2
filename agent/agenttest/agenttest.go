// Package agenttest tests agents. The model's turns are written in Go, recorded (package model/replay) or from a real
// model; tools, permissions, the loop and its events are real.
//
//	func TestDelete(t *testing.T) {
//		c := agenttest.New(t, agent.Config{Toolkit: toolkit.Of(remove)},
//			scripted.Call("remove", map[string]string{"path": "a.txt"}),
//			scripted.Say("It is gone."))
//		c.Run(agent.Say("Remove a.txt."))
//		c.Asked("remove")
//		c.Run(event.Confirm{Call: "call_1", Allow: true})
//		c.Called("remove")
//		c.Golden("testdata/remove.txtar")
//	}
//
// Ids and times are the same whenever the test runs. After each run of the agent, [Check] checks what must hold for any
// run. A test that fails while a question is open prints why the question was asked.
//
// # Golden transcripts
//
// [Conversation.Golden] compares all messages, questions and answers with a file in the txtar format, with a
// section for each step:
//
//	The agent asks for approval of a removal, then removes the file.
//	-- tools --
//	remove
//	-- user --
//	Remove a.txt.
//	-- assistant --
//	remove call_1 {"path":"a.txt"}
//	-- approval --
//	remove call_1 {"path":"a.txt"}
//	…
//
// The text before the first section says what the test shows. Run the tests with -agenttest.update to write
// the sections anew.
package agenttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model/scripted"
)

// A T is the part of *testing.T that this package uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// A Conversation is an agent under test, and its events so far.
type Conversation struct {
	State  *agent.State
	Events []event.Event // of all runs

	t          T
	agent      *agent.Agent
	transcript transcript
}

// New returns a conversation with an agent whose model plays turns, like [scripted.Test]. If cfg.Model is set, the agent
// uses that model, and there must be no turns. Unless cfg sets NewID and Now, ids are numbered from 1 and the clock does
// not advance.
func New(t T, cfg agent.Config, turns ...scripted.Turn) *Conversation {
	t.Helper()
	c := &Conversation{State: new(agent.State), t: t}
	t.Cleanup(c.reportOpenQuestions) // before scripted.Test, whose check of the turns then runs first
	if cfg.Model == nil {
		cfg.Model = scripted.Test(t, turns...)
	} else if len(turns) > 0 {
		t.Fatalf("agenttest.New: Config.Model and turns are both set; set one of them")
	}
	cfg.Model = &recordingModel{Model: cfg.Model, transcript: &c.transcript}
	if cfg.NewID == nil {
		cfg.NewID = sequentialIDs()
	}
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC) }
	}
	var err error
	if c.agent, err = agent.New(cfg); err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// reportOpenQuestions prints why the open questions of a failed test were asked: the test may not have expected them.
func (c *Conversation) reportOpenQuestions() {
	c.t.Helper()
	t, ok := c.t.(interface{ Failed() bool })
	if !ok || !t.Failed() {
		return
	}
	for _, ev := range c.State.Pending() {
		if ev, ok := ev.(*event.Approval); ok {
			c.t.Errorf("not answered: %s", describe(ev))
		}
	}
}

func describe(ev *event.Approval) string {
	return fmt.Sprintf("approval of %s %s: %s", ev.Name, ev.Input, ev.Reason)
}

func sequentialIDs() func(string) string {
	var mu sync.Mutex
	last := map[string]int{}
	return func(prefix string) string {
		mu.Lock()
		defer mu.Unlock()
		last[prefix]++
		return fmt.Sprintf("%s_%d", prefix, last[prefix])
	}
}

// Run continues the conversation until the run ends, and returns its End. A run that fails, or that refuses
// the inputs, fails the test: see [Conversation.Fails].
func (c *Conversation) Run(inputs ...agent.Input) *event.End {
	c.t.Helper()
	end, err := c.run(inputs)
	if err != nil {
		c.t.Fatalf("the run failed: %v", err)
	}
	return end
}

// Fails is Run for a run that must fail, or refuse the inputs. It returns the error.
func (c *Conversation) Fails(inputs ...agent.Input) error {
	c.t.Helper()
	_, err := c.run(inputs)
	if err == nil {
		c.t.Fatalf("the run did not fail")
	}
	return err
}

func (c *Conversation) run(inputs []agent.Input) (*event.End, error) {
	c.t.Helper()
	c.transcript.addInputs(inputs)
	first := len(c.Events)
	var failure error
	for ev, err := range c.agent.Run(runContext(c.t), c.State, inputs...) {
		if err != nil {
			failure = err
			continue
		}
		c.Events = append(c.Events, ev)
		c.transcript.addEvent(ev)
	}
	var end *event.End
	if len(c.Events) > first {
		end, _ = c.Events[len(c.Events)-1].(*event.End)
	}
	if end == nil && failure == nil {
		failure = errors.New("the last event is not *event.End: a Middleware.Run must yield every event of the run that it wraps")
	}
	if len(c.Events) == first {
		c.transcript.add("refused", failure.Error())
	} else {
		Check(c.t, c.State, c.Events)
	}
	return end, failure
}

// Called fails the test unless these tools ran, in the order in which they started, and no others. A failure
// also reports why other calls did not run. A call counts once even if it started again, as the call of a sub-agent does
// after its question was answered. Calls that sub-agents make do not count: their events are in Events as [*event.Sub].
func (c *Conversation) Called(tools ...string) {
	c.t.Helper()
	var got, notRun []string
	started := map[string]bool{}
	for _, ev := range c.Events {
		switch ev := ev.(type) {
		case *event.ToolStart:
			if !started[ev.Call] {
				got = append(got, ev.Name)
			}
			started[ev.Call] = true
		case *event.ToolResult:
			if !started[ev.Call] {
				notRun = append(notRun, fmt.Sprintf("%s did not run: %s", ev.Name, ev.Text))
			}
		}
	}
	if !slices.Equal(got, tools) && len(notRun) > 0 {
		c.t.Errorf("%s", strings.Join(notRun, "\n"))
	}
	c.want("tools called", got, tools)
}

// Asked fails the test unless the user was asked about calls of these tools, in this order, and no others. Calls of
// sub-agents are included, since the user answers their questions in this conversation. A question that was asked again
// when a run continued counts once. A failure reports why each question was asked.
func (c *Conversation) Asked(tools ...string) {
	c.t.Helper()
	var got, why []string
	seen := map[string]bool{}
	for _, ev := range c.Events {
		if ev, ok := ev.(*event.Approval); ok && !seen[ev.Call] {
			seen[ev.Call] = true
			got = append(got, ev.Name)
			why = append(why, describe(ev))
		}
	}
	if !slices.Equal(got, tools) && len(why) > 0 {
		c.t.Errorf("%s", strings.Join(why, "\n"))
	}
	c.want("approvals asked", got, tools)
}

// Opened fails the test unless these groups are open now, in the order in which they were opened.
func (c *Conversation) Opened(groups ...string) {
	c.t.Helper()
	got, _ := c.State.Scope.Active()
	c.want("groups open", got, groups)
}

func (c *Conversation) want(what string, got, want []string) {
	c.t.Helper()
	if !slices.Equal(got, want) {
		c.t.Errorf("%s: [%s], want [%s]", what, strings.Join(got, " "), strings.Join(want, " "))
	}
}
