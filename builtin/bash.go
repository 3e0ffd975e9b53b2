package builtin

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/builtin/internal/shell"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

var (
	//go:embed text/bash.md
	bashText string
	//go:embed text/bash_sandbox.md
	sandboxText string // appended to bashText if the backend has a sandbox
	//go:embed text/bash_unconfined.md
	unconfinedText string // appended to bashText if the backend has no sandbox
)

const (
	defaultTimeout = 120_000 // milliseconds
	maxTimeout     = 600_000
	maxOutput      = 30_000 // characters of output that are returned by default
)

type bashIn struct {
	Command     string `json:"command" jsonschema:"minLength=1" jsonschema_description:"the command, in the bash language"`
	Description string `json:"description,omitempty" jsonschema_description:"what the command does, in a few words, for the user who watches"`
	Timeout     int    `json:"timeout,omitempty" jsonschema:"minimum=1,default=120000" jsonschema_description:"milliseconds after which the command is killed; 600000 at most"`
}

// confinedIn has the arguments of Bash if the backend has a sandbox.
type confinedIn struct {
	bashIn
	Outside bool `json:"outside_sandbox,omitempty" jsonschema_description:"run outside the sandbox, if the user agrees; only for a command that failed because of it"`
}

const outsideField = "outside_sandbox" // the JSON name of Outside

// bashOut is the structured result of Bash.
type bashOut struct {
	ExitCode int    `json:"exit_code"` // -1 after a signal
	Signal   string `json:"signal,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Omitted  int    `json:"omitted,omitempty"` // characters of output that were removed from the middle
	Binary   int    `json:"binary,omitempty"`  // bytes of output that are not text, and were removed

	// A process that the command left behind had the output open, and was ended.
	LeftBehind bool `json:"left_behind,omitempty"`

	// What a sandbox denied the command.
	Denied string `json:"denied,omitempty"`
}

// A bash is not a [tool.Backgrounder]: a command may change any file, and so invalidate the judgement of a
// concurrent call.
type bash struct {
	tool.Tool
	Config
	confined     bool              // the backend has a sandbox
	confinesRead bool              // the sandbox also has the profile read
	dir          []permission.File // the only element is the directory in which commands run
}

// Bash returns the tool that runs commands. It needs a bash in PATH: commands are judged by bash's grammar, so no
// other shell may run them.
func Bash(c Config) (tool.Tool, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	b := &bash{Config: c, dir: []permission.File{{Path: c.Dirs[0]}}}
	backend, ok := c.Backend.(confiner)
	if !ok || backend.Confines(permission.ProfileWork) != nil {
		b.Tool, err = tool.NewStream("Bash", bashText+unconfinedText, b.run)
		return b, err
	}
	b.confined, b.confinesRead = true, backend.Confines(permission.ProfileRead) == nil
	b.Tool, err = tool.NewStream("Bash", bashText+sandboxText, func(ctx context.Context, in confinedIn) iter.Seq2[tool.Chunk, error] {
		return b.run(ctx, in.bashIn)
	})
	return b, err
}

// A confiner is a [Backend] with a sandbox.
type confiner interface {
	Confines(permission.Profile) error
}

func (b *bash) run(ctx context.Context, in bashIn) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		runCtx, cancel := context.WithTimeout(ctx, in.timeout())
		defer cancel()

		// A third of the output is for the beginning, which is streamed; the rest is for the end, where errors are.
		maxChars := cmp.Or(b.MaxOutput, maxOutput)
		out := newClip(maxChars/3, maxChars-maxChars/3)
		var exit Exit
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil { // the backend panicked
					err = fmt.Errorf("the backend failed unexpectedly: %v", p)
				}
			}()
			exit, err = b.Backend.Run(runCtx, b.backendCommand(ctx, in, out))
		}()
		consumerStopped := false
		for running := true; running; {
			select {
			case <-out.hasPending:
			case <-done:
				running = false
			}
			if text := out.takePending(); text != "" && !consumerStopped && !yield(outputChunk(text), nil) {
				consumerStopped = true
				cancel() // but wait for done: the command must not run on after the call
			}
		}
		switch {
		case consumerStopped:
		case ctx.Err() != nil:
			yield(tool.Chunk{}, ctx.Err())
		case err != nil && runCtx.Err() == nil:
			yield(tool.Chunk{}, b.startError(err))
		default: // the command ended, or timed out if there is an error
			yield(out.lastChunk(exit, err != nil, in), nil)
		}
	}
}

// textToRun returns the text to run for an analysed command, or "" if the command cannot be parsed.
func textToRun(a *shell.Analysis) string {
	if text := a.Text(); text != "" || a.Err() != nil {
		return text
	}
	return ":" // the command has only comments, which bash could read as commands: do nothing
}

// backendCommand returns the command for the backend. The text that was judged runs. If the call was not judged, the
// text of a new analysis runs; the model's own text runs only if it cannot be parsed.
func (b *bash) backendCommand(ctx context.Context, in bashIn, out io.Writer) Command {
	c := Command{Dir: b.Dirs[0], Output: out}
	at, text := b.place(nil), ""
	if j := tool.CallFrom(ctx).Judgement; j != nil {
		text, c.Profile, c.Network = j.Text, j.Profile, j.Network
		c.Except, c.Keep = j.Except, j.Keep
		if c.Profile == "" { // the judgement is not from this package
			c.Profile = permission.ProfileWork
		}
	}
	if text == "" {
		text = cmp.Or(textToRun(shell.Analyze(in.Command, at)), in.Command)
	}
	c.Args = []string{"bash", "--noprofile", "--norc", "-c", text}
	a, base := shell.Analyze(text, at), b.withoutCredentials(os.Environ())
	c.Env = a.Environ(base)
	if c.Profile == permission.ProfileRead { // even if files have changed so that a is not read-only
		c.Env = a.ReadingEnviron(base)
	}
	return c
}

// outputChunk returns a part of the result's only text block.
func outputChunk(text string) tool.Chunk {
	return tool.Chunk{Block: &message.Text{ID: "output", Text: text}}
}

func (b *bash) startError(err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("bash is not installed on this machine or not in PATH; commands cannot run until it is")
	}
	return fmt.Errorf("bash cannot be started in %s: %w", b.Dirs[0], err)
}

func (in *bashIn) timeout() time.Duration {
	if in.Timeout <= 0 {
		return defaultTimeout * time.Millisecond
	}
	return time.Duration(min(in.Timeout, maxTimeout)) * time.Millisecond
}

// lastChunk returns the chunk that ends the result: the rest of the output, and how the command ended.
func (c *clip) lastChunk(exit Exit, timedOut bool, in bashIn) tool.Chunk {
	rest, omitted, binaryBytes := c.finish()
	var b strings.Builder
	if omitted > 0 {
		fmt.Fprintf(&b, "\n\n[%d characters left out; to see them, run the command with its output redirected, as in `command >file 2>&1`, and read or search the file]\n\n", omitted)
	}
	b.WriteString(rest)
	if c.empty() {
		b.WriteString("(no output)")
	}
	failure := ""
	switch {
	case timedOut:
		failure = fmt.Sprintf("\n[timed out after %d ms; every process of the command was killed: give a longer timeout, or do less at a time]", in.timeout().Milliseconds())
	case exit.Signal != "":
		failure = fmt.Sprintf("\n[ended by signal: %s]", exit.Signal)
	case exit.Code != 0:
		failure = fmt.Sprintf("\n[exit code %d]", exit.Code)
	}
	b.WriteString(failure)
	if exit.LeftBehind {
		b.WriteString("\n[a background process still had the output open when the command ended, and was stopped; to keep one running, redirect its output, as in `server >server.log 2>&1 &`]")
	}
	if exit.Denied != "" {
		fmt.Fprintf(&b, "\n[%s", exit.Denied)
		if exit.Code != 0 { // a command that succeeded need not run again
			b.WriteString(". To ask the user for that, make the call again with \"" + outsideField + "\": true")
		}
		b.WriteString("]")
	}
	if in.Timeout > maxTimeout {
		fmt.Fprintf(&b, "\n[timeout %d is too long; %d was used]", in.Timeout, maxTimeout)
	}
	last := outputChunk(b.String())
	last.Failed = failure != ""
	last.Structured = encode(bashOut{exit.Code, exit.Signal, timedOut, omitted, binaryBytes, exit.LeftBehind, exit.Denied})
	return last
}

// Judge implements [tool.Judge].
func (b *bash) Judge(c *permission.Call) {
	call := &bashCall{bash: b, at: b.place(nil)}
	call.command, call.outside, call.hasCommand = readInput(c.Input)
	a, _ := call.analyze(nil)
	c.Checker, c.ReadOnly = call, a != nil && a.ReadOnly() == ""
	c.Borrows = borrowedByBash
}

// borrowedByBash are the tools whose rules also apply to files that a command is known to read or change.
var borrowedByBash = []string{"Read", "Write", "Edit"}

// A bashCall is the [permission.Checker] of one call.
type bashCall struct {
	*bash
	at           pathrule.Place // what paths are resolved with; a policy may replace at.Dirs
	command      string
	hasCommand   bool                           // false if the input does not fit the schema
	outside      bool                           // the input requests to leave the sandbox
	lastAnalysis atomic.Pointer[shell.Analysis] // cached, since each rule of a decision needs an analysis
}

// Check implements [permission.Checker].
func (c *bashCall) Check(p *permission.Policy) permission.Verdict {
	a, at := c.analyze(p)
	if a == nil {
		v := askBadInput
		v.Found.Profile, v.Confined = permission.ProfileWork, c.confined
		return v
	}
	v := c.verdict(p, a, at)
	profile := permission.ProfileWork
	if a.ReadOnly() == "" {
		profile = permission.ProfileRead
	}
	// Mode bypass does not ask, so the command stays in the sandbox.
	if c.confined && c.outside && (p == nil || p.Mode != permission.ModeBypass) {
		v, profile = askToLeaveSandbox(v), permission.ProfileOpen
	}
	v.Found.Text, v.Found.Profile, v.Found.Network = textToRun(a), profile, a.Networks()
	v.Found.Files = c.dir // an approval does not count in another directory
	if c.confined && p != nil {
		v.Found.Except = globsOf(p, *at, func(r *permission.Rule) bool { return denies(r) && r.Names("Read") })
		v.Found.Keep = globsOf(p, *at, func(r *permission.Rule) bool { return denies(r) && (r.Names("Write") || r.Names("Edit")) })
	}
	v.Confined = c.confined && (profile != permission.ProfileRead || c.confinesRead)
	return v
}

// denies also counts a rule with an unknown behavior.
func denies(r *permission.Rule) bool {
	return r.Behavior != permission.Allow && r.Behavior != permission.Ask
}

// askToLeaveSandbox returns the verdict on a command that requests to leave the sandbox and otherwise has the verdict v.
func askToLeaveSandbox(v permission.Verdict) permission.Verdict {
	why := "the command would run outside the sandbox, with all files, the network and the programs of this machine"
	if v.Safety {
		why += "; " + v.Reason
	}
	return safetyAsk(why)
}

func (b *bash) verdict(p *permission.Policy, a *shell.Analysis, at *pathrule.Place) permission.Verdict {
	if dangers := a.Dangers(*at, b.protected()); len(dangers) > 0 {
		return safetyAsk(dangers[0].Reason)
	}
	if rule, verb := possibleDenial(p, a, at); rule != "" {
		return safetyAsk("it " + verb + " files whose names are known only at run time, which the rule " + rule + " may cover")
	}
	why := a.ReadOnly()
	if why == "" {
		return permission.Verdict{Behavior: permission.Allow, Reason: "read-only command"}
	}
	if editsAllowed(p) && a.EditsInside(*at) {
		return permission.Verdict{Behavior: permission.Allow, Reason: "changes files in the working directories only"}
	}
	return permission.Verdict{Reason: why}
}

// possibleDenial returns the deny rule that may cover a file which the command reads or changes under a name known only
// at run time, and whether it "reads" or "changes" the file. Such a rule causes a question, not a denial.
func possibleDenial(p *permission.Policy, a *shell.Analysis, at *pathrule.Place) (rule, verb string) {
	if p == nil {
		return "", ""
	}
	for _, r := range p.Rules {
		switch {
		case !denies(&r) || r.Pattern == "":
		case r.Names("Read") && a.MayRead(*at, r.Pattern):
			return r.String(), "reads"
		case (r.Names("Write") || r.Names("Edit")) && a.MayWrite(*at, r.Pattern):
			return r.String(), "changes"
		}
	}
	return "", ""
}

// Match implements [permission.Checker]. An allow rule covers a command of several parts if it covers one part
// and the allow rules of p together cover all parts.
func (c *bashCall) Match(p *permission.Policy, r permission.Rule) (bool, error) {
	a, at := c.analyze(p)
	// A file that the command possibly reads or changes counts for an ask rule. For a deny rule it counts only in mode
	// bypass; in other modes possibleDenial causes a question.
	possibleCounts := r.Behavior == permission.Ask || p.Mode == permission.ModeBypass
	switch {
	case a == nil:
		return false, errBadInput
	case r.Tool == "Read":
		reads, err := a.Reads(*at, r.Pattern)
		return reads || possibleCounts && a.MayRead(*at, r.Pattern), err
	case r.Tool == "Write" || r.Tool == "Edit":
		writes, err := a.Writes(*at, r.Pattern)
		return writes || possibleCounts && a.MayWrite(*at, r.Pattern), err
	}
	if r.Behavior != permission.Allow {
		return a.Mentions(r.Pattern)
	}
	var allowed []string
	for _, other := range p.Rules {
		if other.Behavior == permission.Allow && other.Tool == r.Tool && other.Pattern != "" {
			allowed = append(allowed, other.Pattern)
		}
	}
	return a.CoveredBy(r.Pattern, allowed...)
}

// Suggest implements [permission.Checker].
func (c *bashCall) Suggest(p *permission.Policy) []permission.Rule {
	a, _ := c.analyze(p)
	if a == nil {
		return nil
	}
	return allowRules("Bash", a.Suggest()...)
}

// Parts implements [permission.Checker]: a part for every simple command.
func (c *bashCall) Parts(p *permission.Policy) []permission.Part {
	a, _ := c.analyze(p)
	if a == nil {
		return nil
	}
	parts := []permission.Part{}
	for _, cmd := range a.Commands() {
		part := permission.Part{Argv: cmd.Argv, Effects: []string{}, Reason: cmd.Reason}
		for _, e := range cmd.Effects {
			part.Effects = append(part.Effects, string(e))
		}
		parts = append(parts, part)
	}
	return parts
}

// analyze returns the analysis of the command, and what the command's paths are resolved with under p. The analysis
// is nil if the input does not fit the schema.
func (c *bashCall) analyze(p *permission.Policy) (*shell.Analysis, *pathrule.Place) {
	at := &c.at
	if dirs := c.workingDirs(at, p); !slices.Equal(dirs, at.Dirs) {
		underPolicy := c.at
		underPolicy.Dirs = dirs
		at = &underPolicy
	}
	if !c.hasCommand {
		return nil, at
	}
	a := c.lastAnalysis.Load()
	if a == nil || !a.Holds(at.Dirs) {
		a = shell.Analyze(c.command, *at)
		c.lastAnalysis.Store(a)
	}
	return a, at
}
