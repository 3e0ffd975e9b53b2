package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent"
)

// A slashCommand is a command for kitbag, not a message for the model.
type slashCommand struct {
	name, arg, help string // arg is the name of its argument; "" if it takes none
	run             func(c *chat, ctx context.Context, arg string) error
}

// errLeave ends the chat.
var errLeave = errors.New("leave")

// slashCommands returns all commands in the order of the help. It is a function, not a variable, because /help refers to
// the list.
func slashCommands() []slashCommand {
	return []slashCommand{
		{"/help", "", "list the commands", func(c *chat, _ context.Context, _ string) error {
			_, err := fmt.Fprint(c.log, chatHelp())
			return err
		}},
		{"/clear", "", "begin a new conversation; this one is kept", (*chat).clear},
		{"/compact", "", "replace the conversation, but for its end, with a summary by the model", (*chat).compact},
		{"/diff", "[all]", "show what the last turn changed in files; all: every change since the chat began", (*chat).diff},
		{"/undo", "", "take back what the last turn changed in files", (*chat).undo},
		{"/model", "[NAME]", "show the model, or use another one from now on", (*chat).setModel},
		{"/mode", "[MODE]", "show the mode, or use another one from now on", (*chat).setMode},
		{"/permissions", "", "list the mode and the rules", (*chat).showPermissions},
		{"/tools", "", "list the tools, their cost, and the open groups", (*chat).showTools},
		{"/cost", "", "show the tokens of this conversation, and the cost of this chat if the price is known", (*chat).showCost},
		{"/export", "FILE", "write this conversation to a new file, as Markdown without secrets", (*chat).export},
		{"/exit", "", "leave, like Ctrl-D", func(*chat, context.Context, string) error { return errLeave }},
	}
}

// chatHelp lists the slash commands, in the help of the command and in the chat.
func chatHelp() string {
	var b strings.Builder
	for _, c := range slashCommands() {
		fmt.Fprintf(&b, "  %-14s %s\n", strings.TrimSpace(c.name+" "+c.arg), c.help)
	}
	return b.String()
}

// parseSlash splits a line that is a slash command: a word whose only slash is at its beginning, followed by an argument
// if the command takes one. Other text that begins with a slash is a message, such as one that begins with a path.
func parseSlash(text string) (name, arg string, ok bool) {
	name, arg, _ = strings.Cut(text, " ")
	if !strings.HasPrefix(name, "/") || strings.ContainsAny(name[1:], "/\t\n") {
		return "", "", false
	}
	arg = strings.TrimSpace(arg)
	if arg == "" {
		return name, "", true
	}
	takesArg := slices.ContainsFunc(slashCommands(), func(c slashCommand) bool { return c.name == name && c.arg != "" })
	return name, arg, takesArg && !strings.Contains(arg, "\n")
}

// command runs a slash command. An unknown one is not sent to the model, as it may be a mistyped command.
func (c *chat) command(ctx context.Context, name, arg string) error {
	ctx, stop := c.frontend.Work(ctx, name)
	defer stop()
	for _, cmd := range slashCommands() {
		if cmd.name == name {
			return cmd.run(c, ctx, arg)
		}
	}
	fmt.Fprintf(c.log, "%s is not a command; the commands are\n%s", shorten(name, maxName), chatHelp())
	return nil
}

func (c *chat) clear(ctx context.Context, _ string) error {
	dir, ids, err := keptSessions(ctx)
	if err != nil {
		return err
	}
	old := c.flags.session
	if c.flags.session, err = newSession(dir, ids, time.Now()); err != nil {
		return err
	}
	c.files.undone = nil // by the old one
	fmt.Fprintf(c.log, "a new conversation; the old one is in %s\n", plainLine(old))
	return errRecreateAgent
}

func (c *chat) compact(ctx context.Context, _ string) error {
	before := c.conv.Generation
	err := c.run(ctx, c.kit.agent, c.conv, []agent.Input{agent.Compact{}})
	if e, ok := errors.AsType[*exit](err); ok && e.err == nil {
		return nil // the event of the end has already been shown
	} else if err != nil {
		return err
	}
	if c.conv.Generation == before {
		fmt.Fprintln(c.log, "the conversation is not shorter than before")
	}
	return nil
}

func (c *chat) setModel(_ context.Context, name string) error {
	if name == "" {
		_, err := fmt.Fprintf(c.log, "model: %s\n", plainLine(c.models.names()[0]))
		return err
	}
	c.flags.model = name
	fmt.Fprintf(c.log, "model: %s, from the next message on\n", plainLine(name))
	return errRecreateAgent
}

func (c *chat) setMode(_ context.Context, mode string) error {
	if mode == "" {
		_, err := fmt.Fprintf(c.log, "mode: %s; the modes are %s\n", c.kit.policy.Mode, strings.Join(modes, ", "))
		return err
	}
	if !slices.Contains(modes, mode) {
		return fmt.Errorf("mode %q: the modes are %s", shorten(mode, maxName), strings.Join(modes, ", "))
	}
	c.flags.mode = mode
	fmt.Fprintf(c.log, "mode: %s, from the next message on\n", mode)
	return errRecreateAgent
}

// showPermissions lists the rules in the order in which they apply, each with its source.
func (c *chat) showPermissions(context.Context, string) error {
	fmt.Fprintf(c.log, "mode: %s\n", c.kit.policy.Mode)
	rules := slices.Concat(c.kit.policy.Rules, c.conv.Rules)
	for _, r := range rules {
		fmt.Fprintf(c.log, "  %-5s %s (%s)\n", r.Behavior, plainLine(r.String()), plainLine(r.Source))
	}
	if len(rules) == 0 {
		fmt.Fprintln(c.log, "no rules")
	}
	return nil
}

// showTools prints what "kitbag tools" prints, with the groups that are open now.
func (c *chat) showTools(ctx context.Context, _ string) error {
	v, err := c.kit.toolkit.View(ctx, &c.conv.Scope)
	if err != nil {
		return err
	}
	return printTools(c.log, c.kit.toolkit.Groups(&c.conv.Scope), v.Cost(), false)
}

func (c *chat) showCost(context.Context, string) error {
	u := c.conv.Usage
	cost := ""
	if c.spent.price != nil {
		cost = fmt.Sprintf("; about $%.4f since this chat began", c.spent.cost)
	}
	_, err := fmt.Fprintf(c.log, "tokens: %d in, %d of them cached; %d out%s\n", u.Input, u.Cached, u.Output, cost)
	return err
}

// export writes the conversation to a file that must not exist.
func (c *chat) export(_ context.Context, file string) error {
	if file == "" {
		return errors.New("/export: name the new file, such as /export talk.md")
	}
	clean, err := newRedactor()
	if err != nil {
		return err
	}
	text := exportMarkdown(c.conv.State)
	if !c.flags.noRedact {
		text = clean.Text(text)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("/export: %w; name a file that does not exist yet", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("/export: %w", errors.Join(err, os.Remove(file)))
	}
	_, err = fmt.Fprintf(c.log, "written to %s\n", plainLine(file))
	return err
}
