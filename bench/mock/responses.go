package main

import (
	"fmt"
	"strings"
)

// A stream renders the events of the Responses API, in the form of OpenAI's servers.
type stream struct {
	b      []byte
	number int
}

func (s *stream) event(kind, members string) {
	s.b = fmt.Appendf(s.b, "event: %s\ndata: {\"type\":%q,\"sequence_number\":%d,%s}\n\n", kind, kind, s.number, members)
	s.number++
}

// response is the response as a whole.
func response(status, output string) string {
	usage := "null"
	if status == "completed" {
		usage = `{"input_tokens":120,"input_tokens_details":{"cached_tokens":0},"output_tokens":30,"output_tokens_details":{"reasoning_tokens":10},"total_tokens":150}`
	}
	return fmt.Sprintf(`"response":{"id":"resp_bench","object":"response","created_at":1780000000,"status":%q,"background":false,"error":null,`+
		`"incomplete_details":null,"max_output_tokens":null,"model":"bench","output":[%s],"parallel_tool_calls":true,"previous_response_id":null,`+
		`"reasoning":{"effort":"medium","summary":null},"service_tier":"default","store":false,"temperature":1.0,"text":{"format":{"type":"text"}},`+
		`"tool_choice":"auto","top_p":1.0,"truncation":"disabled","usage":%s,"user":null,"metadata":{}}`, status, output, usage)
}

// responses returns the answer of a step: reasoning, and then the calls or, in the last step, the text.
func (s script) responses(step int) []byte {
	var e stream
	var output []string
	e.event("response.created", response("in_progress", ""))
	e.event("response.in_progress", response("in_progress", ""))
	item := func(id, begun, ended string, inner func(at string)) {
		at := fmt.Sprintf(`"output_index":%d`, len(output))
		e.event("response.output_item.added", at+`,"item":`+begun)
		inner(fmt.Sprintf(`%s,"item_id":%q`, at, id))
		e.event("response.output_item.done", at+`,"item":`+ended)
		output = append(output, ended)
	}
	id := fmt.Sprintf("rs_%d", step)
	item(id, fmt.Sprintf(`{"id":%q,"type":"reasoning","summary":[],"encrypted_content":""}`, id),
		fmt.Sprintf(`{"id":%q,"type":"reasoning","summary":[],"encrypted_content":%q}`, id, strings.Repeat("gAAAAAB", 40)), func(string) {})
	if step < s.steps {
		for i := range s.calls {
			id, args := fmt.Sprintf("fc_%d_%d", step, i), fmt.Sprintf(`{\"a\":%d,\"b\":%d}`, step, i)
			call := func(status, args string) string {
				return fmt.Sprintf(`{"id":%q,"type":"function_call","status":%q,"arguments":"%s","call_id":"call_%d_%d","name":"add"}`, id, status, args, step, i)
			}
			item(id, call("in_progress", ""), call("completed", args), func(at string) {
				e.event("response.function_call_arguments.delta", at+`,"delta":"`+args[:8]+`"`)
				e.event("response.function_call_arguments.delta", at+`,"delta":"`+args[8:]+`"`)
				e.event("response.function_call_arguments.done", at+`,"arguments":"`+args+`"`)
			})
		}
	} else {
		id, text := fmt.Sprintf("msg_%d", step), strings.Repeat(" tok", s.tokens)
		part := func(text string) string {
			return fmt.Sprintf(`{"type":"output_text","annotations":[],"logprobs":[],"text":%q}`, text)
		}
		message := func(status, content string) string {
			return fmt.Sprintf(`{"id":%q,"type":"message","status":%q,"content":[%s],"role":"assistant","phase":"final_answer"}`, id, status, content)
		}
		item(id, message("in_progress", ""), message("completed", part(text)), func(at string) {
			at += `,"content_index":0`
			e.event("response.content_part.added", at+`,"part":`+part(""))
			for range s.tokens {
				e.event("response.output_text.delta", at+`,"delta":" tok","logprobs":[]`)
			}
			e.event("response.output_text.done", at+fmt.Sprintf(`,"text":%q,"logprobs":[]`, text))
			e.event("response.content_part.done", at+`,"part":`+part(text))
		})
	}
	e.event("response.completed", response("completed", strings.Join(output, ",")))
	return e.b
}
