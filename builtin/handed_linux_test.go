package builtin_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// reaching is a command that prints how far it reaches: how many lines the list of network devices has, two
// and one for loopback, and whether it writes outside the working directory.
const reaching = `echo "net $(($(wc -l </proc/net/dev) > 3))"; echo x 2>/dev/null >OUTSIDE && echo outside; echo x 2>/dev/null >inside && echo inside; true`

// A hostOf makes agents that work in a directory, and notes what they ask and what their calls return.
type hostOf struct {
	t       *testing.T
	dir     string
	outside string
	asked   []event.Approval
	results []string
}

func newHost(t *testing.T) *hostOf {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	top, err := os.MkdirTemp(home, ".kitbag-test-") // /tmp is private to a command
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	h := &hostOf{t: t, dir: filepath.Join(top, "work"), outside: filepath.Join(top, "file")}
	if err := os.Mkdir(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hostOf) tools(backend builtin.Backend) []tool.Tool {
	all, err := builtin.New(builtin.Config{Dirs: []string{h.dir}, Backend: backend})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

func (h *hostOf) config(p permission.Policy, tools ...tool.Tool) agent.Config {
	return agent.Config{Toolkit: toolkit.Of(tools...), Policy: p, Approve: func(_ context.Context, q event.Approval) (event.Confirm, error) {
		h.asked = append(h.asked, q)
		return event.Confirm{Allow: true}, nil
	}}
}

// reach is a turn that calls Bash, outside the sandbox if asked to.
func (h *hostOf) reach(outside bool) scripted.Turn {
	in := map[string]any{"command": strings.ReplaceAll(reaching, "OUTSIDE", h.outside)}
	if outside {
		in["outside_sandbox"] = true
	}
	return scripted.Call("Bash", in)
}

// run runs the agent and returns the results of Bash.
func (h *hostOf) run(a *agent.Agent) string {
	h.t.Helper()
	return h.runWith(a, new(agent.State), agent.Say("go"))
}

func (h *hostOf) runWith(a *agent.Agent, st *agent.State, in agent.Input) string {
	h.t.Helper()
	h.asked, h.results = nil, nil
	var note func(event.Event)
	note = func(ev event.Event) {
		switch ev := ev.(type) {
		case *event.Sub:
			note(ev.Event)
		case *event.ToolResult:
			if ev.Name == "Bash" {
				h.results = append(h.results, ev.Result.Text())
			}
		}
	}
	for ev, err := range a.Run(h.t.Context(), st, in) {
		if err != nil {
			h.t.Fatal(err)
		}
		note(ev)
	}
	return strings.ReplaceAll(strings.TrimSpace(strings.Join(h.results, "|")), "\n", " ")
}

// TestReachOfSubAgents checks that a sub-agent's commands reach no further than the policies of both agents
// permit, and those of an agent that a conversation was handed over to no further than that one's.
func TestReachOfSubAgents(t *testing.T) {
	network := func(b permission.Behavior) permission.Rule { return permission.Rule{Tool: "Network", Behavior: b} }
	policy := func(m permission.Mode, rules ...permission.Rule) permission.Policy {
		return permission.Policy{Mode: m, Rules: rules}
	}
	const confined = "net 0 inside"
	for _, row := range []struct {
		about      string
		outer, sub permission.Policy
		leave      bool // the command asks to leave the sandbox
		backend    permission.Profile
		want       string // of a sub-agent
		asked      int
		handed     string // after a hand-off
	}{
		{"both sandboxed", policy(permission.ModeSandboxed), policy(permission.ModeSandboxed), false, "", confined, 0, confined},
		{"only the sub-agent in bypass", policy(permission.ModeSandboxed), policy(permission.ModeBypass), false, "", confined, 0, confined},
		{"both allow the network", policy(permission.ModeBypass, network(permission.Allow)), policy(permission.ModeBypass, network(permission.Allow)), false, "", "net 1 inside", 0, "net 1 inside"},
		{"only the sub-agent allows it", policy(permission.ModeBypass), policy(permission.ModeBypass, network(permission.Allow)), false, "", confined, 0, "net 1 inside"},
		{"the caller denies it", policy(permission.ModeBypass, network(permission.Deny)), policy(permission.ModeBypass, network(permission.Allow)), false, "", confined, 0, "net 1 inside"},
		{"it leaves the sandbox, in bypass", policy(permission.ModeSandboxed), policy(permission.ModeBypass), true, "", confined, 1, confined},
		{"it leaves the sandbox, with the approval for both", policy(permission.ModeSandboxed), policy(permission.ModeSandboxed), true, "", "net 1 outside inside", 1, "net 1 outside inside"},
		{"its own backend is not confined", policy(permission.ModeSandboxed), policy(permission.ModeSandboxed), false, permission.ProfileOpen, "net 1 outside inside", 1, "net 1 outside inside"},
	} {
		t.Run(row.about, func(t *testing.T) {
			h := newHost(t)
			backend := &builtin.Local{Dirs: []string{h.dir}, Sandbox: sandbox.Spec{Profile: row.backend}}
			for name, wrap := range map[string]func(*agent.Agent) (tool.Tool, error){
				"ask":  func(a *agent.Agent) (tool.Tool, error) { return agent.AsTool[string, string](a, "ask", "Asks.", nil) },
				"hand": func(a *agent.Agent) (tool.Tool, error) { return agent.Handoff("hand", "Hands over.", a) },
			} {
				sub := skillAgent(t, h.dir, h.config(row.sub, h.tools(backend)...), h.reach(row.leave), scripted.Say("done"))
				wrapped, err := wrap(sub)
				if err != nil {
					t.Fatal(err)
				}
				cfg := h.config(row.outer, wrapped)
				cfg.Policy.Rules = append(slices.Clone(cfg.Policy.Rules), permission.Rule{Tool: name, Behavior: permission.Allow})
				turns, want := []scripted.Turn{scripted.Call("ask", map[string]string{"task": "go"}), scripted.Say("done")}, row.want
				if name == "hand" {
					turns, want = []scripted.Turn{scripted.Call("hand", map[string]string{})}, row.handed
				}
				if got := h.run(skillAgent(t, h.dir, cfg, turns...)); got != want || name == "ask" && len(h.asked) != row.asked {
					t.Errorf("%s: it reached %q, want %q; asked %d times, want %d", name, got, want, len(h.asked), row.asked)
				}
				os.Remove(h.outside)
			}
		})
	}
}

// TestReachOfRestoredCalls checks that what a saved session says about the reach of a call counts for nothing:
// a person who approves it is asked again if the call would do something else.
func TestReachOfRestoredCalls(t *testing.T) {
	for _, row := range []struct {
		about, old, new string
		moved           bool
		asked           int
		want            string
	}{
		{"as it was", "", "", false, 0, "net 0 inside"},
		{"another profile", `"profile":"work"`, `"profile":"open"`, false, 1, "net 0 inside"},
		{"the network", `"profile":"work"`, `"profile":"work","network":true`, false, 1, "net 0 inside"},
		{"another text", `"judgement":{"text":"`, `"judgement":{"text":"touch /; `, false, 1, "net 0 inside"},
		{"not confined any more", `"confined":true`, `"confined":false`, false, 0, "net 0 inside"},
		{"no judgement", `"judgement":`, `"was":`, false, 1, "net 0 inside"},
		{"another directory", "", "", true, 1, "net 0 inside"},
	} {
		t.Run(row.about, func(t *testing.T) {
			h := newHost(t)
			cfg := h.config(permission.Policy{}, h.tools(nil)...)
			cfg.Approve = nil
			st := new(agent.State)
			for _, err := range skillAgent(t, h.dir, cfg, h.reach(false)).Run(t.Context(), st, agent.Say("go")) {
				if err != nil {
					t.Fatal(err)
				}
			}
			data, err := json.Marshal(st)
			if err != nil || !strings.Contains(string(data), row.old) {
				t.Fatalf("%v in %s", err, data)
			}
			if err := json.Unmarshal([]byte(strings.Replace(string(data), row.old, row.new, 1)), st); err != nil {
				t.Fatal(err)
			}
			if row.moved {
				h.dir = filepath.Join(filepath.Dir(h.dir), "other")
				if err := os.Mkdir(h.dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			answer := st.Pending()[0].(*event.Approval).Allow()
			got := h.runWith(skillAgent(t, h.dir, h.config(permission.Policy{}, h.tools(nil)...), scripted.Say("done")), st, answer)
			if got != row.want || len(h.asked) != row.asked {
				t.Errorf("it reached %q, want %q; asked again %d times, want %d", got, row.want, len(h.asked), row.asked)
			}
		})
	}
}
