package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// AsToolOptions are the options of [AsTool]. The zero value works.
type AsToolOptions[In any] struct {
	// Prompt returns the task for the agent from the arguments of a call. With nil a string is used as it
	// is, and anything else as JSON.
	Prompt func(In) string
}

// AsTool returns a tool with which a model delegates a task to another agent. That agent starts with an
// empty conversation and returns its answer; its events are emitted as [*event.Sub] while it works.
//
// In is a string, for a task in the model's own words (the argument is called task), or a struct whose fields
// the model fills in. Out is a string, for the agent's final text, or the type of its answer, as for [ReplyAs]:
// then its model answers by calling the tool final_answer. opts may be nil.
//
// If the agent fails, the error is the result of the call, for the calling model to read. If the agent
// reaches a limit, the result is an error with its last text and the limit.
//
// The agent's calls are judged by its own policy and by that of the calling agent, and the stricter decision
// applies: a tool that the caller's policy has no rule for needs approval. In the same way both agents'
// [Limits] apply: what the agent uses (tokens, tool calls, time, and cost by its own Price or else the
// caller's) is also counted for the caller, together with everything else that works for the caller. The
// agent runs with the caller's [Seams]. Its questions to the user are emitted as questions of the outer run,
// with the ids of both calls joined by a slash, and are answered there, within its own
// [Config.AnswerWithin]. If the tool is called outside of an agent, it cannot ask and fails instead.
func AsTool[In, Out any](a *Agent, name, description string, opts *AsToolOptions[In]) (tool.Tool, error) {
	if a == nil {
		return nil, fmt.Errorf("agent.AsTool: the agent of tool %q is nil", name)
	}
	type text struct {
		Task string `json:"task" jsonschema_description:"what to do, with everything that must be known: the agent sees nothing of this conversation"`
	}
	var t tool.Tool
	var err error
	if isString[In]() {
		t, err = newSub[text, Out](a, name, description, func(in text) (string, error) { return opts.prompt(any(in.Task).(In)) })
	} else {
		t, err = newSub[In, Out](a, name, description, opts.prompt)
	}
	if err != nil {
		return nil, fmt.Errorf("agent.AsTool: %w", err)
	}
	return t, nil
}

// prompt returns the task for the agent.
func (o *AsToolOptions[In]) prompt(in In) (string, error) {
	if o != nil && o.Prompt != nil {
		return o.Prompt(in), nil
	}
	if s, ok := any(in).(string); ok {
		return s, nil
	}
	data, err := json.Marshal(in)
	return string(data), err
}

// newSub is AsTool for arguments that are a struct.
func newSub[In, Out any](a *Agent, name, description string, prompt func(In) (string, error)) (tool.Tool, error) {
	var output json.RawMessage
	if !isString[Out]() {
		like, err := tool.New(name, description, func(context.Context, struct{}) (out Out, _ error) { return out, nil })
		if err != nil {
			return nil, err
		}
		if _, err := newFinal[Out](); err != nil {
			return nil, err
		}
		output = like.Info().Output
	}
	work := func(ctx context.Context, in In) (tool.Chunk, error) {
		task, err := prompt(in)
		if err != nil {
			return tool.Chunk{}, err
		}
		if isString[Out]() {
			return a.delegate(ctx, task, nil, nil)
		}
		f, err := newFinal[Out]()
		if err != nil {
			return tool.Chunk{}, err
		}
		return a.delegate(ctx, task, f, func() (tool.Chunk, error) {
			answer, err := decodeFinal[Out](f.value)
			if err != nil {
				return tool.Chunk{}, err
			}
			data, err := json.Marshal(answer)
			chunk := tool.Text(string(data))
			if output != nil {
				chunk.Structured = data
			}
			return chunk, err
		})
	}
	t, err := tool.NewStream(name, description, func(ctx context.Context, in In) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) { yield(work(ctx, in)) }
	}, tool.Options{Parallel: true})
	if err != nil {
		return nil, err
	}
	return &subagent{Tool: t, agent: a, output: output}, nil
}

// delegate runs the agent on a task and returns its answer as a chunk: its final text, or what answer
// returns for f. A sub-agent that has to wait returns no chunk but stores its state: the call stays open,
// and runs again with that state when there are answers.
func (a *Agent) delegate(ctx context.Context, task string, f *finalAnswer, answer func() (tool.Chunk, error)) (tool.Chunk, error) {
	n, nested := ctx.Value(subLinkKey{}).(*subLink)
	if !nested {
		n = &subLink{do: func(func(*run, *openCall) error) error { return nil }}
	}
	// Its conversation belongs to this call only; nothing of it is kept except the answer.
	var st State
	inputs := n.inputs
	if n.state == nil {
		inputs = []Input{Say(task)}
	} else if err := json.Unmarshal(n.state, &st); err != nil {
		return tool.Chunk{}, err
	}
	st.loop.SetUnverified(n.unverified)
	sub := a.asSubAgent(n)
	end, err := sub.runSub(ctx, &st, f, inputs)
	if errors.Is(err, ErrExpired) { // the answers came too late: it asks again
		if err = n.do(func(outer *run, _ *openCall) error {
			for _, in := range inputs {
				outer.consume(in)
			}
			return nil
		}); err == nil {
			end, err = sub.runSub(ctx, &st, f, nil)
		}
	}
	switch {
	case err != nil:
		return tool.Chunk{}, err
	case end.Reason == event.EndCompleted && f != nil:
		return answer()
	case end.Reason == event.EndCompleted:
		return tool.Text(decide.FullAnswer(st.Messages).Text()), nil // which, unlike the End, is not redacted
	case end.Reason == event.EndWaiting && nested: // its State was saved with the call
		// Set on the outer run's goroutine, which reads it: that run may have abandoned this call meanwhile.
		return tool.Chunk{}, n.do(func(*run, *openCall) error { n.waits = true; return nil })
	case end.Reason == event.EndWaiting:
		return tool.Failure("The agent needs a user to allow a call, and there is none: " + describePending(&st)), nil
	case end.Reason == event.EndLimit:
		return tool.Failure(end.Text + "\n[The agent stopped at " + end.Detail + ".]"), nil
	default:
		return tool.Chunk{}, st.failure(ctx, end)
	}
}

// runSub runs a sub-agent, passes its events to the outer run, and returns the End.
func (a *Agent) runSub(ctx context.Context, st *State, f *finalAnswer, inputs []Input) (*event.End, error) {
	return drain(func(yield func(event.Event, error) bool) {
		for ev, err := range a.start(context.WithValue(ctx, subLinkKey{}, nil), st, f, inputs) {
			if err == nil {
				err = a.parent.do(func(outer *run, c *openCall) error {
					if a.parent.claim(ev) {
						outer.emit(&event.Sub{Call: c.ID, Event: ev})
					}
					return nil
				})
			}
			if !yield(ev, err) {
				return
			}
		}
	})
}

// asSubAgent returns a copy of the agent that runs for a call of another run: it does nothing that the outer run's
// policy does not allow, and its saves go into the outer State, so that one file contains both at the same moment.
func (a *Agent) asSubAgent(n *subLink) *Agent {
	sub := *a
	sub.parent = n
	if n.judge != nil {
		judge := a.judge
		sub.judge = func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
			inner, outer := judge(ctx, p, c), n.judge(ctx, nil, c)
			d := permission.Stricter(c, inner, outer)
			if d.Behavior != permission.Allow && d.Reason != inner.Reason {
				d.Reason = "the calling agent's policy: " + d.Reason
			}
			return d
		}
	}
	if n.outer != nil {
		sub.cfg.Seams = n.outer.Seams
		if n.outer.Redact != nil {
			sub.cfg.Redact = n.outer.Redact
		}
		if sub.cfg.Limits.Price == nil {
			sub.cfg.Limits.Price = n.outer.Limits.Price
		}
	}
	sub.cfg.Key = nil // the outer state is sealed, and contains this one
	sub.cfg.Save = func(_ context.Context, st *State) error {
		data, err := json.Marshal(st)
		if err != nil {
			return err
		}
		total := decide.Charge{Usage: st.Usage, Cost: st.loop.Spent.Cost}
		saving := st.Saving()
		return n.do(func(outer *run, c *openCall) error {
			// Saved together with the sub-agent's State: after a crash nothing is charged twice or forgotten.
			outer.addCharge(total.Minus(c.Charged))
			c.Charged, c.Sub = total, data
			for _, ev := range saving.Events {
				if n.claim(ev) {
					outer.emitAfterSave(&event.Sub{Call: c.ID, Event: ev})
				}
			}
			outer.consumed = append(outer.consumed, saving.Inputs...)
			return outer.save()
		})
	}
	return &sub
}

func describePending(st *State) string {
	var calls []string
	for _, p := range st.Pending() {
		if q, ok := p.(*event.Approval); ok {
			calls = append(calls, q.Name+" "+string(q.Input))
		}
	}
	return strings.Join(calls, "; ")
}

// A subLink connects a sub-agent with its outer run, through the context.
type subLink struct {
	state      json.RawMessage // of the sub-agent's conversation; nil for a new one
	unverified bool            // state comes from a State whose seal was not checked
	inputs     []Input         // answers for the sub-agent
	judge      JudgeFunc       // of the outer run, with its policy; nil if the tool was called outside of an agent
	outer      *Config         // of the outer run; nil if the tool was called outside of an agent

	// do calls fn on the outer run's goroutine, with the call that the sub-agent works on. It returns the result of
	// fn, or an error if the outer run has ended.
	do func(fn func(outer *run, c *openCall) error) error

	waits bool // the run of the sub-agent has ended, waiting for an answer

	seq int64 // of the sub-agent's last event that the outer run has emitted or held
}

// claim reports whether the outer run has neither emitted nor held ev, and records that it does so now.
func (link *subLink) claim(ev event.Event) bool {
	if ev.Head().Seq <= link.seq {
		return false
	}
	link.seq = ev.Head().Seq
	return true
}

type subLinkKey struct{}

// subLinkFor returns what a sub-agent that works on a call needs.
func (r *run) subLinkFor(tc *toolCall) *subLink {
	p, judge, c := r.currentPolicy(), r.agent.judge, tc.call
	inputs := r.questions.answers[c.ID]
	delete(r.questions.answers, c.ID)
	return &subLink{state: c.Sub, unverified: c.Unverified, inputs: inputs, outer: r.cfg,
		do: func(fn func(*run, *openCall) error) error {
			return r.inbox.ask(&tc.flight, func() error { return fn(r, c) })
		},
		judge: func(ctx context.Context, _ *permission.Policy, pc *permission.Call) permission.Decision {
			return judge(r.withToolState(ctx), p, pc)
		},
	}
}

// outerCall returns the open call of the sub-agent that made a call, and the id of the call there; nil for
// a call of this State.
func (st *State) outerCall(call string) (*openCall, string) {
	for _, c := range st.loop.Open {
		if inner, ok := strings.CutPrefix(call, c.ID+"/"); ok && c.Status == decide.Nested {
			return c, inner
		}
	}
	return nil, call
}

// locate returns the run that made a call (this one or that of a sub-agent at any depth) and the id of the
// call there.
func (r *run) locate(call string) (owner *run, id string, err error) {
	c, inner := r.st.outerCall(call)
	if c == nil {
		return r, call, nil
	}
	if r, err = r.subRun(c); err != nil {
		return nil, "", err
	}
	return r.locate(inner)
}

// subRun returns the run of the sub-agent that works on c, from its stored state.
func (r *run) subRun(c *openCall) (*run, error) {
	t, err := r.tool(c)
	if err != nil {
		return nil, err
	}
	s, ok := tool.As[*subagent](t)
	if !ok {
		return nil, fmt.Errorf("%s, the agent that call %q waits in, is not an agent any more; end the call with Interrupt", c.Tool, c.ID)
	}
	sub := &run{entry: s.agent, agent: s.agent, cfg: &s.agent.cfg, st: new(State), ctx: r.ctx}
	if err := json.Unmarshal(c.Sub, sub.st); err != nil {
		return nil, fmt.Errorf("the state of the agent that works on call %q: %w", c.ID, err)
	}
	return sub, sub.resumeHandoff()
}

// isStuck reports whether nothing can answer what a sub-agent waits for: it must run again, to ask again or to fail.
func (r *run) isStuck(c *openCall) bool {
	pending := pendingInSub(c, event.Header{})
	return len(pending) == 0 || slices.ContainsFunc(pending, func(ev event.Event) bool {
		switch ev := ev.(type) {
		case *event.Approval:
			return r.tooLate(ev.Call)
		case *event.External:
			return r.tooLate(ev.Call)
		}
		return false
	})
}

// subagent marks a tool that is an agent: its calls may wait, and have no timeout of their own.
type subagent struct {
	tool.Tool
	agent  *Agent
	output json.RawMessage // the schema of its answers; nil for text
}

func (s *subagent) Unwrap() tool.Tool { return s.Tool }

func (s *subagent) Info() tool.Info {
	info := s.Tool.Info()
	info.Output = s.output
	return info
}
