package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // tools that panic on purpose
	goleak.VerifyTestMain(m)
}

// A turn is what the model streams for one request; a broken one ends with err.
type turn struct {
	chunks []model.Chunk
	err    error
	block  bool // wait for the context before the error
}

// A turnModel is a model that plays turns, one per request, and checks every request. It can
// send any chunks, including invalid ones.
type turnModel struct {
	t     *testing.T
	mu    sync.Mutex
	turns []turn
	reqs  []*model.Request
}

func (w *turnModel) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		w.mu.Lock()
		w.reqs = append(w.reqs, req)
		if err := CheckHistory(req.Messages); err != nil && w.t != nil {
			w.t.Errorf("request %d: %v", len(w.reqs), err)
		}
		if len(w.turns) == 0 {
			w.mu.Unlock()
			yield(nil, fmt.Errorf("request %d: no turn is left", len(w.reqs)))
			return
		}
		tn := w.turns[0]
		w.turns = w.turns[1:]
		w.mu.Unlock()
		for _, ch := range tn.chunks {
			if !yield(ch, nil) {
				return
			}
		}
		if tn.block {
			<-ctx.Done()
			yield(nil, ctx.Err())
		} else if tn.err != nil {
			yield(nil, tn.err)
		}
	}
}

func says(text string) turn {
	return turn{chunks: []model.Chunk{&model.TextDelta{Text: text}, finish(model.FinishStop)}}
}

func finish(r model.FinishReason) *model.Finish {
	return &model.Finish{Reason: r, Model: "words", Usage: message.Usage{Input: 10, Output: 2}}
}

// calls is a turn of tool calls, each written `id name {args}`.
func calls(specs ...string) turn {
	var tn turn
	for i, s := range specs {
		f := strings.SplitN(s, " ", 3)
		tn.chunks = append(tn.chunks, &model.ToolCallDelta{Index: i, ID: f[0], Name: f[1]},
			&model.ToolCallDelta{Index: i, Args: f[2]})
	}
	tn.chunks = append(tn.chunks, finish(model.FinishToolCalls))
	return tn
}

type pathArg struct {
	Path string `json:"path"`
}

// A journal records the tool calls that ran.
type journal struct {
	mu  sync.Mutex
	ran []string
}

func (j *journal) add(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ran = append(j.ran, s)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.ran, " ")
}

// noting returns a tool that records its calls in the journal.
func noting(j *journal, name string, o tool.Options) tool.Tool {
	return tool.Must(tool.New(name, "Notes a path.", func(_ context.Context, in pathArg) (string, error) {
		j.add(name + ":" + in.Path)
		return "noted " + in.Path, nil
	}, o))
}

var bypass = permission.Policy{Mode: permission.ModeBypass}

func newAgent(t *testing.T, cfg Config, turns ...turn) (*Agent, *turnModel) {
	t.Helper()
	w := &turnModel{t: t, turns: turns}
	cfg.Model = w
	if cfg.Toolkit == nil {
		cfg.Toolkit = toolkit.Of()
	}
	var n atomic.Int64
	cfg.NewID = func(prefix string) string { return fmt.Sprintf("%s_%d", prefix, n.Add(1)) }
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a, w
}

// play runs an agent to the end and checks the invariants of every run.
func play(t *testing.T, a *Agent, st *State, inputs ...Input) ([]event.Event, error) {
	t.Helper()
	return playCtx(t, context.Background(), a, st, inputs...)
}

func playCtx(t *testing.T, ctx context.Context, a *Agent, st *State, inputs ...Input) ([]event.Event, error) {
	t.Helper()
	var evs []event.Event
	var lines []string // the events as JSON, when they were yielded
	var failure error
	seq := st.loop.Seq
	if st.loop.Running { // saved by a process that was stopped
		seq += 1_000_000
	}
	gap := false // events of a failed save are not yielded
	announced := map[string]bool{}
	for _, c := range st.loop.Open {
		announced[c.ID] = true
	}
	var stored storedEvents
	for ev, err := range stored.of(a).Run(ctx, st, inputs...) {
		if failure != nil {
			t.Fatal("the run continued after an error")
		}
		if err != nil {
			failure = err
			continue
		}
		if n := len(evs); n > 0 && event.TypeOf(evs[n-1]) == "end" {
			t.Fatalf("%s after the end", event.TypeOf(ev))
		}
		if seq++; ev.Head().Seq < seq || ev.Head().Seq > seq && a.cfg.Save == nil {
			t.Fatalf("event %d has seq %d", seq, ev.Head().Seq)
		}
		gap = gap || ev.Head().Seq > seq
		seq = ev.Head().Seq
		data, err := json.Marshal(ev)
		if err != nil || !strings.Contains(string(data), `"type":"`+event.TypeOf(ev)+`"`) {
			t.Fatalf("event %s: %v", data, err)
		}
		switch ev := ev.(type) {
		case *event.ToolCall:
			announced[ev.Call] = true
		case *event.ToolResult:
			if !announced[ev.Call] {
				t.Fatalf("a result for call %s, which was not announced or already has one", ev.Call)
			}
			delete(announced, ev.Call)
		}
		stored.yielded(t, ev, string(data))
		evs, lines = append(evs, ev), append(lines, string(data))
	}
	for i, ev := range evs {
		if data, err := json.Marshal(ev); err != nil || string(data) != lines[i] {
			t.Fatalf("an event has changed after it was yielded:\n%s\n%s", lines[i], data)
		}
	}
	if gap && failure == nil {
		t.Fatal("a sequence number is missing")
	}
	if len(evs) > 0 {
		if event.TypeOf(evs[len(evs)-1]) != "end" {
			t.Fatal("no end event")
		}
		checkState(t, st)
	}
	if failure == nil {
		stored.check(t, lines)
	}
	return evs, failure
}

// storedEvents are the events that saves have stored, as JSON.
type storedEvents struct {
	lines []string
	known map[string]bool
}

// of returns a copy of a that also records the events of its saves in s.
func (s *storedEvents) of(a *Agent) *Agent {
	s.known = map[string]bool{}
	b, save := *a, a.cfg.Save
	b.cfg.Save = func(ctx context.Context, st *State) error {
		if save != nil {
			if err := save(ctx, st); err != nil {
				return err
			}
		}
		for _, ev := range st.Saving().Events {
			data, err := json.Marshal(ev)
			if err != nil {
				return err
			}
			s.lines = append(s.lines, string(data))
			s.known[string(data)] = true
		}
		return nil
	}
	return &b
}

// yielded checks that an event was stored before it was yielded, unless it needs no save.
func (s *storedEvents) yielded(t *testing.T, ev event.Event, line string) {
	t.Helper()
	for sub, ok := ev.(*event.Sub); ok; sub, ok = ev.(*event.Sub) {
		ev = sub.Event
	}
	needsNoSave := false
	switch ev := ev.(type) {
	case *event.RunStart, *event.ModelStart, *event.Retry, *event.Discard, *event.Elicitation:
		needsNoSave = true
	case *event.Sampling:
		needsNoSave = ev.Refused != ""
	case *event.End:
		needsNoSave = ev.Reason == event.EndError // perhaps the error of a save
	}
	if !needsNoSave && !isDelta(ev) && !s.known[line] {
		t.Fatalf("yielded and not stored: %s", line)
	}
}

// check checks that every yielded event except deltas was stored once, in the same order.
func (s *storedEvents) check(t *testing.T, lines []string) {
	t.Helper()
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		ev, err := event.Decode([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		return isDelta(ev)
	})
	for i := range max(len(lines), len(s.lines)) {
		if i >= len(lines) || i >= len(s.lines) || lines[i] != s.lines[i] {
			t.Fatalf("%d events were yielded and %d stored; event %d:\n%v\n%v", len(lines), len(s.lines), i, lines[min(i, len(lines)):], s.lines[min(i, len(s.lines)):])
		}
	}
}

// checkState checks that a state is consistent and unchanged by saving and loading.
func checkState(t *testing.T, st *State) {
	t.Helper()
	if err := checkOpen(st.Messages, &st.loop); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var back State
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	again, err := json.Marshal(&back)
	if err != nil || string(again) != string(data) {
		t.Fatalf("saved and loaded, the state differs: %v\n%s\n%s", err, data, again)
	}
}

func reload(t *testing.T, st *State) *State {
	t.Helper()
	data, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	back := new(State)
	if err := json.Unmarshal(data, back); err != nil {
		t.Fatal(err)
	}
	return back
}

func endOf(t *testing.T, evs []event.Event) *event.End {
	t.Helper()
	if len(evs) == 0 {
		t.Fatal("no events")
	}
	return evs[len(evs)-1].(*event.End)
}

func of[E event.Event](evs []event.Event) []E {
	var out []E
	for _, ev := range evs {
		if e, ok := ev.(E); ok {
			out = append(out, e)
		}
	}
	return out
}

// results lists outcome and text of the last tool message.
func results(st *State) []string {
	var out []string
	for _, m := range st.Messages {
		if m.Role != message.RoleTool {
			continue
		}
		out = nil
		for _, r := range m.ToolResults() {
			out = append(out, fmt.Sprintf("%s %s: %s", r.ID, r.Outcome, r.Text()))
		}
	}
	return out
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// A turnFunc is a model that answers each request with the turn that it returns.
type turnFunc func(*model.Request) turn

func (f turnFunc) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return (&turnModel{turns: []turn{f(req)}}).Generate(ctx, req)
}

// reads are the options of a read-only tool whose calls may run in parallel.
var reads = tool.Options{ReadOnly: true, Parallel: true}
