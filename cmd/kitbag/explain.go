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
		Short: "Show what would happen to a shell command, or a call of a built-in tool",
		Long: `Show what would happen to a shell command, or to a call of a built-in tool with
its input as JSON: the decision, the steps that led to it, and every simple
command with its effects. Nothing is run.

Mode and rules are those of "kitbag run" here: from the flags, and from
kitbag.json in the current directory and in the user's configuration directory.
With --settings only that file is read instead.

With --json it reads calls from standard input, one JSON object a line, and
writes one decision a line, in order. Only the line itself matters then:
  {"tool":"Bash","input":{"command":"…"},"mode":"default","rules":[{"tool":"Bash",
   "pattern":"git commit:*","behavior":"allow"}],"dirs":["/work"],"cwd":"/work"}`,
		Example: `  kitbag permission explain 'git status && rm x'
  kitbag permission explain --mode explore --allow 'Bash(npm test:*)' 'npm test'
  kitbag permission explain Write '{"file_path":"/etc/hosts","content":""}'`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case lines && len(args) > 0:
				return usage("--json reads the calls from standard input and takes no arguments")
			case !lines && (len(args) == 0 || len(args) > 2):
				return usage("give one command in quotes, or a tool and its input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if lines {
				return waitOrInterrupt(cmd.Context(), func() error { return explainLines(cmd.InOrStdin(), cmd.OutOrStdout()) })
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
	cmd.Flags().BoolVar(&trust, "trust", false, "apply the directory's kitbag.json as if it were trusted")
	return cmd
}

// addConfigurations adds the configurations' rules to the policy of the flags, and returns the configurations.
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

// explainOne explains one call: the decision first, then its steps.
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
		fmt.Fprintf(out, "  %s is not built in, so only its name is judged\n", plainLine(name))
	}
	printExplanation(out, e)
	if calls.builtIn(name, p.Dirs[0]) { // the patterns of other tools are unknown
		if err := p.Check(call); err != nil {
			for line := range strings.Lines(err.Error()) {
				fmt.Fprintf(out, "  this rule can never match: %s\n", plainLine(strings.TrimSuffix(line, "\n")))
			}
		}
	}
	return nil
}

// printExplanation prints the steps of a decision, each simple command with its effects, and the rules that
// would have avoided the question. The command may come from an untrusted source, so its text cannot control
// the terminal, and a suggestion is quoted for a shell.
func printExplanation(out io.Writer, e permission.Explanation) {
	if e.Rule != nil && e.Rule.Source != "" {
		fmt.Fprintf(out, "  the rule is from: %s\n", plainLine(e.Rule.Source))
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
		fmt.Fprintf(out, "  to avoid the question: --allow '%s'\n", strings.ReplaceAll(plainLine(r.String()), "'", `'\''`))
	}
}

// A calls describes calls of the built-in tools to the permission engine. It keeps the tools by working
// directory; of other tools only the name is known.
type calls struct {
	tools   map[string]map[string]tool.Tool
	sandbox sandboxSettings
}

// newCalls returns a calls that makes its tools on first use.
func newCalls() *calls { return &calls{tools: map[string]map[string]tool.Tool{}} }

// call describes a call of the tool, as an agent in cwd would make it.
func (c *calls) call(name string, input json.RawMessage, cwd string) *permission.Call {
	byName, ok := c.tools[cwd]
	if !ok {
		byName = map[string]tool.Tool{}
		var dirs []string
		if cwd != "" {
			dirs = []string{cwd}
		}
		cfg := builtin.Config{Dirs: dirs, PDF: pdf.Reader{}}
		if c.sandbox.Use == useOff { // nothing runs here; the profile only says whether commands would be confined
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

// unsure is the Checker of a call whose tools could not be made: it always asks.
type unsure struct {
	permission.BaseChecker
	reason string
}

func (u unsure) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: u.reason}
}

// builtIn reports whether the named tool is built in; call must have been called for cwd.
func (c *calls) builtIn(name, cwd string) bool {
	_, ok := c.tools[cwd][name]
	return ok
}
