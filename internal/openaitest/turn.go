package openaitest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/internal/wiretest"
)

// A Turn is the answer to one request. The functions of this package create one;
// its methods return a modified copy.
type Turn struct {
	text, reasoning string
	calls           []Call
	finish          string
	usage           Usage

	interleave bool
	plan       plan
}

type plan = wiretest.Plan[Request, Turn]

// A Call is a tool call of an answer. Args is the text of the arguments, which may be
// invalid JSON. An empty ID is replaced by a generated one.
type Call struct{ ID, Name, Args string }

// Usage is the usage that an answer reports.
type Usage struct{ Prompt, Completion, Cached, Reasoning int }

// answer returns a turn without content, with the default usage.
func answer() Turn {
	return Turn{plan: plan{Answer: wiretest.Answer{Cut: -1}}, usage: Usage{Prompt: 10, Completion: 5}}
}

// Text answers with text.
func Text(s string) Turn {
	t := answer()
	t.text = s
	return t
}

// Calls answers with tool calls.
func Calls(calls ...Call) Turn {
	t := answer()
	t.calls = slices.Clone(calls)
	return t
}

// Raw answers with a verbatim body, such as a recorded stream.
func Raw(contentType, body string) Turn {
	return Status(http.StatusOK, body, "Content-Type", contentType)
}

// Status answers with a status and a verbatim body. header is a name, its value, the next name, and so on.
func Status(status int, body string, header ...string) Turn {
	t := answer()
	t.plan.Answer = wiretest.Raw(status, body, header...)
	return t
}

// RateLimit answers with status 429 and a Retry-After header, in seconds or as a date.
func RateLimit(retryAfter string) Turn {
	return Status(http.StatusTooManyRequests,
		`{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`, "Retry-After", retryAfter)
}

// Broken answers with status 500.
func Broken() Turn {
	return Status(http.StatusInternalServerError, `{"error":{"message":"The server had an error","type":"server_error"}}`)
}

// Hang answers with nothing, not even a header, until the client disconnects.
func Hang() Turn {
	t := answer()
	t.plan.Answer.Hang = true
	return t
}

// Func returns a turn that fn makes from the request. The server calls it for one request at a time.
func Func(fn func(*Request) Turn) Turn { return Turn{plan: plan{Func: fn}} }

// Always answers every further request with turn.
func Always(turn Turn) Turn {
	turn.plan.Always = true
	return turn
}

// Reasoning adds reasoning text, as reasoning_content; in the Responses API as an item with encrypted content.
func (t Turn) Reasoning(s string) Turn { t.reasoning = s; return t }

// Calls adds tool calls.
func (t Turn) Calls(calls ...Call) Turn { t.calls = append(slices.Clone(t.calls), calls...); return t }

// Interleave streams the arguments of the calls in turn, piece by piece.
func (t Turn) Interleave() Turn { t.interleave = true; return t }

// Finish sets the finish reason.
func (t Turn) Finish(reason string) Turn { t.finish = reason; return t }

// Usage sets the usage.
func (t Turn) Usage(u Usage) Turn { t.usage = u; return t }

// CutAfter closes the connection after n bytes of the body.
func (t Turn) CutAfter(n int) Turn { t.plan.Answer.Cut = n; return t }

// Slow waits between the events of a stream, in real time.
func (t Turn) Slow(pause time.Duration) Turn { t.plan.Answer.Pause = pause; return t }

// HangAfter stops sending after n bytes of the body but keeps the connection open.
func (t Turn) HangAfter(n int) Turn { t.plan.Answer.Cut, t.plan.Answer.Hang = n, true; return t }

// Expect checks the request; an error is answered with status 400, and fails the test of [New].
func (t Turn) Expect(checks ...func(*Request) error) Turn {
	t.plan.Checks = append(slices.Clone(t.plan.Checks), checks...)
	return t
}

// answer writes the turn, until it ends or the client or the server closes the connection.
func (t Turn) answer(w http.ResponseWriter, r *http.Request, req *Request, closed <-chan struct{}) {
	a := t.plan.Answer
	isRaw := a.Status != 0
	if !isRaw {
		a.Status, a.Header = http.StatusOK, http.Header{"Content-Type": {"application/json"}}
	}
	streamed := func(parts []string) {
		a.Parts = parts
		a.Header.Set("Content-Type", "text/event-stream")
	}
	switch {
	case isRaw:
		if strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream") && a.Pause > 0 {
			a.Parts = strings.SplitAfter(a.Parts[0], "\n\n")
		}
	case req.responses && !req.Stream:
		a.Parts = []string{wiretest.Marshal(t.response(req, t.finalStatus(), t.output(req)))}
	case req.responses:
		streamed(t.responseEvents(req))
	case req.Stream:
		streamed(t.events(req))
	default:
		a.Parts = []string{t.plain(req)}
	}
	a.Serve(w, r, closed)
}

type object = map[string]any

// events renders the turn as server-sent events. The usage is in a last chunk, as OpenAI sends it on request.
func (t Turn) events(req *Request) []string {
	var out []string
	emit := func(delta object, finish any) {
		out = append(out, event(object{"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1, "model": req.Model,
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}}}))
	}
	emit(object{"role": "assistant", "content": ""}, nil)
	for _, s := range wiretest.Pieces(t.reasoning) {
		emit(object{"reasoning_content": s}, nil)
	}
	for _, s := range wiretest.Pieces(t.text) {
		emit(object{"content": s}, nil)
	}
	for _, d := range t.callDeltas() {
		emit(object{"tool_calls": []object{d}}, nil)
	}
	emit(object{}, t.finishReason())
	out = append(out, event(object{"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1, "model": req.Model,
		"choices": []object{}, "usage": t.usage.object()}))
	return append(out, "data: [DONE]\n\n")
}

// callDeltas renders the calls as OpenAI streams them: the first piece of a call has its id
// and name, the others only its index and arguments.
func (t Turn) callDeltas() []object {
	var heads []object
	var args [][]object
	for i, c := range t.calls {
		heads = append(heads, object{"index": i, "id": callID(c, i), "type": "function", "function": object{"name": c.Name, "arguments": ""}})
		var deltas []object
		for _, s := range wiretest.Pieces(c.Args) {
			deltas = append(deltas, object{"index": i, "function": object{"arguments": s}})
		}
		args = append(args, deltas)
	}
	if t.interleave {
		return append(heads, interleaved(args)...)
	}
	var out []object
	for i := range heads {
		out = append(append(out, heads[i]), args[i]...)
	}
	return out
}

// interleaved returns the first item of each list, then the second of each, and so on.
func interleaved(lists [][]object) (out []object) {
	for i, previous := 0, -1; len(out) > previous; i++ { // until no list has an item i
		previous = len(out)
		for _, list := range lists {
			if i < len(list) {
				out = append(out, list[i])
			}
		}
	}
	return out
}

// plain renders the turn as an answer that is not streamed.
func (t Turn) plain(req *Request) string {
	msg := object{"role": "assistant", "content": nil}
	if t.text != "" {
		msg["content"] = t.text
	}
	if t.reasoning != "" {
		msg["reasoning_content"] = t.reasoning
	}
	var calls []object
	for i, c := range t.calls {
		calls = append(calls, object{"id": callID(c, i), "type": "function", "function": object{"name": c.Name, "arguments": c.Args}})
	}
	if calls != nil {
		msg["tool_calls"] = calls
	}
	return wiretest.Marshal(object{"id": "chatcmpl-test", "object": "chat.completion", "created": 1, "model": req.Model,
		"choices": []object{{"index": 0, "message": msg, "finish_reason": t.finishReason()}}, "usage": t.usage.object()})
}

// finishReason returns the reason that was set, else one derived from the content.
func (t Turn) finishReason() string {
	switch {
	case t.finish != "":
		return t.finish
	case len(t.calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

// object renders the usage.
func (u Usage) object() object {
	return object{"prompt_tokens": u.Prompt, "completion_tokens": u.Completion, "total_tokens": u.Prompt + u.Completion,
		"prompt_tokens_details":     object{"cached_tokens": u.Cached},
		"completion_tokens_details": object{"reasoning_tokens": u.Reasoning}}
}

// callID returns the id of a call, generated from its name and index if it is empty.
func callID(c Call, i int) string {
	if c.ID != "" {
		return c.ID
	}
	return fmt.Sprintf("call_%s_%d", c.Name, i)
}

// event renders a server-sent event.
func event(o object) string { return "data: " + wiretest.Marshal(o) + "\n\n" }
