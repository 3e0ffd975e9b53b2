package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestSavedBefore continues States that were saved by the version of November 2026, in every situation in which a run
// is saved: an update of the program must not break sessions.
func TestSavedBefore(t *testing.T) {
	allow := func(names ...string) (p permission.Policy) {
		for _, name := range names {
			p.Rules = append(p.Rules, permission.Rule{Tool: name, Behavior: permission.Allow})
		}
		return p
	}
	unknown := "interrupted: " + strings.TrimSpace(outcomeUnknown)
	for name, row := range map[string]struct {
		inputs  []Input
		more    []Input // when it waits again
		policy  permission.Policy
		ran     string
		results []string
		told    []string
		turns   []turn
		pending int // before
	}{
		"waiting": {pending: 1, policy: allow("note", "outside"), ran: "ask:b ask:c",
			inputs:  []Input{event.Confirm{Call: "c2", Allow: true, Rules: allow("ask").Rules}},
			more:    []Input{event.Result{Call: "c4"}},
			results: []string{"c1 success: noted a", "c2 success: noted b", "c3 success: noted c", "c4 success: "}},
		"in_flight":            {policy: allow("note"), results: []string{"c1 success: noted a", "c2 " + unknown}},
		"in_flight_idempotent": {policy: allow("note", "alone"), ran: "alone:b", results: []string{"c1 success: noted a", "c2 success: noted b"}},
		"background":           {policy: allow("behind"), told: []string{"c1 of behind " + unknown, "c2 of behind " + unknown}},
		"sub_agent": {pending: 2, policy: allow("helper", "note"), ran: "note:x",
			inputs:  []Input{event.Confirm{Call: "h1/s1", Allow: true}, event.Confirm{Call: "h2/s1"}},
			results: []string{"h1 success: sub: noted x", "h2 success: sub: The user refused this call of note. That is a decision: do not do the same in another way. Continue without it, or say what you would need."}},
		"compacted": {inputs: []Input{Say("go on")}},
		"limit":     {inputs: []Input{Say("go on")}, policy: allow("note"), ran: "note:c", turns: []turn{calls(`c3 note {"path":"c"}`)}, results: []string{"c3 success: noted c"}},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", "states", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			st := new(State)
			if err := json.Unmarshal(data, st); err != nil {
				t.Fatal(err)
			}
			var before, after any
			if err := json.Unmarshal(data, &before); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(encoded(t, st)), &after); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(before, after) {
				t.Errorf("it is written differently:\n%s\n%s", data, encoded(t, st))
			}
			equal(t, "pending", len(st.Pending()), row.pending)
			var j journal
			inner, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))})
			inner.model = turnFunc(notes)
			helper, err := AsTool[string, string](inner, "helper", "Helps.", nil)
			if err != nil {
				t.Fatal(err)
			}
			tools := toolkit.Of(noting(&j, "note", tool.Options{}), noting(&j, "ask", tool.Options{Parallel: true}), helper,
				noting(&j, "alone", tool.Options{Idempotent: true}), external{noting(&j, "outside", tool.Options{})}, noting(&j, "read", tool.Options{}))
			a, _ := newAgent(t, Config{Policy: row.policy, Toolkit: tools}, append(row.turns, says("done"))...)
			evs, err := play(t, a, st, row.inputs...)
			if err != nil {
				t.Fatal(err)
			}
			if row.more != nil {
				equal(t, "end", endOf(t, evs).Reason, event.EndWaiting)
				if evs, err = play(t, a, st, row.more...); err != nil {
					t.Fatal(err)
				}
			}
			equal(t, "end", endOf(t, evs).Text, "done")
			ran := strings.Fields(j.String()) // some run in parallel
			slices.Sort(ran)
			equal(t, "ran", strings.Join(ran, " "), row.ran)
			if row.results != nil {
				equal(t, "results", results(st), row.results)
			}
			equal(t, "told", told(st), row.told)
		})
	}
}
