package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/permission"
)

// chatFlags are the flags of kitbag chat.
type chatFlags struct {
	plain    bool
	cont     bool   // --continue
	resume   bool   // --resume, with or without an id
	resumeID string // "" to choose from a list
	agentFlags
}

// chatCommand is "kitbag chat": "kitbag run" with more turns.
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
removed from them. A message that is sent while the agent works is its next.

Ctrl-C stops the work, and never sends what was typed; it stays in the editor.
At the prompt Ctrl-C empties the editor, and Ctrl-C again, or Ctrl-D, leaves.
A limit such as --max-steps starts again with each message.

A word such as @main.go or @screen.png in a message adds the content of that file:
text of up to 100 kB, or a picture (PNG, JPEG, GIF) of up to 5 MB. The rules for Read
hold for it, and you are asked about files with credentials or outside the directory.
The tab key completes names of files and commands.

A question about a call shows the call completely. The answers are: once, for this
session, for this project (the rule is written to kitbag.json), or no, with a reason
for the model. The rule can be edited before it is kept.

The conversation is kept, sealed and without secrets, in the user's state directory
(~/.local/state/kitbag on Linux). --continue goes on with the last one of this
directory, --resume with the one that is chosen from a list, or that has the id.

Before each turn the files of the working directories are remembered, so that /diff
can show what the turn changed, by Bash too, and /undo can take it back where nobody
has changed a file since. Files that .gitignore excludes are not remembered.

With --plain, and where standard output is not a terminal, everything is plain lines,
as screen readers and pipes need them: a line is a message, and one that ends with a
backslash continues on the next.

Lines that begin with a slash are commands of kitbag:
` + chatHelp(),
		Example: `  kitbag chat
  kitbag chat --continue           # go on with the last conversation here
  kitbag chat --resume             # choose one from a list
  kitbag chat --session s.json     # continue it another day
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
			return f.talk(cmd.Context(), cmd, r, lineFront{r.prompt, r.log})
		},
	}
	cmd.Flags().BoolVar(&f.plain, "plain", false, "plain lines instead of an editor, for screen readers")
	cmd.Flags().BoolVar(&f.cont, "continue", false, "continue the last conversation of this directory")
	cmd.Flags().BoolVar(&f.resume, "resume", false, "continue a conversation of this directory: the one with the id that follows, or one from a list")
	f.register(cmd)
	cmd.MarkFlagsMutuallyExclusive("continue", "resume")
	return cmd
}

// talk configures the agent and talks until the user leaves.
func (f *chatFlags) talk(ctx context.Context, cmd *cobra.Command, r *runner, front front) (err error) {
	if err := f.configure(ctx, cmd, r.prompt); err != nil {
		return err
	}
	r.prompt.keep = func(ctx context.Context, rules []permission.Rule) error {
		return f.keepRules(ctx, r.prompt, rules)
	}
	if err := f.chooseSession(ctx, r.prompt); err != nil {
		return err
	}
	files := new(fileHistory)
	defer func() { err = errors.Join(err, files.close()) }()
	for first := true; ; first = false {
		err := f.open(ctx, r, func(k *kit, s *conversation) error {
			defer keepInterrupts()()
			return (&chat{runner: r, flags: f, front: front, kit: k, conv: s, files: files}).talk(ctx, first)
		})
		if !errors.Is(err, errReopen) {
			return err
		}
	}
}

// errReopen ends a chat whose agent is to be made anew, with other flags.
var errReopen = errors.New("the agent is made anew")

// keepInterrupts lets chat handle interrupts: they neither end the program, as in main, nor kill the process
// between two turns. Call stop at the end of the chat.
func keepInterrupts() (stop func()) {
	signal.Reset(os.Interrupt)
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, os.Interrupt)
	return func() { signal.Stop(unread) }
}

// A front is where the user types messages.
type front interface {
	// message returns the next message, or an error at the end of the input.
	message(ctx context.Context) (string, error)

	// work returns a context that ends when the user interrupts, until stop is called.
	work(ctx context.Context, label string) (working context.Context, stop func())
}

// A chat is a conversation with a person at a terminal, whose runner has a prompt.
type chat struct {
	*runner
	flags *chatFlags
	front front
	kit   *kit
	conv  *conversation
	files *fileHistory
}

// talk takes turns until the user leaves. First says that the chat has just started.
func (c *chat) talk(ctx context.Context, first bool) error {
	if first {
		c.welcome()
	}
	if len(c.conv.Pending()) > 0 { // left over from the last chat
		if err := c.during(ctx, "an answer to a question of the last chat", func() error { return c.turn(ctx) }); err != nil {
			return err
		}
	}
	for {
		text, err := c.front.message(ctx)
		switch {
		case ctx.Err() != nil:
			return &exit{code: exitInterrupted} // terminated by a signal
		case err != nil: // Ctrl-D, or Ctrl-C at the prompt
			return nil
		case text == "":
			continue
		}
		if name, arg, ok := slashLine(text); ok {
			switch err := c.command(ctx, name, arg); {
			case errors.Is(err, errLeave):
				return nil
			case errors.Is(err, errReopen):
				return err
			case err != nil:
				c.showError(err)
			}
			continue
		}
		blocks, err := attachments(text, func(name string) error { return c.mayAttach(ctx, name) })
		if err != nil {
			c.showError(err)
			continue
		}
		if err := c.during(ctx, text, func() error { return c.turn(ctx, c.say(text, blocks)) }); err != nil {
			return err
		}
	}
}

// welcome says how to get help, and shows where an older conversation was left.
func (c *chat) welcome() {
	// Kitbag's own messages go to the log, and only the model's text to standard output, so
	// that "kitbag chat | tee" keeps a clean copy of it.
	fmt.Fprintln(c.log, "/help lists the commands; Ctrl-D leaves.")
	n := len(c.conv.Messages)
	if n == 0 {
		return
	}
	fmt.Fprintf(c.log, "continuing %s, after %d messages.\n", c.conv.path, n)
	said, answered := lastExchange(c.conv.State)
	if said != "" {
		fmt.Fprintf(c.log, "\n> %s\n", indented(said))
	}
	if answered != "" {
		fmt.Fprintf(c.log, "\n%s\n", plain(answered))
	}
}

// turn runs the agent on the inputs until it is done or interrupted. An error that ends only the turn is
// printed, not returned.
func (c *chat) turn(ctx context.Context, inputs ...agent.Input) error {
	turn, stop := c.front.work(ctx, "thinking")
	err := c.run(turn, c.kit.agent, c.conv, inputs)
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
	case e.code != exitLimit: // the display has shown the limit
		return err
	}
	return nil
}

// dropPending ends the calls that still wait for approval after an interrupt, since no message can be sent
// before they are answered.
func (c *chat) dropPending(ctx context.Context) error {
	if len(c.conv.Pending()) == 0 {
		return nil
	}
	_, err := c.once(ctx, c.kit.agent, c.conv, []agent.Input{agent.Interrupt{}})
	return err
}

// showError shows an error that does not end the chat.
func (c *chat) showError(err error) {
	fmt.Fprintln(c.log, c.painter.paint(red, "! "+indented(err.Error())))
}
