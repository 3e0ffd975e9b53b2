package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
)

// terminal handles the complete response, which the last event carries.
func (r *response) terminal(body *responseBody) error {
	if body.Error != nil {
		return r.failed(body.Error)
	}
	r.chunk.ID, r.chunk.Model = cmp.Or(body.ID, r.chunk.ID), cmp.Or(body.Model, r.chunk.Model)
	if u := body.Usage; u != nil {
		r.usage = message.Usage{Input: u.InputTokens, Output: u.OutputTokens}
		if d := u.InputTokensDetails; d != nil {
			r.usage.Cached, r.usage.CacheWrite = d.CachedTokens, d.CacheWriteTokens
		}
		if d := u.OutputTokensDetails; d != nil {
			r.usage.Reasoning = d.ReasoningTokens
		}
	}
	r.final(body.Output)
	switch body.Status {
	case "failed", "cancelled":
		return httperror.BadAnswer("the server ended the response with status "+body.Status, nil)
	case "incomplete":
		r.incomplete = cmp.Or(body.Incomplete, "unknown")
	}
	r.reason, r.done = "stop", true
	if r.stopped {
		return errStopped
	}
	return nil
}

// final handles the items of the complete response. Some servers give them other ids than in the stream, so an item
// with an unknown id stands for the next unmatched item of its type.
func (r *response) final(output []json.RawMessage) {
	var unknown []map[string]json.RawMessage
	isFree := func(item *outputItem) bool { return !item.matched }
	update := func(item *outputItem, members map[string]json.RawMessage) {
		item.matched = true
		r.item(item, members, true)
	}
	for n, raw := range output {
		if n < len(r.items) && bytes.Equal(raw, r.items[n].raw) { // unchanged since its end
			r.items[n].matched = true
			continue
		}
		members, _ := itemMembers(raw)
		if item := r.match(members, func(*outputItem) bool { return false }); item != nil {
			update(item, members)
		} else if members != nil {
			unknown = append(unknown, members)
		}
	}
	for _, members := range unknown {
		item := r.match(members, isFree)
		if item == nil {
			item = r.open(&responseEvent{ItemID: jsonString(members["id"])})
		}
		update(item, members)
	}
}

// end handles [DONE]. If the event with the complete response is missing, the answer is complete only if all items are.
func (r *response) end() {
	isOpen := func(item *outputItem) bool { return !item.ended }
	if len(r.items) > 0 && !slices.ContainsFunc(r.items, isOpen) { // otherwise read reports a stream that ended early
		r.done, r.reason = true, "stop"
	}
}

// finish yields the calls whose name never came, the extras and the finish. The items that must be sent back
// unchanged are an extra of the reasoning, unless the answer was cut off.
func (r *response) finish() error {
	for n := range r.calls {
		if r.calls[n].sentID == "" {
			r.startCall(n)
		}
	}
	if r.incomplete == "" {
		if items := keep(r.items); items != nil {
			r.send(&model.ThinkingDelta{Extra: r.encodeExtras(map[string]json.RawMessage{keptMember: items})})
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
