package openaitest_test

import (
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// TestValidateResponses has requests, and for invalid ones a part of the error.
func TestValidateResponses(t *testing.T) {
	const (
		user      = `{"role":"user","content":"hi"}`
		call      = `{"type":"function_call","call_id":"c1","name":"add","arguments":"{}"}`
		out       = `{"type":"function_call_output","call_id":"c1","output":"2"}`
		reasoning = `{"type":"reasoning","id":"rs_r1","summary":[],"encrypted_content":"encrypted-rs_r1"}`
		later     = `{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"add","strict":false,"parameters":{"type":"object","properties":{}}}]}`
		added     = `{"type":"function_call","call_id":"c1","name":"add","namespace":"add","arguments":"{}"}`
		head      = `"tools":[{"type":"function","name":"add","strict":false,"parameters":{"type":"object","properties":{}}}],`
		answer    = `{"type":"message","id":"msg_r1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"yes","annotations":[]}]}`
	)
	for _, row := range []struct{ members, input, want string }{
		{``, user, ``},
		{``, user + `,` + reasoning + `,` + answer + `,` + user, ``},
		{``, user + `,` + call + `,` + out, ``},
		{``, ``, `input: not an array with items`},
		{`"messages":[],`, user, `"messages" is not a known member`},
		{`"max_output_tokens":15,`, user, `Expected a value >= 16`},
		{`"temperature":3,`, user, `temperature is not between`},
		{`"tools":[{"type":"function","function":{"name":"add"}}],`, user, `unknown parameter: 'tools[0].function'`},
		{`"tools":[{"type":"function","name":"add","parameters":{"type":"object","properties":{}}}],`, user, `additionalProperties must be false`},
		{`"tools":[{"type":"function","name":"a.b","strict":false,"parameters":{"type":"object","properties":{}}}],`, user, `does not match`},
		{`"tool_choice":"auto",`, user, `only allowed when tools are specified`},
		{`"text":{"format":{"type":"json_schema","name":"x","strict":true,"schema":{"type":"object"}}},`, user, `additionalProperties must be false`},
		{``, user + `,` + call, `no tool output found for function call c1`},
		{``, user + `,` + call + `,` + user, `no tool output found for function call c1`},
		{``, user + `,` + out, `no tool call found for function call output with call_id c1`},
		{``, user + `,` + call + `,` + call, `was used before`},
		{``, user + `,` + reasoning, `without its required following item`},
		{``, user + `,` + reasoning + `,` + user, `without its required following item`},
		{``, user + `,` + answer, `without its required 'reasoning' item: 'rs_r1'`},
		{``, user + `,{"type":"reasoning","id":"rs_1","summary":[]},` + answer, `not persisted when`},
		{``, user + `,{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},` + answer, `could not be verified`},
		{``, user + `,{"type":"reasoning","id":"rs_1","encrypted_content":"encrypted-rs_1"},` + answer, `'summary'`},
		{``, user + `,{"type":"message","id":"x","role":"assistant","content":"yes"}`, `Expected an ID that begins with 'msg'`},
		{``, `{"role":"tool","content":"x"}`, `Supported values are: 'assistant'`},
		{``, `{"role":"user","content":[{"type":"text","text":"x"}]}`, `Supported values are: ["input_text"`},
		{``, `{"role":"user","content":""}`, `content is empty`},
		{``, user + `,` + later + `,` + added + `,` + out, ``},
		{``, user + `,` + added + `,` + out + `,` + later, ``},
		{``, user + `,` + later + `,` + call + `,` + out, `missing namespace for function_call 'add'`},
		{``, user + `,` + call + `,` + out + `,` + later, `missing namespace for function_call 'add'`},
		{``, user + `,` + added + `,` + out, `namespace 'add' of function_call 'add' does not exist`},
		{head, user + `,` + added + `,` + out, `namespace 'add' of function_call 'add' does not exist`},
		{head, user + `,` + later, `tool 'add' was already provided`},
		{``, user + `,` + later + `,` + later, `tool 'add' was already provided`},
		{``, user + `,` + call + `,` + later + `,` + out, `no tool output found for function call c1`},
		{``, user + `,` + strings.Replace(later, "developer", "user", 1), `Supported values are: 'developer'`},
		{``, user + `,{"type":"additional_tools","role":"developer","tools":[]}`, `tools: not an array with items`},
		{``, `{"type":"tool_result"}`, `invalid value: 'tool_result'`},
	} {
		body := `{"model":"m","store":false,` + row.members + `"input":[` + row.input + `]}`
		err := openaitest.ValidateResponses([]byte(body))
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", body, err, row.want)
		}
	}
}
