package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// starts runs an agent that saves, and returns the events of its model calls.
func starts(t *testing.T, a *Agent, st *State, inputs ...Input) (all []*event.ModelStart) {
	t.Helper()
	for ev, err := range a.Run(t.Context(), st, inputs...) {
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := ev.(*event.ModelStart); ok {
			all = append(all, start)
		}
	}
	return all
}

// TestParts follows the parts of requests through a conversation: what was sent before is not listed again, and
// the first request of another process is listed whole, with the same digests.
func TestParts(t *testing.T) {
	instructions := "Be brief."
	changing := Middleware{Instructions: func(InstructionsFunc) InstructionsFunc {
		return func(context.Context) string { return instructions }
	}}
	m := scripted.New(scripted.Call("look", nil), scripted.Say("Nothing."), scripted.Say("Still nothing."), scripted.Say("No."))
	a, err := New(Config{Model: m, Toolkit: toolkit.Of(noting(new(journal), "look", reads)), Policy: bypass, Middleware: []Middleware{changing},
		Save: func(context.Context, *State) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	var st State
	got := starts(t, a, &st, Say("Look."))
	describe := func(s *event.ModelStart) string {
		out := []string{fmt.Sprint(s.Same)}
		for _, p := range s.Parts {
			out = append(out, strings.TrimSpace(p.Kind+" "+p.Name))
		}
		return strings.Join(out, ", ")
	}
	expect := func(s *event.ModelStart, want string) {
		t.Helper()
		if d := describe(s); d != want {
			t.Errorf("a request has the parts %s; want %s", d, want)
		}
	}
	expect(got[0], "0, tool look, system, message user")
	expect(got[1], "3, message assistant, message tool")
	whole := slices.Concat(got[0].Parts, got[1].Parts)

	data, err := st.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var loaded State
	if err := loaded.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	again := starts(t, a, &loaded, Say("Look again."))[0]
	expect(again, "0, tool look, system, message user, message assistant, message tool, message assistant, message user")
	if !slices.Equal(again.Parts[:len(whole)], whole) {
		t.Errorf("another process has other digests: %v and %v", again.Parts[:len(whole)], whole)
	}
	instructions = "Be long."
	expect(starts(t, a, &loaded, Say("And now?"))[0], "1, system, message user, message assistant, message tool, message assistant, message user, message assistant, message user")
}

// TestPartsOfSecrets gives requests that differ in a secret only the same digests.
func TestPartsOfSecrets(t *testing.T) {
	digests := func(said string) (out []string) {
		a, err := New(Config{Model: scripted.New(scripted.Say("Fine.")), Toolkit: toolkit.Of(), Redact: builtinRules(t), Instructions: said,
			Save: func(context.Context, *State) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range starts(t, a, new(State), Say(said))[0].Parts {
			out = append(out, p.Digest)
		}
		return out
	}
	other := strings.Replace(secret, "aB3", "zY9", 1)
	if one, two := digests("Use "+secret), digests("Use "+other); !slices.Equal(one, two) {
		t.Errorf("the digests tell secrets apart: %v and %v", one, two)
	}
}

// TestPartsOfLateTools: changes of the tools are separate parts.
func TestPartsOfLateTools(t *testing.T) {
	r := &run{cfg: &Config{Save: func(context.Context, *State) error { return nil }}, st: new(State)}
	tools := toolkit.Of(noting(new(journal), "a", reads), noting(new(journal), "b", reads))
	v, err := tools.View(t.Context(), new(toolkit.Scope))
	if err != nil {
		t.Fatal(err)
	}
	list := v.Tools()
	req := &model.Request{Tools: list, Reveal: &model.Reveal{Head: list[:1], Digest: "d", Changes: []*model.ToolChange{{At: 0, Add: list[1:]}}}}
	start := new(event.ModelStart)
	r.recordRequest(req, start)
	if n := len(start.Parts); n != 3 || start.Parts[2].Kind != "change" || start.Parts[2].Name != "+b" {
		t.Errorf("the parts are %+v", start.Parts)
	}
}

// TestGroups: events name who opened and closed groups: the model, the user, the host, or a rule.
func TestGroups(t *testing.T) {
	group := func(name string) toolkit.Group {
		return toolkit.Group{Name: name, Description: "Is " + name + ".", Tools: []tool.Tool{noting(new(journal), "of_"+name, reads)}}
	}
	tk, err := toolkit.New(toolkit.Config{Groups: []toolkit.Group{group("a"), group("b"), group("c")}, Exclusive: [][]string{{"b", "c"}}, Control: toolkit.EnableDisable()})
	if err != nil {
		t.Fatal(err)
	}
	m := scripted.New(scripted.Call("enable_tools", map[string]any{"groups": []string{"a", "b"}}), scripted.Say("Open."),
		scripted.Say("Still."), scripted.Call("enable_tools", map[string]any{"groups": []string{"c"}}), scripted.Say("Done."))
	a, err := New(Config{Model: m, Toolkit: tk, Policy: bypass, Save: func(context.Context, *State) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	var st State
	all := starts(t, a, &st, Say("Open two."))
	out, err := tk.Disable(t.Context(), &st.Scope, "a")
	if err != nil {
		t.Fatal(err)
	}
	st.Scope.ByUser(out)
	saved, err := st.Scope.MarshalJSON() // the scope may be saved and loaded
	if err := errors.Join(err, st.Scope.UnmarshalJSON(saved)); err != nil {
		t.Fatal(err)
	}
	all = append(all, starts(t, a, &st, Say("Without a."))...)
	if _, err := tk.Enable(t.Context(), &st.Scope, "a"); err != nil {
		t.Fatal(err)
	}
	all = append(all, starts(t, a, &st, Say("The other."))...)
	var got []string
	for _, s := range all {
		text := "same"
		if s.Groups != nil {
			text = ""
		}
		for _, g := range s.Groups {
			if g.Tools != 1 || g.Bytes == 0 || g.About != len("aIs a.") {
				t.Errorf("%+v", g)
			}
			open := "-"
			if g.Open {
				open = "+"
			}
			text += open + g.Name + g.By
		}
		got = append(got, text)
	}
	equal(t, "groups", got, []string{"-a-b-c", "+amodel+bmodel-c", "-auser+b-c", "+ahost+b-c", "+a-brule+cmodel"})
}
