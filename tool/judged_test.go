package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

type echoIn struct {
	Text string `json:"text"`
}

func judge(c tool.Call) *permission.Judgement {
	j := permission.Judge(&permission.Policy{}, &permission.Call{Tool: c.Name, Input: c.Input,
		Check: func(*permission.Policy) permission.Verdict {
			return permission.Verdict{Found: permission.Judgement{Text: "judged " + string(c.Input)}}
		}})
	return &j
}

// What reaches the tool is what was judged, whatever middleware does, and wherever it is.
func TestWhatWasJudgedRuns(t *testing.T) {
	edit := func(change func(*tool.Call)) tool.Middleware {
		return func(next tool.Handler) tool.Handler {
			return func(ctx context.Context, t tool.Tool, c tool.Call) iter.Seq2[tool.Chunk, error] {
				change(&c)
				return next(ctx, t, c)
			}
		}
	}
	other := json.RawMessage(`{"text":"b"}`)
	rejudge := func(_ context.Context, _ tool.Tool, c tool.Call) (*permission.Judgement, error) { return judge(c), nil }
	refuse := func(context.Context, tool.Tool, tool.Call) (*permission.Judgement, error) {
		return nil, errors.New("denied by rule echo(b)")
	}
	lie := func(_ context.Context, _ tool.Tool, c tool.Call) (*permission.Judgement, error) {
		c.Input = json.RawMessage(`{"text":"a"}`)
		return judge(c), nil
	}
	nothing := func(context.Context, tool.Tool, tool.Call) (*permission.Judgement, error) { return nil, nil }
	for name, row := range map[string]struct {
		change func(*tool.Call)
		judge  func(context.Context, tool.Tool, tool.Call) (*permission.Judgement, error)
		want   string // the result, or the error
	}{
		"unchanged":            {nil, nil, `a: judged {"text":"a"}`},
		"unchanged, same call": {func(*tool.Call) {}, nil, `a: judged {"text":"a"}`},
		"edited":               {func(c *tool.Call) { c.Input = other }, nil, "changed after it was allowed"},
		"edited in place":      {func(c *tool.Call) { copy(c.Input, other) }, nil, "changed after it was allowed"},
		"renamed":              {func(c *tool.Call) { c.Name = "other" }, nil, "changed after it was allowed"},
		"judgement dropped":    {func(c *tool.Call) { c.Judgement = nil }, nil, `a: judged {"text":"a"}`},
		"dropped and edited":   {func(c *tool.Call) { *c = tool.Call{Name: "echo", Input: other} }, nil, "changed after it was allowed"},
		"forged": {func(c *tool.Call) {
			c.Input, c.Judgement = other, &permission.Judgement{Text: "rm"}
		}, nil, "changed after it was allowed"},
		"widened":             {func(c *tool.Call) { j := *c.Judgement; j.Text = "rm"; c.Judgement = &j }, nil, "changed after it was allowed"},
		"judged anew":         {func(c *tool.Call) { c.Input = other }, rejudge, `b: judged {"text":"b"}`},
		"dropped, anew":       {func(c *tool.Call) { *c = tool.Call{Name: "echo", Input: other} }, rejudge, `b: judged {"text":"b"}`},
		"refused anew":        {func(c *tool.Call) { c.Input = other }, refuse, "denied by rule echo(b)"},
		"judged another":      {func(c *tool.Call) { c.Input = other }, lie, "no judgement about this call"},
		"judged nothing":      {func(c *tool.Call) { c.Input = other }, nothing, "no judgement about this call"},
		"unchanged, no judge": {nil, refuse, `a: judged {"text":"a"}`},
	} {
		for _, form := range []string{"run", "with", "stream"} {
			t.Run(name+"/"+form, func(t *testing.T) {
				ran := 0
				body := func(ctx context.Context, in echoIn) string {
					ran++
					return in.Text + ": " + tool.JudgementFrom(ctx).Text
				}
				echo := tool.Must(tool.New("echo", "", func(ctx context.Context, in echoIn) (string, error) { return body(ctx, in), nil }))
				if form == "stream" {
					echo = tool.Must(tool.NewStream("echo", "", func(ctx context.Context, in echoIn) iter.Seq2[tool.Chunk, error] {
						return func(yield func(tool.Chunk, error) bool) { yield(tool.Text(body(ctx, in)), nil) }
					}))
				}
				var mws []tool.Middleware
				if row.change != nil {
					if mws = []tool.Middleware{edit(row.change)}; form == "with" {
						echo, mws = tool.With(echo, mws...), nil
					}
				}
				c := tool.Call{ID: "1", Name: "echo", Input: json.RawMessage(`{"text":"a"}`)}
				c.Judgement, c.Judge = judge(c), row.judge
				col := tool.NewCollector(c)
				for ch, err := range tool.Run(t.Context(), echo, c, mws...) {
					if err != nil {
						t.Fatal(err)
					}
					col.Add(ch)
				}
				res := col.Result()
				failed := !strings.Contains(row.want, "judged {")
				if !strings.Contains(res.Text(), row.want) || failed != (res.Outcome == message.OutcomeError) || failed == (ran == 1) {
					t.Errorf("%s, ran %d times: %s; want %q", res.Outcome, ran, res.Text(), row.want)
				}
			})
		}
	}
}

// Without a judgement nobody decides, and middleware may do what it likes.
func TestUnjudged(t *testing.T) {
	echo := tool.Must(tool.New("echo", "", func(ctx context.Context, in echoIn) (string, error) {
		if tool.JudgementFrom(ctx) != nil {
			return "", errors.New("judged")
		}
		return in.Text, nil
	}))
	for ch, err := range tool.Run(t.Context(), echo, tool.Call{Name: "echo", Input: json.RawMessage(`{"text":"a"}`)}) {
		if err != nil || ch.Failed || ch.Block.(*message.Text).Text != "a" {
			t.Errorf("%+v, %v", ch, err)
		}
	}
}

// A tool that cannot say whose rules hold is asked about.
func TestBorrowsPanics(t *testing.T) {
	d := permission.Decide(&permission.Policy{Rules: []permission.Rule{{Tool: "echo", Behavior: permission.Allow}}},
		tool.PermissionCall(panics{tool.Must(tool.New("echo", "", func(context.Context, echoIn) (string, error) { return "", nil }))}, nil))
	if d.Behavior != permission.Ask || !d.Safety {
		t.Errorf("%+v", d)
	}
}

// A Resolver's own capabilities are asked in its place, and those of what is wrapped around it first.
func TestResolver(t *testing.T) {
	echo := tool.Must(tool.New("echo", "", func(context.Context, echoIn) (string, error) { return "", nil }))
	for name, row := range map[string]struct {
		tool tool.Tool
		want permission.Behavior
	}{
		"alone":                 {resolver{echo, checker{echo, "allow"}}, "allow"},
		"with middleware":       {tool.With(resolver{echo, checker{echo, "allow"}}), "allow"},
		"a stricter wrapper":    {checker{resolver{echo, checker{echo, "allow"}}, "deny"}, "deny"},
		"another one in it":     {resolver{checker{echo, "deny"}, checker{echo, "allow"}}, "allow"},
		"two wrappers":          {tool.With(checker{tool.With(resolver{echo, checker{echo, "allow"}}), "deny"}), "deny"},
		"without a check":       {resolver{echo, echo}, "ask"},
		"one that panics":       {resolver{echo, nil}, "ask"},
		"one that has no check": {tool.With(echo), "ask"},
	} {
		if d := permission.Decide(&permission.Policy{}, tool.PermissionCall(row.tool, nil)); d.Behavior != row.want {
			t.Errorf("%s: %s (%s), want %s", name, d.Behavior, d.Reason, row.want)
		}
	}
}

type resolver struct {
	tool.Tool
	fixed tool.Tool
}

func (r resolver) Unwrap() tool.Tool { return r.Tool }

func (r resolver) Resolve() tool.Tool {
	if r.fixed == nil {
		panic("no")
	}
	return r.fixed
}

type checker struct {
	tool.Tool
	says permission.Behavior
}

func (c checker) Unwrap() tool.Tool { return c.Tool }

func (c checker) CheckPermission(*permission.Policy, json.RawMessage) permission.Verdict {
	return permission.Verdict{Behavior: c.says}
}

type panics struct{ tool.Tool }

func (panics) BorrowsRules() []string { panic("no") }
