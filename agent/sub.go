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
	// Prompt returns the task for the agent from the arguments of a call; nil means the string, or In as JSON.
	Prompt func(In) string
}

// AsTool returns a tool with which a model delegates a task to another agent. That agent starts with an
// empty conversation and returns its answer; its events are emitted as [*event.Sub] while it works.
//
// In is a string, for a task in the model's own words (the argument is called task), or a struct whose fields
// the model fills in. Out is a string, for the agent's final text, or the type of a typed answer, as for [ReplyAs].
// opts may be nil.
//
// If the agent fails, the error is the result of the call, for the calling model to read. If the agent
// reaches a limit, the result is an error with its last text and the limit.
//
// The agent's calls are judged by the agent's policy and by the caller's, and the stricter decision
// applies: a tool that the caller's policy has no rule for needs approval. The [Limits] of both apply: what the
// agent uses (tokens, tool calls, time, and cost by the agent's Price or else the caller's) is also counted for the
// caller. The agent runs with the caller's [Seams]. The agent's questions to the user are emitted as questions of the
// caller's run, with the ids of both calls joined by a slash, and are answered there, within the agent's
// [Config.AnswerWithin]. If the tool is called outside of an agent, a call that would ask the user fails instead.
func AsTool[In, Out any](a *Agent, name, description string, opts *AsToolOptions[In]) (tool.Tool, error) {
	if a == nil {
		return nil, fmt.Errorf("agent.AsTool: the agent of tool %q is nil", name)
	}
	type taskIn struct {
		Task string `json:"task" jsonschema_description:"what to do, with everything that must be known: the agent sees nothing of this conversation"`
	}
	var t tool.Tool
	var err error
	if isString[In]() {
		t, err = newSubagent[taskIn, Out](a, name, description, func(in taskIn) (string, error) { return opts.prompt(any(in.Task).(In)) })
	} else {
		t, err = newSubagent[In, Out](a, name, description, opts.prompt)
	}
	if err != nil {
		return nil, fmt.Errorf("agent.AsTool: %w", err)
	}
	return t, nil
}

// prompt returns the task for the agent. o may be nil.
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

// newSubagent is AsTool for an In that is a struct.
func newSubagent[In, Out any](a *Agent, name, description string, prompt func(In) (string, error)) (tool.Tool, error) {
	var output json.RawMessage // the schema of Out
	if !isString[Out]() {
		withOutput, err := tool.New(name, description, func(context.Context, struct{}) (out Out, _ error) { return out, nil })
		if err != nil {
			return nil, err
		}
		if _, err := newFinal[Out](); err != nil { // so that AsTool fails instead of each call
			return nil, err
		}
		output = withOutput.Info().Output
	}
	work := func(ctx context.Context, in In) (tool.Chunk, error) {
		task, err := prompt(in)
		if err != nil {
			return tool.Chunk{}, err
		}
		if isString[Out]() {
			return a.delegate(ctx, task, nil, nil)
		}
		final, err := newFinal[Out]()
		if err != nil {
			return tool.Chunk{}, err
		}
		return a.delegate(ctx, task, final, func() (tool.Chunk, error) {
			answer, err := decodeFinal[Out](final.value)
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

// delegate runs the agent on a task and returns its answer as a chunk: its text, or the result of typedAnswer if final is
// not nil. A sub-agent that waits for the user returns no chunk: the call stays open, and runs again with the saved State
// of the sub-agent when there are answers.
func (a *Agent) delegate(ctx context.Context, task string, final *finalAnswer, typedAnswer func() (tool.Chunk, error)) (tool.Chunk, error) {
	link, nested := ctx.Value(subLinkKey{}).(*subLink)
	if !nested {
		link = &subLink{do: func(func(*run, *openCall) error) error { return nil }}
	}
	var st State // of this call only
	inputs := link.inputs
	if link.state == nil {
		inputs = []Input{Say(task)}
	} else if err := json.Unmarshal(link.state, &st); err != nil {
		return tool.Chunk{}, err
	}
	st.loop.SetUnverified(link.unverified)
	sub := a.asSubAgent(link)
	end, err := sub.runSub(ctx, &st, final, inputs)
	if errors.Is(err, ErrExpired) { // the answers came too late: without inputs the agent asks again
		if err = link.do(func(outer *run, _ *openCall) error {
			for _, in := range inputs {
				outer.consume(in)
			}
			return nil
		}); err == nil {
			end, err = sub.runSub(ctx, &st, final, nil)
		}
	}
	switch {
	case err != nil:
		return tool.Chunk{}, err
	case end.Reason == event.EndCompleted && final != nil:
		return typedAnswer()
	case end.Reason == event.EndCompleted:
		return tool.Text(decide.FullAnswer(st.Messages).Text()), nil // not end.Text, which is redacted
	case end.Reason == event.EndWaiting && nested: // Save has put the State into the outer State
		return tool.Chunk{}, link.do(func(*run, *openCall) error { link.waits = true; return nil })
	case end.Reason == event.EndWaiting:
		return tool.Failure("The agent needs a user to allow a call, and there is none: " + describePending(&st)), nil
	case end.Reason == event.EndLimit:
		return tool.Failure(end.Text + "\n[The agent stopped at " + end.Detail + ".]"), nil
	default:
		return tool.Chunk{}, st.failure(ctx, end)
	}
}

// runSub runs a sub-agent, passes its events to the outer run, and returns the End.
func (a *Agent) runSub(ctx context.Context, st *State, final *finalAnswer, inputs []Input) (*event.End, error) {
	return drain(func(yield func(event.Event, error) bool) {
		// Without the link, which is not for the agents that this sub-agent calls.
		for ev, err := range a.start(context.WithValue(ctx, subLinkKey{}, nil), st, final, inputs) {
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

// asSubAgent returns a copy of the agent that works on a call of the outer run: the outer policy must also allow each
// call, and saves go into the outer State, so that one file has both States of the same moment.
func (a *Agent) asSubAgent(link *subLink) *Agent {
	sub := *a
	sub.parent = link
	if link.judge != nil {
		sub.judge = func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
			inner, outer := a.judge(ctx, p, c), link.judge(ctx, nil, c)
			d := permission.Stricter(c, inner, outer)
			if d.Behavior != permission.Allow && d.Reason != inner.Reason {
				d.Reason = "the calling agent's policy: " + d.Reason
			}
			return d
		}
	}
	if outer := link.outer; outer != nil {
		sub.cfg.Seams = outer.Seams
		if outer.Redact != nil {
			sub.cfg.Redact = outer.Redact
		}
		if sub.cfg.Limits.Price == nil {
			sub.cfg.Limits.Price = outer.Limits.Price
		}
	}
	sub.cfg.Key = nil // the seal of the outer State also covers the sub-agent's State
	sub.cfg.Save = func(_ context.Context, st *State) error {
		data, err := json.Marshal(st)
		if err != nil {
			return err
		}
		total := decide.Charge{Usage: st.Usage, Cost: st.loop.Spent.Cost}
		saving := st.Saving()
		return link.do(func(outer *run, c *openCall) error {
			// Charged in the same save as the sub-agent's State, so that after a crash nothing is charged twice or not at all.
			outer.addCharge(total.Minus(c.Charged))
			c.Charged, c.Sub = total, data
			for _, ev := range saving.Events {
				if link.claim(ev) {
					outer.emitAfterSave(&event.Sub{Call: c.ID, Event: ev})
				}
			}
			outer.consumed = append(outer.consumed, saving.Inputs...)
			return outer.save()
		})
	}
	return &sub
}

// describePending lists the calls that wait for approval, with their arguments.
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

	// Only for the outer run's goroutine:
	waits   bool  // the run of the sub-agent has ended, and waits for an answer
	lastSeq int64 // of the last event that was claimed
}

// claim reports whether the outer run must emit ev, and records that it does so: the outer run gets an event twice, when
// the sub-agent yields it and in the sub-agent's next save.
func (link *subLink) claim(ev event.Event) bool {
	if ev.Head().Seq <= link.lastSeq {
		return false
	}
	link.lastSeq = ev.Head().Seq
	return true
}

type subLinkKey struct{}

// subLinkFor returns the link to the sub-agent that works on the call tc, and takes the answers for that sub-agent.
func (r *run) subLinkFor(tc *toolCall) *subLink {
	p, judge, c := r.currentPolicy(), r.agent.judge, tc.call // here, since the sub-agent's goroutine calls link.judge
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

// outerCall returns the open call whose sub-agent made the given call, and the id of the given call in the sub-agent's
// State; nil for a call of this State.
func (st *State) outerCall(call string) (outer *openCall, inner string) {
	for _, c := range st.loop.Open {
		if inner, ok := strings.CutPrefix(call, c.ID+"/"); ok && c.Status == decide.Nested {
			return c, inner
		}
	}
	return nil, call
}

// locate returns the run that made a call, r or the run of a sub-agent at any depth, and the id of the call in the State
// of that run.
func (r *run) locate(call string) (owner *run, id string, err error) {
	c, inner := r.st.outerCall(call)
	if c == nil {
		return r, call, nil
	}
	sub, err := r.subRun(c)
	if err != nil {
		return nil, "", err
	}
	return sub.locate(inner)
}

// subRun returns a run of the sub-agent that works on c, with its stored state. The run is only for checking answers: it
// has no consumer.
func (r *run) subRun(c *openCall) (*run, error) {
	t, err := r.tool(c)
	if err != nil {
		return nil, err
	}
	s, ok := tool.As[*subagent](t)
	if !ok {
		return nil, fmt.Errorf("call %q waits in %s, which is no longer a tool made by AsTool; end the call with Interrupt", c.ID, c.Tool)
	}
	sub := &run{entry: s.agent, agent: s.agent, cfg: &s.agent.cfg, st: new(State), ctx: r.ctx}
	if err := json.Unmarshal(c.Sub, sub.st); err != nil {
		return nil, fmt.Errorf("decode the state of the agent that works on call %q: %w", c.ID, err)
	}
	return sub, sub.resumeHandoff()
}

// isStuck reports whether the sub-agent that works on c waits for something that can no longer be answered: the sub-agent
// must run again, and asks again or fails.
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

// A subagent is a tool made by AsTool. Its calls may wait for the user, and have no timeout.
type subagent struct {
	tool.Tool
	agent  *Agent
	output json.RawMessage // the schema of the typed answer; nil for text
}

func (s *subagent) Unwrap() tool.Tool { return s.Tool }

func (s *subagent) Info() tool.Info {
	info := s.Tool.Info()
	info.Output = s.output
	return info
}
