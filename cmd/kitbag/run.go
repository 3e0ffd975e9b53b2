package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
)

// runFlags are the flags of kitbag run.
type runFlags struct {
	json    bool
	answers []string // unparsed; see parseAnswer
	agentFlags
}

// agentFlags describe an agent and its conversation, for "kitbag run" and "kitbag chat".
type agentFlags struct {
	session          string // the session file; "" for a conversation that ends with the program
	trustSession     bool   // accept a file that is not sealed with the user's key
	noRedact         bool   // do not redact what is saved and shown
	mode             string // one of modes
	allow, ask, deny []string
	modelSettings
	maxSteps int // model calls for one task; 0 for the agent's own limit
	window   int // the model's context window in tokens; 0 for what is known of the model, else the agent's default
	maxCost  float64
	models   string // a file with a price table; "" for none
	system   string // a file
	toolFlags
}

// toolFlags select an agent's tools, skills and servers.
type toolFlags struct {
	dirs, skills, mcp []string
	trust             bool     // trust the directory's configuration and skills without asking
	trustedDirs       []string // programs, settings and toolchains in these may run
	more              *config  // the configurations; nil until they are read
}

// register adds the flags about tools. "kitbag tools" has them too, to show what "kitbag run" would have.
func (f *toolFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.dirs, "dir", nil, "a further working `DIRECTORY`, repeatable")
	fl.StringArrayVar(&f.skills, "skills", nil, "a `DIRECTORY` of skills, repeatable (default .agents/skills, .claude/skills and those of kitbag.json)")
	fl.StringArrayVar(&f.mcp, "mcp", nil, "a `FILE` with MCP servers under mcpServers, in addition to those of kitbag.json; repeatable")
	fl.BoolVar(&f.trust, "trust", false, "trust the directory's kitbag.json and skills, this time")
}

// register adds the flags about the agent.
func (f *agentFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.session, "session", "", "save the conversation in `FILE`, or continue the one in it")
	fl.BoolVar(&f.trustSession, "trust-session", false, "trust a session file that is not sealed with your key: its conversation and its rules")
	fl.BoolVar(&f.noRedact, "no-redact", false, "do not redact secrets in the session file and in the output")
	fl.StringVar(&f.mode, "mode", "default", "the mode, which decides calls without a rule: "+strings.Join(modes, ", "))
	fl.StringArrayVar(&f.allow, "allow", nil, "allow calls that match `RULE`, such as 'Bash(git status:*)', repeatable")
	fl.StringArrayVar(&f.ask, "ask", nil, "ask about calls that match `RULE`, repeatable")
	fl.StringArrayVar(&f.deny, "deny", nil, "deny calls that match `RULE`, repeatable")
	f.toolFlags.register(cmd)
	f.modelSettings.register(cmd)
	fl.IntVar(&f.maxSteps, "max-steps", 50, "the maximum number of model calls for one task")
	fl.IntVar(&f.window, "window", 0, "the model's context window in tokens, which the conversation must fit (default what is known of the model, else 128000)")
	fl.Float64Var(&f.maxCost, "max-cost", 0, "the maximum cost of one task in `USD`, for models with a known price")
	fl.StringVar(&f.system, "system", "", "a `FILE` with the system prompt")
	if err := cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions(modes, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is missing: a bug in this function
	}
}

// modes are those of package permission, spelled as in settings files.
var modes = []string{"default", "accept-edits", "sandboxed", "explore", "bypass", "dont-ask"}

// runCommand is "kitbag run".
func runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   `run [flags] "task"`,
		Short: "Run an agent in the current directory",
		Long: `Run an agent in the current directory with the built-in tools (Bash, Read, Write,
Edit, Glob, Grep, a task list), over any OpenAI-compatible endpoint: set
OPENAI_API_KEY and KITBAG_MODEL, and OPENAI_BASE_URL for a server other than
OpenAI's. KITBAG_API=chat or responses chooses the protocol if the default fails.
A model whose name begins with claude-, and any with KITBAG_API=anthropic, is called
over Anthropic's API: set ANTHROPIC_API_KEY, and ANTHROPIC_BASE_URL for a server
other than Anthropic's. --fallback names models for when one fails, also of the other
vendor.

An MCP server is started when the model opens a group of its tools. Its tools and
its own groups are known from its last run. The groups and labels of kitbag.json
apply as for kitbag mcp serve.
Questions of a server are asked at the terminal; the rule for its use of the
model is mcp__SERVER__sampling.

Settings without a flag or variable are taken from kitbag.json, first from the one
in the current directory, then from the one in the user's configuration directory.
Rules, servers and skills of all of them apply, flags first:

  {"model": "…", "api": "chat", "baseURL": "https://…", "fallback": ["…"],
   "effort": "low", "thinking": "adaptive", "cache": "1h", "lateTools": true,
   "system": "FILE", "maxSteps": 50,
   "window": 128000, "maxCost": 2.5, "models": "FILE",
   "permissions": {"mode": "default", "allow": [], "ask": [], "deny": []},
   "mcpServers": {"files": {"command": "npx", "args": ["-y", "some-server"]}},
   "sandbox": {"use": "auto", "write": [], "protect": [], "hide": [], "reveal": []},
   "skills": ["docs/skills"]}

The baseURL is only for models of the API of the file's own model. With lateTools its
server accepts tools at the end of a conversation; OpenAI's and Anthropic's are known to.
The file of models has windows and prices that are missing or wrong in kitbag:
{"models": {"NAME": {"window": 32000, "price": {"input": 0.2, "output": 0.6}}}},
prices in US dollars for 1,000,000 tokens.

On Linux commands run confined, if the kernel permits it. In the mode sandboxed,
commands that are not dangerous run without a question. "kitbag sandbox --help"
explains the settings, "kitbag sandbox status" shows the result.

Of the kitbag.json in the current directory only restrictions (ask and deny rules,
what a sandbox covers) apply until you trust it at the terminal, or add --trust; the
same is true of the skills in .agents/skills and .claude/skills, and of AGENTS.md and
CLAUDE.md (here and above, up to the root of the repository; 64 kB at most), which
are instructions of their authors.

A task of - is read from standard input. The model's text goes to standard output,
what tools do to standard error,
and at the end what it has cost. Calls that no rule allows are asked about at the
terminal; without one the run ends with exit code 3 and lists the waiting calls.

Exit codes: 0 done, 1 error, 2 wrong usage, 3 waiting for approval, 4 a limit was
reached, 130 interrupted.`,
		Example: `  kitbag run "what does this repository do?"
  kitbag run --allow 'Bash(go test:*)' "make the tests pass"
  kitbag run - < task.md
  kitbag run --json --session s.json "clean up"   # ends with code 3 at a question
  kitbag run --json --session s.json --answer call_1.9=allow   # the id from that list`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("%d tasks given; put the task in quotes: kitbag run %q", len(args), args[0]+" "+args[1]+" …")
			}
			return f.run(cmd, args)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print one event per line as JSON")
	fl.StringArrayVar(&f.answers, "answer", nil, "answer a waiting call: `CALL_ID.QUESTION=allow|deny[:reason]`, repeatable; without .QUESTION it answers the call's current question")
	f.register(cmd)
	return cmd
}

// run runs the agent on the answers and the task. Without either it continues the session and asks about its
// pending calls again.
func (f *runFlags) run(cmd *cobra.Command, args []string) error {
	var inputs []agent.Input
	for _, s := range f.answers {
		c, err := parseAnswer(s)
		if err != nil {
			return err
		}
		inputs = append(inputs, c)
	}
	if len(args) == 1 {
		task, err := readTask(cmd, args[0])
		if err != nil {
			return err
		}
		inputs = append(inputs, agent.Say(task))
	}
	if len(inputs) == 0 && f.session == "" {
		return usage(`no task; say what to do: kitbag run "task"`)
	}
	if len(f.answers) > 0 && f.session == "" {
		return usage("--answer needs --session FILE with the file that has the waiting calls")
	}
	r := newRunner(cmd, f.json)
	if err := f.configure(cmd.Context(), cmd, r.prompt); err != nil {
		return err
	}
	return f.open(cmd.Context(), r, func(k *kit, s *conversation) error {
		if len(inputs) == 0 && s.finished() {
			return usage(`no call waits in %s; say what to do: kitbag run --session %[1]s "task"`, s.path)
		}
		err := r.run(cmd.Context(), k.agent, s, inputs)
		if !f.json && r.spent.steps > 0 {
			fmt.Fprintln(r.log, r.painter.paint(dim, r.spent.String()))
		}
		return err
	})
}

// maxTask is the size of the largest task from standard input, in bytes. Models accept no more, and a pipe may
// be endless.
const maxTask = 1 << 20

// readTask returns the task: arg itself, or standard input for "-".
func readTask(cmd *cobra.Command, arg string) (string, error) {
	if arg == "-" {
		var data []byte
		err := waitOrInterrupt(cmd.Context(), func() (err error) {
			data, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxTask+1))
			return err
		})
		switch {
		case err != nil:
			return "", err
		case len(data) > maxTask:
			return "", usage("the task on standard input has more than %d bytes; put it into a file, and let the agent read that", maxTask)
		case !utf8.Valid(data):
			return "", usage("the task on standard input is not text in UTF-8")
		}
		arg = string(data)
	}
	if strings.TrimSpace(arg) == "" {
		return "", usage(`the task is empty; write one: kitbag run "task"`)
	}
	return arg, nil
}

// open opens the conversation, makes the agent, calls use with both, and closes them. r asks the servers'
// questions and prints warnings.
func (f *agentFlags) open(ctx context.Context, r *runner, use func(*kit, *conversation) error) (err error) {
	policy, err := f.policy()
	if err != nil {
		return err
	}
	s, err := openConversation(ctx, f.session, f.trustSession)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r.models = f.modelSettings
	k, err := f.kit(ctx, policy, s, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	return use(k, s)
}

// policy returns the validated rules of the flags and the configurations, flags first. The current directory is
// the first directory, since relative patterns are relative to it.
func (f *agentFlags) policy() (permission.Policy, error) {
	p := permission.Policy{}
	if !slices.Contains(modes, f.mode) {
		return p, usage("--mode %q: the modes are %s", f.mode, strings.Join(modes, ", "))
	}
	if f.maxSteps < 0 {
		return p, usage("--max-steps %d: it must be a positive number of model calls, such as 20", f.maxSteps)
	}
	if f.window < 0 {
		return p, usage("--window %d: it must be the size of the model's context window in tokens, such as 32000", f.window)
	}
	if f.maxCost < 0 {
		return p, usage("--max-cost %g: it must be a positive number of US dollars, such as 2.5", f.maxCost)
	}
	p.Mode = permission.Mode(f.mode)
	var err error
	if p.Rules, err = parseRules(map[permission.Behavior][]string{
		permission.Allow: f.allow, permission.Ask: f.ask, permission.Deny: f.deny}); err != nil {
		return p, err
	}
	if f.more != nil {
		p.Rules = append(p.Rules, f.more.policy.Rules...)
		p.TrustReadOnly = f.more.policy.TrustReadOnly
	}
	p.Dirs, err = f.workDirs()
	return p, err
}

// runner runs an agent until it ends, with questions to the user if there is a terminal.
type runner struct {
	show    show
	painter *painter
	prompt  *prompt                             // nil without a terminal
	answer  func(*event.Approval) event.Confirm // automatic answers; nil for none
	log     io.Writer                           // for messages
	spent   spent
	models  modelSettings
}

// newRunner shows events as JSON, for a program, or as text. It has a prompt only if the user can both see the
// question and type: a yes from a pipe is not an answer.
func newRunner(cmd *cobra.Command, jsonEvents bool) *runner {
	r := &runner{log: cmd.ErrOrStderr(), painter: newPainter(cmd.ErrOrStderr())}
	if jsonEvents {
		r.show = showJSON(cmd.OutOrStdout())
		return r
	}
	r.show = showText(cmd.OutOrStdout(), r.log, r.painter)
	if isTerminal(cmd.InOrStdin()) && isTerminal(r.log) {
		r.prompt, r.painter.asks = newPrompt(cmd.InOrStdin(), r.log), true
	}
	return r
}

// run runs the agent until no question is left, or until a question cannot be answered.
func (r *runner) run(ctx context.Context, a *agent.Agent, s *conversation, inputs []agent.Input) error {
	for {
		// Each round is one run of the agent; the answers to its questions are the input of the next round.
		end, err := r.once(ctx, a, s, inputs)
		if err != nil {
			return r.explain(err, s)
		}
		switch end.Reason {
		case event.EndCompleted:
			return nil
		case event.EndLimit:
			return &exit{code: exitLimit}
		case event.EndInterrupted:
			return &exit{code: exitInterrupted}
		}
		if r.prompt == nil && r.answer == nil {
			r.listPending(s)
			return &exit{code: exitWaiting}
		}
		if inputs, err = r.answers(ctx, s); err != nil {
			if ctx.Err() != nil {
				return &exit{code: exitInterrupted}
			}
			// The questions cannot be answered now. The calls wait in the session, if there is one, which asks again when
			// it continues.
			r.listPending(s)
			return &exit{code: exitWaiting}
		}
	}
}

// once runs the agent until it ends or waits, and shows events. Leaving the loop ends the run and waits for its
// goroutines, so that the session stays consistent.
func (r *runner) once(ctx context.Context, a *agent.Agent, s *conversation, inputs []agent.Input) (*event.End, error) {
	var end *event.End
	for ev, err := range a.Run(ctx, s.State, inputs...) {
		if err != nil {
			return nil, err
		}
		r.spent.add(ev)
		if err := r.show(ev); err != nil {
			return nil, &exit{exitError, err} // the output is closed, so stop
		}
		if e, ok := ev.(*event.End); ok {
			end = e
		}
	}
	return end, nil
}

// explain adds the remedy to an error of a run.
func (r *runner) explain(err error, s *conversation) error {
	if e, ok := errors.AsType[*model.Error](err); ok {
		if remedy := r.models.remedy(e); remedy != "" {
			return fmt.Errorf("%w; %s", err, remedy)
		}
	}
	if errors.Is(err, agent.ErrWaiting) {
		r.listPending(s)
		return &exit{exitWaiting, errors.New("answer the waiting calls before a new task")}
	}
	return err
}

// answers asks about all calls that wait for approval. It fails if all waiting calls are the host's to run,
// since then the run cannot continue here.
func (r *runner) answers(ctx context.Context, s *conversation) ([]agent.Input, error) {
	var inputs []agent.Input
	for _, p := range s.Pending() {
		if q, ok := p.(*event.Approval); ok {
			answer, err := r.answerTo(ctx, q)
			if err != nil {
				return nil, err
			}
			inputs = append(inputs, answer)
		}
	}
	if len(inputs) == 0 {
		return nil, errNoAnswer
	}
	return inputs, nil
}

// answerTo asks one question, or answers it automatically.
func (r *runner) answerTo(ctx context.Context, q *event.Approval) (event.Confirm, error) {
	if r.answer == nil {
		fmt.Fprintln(r.log, r.painter.question(q))
		return r.prompt.ask(ctx, q)
	}
	answer := r.answer(q)
	if answer.Allow {
		fmt.Fprintln(r.log, "  answered: yes")
	} else {
		fmt.Fprintln(r.log, "  answered: no")
	}
	return answer, nil
}

// listPending prints the waiting calls and how to answer them.
func (r *runner) listPending(s *conversation) {
	fmt.Fprintln(r.log, "waiting for approval:")
	for _, p := range s.Pending() {
		switch p := p.(type) {
		case *event.Approval:
			fmt.Fprintf(r.log, "  %s  %s %s: %s\n", questionID(shorten(p.Call, maxName), p.Question), shorten(p.Name, maxName), shorten(arguments(p.Input, " "), maxArguments), plainLine(p.Reason))
		case *event.External:
			fmt.Fprintf(r.log, "  %s  %s %s: to be run by the host\n", shorten(p.Call, maxName), shorten(p.Name, maxName), shorten(arguments(p.Input, " "), maxArguments))
		}
	}
	if s.path == "" {
		fmt.Fprintln(r.log, "nothing was saved; run with --session FILE to answer later, or allow such calls with --allow RULE")
	} else {
		fmt.Fprintf(r.log, "answer with: kitbag run --session %s --answer CALL_ID.QUESTION=allow|deny[:reason]\n", s.path)
	}
}

// workDirs returns the current directory and the directories of --dir and the configurations.
func (f *toolFlags) workDirs() ([]string, error) {
	cwd, err := currentDir()
	if err != nil {
		return nil, err
	}
	dirs := []string{cwd}
	for _, d := range f.dirs {
		abs, err := existingDir(d)
		if err != nil {
			return nil, usage("--dir %s: %w", d, err)
		}
		dirs = append(dirs, abs)
	}
	if f.more != nil {
		dirs = append(dirs, f.more.policy.Dirs...)
	}
	return dirs, nil
}
