package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/permission"
)

type chatFlags struct {
	plain        bool
	continueLast bool
	resume       bool   // --resume, with or without an id
	resumeID     string // "" to choose from a list
	agentFlags
}

func chatCommand() *cobra.Command {
	f := &chatFlags{}
	cmd := &cobra.Command{
		Use:   "chat [flags] [--resume [ID]]",
		Short: "Talk with an agent in the current directory",
		Long: `Talk with an agent in the current directory. It has the same
tools, questions and flags as "kitbag run".

Enter sends the message; Alt-Enter, Ctrl-J or a backslash before Enter begins a new
line in it. Text that is pasted is one message, however many lines it has. The up
and down keys go through the messages that were sent in this directory; secrets are
removed from them. A message that is sent while the agent works is answered
afterwards.

Ctrl-C stops the work, and never sends what was typed; it stays in the editor.
At the prompt Ctrl-C empties the editor, and Ctrl-C again, or Ctrl-D, leaves.
A limit such as --max-steps starts again with each message.

A word such as @main.go or @screen.png in a message adds the content of that file:
text of up to 100 kB, or a picture (PNG, JPEG, GIF) of up to 5 MB. The rules for Read
apply to it, and you are asked about files with credentials or outside the directory.
The tab key completes names of files and commands.

A question about a call shows the call completely. The answers are: once, for this
session, for this project (the rule is written to kitbag.json), or no, with a reason
for the model. The rule can be edited before it is kept.

The conversation is kept, sealed and without secrets, in the user's state directory
(~/.local/state/kitbag on Linux). --continue continues the last conversation of this
directory, --resume ID the one with the id, and --resume one that you choose from a
list. "kitbag sessions" lists and removes them, and shows how long they are kept.

Before and after each turn kitbag makes a snapshot of the working directories, so that
/diff can show what the turn changed, by Bash too, and /undo can undo it, except in files
that were changed since. Files that .gitignore excluded at the start are not included.

With --plain, and where standard output is not a terminal, everything is plain lines,
as screen readers and pipes need them: a line is a message, and a line that ends with
a backslash continues on the next.

Lines that begin with a slash are commands of kitbag:
` + chatHelp(),
		Example: `  kitbag chat
  kitbag chat --continue           # continue the last conversation here
  kitbag chat --resume             # choose a conversation from a list
  kitbag chat --session s          # save the conversation in s.jsonl, or continue it
  kitbag chat --plain              # for a screen reader`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.resume && len(args) == 1 {
				f.resumeID = args[0]
				return nil
			}
			return noArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !f.plain && fullTerminal(cmd) {
				return f.onScreen(cmd)
			}
			r := newRunner(cmd, false)
			if r.prompt == nil {
				return usage(`chat needs a terminal; without one use kitbag run "task", and --session to continue`)
			}
			return f.run(cmd.Context(), cmd, r, lineFrontend{r.prompt, r.log})
		},
	}
	cmd.Flags().BoolVar(&f.plain, "plain", false, "plain lines instead of an editor, for screen readers")
	cmd.Flags().BoolVar(&f.continueLast, "continue", false, "continue the last conversation of this directory")
	cmd.Flags().BoolVar(&f.resume, "resume", false, "continue a conversation of this directory: the one with the id that follows, or one from a list")
	f.register(cmd)
	cmd.MarkFlagsMutuallyExclusive("continue", "resume")
	return cmd
}

// run configures the agent and takes turns until the user leaves.
func (f *chatFlags) run(ctx context.Context, cmd *cobra.Command, r *runner, ui frontend) (err error) {
	if err := f.configure(ctx, cmd, r.prompt); err != nil {
		return err
	}
	r.prompt.keepRules = func(ctx context.Context, rules []permission.Rule) error {
		return f.keepRules(ctx, r.prompt, rules)
	}
	if err := f.chooseSession(ctx, r.prompt); err != nil {
		return err
	}
	files := new(fileHistory)
	defer func() { err = errors.Join(err, files.close()) }()
	var usable *agentFlags // of the agent that ran last; nil if there was none, or if its flags failed now
	for first := true; ; first = false {
		started := false
		err := f.withAgent(ctx, r, func(k *kit, s *conversation) error {
			defer catchInterrupts()()
			flags := f.agentFlags
			started, usable = true, &flags
			return (&chat{runner: r, flags: f, frontend: ui, kit: k, conv: s, files: files}).takeTurns(ctx, first)
		})
		switch {
		case errors.Is(err, errRecreateAgent):
		case started || usable == nil || ctx.Err() != nil:
			return err
		default: // such as a model without a key: the chat continues as before
			fmt.Fprintf(r.log, "! taken back: %s\n", indented(err.Error()))
			f.agentFlags, usable = *usable, nil
		}
	}
}

// errRecreateAgent means that a slash command has changed the flags, so the agent must be created again.
var errRecreateAgent = errors.New("the agent must be created again")

// catchInterrupts replaces main's handling of interrupts, which would end the program: the frontend handles them, and
// between two turns they have no effect. Call stop at the end of the chat.
func catchInterrupts() (stop func()) {
	signal.Reset(os.Interrupt)
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, os.Interrupt)
	return func() { signal.Stop(unread) }
}

// A frontend is where the user types messages: a lineFrontend or a term.Screen.
type frontend interface {
	// Message returns the next message, or an error at the end of the input.
	Message(ctx context.Context) (string, error)

	// Work returns a context that ends when the user interrupts, until stop is called. The status line has the label.
	Work(ctx context.Context, label string) (working context.Context, stop func())
}

// A chat is a conversation with a user at a terminal. Its runner has a prompt.
type chat struct {
	*runner
	flags    *chatFlags
	frontend frontend
	kit      *kit
	conv     *conversation
	files    *fileHistory
}

// takeTurns takes turns until the user leaves. first is false if the agent was created again.
func (c *chat) takeTurns(ctx context.Context, first bool) error {
	if first {
		c.welcome()
	}
	if len(c.conv.Pending()) > 0 { // left over from the last chat
		if err := c.withSnapshots(ctx, "an answer to a question of the last chat", func() error { return c.turn(ctx) }); err != nil {
			return err
		}
	}
	for {
		text, err := c.frontend.Message(ctx)
		switch {
		case ctx.Err() != nil:
			return &exit{code: exitInterrupted} // terminated by a signal
		case err != nil: // Ctrl-D, or Ctrl-C at the prompt
			return nil
		case text == "":
			continue
		}
		if name, arg, ok := parseSlash(text); ok {
			switch err := c.command(ctx, name, arg); {
			case errors.Is(err, errLeave):
				return nil
			case errors.Is(err, errRecreateAgent):
				return err
			case err != nil:
				c.showError(err)
			}
			continue
		}
		blocks, err := attachments(text, func(name string) (permission.File, error) { return c.judgeAttachment(ctx, name) })
		if err != nil {
			c.showError(err)
			continue
		}
		if err := c.withSnapshots(ctx, text, func() error { return c.turn(ctx, c.say(text, blocks)) }); err != nil {
			return err
		}
	}
}

// welcome prints how to get help, and the end of a conversation that is continued.
func (c *chat) welcome() {
	fmt.Fprintln(c.log, "/help lists the commands; Ctrl-D leaves.")
	n := len(c.conv.Messages)
	if n == 0 {
		return
	}
	name := c.conv.path
	if dir, err := keptDir(); err == nil && filepath.Dir(name) == dir {
		name = filepath.Base(name) // the id for --resume
	}
	fmt.Fprintf(c.log, "continuing %s, after %d messages.\n", name, n)
	sent, answer := lastExchange(c.conv.State)
	if sent != "" {
		fmt.Fprintf(c.log, "\n> %s\n", indented(sent))
	}
	if answer != "" {
		fmt.Fprintf(c.log, "\n%s\n", plain(answer))
	}
}

// turn runs the agent on the inputs until it is done or interrupted. An error that ends only the turn is
// printed, not returned.
func (c *chat) turn(ctx context.Context, inputs ...agent.Input) error {
	turnCtx, stop := c.frontend.Work(ctx, "thinking")
	err := c.run(turnCtx, c.kit.agent, c.conv, inputs)
	stop()
	if ctx.Err() != nil {
		return &exit{code: exitInterrupted} // terminated by a signal: keep the pending calls
	}
	e, _ := errors.AsType[*exit](err)
	switch {
	case err == nil:
	case e == nil:
		c.showError(err)
	case e.code == exitInterrupted:
		return c.dropPending(ctx)
	case e.code != exitLimit: // the event of the limit has already been shown
		return err
	}
	return nil
}

// dropPending cancels the calls that still wait after an interrupt: while calls wait the agent accepts no message.
func (c *chat) dropPending(ctx context.Context) error {
	if len(c.conv.Pending()) == 0 {
		return nil
	}
	_, err := c.runOnce(ctx, c.kit.agent, c.conv, []agent.Input{agent.Interrupt{}})
	return err
}

func (c *chat) showError(err error) {
	fmt.Fprintln(c.log, c.painter.paint(red, "! "+indented(err.Error())))
}
