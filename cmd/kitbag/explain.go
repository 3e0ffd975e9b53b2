package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/builtin/pdf"
	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// explainCommand is "kitbag permission explain".
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
			calls := newCalls()
			if f.settings == "" {
				c, err := addConfigurations(p, trust, cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				calls.sandbox = c.sandbox
			}
			return explainOne(cmd.OutOrStdout(), p, calls, args)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&lines, "json", false, "read and write JSON Lines")
	cmd.Flags().BoolVar(&trust, "trust", false, "explain with all that the directory's kitbag.json says, though nobody has agreed to it")
	return cmd
}

// addConfigurations adds to the policy of the flags what configurations say, and returns them.
func addConfigurations(p *permission.Policy, trust bool, log io.Writer) (*config, error) {
	c, err := configurations(func(project *config) error {
		project.restrict(trust, false, log)
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.Mode = cmp.Or(p.Mode, c.policy.Mode)
	p.Rules = append(p.Rules, c.policy.Rules...)
	p.Dirs = append(p.Dirs, c.policy.Dirs...)
	p.TrustReadOnly = p.TrustReadOnly || c.policy.TrustReadOnly
	return c, nil
}

// explainOne explains one call to a person: the decision first, then the way to it.
func explainOne(out io.Writer, p *permission.Policy, calls *calls, args []string) error {
	name, input := "Bash", json.RawMessage(nil)
	if len(args) == 2 {
		name, input = args[0], json.RawMessage(args[1])
		if !json.Valid(input) {
			return usage(`the input of %s is not JSON: %.80s; write an object, for Bash '{"command": "ls"}'`, name, args[1])
		}
	} else {
		raw, err := json.Marshal(map[string]string{"command": args[0]})
		if err != nil {
			return err
		}
		input = raw
	}
	call := calls.call(name, input, p.Dirs[0])
	e := permission.Explain(p, call)
	fmt.Fprintf(out, "%s: %s\n", strings.ToUpper(string(e.Behavior)), plainLine(e.Reason))
	if r := reach(e.Judgement); r != "" && calls.sandbox.confines() == nil {
		fmt.Fprintf(out, "  %s\n", r)
	}
	if !calls.builtIn(name, p.Dirs[0]) {
		fmt.Fprintf(out, "  %s is not built in: it is judged by its name only\n", plainLine(name))
	}
	printExplanation(out, e)
	if calls.builtIn(name, p.Dirs[0]) { // of others it is not known what patterns they take
		if err := p.Check(call); err != nil {
			for line := range strings.Lines(err.Error()) {
				fmt.Fprintf(out, "  cannot work: %s\n", plainLine(strings.TrimSuffix(line, "\n")))
			}
		}
	}
	return nil
}

// printExplanation prints the way to a decision: each step with its answer, each
// simple command with what it does, and the rules that would have spared the
// question. A command that is explained may have come from anywhere: nothing of it
// steers the terminal, and a suggestion can be pasted into a shell.
func printExplanation(out io.Writer, e permission.Explanation) {
	if e.Rule != nil && e.Rule.Source != "" {
		fmt.Fprintf(out, "  that rule is from: %s\n", plainLine(e.Rule.Source))
	}
	if e.Safety {
		fmt.Fprintln(out, "  no rule can silence this question")
	}
	for _, s := range e.Steps {
		answer := string(s.Answer)
		if s.Answer == permission.BehaviorNone {
			answer = "-"
		}
		fmt.Fprintf(out, "  %-12s %-6s %s\n", s.Name, answer, plainLine(s.Reason))
	}
	for _, part := range e.Parts {
		fmt.Fprintf(out, "  %s\n", partLine(part))
		if part.Reason != "" {
			fmt.Fprintf(out, "      not read-only: %s\n", plainLine(part.Reason))
		}
	}
	for _, r := range e.Suggest {
		fmt.Fprintf(out, "  to stop the question: --allow '%s'\n", strings.ReplaceAll(plainLine(r.String()), "'", `'\''`))
	}
}

// calls describes calls of the built-in tools, by working directory, for the
// permission engine. Other tools are known by name only.
type calls struct {
	tools   map[string]map[string]tool.Tool
	sandbox sandboxSettings
}

// newCalls returns calls that has made no tools yet.
func newCalls() *calls { return &calls{tools: map[string]map[string]tool.Tool{}} }

// call describes a call of the tool, as an agent in cwd would have it judged.
func (c *calls) call(name string, input json.RawMessage, cwd string) *permission.Call {
	byName, ok := c.tools[cwd]
	if !ok {
		byName = map[string]tool.Tool{}
		var dirs []string
		if cwd != "" {
			dirs = []string{cwd}
		}
		cfg := builtin.Config{Dirs: dirs, PDF: pdf.Reader{}}
		if c.sandbox.Use == useOff { // nothing runs here: whether it would be confined is all that counts
			cfg.Backend = &builtin.Local{Dirs: dirs, Sandbox: sandbox.Spec{Profile: permission.ProfileOpen}}
		}
		tools, err := builtin.New(cfg)
		if err != nil {
			return &permission.Call{Tool: name, Input: input, Checker: unsure{reason: err.Error()}}
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

// unsure is the Checker of a call whose tool cannot be made.
type unsure struct {
	permission.BaseChecker
	reason string
}

func (u unsure) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: u.reason}
}

// builtIn reports whether the tool of a call that was described is one of kitbag's.
func (c *calls) builtIn(name, cwd string) bool {
	_, ok := c.tools[cwd][name]
	return ok
}
