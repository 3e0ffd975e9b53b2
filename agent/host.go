package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool/host"
)

// A callHost is the [host.Host] of the tool calls of a run: it answers the requests of their tools, and of the
// servers behind them. Its methods run on the callers' goroutines; they access the State and
// emit events only on the run's goroutine.
type callHost struct {
	r     *run
	a     *Agent // the agent that makes the calls
	outer host.Host
}

// host returns the host of the calls of the current agent. All calls share it, since a server's request may not
// tell which call it belongs to.
func (r *run) host() *callHost {
	if r.questions.host == nil {
		r.questions.host = &callHost{r: r, a: r.a, outer: host.From(r.runCtx)}
	}
	return r.questions.host
}

// flightIn returns the flight of this run that ctx belongs to, nil if it is unknown.
func (h *callHost) flightIn(ctx context.Context) *flight {
	for tc := callIn(ctx); tc != nil; tc = tc.parent {
		if tc.run == h.r {
			return &tc.flight
		}
	}
	return nil
}

// callOf returns the id of the call that ctx belongs to, "" if it may belong to several.
func callOf(ctx context.Context) string {
	if tc := callIn(ctx); tc != nil {
		return tc.id
	}
	return ""
}

// do calls fn on the run's goroutine. An error of fn ends the run.
func (h *callHost) do(ctx context.Context, fn func() error) error {
	return h.r.inbox.ask(h.flightIn(ctx), fn)
}

func (h *callHost) emit(ctx context.Context, ev event.Event) error {
	return h.do(ctx, func() error { h.r.emit(ev); return nil })
}

// awaitCommit waits until the requesting call is part of the conversation: a call that started early may still be dropped,
// and must not ask the user or the model.
func (h *callHost) awaitCommit(ctx context.Context) error {
	if !h.a.cfg.Eager {
		return nil
	}
	return h.r.inbox.askUntil(ctx, h.flightIn(ctx), func() error { return nil })
}

// Elicit passes a question to [Config.Elicit]. A sub-agent without one passes it to the outer run.
func (h *callHost) Elicit(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	if err := q.Check(); err != nil {
		return host.Answer{}, err
	}
	q = q.Clean()
	if h.awaitCommit(ctx) != nil {
		return host.Answer{Action: host.ActionCancel}, nil
	}
	if h.a.cfg.Elicit == nil && h.outer != nil {
		return h.outer.Elicit(ctx, q)
	}
	if ctx.Err() != nil {
		return host.Answer{Action: host.ActionCancel}, nil
	}
	ev := event.Elicitation{Call: callOf(ctx), Server: q.Server, Message: q.Message, Schema: q.Schema, URL: q.URL,
		Site: q.Site(), Warnings: q.Warnings()}
	asked := ev // a copy: ev is changed and emitted again below
	if err := h.emit(ctx, &asked); err != nil {
		return host.Answer{}, err
	}
	answer, why := h.answer(ctx, q)
	ev.Action = answer.Action
	if why != nil {
		ev.Error = why.Error()
	}
	return answer, h.emit(ctx, &ev)
}

// answer asks the user. An error is only for the event: the tool gets a cancelled question.
func (h *callHost) answer(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	cancelled := host.Answer{Action: host.ActionCancel}
	if h.a.cfg.Elicit == nil {
		return cancelled, errors.New("Config.Elicit is nil; set it to let tools ask questions")
	}
	if !acquire(ctx, h.r.questions.asking) {
		return cancelled, context.Cause(ctx)
	}
	defer func() { <-h.r.questions.asking }()
	answer, err := h.a.cfg.Elicit(ctx, q)
	switch {
	case err != nil:
		return cancelled, err
	case ctx.Err() != nil:
		return cancelled, context.Cause(ctx)
	case answer.Action == host.ActionAccept:
		if answer, err = q.Accept(answer.Content); err != nil {
			return cancelled, err
		}
		return answer, nil
	case answer.Action == host.ActionDecline:
		return host.Answer{Action: host.ActionDecline}, nil
	}
	return cancelled, nil
}

// refused returns the error for a sampling request that is refused.
func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", host.ErrRefused, fmt.Sprintf(format, args...))
}

// Sample sends the request to the agent's model, if the policy, the user and the limits allow it; see [Limits].
func (h *callHost) Sample(ctx context.Context, req host.SampleRequest) (host.Sample, error) {
	if err := h.awaitCommit(ctx); err != nil {
		return host.Sample{}, err
	}
	if !acquire(ctx, h.r.questions.sampling) { // one at a time, so that together they stay within the budget
		return host.Sample{}, context.Cause(ctx)
	}
	defer func() { <-h.r.questions.sampling }()
	if err := ctx.Err(); err != nil {
		return host.Sample{}, err
	}
	input := window.Fixed(req.System, nil) + window.Messages(req.Messages)
	call := sampleCall(req)
	var d permission.Decision
	var maxTokens int
	var refusal error
	if err := h.do(ctx, func() error {
		d, maxTokens, refusal = h.r.admitSample(call, input, req.MaxTokens)
		return nil
	}); err != nil {
		return host.Sample{}, err
	}
	if refusal == nil && d.Behavior == permission.Ask {
		refusal = h.consent(ctx, req, d, maxTokens)
	}
	ev := &event.Sampling{Call: callOf(ctx), Server: req.Server}
	if refusal != nil {
		ev.Refused = refusal.Error()
		return host.Sample{}, errors.Join(refusal, h.emit(ctx, ev))
	}
	msg, fin, err := model.Collect(middleware.Retry(h.a.model, h.a.cfg.Retry).Generate(ctx,
		&model.Request{System: req.System, Messages: req.Messages, MaxTokens: maxTokens, Temperature: req.Temperature}))
	if err != nil {
		return host.Sample{}, fmt.Errorf("the model: %w", err)
	}
	if msg.Usage.Input+msg.Usage.Output == 0 { // the server reports no usage
		msg.Usage.Input, msg.Usage.Output = input, window.Message(msg)
	}
	ev.Model, ev.Text, ev.Usage = msg.Model, msg.Text(), *msg.Usage
	err = h.do(ctx, func() error {
		h.r.spend(msg)
		h.r.st.loop.Spent.SampleTokens += ev.Usage.Input + ev.Usage.Output
		return h.r.store(ev)
	})
	if err != nil {
		return host.Sample{}, err
	}
	return sampleOf(msg, fin.Reason, req.Stop), nil
}

// notInNames matches the characters that tool names must not contain.
var notInNames = lazy.Regexp(`[^A-Za-z0-9_-]`)

// sampleCall describes a sampling request for the permission engine, as a call of the server's tool "sampling".
func sampleCall(req host.SampleRequest) *permission.Call {
	input, err := json.Marshal(map[string]any{"server": req.Server, "system": req.System, "messages": req.Messages, "max_tokens": req.MaxTokens})
	if err != nil {
		input = json.RawMessage(`{}`)
	}
	return &permission.Call{Tool: "mcp__" + notInNames().ReplaceAllString(req.Server, "_") + "__sampling", Input: input}
}

// admitSample judges a sampling request and counts it. maxTokens is the limit of the answer. The error says why the
// request is refused.
func (r *run) admitSample(call *permission.Call, input, wanted int) (d permission.Decision, maxTokens int, err error) {
	in := r.situation()
	in.OuterLimit = r.outerLimit() // situation has none while calls are open
	if reached := r.st.loop.Reached(in); reached != "" {
		return d, 0, refused("%s was reached", reached)
	}
	maxTokens, why := r.st.loop.Spent.Sample(r.limits(), input, wanted)
	if why != "" {
		return d, 0, refused("%s", why)
	}
	d = r.a.judge(r.withToolState(r.ctx), r.currentPolicy(), call)
	if d.Behavior != permission.Allow && d.Behavior != permission.Ask {
		return d, 0, refused("%s", d.Reason)
	}
	return d, maxTokens, nil
}

// consent asks the user whether a server may use the model. The question is from
// the agent itself; every line from the server is marked as a quotation.
func (h *callHost) consent(ctx context.Context, req host.SampleRequest, d permission.Decision, maxTokens int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "The server %q wants to use the model, for at most %d tokens (%s).", req.Server, maxTokens, d.Reason)
	for _, rule := range d.Suggest {
		fmt.Fprintf(&b, " The rule %s would always allow it.", rule)
	}
	b.WriteString(" It asks:")
	quote := func(who, text string) {
		for line := range strings.Lines(who + ": " + text + "\n") {
			b.WriteString("\n> " + strings.TrimRight(line, "\r\n"))
		}
	}
	if req.System != "" {
		quote("system", req.System)
	}
	for _, m := range req.Messages {
		quote(string(m.Role), m.Text())
	}
	answer, err := h.Elicit(ctx, host.Elicitation{Message: b.String(), Schema: json.RawMessage(`{"type":"object","properties":{}}`)})
	if err != nil {
		return err
	}
	if answer.Action != host.ActionAccept {
		return refused("the user did not allow it (%s)", answer.Action)
	}
	return nil
}

// sampleOf returns the answer for the server, cut at its stop sequences.
func sampleOf(msg *message.Message, reason model.FinishReason, stops []string) host.Sample {
	out := host.Sample{Model: msg.Model, Text: msg.Text(), StopReason: "endTurn"}
	if reason == model.FinishLength {
		out.StopReason = "maxTokens"
	}
	for _, stop := range stops {
		if head, _, found := strings.Cut(out.Text, stop); found && stop != "" {
			out.Text, out.StopReason = head, "stopSequence"
		}
	}
	return out
}
