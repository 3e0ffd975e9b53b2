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
)

// chatCommand is "kitbag chat". All it has over "kitbag run" is that it goes on.
func chatCommand() *cobra.Command {
	f := &agentFlags{}
	cmd := &cobra.Command{
		Use:   "chat [flags]",
		Short: "Talk with an agent in the current directory",
		Long: `Talk with an agent in the current directory. It has the tools and asks the
questions that it would with "kitbag run"; so do its flags mean the same.

A line is what you say; one that ends with a backslash goes on in the next.
Interrupt (Ctrl-C) while the agent works, and it stops what it does and waits for
what you say next. Interrupt, or end the input (Ctrl-D), at the prompt to leave.
A limit such as --max-steps counts anew with each thing you say.

Lines that begin with a slash are for kitbag:
` + chatHelp(),
		Example: `  kitbag chat
  kitbag chat --session s.json     # go on with it another day`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := newRunner(cmd, false)
			if r.prompt == nil {
				return usage(`chat needs a terminal to talk at; without one use kitbag run "task", with --session to go on`)
			}
			if err := f.configure(cmd.Context(), cmd, r.prompt); err != nil {
				return err
			}
			return f.open(cmd.Context(), r, func(k *kit, s *conversation) error {
				defer keepInterrupts()()
				return (&chat{runner: r, kit: k, conv: s}).talk(cmd.Context())
			})
		},
	}
	f.register(cmd)
	return cmd
}

// keepInterrupts makes an interrupt the business of who asks for it: not the end of
// the program, as main has it, and when it comes between two turns, where nobody asks,
// not the end of the process. The function it returns is for when that is over.
func keepInterrupts() (stop func()) {
	signal.Reset(os.Interrupt)
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, os.Interrupt)
	return func() { signal.Stop(unread) }
}

// A chat is a conversation with a person at a terminal, whose runner has a prompt.
type chat struct {
	*runner
	kit  *kit
	conv *conversation
}

// talk takes turns until the person leaves.
func (c *chat) talk(ctx context.Context) error {
	// All of kitbag's words go to the log. What goes to standard output is the model's,
	// so that "kitbag chat | tee" keeps a clean copy of it.
	fmt.Fprintln(c.log, "/help tells what there is; Ctrl-D leaves.")
	if n := len(c.conv.Messages); n > 0 {
		fmt.Fprintf(c.log, "%s is gone on with, after %d messages.\n", c.conv.path, n)
	}
	if len(c.conv.Pending()) > 0 { // since it was left
		if err := c.turn(ctx); err != nil {
			return err
		}
	}
	for {
		said, err := c.listen(ctx)
		switch {
		case ctx.Err() != nil:
			return &exit{code: exitInterrupted} // told to terminate
		case err != nil: // Ctrl-D, or Ctrl-C at the prompt: the usual ways to leave
			return nil
		case said == "":
			continue
		}
		if name, ok := commandName(said); ok {
			if leave := c.command(ctx, name); leave {
				return nil
			}
			continue
		}
		if err := c.turn(ctx, agent.Say(said)); err != nil {
			return err
		}
	}
}

// listen returns what the person says next, an error if that is nothing more. What
// was typed while the agent worked counts: unlike an answer to a question, it cannot
// be taken for something else.
func (c *chat) listen(ctx context.Context) (string, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	var said []string
	question := "> "
	for {
		line, err := c.prompt.line(ctx, question)
		if err != nil {
			if errors.Is(err, errNoAnswer) {
				fmt.Fprintln(c.log) // the shell's prompt is not to be on our line
			}
			return "", err
		}
		more, goesOn := strings.CutSuffix(line, `\`)
		said = append(said, more)
		if !goesOn {
			return strings.TrimSpace(strings.Join(said, "\n")), nil
		}
		question = ". "
	}
}

// turn has the agent work on the inputs until it is done or interrupted. What ends
// only the turn is told, and is no error.
func (c *chat) turn(ctx context.Context, inputs ...agent.Input) error {
	turn, stop := interruptible(ctx, c.log)
	err := c.run(turn, c.kit.agent, c.conv, inputs)
	stop()
	if ctx.Err() != nil {
		return &exit{code: exitInterrupted} // told to terminate: what waits is kept
	}
	e, _ := errors.AsType[*exit](err)
	switch {
	case err == nil:
	case e == nil:
		c.tell(err)
	case e.code == exitInterrupted:
		return c.drop(ctx)
	case e.code != exitLimit: // which the display has told
		return err
	}
	return nil
}

// drop ends calls that wait for an answer that was interrupted: as long as there are
// some, nothing else can be said.
func (c *chat) drop(ctx context.Context) error {
	if len(c.conv.Pending()) == 0 {
		return nil
	}
	_, err := c.once(ctx, c.kit.agent, c.conv, []agent.Input{agent.Interrupt{}})
	return err
}

// tell shows an error that the chat goes on after.
func (c *chat) tell(err error) { fmt.Fprintln(c.log, c.painter.paint(red, "! "+indented(err.Error()))) }

// A slashCommand is what a person says to kitbag instead of to the model.
type slashCommand struct {
	name, help string
	run        func(context.Context, *chat) // nil for the one that leaves
}

// slashCommands returns all of them, in the order of the help. A function and not a
// variable: one of them lists them all.
func slashCommands() []slashCommand {
	return []slashCommand{
		{"/help", "what there is", func(_ context.Context, c *chat) { fmt.Fprint(c.log, chatHelp()) }},
		{"/tools", "the tools, what they cost, and which groups are open", func(ctx context.Context, c *chat) {
			if err := c.showTools(ctx); err != nil {
				c.tell(err)
			}
		}},
		{"/usage", "the tokens of this conversation so far", func(_ context.Context, c *chat) {
			u := c.conv.Usage
			fmt.Fprintf(c.log, "tokens: %d in, %d of them cached; %d out\n", u.Input, u.Cached, u.Output)
		}},
		{"/exit", "leave, as Ctrl-D does", nil},
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

// commandName reports whether what was said is for kitbag: one word that begins with
// a slash and has no other, so that a message may begin with the path of a file.
func commandName(said string) (string, bool) {
	return said, strings.HasPrefix(said, "/") && !strings.ContainsAny(said[1:], "/ \t\n")
}

// command does what the person wants of kitbag, and reports whether that is to leave.
// What it does not know is not sent to the model: a mistyped /exit is no task.
func (c *chat) command(ctx context.Context, name string) (leave bool) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
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
	fmt.Fprintf(c.log, "%s is not a command; there are\n%s", shorten(name, maxName), chatHelp())
	return false
}

// showTools shows what "kitbag tools" does, for the groups that are open now.
func (c *chat) showTools(ctx context.Context) error {
	v, err := c.kit.toolkit.View(ctx, &c.conv.Scope)
	if err != nil {
		return err
	}
	return printTools(c.log, c.kit.toolkit.Groups(&c.conv.Scope), v.Cost(), false)
}
