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

// handleResponse handles the complete response, which is in the last event.
func (r *response) handleResponse(body *responseBody) error {
	if body.Error != nil {
		return r.serverError(body.Error)
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
	r.handleOutput(body.Output)
	if r.stopped {
		return errStopped
	}
	switch body.Status {
	case "failed", "cancelled":
		return httperror.BadAnswer("the server ended the response with status "+body.Status, nil)
	case "incomplete":
		r.incomplete = cmp.Or(body.Incomplete, "unknown")
	}
	r.reason, r.done = "stop", true
	return nil
}

// handleOutput handles the items of the complete response. Some servers give items other ids there than in the stream:
// an item with an unknown id is matched with an unmatched item of the same call_id or type.
func (r *response) handleOutput(output []json.RawMessage) {
	var unknown []map[string]json.RawMessage
	isFree := func(item *outputItem) bool { return !item.matched }
	update := func(item *outputItem, members map[string]json.RawMessage) {
		item.matched = true
		r.updateItem(item, members, true)
	}
	for n, raw := range output {
		if n < len(r.items) && bytes.Equal(raw, r.items[n].endedJSON) {
			r.items[n].matched = true
			continue
		}
		members, _ := itemMembers(raw)
		if item := r.match(members, func(*outputItem) bool { return false }); item != nil { // by id only
			update(item, members)
		} else if members != nil {
			unknown = append(unknown, members)
		}
	}
	for _, members := range unknown {
		item := r.match(members, isFree)
		if item == nil {
			item = r.addItem(&responseEvent{ItemID: jsonString(members["id"])})
		}
		update(item, members)
	}
}

// endStream handles [DONE]. Some servers do not send the complete response: then the answer is complete if all items are.
// Otherwise provider.StreamEnd will report that the stream ended early.
func (r *response) endStream() {
	isOpen := func(item *outputItem) bool { return !item.ended }
	if len(r.items) > 0 && !slices.ContainsFunc(r.items, isOpen) {
		r.done, r.reason = true, "stop"
	}
}

// finish yields the calls without a name, an extra with the items that must be sent back, and the finish. The items of an
// answer that was cut off are not sent back.
func (r *response) finish() error {
	for n := range r.calls {
		if r.calls[n].sentID == "" {
			r.startCall(n)
		}
	}
	if r.incomplete == "" {
		if items := encodeKept(r.items); items != nil {
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
