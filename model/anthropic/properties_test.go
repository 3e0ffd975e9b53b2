package anthropic_test

import (
	"bufio"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
	"github.com/kitbag-go/kitbag/tool"
)

// TestProperties calls the tools in testdata/properties.jsonl, which have names of properties that
// the API refuses ("Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"). The strict
// server accepts their schemas, the calls arrive with the tool's own names, and the next request
// has the names on the wire again. The tool is in the list, or is added later.
func TestProperties(t *testing.T) {
	f, err := os.Open("testdata/properties.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows := 0
	for lines := bufio.NewScanner(f); lines.Scan(); rows++ {
		var row struct {
			Why               string
			Schema, Wire, Own json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		tools := []tool.Info{providertest.Tool("other"), {Name: "t", Input: row.Schema}}
		for why, req := range map[string]*model.Request{
			row.Why:            {Tools: tools},
			row.Why + ", late": {Tools: tools, Reveal: &model.Reveal{Head: tools[:1], Digest: "1", Changes: []*model.ToolChange{{At: 1, Add: tools[1:]}}}},
		} {
			t.Run(why, func(t *testing.T) {
				s := anthropictest.New(t, anthropictest.Thinking("Hm.").Calls(anthropictest.Call{Name: "t", Args: string(row.Wire)}), anthropictest.Text("ok"))
				m := newModel(t, s, anthropic.Config{LateTools: &late})
				req.Messages = hi.Messages
				answer, _, err := ask(t, m, req)
				if err != nil {
					t.Fatal(err)
				}
				sameJSON(t, "the call", answer.ToolCalls()[0].Input, row.Own)
				req.Messages = append([]*message.Message{hi.Messages[0]}, answer,
					providertest.Results(answer))
				if _, _, err := ask(t, m, req); err != nil {
					t.Fatal(err)
				}
				var body struct {
					Messages []struct {
						Content []struct {
							Type, Thinking string
							Input          json.RawMessage
						}
					}
				}
				if err := json.Unmarshal(s.Requests()[1].Body, &body); err != nil {
					t.Fatal(err)
				}
				for _, m := range body.Messages {
					if n := len(m.Content) - 1; m.Content[n].Type == "tool_use" {
						sameJSON(t, "the call in the next request", m.Content[n].Input, row.Wire)
						if m.Content[0].Thinking == "" {
							t.Error("the thinking before the call is missing")
						}
						return
					}
				}
				t.Error("the next request has no call")
			})
		}
	}
	if rows < 9 {
		t.Errorf("%d rows", rows)
	}
}

func sameJSON(t *testing.T, what string, got, want json.RawMessage) {
	t.Helper()
	var g, w any
	for data, v := range map[*json.RawMessage]*any{&got: &g, &want: &w} {
		dec := json.NewDecoder(strings.NewReader(string(*data)))
		dec.UseNumber()
		if err := dec.Decode(v); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("%s is %s, want %s", what, got, want)
	}
}
