// Package howdoi runs the code of docs/how-do-i.md. It has no code of its own.
package howdoi

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/agentlog"
	"github.com/kitbag-go/kitbag/agent/agenttest"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	toolware "github.com/kitbag-go/kitbag/tool/middleware"
	"github.com/kitbag-go/kitbag/toolkit"
)

type query struct{ Q string }

// newSearch returns a tool that counts its calls. The first ones fail.
func newSearch(calls *int, failing int) tool.Tool {
	return tool.Must(tool.New("search", "Searches.", func(_ context.Context, in query) (string, error) {
		if *calls++; *calls <= failing {
			return "", toolware.Retryable(context.DeadlineExceeded)
		}
		return "found " + in.Q, nil
	}, tool.Options{ReadOnly: true}))
}

// run calls a tool, which must succeed, and returns its result.
func run(t *testing.T, tl tool.Tool, input string) string {
	t.Helper()
	col := tool.NewCollector(tool.Call{})
	for ch, err := range tool.Run(t.Context(), tl, tool.Call{ID: "1", Name: "search", Input: []byte(input)}) {
		if err != nil || ch.Failed {
			t.Fatal(ch, err)
		}
		col.Add(ch)
	}
	return col.Result().Text()
}

func say(t *testing.T, m model.Model) string {
	t.Helper()
	msg, _, err := model.Collect(m.Generate(t.Context(), &model.Request{}))
	if err != nil {
		t.Fatal(err)
	}
	return msg.Text()
}

// answer returns a script of an answer that calls search, and of the last one.
func answer() *scripted.Model {
	return scripted.New(scripted.Call("search", query{"cats"}), scripted.Say("Done."))
}

var trusted = permission.Policy{TrustReadOnly: true}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		m, search := model.Model(scripted.New(scripted.Repeat(scripted.Say("Hi.")))), newSearch(&calls, 0)

		m = middleware.Limit(m, middleware.LimitConfig{Requests: 50, Tokens: 100_000}) // a minute
		search = tool.With(search, toolware.RateLimit(10, time.Minute))

		start := time.Now()
		for range 51 {
			say(t, m)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("51 requests took %v", took)
		}
		start = time.Now()
		for range 11 {
			run(t, search, `{"Q":"cats"}`)
		}
		if took := time.Since(start); took != 6*time.Second {
			t.Errorf("11 calls took %v", took)
		}
	})
}

func TestRetryAndFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls int
		first := scripted.New(scripted.Repeat(scripted.Fail(&model.Error{Kind: model.KindUpstream})))
		second, search := scripted.New(scripted.Say("Here I am.")), newSearch(&calls, 2)

		m := middleware.Fallback([]model.Model{
			middleware.Retry(first, middleware.RetryConfig{Retries: 5}),
			middleware.Retry(second, middleware.RetryConfig{}),
		}, middleware.FallbackConfig{})
		search = tool.With(search, toolware.Retry(toolware.Retries{Attempts: 3}))

		if got := say(t, m); got != "Here I am." || len(first.Requests()) != 6 {
			t.Errorf("%q after %d tries", got, len(first.Requests()))
		}
		if got := run(t, search, `{"Q":"cats"}`); got != "found cats" || calls != 3 {
			t.Errorf("%q after %d attempts", got, calls)
		}
	})
}

func TestCache(t *testing.T) {
	var calls int
	search := newSearch(&calls, 0)

	search = tool.With(search, toolware.Cache(1000, 10*time.Minute))

	for range 2 {
		if got := run(t, search, `{"Q":"cats"}`); got != "found cats" || calls != 1 {
			t.Errorf("%q after %d calls", got, calls)
		}
	}
}

func TestLog(t *testing.T) {
	var out bytes.Buffer
	var calls int
	logger := slog.New(slog.NewTextHandler(&out, nil))
	cfg := agent.Config{Model: answer(), Toolkit: toolkit.Of(newSearch(&calls, 0)), Policy: trusted}

	cfg.Middleware = append(cfg.Middleware, agentlog.New(agentlog.Config{Agent: "helpdesk", Logger: logger}))

	reply(t, t.Context(), cfg)
	if got := out.String(); !strings.Contains(got, "search") || !strings.Contains(got, "helpdesk") || strings.Contains(got, "cats") {
		t.Errorf("logged:\n%s", got)
	}
}

// reply runs the agent, and returns the texts of all events.
func reply(t *testing.T, ctx context.Context, cfg agent.Config) string {
	t.Helper()
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for ev, err := range a.Run(ctx, new(agent.State), agent.Say("Look for cats.")) {
		if err != nil {
			t.Fatal(err)
		}
		switch ev := ev.(type) {
		case *event.ToolResult:
			all.WriteString(string(ev.Outcome) + ": " + ev.Text + "\n")
		case *event.End:
			all.WriteString(string(ev.Reason) + ": " + ev.Detail + "\n")
		}
	}
	return all.String()
}

func TestRedact(t *testing.T) {
	const key = "cats-4711"
	var calls int
	cfg := agent.Config{Model: scripted.New(scripted.Call("search", query{key}), scripted.Say("Done.")),
		Toolkit: toolkit.Of(newSearch(&calls, 0)), Policy: trusted}

	redactor, err := redact.New(append(redact.Rules(), redact.Literal("door-key", key))...)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Redact = redactor

	if got := reply(t, t.Context(), cfg); !strings.Contains(got, "found [redacted: door-key]") {
		t.Error(got)
	}
}

func TestTool(t *testing.T) {
	var calls int
	cfg := agent.Config{Toolkit: toolkit.Of(newSearch(&calls, 0)), Policy: trusted}

	c := agenttest.New(t, cfg,
		scripted.Call("search", query{"cats"}),
		scripted.Say("Cats sleep.").Expect(scripted.LastContains("found cats")))
	c.Run(agent.Say("What do cats do?"))
	c.Called("search")
}

func TestLimits(t *testing.T) {
	var calls int
	cfg := agent.Config{Model: scripted.New(scripted.Repeat(scripted.Call("search", query{"cats"}))),
		Toolkit: toolkit.Of(newSearch(&calls, 0)), Policy: trusted}

	cfg.Limits = agent.Limits{Steps: 20, ToolCalls: 5, Tokens: 200_000, Time: 5 * time.Minute}
	cfg.ToolTimeout, cfg.MaxParallel = 30*time.Second, 4

	if got := reply(t, t.Context(), cfg); calls != 5 || !strings.Contains(got, "limit: ") {
		t.Errorf("%d calls: %s", calls, got)
	}
}

type userKey struct{}

func TestRulesOfUser(t *testing.T) {
	rules := map[string][]permission.Rule{
		"ada":   {{Tool: "search", Behavior: permission.Allow}},
		"guest": {{Tool: "search", Behavior: permission.Deny}},
	}

	perUser := agent.Middleware{Judge: func(next agent.JudgeFunc) agent.JudgeFunc {
		return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
			user, _ := ctx.Value(userKey{}).(string)
			own := *p
			own.Rules = slices.Concat(p.Rules, rules[user])
			return next(ctx, &own, c)
		}
	}}

	for user, want := range map[string]string{"ada": "success: found cats", "guest": "denied: ", "": "waiting: "} {
		var calls int
		cfg := agent.Config{Model: answer(), Toolkit: toolkit.Of(newSearch(&calls, 0)), Middleware: []agent.Middleware{perUser}}
		got := reply(t, context.WithValue(t.Context(), userKey{}, user), cfg)
		if !strings.HasPrefix(got, want) || (calls == 1) != (user == "ada") {
			t.Errorf("%q: %d calls, %s", user, calls, got)
		}
	}
}
