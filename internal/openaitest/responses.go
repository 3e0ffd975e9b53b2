package openaitest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/wiretest"
)

// This file renders turns as answers of the Responses API (OpenAI API reference, "Responses" and "Streaming
// events"): POST …/responses.

// responsesPath is the end of the path of requests of the Responses API.
const responsesPath = "/responses"

// outputItem is an item of a response, with the events that stream its content.
type outputItem struct {
	item   object // the complete item
	begun  object // the item without content
	deltas []object
}

// output returns the items of a turn: reasoning, text, calls. Their ids contain the number of the response, after an r if
// the response has reasoning, so that the validator can check that a later request has all of them.
func (t Turn) output(req *Request) (items []outputItem) {
	response := fmt.Sprint(req.number)
	add := func(kind, text string, deltaMembers, complete, begun object) {
		var deltas []object
		for _, s := range wiretest.Pieces(text) {
			d := object{"type": "response." + kind + ".delta", "output_index": len(items), "item_id": complete["id"], "delta": s}
			maps.Copy(d, deltaMembers)
			deltas = append(deltas, d)
		}
		items = append(items, outputItem{complete, begun, deltas})
	}
	if t.reasoning != "" {
		response = "r" + response
		id := "rs_" + response
		item := func(summary []object, encrypted any) object {
			return object{"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted}
		}
		add("reasoning_summary_text", t.reasoning, object{"summary_index": 0},
			item([]object{{"type": "summary_text", "text": t.reasoning}}, encryptedPrefix+id), item([]object{}, ""))
	}
	if t.text != "" {
		item := func(status string, content []object) object {
			return object{"type": "message", "id": "msg_" + response, "role": "assistant", "phase": t.phase(), "status": status, "content": content}
		}
		add("output_text", t.text, object{"content_index": 0},
			item("completed", []object{{"type": "output_text", "text": t.text, "annotations": []object{}}}), item("in_progress", []object{}))
	}
	for i, c := range t.calls {
		item := func(status, args string) object {
			o := object{"type": "function_call", "id": fmt.Sprintf("fc_%s_%d", response, i), "call_id": callID(c, i), "name": c.Name, "arguments": args, "status": status}
			if slices.Contains(req.added, c.Name) {
				o["namespace"] = c.Name
			}
			return o
		}
		add("function_call_arguments", c.Args, nil, item("completed", c.Args), item("in_progress", ""))
	}
	return items
}

// phase returns the phase of the text: commentary if calls follow.
func (t Turn) phase() string {
	if len(t.calls) > 0 {
		return "commentary"
	}
	return "final_answer"
}

// responseEvents renders the turn as the events of a stream.
func (t Turn) responseEvents(req *Request) (out []string) {
	number := 0
	emit := func(o object) {
		o["sequence_number"] = number
		number++
		out = append(out, fmt.Sprintf("event: %s\n%s", o["type"], event(o)))
	}
	items := t.output(req)
	emit(object{"type": "response.created", "response": t.response(req, "in_progress", nil)})
	begin := func(i int) {
		emit(object{"type": "response.output_item.added", "output_index": i, "item": items[i].begun})
	}
	end := func(i int) {
		emit(object{"type": "response.output_item.done", "output_index": i, "item": items[i].item})
	}
	sequential := len(items)
	if t.interleave {
		sequential -= len(t.calls)
	}
	for i, out := range items[:sequential] {
		begin(i)
		for _, d := range out.deltas {
			emit(d)
		}
		end(i)
	}
	var deltas [][]object
	for i := sequential; i < len(items); i++ {
		begin(i)
		deltas = append(deltas, items[i].deltas)
	}
	for _, d := range interleaved(deltas) {
		emit(d)
	}
	for i := sequential; i < len(items); i++ {
		end(i)
	}
	status := t.finalStatus()
	emit(object{"type": "response." + status, "response": t.response(req, status, items)})
	return out
}

// finalStatus returns the status of the complete response.
func (t Turn) finalStatus() string {
	if t.finish == "length" || t.finish == "content_filter" {
		return "incomplete"
	}
	return "completed"
}

// response renders the response object.
func (t Turn) response(req *Request, status string, items []outputItem) object {
	output := []object{}
	for _, out := range items {
		output = append(output, out.item)
	}
	o := object{"id": fmt.Sprintf("resp_%d", req.number), "object": "response", "created_at": 1, "model": req.Model, "status": status,
		"output": output, "error": nil, "incomplete_details": nil, "usage": nil}
	if status == "incomplete" {
		o["incomplete_details"] = object{"reason": strings.Replace(t.finish, "length", "max_output_tokens", 1)}
	}
	if status != "in_progress" {
		o["usage"] = object{"input_tokens": t.usage.Prompt, "output_tokens": t.usage.Completion, "total_tokens": t.usage.Prompt + t.usage.Completion,
			"input_tokens_details": object{"cached_tokens": t.usage.Cached}, "output_tokens_details": object{"reasoning_tokens": t.usage.Reasoning}}
	}
	return o
}

// readInput sets Messages and Tools from the body of a Responses API request, in the form of chat completions, so that the
// functions and checks of a turn work with both.
func (r *Request) readInput() error {
	type definition struct {
		Type, Name, Description string
		Parameters              json.RawMessage
	}
	var body struct {
		Instructions string
		Input        json.RawMessage
		Tools        []definition
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return err
	}
	r.Messages, r.Tools = nil, nil
	if body.Instructions != "" {
		r.Messages = append(r.Messages, Message{Role: "system", Content: json.RawMessage(wiretest.Marshal(body.Instructions))})
	}
	add := func(t definition) {
		var tool Tool
		tool.Function.Name, tool.Function.Description, tool.Function.Parameters = t.Name, t.Description, t.Parameters
		r.Tools = append(r.Tools, tool)
	}
	for _, t := range body.Tools {
		add(t)
	}
	if text, err := wiretest.DecodeString(body.Input); err == nil {
		r.Messages = append(r.Messages, Message{Role: "user", Content: json.RawMessage(wiretest.Marshal(text))})
		return nil
	}
	var items []struct {
		Type, Role, Name, Arguments string
		CallID                      string `json:"call_id"`
		Content                     json.RawMessage
		Output                      json.RawMessage
		Tools                       []definition
	}
	if err := json.Unmarshal(body.Input, &items); err != nil {
		return err
	}
	for _, item := range items {
		switch cmp.Or(item.Type, "message") {
		case "message":
			r.Messages = append(r.Messages, Message{Role: item.Role, Content: item.Content})
		case "function_call":
			call := ToolCall{ID: item.CallID}
			call.Function.Name, call.Function.Arguments = item.Name, item.Arguments
			if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == "assistant" {
				r.Messages[n-1].ToolCalls = append(r.Messages[n-1].ToolCalls, call)
			} else {
				r.Messages = append(r.Messages, Message{Role: "assistant", ToolCalls: []ToolCall{call}})
			}
		case "additional_tools":
			for _, t := range item.Tools {
				add(t)
				r.added = append(r.added, t.Name)
			}
		case "function_call_output":
			r.Messages = append(r.Messages, Message{Role: "tool", ToolCallID: item.CallID, Content: item.Output})
		}
	}
	return nil
}
