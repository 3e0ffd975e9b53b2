package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestPrefixClosed(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{``, ``},
		{` {`, ` {}`},
		{`{"na`, `{}`},
		{`{"name"`, `{}`},
		{`{"name" :`, `{}`},
		{`{"name": "`, `{"name": ""}`},
		{`{"name":"Gr`, `{"name":"Gr"}`},
		{`{"name":"Gr\`, `{"name":"Gr"}`},
		{`{"name":"Gr\\`, `{"name":"Gr\\"}`},
		{`{"name":"Gr\"`, `{"name":"Gr\""}`},
		{`{"name":"Gr\u00`, `{"name":"Gr"}`},
		{`{"name":"Gr\u00e4`, `{"name":"Gr\u00e4"}`},
		{`{"name":"Gr\ud83d`, `{"name":"Gr"}`},
		{`{"name":"Gr\ud83d\`, `{"name":"Gr"}`},
		{`{"name":"Gr\uD83d\ude0`, `{"name":"Gr"}`},
		{`{"name":"Gr\ud83d\ude00`, `{"name":"Gr\ud83d\ude00"}`},
		{`{"name":"\\ud83d`, `{"name":"\\ud83d"}`},
		{"{\"name\":\"Gr\xc3", `{"name":"Gr"}`},
		{`{"name":"Graz"`, `{"name":"Graz"}`},
		{`{"name":"Graz",`, `{"name":"Graz"}`},
		{`{"n":1`, `{}`},
		{`{"n":12,`, `{"n":12}`},
		{`{"n":12}`, `{"n":12}`},
		{`{"n":-1.5e3 `, `{"n":-1.5e3}`},
		{`{"n":tru`, `{}`},
		{`{"n":[1,2`, `{"n":[1]}`},
		{`{"n":[1,{"a":"b","c`, `{"n":[1,{"a":"b"}]}`},
		{`{"n":["a","b`, `{"n":["a","b"]}`},
		{`{"n":{"m":{}},"x":"`, `{"n":{"m":{}},"x":""}`},
	} {
		equal(t, row.text, completeJSON(row.text, true), row.want)
	}
}

// TestPrefixProperty cuts random JSON at many points: the completed prefix is valid JSON, values only
// grow from one cut to the next, and the last value is the
// whole.
func TestPrefixProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data, err := json.Marshal(map[string]any{"value": anyValue(t, 3)})
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if rapid.Bool().Draw(t, "ascii") { // as Python's json does
			text = asciiOnly(text)
		}
		const half = "\uFFFD" // Go's replacement for half a character
		var last any
		for i := 0; i < len(text); {
			i = min(i+rapid.IntRange(1, 9).Draw(t, "piece"), len(text))
			for _, shown := range []string{completeJSON(text[:i], false), completeJSON(text[:i], true)} {
				var v any
				if err := json.Unmarshal([]byte(shown), &v); err != nil || strings.Contains(fmt.Sprint(v), half) {
					t.Fatalf("%q closed as %q: %v", text[:i], shown, err)
				}
				if !grows(last, v) {
					t.Fatalf("%q: after %v came %v", text[:i], last, v)
				}
			}
			if err := json.Unmarshal([]byte(completeJSON(text[:i], true)), &last); err != nil {
				t.Fatal(err)
			}
		}
		var whole any
		if err := json.Unmarshal(data, &whole); err != nil || fmt.Sprint(whole) != fmt.Sprint(last) {
			t.Fatalf("%s ended as %v", data, last)
		}
	})
}

// grows reports whether b has all of a, except that a string at the end may be longer
// in b.
func grows(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		for k, v := range a {
			if w, has := b[k]; ok && has && !grows(v, w) || ok && !has && !isGrowing(v) {
				return false
			}
		}
		return ok
	case []any:
		b, ok := b.([]any)
		if !ok || len(b) < len(a)-1 || len(b) < len(a) && !isGrowing(a[len(a)-1]) {
			return false
		}
		for i := range min(len(a), len(b)) {
			if !grows(a[i], b[i]) {
				return false
			}
		}
		return true
	case string:
		b, ok := b.(string)
		return ok && strings.HasPrefix(b, a)
	case nil:
		return true
	}
	return a == b
}

// isGrowing reports whether completeJSON may leave v out.
func isGrowing(v any) bool { _, ok := v.(string); return ok }

func anyValue(t *rapid.T, depth int) any {
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.StringOf(rapid.RuneFrom([]rune("a\"\\/\n\x01é€😀 {}[],:u0d8"))).Draw(t, "s")
	case 1:
		return rapid.IntRange(-2000, 2000).Draw(t, "n")
	case 2:
		return rapid.SampledFrom([]any{true, false, nil, 0.5, 1e300}).Draw(t, "w")
	case 3:
		return strings.ReplaceAll(rapid.String().Draw(t, "any"), "\uFFFD", "")
	case 4:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "len"))
		for i := range list {
			list[i] = anyValue(t, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "len") {
		object[rapid.StringOf(rapid.RuneFrom([]rune("ab\"\\é😀"))).Draw(t, "name")] = anyValue(t, depth-1)
	}
	return object
}

// asciiOnly escapes what is not ASCII.
func asciiOnly(text string) string {
	var b strings.Builder
	for _, c := range text {
		switch {
		case c < utf8.RuneSelf:
			b.WriteRune(c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			c -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		}
	}
	return b.String()
}

// pieces returns a turn with the arguments of one call in pieces of n bytes.
func pieces(id, name, args string, n int) turn {
	tn := turn{chunks: []model.Chunk{&model.ToolCallDelta{ID: id, Name: name}}}
	for chunk := range slices.Chunk([]byte(args), n) {
		tn.chunks = append(tn.chunks, &model.ToolCallDelta{Args: string(chunk)})
	}
	tn.chunks = append(tn.chunks, finish(model.FinishToolCalls))
	return tn
}

type travelPlan struct {
	Title string    `json:"title"`
	When  time.Time `json:"when"`
	Stops []verdict `json:"stops"`
}

func TestStreamAs(t *testing.T) {
	const plan = `{"title":"To Graz","when":"2026-01-02T03:04:05Z","stops":[{"city":"Linz","score":3},{"city":"Graz","score":4}]}`
	for _, row := range []struct {
		name  string
		turns []turn
		ran   string
	}{
		{"at once", []turn{pieces("f", finalName, plan, 3)}, ""},
		{"in one piece", []turn{pieces("f", finalName, plan, 500)}, ""},
		{"after tools", []turn{pieces("c1", "note", `{"path":"a"}`, 2), pieces("f", finalName, plan, 3)}, "note:a"},
		{"after words", []turn{says("Graz."), pieces("f", finalName, plan, 3)}, ""},
		{"invalid first", []turn{pieces("f", finalName, `{"title":"To Linz","stops":[{"city":"Linz","score":9}]}`, 3), pieces("g", finalName, plan, 3)}, ""},
		{"broken off first", []turn{{chunks: pieces("f", finalName, plan, 3).chunks[:9], err: &model.Error{Kind: model.KindConnection}}, pieces("f", finalName, plan, 3)}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, row.turns...)
			st := new(State)
			var last travelPlan
			titles, n := map[string]bool{}, 0
			for v, err := range StreamAs[travelPlan](t.Context(), a, st, Say("Plan.")) {
				if err != nil {
					t.Fatal(err)
				}
				for _, stop := range v.Stops {
					if !strings.HasPrefix("Linz", stop.City) && !strings.HasPrefix("Graz", stop.City) {
						t.Errorf("shown: %+v", v)
					}
				}
				titles[v.Title] = true
				last, n = v, n+1
			}
			want, err := decodeFinal[travelPlan](json.RawMessage(plan))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "answer", last, want)
			if many := row.name != "in one piece"; many && (n < 10 || !titles["To"] && !titles["To "] && !titles["To G"] || !titles["To Graz"]) {
				t.Errorf("%d values, titles %v", n, titles)
			}
			equal(t, "ran", j.String(), row.ran)
			checkState(t, st)
		})
	}
}

// TestStreamAsOfTwoAtOnce has a call of another tool interleave with the answer,
// whose type is not a struct.
func TestStreamAsOfTwoAtOnce(t *testing.T) {
	var j journal
	var tn turn
	tn.chunks = append(tn.chunks, &model.ToolCallDelta{Index: 0, ID: "c1", Name: "note"}, &model.ToolCallDelta{Index: 1, ID: "f", Name: finalName})
	note, answer := `{"path":"some path"}`, `{"value":["a","b"]}`
	for i := range len(note) {
		tn.chunks = append(tn.chunks, &model.ToolCallDelta{Index: 0, Args: note[i : i+1]})
		if i < len(answer) {
			tn.chunks = append(tn.chunks, &model.ToolCallDelta{Index: 1, Args: answer[i : i+1]})
		}
	}
	tn.chunks = append(tn.chunks, finish(model.FinishToolCalls))
	a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, tn)
	var all []string
	for v, err := range StreamAs[[]string](t.Context(), a, new(State), Say("List.")) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Join(v, "+"))
	}
	equal(t, "values", all, []string{"", "", "a", "a+", "a+b", "a+b"})
	equal(t, "ran", j.String(), "note:some path")
}

// TestStreamAsEndsEarly has streams that the consumer stops, that wait, and that fail.
func TestStreamAsEndsEarly(t *testing.T) {
	answer := pieces("f", finalName, `{"city":"Graz","score":4}`, 4)
	a, w := newAgent(t, Config{}, answer)
	st := new(State)
	n := 0
	for range StreamAs[verdict](t.Context(), a, st, Say("?")) {
		n++
		break
	}
	equal(t, "values", n, 1)
	checkState(t, st)
	w.turns = []turn{answer}
	if v, err := ReplyAs[verdict](t.Context(), a, st, Say("Again?")); err != nil || v.City != "Graz" {
		t.Errorf("after breaking off: %+v, %v", v, err)
	}
	var failed error
	for _, err := range StreamAs[verdict](t.Context(), a, st, Say("More?")) {
		failed = err
	}
	if failed == nil || !strings.Contains(failed.Error(), "no turn is left") {
		t.Errorf("the model failed with %v", failed)
	}
	for _, err := range StreamAs[chan int](t.Context(), a, new(State), Say("?")) {
		failed = err
	}
	if failed == nil || !strings.Contains(failed.Error(), "chan int") {
		t.Errorf("a channel as the type of an answer: %v", failed)
	}
	var j journal
	asking, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, calls(`c1 note {"path":"a"}`))
	for _, err := range StreamAs[verdict](t.Context(), asking, new(State), Say("?")) {
		failed = err
	}
	if !errors.Is(failed, ErrWaiting) {
		t.Errorf("a run that waits: %v", failed)
	}
}

// TestPartialsCostInProportion limits the bytes that are decoded for a long answer
// in small pieces.
func TestPartialsCostInProportion(t *testing.T) {
	text := `{"title":"` + strings.Repeat("word ", 200_000) + `"}`
	var p partialJSON
	decoded, values := 0, 0
	for chunk := range slices.Chunk([]byte(text), 4) {
		if p.add(&event.ToolCallDelta{Call: "f", Name: finalName, Args: string(chunk)}, func(raw json.RawMessage) error {
			decoded += len(raw)
			return nil
		}) {
			values++
		}
	}
	if most := decodeAlways*decodeAlways/4 + (growthDivisor+1)*len(text); decoded > most || values < 100 {
		t.Errorf("%d bytes decoded for %d, want at most %d; %d values", decoded, len(text), most, values)
	}
}
