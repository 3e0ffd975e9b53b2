package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		Checker: verdict{says: permission.Verdict{Found: permission.Judgement{Text: "judged " + string(c.Input)}}}})
	return &j
}

// TestWhatWasJudgedRuns: the tool gets the call that was judged, whatever middleware does.
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
					return in.Text + ": " + tool.CallFrom(ctx).Judgement.Text
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

// TestUnjudged: without a judgement, middleware may change the call.
func TestUnjudged(t *testing.T) {
	echo := tool.Must(tool.New("echo", "", func(ctx context.Context, in echoIn) (string, error) {
		if tool.CallFrom(ctx).Judgement != nil {
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

// TestJudges: the Judges of a chain are called from the inside out, and cannot change the identity of the call.
func TestJudges(t *testing.T) {
	echo := tool.Must(tool.New("echo", "", func(context.Context, echoIn) (string, error) { return "", nil }))
	for name, row := range map[string]struct {
		tool tool.Tool
		want string
	}{
		"none":                  {echo, "echo ask read false"},
		"alone":                 {judging{echo, "allow"}, "echo allow read true"},
		"with middleware":       {tool.With(judging{echo, "allow"}), "echo allow read true"},
		"a stricter wrapper":    {judging{judging{echo, "allow"}, "deny"}, "echo deny read false"},
		"two wrappers":          {tool.With(judging{tool.With(judging{echo, "allow"}), "deny"}), "echo deny read false"},
		"a wrapper that adds":   {adding{tool.With(judging{echo, "deny"})}, "echo deny read false"},
		"a wrapper that allows": {adding{judging{echo, "allow"}}, "echo allow read true"},
		"one that panics":       {judging{echo, "panic"}, "echo ask read false"},
		"one panics inside":     {judging{judging{echo, "panic"}, "allow"}, "echo ask read false"},
	} {
		in := json.RawMessage(`{"text":"a"}`)
		c := tool.PermissionCall(row.tool, in)
		d := permission.Decide(&permission.Policy{Rules: []permission.Rule{{Tool: "echo", Pattern: "x", Behavior: permission.Allow}}}, c)
		if got := fmt.Sprintf("%s %s read %v", c.Tool, d.Behavior, c.ReadOnly); got != row.want || c.Control || !bytes.Equal(c.Input, in) {
			t.Errorf("%s: %s (%s), want %s", name, got, d.Reason, row.want)
		}
	}
}

// A judging tool has one verdict for all calls, and tries to change the call.
type judging struct {
	tool.Tool
	says permission.Behavior
}

func (j judging) Unwrap() tool.Tool { return j.Tool }

func (j judging) Judge(c *permission.Call) {
	if j.says == "panic" {
		panic("cannot judge")
	}
	c.ReadOnly = j.says == "allow"
	c.Checker = verdict{says: permission.Verdict{Behavior: j.says}}
	c.Tool, c.Input, c.Control = "other", nil, true
}

// An adding tool allows all calls that the tool inside does not deny.
type adding struct{ tool.Tool }

func (a adding) Unwrap() tool.Tool { return a.Tool }

func (a adding) Judge(c *permission.Call) { c.Checker = added{c.Checker} }

type added struct{ permission.Checker }

func (a added) Check(p *permission.Policy) permission.Verdict {
	if v := a.Checker.Check(p); v.Behavior == permission.Deny {
		return v
	}
	return permission.Verdict{Behavior: permission.Allow}
}

// A verdict is a Checker with one verdict.
type verdict struct {
	permission.BaseChecker
	says permission.Verdict
}

func (v verdict) Check(*permission.Policy) permission.Verdict { return v.says }
