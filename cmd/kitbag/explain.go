package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/internal/near"
	"github.com/kitbag-go/kitbag/internal/policycheck"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

func explainCommand() *cobra.Command {
	f := &policyFlags{}
	var jsonLines, trust bool
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
writes one decision a line, in order; for a line with other keys, deny. Only the line
itself matters then:
  {"tool":"Bash","input":{"command":"…"},"mode":"default","rules":[{"tool":"Bash",
   "pattern":"git commit:*","behavior":"allow"}],"dirs":["/work"],"cwd":"/work"}`,
		Example: `  kitbag permission explain 'git status && rm x'
  kitbag permission explain --mode explore --allow 'Bash(npm test:*)' 'npm test'
  kitbag permission explain Write '{"file_path":"/etc/hosts","content":""}'`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case jsonLines && len(args) > 0:
				return usage("--json reads the calls from standard input and takes no arguments")
			case !jsonLines && (len(args) == 0 || len(args) > 2):
				return usage("give one command in quotes, or a tool and its input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if jsonLines {
				return waitOrInterrupt(cmd.Context(), func() error { return explainLines(cmd.InOrStdin(), cmd.OutOrStdout()) })
			}
			p, err := f.policy(cmd)
			if err != nil {
				return err
			}
			tools := new(builtins)
			if f.settings == "" {
				c, err := untrustedConfig(trust, false, cmd.ErrOrStderr()) // no warning about skills, which decide nothing
				if err != nil {
					return err
				}
				*p = mergePolicies(p, &c.policy)
				tools.sandbox = c.sandbox
			}
			return explainOne(cmd.OutOrStdout(), p, tools, args)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&jsonLines, "json", false, "read and write JSON Lines")
	cmd.Flags().BoolVar(&trust, "trust", false, "apply the directory's kitbag.json as if it were trusted")
	return cmd
}

// parseCall returns the call that the arguments COMMAND or TOOL INPUT mean.
func parseCall(args []string) (name string, input json.RawMessage, err error) {
	if len(args) == 1 {
		input, err = json.Marshal(map[string]string{"command": args[0]})
		return "Bash", input, err
	}
	if !json.Valid([]byte(args[1])) {
		return "", nil, usage(`the input of %s is not JSON: %.80s; write an object, for Bash '{"command": "ls"}'`, args[0], args[1])
	}
	return args[0], json.RawMessage(args[1]), nil
}

// explainOne prints the decision about one call, and the steps that led to the decision.
func explainOne(out io.Writer, p *permission.Policy, tools *builtins, args []string) error {
	name, input, err := parseCall(args)
	if err != nil {
		return err
	}
	call := tools.describe(name, input, p.Dirs[0])
	e := permission.Explain(p, call)
	fmt.Fprintf(out, "%s: %s\n", strings.ToUpper(string(e.Behavior)), plainLine(e.Reason))
	if access := accessText(e.Judgement); access != "" && tools.sandbox.canConfine() == nil { // else nothing is confined
		fmt.Fprintf(out, "  %s\n", access)
	}
	if call.Checker == nil {
		meant := ""
		if like := near.Typos(name, slices.Sorted(maps.Keys(tools.byDir[p.Dirs[0]])), 1); len(like) > 0 {
			meant = "; did you mean " + like[0] + "?"
		}
		fmt.Fprintf(out, "  %s is not built in, so only its name is judged%s\n", plainLine(name), meant)
	}
	printExplanation(out, e)
	if err := tools.checkRules(p); err != nil {
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(out, "  this rule can never match: %s\n", plainLine(strings.TrimSuffix(line, "\n")))
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
		fmt.Fprintln(out, "  no allow rule can avoid this question")
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

// builtins describes calls of the built-in tools for the permission engine, and never runs them. It makes the tools of a
// working directory once. It is not safe for concurrent use.
type builtins struct {
	byDir   map[string]map[string]tool.Tool // by working directory and name
	sandbox sandboxSettings
}

// describe returns a call by an agent in cwd. The call of a tool that is not built in has no Checker.
func (b *builtins) describe(name string, input json.RawMessage, cwd string) *permission.Call {
	call := &permission.Call{Tool: name, Input: input}
	if b.byDir[cwd] == nil {
		if err := b.addDir(cwd); err != nil {
			call.Checker = alwaysAsk{reason: err.Error()}
			return call
		}
	}
	if t, ok := b.byDir[cwd][name]; ok {
		return tool.PermissionCall(t, input)
	}
	return call
}

// checkRules reports the rules that can never match a call in the first directory of p, whose tools describe has made.
func (b *builtins) checkRules(p *permission.Policy) error {
	var own []tool.Tool
	for _, name := range slices.Sorted(maps.Keys(b.byDir[p.Dirs[0]])) {
		own = append(own, b.byDir[p.Dirs[0]][name])
	}
	return policycheck.Check(p, own, nil, "Network", "Skill", "reset_tools", "background", "read_result")
}

// addDir makes the tools of a working directory; "" means the current directory.
func (b *builtins) addDir(cwd string) error {
	cfg := builtin.Config{PDF: pdfReader}
	if cwd != "" {
		cfg.Dirs = []string{cwd}
	}
	if b.sandbox.Use == useOff { // nothing runs; with this profile the decision is that of commands without a sandbox
		cfg.Backend = &builtin.Local{Dirs: cfg.Dirs, Sandbox: sandbox.Spec{Profile: permission.ProfileOpen}}
	}
	tools, err := builtin.New(cfg)
	if err != nil {
		return err
	}
	if b.byDir == nil {
		b.byDir = map[string]map[string]tool.Tool{}
	}
	b.byDir[cwd] = map[string]tool.Tool{}
	for _, t := range tools {
		b.byDir[cwd][t.Info().Name] = t
	}
	return nil
}

// alwaysAsk is the Checker of a call whose tool could not be made.
type alwaysAsk struct {
	permission.BaseChecker
	reason string
}

func (a alwaysAsk) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: a.reason}
}
