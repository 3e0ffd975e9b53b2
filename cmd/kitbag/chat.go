package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/permission"
)

// chatFlags are the flags of kitbag chat.
type chatFlags struct {
	plain bool
	agentFlags
}

// chatCommand is "kitbag chat": "kitbag run" with more turns.
func chatCommand() *cobra.Command {
	f := &chatFlags{}
	cmd := &cobra.Command{
		Use:   "chat [flags]",
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

A question about a call shows the call completely. The answers are: once, for this
session, for this project (the rule is written to kitbag.json), or no, with a reason
for the model. The rule can be edited before it is kept.

With --plain, and where standard output is not a terminal, everything is plain lines,
as screen readers and pipes need them: a line is a message, and one that ends with a
backslash continues on the next.

Lines that begin with a slash are commands of kitbag:
` + chatHelp(),
		Example: `  kitbag chat
  kitbag chat --session s.json     # continue it another day
  kitbag chat --plain              # for a screen reader`,
		Args: noArgs,
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
	f.register(cmd)
	return cmd
}

// talk configures the agent and talks until the user leaves.
func (f *chatFlags) talk(ctx context.Context, cmd *cobra.Command, r *runner, front front) error {
	if err := f.configure(ctx, cmd, r.prompt); err != nil {
		return err
	}
	r.prompt.keep = func(ctx context.Context, rules []permission.Rule) error {
		return f.keepRules(ctx, r.prompt, rules)
	}
	return f.open(ctx, r, func(k *kit, s *conversation) error {
		defer keepInterrupts()()
		return (&chat{runner: r, front: front, kit: k, conv: s}).talk(ctx)
	})
}

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
	front front
	kit   *kit
	conv  *conversation
}

// talk takes turns until the user leaves.
func (c *chat) talk(ctx context.Context) error {
	// Kitbag's own messages go to the log, and only the model's text to standard output, so
	// that "kitbag chat | tee" keeps a clean copy of it.
	fmt.Fprintln(c.log, "/help lists the commands; Ctrl-D leaves.")
	if n := len(c.conv.Messages); n > 0 {
		fmt.Fprintf(c.log, "continuing %s, after %d messages.\n", c.conv.path, n)
	}
	if len(c.conv.Pending()) > 0 { // left over from the last chat
		if err := c.turn(ctx); err != nil {
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
		if name, ok := commandName(text); ok {
			if leave := c.command(ctx, name); leave {
				return nil
			}
			continue
		}
		if err := c.turn(ctx, agent.Say(text)); err != nil {
			return err
		}
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

// A slashCommand is a command to kitbag instead of a message to the model.
type slashCommand struct {
	name, help string
	run        func(context.Context, *chat) // nil for /exit
}

// slashCommands returns all commands in the order of the help. It is a function because /help refers to the
// list itself.
func slashCommands() []slashCommand {
	return []slashCommand{
		{"/help", "list the commands", func(_ context.Context, c *chat) { fmt.Fprint(c.log, chatHelp()) }},
		{"/tools", "list the tools, their cost, and the open groups", func(ctx context.Context, c *chat) {
			if err := c.showTools(ctx); err != nil {
				c.showError(err)
			}
		}},
		{"/usage", "show the tokens of this conversation so far", func(_ context.Context, c *chat) {
			u := c.conv.Usage
			fmt.Fprintf(c.log, "tokens: %d in, %d of them cached; %d out\n", u.Input, u.Cached, u.Output)
		}},
		{"/exit", "leave, like Ctrl-D", nil},
	}
}

// chatHelp lists the slash commands, in the help of the command and in the chat.
func chatHelp() string {
	var b strings.Builder
	for _, c := range slashCommands() {
		fmt.Fprintf(&b, "  %-8s %s\n", c.name, c.help)
	}
	return b.String()
}

// commandName reports whether a line is a command: one word with a single slash at its beginning. A message may
// therefore begin with a file's path.
func commandName(text string) (string, bool) {
	return text, strings.HasPrefix(text, "/") && !strings.ContainsAny(text[1:], "/ \t\n")
}

// command runs a slash command, and reports whether to leave. An unknown one is not sent to
// the model, as it may be a mistyped command.
func (c *chat) command(ctx context.Context, name string) (leave bool) {
	ctx, stop := c.front.work(ctx, name)
	defer stop()
	for _, cmd := range slashCommands() {
		if cmd.name == name && cmd.run != nil {
			cmd.run(ctx, c)
			return false
		}
		if cmd.name == name {
			return true
		}
	}
	fmt.Fprintf(c.log, "%s is not a command; the commands are\n%s", shorten(name, maxName), chatHelp())
	return false
}

// showTools shows the same as "kitbag tools", with the groups that are open now.
func (c *chat) showTools(ctx context.Context) error {
	v, err := c.kit.toolkit.View(ctx, &c.conv.Scope)
	if err != nil {
		return err
	}
	return printTools(c.log, c.kit.toolkit.Groups(&c.conv.Scope), v.Cost(), false)
}
