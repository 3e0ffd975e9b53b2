package main

import (
	"cmp"
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
	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
)

type runFlags struct {
	json    bool
	answers []string // unparsed; see parseAnswer
	agentFlags
}

// agentFlags describe an agent and its conversation, for "kitbag run" and "kitbag chat".
type agentFlags struct {
	session          string // the path of the session; "" for a conversation that ends with the program
	trustSession     bool   // accept a session that is not sealed with the user's key
	noRedact         bool   // save and show secrets
	mode             string // one of modes
	allow, ask, deny []string
	settings
	toolFlags
}

// toolFlags select an agent's tools, skills and servers.
type toolFlags struct {
	dirs, skills, mcp []string
	trust             bool     // trust the directory's configuration and skills without asking
	trustedDirs       []string // the directories that the user trusts: commands may use their programSettings without approval
	config            config   // the merged configurations; empty until they are read
}

// register adds the flags about tools, which "kitbag tools" and "kitbag run" share.
func (f *toolFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.dirs, "dir", nil, "a further working `DIRECTORY`, repeatable")
	fl.StringArrayVar(&f.skills, "skills", nil, "a `DIRECTORY` of skills, repeatable (default .agents/skills, .claude/skills and those of kitbag.json)")
	fl.StringArrayVar(&f.mcp, "mcp", nil, "a `FILE` with MCP servers under mcpServers, in addition to those of kitbag.json; repeatable")
	fl.BoolVar(&f.trust, "trust", false, "trust the directory's kitbag.json and skills, this time")
}

func (f *agentFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.session, "session", "", "save the conversation in `FILE`.jsonl, or continue the one in it")
	fl.BoolVar(&f.trustSession, "trust-session", false, "trust a session that is not sealed with your key: its conversation and its rules")
	fl.BoolVar(&f.noRedact, "no-redact", false, "do not redact secrets in the session and in the output")
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

// modes are the modes of package permission, spelled as in settings files.
var modes = []string{"default", "accept-edits", "sandboxed", "explore", "bypass", "dont-ask"}

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
other than Anthropic's. --fallback names models to call when one fails; they may be of
the other vendor.

An MCP server is started when the model opens a group of its tools; until then the
model sees the names of its tools when it last ran. In kitbag.json "groups" adds groups
of tools, and "labels" names the servers that may add their own (default all). Servers ask
you at the terminal. Rules for mcp__SERVER__sampling decide about their use of the model.

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

The baseURL applies only to models with the same API as the model of this file. lateTools
says that the server at baseURL accepts tools added in mid-conversation, as OpenAI's and
Anthropic's do. "models" names a file with windows and prices that kitbag lacks or has
wrong: {"models": {"NAME": {"window": 32000, "price": {"input": 0.2, "output": 0.6}}}},
prices in US dollars for 1,000,000 tokens.

On Linux commands run confined, if the kernel permits it. In the mode sandboxed,
commands that are not dangerous run without a question. "kitbag sandbox --help"
explains the settings, "kitbag sandbox status" shows the result.

Until you trust the current directory at the terminal, or with --trust, only the
restrictions in its kitbag.json apply: ask and deny rules, and "protect" and "hide" of the
sandbox. Its skills in .agents/skills and .claude/skills are not used, nor are AGENTS.md
and CLAUDE.md (here and above, up to the root of the repository; 64 kB at most), since
they are instructions of their authors.

A task of - is read from standard input. The model's text goes to standard output.
The actions of tools, and at the end the cost, go to standard error. You are asked at
the terminal about calls that no rule allows; without a terminal the run ends with exit
code 3 and lists the waiting calls.

` + exitCodes + `.`,
		Example: `  kitbag run "what does this repository do?"
  kitbag run --allow 'Bash(go test:*)' "make the tests pass"
  kitbag run - < task.md
  kitbag run --json --session s "clean up"   # ends with code 3 at a question
  kitbag run --json --session s --answer call_1.9=allow   # an id that the run before printed`,
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
	fl.StringArrayVar(&f.answers, "answer", nil, "answer a waiting call: `CALL_ID.QUESTION=allow|deny[:reason]`, repeatable; each waiting call is listed with its CALL_ID.QUESTION, and CALL_ID alone means its current question")
	f.register(cmd)
	return cmd
}

// run runs the agent with the answers and the task as inputs. Without inputs it continues the session, and asks about the
// calls that wait.
func (f *runFlags) run(cmd *cobra.Command, args []string) error {
	var inputs []agent.Input
	for _, text := range f.answers {
		answer, err := parseAnswer(text)
		if err != nil {
			return err
		}
		inputs = append(inputs, answer)
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
		return usage("--answer needs --session FILE with the session that has the waiting calls")
	}
	r := newRunner(cmd, f.json)
	if err := f.configure(cmd.Context(), cmd, r.prompt); err != nil {
		return err
	}
	return f.withAgent(cmd.Context(), r, func(k *kit, s *conversation) error {
		hasInputs, err := s.hasInputs(cmd.Context())
		if err != nil {
			return err
		}
		if len(inputs) == 0 && !hasInputs && s.finished() {
			return usage(`no call waits in %s; say what to do: kitbag run --session %[1]s "task"`, s.path)
		}
		err = r.run(cmd.Context(), k.agent, s, inputs)
		if !f.json && r.spent.steps > 0 {
			fmt.Fprintln(r.log, r.painter.paint(dim, r.spent.String()))
		}
		return err
	})
}

// maxTask is the size of the largest task from standard input, in bytes, since a pipe may be endless.
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
			return "", usage("the task on standard input has more than %d bytes; put it into a file, and let the agent read the file", maxTask)
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

// withAgent calls use with the conversation of --session, or a new one, and an agent for it. It closes both afterwards.
func (f *agentFlags) withAgent(ctx context.Context, r *runner, use func(*kit, *conversation) error) (err error) {
	if _, err := f.policy(); err != nil { // check the flags before the session is opened
		return err
	}
	warn := func(text string) { fmt.Fprintln(r.log, r.painter.paint(yellow, "! "+plainLine(text))) }
	s, err := openConversation(ctx, f.session, f.trustSession)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	flags, err := f.withCopySettings(s.State, warn)
	if err != nil {
		return err
	}
	policy, err := flags.policy()
	if err != nil {
		return err
	}
	r.models = flags.modelSettings
	k, err := flags.newKit(ctx, policy, s, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	return use(k, s)
}

// withCopySettings returns the flags with the model and policy that "kitbag ui" has stored in a copy of a conversation.
func (f *agentFlags) withCopySettings(st *agent.State, warn func(string)) (*agentFlags, error) {
	variant, err := inspect.VariantOf(st)
	if err != nil {
		return nil, fmt.Errorf("%s is a copy whose model or policy cannot be read: %w; make another copy", f.session, err)
	}
	flags := *f
	if variant.Model != "" && variant.Model != flags.model {
		warn("this conversation is a copy that runs with the model " + variant.Model)
		flags.model = variant.Model
	}
	if p := variant.Settings; p != nil {
		warn("this conversation is a copy that runs with its own mode and rules; --ask and --deny apply too, but not --mode, --allow and the rules in kitbag.json")
		flags.config.policy = *p
		flags.mode, flags.allow = cmp.Or(string(p.Mode), "default"), nil
	}
	return &flags, nil
}

// policy checks the settings and returns the policy of the flags and the configurations. Rules of flags come first.
func (f *agentFlags) policy() (permission.Policy, error) {
	p := permission.Policy{}
	if !slices.Contains(modes, f.mode) {
		return p, usage("--mode %q: the modes are %s", f.mode, strings.Join(modes, ", "))
	}
	for _, t := range allSettings {
		if v := t.value(&f.settings); isNegative(v) {
			return p, usage("--%s %v: it must be %s", t.flag, v, t.want)
		}
	}
	p.Mode = permission.Mode(f.mode)
	var err error
	if p.Rules, err = parseRules(map[permission.Behavior][]string{
		permission.Allow: f.allow, permission.Ask: f.ask, permission.Deny: f.deny}); err != nil {
		return p, err
	}
	p.Rules = append(p.Rules, f.config.policy.Rules...)
	p.TrustReadOnly = f.config.policy.TrustReadOnly
	p.Dirs, err = f.workDirs()
	return p, err
}

// A runner runs an agent until it ends, with questions to the user if there is a terminal.
type runner struct {
	show    eventPrinter
	painter *painter
	prompt  *prompt                             // nil without a terminal
	answer  func(*event.Approval) event.Confirm // answers instead of the user; nil to ask the user
	log     io.Writer                           // standard error, or the chat's screen
	spent   spent
	models  modelSettings // for remedies in errors
}

// newRunner returns a runner that shows events as text or as JSON. A runner for text has a prompt if the user can both see
// a question and type: a yes from a pipe is not an answer.
func newRunner(cmd *cobra.Command, jsonEvents bool) *runner {
	r := &runner{log: cmd.ErrOrStderr(), painter: newPainter(cmd.ErrOrStderr())}
	if jsonEvents {
		r.show = showJSON(cmd.OutOrStdout())
		return r
	}
	r.show = showText(cmd.OutOrStdout(), r.log, r.painter)
	if isTerminal(cmd.InOrStdin()) && isTerminal(r.log) {
		r.prompt, r.painter.hasPrompt = newPrompt(cmd.InOrStdin(), r.log), true
	}
	return r
}

// run runs the agent until it ends, or until a question cannot be answered.
func (r *runner) run(ctx context.Context, a *agent.Agent, s *conversation, inputs []agent.Input) error {
	for {
		// Each round is one run of the agent; the answers to its questions are the input of the next round.
		end, err := r.runOnce(ctx, a, s, inputs)
		if err != nil {
			return r.withRemedy(err, s)
		}
		switch end.Reason {
		case event.EndCompleted:
			return nil
		case event.EndLimit:
			return &exit{code: exitLimit}
		case event.EndInterrupted:
			return &exit{code: exitInterrupted}
		}
		if r.prompt == nil && r.answer == nil { // the run waits for answers, and no one can give them now
			r.listPending(s)
			return &exit{code: exitWaiting}
		}
		if inputs, err = r.askAll(ctx, s); err != nil {
			if ctx.Err() != nil {
				return &exit{code: exitInterrupted}
			}
			r.listPending(s)
			return &exit{code: exitWaiting}
		}
	}
}

// runOnce runs the agent until it ends or waits, and shows its events. Without inputs it takes those that wait in the
// session's inbox. Leaving the loop early ends the run and waits for its goroutines, so the session stays consistent.
func (r *runner) runOnce(ctx context.Context, a *agent.Agent, s *conversation, inputs []agent.Input) (*event.End, error) {
	events := a.Run(ctx, s.State, inputs...)
	if hasInputs, err := s.hasInputs(ctx); err != nil {
		return nil, err
	} else if hasInputs && len(inputs) == 0 {
		events = s.session.Run(ctx, a)
	}
	end := &event.End{Reason: event.EndWaiting} // unless a run ends: all inputs of the inbox were refused
	for ev, err := range events {
		if err != nil {
			return nil, err
		}
		r.spent.add(ev)
		if err := r.show(ev); err != nil {
			return nil, &exit{exitError, err} // the output is closed
		}
		if e, ok := ev.(*event.End); ok {
			end = e
		}
	}
	return end, nil
}

// withRemedy adds what the user can do to an error of a run. If a new task was refused since calls wait, it lists the calls.
func (r *runner) withRemedy(err error, s *conversation) error {
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

// askAll asks about all calls that wait for approval. It fails if only calls of external tools wait, since the user cannot
// answer those here.
func (r *runner) askAll(ctx context.Context, s *conversation) ([]agent.Input, error) {
	var inputs []agent.Input
	for _, p := range s.Pending() {
		if q, ok := p.(*event.Approval); ok {
			answer, err := r.askOne(ctx, q)
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

// askOne asks one question, or answers it automatically.
func (r *runner) askOne(ctx context.Context, q *event.Approval) (event.Confirm, error) {
	if r.answer == nil {
		fmt.Fprintln(r.log, r.painter.question(q))
		return r.prompt.askApproval(ctx, q)
	}
	answer := r.answer(q)
	text := "no"
	if answer.Allow {
		text = "yes"
	}
	fmt.Fprintln(r.log, "  answered:", text)
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

// workDirs returns the current directory, which must be first, and the directories of --dir and the configurations.
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
	return append(dirs, f.config.policy.Dirs...), nil
}
