package builtin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/toolkit"
)

const countSkill = `---
name: count-orders
description: Counts the orders in a table. Use when the user asks how many there are.
allowed-tools: Bash(./skills/count-orders/scripts/count.sh orders.csv) Write Bash(rm:*
---
# Count orders

## Background

Long ago.

## How to count

Read references/format.md, then run scripts/count.sh with the table.
`

// skillWorkspace makes a table, a skill that counts its orders, and the tools of package builtin.
func skillWorkspace(t *testing.T) (dir string, kit *toolkit.Toolkit) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range map[string]string{
		"orders.csv":                               "id,what\n1,tea\n2,coffee\n3,tea\n",
		"skills/count-orders/SKILL.md":             countSkill,
		"skills/count-orders/references/format.md": "# Format\n\nThe first line is a header.\n",
		"skills/count-orders/scripts/count.sh":     "#!/bin/sh\ntail -n +2 \"$1\" | wc -l | tr -d ' '\n",
		"skills/broken/SKILL.md":                   "---\nname: broken\n",
		"skills/no-tools/SKILL.md":                 "---\nname: no-tools\ndescription: Use when nothing is to be run.\n---\n# No tools\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tools, err := builtin.New(builtin.Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	kit, err = toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: tools, Skills: []skill.Loader{skill.In(filepath.Join(dir, "skills"))}}})
	if err != nil {
		t.Fatal(err)
	}
	return dir, kit
}

// runs returns a turn that calls Bash.
func runs(command string) scripted.Turn {
	return scripted.Call("Bash", map[string]string{"command": command, "description": "Count"})
}

func systemHas(text string) func(*model.Request) error {
	return func(req *model.Request) error {
		if !strings.Contains(req.System, text) {
			return fmt.Errorf("the system prompt has no %q", text)
		}
		return nil
	}
}

func skillAgent(t *testing.T, dir string, cfg agent.Config, turns ...scripted.Turn) *agent.Agent {
	t.Helper()
	cfg.Model, cfg.Policy.Dirs = scripted.Test(t, turns...), []string{dir}
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// longConversation is a conversation that exceeds a small window.
func longConversation() *agent.State {
	st := &agent.State{ID: "s"}
	for i := range 60 {
		id := fmt.Sprintf("old%d", i)
		st.Messages = append(st.Messages,
			&message.Message{ID: "u" + id, Role: message.RoleUser, Blocks: message.Blocks{&message.Text{Text: "question " + id}}},
			message.Assistant(&message.Text{Text: strings.Repeat("word ", 100)}))
	}
	return st
}

// questions returns the pending approvals of st.
func questions(st *agent.State) (out []*event.Approval) {
	for _, ev := range st.Pending() {
		if q, ok := ev.(*event.Approval); ok {
			out = append(out, q)
		}
	}
	return out
}

// everything returns all text of messages, including hints.
func everything(msgs []*message.Message) string {
	var b strings.Builder
	for _, m := range msgs {
		b.WriteString(m.Text())
		for _, block := range m.Blocks {
			if h, ok := block.(*message.Hint); ok {
				b.WriteString(h.Text)
			}
		}
	}
	return b.String()
}

// TestSkillRoundTrip finds a skill in the prompt, reads a section and a bundled file, runs its script with an
// approval whose suggested rule is the skill's, and checks for a reminder of the skill after a compaction in
// another process.
func TestSkillRoundTrip(t *testing.T) {
	dir, kit := skillWorkspace(t)
	v, err := kit.View(t.Context(), new(toolkit.Scope))
	if err != nil {
		t.Fatal(err)
	}
	if skipped := v.Skipped(); len(skipped) != 1 || !strings.Contains(skipped[0].Reason, "broken/SKILL.md:1: error: the front matter") {
		t.Errorf("skipped %+v", skipped)
	}
	const script = "./skills/count-orders/scripts/count.sh orders.csv"
	a := skillAgent(t, dir, agent.Config{Toolkit: kit},
		scripted.Call("Skill", skill.Query{Skill: "count-orders", Section: "How to count"}).Expect(systemHas(`<skill name="count-orders">Counts the orders`)),
		scripted.Call("Skill", skill.Query{Skill: "count-orders", File: "references/format.md"}).Expect(scripted.LastContains("then run scripts/count.sh")),
		runs(script).Expect(scripted.LastContains("The first line is a header.")),
		scripted.Say("There are 3 orders.").Expect(scripted.LastContains("3")),
		runs(script),
		scripted.Say("Still 3."),
	)
	st := longConversation()
	if _, err := a.Reply(t.Context(), st, agent.Say("How many orders are there?")); !errors.Is(err, agent.ErrWaiting) {
		t.Fatal(err)
	}
	asked := questions(st)
	if len(asked) != 1 || asked[0].Name != "Bash" {
		t.Fatalf("asked %+v", asked)
	}
	var rules []permission.Rule
	for _, r := range asked[0].Suggest {
		if r.Source == "skill count-orders" {
			rules = append(rules, r)
		}
	}
	if len(rules) != 1 || rules[0].String() != "Bash(./skills/count-orders/scripts/count.sh orders.csv)" {
		t.Fatalf("suggested %+v", asked[0].Suggest)
	}

	saved, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	again := new(agent.State)
	if err := json.Unmarshal(saved, again); err != nil {
		t.Fatal(err)
	}
	reply, err := a.Reply(t.Context(), again, event.Confirm{Call: asked[0].Call, Allow: true, Rules: rules})
	if err != nil || reply.Text() != "There are 3 orders." {
		t.Fatalf("%v, %v", reply, err)
	}
	if reply, err = a.Reply(t.Context(), again, agent.Say("And now?")); err != nil || reply.Text() != "Still 3." {
		t.Fatalf("with the rule accepted: %v, %v", reply, err)
	}

	b := skillAgent(t, dir, agent.Config{Toolkit: kit, Window: agent.Window{Tokens: 10_000}},
		scripted.Say("They counted."),
		scripted.Func(func(req *model.Request) (scripted.Turn, error) {
			for _, want := range []string{`<skill name="count-orders">`, "- How to count (#how-to-count)"} {
				if !strings.Contains(everything(req.Messages), want) {
					return scripted.Turn{}, fmt.Errorf("after the compaction there is no %q", want)
				}
			}
			return scripted.Say("Done."), nil
		}))
	if _, err := b.Reply(t.Context(), again, agent.Say("Continue.")); err != nil {
		t.Fatal(err)
	}
	if again.Generation != 1 {
		t.Errorf("generation %d, want 1", again.Generation)
	}
}

func TestEnforceSkillTools(t *testing.T) {
	const script = "./skills/count-orders/scripts/count.sh orders.csv"
	writeHere := scripted.Func(func(*model.Request) (scripted.Turn, error) {
		here, err := os.Getwd()
		return scripted.Call("Write", map[string]string{"file_path": filepath.Join(here, "x"), "content": "x"}), err
	})
	for _, row := range []struct {
		name   string
		opened string // the skill that was opened before
		call   scripted.Turn
		want   message.Outcome
		reason string
	}{
		{"nothing is open", "", runs("ls"), message.OutcomeSuccess, ""},
		{"no list", "no-tools", runs("ls"), message.OutcomeSuccess, ""},
		{"not on the list", "count-orders", runs("ls"), message.OutcomeDenied, "the skill count-orders allows"},
		{"on the list", "count-orders", runs(script), message.OutcomeSuccess, ""},
		{"part of it on the list", "count-orders", runs(script + " && touch x"), message.OutcomeDenied, "the skill count-orders allows"},
		{"another table", "count-orders", runs(script[:len(script)-len("orders.csv")] + "x"), message.OutcomeDenied, "only"},
		{"a rule that is not closed", "count-orders", runs("rm x"), message.OutcomeDenied, "only"},
		{"a tool as a whole", "count-orders", writeHere, message.OutcomeSuccess, ""},
		{"control tools", "count-orders", scripted.Call("Skill", skill.Query{Skill: "no-tools"}), message.OutcomeSuccess, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir, kit := skillWorkspace(t)
			t.Chdir(dir)
			turns := []scripted.Turn{row.call, scripted.Say("done")}
			if row.opened != "" {
				turns = append([]scripted.Turn{scripted.Call("Skill", skill.Query{Skill: row.opened})}, turns...)
			}
			a := skillAgent(t, dir, agent.Config{Toolkit: kit, Policy: permission.Policy{Mode: permission.ModeBypass}, Middleware: []agent.Middleware{agent.EnforceSkillTools()}}, turns...)
			st := new(agent.State)
			if _, err := a.Reply(t.Context(), st, agent.Say("Go.")); err != nil {
				t.Fatal(err)
			}
			results := st.Messages[len(st.Messages)-2].ToolResults()
			if len(results) != 1 || results[0].Outcome != row.want || !strings.Contains(results[0].Text(), row.reason) {
				t.Errorf("%+v", results[0])
			}
		})
	}
}

// TestSkillRulesAreNotGranted checks that a skill's rule is only suggested, and only in the question that it
// would answer.
func TestSkillRulesAreNotGranted(t *testing.T) {
	opened := func(tools ...string) (st *agent.State) {
		st = new(agent.State)
		raw, err := json.Marshal(map[string]any{"skills": []toolkit.OpenedSkill{{Name: "s", AllowedTools: tools}}})
		if err == nil {
			err = json.Unmarshal(raw, &st.Tools)
		}
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	dir, kit := skillWorkspace(t)
	for _, row := range []struct {
		tools []string
		mode  permission.Mode
		want  permission.Behavior
		rules string
	}{
		{[]string{"Bash(make release)"}, permission.ModeDefault, permission.Ask, "[Bash(make release)]"},
		{[]string{"Bash(make release)", "Bash(make release)", "Read", "Bash(make test)"}, permission.ModeDefault, permission.Ask, "[Bash(make release)]"},
		{[]string{"Bash"}, permission.ModeDefault, permission.Ask, "[]"},
		{[]string{"*"}, permission.ModeDefault, permission.Ask, "[]"},
		{[]string{"B*(make release)", "Bash(", "Bash()", ""}, permission.ModeDefault, permission.Ask, "[]"},
		{[]string{"Bash(make release)"}, permission.ModeDontAsk, permission.Deny, "[]"},
	} {
		st := opened(row.tools...)
		turns := []scripted.Turn{runs("make release")}
		if row.want == permission.Deny {
			turns = append(turns, scripted.Say("It was denied."))
		}
		a := skillAgent(t, dir, agent.Config{Toolkit: kit, Policy: permission.Policy{Mode: row.mode}}, turns...)
		_, err := a.Reply(t.Context(), st, agent.Say("Release it."))
		got, rules := permission.Deny, []string{}
		if errors.Is(err, agent.ErrWaiting) {
			got = permission.Ask
			for _, r := range questions(st)[0].Suggest {
				if r.Source == "skill s" {
					rules = append(rules, r.String())
				}
			}
		}
		if got != row.want || fmt.Sprint(rules) != row.rules {
			t.Errorf("%q: %s with %v, want %s with %s", row.tools, got, rules, row.want, row.rules)
		}
	}
}

// TestEnforceSkillToolsFailsClosed loads an invalid saved state.
func TestEnforceSkillToolsFailsClosed(t *testing.T) {
	dir, kit := skillWorkspace(t)
	a := skillAgent(t, dir, agent.Config{Toolkit: kit, Policy: permission.Policy{Mode: permission.ModeBypass}, Middleware: []agent.Middleware{agent.EnforceSkillTools()}}, runs("ls"), scripted.Say("done"))
	st := new(agent.State)
	if err := json.Unmarshal([]byte(`{"skills":"count-orders"}`), &st.Tools); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reply(t.Context(), st, agent.Say("Go.")); err != nil && !errors.Is(err, agent.ErrWaiting) {
		t.Fatal(err)
	}
	if res := st.Messages[len(st.Messages)-2].ToolResults(); len(res) != 1 || res[0].Outcome != message.OutcomeDenied {
		t.Errorf("%+v", res)
	}
}
