package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

func permissionCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:     "permission",
		Short:   "Show what would be allowed, and why",
		Example: "  kitbag permission explain 'git status && rm x'",
	}, explainCommand(), replayCommand())
}

// policyFlags are the flags that make up a policy.
type policyFlags struct {
	mode             string // "" for the mode of the settings file or the configurations
	allow, ask, deny []string
	dirs             []string // working directories besides the current one
	settings         string   // a file; "" for none
	trustReadOnly    bool     // trust claims of tools to be read-only
}

// register adds the flags, under the same names as for "kitbag run".
func (f *policyFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.mode, "mode", "", "one of "+strings.Join(modes, ", "))
	fl.StringArrayVar(&f.allow, "allow", nil, "allow calls that match `RULE`, repeatable")
	fl.StringArrayVar(&f.ask, "ask", nil, "ask about calls that match `RULE`, repeatable")
	fl.StringArrayVar(&f.deny, "deny", nil, "deny calls that match `RULE`, repeatable")
	fl.StringArrayVar(&f.dirs, "dir", nil, "a further working `DIRECTORY`, repeatable")
	fl.StringVar(&f.settings, "settings", "", "a `FILE` with rules under permissions")
	fl.BoolVar(&f.trustReadOnly, "trust-read-only", false, "allow tools that claim to be read-only")
}

// policy makes a policy from the flags and the settings file. Unknown members of that file only cause a warning, since the
// file may belong to another program.
func (f *policyFlags) policy(cmd *cobra.Command) (*permission.Policy, error) {
	s := &permission.Settings{}
	if f.settings != "" {
		data, err := os.ReadFile(f.settings)
		if err != nil {
			return nil, fmt.Errorf("--settings: %w", err)
		}
		if s, err = permission.ParseSettings(f.settings, data); err != nil {
			return nil, err
		}
		for _, name := range s.Unknown() {
			fmt.Fprintf(cmd.ErrOrStderr(), "settings %s: %s has no effect\n", f.settings, name)
		}
	}
	p := &s.Policy
	if f.mode != "" {
		var err error
		if p.Mode, err = permission.ParseMode(f.mode); err != nil {
			return nil, usage("--mode: %w", err)
		}
	}
	rules, err := parseRules(map[permission.Behavior][]string{
		permission.Allow: f.allow, permission.Ask: f.ask, permission.Deny: f.deny})
	if err != nil {
		return nil, err
	}
	p.Rules = append(p.Rules, rules...)
	// The current directory must be the first one: patterns such as ./src/** are relative to the first directory.
	dirs, err := (&toolFlags{dirs: f.dirs}).workDirs()
	if err != nil {
		return nil, err
	}
	p.Dirs = append(dirs, p.Dirs...)
	p.TrustReadOnly = f.trustReadOnly
	return p, nil
}

func replayCommand() *cobra.Command {
	f := &policyFlags{}
	cmd := &cobra.Command{
		Use:   "replay [flags] SESSION",
		Short: "Show what other rules would have decided in a recorded session",
		Long: `Show what other rules would have decided about every tool call of a session that
"kitbag run --session" saved. Rules accepted in the session apply too. Tools that
are not built in are judged by name only.`,
		Example: `  kitbag permission replay --allow 'Bash(go test:*)' s.jsonl`,
		Args:    between(1, 1, "one session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.policy(cmd)
			if err != nil {
				return err
			}
			st, err := readUntrusted(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("session %s: %w", args[0], err)
			}
			p.Rules = append(p.Rules, st.Rules...) // rules that the user accepted during the session
			return replay(cmd.OutOrStdout(), p, st)
		},
	}
	f.register(cmd)
	return cmd
}

// replay prints what p decides about every call of the session, and the recorded outcome of the call.
func replay(out io.Writer, p *permission.Policy, st *agent.State) error {
	outcomes := map[string]message.Outcome{}
	for _, m := range st.Messages {
		for _, r := range m.ToolResults() {
			outcomes[r.ID] = r.Outcome
		}
	}
	tools := new(builtins)
	count := map[permission.Behavior]int{}
	for _, m := range st.Messages {
		for _, c := range m.ToolCalls() {
			d := permission.Decide(p, tools.describe(c.Name, c.Input, p.Dirs[0]))
			count[d.Behavior]++
			was := cmp.Or(string(outcomes[c.ID]), "waiting") // a call without an outcome waits for approval
			fmt.Fprintf(out, "%-5s %s %s\n      was: %s; now: %s\n", d.Behavior, shorten(c.Name, maxName), shorten(string(c.Input), maxName), plainLine(was), plainLine(d.Reason))
		}
	}
	_, err := fmt.Fprintf(out, "%d allowed, %d asked, %d denied\n", count[permission.Allow], count[permission.Ask], count[permission.Deny])
	return err
}

// parseRules reads the rules of the flags --allow, --ask and --deny.
func parseRules(texts map[permission.Behavior][]string) ([]permission.Rule, error) {
	var rules []permission.Rule
	for _, b := range []permission.Behavior{permission.Deny, permission.Ask, permission.Allow} { // in the same order every time
		for _, text := range texts[b] {
			r, err := permission.ParseRule(text, b)
			if err != nil {
				return nil, usage("--%s: %w", b, err)
			}
			r.Source = "command line"
			rules = append(rules, r)
		}
	}
	return rules, nil
}
