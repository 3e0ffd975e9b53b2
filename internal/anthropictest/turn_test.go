package anthropictest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestAnyBlock: each block can be answered with, streamed or not.
func TestAnyBlock(t *testing.T) {
	for _, turn := range []Turn{
		Text("").Block(`{"type":"tool_use","id":"a","name":"add","input":{"a":1}}`),
		Text("").Block(`{"type":"tool_use","name":"add"}`),
		Text("").Block(`{"type":"text"}`),
		Text("").Block(`{"type":"text","text":"a","citations":null}`),
		Text("").Block(`{"type":"thinking"}`),
		Text("").Block(`{"type":"server_tool_use","id":"a","name":"b"}`),
		Calls(Call{Name: "add", Args: "{"}),
		Calls(Call{Name: "add"}),
	} {
		for _, stream := range []string{"true", "false"} {
			s := New(t, turn)
			body := `{"model":"m","max_tokens":1,"stream":` + stream +
				`,"messages":[{"role":"user","content":"hi"}]}`
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				s.URL+"/v1/messages", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{"Anthropic-Version": {"2023-06-01"},
				"Content-Type": {"application/json"}}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Errorf("%v, stream %s: %v", turn.blocks, stream, err)
				continue
			}
			data, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%v, stream %s: status %d, %v", turn.blocks, stream, resp.StatusCode, err)
			}
			if len(data) == 0 || stream == "false" && !json.Valid(data) {
				t.Errorf("%v, stream %s: %s", turn.blocks, stream, data)
			}
			_ = resp.Body.Close()
		}
	}
}
