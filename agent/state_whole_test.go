package agent

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestLoadingIsAllOrNothing loads bad sessions into a State that is in use: it stays unchanged. A good one
// replaces it completely.
func TestLoadingIsAllOrNothing(t *testing.T) {
	used := func() *State {
		var j journal
		a, _ := newAgent(t, Config{Toolkit: compactKit(t, &j)}, calls(`c1 note {"path":"a"}`))
		st := new(State)
		if _, err := a.cfg.Toolkit.Enable(t.Context(), &st.Scope, "more"); err != nil {
			t.Fatal(err)
		}
		if err := ticks.Update(toolstate.With(t.Context(), &st.Tools), func(*ticking) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := play(t, a, st, Say("go")); err != nil {
			t.Fatal(err)
		}
		return reload(t, st)
	}
	st := used()
	before := encoded(t, st)
	for _, bad := range []string{
		`{"version":1,"scope":{"active":[]},"tools":{},"messages":[null]}`,
		`{"version":1,"scope":{"active":["x"]},"tools":5}`,
		`{"version":1,"scope":{"active":5},"tools":{}}`,
		`{"version":1,"tools":{"a":1},"open":[null],"messages":[{"role":"user"}]}`,
		`{"version":1,"tools":{"a":1},"scope":{"phase":"y"},"usage":"much"}`,
		`{"version":2,"tools":{"a":1}}`,
	} {
		if err := json.Unmarshal([]byte(bad), st); err == nil {
			t.Errorf("%s was loaded", bad)
		}
		equal(t, "after "+bad, encoded(t, st), before)
	}
	for _, good := range []string{
		`{"version":1}`,
		`{"version":1,"tools":null,"scope":null}`,
		`{"version":1,"tools":{"b":2},"scope":{"active":[]},"messages":[]}`,
	} {
		fresh := new(State)
		st := used()
		for _, st := range []*State{fresh, st} {
			if err := json.Unmarshal([]byte(good), st); err != nil {
				t.Fatal(err)
			}
		}
		equal(t, "after "+good, encoded(t, st), encoded(t, fresh))
	}
}

func encoded(t *testing.T, st *State) string {
	t.Helper()
	data, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// ticking encodes to different JSON each time, like a tool's value that changes concurrently.
type ticking struct{ n int }

func (v *ticking) MarshalJSON() ([]byte, error) {
	v.n++
	return json.Marshal(v.n)
}

func (v *ticking) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &v.n) }

var ticks = toolstate.NewKey[ticking]("ticks")

// TestSealMatchesSave has tools change their values between the sealing and the saving of a State.
func TestSealMatchesSave(t *testing.T) {
	tick := tool.Must(tool.New("tick", "Ticks.", func(ctx context.Context, _ struct{}) (string, error) {
		return "", ticks.Update(ctx, func(*ticking) error { return nil })
	}))
	cfg := Config{Key: []byte("sixteen bytes ok"), Policy: bypass, Toolkit: toolkit.Of(tick)}
	var saved []string
	cfg.Save = func(_ context.Context, st *State) error {
		saved = append(saved, encoded(t, st), encoded(t, st)) // a store may encode more than once
		return nil
	}
	a, _ := newAgent(t, cfg, calls(`c1 tick {}`), says("done"))
	if _, err := play(t, a, new(State), Say("go")); err != nil {
		t.Fatal(err)
	}
	ticked := 0
	for i, text := range saved {
		st := new(State)
		if err := json.Unmarshal([]byte(text), st); err != nil {
			t.Fatal(err)
		}
		if err := (&run{agent: a, cfg: &a.cfg, st: st, ctx: t.Context()}).checkSeal(); err != nil {
			t.Errorf("save %d: %v", i/2, err)
		}
		if i%2 == 1 {
			equal(t, "the second encoding of a save", text, saved[i-1])
		}
		ticked += strings.Count(text, `"ticks"`)
	}
	if ticked < 4 {
		t.Errorf("the tool's state was saved %d times only", ticked)
	}
}
