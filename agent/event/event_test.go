package event_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/agent/event"
	_ "github.com/kitbag-go/kitbag/internal/seed"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// all has one event of each type.
var all = []event.Event{
	&event.RunStart{}, &event.ModelStart{}, &event.TextDelta{}, &event.ThinkingDelta{}, &event.ToolCallDelta{},
	&event.Discard{}, &event.Retry{}, &event.Message{}, &event.ToolCall{}, &event.ToolStart{}, &event.ToolDelta{},
	&event.ToolResult{}, &event.Approval{}, &event.External{}, &event.Elicitation{}, &event.Sampling{},
	&event.Background{}, &event.Sub{}, &event.Compaction{}, &event.End{},
}

// TestDecode encodes events of all types with random fields, and decodes them again.
func TestDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ev := anyEvent(t, 3)
		data, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		got, err := event.Decode(data)
		if err != nil || !reflect.DeepEqual(got, ev) {
			t.Fatalf("%s\nis decoded as %+v, %v\nwant       %+v", data, got, err, ev)
		}
		var sse struct {
			Seq  int64
			Type string
		}
		if err := json.Unmarshal(data, &sse); err != nil || sse.Seq != ev.Head().Seq || sse.Type != event.TypeOf(ev) {
			t.Fatalf("%s has seq %d and type %q: %v", data, sse.Seq, sse.Type, err)
		}
	})
}

func anyEvent(t *rapid.T, depth int) event.Event {
	of := reflect.TypeOf(all[rapid.IntRange(0, len(all)-1).Draw(t, "type")]).Elem()
	if depth == 0 {
		of = reflect.TypeFor[event.End]()
	}
	v := reflect.New(of)
	fill(t, v.Elem(), depth)
	ev := v.Interface().(event.Event)
	ev.Head().Type = event.TypeOf(ev)
	return ev
}

// fill sets every field of v that is encoded to JSON.
func fill(t *rapid.T, v reflect.Value, depth int) {
	some := func(what string) string { return rapid.StringMatching(`[a-zé"<]{1,5}`).Draw(t, what) }
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes([]byte(fmt.Sprintf(`{"a":%d}`, rapid.IntRange(0, 9).Draw(t, "raw"))))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(0, 1<<31).Draw(t, "time"), 5).UTC()))
		return
	case message.Blocks:
		v.Set(reflect.ValueOf(message.Blocks{&message.Text{ID: some("id"), Text: some("text")}}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(some("string"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(1, 1<<40).Draw(t, "int"))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(0.5, 10).Draw(t, "float"))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), depth)
	case reflect.Interface:
		v.Set(reflect.ValueOf(anyEvent(t, depth-1)))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i), depth)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), depth)
	case reflect.Map:
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, depth)
		fill(t, elem, depth)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, elem)
	default:
		t.Fatalf("the test cannot fill a %s", v.Type())
	}
}

func TestDecodeRefuses(t *testing.T) {
	deep := strings.Repeat(`{"type":"sub","event":`, 40) + `{"type":"end"}` + strings.Repeat("}", 40)
	for _, row := range []struct{ data, want string }{
		{``, "unexpected end"},
		{`[]`, "cannot unmarshal array"},
		{`null`, `unknown type ""`},
		{`{"type":"poll"}`, `unknown type "poll"`},
		{`{"type":"end","steps":"many"}`, "steps"},
		{`{"type":"sub"}`, `needs a member "event"`},
		{`{"type":"sub","event":{"type":"sub","event":null}}`, "unknown type"},
		{deep, "more than 32"},
	} {
		if ev, err := event.Decode([]byte(row.data)); err == nil || ev != nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%.60s: %v, %v; want an error with %q", row.data, ev, err, row.want)
		}
	}
}

// FuzzDecode decodes any input. A decoded event can be encoded and decoded again.
func FuzzDecode(f *testing.F) {
	for _, ev := range all {
		f.Add([]byte(fmt.Sprintf(`{"type":%q,"call":"c","event":{"type":"end"}}`, event.TypeOf(ev))))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ev, err := event.Decode(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(ev)
		if err != nil {
			return // a time or a block that is valid in JSON but not in Go
		}
		if got, err := event.Decode(again); err != nil || event.TypeOf(got) != event.TypeOf(ev) {
			t.Fatalf("%q is encoded as %q: %v", data, again, err)
		}
	})
}

func TestAnswers(t *testing.T) {
	rule := permission.Rule{Tool: "Bash", Behavior: permission.Allow}
	q, e := &event.Approval{Call: "c1"}, &event.External{Call: "c2"}
	for _, row := range []struct {
		in   interface{ Answers() string }
		call string
		json string
	}{
		{q.Allow(), "c1", `{"call":"c1","allow":true}`},
		{q.Allow(rule), "c1", `{"call":"c1","allow":true,"rules":[{"tool":"Bash","behavior":"allow"}]}`},
		{q.Deny(""), "c1", `{"call":"c1","allow":false}`},
		{q.Deny("No."), "c1", `{"call":"c1","allow":false,"reason":"No."}`},
		{e.Return(), "c2", `{"call":"c2"}`},
		{e.Return(&message.Text{Text: "5"}), "c2", `{"call":"c2","blocks":[{"type":"text","text":"5"}]}`},
	} {
		data, err := json.Marshal(row.in)
		if err != nil || string(data) != row.json || row.in.Answers() != row.call {
			t.Errorf("%s answers %q, %v; want %s", data, row.in.Answers(), err, row.json)
		}
		back := reflect.New(reflect.TypeOf(row.in))
		if err := json.Unmarshal(data, back.Interface()); err != nil || !reflect.DeepEqual(back.Elem().Interface(), row.in) {
			t.Errorf("%s is decoded as %+v, %v", data, back.Elem(), err)
		}
	}
}
