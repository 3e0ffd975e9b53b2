package agenttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/agenttest"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/model/replay"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type pathIn struct {
	Path string `json:"path"`
}

var (
	remove = tool.Must(tool.New("remove", "Removes a file.", func(_ context.Context, in pathIn) (string, error) {
		return "removed " + in.Path, nil
	}))
	look = tool.Must(tool.New("look", "Looks at a file.", func(_ context.Context, in pathIn) (string, error) {
		if in.Path == "" {
			return "", errors.New("the path is empty")
		}
		return "-- a line like a marker --\n" + in.Path, nil
	}, tool.Options{Parallel: true, ReadOnly: true}))
	query = tool.Must(tool.New("query", "Asks the database.", func(context.Context, struct{}) (string, error) { return "42", nil }))
	press = tool.Must(tool.External[pathIn]("press", "Asks the host to print a file."))
)

func allow(tools ...string) permission.Policy {
	var p permission.Policy
	for _, name := range tools {
		p.Rules = append(p.Rules, permission.Rule{Tool: name, Behavior: permission.Allow})
	}
	return p
}

func TestApproval(t *testing.T) {
	c := agenttest.New(t, agent.Config{Toolkit: toolkit.Of(remove), Instructions: "Keep the folder tidy."},
		scripted.Think("There are two.").And(scripted.Call("remove", pathIn{"a"}), scripted.Call("remove", pathIn{"b"})),
		scripted.Say("One of them is gone."))
	if end := c.Run(agent.Say("Remove a and b.")); end.Reason != event.EndWaiting {
		t.Errorf("the run ended %s", end.Reason)
	}
	c.Asked("remove") // the answer may cover the other call
	c.Called()
	c.Run(event.Confirm{Call: "call_1", Allow: true})
	c.Asked("remove", "remove")
	c.Run(event.Confirm{Call: "call_2", Reason: "it is needed"})
	c.Called("remove")
	c.Golden("testdata/approval.txtar")
}

func TestGroups(t *testing.T) {
	tk, err := toolkit.New(toolkit.Config{
		Groups:  []toolkit.Group{{Name: "database", Description: "Looks things up.", Tools: []tool.Tool{query}}},
		Control: toolkit.ResetTools(nil),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := agenttest.New(t, agent.Config{Toolkit: tk, Policy: allow("query")},
		scripted.Call("query", nil),
		scripted.Call("query", nil).And(scripted.Call("reset_tools", map[string]bool{"database": true})),
		scripted.Call("query", nil),
		scripted.Say("It is 42."))
	c.Run(agent.Say("What is it?"))
	c.Opened("database")
	c.Called("reset_tools", "query")
	c.Asked()
	c.Golden("testdata/groups.txtar")
}

func TestParallelAndExternal(t *testing.T) {
	c := agenttest.New(t, agent.Config{Toolkit: toolkit.Of(look, press), Policy: allow("look", "press")},
		scripted.Call("look", pathIn{"x"}).And(scripted.Call("look", pathIn{}), scripted.Call("look", pathIn{"z"}),
			scripted.Call("nothing", nil), scripted.Call("press", pathIn{"x"})),
		scripted.Fail(&model.Error{Kind: model.KindInvalidRequest, Message: "the model is out"}),
		scripted.Say("Done."))
	c.Run(agent.Say("Look at all and print one."))
	if err := c.Fails(agent.Say("Are you there?")); !errors.Is(err, agent.ErrWaiting) {
		t.Errorf("said more while a call waits: %v", err)
	}
	if err := c.Fails(event.Result{Call: "call_5", Blocks: message.Blocks{&message.Text{Text: "printed"}}}); !strings.Contains(err.Error(), "out") {
		t.Error(err)
	}
	c.Run()
	c.Called("look", "look", "look")
	c.Golden("testdata/external.txtar")
}

// TestSubAgent has a sub-agent wait for the user: its call starts again, and counts once.
func TestSubAgent(t *testing.T) {
	clerk, err := agent.New(agent.Config{Toolkit: toolkit.Of(remove), Policy: allow("remove"),
		Model: scripted.New(scripted.Call("remove", pathIn{"a"}), scripted.Say("It is gone."))})
	if err != nil {
		t.Fatal(err)
	}
	c := agenttest.New(t, agent.Config{Policy: allow("clerk"), Toolkit: toolkit.Of(tool.Must(agent.AsTool[string, string](clerk, "clerk", "Tidies.", nil)))},
		scripted.Call("clerk", map[string]string{"task": "Remove a."}), scripted.Say("Done."))
	c.Run(agent.Say("Tidy up."))
	c.Asked("remove")
	c.Called("clerk")
	c.Run(c.State.Pending()[0].(*event.Approval).Allow())
	c.Asked("remove")
	c.Called("clerk")
}

// TestAnyModel has a conversation with a model behind a server, which is recorded, and one with the recording.
// Both have the same transcript as a scripted one.
func TestAnyModel(t *testing.T) {
	const golden = "testdata/any.txtar"
	converse := func(t *testing.T, m model.Model, turns ...scripted.Turn) {
		c := agenttest.New(t, agent.Config{Model: m, Toolkit: toolkit.Of(remove), Policy: allow("remove")}, turns...)
		c.Run(agent.Say("Remove a."))
		c.Called("remove")
		c.Golden(golden)
	}
	converse(t, nil, scripted.Call("remove", pathIn{"a"}), scripted.Say("It is gone."))
	server := openaitest.New(t, openaitest.Calls(openaitest.Call{ID: "call_1", Name: "remove", Args: `{"path":"a"}`}), openaitest.Text("It is gone."))
	file := filepath.Join(t.TempDir(), "any.json")
	for _, row := range []struct {
		name   string
		record bool
	}{{"recorded", true}, {"replayed", false}} {
		t.Run(row.name, func(t *testing.T) {
			m, err := openai.New(openai.Config{Model: "test", BaseURL: server.URL, HTTPClient: replay.Test(t, file, row.record)})
			if err != nil {
				t.Fatal(err)
			}
			converse(t, m)
		})
	}
}

// TestBackground has a call continue in the background, with a fake clock.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := tool.Must(tool.New("build", "Builds.", func(ctx context.Context, _ struct{}) (string, error) {
			time.Sleep(5 * time.Minute)
			return "built", nil
		}, tool.Options{Parallel: true}))
		c := agenttest.New(t, agent.Config{Toolkit: toolkit.Of(slow), Policy: allow("build"), Background: time.Minute},
			scripted.Call("build", nil), scripted.Say("It is being built."), scripted.Say("It is built."))
		c.Run(agent.Say("Build."))
		c.Golden("testdata/background.txtar")
	})
}

// TestQuestions: a transcript shows the questions of a call, and their results.
func TestQuestions(t *testing.T) {
	book := tool.Must(tool.New("book", "Books.", func(ctx context.Context, _ struct{}) (string, error) {
		h := host.From(ctx)
		a, err := h.Elicit(ctx, host.Elicitation{Server: "hotel", Message: "Which room?",
			Schema: json.RawMessage(`{"type":"object","properties":{"room":{"type":"string"}}}`)})
		if err != nil {
			return "", err
		}
		_, refused := h.Sample(ctx, host.SampleRequest{Server: "hotel", Messages: []*message.Message{message.User("hi")}})
		return fmt.Sprint(a.Action, "; ", refused), nil
	}))
	c := agenttest.New(t, agent.Config{Toolkit: toolkit.Of(book), Policy: allow("book"),
		Elicit: func(context.Context, host.Elicitation) (host.Answer, error) {
			return host.Answer{Action: host.ActionDecline}, nil
		}},
		scripted.Call("book", nil), scripted.Say("No room."))
	c.Run(agent.Say("Book."))
	c.Golden("testdata/questions.txtar")
}

// recorder is a T that records failures. Fatalf panics, as Fatalf must not return.
type recorder struct {
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()           {}
func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }
func (r *recorder) Failed() bool      { return len(r.failures) > 0 }
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// failing runs fn with a T and returns what failed.
func failing(fn func(t agenttest.T)) (failures string) {
	r := new(recorder)
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
		for _, fn := range slices.Backward(r.cleanups) {
			fn()
		}
		failures = strings.Join(r.failures, "\n")
	}()
	fn(r)
	return
}

// TestAssertionsFail makes every assertion fail.
func TestAssertionsFail(t *testing.T) {
	update(t, "agenttest.update", "false")
	dir := t.TempDir()
	file := filepath.Join(dir, "hello.txtar")
	if err := os.WriteFile(file, []byte("Prose.\n-- user --\nHi\n-- assistant --\nGood day.\n-- end --\ncompleted\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	turns := []scripted.Turn{scripted.Call("look", pathIn{"x"}), scripted.Say("Hello, and welcome to all of you.")}
	cfg := agent.Config{Toolkit: toolkit.Of(look), Policy: allow("look")}
	for _, row := range []struct {
		name string
		fn   func(*agenttest.Conversation)
		want string
	}{
		{"called", func(c *agenttest.Conversation) { c.Called("look", "look") }, "tools called: [look], want [look look]"},
		{"asked", func(c *agenttest.Conversation) { c.Asked("look") }, "approvals asked: [], want [look]"},
		{"opened", func(c *agenttest.Conversation) { c.Opened("database") }, "groups open: [], want [database]"},
		{"golden", func(c *agenttest.Conversation) { c.Golden(file) }, "+look call_1 {\"path\":\"x\"}"},
		{"golden missing", func(c *agenttest.Conversation) { c.Golden(filepath.Join(dir, "none")) }, "-agenttest.update"},
		{"no failure", func(c *agenttest.Conversation) { c.Fails() }, "did not fail"},
		{"refused", func(c *agenttest.Conversation) { c.Run(event.Confirm{Call: "x"}) }, `no such call is open: "x"`},
		{"script used up", func(c *agenttest.Conversation) { c.Run(agent.Say("more")) }, "the script has 2 turns"},
		{"broken history", func(c *agenttest.Conversation) {
			c.State.Messages = c.State.Messages[:2]
			c.Fails()
		}, "the history: the last message has 1 calls without results"},
	} {
		got := failing(func(t agenttest.T) {
			c := agenttest.New(t, cfg, turns...)
			c.Run(agent.Say("Hi"))
			row.fn(c)
		})
		if !strings.Contains(got, row.want) {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
	if got := failing(func(t agenttest.T) {
		c := agenttest.New(t, cfg, scripted.Call("lok", nil), scripted.Say("It is not there."))
		c.Run(agent.Say("Hi"))
		c.Called("look")
	}); !strings.Contains(got, `lok did not run: there is no tool "lok"; did you mean look?`) {
		t.Errorf("a call that did not run: %q", got)
	}
	if got := failing(func(t agenttest.T) {
		strict := cfg
		strict.Policy = permission.Policy{Rules: []permission.Rule{{Tool: "look", Behavior: permission.Ask}}}
		c := agenttest.New(t, strict, scripted.Call("look", map[string]string{"path": "a"}))
		c.Run(agent.Say("Hi"))
		c.Asked()
	}); !strings.Contains(got, `approval of look {"path":"a"}: asked by rule look`) {
		t.Errorf("a question that was not expected: %q", got)
	}
	if got := failing(func(t agenttest.T) {
		strict := cfg
		strict.Toolkit, strict.Policy = toolkit.Of(remove), permission.Policy{}
		agenttest.New(t, strict, scripted.Call("remove", map[string]string{"path": "a"}), scripted.Say("It is gone.")).Run(agent.Say("Hi"))
	}); !strings.Contains(got, `1 of 2 turns were not played`) || !strings.Contains(got, `not answered: approval of remove {"path":"a"}: `) {
		t.Errorf("a question that a test did not expect: %q", got)
	}
	if got := failing(func(t agenttest.T) {
		agenttest.New(t, agent.Config{Model: scripted.New()}, scripted.Say("Hi"))
	}); !strings.Contains(got, "Config.Model and turns") {
		t.Errorf("a model and turns: %q", got)
	}
	for name, of := range map[string]func(iter.Seq2[event.Event, error]) iter.Seq2[event.Event, error]{
		"nothing": func(iter.Seq2[event.Event, error]) iter.Seq2[event.Event, error] {
			return func(func(event.Event, error) bool) {}
		},
		"no end": func(events iter.Seq2[event.Event, error]) iter.Seq2[event.Event, error] {
			return func(yield func(event.Event, error) bool) {
				for ev, err := range events {
					if _, end := ev.(*event.End); !end && !yield(ev, err) {
						return
					}
				}
			}
		},
	} {
		swallow := agent.Middleware{Run: func(next agent.RunFunc) agent.RunFunc {
			return func(ctx context.Context, st *agent.State, in ...agent.Input) iter.Seq2[event.Event, error] {
				return of(next(ctx, st, in...))
			}
		}}
		got := failing(func(t agenttest.T) {
			agenttest.New(t, agent.Config{Toolkit: toolkit.Of(), Middleware: []agent.Middleware{swallow}}, scripted.Say("Hello.")).Run(agent.Say("Hi"))
		})
		if !strings.Contains(got, "the run failed") || !strings.Contains(got, "Middleware.Run") {
			t.Errorf("a middleware that passes on %s: %q", name, got)
		}
	}
}

// TestCheckFails changes the events of a good run in ways that Check must detect.
func TestCheckFails(t *testing.T) {
	c := agenttest.New(t, agent.Config{Toolkit: toolkit.Of(look), Policy: allow("look")},
		scripted.Call("look", pathIn{"x"}), scripted.Say("Hello, and welcome to all of you."))
	c.Run(agent.Say("Hi"))
	where := func(match func(event.Event) bool) int { return slices.IndexFunc(c.Events, match) }
	result := where(func(ev event.Event) bool { _, ok := ev.(*event.ToolResult); return ok })
	text := where(func(ev event.Event) bool { _, ok := ev.(*event.TextDelta); return ok })
	last := len(c.Events) - 1
	without := func(i int) []event.Event { return renumbered(slices.Delete(slices.Clone(c.Events), i, i+1)) }
	twice := func(i int) []event.Event { return renumbered(slices.Insert(slices.Clone(c.Events), i, c.Events[i])) }
	for _, row := range []struct {
		name   string
		events []event.Event
		want   string
	}{
		{"as it was", c.Events, ""},
		{"renumbered", renumbered(c.Events), ""},
		{"two runs", renumbered(slices.Concat(c.Events, c.Events)), "announced 2 times"},
		{"a gap", slices.Delete(slices.Clone(c.Events), 3, 4), "after"},
		{"no start", without(0), "begins with a RunStart"},
		{"two starts", twice(0), "begins with a RunStart"},
		{"no end", without(last), "want *event.End"},
		{"two ends", twice(last), "begins with a RunStart"},
		{"no result", without(result), "has no result"},
		{"two results", twice(result), "2 results"},
		{"a delta lost", without(text), "the text of the deltas is"},
		{"a bad event", append(slices.Clone(c.Events[:last:last]), &event.ToolCall{Input: json.RawMessage("{")}), "event"},
	} {
		got := failing(func(t agenttest.T) { agenttest.Check(t, c.State, row.events) })
		if row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// renumbered returns copies of events with numbers that follow each other.
func renumbered(events []event.Event) []event.Event {
	var out []event.Event
	for i, ev := range events {
		c := reflect.New(reflect.TypeOf(ev).Elem())
		c.Elem().Set(reflect.ValueOf(ev).Elem())
		c.Elem().FieldByName("Seq").SetInt(int64(i + 1))
		out = append(out, c.Interface().(event.Event))
	}
	return out
}

// A package with its own golden files has such a flag.
var _ = flag.Bool("update", false, "write golden files anew")

// update sets a flag for a test.
func update(t *testing.T, name, v string) {
	t.Helper()
	before := flag.Lookup(name).Value.String()
	t.Cleanup(func() { _ = flag.Set(name, before) })
	if err := flag.Set(name, v); err != nil {
		t.Fatal(err)
	}
}

// TestUpdate writes a transcript, keeps its prose, and compares with it.
func TestUpdate(t *testing.T) {
	for _, name := range []string{"agenttest.update", "update"} {
		t.Run(name, func(t *testing.T) { testUpdate(t, name) })
	}
}

func testUpdate(t *testing.T, name string) {
	file := filepath.Join(t.TempDir(), "new", "hello.txtar")
	say := func(words string) string {
		return failing(func(t agenttest.T) {
			c := agenttest.New(t, agent.Config{Toolkit: toolkit.Of()}, scripted.Say(words))
			c.Run(agent.Say("Hi"))
			c.Golden(file)
		})
	}
	update(t, name, "true")
	if got := say("Hello."); got != "" {
		t.Fatal(got)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append([]byte("A greeting.\n"), data...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := say("Good day."); got != "" {
		t.Fatal(got)
	}
	update(t, name, "false")
	if got := say("Good day."); got != "" {
		t.Error(got)
	}
	if got := say("Hello."); !strings.Contains(got, "-Good day.\n+Hello.") {
		t.Error(got)
	}
	data, err = os.ReadFile(file)
	if want := "A greeting.\n-- user --\nHi\n-- assistant --\nGood day.\n-- end --\ncompleted\n"; err != nil || string(data) != want {
		t.Errorf("the file holds %q, %v, want %q", data, err, want)
	}
}
