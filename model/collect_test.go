package model_test

import (
	"encoding/json"
	"errors"
	"iter"
	"runtime"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

func stream(err error, chunks ...model.Chunk) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		for _, c := range chunks {
			if !yield(c, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func TestCollect(t *testing.T) {
	text := func(s string) model.Chunk { return &model.TextDelta{Text: s} }
	think := func(s, extra string) model.Chunk {
		return &model.ThinkingDelta{Text: s, Extra: json.RawMessage(extra)}
	}
	call := func(i int, id, name, args string) model.Chunk {
		return &model.ToolCallDelta{Index: i, ID: id, Name: name, Args: args}
	}
	for _, row := range []struct {
		why    string
		chunks []model.Chunk
		blocks string
	}{
		{"nothing", nil, `[]`},
		{"text in pieces", []model.Chunk{text("Hé"), text("llo")}, `[{"type":"text","text":"Héllo"}]`},
		{"thinking, then text", []model.Chunk{think("h", ""), think("m", ""), text("x")},
			`[{"type":"thinking","text":"hm"},{"type":"text","text":"x"}]`},
		{"text around a call stays apart", []model.Chunk{text("a"), call(0, "1", "t", "{}"), text("b")},
			`[{"type":"text","text":"a"},{"type":"tool_call","id":"1","name":"t","input":{}},{"type":"text","text":"b"}]`},
		{"calls that interleave", []model.Chunk{call(0, "1", "a", ""), call(1, "2", "b", `{"x"`), call(0, "", "", `{}`), call(1, "", "", `:1}`)},
			`[{"type":"tool_call","id":"1","name":"a","input":{}},{"type":"tool_call","id":"2","name":"b","input":{"x":1}}]`},
		{"a call without arguments", []model.Chunk{call(0, "1", "a", "")}, `[{"type":"tool_call","id":"1","name":"a","input":{}}]`},
		{"a signature at the end", []model.Chunk{think("a", `{"k":1,"l":1}`), text("b"), think("", `{"k":2}`)},
			`[{"type":"thinking","text":"a","extra":{"k":2,"l":1}},{"type":"text","text":"b"}]`},
		{"a signature without thinking", []model.Chunk{text("b"), think("", `{"k":2}`)},
			`[{"type":"text","text":"b"},{"type":"thinking","text":"","extra":{"k":2}}]`},
		{"thinking again after text", []model.Chunk{think("a", ""), text("b"), think("c", "")},
			`[{"type":"thinking","text":"a"},{"type":"text","text":"b"},{"type":"thinking","text":"c"}]`},
		{"an image", []model.Chunk{&model.DataBlock{Data: &message.Data{MediaType: "image/png", Bytes: []byte{1}}}},
			`[{"type":"data","media_type":"image/png","bytes":"AQ=="}]`},
	} {
		for _, broken := range []error{nil, errors.New("broken")} {
			chunks := row.chunks
			if broken == nil {
				chunks = append(chunks[:len(chunks):len(chunks)], &model.Finish{Reason: model.FinishStop, Model: "m", Usage: message.Usage{Input: 1}})
			}
			msg, fin, err := model.Collect(stream(broken, chunks...))
			if !errors.Is(err, broken) || (fin == nil) != (broken != nil) {
				t.Errorf("%s: finish %v, error %v", row.why, fin, err)
			}
			blocks := msg.Blocks
			if blocks == nil {
				blocks = message.Blocks{}
			}
			got, err := json.Marshal(blocks)
			if err != nil {
				t.Fatalf("%s: %v", row.why, err)
			}
			if string(got) != row.blocks {
				t.Errorf("%s:\n got %s\nwant %s", row.why, got, row.blocks)
			}
			if broken == nil && (msg.Model != "m" || msg.Usage.Input != 1 || msg.Role != message.RoleAssistant) {
				t.Errorf("%s: message %+v", row.why, msg)
			}
		}
	}
}

func TestCollectWithoutFinish(t *testing.T) {
	msg, fin, err := model.Collect(stream(nil, &model.TextDelta{Text: "half"}))
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindConnection || fin != nil || msg.Text() != "half" {
		t.Errorf("got %v, %v, %v", msg, fin, err)
	}
}

// TestCollectIsLinear compares bytes allocated, not time.
func TestCollectIsLinear(t *testing.T) {
	bytesFor := func(n int) float64 {
		chunks := make([]model.Chunk, n, n+1)
		for i := range chunks {
			chunks[i] = &model.TextDelta{Text: "0123456789"}
		}
		chunks = append(chunks, &model.Finish{})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, _, err := model.Collect(stream(nil, chunks...)); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	if small, large := bytesFor(10_000), bytesFor(100_000); large > 20*small {
		t.Errorf("ten times the chunks took %.1f times the memory", large/small)
	}
}
