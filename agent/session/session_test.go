package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

func newDir(t *testing.T) session.Store {
	t.Helper()
	store, err := session.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func open(t *testing.T, store session.Store, id string) *session.Session {
	t.Helper()
	s, err := session.Open(t.Context(), store, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func shut(t *testing.T, s *session.Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func encode(t *testing.T, st *agent.State) string {
	t.Helper()
	data, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestEveryStep loads a session after each save of a journey and compares it with the saved State.
func TestEveryStep(t *testing.T) {
	store := session.Memory()
	s := open(t, store, "a")
	saves := 0
	save := func(ctx context.Context, st *agent.State) error {
		if err := s.Save(ctx, st); err != nil {
			return err
		}
		saves++
		shut(t, s)
		again := open(t, store, "a")
		if got, want := encode(t, again.State), encode(t, st); got != want {
			t.Errorf("save %d:\nloaded %s\n saved %s", saves, got, want)
		}
		again.State = st // continue with the log that was opened again
		s = again
		return nil
	}
	answer, err := finish(t.Context(), journeyAgent(t.TempDir(), save), s.State)
	if err != nil || answer != journeyAnswer {
		t.Errorf("%q, %v", answer, err)
	}
	if saves < 30 {
		t.Errorf("only %d saves", saves)
	}
}

// A measured store counts the bytes that it stores.
type measured struct {
	session.Store
	sizes  []int
	wholes int
}

type measuredLog struct {
	session.Log
	m *measured
}

func (m *measured) Open(ctx context.Context, id string) (session.Log, error) {
	log, err := m.Store.Open(ctx, id)
	return measuredLog{log, m}, err
}

func (l measuredLog) Append(ctx context.Context, rec session.Record) error {
	l.m.sizes = append(l.m.sizes, len(rec.Data))
	if rec.Whole {
		l.m.wholes++
	}
	return l.Log.Append(ctx, rec)
}

// TestSize has a long conversation. The records of its steps do not become larger, and all records together
// are at most about three times as large as the conversation.
func TestSize(t *testing.T) {
	const rounds = 250
	store := &measured{Store: session.Memory()}
	s := open(t, store, "long")
	words := strings.Repeat("many words ", 200)
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Repeat(scripted.Say(words))), Toolkit: toolkit.Of(), Save: s.Save})
	if err != nil {
		t.Fatal(err)
	}
	for range rounds {
		if _, err := a.Reply(t.Context(), s.State, agent.Say("go on")); err != nil {
			t.Fatal(err)
		}
	}
	large, total := 0, 0
	for _, n := range store.sizes {
		total += n
		if n > len(words)+1000 {
			large++
		}
	}
	if large > store.wholes || store.wholes < 2 {
		t.Errorf("%d of %d records are larger than a step, %d are whole", large, len(store.sizes), store.wholes)
	}
	if said := rounds * len(words); total > 3*said+500*len(store.sizes) {
		t.Errorf("%d bytes were written to store %d", total, said)
	}
	if err := s.Save(t.Context(), s.State); err != nil { // stores the number of the last event
		t.Fatal(err)
	}
	want := encode(t, s.State)
	shut(t, s)
	if got := encode(t, open(t, store, "long").State); got != want {
		t.Error("the loaded state differs")
	}
}

// TestRewrittenHistory replaces messages like compaction.
func TestRewrittenHistory(t *testing.T) {
	store := session.Memory()
	s := open(t, store, "a")
	said := func(words string) []*message.Message {
		var msgs []*message.Message
		for w := range strings.FieldsSeq(words) {
			msgs = append(msgs, message.User(w))
		}
		return msgs
	}
	old := said("a b c d e f")
	for i, msgs := range [][]*message.Message{
		old,
		append(said("summary"), old[4:]...),
		append(said("summary"), old[5:]...),
		append(append(said("summary"), old[5]), said("g h")...),
		nil,
		old[:2],
		{old[0], message.User("B")},
	} {
		s.State.Messages = msgs
		if err := s.Save(t.Context(), s.State); err != nil {
			t.Fatal(err)
		}
		shut(t, s)
		s = open(t, store, "a")
		var got, want []string
		for _, m := range s.State.Messages {
			got = append(got, m.Text())
		}
		for _, m := range msgs {
			want = append(want, m.Text())
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("step %d: loaded %v, want %v", i, got, want)
		}
		s.State.Messages = msgs // the pointers that the next step shares
		if err := s.Save(t.Context(), s.State); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenTwice checks that the error for an open session names it and the remedy.
func TestOpenTwice(t *testing.T) {
	dir, err := session.Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range []session.Store{session.Memory(), dir} {
		s := open(t, store, "a")
		_, opened := session.Open(t.Context(), store, "a")
		deleted := store.Delete(t.Context(), "a")
		shut(t, s)
		for _, err := range []error{opened, deleted} {
			if !errors.Is(err, session.ErrConflict) || !strings.Contains(err.Error(), `session "a": another writer has the session open; `) {
				t.Errorf("%T: %v", store, err)
			}
		}
	}
}

func TestNothingToSave(t *testing.T) {
	store := &measured{Store: session.Memory()}
	s := open(t, store, "")
	if err := session.CheckID(s.State.ID); err != nil {
		t.Error(err)
	}
	for range 3 {
		if err := s.Save(t.Context(), s.State); err != nil {
			t.Fatal(err)
		}
	}
	if len(store.sizes) != 1 {
		t.Errorf("a state that did not change was stored %d times", len(store.sizes))
	}
}

func TestShared(t *testing.T) {
	store := session.Memory()
	a, err := agent.New(agent.Config{Model: scripted.New(scripted.Repeat(scripted.Say("hello"))), Toolkit: toolkit.Of(), Save: session.Save})
	if err != nil {
		t.Fatal(err)
	}
	one, two := open(t, store, "one"), open(t, store, "two")
	for _, s := range []*session.Session{one, two, one} {
		if _, err := a.Reply(s.Context(t.Context()), s.State, agent.Say("hi")); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		ctx  context.Context
		st   *agent.State
		want string
	}{
		{t.Context(), one.State, "there is no session in the run"},
		{two.Context(t.Context()), one.State, "not this session's"},
	} {
		if _, err := a.Reply(row.ctx, row.st, agent.Say("hi")); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
	shut(t, one)
	shut(t, two)
	if n := len(open(t, store, "one").State.Messages); n != 4 {
		t.Errorf("session one has %d messages", n)
	}
}

// TestLostRecord opens logs with inconsistent records, which no Store should return.
func TestLostRecord(t *testing.T) {
	whole := session.Record{Seq: 1, Whole: true, Data: json.RawMessage(`{"version":1,"id":"a","messages":[]}`)}
	change := func(seq int, data string) session.Record {
		return session.Record{Seq: int64(seq), Data: json.RawMessage(data)}
	}
	for _, row := range []struct {
		recs []session.Record
		want string
	}{
		{[]session.Record{change(2, `{}`)}, "not whole"},
		{[]session.Record{whole, change(3, `{}`)}, "record 3 follows record 1; restore the store from a copy, or use another session"},
		{[]session.Record{whole, change(2, `7`)}, "record 2"},
		{[]session.Record{whole, change(2, `{"splice":{"messages":{"at":4}}}`)}, "record 2"},
		{[]session.Record{whole, change(2, `{"set":{"version":9}}`)}, "newer version"},
		{[]session.Record{whole, change(2, `{"set":{"id":"b"}}`)}, `"b"`},
		{[]session.Record{whole, change(2, `{"splice":{"messages":{"at":0,"put":[null]}}}`)}, "nil"},
	} {
		_, err := session.Open(t.Context(), fixed{recs: row.recs}, "a")
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v: %v, want %q", row.recs, err, row.want)
		}
	}
}

// fixed is a store with one session with the given records.
type fixed struct {
	session.Store
	session.Log
	recs []session.Record
}

func (f fixed) Open(context.Context, string) (session.Log, error)    { return f, nil }
func (f fixed) Load(context.Context) ([]session.Record, error)       { return f.recs, nil }
func (f fixed) Close() error                                         { return nil }
func (f fixed) Append(ctx context.Context, rec session.Record) error { return errors.New("full") }

// TestSaveFails runs with a store that refuses every record: the run ends before it yields an event that
// could not be stored.
func TestSaveFails(t *testing.T) {
	s, err := session.Open(t.Context(), fixed{}, "a")
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Config{Model: scripted.New(), Toolkit: toolkit.Of(), Save: s.Save})
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for ev, err := range a.Run(t.Context(), s.State, agent.Say("hi")) {
		if err != nil {
			shown = append(shown, "error")
			if !strings.Contains(err.Error(), `session "a": full`) {
				t.Error(err)
			}
			continue
		}
		shown = append(shown, fmt.Sprintf("%T", ev))
	}
	if want := "[*event.RunStart *event.End error]"; fmt.Sprint(shown) != want {
		t.Errorf("%v, want %s", shown, want)
	}
}

// ticking encodes to different JSON each time, like data that a tool changes during a save.
type ticking struct{ n int }

func (v *ticking) MarshalJSON() ([]byte, error) {
	v.n++
	return json.Marshal(v.n)
}

func (v *ticking) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &v.n) }

// keptRecords keeps the records of a log since the last whole one.
type keptRecords struct {
	session.Store
	records []session.Record
	wholes  int
}

type keptLog struct {
	session.Log
	r *keptRecords
}

func (r *keptRecords) Open(ctx context.Context, id string) (session.Log, error) {
	log, err := r.Store.Open(ctx, id)
	return keptLog{log, r}, err
}

func (l keptLog) Append(ctx context.Context, rec session.Record) error {
	if rec.Whole {
		l.r.records, l.r.wholes = nil, l.r.wholes+1
	}
	l.r.records = append(l.r.records, rec)
	return l.Log.Append(ctx, rec)
}

// replayed returns the State after the records.
func (r *keptRecords) replayed(t *testing.T, id string) *agent.State {
	store := session.Memory()
	log, err := store.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for i, rec := range r.records {
		rec.Seq = int64(i + 1)
		if err := log.Append(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, store, id).State
}

// TestToolsChangeStateDuringASave: each record, whole or not, is a snapshot of one moment that continues the record
// before.
func TestToolsChangeStateDuringASave(t *testing.T) {
	ticks := toolstate.NewKey[ticking]("ticks")
	tick := tool.Must(tool.New("tick", "Ticks.", func(ctx context.Context, _ struct{}) (string, error) {
		return strings.Repeat("x", 90_000), ticks.Update(ctx, func(*ticking) error { return nil })
	}))
	store := &keptRecords{Store: session.Memory()}
	s := open(t, store, "a")
	save := func(ctx context.Context, st *agent.State) error {
		want := encode(t, st)
		if err := s.Save(ctx, st); err != nil {
			return err
		}
		if got := encode(t, store.replayed(t, "a")); got != want {
			t.Errorf("after %d records, %d of them whole, the state differs", len(store.records), store.wholes)
		}
		return nil
	}
	turns := slices.Repeat([]scripted.Turn{scripted.Call("tick", struct{}{})}, 2)
	a, err := agent.New(agent.Config{Model: scripted.New(append(turns, scripted.Say("done"))...), Toolkit: toolkit.Of(tick), Save: save,
		Policy: permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(t.Context(), s.State, agent.Say("go")); err != nil {
		t.Fatal(err)
	}
	if store.wholes < 2 {
		t.Errorf("%d whole records", store.wholes)
	}
}
