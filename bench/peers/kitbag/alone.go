package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/bench/work"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// alone contains the scenarios that the other frameworks cannot run.
var alone = map[string]func(context.Context, work.Setup) (func() error, error){
	"open": open, "judge": judge, "compact": compact,
}

// open opens and closes one of a toolkit's groups.
func open(ctx context.Context, s work.Setup) (func() error, error) {
	var cfg toolkit.Config
	for names := range slices.Chunk(s.Names(), 20) {
		g := toolkit.Group{Name: fmt.Sprintf("group_%d", len(cfg.Groups)), Description: "Some tools."}
		for _, name := range names {
			g.Tools = append(g.Tools, tool.Must(tool.New(name, work.Description, add)))
		}
		cfg.Groups = append(cfg.Groups, g)
	}
	tk, err := toolkit.New(cfg)
	if err != nil {
		return nil, err
	}
	scope := new(toolkit.Scope)
	shown := func(change func(context.Context, *toolkit.Scope, ...string) (toolkit.Outcome, error), want int) error {
		if _, err := change(ctx, scope, "group_7"); err != nil {
			return err
		}
		v, err := tk.View(ctx, scope)
		if err == nil && len(v.Tools()) != want {
			err = fmt.Errorf("%d tools are shown, want %d", len(v.Tools()), want)
		}
		return err
	}
	return func() error {
		if err := shown(tk.Enable, 21); err != nil { // with reset_tools
			return err
		}
		return shown(tk.Disable, 1)
	}, nil
}

// judge decides about a call under many rules, the last of which allows it, and runs the call with the
// judgement, which is checked again.
func judge(ctx context.Context, s work.Setup) (func() error, error) {
	t, err := tool.New("add", work.Description, add)
	if err != nil {
		return nil, err
	}
	var p permission.Policy
	for i := range 50 {
		p.Rules = append(p.Rules,
			permission.Rule{Tool: fmt.Sprintf("deploy_%d", i), Behavior: permission.Deny},
			permission.Rule{Tool: fmt.Sprintf("mcp__server_%d__*", i), Behavior: permission.Allow})
	}
	p.Rules = append(p.Rules, permission.Rule{Tool: "add", Behavior: permission.Allow})
	input := json.RawMessage(`{"a":1,"b":2}`)
	return func() error {
		d := permission.Decide(&p, tool.PermissionCall(t, input))
		if d.Behavior != permission.Allow {
			return fmt.Errorf("%s: %s", d.Behavior, d.Reason)
		}
		call := tool.Call{ID: "call_1", Name: "add", Input: input, Judgement: &d.Judgement}
		for ch, err := range tool.Run(ctx, t, call) {
			if err != nil {
				return err
			}
			if ch.Failed || string(ch.Structured) != `{"sum":3}` {
				return fmt.Errorf("the call returned %s", ch.Structured)
			}
		}
		return nil
	}, nil
}

// compact runs a conversation that fills the window.
func compact(ctx context.Context, s work.Setup) (func() error, error) {
	m, err := newModel(s)
	if err != nil {
		return nil, err
	}
	const window = 20_000 // tokens; the messages have more tokens
	a, err := agent.New(agent.Config{Model: m, Toolkit: toolkit.Of(), Instructions: work.System, Window: agent.Window{Tokens: window}})
	if err != nil {
		return nil, err
	}
	var history []*message.Message
	for i := range 500 {
		text := fmt.Sprintf("Message %d. ", i) + strings.Repeat("Some words. ", 16)
		if i%2 == 0 {
			history = append(history, message.User(text))
		} else {
			history = append(history, message.Assistant(&message.Text{Text: text}))
		}
	}
	return func() error {
		st := &agent.State{Messages: slices.Clone(history)}
		if _, err := a.Reply(ctx, st, agent.Say(work.Prompt)); err != nil {
			return err
		}
		if st.Generation != 1 || len(st.Messages) > 250 {
			return fmt.Errorf("%d messages are left, in generation %d", len(st.Messages), st.Generation)
		}
		return nil
	}, nil
}

// idleHooks has a hook at every level; the hooks do nothing.
var idleHooks = agent.Middleware{
	Run: func(next agent.RunFunc) agent.RunFunc {
		return func(ctx context.Context, st *agent.State, in ...agent.Input) iter.Seq2[event.Event, error] {
			return next(ctx, st, in...)
		}
	},
	Step: func(next agent.StepFunc) agent.StepFunc {
		return func(ctx context.Context) error { return next(ctx) }
	},
	Model: func(next model.Model) model.Model { return wrappedModel{next} },
	Tool: func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return next(ctx, t, call)
		}
	},
	Judge: func(next agent.JudgeFunc) agent.JudgeFunc {
		return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
			return next(ctx, p, c)
		}
	},
	Summary: func(next agent.SummaryFunc) agent.SummaryFunc {
		return func(ctx context.Context, req *model.Request) (string, error) { return next(ctx, req) }
	},
	Instructions: func(next agent.InstructionsFunc) agent.InstructionsFunc {
		return func(ctx context.Context) string { return next(ctx) }
	},
}

type wrappedModel struct{ model.Model }

func (p wrappedModel) Unwrap() model.Model { return p.Model }
