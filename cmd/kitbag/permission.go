package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

func permissionCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:     "permission",
		Short:   "See what would be allowed, and why",
		Example: "  kitbag permission explain 'git status && rm x'",
	}, explainCommand(), replayCommand())
}

// policyFlags are the flags that make up a policy.
type policyFlags struct {
	mode             string
	allow, ask, deny []string
	dirs             []string
	settings         string
	trust            bool
}

func (f *policyFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.mode, "mode", "", "one of "+strings.Join(modes, ", "))
	fl.StringArrayVar(&f.allow, "allow", nil, "allow calls that match `RULE`, repeatable")
	fl.StringArrayVar(&f.ask, "ask", nil, "ask about calls that match `RULE`, repeatable")
	fl.StringArrayVar(&f.deny, "deny", nil, "deny calls that match `RULE`, repeatable")
	fl.StringArrayVar(&f.dirs, "dir", nil, "a further working `DIRECTORY`, repeatable")
	fl.StringVar(&f.settings, "settings", "", "a `FILE` with rules under permissions")
	fl.BoolVar(&f.trust, "trust-read-only", false, "let tools that claim to be read-only run")
}

func (f *policyFlags) policy(cmd *cobra.Command) (*permission.Policy, error) {
	s := &permission.Settings{}
	if f.settings != "" {
		data, err := os.ReadFile(f.settings)
		if err != nil {
			return nil, fmt.Errorf("settings: %w", err)
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
	dirs, err := (&toolFlags{dirs: f.dirs}).workDirs()
	if err != nil {
		return nil, err
	}
	p.Dirs = append(dirs, p.Dirs...)
	p.TrustReadOnly = f.trust
	return p, nil
}

func explainCommand() *cobra.Command {
	f := &policyFlags{}
	var lines, trust bool
	cmd := &cobra.Command{
		Use:   "explain [flags] COMMAND\n  kitbag permission explain [flags] TOOL INPUT",
		Short: "Tell what would happen to a shell command, or a call of a built-in tool",
		Long: `Tell what would happen to a shell command, or to a call of a built-in tool with
its input as JSON: the decision, the steps that led to it, and every simple
command with what it does. Nothing is run.

Mode and rules are those that "kitbag run" would have here: of the flags, and of
kitbag.json in the current directory and in the user's configuration directory.
With --settings only that file is read instead.

With --json it reads calls from standard input, one JSON object a line, and
writes one decision a line, in order. Nothing but the line itself counts then:
  {"tool":"Bash","input":{"command":"…"},"mode":"default","rules":[{"tool":"Bash",
   "pattern":"git commit:*","behavior":"allow"}],"dirs":["/work"],"cwd":"/work"}`,
		Example: `  kitbag permission explain 'git status && rm x'
  kitbag permission explain --mode explore --allow 'Bash(npm test:*)' 'npm test'
  kitbag permission explain Write '{"file_path":"/etc/hosts","content":""}'`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case lines && len(args) > 0:
				return usage("--json reads the calls from standard input; it takes no arguments")
			case !lines && (len(args) == 0 || len(args) > 2):
				return usage("give one command in quotes, or a tool and its input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if lines {
				return uninterrupted(cmd.Context(), func() error { return explainLines(cmd.InOrStdin(), cmd.OutOrStdout()) })
			}
			p, err := f.policy(cmd)
			if err != nil {
				return err
			}
			if f.settings == "" {
				if err := addConfigurations(p, trust, cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			return explainOne(cmd.OutOrStdout(), p, args)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&lines, "json", false, "read and write JSON Lines")
	cmd.Flags().BoolVar(&trust, "trust", false, "explain with all that the directory's kitbag.json says, though nobody has agreed to it")
	return cmd
}

// addConfigurations adds to the policy of the flags what configurations say.
func addConfigurations(p *permission.Policy, trust bool, log io.Writer) error {
	c, err := configurations(func(project *config) error {
		project.restrict(trust, false, log)
		return nil
	})
	if err != nil {
		return err
	}
	p.Mode = cmp.Or(p.Mode, c.policy.Mode)
	p.Rules = append(p.Rules, c.policy.Rules...)
	p.Dirs = append(p.Dirs, c.policy.Dirs...)
	p.TrustReadOnly = p.TrustReadOnly || c.policy.TrustReadOnly
	return nil
}

func explainOne(out io.Writer, p *permission.Policy, args []string) error {
	name, input := "Bash", json.RawMessage(nil)
	if len(args) == 2 {
		name, input = args[0], json.RawMessage(args[1])
		if !json.Valid(input) {
			return usage(`the input of %s is not JSON: %.80s; write an object such as '{"command": "ls"}'`, name, args[1])
		}
	} else {
		raw, err := json.Marshal(map[string]string{"command": args[0]})
		if err != nil {
			return err
		}
		input = raw
	}
	calls := newCalls()
	e := permission.Explain(p, calls.call(name, input, p.Dirs[0]))
	// The command may have come from anywhere: what explains it must not steer the
	// terminal.
	fmt.Fprintf(out, "%s: %s\n", strings.ToUpper(string(e.Behavior)), plain(e.Reason))
	if !calls.builtIn(name, p.Dirs[0]) {
		fmt.Fprintf(out, "  %s is not built in: it is judged by its name only\n", plain(name))
	}
	if e.Rule != nil && e.Rule.Source != "" {
		fmt.Fprintf(out, "  that rule is from: %s\n", plain(e.Rule.Source))
	}
	if e.Safety {
		fmt.Fprintln(out, "  no rule can silence this question")
	}
	for _, s := range e.Steps {
		answer := string(s.Answer)
		if s.Answer == permission.NoOpinion {
			answer = "-"
		}
		fmt.Fprintf(out, "  %-12s %-6s %s\n", s.Name, answer, plain(s.Reason))
	}
	for _, part := range e.Parts {
		effects := strings.Join(part.Effects, ", ")
		if effects == "" {
			effects = "nothing"
		}
		fmt.Fprintf(out, "  %s  → %s\n", plain(strings.Join(part.Argv, " ")), effects)
		if part.Reason != "" {
			fmt.Fprintf(out, "      not read-only: %s\n", plain(part.Reason))
		}
	}
	for _, r := range e.Suggest {
		fmt.Fprintf(out, "  to stop the question: --allow '%s'\n", strings.ReplaceAll(plain(r.String()), "'", `'\''`))
	}
	return nil
}

// A question is a line that explain --json reads.
type question struct {
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
	Mode  string          `json:"mode"`
	Rules []struct {
		Tool     string              `json:"tool"`
		Pattern  *string             `json:"pattern"`
		Behavior permission.Behavior `json:"behavior"`
	} `json:"rules"`
	Dirs          []string `json:"dirs"`
	Cwd           string   `json:"cwd"`
	TrustReadOnly bool     `json:"trust_read_only"`
}

// An explained is a line that explain --json writes.
type explained struct {
	Behavior permission.Behavior `json:"behavior"`
	Safety   bool                `json:"safety"`
	ReadOnly bool                `json:"read_only"`
	Reason   string              `json:"reason"`
	Rule     *string             `json:"rule"`
	Suggest  []string            `json:"suggest"`
	Commands []command           `json:"commands"`
}

type command struct {
	Argv    []string `json:"argv"`
	Effects []string `json:"effects"`
}

// uninterrupted returns what read does, or ends with ctx: a read from a terminal or a
// pipe cannot be called off. read may then still wait, until the program ends.
func uninterrupted(ctx context.Context, read func() error) error {
	done := make(chan error, 1)
	go func() { done <- read() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return &exit{code: exitInterrupted}
	}
}

// explainLines writes a decision for each line. Who writes one and waits for the
// answer gets it: only what is there already is answered together.
func explainLines(in io.Reader, out io.Writer) error {
	calls := newCalls()
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	r := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if len(line) == 0 && err == io.EOF {
			return w.Flush()
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if strings.TrimSpace(string(line)) == "" {
			continue
		}
		var q question
		e := explained{Behavior: permission.Deny, Suggest: []string{}, Commands: []command{}}
		if err := json.Unmarshal(line, &q); err != nil {
			e.Reason = fmt.Sprintf("line %d cannot be read: %v", n, err)
		} else {
			e = q.explain(calls)
		}
		if err := enc.Encode(e); err != nil {
			return err
		}
		if r.Buffered() > 0 {
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

func (q *question) explain(calls *calls) explained {
	p := &permission.Policy{Dirs: q.Dirs, TrustReadOnly: q.TrustReadOnly, Mode: permission.Mode(q.Mode)}
	if m, err := permission.ParseMode(q.Mode); err == nil {
		p.Mode = m
	} // an unknown mode denies
	for _, r := range q.Rules {
		rule := permission.Rule{Tool: r.Tool, Behavior: r.Behavior}
		if r.Pattern != nil {
			if rule.Pattern = *r.Pattern; rule.Pattern == "" {
				rule.Pattern = " " // a pattern that cannot be read, not a rule for every call
			}
		}
		p.Rules = append(p.Rules, rule)
	}
	d := permission.Explain(p, calls.call(q.Tool, q.Input, q.Cwd))
	e := explained{Behavior: d.Behavior, Safety: d.Safety, ReadOnly: d.ReadOnly, Reason: d.Reason, Suggest: []string{}, Commands: []command{}}
	if d.Rule != nil {
		text := d.Rule.String()
		e.Rule = &text
	}
	for _, r := range d.Suggest {
		e.Suggest = append(e.Suggest, r.String())
	}
	for _, part := range d.Parts {
		e.Commands = append(e.Commands, command{part.Argv, part.Effects})
	}
	return e
}

// calls describes calls of the built-in tools, by working directory, for the
// permission engine. Other tools are known by name only.
type calls struct {
	tools map[string]map[string]tool.Tool
}

func newCalls() *calls { return &calls{tools: map[string]map[string]tool.Tool{}} }

func (c *calls) call(name string, input json.RawMessage, cwd string) *permission.Call {
	byName, ok := c.tools[cwd]
	if !ok {
		byName = map[string]tool.Tool{}
		var dirs []string
		if cwd != "" {
			dirs = []string{cwd}
		}
		tools, err := builtin.New(builtin.Config{Dirs: dirs})
		if err != nil {
			unsure := permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: err.Error()}
			return &permission.Call{Tool: name, Input: input, Check: func(*permission.Policy) permission.Verdict { return unsure }}
		}
		for _, t := range tools {
			byName[t.Info().Name] = t
		}
		c.tools[cwd] = byName
	}
	if t, ok := byName[name]; ok {
		return tool.PermissionCall(t, input)
	}
	return &permission.Call{Tool: name, Input: input}
}

// builtIn reports whether the tool of a call that was described is one of kitbag's.
func (c *calls) builtIn(name, cwd string) bool {
	_, ok := c.tools[cwd][name]
	return ok
}

func replayCommand() *cobra.Command {
	f := &policyFlags{}
	cmd := &cobra.Command{
		Use:   "replay [flags] SESSION",
		Short: "Tell what other rules would have decided in a recorded session",
		Long: `Tell what other rules would have decided about every tool call of a session that
"kitbag run --session" saved. Rules accepted in the session count, too. Tools
that are not built in are judged by name only.`,
		Example: `  kitbag permission replay --allow 'Bash(go test:*)' s.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("give the file of one session")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.policy(cmd)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("session: %w", err)
			}
			st := new(agent.State)
			if err := json.Unmarshal(data, st); err != nil {
				return fmt.Errorf("%s: it is not a session that kitbag run --session has saved: %w", args[0], jsonError(data, err))
			}
			p.Rules = append(p.Rules, st.Rules...)
			return replay(cmd.OutOrStdout(), p, st)
		},
	}
	f.register(cmd)
	return cmd
}

func replay(out io.Writer, p *permission.Policy, st *agent.State) error {
	outcomes := map[string]message.Outcome{}
	for _, m := range st.Messages {
		for _, b := range m.Blocks {
			if r, ok := b.(*message.ToolResult); ok {
				outcomes[r.ID] = r.Outcome
			}
		}
	}
	calls := newCalls()
	count := map[permission.Behavior]int{}
	for _, m := range st.Messages {
		for _, b := range m.Blocks {
			c, ok := b.(*message.ToolCall)
			if !ok {
				continue
			}
			d := permission.Decide(p, calls.call(c.Name, c.Input, p.Dirs[0]))
			count[d.Behavior]++
			was := string(outcomes[c.ID])
			if was == "" {
				was = "waiting"
			}
			fmt.Fprintf(out, "%-5s %s %s\n      was: %s; now: %s\n", d.Behavior, shorten(c.Name, maxName), shorten(string(c.Input), maxName), plain(was), plain(d.Reason))
		}
	}
	_, err := fmt.Fprintf(out, "%d allowed, %d asked, %d denied\n", count[permission.Allow], count[permission.Ask], count[permission.Deny])
	return err
}
