package toolkit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// A drawnToolkit is random: groups with parents, shared tools, phases,
// exclusion sets and quotas.
type drawnToolkit struct {
	cfg   toolkit.Config
	names []string // of groups
	tools []string
	tk    *toolkit.Toolkit
}

func draw(t *rapid.T) *drawnToolkit {
	d := &drawnToolkit{}
	n := rapid.IntRange(1, 7).Draw(t, "groups")
	hook := func(label string) func(context.Context) error {
		if rapid.IntRange(0, 9).Draw(t, label) > 0 {
			return nil
		}
		return func(context.Context) error { return errors.New("no") }
	}
	for i := range 2 {
		d.tools = append(d.tools, fmt.Sprintf("basic%d", i))
		d.cfg.Basic.Tools = append(d.cfg.Basic.Tools, fakes(d.tools[i])...)
	}
	shared := fakes("shared")[0]
	d.tools = append(d.tools, "shared")
	d.cfg.Basic.Tools = append(d.cfg.Basic.Tools, shared)
	d.cfg.Settings = append(d.cfg.Settings, toolkit.Setting{Tool: "shared", Groups: []string{}})
	for i := range n {
		g := toolkit.Group{Name: fmt.Sprintf("g%d", i), Description: "A group.",
			OnActivate: hook("activate fails"), OnDeactivate: hook("deactivate fails")}
		if i > 0 && rapid.Bool().Draw(t, "child") {
			g.Parents = []string{d.names[rapid.IntRange(0, i-1).Draw(t, "parent")]}
		}
		for j := range rapid.IntRange(0, 3).Draw(t, "tools") {
			name := fmt.Sprintf("%s_t%d", g.Name, j)
			d.tools = append(d.tools, name)
			g.Tools = append(g.Tools, fakes(name)...)
		}
		if rapid.Bool().Draw(t, "has shared") {
			d.cfg.Settings[0].Groups = append(d.cfg.Settings[0].Groups, g.Name)
		}
		d.names = append(d.names, g.Name)
		d.cfg.Groups = append(d.cfg.Groups, g)
	}
	for _, name := range d.tools[3:] {
		s := toolkit.Setting{Tool: name}
		if rapid.IntRange(0, 3).Draw(t, "phased") == 0 {
			s.Phases = []string{rapid.SampledFrom([]string{"p", "q", "*", "undefined"}).Draw(t, "phase")}
		}
		s.Next = rapid.SampledFrom([]string{"", "", "p", "q"}).Draw(t, "next")
		d.cfg.Settings = append(d.cfg.Settings, s)
	}
	if rapid.Bool().Draw(t, "exclusive") && n > 1 {
		a, b := rapid.IntRange(0, n-1).Draw(t, "a"), rapid.IntRange(0, n-1).Draw(t, "b")
		d.cfg.Exclusive = [][]string{{d.names[a], d.names[b]}}
	}
	d.cfg.MaxTools = rapid.IntRange(0, 6).Draw(t, "max tools")
	d.cfg.MaxGroups = rapid.IntRange(0, 4).Draw(t, "max groups")
	d.cfg.Compensate = rapid.Bool().Draw(t, "compensate")
	if rapid.Bool().Draw(t, "by registration") {
		d.cfg.Preset = toolkit.AgentScope()
	}
	var err error
	if d.tk, err = toolkit.New(d.cfg); err != nil {
		d.cfg.Exclusive = nil // perhaps a group and its ancestor, or one group twice
		if d.tk, err = toolkit.New(d.cfg); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *drawnToolkit) view(t rapid.TB, s *toolkit.Scope) *toolkit.View {
	v, err := d.tk.View(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func listed(v *toolkit.View) []string {
	var out []string
	for _, i := range v.Tools() {
		out = append(out, i.Name)
	}
	return out
}

func saved(t rapid.TB, s *toolkit.Scope) string {
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestTransitions drives random toolkits through random transitions and checks the
// invariants after every step.
func TestTransitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		s := new(toolkit.Scope)
		ctx := context.Background()
		names := rapid.SliceOfN(rapid.SampledFrom(append([]string{"nope"}, d.names...)), 0, 4)
		t.Repeat(map[string]func(*rapid.T){
			"enable":  func(t *rapid.T) { d.step(t, s, d.tk.Enable, names.Draw(t, "names")) },
			"disable": func(t *rapid.T) { d.step(t, s, d.tk.Disable, names.Draw(t, "names")) },
			"set": func(t *rapid.T) {
				want := names.Draw(t, "names")
				if d.step(t, s, d.tk.Set, want) != nil {
					return
				}
				before := saved(t, s)
				out, err := d.tk.Set(ctx, s, want...)
				if err != nil || out.Changed() || saved(t, s) != before {
					t.Fatalf("Set is not idempotent: %v %+v", err, out)
				}
			},
			"reset_tools": func(t *rapid.T) {
				want := map[string]bool{}
				for _, n := range names.Draw(t, "names") {
					want[n] = rapid.Bool().Draw(t, "open")
				}
				tl, args, err := d.view(t, s).Resolve(t.Context(), "reset_tools", mustJSON(want))
				if err != nil {
					t.Fatal(err)
				}
				for range tool.Run(ctx, tl, tool.Call{Name: "reset_tools", Input: args}) {
				}
			},
			"advance": func(t *rapid.T) { d.view(t, s).Advance(rapid.SampledFrom(d.tools).Draw(t, "tool")) },
			"reload": func(t *rapid.T) {
				data := saved(t, s)
				s = new(toolkit.Scope)
				if err := json.Unmarshal([]byte(data), s); err != nil || saved(t, s) != data {
					t.Fatalf("%s comes back as %s (%v)", data, saved(t, s), err)
				}
			},
			"": func(t *rapid.T) { d.check(t, s) },
		})
	})
}

type transition func(context.Context, *toolkit.Scope, ...string) (toolkit.Outcome, error)

// step makes one transition. If it fails it must change nothing; if it opens groups it
// must not exceed a quota.
func (d *drawnToolkit) step(t *rapid.T, s *toolkit.Scope, do transition, names []string) error {
	before, digest := saved(t, s), d.view(t, s).Digest()
	out, err := do(context.Background(), s, names...)
	switch {
	case err != nil && (saved(t, s) != before || d.view(t, s).Digest() != digest):
		t.Fatalf("failed with %v and changed %s to %s", err, before, saved(t, s))
	case err == nil && len(out.Opened) > 0:
		d.checkQuotas(t, s)
	}
	return err
}

func (d *drawnToolkit) checkQuotas(t *rapid.T, s *toolkit.Scope) {
	active, _ := s.Active()
	tools := map[string]bool{}
	for _, g := range d.tk.Groups(s) {
		if g.Active {
			for _, n := range g.Tools {
				tools[n] = true
			}
		}
	}
	if m := d.cfg.MaxTools; m > 0 && len(tools) > m {
		t.Fatalf("%d tools are open, %d are allowed", len(tools), m)
	}
	if m := d.cfg.MaxGroups; m > 0 && len(active) > m {
		t.Fatalf("%d groups are open, %d are allowed", len(active), m)
	}
}

// check checks the invariants of a state.
func (d *drawnToolkit) check(t *rapid.T, s *toolkit.Scope) {
	v := d.view(t, s)
	shown := listed(v)
	if dup := slices.Clone(shown); len(slices.Compact(sorted(dup))) != len(shown) {
		t.Fatalf("listed twice: %q", shown)
	}
	for _, name := range d.tools {
		_, _, err := v.Resolve(t.Context(), name, nil)
		if (err == nil) != slices.Contains(shown, name) {
			t.Fatalf("%s: callable %v, listed %v", name, err == nil, slices.Contains(shown, name))
		}
	}
	active, _ := s.Active()
	for _, g := range d.cfg.Groups {
		for _, p := range g.Parents {
			if slices.Contains(active, g.Name) && !slices.Contains(active, p) {
				t.Fatalf("%s is open without %s: %q", g.Name, p, active)
			}
		}
	}
	for _, set := range d.cfg.Exclusive {
		if slices.Contains(active, set[0]) && slices.Contains(active, set[1]) {
			t.Fatalf("%q exclude each other: %q", set, active)
		}
	}
	ceiling := toolkit.Only(rapid.SliceOfN(rapid.SampledFrom(append([]string{"*", "basic"}, d.names...)), 0, 3).Draw(t, "ceiling")...)
	below := newScope(ceiling, s.Phase())
	if err := json.Unmarshal([]byte(fmt.Sprintf(`{"active":%s,"phase":%q,"ceiling":%s}`, mustJSON(orEmpty(active)), s.Phase(), ceiling)), below); err != nil {
		t.Fatal(err)
	}
	for _, name := range listed(d.view(t, below)) {
		if !slices.Contains(shown, name) {
			t.Fatalf("the ceiling %s adds %s to %q", ceiling, name, shown)
		}
	}
}

// TestAppendOnly: opening a group only appends to the list.
func TestAppendOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		d.cfg.Exclusive, d.cfg.Preset = nil, toolkit.Preset{}
		tk, err := toolkit.New(d.cfg)
		if err != nil {
			t.Fatal(err)
		}
		d.tk = tk
		s := new(toolkit.Scope)
		before := d.view(t, s).Tools()
		for _, name := range rapid.SliceOf(rapid.SampledFrom(d.names)).Draw(t, "names") {
			if _, err := tk.Enable(context.Background(), s, name); err != nil {
				continue
			}
			now := d.view(t, s).Tools()
			if len(now) < len(before) || string(mustJSON(now[:len(before)])) != string(mustJSON(before)) {
				t.Fatalf("opening %s moved the list", name)
			}
			before = now
		}
	})
}
