package agent

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// secret looks like a key but is not one.
const secret = "sk-" + "aB3dE5gH7jK2mN4pQ6rSaB3dE5gH7jK2"

func builtinRules(t testing.TB) *redact.Redactor {
	t.Helper()
	r, err := redact.New(redact.Rules()...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// leaks reports whether text has a large part of the secret, even if letters of
// it are escaped.
func leaks(text string) bool {
	if !strings.Contains(text, `\u00`) { // the usual case, which is fast
		return strings.Contains(text, secret[:12]) || strings.Contains(text, secret[12:])
	}
	var plain strings.Builder
	for i := 0; i < len(text); i++ {
		if strings.HasPrefix(text[i:], `\u00`) && len(text) >= i+6 {
			var s string
			if json.Unmarshal([]byte(`"`+text[i:i+6]+`"`), &s) == nil {
				plain.WriteString(s)
				i += 5
				continue
			}
		}
		plain.WriteByte(text[i])
	}
	return strings.Contains(plain.String(), secret[:12]) || strings.Contains(plain.String(), secret[12:])
}

// cut splits text into pieces of n bytes.
func cut(text string, n int) (out []string) {
	for piece := range slices.Chunk([]byte(text), n) {
		out = append(out, string(piece))
	}
	return out
}

// TestSecretsStayInside sends a secret through everything that a run saves and
// emits, in pieces of every size.
func TestSecretsStayInside(t *testing.T) {
	for n := 1; n <= len(secret)+3; n += 3 {
		var got []string // what the tools were called with
		leaky, err := tool.NewStream("leaky", "Leaks.", func(_ context.Context, in pathArg) iter.Seq2[tool.Chunk, error] {
			got = append(got, in.Path)
			return func(yield func(tool.Chunk, error) bool) {
				for _, s := range cut("the key: "+secret+" and "+secret+".", n) {
					b := &message.Text{Text: s}
					if n%2 == 0 { // otherwise each piece is a separate text
						b.ID = "all"
					}
					if !yield(tool.Chunk{Block: b}, nil) {
						return
					}
				}
				for _, s := range cut("for you: "+secret, n) {
					if !yield(tool.Chunk{Block: &message.Text{Text: s}, ForUser: true}, nil) {
						return
					}
				}
				yield(tool.Chunk{}, errors.New("failed with "+secret))
			}
		}, tool.Options{Parallel: true})
		if err != nil {
			t.Fatal(err)
		}
		said := turn{}
		for _, s := range cut("hm "+secret, n) {
			said.chunks = append(said.chunks, &model.ThinkingDelta{Text: s})
		}
		for _, s := range cut("I have "+secret, n) {
			said.chunks = append(said.chunks, &model.TextDelta{Text: s})
		}
		hidden := strings.ReplaceAll(secret, "-", `\u002d`)
		for i := range 2 { // the arguments of two calls, interleaved
			said.chunks = append(said.chunks, &model.ToolCallDelta{Index: i, ID: "c" + string(rune('1'+i)), Name: "leaky"})
		}
		for _, s := range cut(`{"path":"`+hidden+`"}`, n) {
			for i := range 2 {
				said.chunks = append(said.chunks, &model.ToolCallDelta{Index: i, Args: s})
			}
		}
		said.chunks = append(said.chunks, finish(model.FinishToolCalls))

		kept := ResultDir(t.TempDir())
		var saved []string
		cfg := Config{Redact: builtinRules(t), Toolkit: toolkit.Of(leaky), Key: []byte("sixteen bytes ok"),
			Window: Window{MaxResult: 40, Results: kept},
			Save:   func(_ context.Context, st *State) error { saved = append(saved, encoded(t, st)); return nil }}
		a, w := newAgent(t, cfg, said)
		var st State
		evs, err := play(t, a, &st, Say("my key is "+secret))
		if err != nil {
			t.Fatal(err)
		}
		broken := turn{chunks: []model.Chunk{&model.TextDelta{Text: "As " + secret[:20]}}, err: errors.New("no such key: " + secret)}
		w.turns = []turn{says("The key is " + secret + ", " + secret[:9]), broken}
		for _, answer := range []event.Confirm{
			{Call: "c1", Allow: true, Rules: []permission.Rule{{Tool: "leaky", Pattern: secret, Behavior: permission.Allow}}},
			{Call: "c2", Reason: "not " + secret},
		} {
			more, err := play(t, a, &st, answer)
			if err != nil {
				t.Fatal(err)
			}
			evs = append(evs, more...)
		}
		more, err := play(t, a, &st, Say("and?"))
		if err == nil {
			t.Fatal("the model did not fail")
		}
		for _, ev := range append(evs, more...) {
			data, err := json.Marshal(ev)
			if err != nil || leaks(string(data)) {
				t.Errorf("pieces of %d: %s, %v", n, data, err)
			}
		}
		for _, text := range saved {
			if leaks(text) {
				t.Errorf("pieces of %d, saved: %s", n, text)
			}
		}
		if text, err := kept.Get(t.Context(), "c1"); err != nil || leaks(text) {
			t.Errorf("kept: %q, %v", text, err)
		}
		if shown, stored := deltas(evs), textOf(evs); shown != stored || !strings.Contains(shown, "I have [redacted: openai-key]") {
			t.Errorf("pieces of %d: shown %q, stored %q", n, shown, stored)
		}
		equal(t, "the tool was called with", got, []string{secret})
		if !leaks(historyOf(w.reqs[1])) {
			t.Error("the model did not get the unredacted history")
		}
		loaded := new(State)
		if err := json.Unmarshal([]byte(saved[len(saved)-1]), loaded); err != nil {
			t.Fatal(err)
		}
		w.turns = []turn{says("done")}
		if _, err := a.Reply(t.Context(), loaded, Say("again")); err != nil {
			t.Errorf("continuing from the save: %v", err)
		}
		if leaks(historyOf(w.reqs[len(w.reqs)-1])) {
			t.Error("the loaded state contains the secret")
		}
	}
}

// deltas joins the model's text in deltas, textOf that in messages.
func deltas(evs []event.Event) string {
	var b strings.Builder
	for _, ev := range of[*event.TextDelta](evs) {
		b.WriteString(ev.Text)
	}
	return b.String()
}

func textOf(evs []event.Event) string {
	var b strings.Builder
	for _, ev := range of[*event.Message](evs) {
		if ev.Message.Role == message.RoleAssistant {
			b.WriteString(ev.Message.Text())
		}
	}
	return b.String()
}

func historyOf(req *model.Request) string {
	data, err := json.Marshal(req.Messages)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestCallsWithSecretsAfterALoad loads a State with waiting calls whose
// arguments contained a secret: they are not run with a placeholder.
func TestCallsWithSecretsAfterALoad(t *testing.T) {
	var j journal
	cfg := Config{Redact: builtinRules(t), Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}
	a, w := newAgent(t, cfg, calls(`c1 note {"path":"`+secret+`"}`, `c2 note {"path":"b"}`))
	var st State
	if _, err := play(t, a, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	loaded := reload(t, &st)
	w.turns = []turn{says("done"), says("done")}
	for _, call := range []string{"c1", "c2"} {
		if _, err := play(t, a, loaded, event.Confirm{Call: call, Allow: true}); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "ran after a load", j.String(), "note:b")
	if r := results(loaded); !strings.Contains(r[0], "error: Not run") || !strings.Contains(r[1], "success") {
		t.Errorf("%q", r)
	}
	edited := event.Confirm{Call: "c1", Allow: true, Input: []byte(`{"path":"[redacted: openai-key]"}`)}
	if _, err := a.Reply(t.Context(), &st, edited); err == nil || !strings.Contains(err.Error(), "placeholder") {
		t.Errorf("an edit with a placeholder: %v", err)
	}
	for _, call := range []string{"c1", "c2"} {
		if _, err := play(t, a, &st, event.Confirm{Call: call, Allow: true}); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "ran in the same process", j.String(), "note:b note:"+secret+" note:b")
}

// TestAnswerToACallThatEnded answers a call that cannot run any more, because
// its tool has changed since it was asked about.
func TestAnswerToACallThatEnded(t *testing.T) {
	var j journal
	a, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, calls(`c1 note {"path":"a"}`))
	var st State
	if _, err := play(t, a, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	changed := tool.Must(tool.New("note", "Notes.", func(_ context.Context, in struct {
		Line int `json:"line" jsonschema:"minimum=1"`
	}) (string, error) {
		j.add("ran")
		return "", nil
	}))
	b, _ := newAgent(t, Config{Toolkit: toolkit.Of(changed)}, says("done"))
	if _, err := play(t, b, reload(t, &st), event.Confirm{Call: "c1", Allow: true}); err != nil {
		t.Fatal(err)
	}
	equal(t, "ran", j.String(), "")
}

// TestEveryEventIsClean puts a secret into each text of each event. Names and ids
// are not texts: they are the program's, or go back to the model's server.
func TestEveryEventIsClean(t *testing.T) {
	raw := json.RawMessage(`{"a":"` + secret + `"}`)
	rules := []permission.Rule{{Tool: "x", Pattern: secret, Behavior: permission.Allow}}
	all := []event.Event{&event.RunStart{}, &event.ModelStart{}, &event.TextDelta{Text: secret}, &event.ThinkingDelta{Text: secret}, &event.ToolCallDelta{Args: string(raw)},
		&event.Discard{Error: secret}, &event.Retry{Error: secret}, &event.ToolCall{Input: raw, Repaired: []string{secret}}, &event.ToolStart{Reason: secret},
		&event.Message{Message: &message.Message{Blocks: message.Blocks{&message.Text{Text: secret}, &message.Thinking{Text: secret, Extra: raw},
			&message.Hint{Text: secret}, &message.Data{Name: secret, URL: secret}, &message.Data{MediaType: "text/plain", Bytes: []byte(secret)}, &message.ToolCall{Input: raw},
			&message.Unknown{Type: "x", Raw: json.RawMessage(`{"type":"x","a":"` + secret + `"}`)}}}},
		&event.ToolDelta{Text: secret}, &event.ToolDelta{Text: secret, ForUser: true},
		&event.ToolResult{Text: secret, Result: &message.ToolResult{Blocks: message.Blocks{&message.Text{Text: secret}}, ForUser: message.Blocks{&message.Text{Text: secret}},
			Structured: raw, Meta: map[string]json.RawMessage{"m": raw}}},
		&event.Background{Result: &message.ToolResult{Blocks: message.Blocks{&message.Text{Text: secret}}}},
		&event.Approval{Input: raw, Reason: secret, Preview: secret, Suggest: rules}, &event.External{Input: raw},
		&event.Elicitation{Message: secret, Schema: raw, URL: "https://x/" + secret, Site: secret, Warnings: []string{secret}, Error: secret},
		&event.Sampling{Text: secret, Refused: secret}, &event.Sub{Event: &event.RunStart{}}, &event.Compaction{Summary: secret, Failed: secret},
		&event.End{Text: secret, Detail: secret, Output: raw}}
	source, err := os.ReadFile("event/event.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, ev := range all {
		seen[event.TypeOf(ev)] = true
		c := &eventRedactor{r: builtinRules(t)}
		for _, out := range append(c.redact(ev), c.flush(func(textKey) bool { return true })...) {
			data, err := json.Marshal(out)
			if d, ok := out.(*event.Message); ok { // bytes are base64 in JSON
				data = append(data, window.DataIn(d.Message.Blocks)[1].Bytes...)
			}
			if err != nil || leaks(string(data)) {
				t.Errorf("%s: %s, %v", event.TypeOf(ev), data, err)
			}
		}
	}
	if n := strings.Count(string(source), ") kind() string "); n != len(seen) || n != len(everyEvent) {
		t.Errorf("there are %d events, the test knows %d", n, len(seen))
	}
}

// TestUnsearchedStrings fills every string that an event or a saved State can contain: only those that the
// table names stay unchanged, and it names no other.
func TestUnsearchedStrings(t *testing.T) {
	r := builtinRules(t)
	values := []any{&stateJSON{}, &message.Message{}}
	for _, ev := range everyEvent {
		values = append(values, ev)
	}
	left := map[string]bool{}
	for _, v := range values {
		v = reflect.New(reflect.TypeOf(v).Elem()).Interface()
		fill(reflect.ValueOf(v).Elem())
		kept(reflect.ValueOf(redacted(r, v)).Elem(), "", left)
	}
	want := map[string]bool{}
	for of, fields := range notRedacted {
		for _, f := range fields {
			want[of.String()+"."+f] = true
		}
	}
	delete(want, "event.Sub.Event") // was searched before
	equal(t, "not searched", slices.Sorted(maps.Keys(left)), slices.Sorted(maps.Keys(want)))
}

// everyEvent has one event of each kind.
var everyEvent = []event.Event{&event.RunStart{}, &event.ModelStart{}, &event.TextDelta{}, &event.ThinkingDelta{}, &event.ToolCallDelta{}, &event.Discard{}, &event.Retry{}, &event.Message{},
	&event.ToolCall{}, &event.ToolStart{}, &event.ToolDelta{}, &event.ToolResult{}, &event.Approval{}, &event.External{}, &event.Elicitation{}, &event.Sampling{}, &event.Background{}, &event.Sub{},
	&event.Compaction{}, &event.End{}}

// fill puts the secret into every string in v, and values into what can contain one.
func fill(v reflect.Value) {
	raw := json.RawMessage(`{"a":"` + secret + `"}`)
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes(raw)
		return
	case message.Blocks:
		for _, b := range []message.Block{&message.Text{}, &message.Thinking{}, &message.Data{}, &message.Hint{}, &message.ToolCall{}, &message.ToolResult{}} {
			if res, ok := b.(*message.ToolResult); ok {
				*res = message.ToolResult{ID: secret, Name: secret, Structured: raw}
			} else {
				fill(reflect.ValueOf(b).Elem())
			}
			v.Set(reflect.Append(v, reflect.ValueOf(b)))
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(secret)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		elem := reflect.New(v.Type().Elem()).Elem()
		fill(elem)
		v.SetMapIndex(reflect.ValueOf("key"), elem)
	}
}

// kept records the fields that still contain the secret.
func kept(v reflect.Value, field string, left map[string]bool) {
	switch v.Kind() {
	case reflect.String:
		if leaks(v.String()) {
			left[field] = true
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			kept(v.Elem(), field, left)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				kept(v.Field(i), v.Type().String()+"."+f.Name, left)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if leaks(string(v.Bytes())) {
				left[field] = true
			}
			return
		}
		for i := range v.Len() {
			kept(v.Index(i), field, left)
		}
	case reflect.Map:
		for _, elem := range v.Seq2() {
			kept(elem, field, left)
		}
	}
}

func TestSecretsOfSubAgents(t *testing.T) {
	var got []string
	use := tool.Must(tool.New("use", "Uses.", func(_ context.Context, in pathArg) (string, error) {
		got = append(got, in.Path)
		return "used " + in.Path, nil
	}))
	sub, sw := newAgent(t, Config{Toolkit: toolkit.Of(use)}, calls(`s1 use {"path":"`+secret+`"}`), says("it was "+secret))
	delegate, err := AsTool[string, string](sub, "delegate", "Delegates.", nil)
	if err != nil {
		t.Fatal(err)
	}
	var saved []string
	cfg := Config{Redact: builtinRules(t), Toolkit: toolkit.Of(delegate),
		Policy: permission.Policy{Rules: []permission.Rule{{Tool: "delegate", Behavior: permission.Allow}}},
		Save:   func(_ context.Context, st *State) error { saved = append(saved, encoded(t, st)); return nil }}
	a, w := newAgent(t, cfg, calls(`c1 delegate {"task":"Use `+secret+`"}`), says("done"))
	st := new(State)
	evs, err := play(t, a, st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := play(t, a, st, event.Confirm{Call: "c1/s1", Allow: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range append(evs, more...) {
		if data, err := json.Marshal(ev); err != nil || leaks(string(data)) {
			t.Errorf("%s, %v", data, err)
		}
	}
	for _, text := range saved {
		if leaks(text) {
			t.Errorf("saved: %s", text)
		}
	}
	equal(t, "the tool was called with", got, []string{secret})
	if !leaks(historyOf(w.reqs[1])) || !leaks(historyOf(sw.reqs[0])) {
		t.Error("a model received less than the full text")
	}
}

// TestSecretsOfASubAgentAlone has a sub-agent that redacts under an agent that does not. Its conversation is
// stored without secrets, so that a waiting call with a secret cannot continue.
func TestSecretsOfASubAgentAlone(t *testing.T) {
	var j journal
	sub, _ := newAgent(t, Config{Redact: builtinRules(t), Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))},
		calls(`s1 note {"path":"`+secret+`"}`), says("done below"))
	delegate, err := AsTool[string, string](sub, "delegate", "Delegates.", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := newAgent(t, Config{Toolkit: toolkit.Of(delegate),
		Policy: permission.Policy{Rules: []permission.Rule{{Tool: "delegate", Behavior: permission.Allow}}}},
		calls(`c1 delegate {"task":"Use the key."}`), says("done"))
	st := new(State)
	for _, in := range []Input{Say("go"), event.Confirm{Call: "c1/s1", Allow: true}} {
		evs, err := play(t, a, st, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range evs {
			if data, err := json.Marshal(ev); err != nil || leaks(string(data)) {
				t.Errorf("%s, %v", data, err)
			}
		}
		if leaks(encoded(t, st)) {
			t.Errorf("stored: %s", encoded(t, st))
		}
	}
	equal(t, "ran", j.String(), "")
}

// TestSignatureAtTheEnd: the data that a provider wants returned with its reasoning, and which may repeat
// it, belongs to the reasoning wherever it arrives, and is removed if a secret was removed from the reasoning.
func TestSignatureAtTheEnd(t *testing.T) {
	for _, row := range []struct {
		said, want string
	}{
		{"hm", `[{"type":"thinking","id":"m_1","text":"hm","extra":{"a":1,"b":"hm"}},{"type":"text","id":"m_2","text":"hi"}]`},
		{"hm " + secret, `[{"type":"thinking","id":"m_1","text":"hm [redacted: openai-key]"},{"type":"text","id":"m_2","text":"hi"}]`},
		{"", `[{"type":"text","id":"m_1","text":"hi"},{"type":"thinking","id":"m_2","text":"","extra":{"a":1,"b":""}}]`},
	} {
		chunks := []model.Chunk{&model.ThinkingDelta{Text: row.said, Extra: []byte(`{"a":1}`)}, &model.TextDelta{Text: "hi"},
			&model.ThinkingDelta{Extra: []byte(`{"b":"` + row.said + `"}`)}, finish(model.FinishStop)}
		if row.said == "" {
			chunks = append([]model.Chunk{chunks[1], &model.ThinkingDelta{Extra: []byte(`{"a":1}`)}}, chunks[2:]...)
		}
		a, _ := newAgent(t, Config{Redact: builtinRules(t)}, turn{chunks: chunks})
		evs, err := play(t, a, new(State), Say("?"))
		if err != nil {
			t.Fatal(err)
		}
		m := of[*event.Message](evs)[1].Message
		data, err := json.Marshal(m.Blocks)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "blocks", strings.ReplaceAll(string(data), m.ID, "m"), row.want)
	}
}

// TestRulesWithSecrets stores rules: an allow rule with a secret is removed, a deny rule with one denies more.
func TestRulesWithSecrets(t *testing.T) {
	rules := []permission.Rule{
		{Tool: "Bash", Pattern: "git status", Behavior: permission.Allow},
		{Tool: "Bash", Pattern: "curl -H " + secret, Behavior: permission.Allow},
		{Tool: "Bash", Pattern: "echo " + secret, Behavior: permission.Deny},
		{Tool: "Bash", Pattern: "cat " + secret, Behavior: permission.Ask},
	}
	equal(t, "rules", redactRules(builtinRules(t), rules), []permission.Rule{rules[0],
		{Tool: "Bash", Behavior: permission.Deny}, {Tool: "Bash", Behavior: permission.Ask}})
}

// TestBackgroundOutputIsRedacted cuts the output of a background call at its beginning, where a key may be,
// and checks each chunk until the key has left the tail.
func TestBackgroundOutputIsRedacted(t *testing.T) {
	r := builtinRules(t)
	for at := range len(secret) {
		j := &toolCall{redactor: r.Stream(), done: make(chan struct{})}
		said := strings.Repeat("x ", tailSize/2) + secret + strings.Repeat(" y", (tailSize-at)/2)
		for _, piece := range cut(said, 7) {
			j.keepTail(tool.Text(piece))
			if leaks(j.tail) {
				t.Fatalf("the tail ends %q", j.tail[max(0, len(j.tail)-60):])
			}
		}
		if leaks(j.tail) || len(j.tail) < tailSize/2 {
			t.Fatalf("the tail begins %q", j.tail[:60])
		}
		c := &eventRedactor{r: r}
		var shown strings.Builder
		for _, ev := range []event.Event{&event.ToolDelta{Call: "a", Text: secret[:at]}, &event.Background{Call: "a"},
			&event.ToolResult{Call: "a", Result: &message.ToolResult{}}} {
			for _, out := range c.redact(ev) {
				if d, ok := out.(*event.ToolDelta); ok {
					shown.WriteString(d.Text)
				}
			}
		}
		if leaks(shown.String()) {
			t.Fatalf("shown: %q", shown.String())
		}
	}
}

// TestEachMessageIsSearchedOnce saves a long conversation many times, each time all of it.
func TestEachMessageIsSearchedOnce(t *testing.T) {
	cfg := Config{Redact: builtinRules(t), Save: func(_ context.Context, st *State) error {
		_ = encoded(t, st)
		return nil
	}}
	var turns []turn
	for range 30 {
		turns = append(turns, says("the key is "+secret))
	}
	a, _ := newAgent(t, cfg, turns...)
	st := new(State)
	first := map[*message.Message]*message.Message{}
	for range 30 {
		if _, err := play(t, a, st, Say("again")); err != nil {
			t.Fatal(err)
		}
		for m, clean := range st.redactor.cache {
			if was, ok := first[m]; ok && was != clean {
				t.Fatal("a message was searched twice")
			}
			first[m] = clean
		}
	}
	if len(st.redactor.cache) < 50 || leaks(encoded(t, st)) {
		t.Errorf("%d messages are cached", len(st.redactor.cache))
	}
}

// TestRedactorKeepsOrder draws random deltas of several interleaved texts: each text is shown completely,
// without secrets, in order.
func TestRedactorKeepsOrder(t *testing.T) {
	r := builtinRules(t)
	rapid.Check(t, func(t *rapid.T) {
		c := &eventRedactor{r: r}
		want, got := map[string]string{}, map[string]string{}
		var evs []event.Event
		for range rapid.IntRange(1, 25).Draw(t, "deltas") {
			call := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "call")
			s := rapid.SampledFrom([]string{"x ", "s", "k-", secret[2:20], secret[20:], " "}).Draw(t, "piece")
			want[call] += s
			evs = append(evs, c.redact(&event.ToolDelta{Call: call, Text: s})...)
		}
		for _, call := range []string{"a", "b"} {
			evs = append(evs, c.redact(&event.ToolResult{Call: call, Result: &message.ToolResult{}})...)
		}
		for _, ev := range evs {
			if d, ok := ev.(*event.ToolDelta); ok {
				got[d.Call] += d.Text
			}
		}
		for call, text := range want {
			if got[call] != r.Text(text) {
				t.Fatalf("%q came out as %q", text, got[call])
			}
		}
		if len(c.held) > 0 {
			t.Fatal("something is still held back")
		}
	})
}

// TestArgumentsAreHeldBack has a call that gets its name late, and one whose arguments are cut off: they are
// not shown, since the rest is unknown.
func TestArgumentsAreHeldBack(t *testing.T) {
	c := &eventRedactor{r: builtinRules(t)}
	var got []string
	for _, ev := range []event.Event{&event.ToolCallDelta{Call: "a", Args: `{"x":`}, &event.ToolCallDelta{Call: "b", Name: "m", Args: `{"y":"sk\u002d`},
		&event.ToolCallDelta{Call: "a", Name: "n", Args: `1}`}, &event.Message{Message: &message.Message{}}} {
		for _, out := range c.redact(ev) {
			if d, ok := out.(*event.ToolCallDelta); ok {
				got = append(got, d.Call+" "+d.Name+" "+d.Args)
			}
		}
	}
	equal(t, "deltas", got, []string{"a  ", "b m ", `a n {"x":1}`})
}
