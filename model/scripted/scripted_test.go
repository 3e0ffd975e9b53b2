package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/tool"
)

func ask(m model.Model, req *model.Request) (*message.Message, *model.Finish, error) {
	return model.Collect(m.Generate(context.Background(), req))
}

// TestTurns has a row for each kind of turn and for combinations.
func TestTurns(t *testing.T) {
	boom := errors.New("boom")
	for _, row := range []struct {
		why    string
		turn   scripted.Turn
		blocks string
		err    error
	}{
		{"text", scripted.Say("hi"), `[{"type":"text","text":"hi"}]`, nil},
		{"an empty turn", scripted.Turn{}, `null`, nil},
		{"thinking and text", scripted.Think("hm").And(scripted.Say("hi")), `[{"type":"thinking","text":"hm"},{"type":"text","text":"hi"}]`, nil},
		{"calls", scripted.Call("a", map[string]int{"x": 1}).And(scripted.Call("b", nil), scripted.Call("c", json.RawMessage(`{}`))),
			`[{"type":"tool_call","id":"call_1","name":"a","input":{"x":1}},{"type":"tool_call","id":"call_2","name":"b","input":{}},{"type":"tool_call","id":"call_3","name":"c","input":{}}]`, nil},
		{"a failure", scripted.Fail(boom), `null`, boom},
		{"a failure in the middle", scripted.Say("half").And(scripted.Fail(boom)), `[{"type":"text","text":"half"}]`, boom},
		{"a function", scripted.Func(func(r *model.Request) (scripted.Turn, error) { return scripted.Say(r.System), nil }), `[{"type":"text","text":"sys"}]`, nil},
		{"a function that fails", scripted.Func(func(*model.Request) (scripted.Turn, error) { return scripted.Turn{}, boom }), `null`, boom},
		{"a function after text", scripted.Say("a").And(scripted.Func(func(*model.Request) (scripted.Turn, error) { return scripted.Call("x", nil), nil })),
			`[{"type":"text","text":"a"},{"type":"tool_call","id":"call_1","name":"x","input":{}}]`, nil},
	} {
		msg, fin, err := ask(scripted.New(row.turn), &model.Request{System: "sys"})
		if !errors.Is(err, row.err) || (fin == nil) != (row.err != nil) {
			t.Errorf("%s: %v, %v", row.why, fin, err)
		}
		var got []byte
		if msg.Blocks == nil {
			got = []byte("null")
		} else {
			got, _ = json.Marshal(msg.Blocks)
		}
		if string(got) != row.blocks {
			t.Errorf("%s:\n got %s\nwant %s", row.why, got, row.blocks)
		}
	}
}

// TestBadArguments: raw arguments are sent unchanged, to play a model that
// makes mistakes.
func TestBadArguments(t *testing.T) {
	msg, _, err := ask(scripted.New(scripted.Call("a", json.RawMessage(`{"x":`))), &model.Request{})
	if err != nil || string(msg.ToolCalls()[0].Input) != `{"x":` {
		t.Errorf("%v, %v", msg, err)
	}
}

// TestDeltas: an answer comes in several deltas, none of which ends inside a rune.
func TestDeltas(t *testing.T) {
	const text = "Les élèves — 東京 — ont répondu: 👩‍🚀!"
	n, all := 0, ""
	for c, err := range scripted.New(scripted.Say(text)).Generate(t.Context(), &model.Request{}) {
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := c.(*model.TextDelta); ok {
			n++
			all += d.Text
			if !utf8.ValidString(d.Text) || len(d.Text) > 16 {
				t.Errorf("delta %q", d.Text)
			}
		}
	}
	if n < 3 || all != text {
		t.Errorf("%d deltas: %q", n, all)
	}
}

// TestCallIDsContinue: new ids continue the numbers in the conversation; other ids are ignored.
func TestCallIDsContinue(t *testing.T) {
	before := message.Assistant(&message.ToolCall{ID: "call_7", Name: "a"}, &message.ToolCall{ID: "call_x", Name: "a"}, &message.ToolCall{ID: "other", Name: "a"})
	msg, _, err := ask(scripted.New(scripted.Call("a", nil)), &model.Request{Messages: []*message.Message{before}})
	if err != nil || msg.ToolCalls()[0].ID != "call_8" {
		t.Errorf("%v, %v", msg.ToolCalls()[0], err)
	}
}

// TestUsage checks the estimated usage, including thinking.
func TestUsage(t *testing.T) {
	_, fin, err := ask(scripted.New(scripted.Think("12345678").And(scripted.Say("1234"))), &model.Request{
		System: "12345678", Messages: []*message.Message{message.User("1234")}})
	if err != nil || fin.Usage != (message.Usage{Input: 3, Output: 3, Reasoning: 2}) {
		t.Errorf("%+v, %v", fin, err)
	}
}

// A fakeT records a test's failures and cleanups.
type fakeT struct {
	errors   []string
	cleanups []func()
}

func (f *fakeT) Helper()                      {}
func (f *fakeT) Errorf(s string, args ...any) { f.errors = append(f.errors, fmt.Sprintf(s, args...)) }
func (f *fakeT) Cleanup(fn func())            { f.cleanups = append(f.cleanups, fn) }

// TestTest has scripts that match the requests or not, and the reported errors.
func TestTest(t *testing.T) {
	question := &model.Request{Messages: []*message.Message{message.User("What is 2+3?")}, Tools: []tool.Info{{Name: "add"}}}
	for _, row := range []struct {
		why      string
		turns    []scripted.Turn
		requests int
		want     string // a part of the only error; empty for none
	}{
		{"all turns played", []scripted.Turn{scripted.Say("a")}, 1, ""},
		{"an unplayed turn", []scripted.Turn{scripted.Say("a"), scripted.Say("b")}, 1, "1 of 2 turns were not played"},
		{"too many requests", []scripted.Turn{scripted.Say("a")}, 2, "the script has 1 turns and this is request 2"},
		{"passed checks", []scripted.Turn{scripted.Say("a").Expect(scripted.LastContains("2+3"), scripted.HasTools("add"))}, 1, ""},
		{"a failed check", []scripted.Turn{scripted.Say("a").Expect(scripted.LastContains("2+4"))}, 1, `request 1 failed a check: the last message does not contain "2+4"`},
		{"other tools", []scripted.Turn{scripted.Say("a").Expect(scripted.HasTools("sub"))}, 1, "the tools are [add], expected [sub]"},
		{"a failed check of a function's turn", []scripted.Turn{scripted.Func(func(*model.Request) (scripted.Turn, error) {
			return scripted.Say("a").Expect(scripted.HasTools()), nil
		})}, 1, "expected []"},
		{"repeated", []scripted.Turn{scripted.Say("a"), scripted.Repeat(scripted.Say("b"))}, 5, ""},
		{"never repeated", []scripted.Turn{scripted.Say("a"), scripted.Repeat(scripted.Say("b"))}, 1, "1 of 2"},
	} {
		f := &fakeT{}
		m := scripted.Test(f, row.turns...)
		for range row.requests {
			_, _, _ = ask(m, question)
		}
		for _, fn := range f.cleanups {
			fn()
		}
		if len(m.Requests()) != row.requests {
			t.Errorf("%s: %d requests recorded", row.why, len(m.Requests()))
		}
		if (row.want == "" && len(f.errors) > 0) || (row.want != "" && (len(f.errors) != 1 || !strings.Contains(f.errors[0], row.want))) {
			t.Errorf("%s: reported %q, want %q", row.why, f.errors, row.want)
		}
	}
}

// TestNewRefusesTurnsThatAreNeverPlayed: New panics for a turn after a Repeat.
func TestNewRefusesTurnsThatAreNeverPlayed(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	scripted.New(scripted.Repeat(scripted.Say("a")), scripted.Say("b"))
}

// TestBreak: an answer that is not read to the end has used its turn.
func TestBreak(t *testing.T) {
	m := scripted.New(scripted.Say("a long answer in pieces"), scripted.Say("b"))
	for range m.Generate(t.Context(), &model.Request{}) {
		break
	}
	if msg, _, err := ask(m, &model.Request{}); err != nil || msg.Text() != "b" {
		t.Errorf("%v, %v", msg, err)
	}
}

// TestCancelled: a request whose context has ended uses no turn.
func TestCancelled(t *testing.T) {
	m := scripted.New(scripted.Say("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := model.Collect(m.Generate(ctx, &model.Request{})); !errors.Is(err, context.Canceled) || m.Remaining() != 1 {
		t.Errorf("%v, %d left", err, m.Remaining())
	}
}

// TestConcurrent: concurrent requests play each turn once.
func TestConcurrent(t *testing.T) {
	const n = 50
	var turns []scripted.Turn
	for i := range n {
		turns = append(turns, scripted.Say(fmt.Sprint(i)))
	}
	m := scripted.Test(t, turns...)
	texts := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			msg, _, err := ask(m, &model.Request{})
			if err != nil {
				t.Error(err)
			}
			texts[i] = msg.Text()
		})
	}
	wg.Wait()
	slices.Sort(texts)
	if len(slices.Compact(texts)) != n {
		t.Error("a turn was played twice")
	}
}
