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

// A callHost is the [host.Host] of the tool calls of a run: it answers the requests of tools, and of the MCP servers
// behind tools. The methods run on the callers' goroutines, and use do to access the State and to emit events.
type callHost struct {
	run   *run
	agent *Agent    // the agent that makes the calls
	outer host.Host // of the outer run; nil if there is none
}

// host returns the host of the calls of the current agent. All calls share one host, since a server's request may not
// tell which call it belongs to.
func (r *run) host() *callHost {
	if r.questions.host == nil {
		r.questions.host = &callHost{run: r, agent: r.agent, outer: host.From(r.runCtx)}
	}
	return r.questions.host
}

// flightIn returns the flight of this run that ctx belongs to, nil if the flight is unknown.
func (h *callHost) flightIn(ctx context.Context) *flight {
	for tc := callIn(ctx); tc != nil; tc = tc.parent {
		if tc.run == h.run {
			return &tc.flight
		}
	}
	return nil
}

// callID returns the id of the call that ctx belongs to, "" if the call is unknown.
func callID(ctx context.Context) string {
	if tc := callIn(ctx); tc != nil {
		return tc.id
	}
	return ""
}

// do has fn called on the run's goroutine. An error of fn ends the run.
func (h *callHost) do(ctx context.Context, fn func() error) error {
	return h.run.inbox.ask(h.flightIn(ctx), fn)
}

func (h *callHost) emit(ctx context.Context, ev event.Event) error {
	return h.do(ctx, func() error { h.run.emit(ev); return nil })
}

// Elicit passes a question to [Config.Elicit]. A sub-agent without Config.Elicit passes it to the outer run.
func (h *callHost) Elicit(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	if err := q.Check(); err != nil {
		return host.Answer{}, err
	}
	q = q.Clean()
	if h.agent.cfg.Elicit == nil && h.outer != nil {
		return h.outer.Elicit(ctx, q)
	}
	if ctx.Err() != nil {
		return host.Answer{Action: host.ActionCancel}, nil
	}
	ev := event.Elicitation{Call: callID(ctx), Server: q.Server, Message: q.Message, Schema: q.Schema, URL: q.URL,
		Site: q.Site(), Warnings: q.Warnings()}
	asked := ev // a copy: ev is changed and emitted again below
	if err := h.emit(ctx, &asked); err != nil {
		return host.Answer{}, err
	}
	answer, why := h.askUser(ctx, q)
	ev.Action = answer.Action
	if why != nil {
		ev.Error = why.Error()
	}
	return answer, h.emit(ctx, &ev)
}

// askUser returns the answer of Config.Elicit. The error says why the question was cancelled; it is for the event, not for
// the tool.
func (h *callHost) askUser(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	cancelled := host.Answer{Action: host.ActionCancel}
	if h.agent.cfg.Elicit == nil {
		return cancelled, errors.New("Config.Elicit is nil; set it to let tools ask questions")
	}
	if !acquire(ctx, h.run.questions.asking) {
		return cancelled, context.Cause(ctx)
	}
	defer func() { <-h.run.questions.asking }()
	answer, err := h.agent.cfg.Elicit(ctx, q)
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

// refused returns an error that says why a sampling request is refused.
func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", host.ErrRefused, fmt.Sprintf(format, args...))
}

// Sample sends the request to the agent's model, if the policy, the user and the limits allow it; see [Limits].
func (h *callHost) Sample(ctx context.Context, req host.SampleRequest) (host.Sample, error) {
	if !acquire(ctx, h.run.questions.sampling) { // one request at a time, since the budget is charged after the answer
		return host.Sample{}, context.Cause(ctx)
	}
	defer func() { <-h.run.questions.sampling }()
	if err := ctx.Err(); err != nil {
		return host.Sample{}, err
	}
	inputTokens := window.Fixed(req.System, nil) + window.Messages(req.Messages)
	var d permission.Decision
	var maxTokens int
	var refusal error
	if err := h.do(ctx, func() error {
		d, maxTokens, refusal = h.run.admitSample(req, inputTokens)
		return nil
	}); err != nil {
		return host.Sample{}, err
	}
	if refusal == nil && d.Behavior == permission.Ask {
		refusal = h.consent(ctx, req, d, maxTokens)
	}
	ev := &event.Sampling{Call: callID(ctx), Server: req.Server}
	if refusal != nil {
		ev.Refused = refusal.Error()
		return host.Sample{}, errors.Join(refusal, h.emit(ctx, ev))
	}
	msg, finish, err := model.Collect(middleware.Retry(h.agent.model, h.agent.cfg.Retry).Generate(ctx,
		&model.Request{System: req.System, Messages: req.Messages, MaxTokens: maxTokens, Temperature: req.Temperature}))
	if err != nil {
		return host.Sample{}, fmt.Errorf("the model: %w", err)
	}
	if msg.Usage.Input+msg.Usage.Output == 0 { // the model reports no usage
		msg.Usage.Input, msg.Usage.Output = inputTokens, window.Message(msg)
	}
	ev.Model, ev.Text, ev.Usage = msg.Model, msg.Text(), *msg.Usage
	err = h.do(ctx, func() error {
		h.run.spend(msg)
		h.run.st.loop.Spent.AddSample(ev.Usage)
		return h.run.store(ev)
	})
	if err != nil {
		return host.Sample{}, err
	}
	return sampleOf(msg, finish.Reason, req.Stop), nil
}

// notInToolName matches the characters that tool names must not contain.
var notInToolName = lazy.Regexp(`[^A-Za-z0-9_-]`)

// sampleCall describes a sampling request for the permission engine, as a call of the server's tool "sampling".
func sampleCall(req host.SampleRequest) (*permission.Call, error) {
	input, err := json.Marshal(map[string]any{"server": req.Server, "system": req.System, "messages": req.Messages, "max_tokens": req.MaxTokens})
	return &permission.Call{Tool: "mcp__" + notInToolName().ReplaceAllString(req.Server, "_") + "__sampling", Input: input}, err
}

// admitSample counts a sampling request and judges it. maxTokens is the limit of the answer. The error says why the
// request is refused.
func (r *run) admitSample(req host.SampleRequest, inputTokens int) (d permission.Decision, maxTokens int, err error) {
	call, err := sampleCall(req)
	if err != nil {
		return d, 0, refused("%v", err)
	}
	in := r.situation()
	in.OuterLimit = r.outerLimit() // situation sets no OuterLimit while calls are open
	if reached := r.st.loop.Reached(in); reached != "" {
		return d, 0, refused("%s was reached", reached)
	}
	maxTokens, why := r.st.loop.Spent.AdmitSample(r.limits(), inputTokens, req.MaxTokens)
	if why != "" {
		return d, 0, refused("%s", why)
	}
	d = r.agent.judge(r.withToolState(r.ctx), r.currentPolicy(), call)
	if d.Behavior != permission.Allow && d.Behavior != permission.Ask {
		return d, 0, refused("%s", d.Reason)
	}
	return d, maxTokens, nil
}

// consent asks the user whether a server may use the model. The question has no Server, since it is from the agent itself;
// every line from the server is marked as a quotation.
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
	noFields := json.RawMessage(`{"type":"object","properties":{}}`)
	answer, err := h.Elicit(ctx, host.Elicitation{Message: b.String(), Schema: noFields})
	if err != nil {
		return err
	}
	if answer.Action != host.ActionAccept {
		return refused("the user did not allow it (%s)", answer.Action)
	}
	return nil
}

// sampleOf returns the model's answer to a sampling request, cut at the first of the stop sequences.
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
