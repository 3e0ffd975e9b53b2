package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestSealRefusesEveryFlippedByte changes each byte of a waiting session in turn: a changed session that
// still loads is refused.
func TestSealRefusesEveryFlippedByte(t *testing.T) {
	var j journal
	cfg := Config{Key: []byte("sixteen bytes ok"), Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}
	a, w := newAgent(t, cfg, calls(`c1 note {"path":"a"}`))
	var st State
	if _, err := play(t, a, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(&st)
	if err != nil {
		t.Fatal(err)
	}
	answer := event.Confirm{Call: "c1", Allow: true}
	refused := 0
	for i := range data {
		changed := bytes.Clone(data)
		changed[i] ^= 1
		var bad State
		if json.Unmarshal(changed, &bad) != nil {
			continue
		}
		if same, err := json.Marshal(&bad); err == nil && bytes.Equal(same, data) {
			continue // a letter of a name, whose case JSON ignores
		}
		if _, err := a.Reply(t.Context(), &bad, answer); !errors.Is(err, ErrTampered) {
			t.Fatalf("byte %d of %s: %v", i, changed, err)
		}
		refused++
	}
	if refused < len(data)/3 {
		t.Errorf("only %d of %d changes were loaded", refused, len(data))
	}
	for name, change := range map[string]func(*Config){
		"another key":    func(c *Config) { c.Key = []byte("of another agent") },
		"another policy": func(c *Config) { c.Policy.Rules = []permission.Rule{{Tool: "x", Behavior: permission.Allow}} },
		"another schema": func(c *Config) {
			type other struct {
				Path string `json:"path"`
				More string `json:"more,omitempty"`
			}
			c.Toolkit = toolkit.Of(tool.Must(tool.New("note", "Notes.", func(_ context.Context, in other) (string, error) { return "", nil })))
		},
	} {
		changed := cfg
		change(&changed)
		b, _ := newAgent(t, changed)
		if _, err := b.Reply(t.Context(), reload(t, &st), answer); !errors.Is(err, ErrTampered) {
			t.Errorf("%s: %v", name, err)
		}
	}
	equal(t, "ran", j.String(), "")
	w.turns = []turn{says("done"), says("more")}
	loaded := reload(t, &st)
	if _, err := a.Reply(t.Context(), loaded, answer); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	if _, err := a.Reply(t.Context(), reload(t, loaded), Say("and?")); err != nil {
		t.Errorf("after the end: %v", err)
	}
	equal(t, "ran", j.String(), "note:a")
}

// TestSealOfInvalidUTF8 seals invalid UTF-8, and text that looks like its encoded form.
func TestSealOfInvalidUTF8(t *testing.T) {
	for _, text := range []string{"caf\xe9", "\xff\xfe", "\ufffd", `\ufffd`, "a\u2028<b>"} {
		a, w := newAgent(t, Config{Key: []byte("sixteen bytes ok")}, says("done"), says("more"))
		st := new(State)
		for range 2 {
			if _, err := a.Reply(t.Context(), st, Say(text)); err != nil {
				t.Errorf("%q, %d turns left: %v", text, len(w.turns), err)
			}
			st = reload(t, st)
		}
	}
}

// TestUnsealed loads states without a seal: only a state without any content is accepted.
func TestUnsealed(t *testing.T) {
	for _, row := range []struct {
		state string
		ok    bool
	}{
		{`{"version":1}`, true},
		{`{"version":1,"id":"mine","messages":[]}`, true},
		{`{"version":1,"tools":{"files":{"read":true}}}`, false},
		{`{"version":1,"rules":[{"tool":"note","behavior":"allow"}]}`, false},
		{`{"version":1,"messages":[{"role":"user","blocks":[{"type":"text","text":"x"}]}]}`, false},
		{`{"version":1,"scope":{"active":["secret"]}}`, false},
		{`{"version":1,"token_ratio":0.25}`, false},
	} {
		a, _ := newAgent(t, Config{Key: []byte("sixteen bytes ok")}, says("done"))
		var st State
		if err := json.Unmarshal([]byte(row.state), &st); err != nil {
			t.Fatalf("%s: %v", row.state, err)
		}
		_, err := a.Reply(t.Context(), &st, Say("go"))
		if row.ok && err != nil || !row.ok && !errors.Is(err, ErrTampered) {
			t.Errorf("%s: %v", row.state, err)
		}
	}
	a, _ := newAgent(t, Config{Key: []byte("sixteen bytes ok")}, says("done"))
	if _, err := a.Reply(t.Context(), reload(t, new(State)), Say("go")); err != nil {
		t.Errorf("a new state that was saved: %v", err)
	}
}

// TestSealOfTypedRuns waits in a run for a typed answer that the model is giving at the same time, and
// continues in a run for an answer of any type.
func TestSealOfTypedRuns(t *testing.T) {
	var j journal
	a, _ := newAgent(t, Config{Key: []byte("sixteen bytes ok"), Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))},
		calls(`c1 note {"path":"a"}`, `f final_answer {"city":"Graz","score":4}`), says("done"))
	st := new(State)
	if _, err := ReplyAs[verdict](t.Context(), a, st, Say("go")); !errors.Is(err, ErrWaiting) {
		t.Fatal(err)
	}
	if reply, err := a.Reply(t.Context(), reload(t, st), event.Confirm{Call: "c1", Allow: true}); err != nil || reply.Text() != "done" {
		t.Error(err)
	}
}
