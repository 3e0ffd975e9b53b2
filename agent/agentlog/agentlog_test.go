package agentlog_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/agentlog"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

var update = flag.Bool("update", false, "write the golden file")

const secret = "sk-" + "aB3dE5gH7jK2mN4pQ6rSaB3dE5gH7jK2"

type place struct {
	City string `json:"city"`
}

// TestLines compares the log of several kinds of runs with testdata/lines.golden: good, failing and denied
// calls, a failing model, a compaction, a consumer that stops early, with and without contents. All texts contain
// a key.
func TestLines(t *testing.T) {
	r, err := redact.New(redact.Rules()...)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, content := range []bool{false, true} {
		fmt.Fprintf(&b, "# content: %v\n", content)
		mw := agentlog.New(agentlog.Config{Agent: "helpdesk", Content: content, Redact: r, Logger: logger(&b, slog.LevelDebug)})
		synctest.Test(t, func(t *testing.T) { runs(t, mw, &b) })
	}
	if strings.Contains(b.String(), secret[:10]) {
		t.Error("a key was logged")
	}
	const golden = "testdata/lines.golden"
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func logger(b *bytes.Buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func runs(t *testing.T, mw agent.Middleware, b *bytes.Buffer) {
	weather := tool.Must(tool.New("weather", "The weather.", func(_ context.Context, in place) (string, error) {
		time.Sleep(2 * time.Second)
		if in.City == "" {
			return "", errors.New("no city but " + secret)
		}
		return "fog in " + in.City, nil
	}))
	policy := permission.Policy{Mode: permission.ModeBypass, Rules: []permission.Rule{{Tool: "denied", Behavior: permission.Deny}}}
	denied := tool.Must(tool.New("denied", "Is denied.", func(context.Context, place) (string, error) { return "", nil }))
	for _, row := range []struct {
		name  string
		turns []scripted.Turn
		cfg   agent.Config
		stop  int // the number of events after which the consumer stops; 0 for never
	}{
		{"calls", []scripted.Turn{scripted.Call("weather", place{secret}), scripted.Call("weather", place{""}), scripted.Call("denied", place{"x"}), scripted.Say("Fog.")}, agent.Config{}, 0},
		{"a model that fails", []scripted.Turn{scripted.Fail(&model.Error{Kind: model.KindAuthentication, Message: "no such key: " + secret})}, agent.Config{}, 0},
		{"a compaction", []scripted.Turn{scripted.Say(`{"goal":"Know ` + secret + `.","next":"Ask."}`), scripted.Say("Done.")}, agent.Config{Window: agent.Window{Tokens: 2000}}, 0},
		{"a compaction without a summary", []scripted.Turn{scripted.Fail(&model.Error{Kind: model.KindInvalidRequest, Message: secret}), scripted.Say("Done.")}, agent.Config{Window: agent.Window{Tokens: 2000}}, 0},
		{"a consumer that stops", []scripted.Turn{scripted.Say("Hello.")}, agent.Config{}, 2},
	} {
		fmt.Fprintf(b, "## %s\n", row.name)
		cfg := row.cfg
		cfg.Model, cfg.Toolkit, cfg.Policy, cfg.Middleware = scripted.New(row.turns...), toolkit.Of(weather, denied), policy, []agent.Middleware{mw}
		a, err := agent.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		st := &agent.State{ID: "ses_1"}
		if cfg.Window.Tokens > 0 {
			fill(t, st)
		}
		n := 0
		for range a.Run(t.Context(), st, agent.Say("Weather?")) {
			if n++; n == row.stop {
				break
			}
		}
	}
}

// fill makes a conversation that is too long for a small window, without logging.
func fill(t *testing.T, st *agent.State) {
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Repeat(scripted.Say(strings.Repeat("word ", 300)))), Toolkit: toolkit.Of()})
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if _, err := a.Reply(t.Context(), st, agent.Say("Go on.")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDefaultLogger logs to the default logger at the time of each line.
func TestDefaultLogger(t *testing.T) {
	mw := agentlog.New(agentlog.Config{})
	var b bytes.Buffer
	old := slog.Default()
	defer slog.SetDefault(old)
	slog.SetDefault(logger(&b, slog.LevelInfo))
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Say("Hello.")), Toolkit: toolkit.Of(), Middleware: []agent.Middleware{mw}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(t.Context(), new(agent.State), agent.Say("Hi")); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "msg=chat") || !strings.Contains(got, "msg=invoke_agent") {
		t.Errorf("logged:\n%s", got)
	}
}

// TestOneLineForEachDecision counts the permission lines: one for each call, even if the policy decided about it several times,
// and none for a call that could not run, which has another line.
func TestOneLineForEachDecision(t *testing.T) {
	weather := tool.Must(tool.New("weather", "The weather.", func(_ context.Context, in place) (string, error) { return "fog in " + in.City, nil }))
	call := func(city string) scripted.Turn { return scripted.Call("weather", place{city}) }
	five := call("a").And(call("b")).And(call("c")).And(call("d")).And(call("e"))
	waits := func(ctx context.Context, a *agent.Agent, st *agent.State) error {
		_, err := a.Reply(ctx, st, agent.Say("Weather?"))
		for errors.Is(err, agent.ErrWaiting) {
			var answers []agent.Input
			for _, ev := range st.Pending() {
				id := ev.(*event.Approval).Call
				answers = append(answers, event.Confirm{Call: id, Allow: id == "call_1"})
			}
			_, err = a.Reply(ctx, st, answers...)
		}
		return err
	}
	replies := func(ctx context.Context, a *agent.Agent, st *agent.State) error {
		_, err := a.Reply(ctx, st, agent.Say("Weather?"))
		return err
	}
	for _, row := range []struct {
		why  string
		turn scripted.Turn
		cfg  agent.Config
		play func(context.Context, *agent.Agent, *agent.State) error
		want string // behaviors, and not_run
	}{
		{"five calls one after the other", five, agent.Config{Policy: permission.Policy{Mode: permission.ModeBypass}}, replies, "allow allow allow allow allow"},
		{"five questions answered at once", five, agent.Config{Approve: func(_ context.Context, q event.Approval) (event.Confirm, error) {
			return event.Confirm{Allow: q.Call != "call_2"}, nil
		}}, replies, "deny allow allow allow allow"},
		{"questions answered later", call("a").And(call("b")), agent.Config{}, waits, "ask allow ask deny"},
		{"wrong arguments, and an unknown tool", scripted.Call("weather", map[string]any{"city": []int{1}}).And(scripted.Call("nothing", nil)).And(call("a")),
			agent.Config{Policy: permission.Policy{Mode: permission.ModeBypass}}, replies, "not_run not_run allow"},
	} {
		var b bytes.Buffer
		cfg := row.cfg
		cfg.Model, cfg.Toolkit = scripted.New(row.turn, scripted.Say("Fog.")), toolkit.Of(weather)
		cfg.Middleware = []agent.Middleware{agentlog.New(agentlog.Config{Logger: logger(&b, slog.LevelInfo)})}
		a, err := agent.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := row.play(t.Context(), a, new(agent.State)); err != nil {
			t.Errorf("%s: %v", row.why, err)
		}
		var got []string
		for line := range strings.Lines(b.String()) {
			for _, key := range []string{"kitbag.permission.behavior=", "msg=execute_tool "} {
				_, rest, ok := strings.Cut(line, key)
				if ok && key != "msg=execute_tool " {
					got = append(got, strings.Fields(rest)[0])
				}
				if ok && strings.Contains(rest, "error.type=not_run") {
					got = append(got, "not_run")
				}
			}
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s: got %v, want %s:\n%s", row.why, got, row.want, b.String())
		}
	}
}
