package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

type sayIn struct {
	Text string `json:"text"`
}

// sayTool returns its text. Its rules match texts.
type sayTool struct{ tool.Tool }

func (s sayTool) Unwrap() tool.Tool { return s.Tool }

func (s sayTool) Judge(c *permission.Call) { c.Checker = sayCall{input: c.Input} }

type sayCall struct {
	permission.BaseChecker
	input json.RawMessage
}

func (s sayCall) Match(_ *permission.Policy, r permission.Rule) (bool, error) {
	var in sayIn
	err := json.Unmarshal(s.input, &in)
	return in.Text == r.Pattern, err
}

// Check reports that the text in capitals will run.
func (s sayCall) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Found: permission.Judgement{Text: strings.ToUpper(string(s.input))}}
}

// TestQuestionShowsWhatRuns checks that the user sees every character of the arguments, and of the text that
// runs instead of them.
func TestQuestionShowsWhatRuns(t *testing.T) {
	say := tool.Must(tool.New("say", "Says a text.", func(_ context.Context, in sayIn) (string, error) { return in.Text, nil }))
	w := newFixture(t, func(c *toolkit.Config) { c.Basic.Tools = append(c.Basic.Tools, sayTool{say}) })
	var question string
	c := connect(t, mcpclient.Server{Transport: mcpclient.Dial(dialStdio(serve(t, mcpserver.Config{Toolkit: w.tk}))),
		Options: mcpclient.Options{Elicitation: func(_ context.Context, q host.Elicitation) (host.Answer, error) {
			question = q.Message
			return host.Answer{Action: host.ActionAccept}, nil
		}}})
	call(t, c, "say", "{\"text\":\"a\u202eb\"}")
	const want = "Allow say?\n{\"text\":\"a<U+202E>b\"}\nThis is what will run:\n{\"TEXT\":\"A<U+202E>B\"}\n" +
		"(2 invisible characters are written as <U+…>)\n(no rule covers the call)"
	if question != want {
		t.Errorf("%q\nwant %q", question, want)
	}
}

// A reachTool says what it may reach.
type reachTool struct {
	tool.Tool
	verdict *permission.Verdict
}

func (r reachTool) Unwrap() tool.Tool { return r.Tool }

func (r reachTool) Judge(c *permission.Call) { c.Checker = reachCall{verdict: *r.verdict} }

type reachCall struct {
	permission.BaseChecker
	verdict permission.Verdict
}

func (r reachCall) Check(*permission.Policy) permission.Verdict { return r.verdict }

// The question says how far a call is confined, and no further than that it runs.
func TestQuestionSaysHowFar(t *testing.T) {
	for _, row := range []struct {
		verdict   permission.Verdict
		asks, ran string
	}{
		{permission.Verdict{}, "(no rule covers the call)", `"" false`},
		{permission.Verdict{Found: permission.Judgement{Profile: permission.ProfileWork}}, "(no rule covers the call)", `"work" false`},
		{permission.Verdict{Confined: true, Found: permission.Judgement{Profile: permission.ProfileWork}}, "(no rule covers the call; it runs in the sandbox, without the network)", `"work" false`},
		{permission.Verdict{Confined: true, Found: permission.Judgement{Profile: permission.ProfileWork, Network: true}}, "(no rule covers the call; it runs in the sandbox, with the network)", `"work" true`},
		{permission.Verdict{Confined: true, Behavior: permission.Ask, Safety: true, Reason: "why", Found: permission.Judgement{Profile: permission.ProfileOpen}}, "(why; it runs outside the sandbox)", `"open" false`},
	} {
		for _, protocol := range []string{"2025-06-18", "2026-07-28"} {
			verdict := row.verdict
			inner := tool.Must(tool.New("far", "Says how far it may reach.", func(ctx context.Context, _ struct{}) (string, error) {
				j := tool.CallFrom(ctx).Judgement
				return fmt.Sprintf("%q %v", j.Profile, j.Network), nil
			}))
			w := newFixture(t, func(c *toolkit.Config) { c.Basic.Tools = append(c.Basic.Tools, reachTool{inner, &verdict}) })
			var question string
			widen := false
			c := connect(t, mcpclient.Server{Transport: mcpclient.Dial(dialStdio(serve(t, mcpserver.Config{Toolkit: w.tk}))),
				Options: mcpclient.Options{Protocol: protocol, Elicitation: func(_ context.Context, q host.Elicitation) (host.Answer, error) {
					if question = q.Message; widen {
						verdict.Found.Network = true
					}
					return host.Answer{Action: host.ActionAccept}, nil
				}}})
			if got := call(t, c, "far", "{}").Text(); got != row.ran || !strings.HasSuffix(question, row.asks) {
				t.Errorf("%s: %+v: ran %s after %q", protocol, row.verdict, got, question)
			}
			if widen = row.asks != "(no rule covers the call)" && !row.verdict.Found.Network && row.verdict.Found.Profile == permission.ProfileWork; widen {
				if got := call(t, c, "far", "{}").Text(); strings.HasSuffix(got, "true") {
					t.Errorf("%s: it got the network after %q", protocol, question)
				}
			}
		}
	}
}

// TestQuestionHidesNoEnd checks that no question is asked if it is too long to be shown whole, because a user
// who sees the beginning has not agreed to the end.
func TestQuestionHidesNoEnd(t *testing.T) {
	ran := false
	say := tool.Must(tool.New("say", "Says a text.", func(_ context.Context, in sayIn) (string, error) { ran = true; return in.Text, nil }))
	w := newFixture(t, func(c *toolkit.Config) { c.Basic.Tools = append(c.Basic.Tools, sayTool{say}) })
	for _, protocol := range []string{"2025-06-18", "2026-07-28"} {
		for _, size := range []int{100, 3000, 5000, 1 << 20} {
			ran = false
			var question string
			c := connect(t, mcpclient.Server{Transport: mcpclient.Dial(dialStdio(serve(t, mcpserver.Config{Toolkit: w.tk}))),
				Options: mcpclient.Options{Protocol: protocol, Elicitation: func(_ context.Context, q host.Elicitation) (host.Answer, error) {
					question = q.Message
					return host.Answer{Action: host.ActionAccept}, nil
				}}})
			res := call(t, c, "say", `{"text":"`+strings.Repeat("x", size)+` and the end"}`)
			if ran && !strings.Contains(question, "AND THE END") {
				t.Errorf("%s: %d bytes ran, the question ends with %q: %.200s", protocol, size, question[max(0, len(question)-100):], res.Text())
			}
			if small := size < 5000; ran != small || !small && !strings.Contains(res.Text(), "make a smaller call") {
				t.Errorf("%s: %d bytes: ran %v: %.200s", protocol, size, ran, res.Text())
			}
		}
	}
}

// TestMiddlewareIsJudged checks that a call whose arguments middleware changes is judged again, by the rules;
// an answer to another question does not count.
func TestMiddlewareIsJudged(t *testing.T) {
	say := tool.Must(tool.New("say", "Says a text.", func(_ context.Context, in sayIn) (string, error) { return "said " + in.Text, nil }))
	shout := func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, c tool.Call) iter.Seq2[tool.Chunk, error] {
			c.Input = json.RawMessage(strings.ToUpper(string(c.Input)))
			c.Input = json.RawMessage(strings.Replace(string(c.Input), "TEXT", "text", 1))
			return next(ctx, t, c)
		}
	}
	w := newFixture(t, func(c *toolkit.Config) { c.Basic.Tools = append(c.Basic.Tools, sayTool{say}) })
	rules := func(rules ...string) *permission.Policy {
		p := &permission.Policy{}
		for _, r := range rules {
			text, deny := strings.CutPrefix(r, "-")
			b := permission.Allow
			if deny {
				b = permission.Deny
			}
			rule, err := permission.ParseRule(text, b)
			if err != nil {
				t.Fatal(err)
			}
			p.Rules = append(p.Rules, rule)
		}
		return p
	}
	for _, row := range []struct {
		policy *permission.Policy
		want   string
	}{
		{rules("say"), "said HI"},
		{rules("say(hi)", "say(HI)"), "said HI"},
		{rules("say(hi)"), "changed after it was allowed: no rule covers the call"},
		{rules("say", "-say(HI)"), "changed after it was allowed: denied by rule say(HI)"},
		{rules("say", "-say(hi)"), "denied by rule say(hi)"},
	} {
		s := serve(t, mcpserver.Config{Toolkit: w.tk, Policy: row.policy, Middleware: []tool.Middleware{shout}})
		c := connect(t, mcpclient.Server{Transport: mcpclient.Dial(dialStdio(s))})
		res := call(t, c, "say", `{"text":"hi"}`)
		if said := res.Outcome == message.OutcomeSuccess; said != strings.HasPrefix(row.want, "said") || !strings.Contains(res.Text(), row.want) {
			t.Errorf("%v: %s, want %q", row.policy.Rules, res.Text(), row.want)
		}
	}
}
