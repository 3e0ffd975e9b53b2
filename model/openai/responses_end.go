package openai

import (
	"bytes"
	"encoding/json"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
)

// terminal handles the complete response, which the last event carries.
func (r *response) terminal(body *responseBody) error {
	if body.Error != nil {
		return r.failed(body.Error)
	}
	if body.ID != "" {
		r.chunk.ID = body.ID
	}
	if body.Model != "" {
		r.chunk.Model = body.Model
	}
	if u := body.Usage; u != nil {
		r.usage = message.Usage{Input: u.InputTokens, Output: u.OutputTokens}
		if d := u.InputTokensDetails; d != nil {
			r.usage.Cached, r.usage.CacheWrite = d.CachedTokens, d.CacheWriteTokens
		}
		if d := u.OutputTokensDetails; d != nil {
			r.usage.Reasoning = d.ReasoningTokens
		}
	}
	for n, raw := range body.Output {
		if n < len(r.items) && bytes.Equal(raw, r.items[n].raw) { // as it was at its end
			continue
		}
		members, _ := itemMembers(raw)
		r.item(r.match(n, members), members, true)
	}
	switch body.Status {
	case "failed", "cancelled":
		return httperror.BadAnswer("the server ended the response with status "+body.Status, nil)
	case "incomplete":
		r.incomplete = "unknown"
		if body.Incomplete != "" {
			r.incomplete = body.Incomplete
		}
	}
	r.reason, r.done = "stop", true
	if r.stopped {
		return errStopped
	}
	return nil
}

// match returns the known item that is the n-th of the complete response: by its id, else by its position.
func (r *response) match(n int, members map[string]json.RawMessage) *outputItem {
	id := jsonString(members["id"])
	for _, i := range r.items {
		if id != "" && i.id == id {
			return i
		}
	}
	if n < len(r.items) && r.items[n].kind == jsonString(members["type"]) {
		return r.items[n]
	}
	return r.open(&responseEvent{ItemID: id})
}

// end handles [DONE]. If the event with the complete response is missing, the answer is complete only if all items are.
func (r *response) end() error {
	for _, i := range r.items {
		if !i.ended {
			return nil // read reports a stream that ended early
		}
	}
	r.done = len(r.items) > 0
	if r.done {
		r.reason = "stop"
	}
	return nil
}

// finish sends the calls whose name never came, the extras and the finish. The items that must go back
// unchanged are sent as an extra of the reasoning, unless the answer was cut off.
func (r *response) finish() error {
	for n := range r.calls {
		if r.calls[n].sentID == "" {
			r.start(n)
		}
	}
	if r.incomplete == "" {
		if items := keep(r.items); items != nil {
			r.send(&model.ThinkingDelta{Extra: r.tagged(map[string]json.RawMessage{keptMember: items})})
		}
	}
	reason := finishReason("", len(r.calls) > 0)
	switch r.incomplete {
	case "":
	case "max_output_tokens", "max_tokens":
		reason = model.FinishLength
	case "content_filter":
		reason = model.FinishFilter
	default:
		reason = model.FinishReason(r.incomplete)
	}
	r.send(&model.Finish{ID: r.chunk.ID, Model: r.chunk.Model, Usage: r.usage, Reason: reason})
	if r.stopped {
		return errStopped
	}
	return nil
}

// jsonString returns the value of a JSON string, empty for any other valid JSON.
func jsonString(raw json.RawMessage) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	return unquote(raw)
}
