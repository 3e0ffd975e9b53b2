package anthropictest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/internal/wiretest"
)

// A Turn is the answer to one request. Make one with a function of this package
// and change it with its methods, which return the changed turn.
type Turn struct {
	blocks []object
	stop   string
	usage  Usage
	ping   bool

	plan plan
}

type plan = wiretest.Plan[Request, Turn]

// A Call is a tool call of an answer. Args is the text of the input, which may be
// invalid JSON. An empty ID is replaced by a generated one.
type Call struct{ ID, Name, Args string }

// Usage is the usage that an answer reports.
type Usage struct{ Input, Output, CacheRead, CacheWrite, Thinking int }

// answer returns a turn without content, with the default usage.
func answer() Turn {
	return Turn{plan: plan{Answer: wiretest.Answer{Cut: -1}}, usage: Usage{Input: 10, Output: 5}}
}

// Text answers with text.
func Text(s string) Turn { return answer().Text(s) }

// Thinking answers with thinking.
func Thinking(s string) Turn { return answer().Thinking(s) }

// Calls answers with tool calls.
func Calls(calls ...Call) Turn { return answer().Calls(calls...) }

// Raw answers with the given stream, unchanged.
func Raw(body string) Turn {
	return Status(http.StatusOK, body, "Content-Type", "text/event-stream")
}

// Status answers with the given status and body. header is a name, its value, the next name, and so
// on.
func Status(status int, body string, header ...string) Turn {
	t := answer()
	t.plan.Answer = wiretest.Raw(status, body, header...)
	return t
}

// fault is an error in the API's form ("Errors", "Error shapes").
func fault(kind, text string) object {
	return object{"type": "error", "error": object{"type": kind, "message": text}, "request_id": "req_test"}
}

// failed answers with an error in the API's form.
func failed(status int, kind, text string, header ...string) Turn {
	return Status(status, wiretest.Marshal(fault(kind, text)), header...)
}

// RateLimit answers with status 429 and a Retry-After header.
func RateLimit(retryAfter string) Turn {
	return failed(http.StatusTooManyRequests, "rate_limit_error",
		"This request would exceed your organization's rate limit", "Retry-After", retryAfter)
}

// Overloaded answers with status 529.
func Overloaded() Turn { return failed(529, "overloaded_error", "Overloaded") }

// Broken answers with status 500.
func Broken() Turn {
	return failed(http.StatusInternalServerError, "api_error", "Internal server error")
}

// Hang answers with nothing, not even a header, until the client disconnects.
func Hang() Turn {
	t := answer()
	t.plan.Answer.Hang = true
	return t
}

// Func makes the turn from the request. The server calls it for one request at a time.
func Func(fn func(*Request) Turn) Turn { return Turn{plan: plan{Func: fn}} }

// Always answers every further request with turn.
func Always(turn Turn) Turn {
	turn.plan.Always = true
	return turn
}

// Text adds a block of text.
func (t Turn) Text(s string) Turn { return t.add(object{"type": "text", "text": s}) }

// Cited adds a block of text with a citation, as a JSON object.
func (t Turn) Cited(s, citation string) Turn {
	return t.add(object{"type": "text", "text": s, "citations": []any{json.RawMessage(citation)}})
}

// Thinking adds a block of thinking. Its signature fits the request and the text.
func (t Turn) Thinking(s string) Turn { return t.add(object{"type": "thinking", "thinking": s}) }

// Redacted adds a block of redacted thinking.
func (t Turn) Redacted() Turn { return t.add(object{"type": "redacted_thinking"}) }

// Block adds a block, given as a JSON object.
func (t Turn) Block(block string) Turn {
	var o object
	if err := json.Unmarshal([]byte(block), &o); err != nil {
		panic(err) // the test is wrong
	}
	switch kind := o["type"]; kind { // in the form of Text, Thinking and Calls
	case "text", "thinking":
		o[kind.(string)], _ = o[kind.(string)].(string)
	case "tool_use":
		o["id"], _ = o["id"].(string)
		o["input"] = wiretest.Marshal(o["input"])
	}
	return t.add(o)
}

// Calls adds tool calls.
func (t Turn) Calls(calls ...Call) Turn {
	for _, c := range calls {
		t = t.add(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": c.Args})
	}
	return t
}

func (t Turn) add(block object) Turn {
	t.blocks = append(slices.Clone(t.blocks), block)
	return t
}

// Stop sets the stop reason.
func (t Turn) Stop(reason string) Turn { t.stop = reason; return t }

// Usage sets the usage.
func (t Turn) Usage(u Usage) Turn { t.usage = u; return t }

// Ping puts a ping after each event.
func (t Turn) Ping() Turn { t.ping = true; return t }

// CutAfter closes the connection after n bytes of the body.
func (t Turn) CutAfter(n int) Turn { t.plan.Answer.Cut = n; return t }

// Slow waits between the events of a stream, in real time.
func (t Turn) Slow(pause time.Duration) Turn { t.plan.Answer.Pause = pause; return t }

// HangAfter is CutAfter, but keeps the connection open without data.
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
	switch {
	case isRaw:
	case req.Stream:
		a.Parts = t.events(req)
		a.Header.Set("Content-Type", "text/event-stream; charset=utf-8")
	default:
		a.Parts = []string{wiretest.Marshal(t.message(req, t.content(req)))}
	}
	a.Serve(w, r, closed)
}

type object = map[string]any

// content returns the blocks with the signatures and ids that depend on the request.
func (t Turn) content(req *Request) []object {
	out := []object{}
	thoughts := req.thoughts
	for i, b := range t.blocks {
		o := maps.Clone(b)
		switch o["type"] {
		case "thinking":
			o["signature"] = signature(req.Model, req.prefix, thoughts, o["thinking"].(string))
			thoughts++
		case "redacted_thinking":
			o["data"] = signature(req.Model, req.prefix, thoughts, "")
			thoughts++
		case "tool_use":
			if o["id"] == "" {
				o["id"] = fmt.Sprintf("toolu_%d_%d", req.number, i)
			}
		}
		out = append(out, o)
	}
	return out
}

// events renders the turn as server-sent events ("Streaming messages", "Event types").
func (t Turn) events(req *Request) (out []string) {
	emit := func(o object) {
		out = append(out, fmt.Sprintf("event: %s\ndata: %s\n\n", o["type"], wiretest.Marshal(o)))
		if t.ping {
			out = append(out, "event: ping\ndata: {\"type\": \"ping\"}\n\n")
		}
	}
	start := t.message(req, []object{})
	start["stop_reason"] = nil
	start["usage"] = object{"input_tokens": t.usage.Input, "output_tokens": 1,
		"cache_read_input_tokens":     t.usage.CacheRead,
		"cache_creation_input_tokens": t.usage.CacheWrite}
	emit(object{"type": "message_start", "message": start})
	for i, b := range t.content(req) {
		begin, deltas := splitBlock(b)
		emit(object{"type": "content_block_start", "index": i, "content_block": begin})
		for _, d := range deltas {
			emit(object{"type": "content_block_delta", "index": i, "delta": d})
		}
		emit(object{"type": "content_block_stop", "index": i})
	}
	emit(object{"type": "message_delta",
		"delta": object{"stop_reason": t.stopReason(), "stop_sequence": nil},
		"usage": object{"output_tokens": t.usage.Output,
			"output_tokens_details": object{"thinking_tokens": t.usage.Thinking}}})
	emit(object{"type": "message_stop"})
	return out
}

// splitBlock returns the beginning of a block, and the deltas that complete it.
func splitBlock(b object) (begin object, deltas []object) {
	switch b["type"] {
	case "text":
		begin = object{"type": "text", "text": ""}
		if citations, ok := b["citations"].([]any); ok {
			begin["citations"] = []any{}
			for _, c := range citations {
				deltas = append(deltas, object{"type": "citations_delta", "citation": c})
			}
		}
		for _, s := range wiretest.Pieces(b["text"].(string)) {
			deltas = append(deltas, object{"type": "text_delta", "text": s})
		}
	case "thinking":
		begin = object{"type": "thinking", "thinking": "", "signature": ""}
		for _, s := range wiretest.Pieces(b["thinking"].(string)) {
			deltas = append(deltas, object{"type": "thinking_delta", "thinking": s})
		}
		deltas = append(deltas, object{"type": "signature_delta", "signature": b["signature"]})
	case "tool_use":
		begin = object{"type": "tool_use", "id": b["id"], "name": b["name"], "input": object{}}
		deltas = append(deltas, object{"type": "input_json_delta", "partial_json": ""})
		for _, s := range wiretest.Pieces(b["input"].(string)) {
			deltas = append(deltas, object{"type": "input_json_delta", "partial_json": s})
		}
	case "server_tool_use":
		begin = object{"type": b["type"], "id": b["id"], "name": b["name"], "input": object{}}
		input := wiretest.Marshal(b["input"])
		deltas = append(deltas, object{"type": "input_json_delta", "partial_json": input})
	default: // without deltas
		begin = b
	}
	return begin, deltas
}

// message renders an answer that is not streamed, with the given content.
func (t Turn) message(req *Request, content []object) object {
	for _, b := range content {
		text, ok := b["input"].(string)
		if ok && b["type"] == "tool_use" && json.Valid([]byte(text)) { // other text stays a string
			b["input"] = json.RawMessage(text)
		}
	}
	return object{"id": fmt.Sprintf("msg_%d", req.number), "type": "message", "role": "assistant",
		"model": req.Model, "content": content,
		"stop_reason": t.stopReason(), "stop_sequence": nil,
		"usage": object{"input_tokens": t.usage.Input, "output_tokens": t.usage.Output,
			"cache_read_input_tokens":     t.usage.CacheRead,
			"cache_creation_input_tokens": t.usage.CacheWrite,
			"output_tokens_details":       object{"thinking_tokens": t.usage.Thinking}}}
}

// stopReason returns the reason that was set, else one derived from the content.
func (t Turn) stopReason() string {
	switch {
	case t.stop != "":
		return t.stop
	case slices.ContainsFunc(t.blocks, func(b object) bool { return b["type"] == "tool_use" }):
		return "tool_use"
	}
	return "end_turn"
}
