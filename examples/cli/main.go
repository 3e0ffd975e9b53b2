// Cli is an agent for the terminal, with files and a shell in the current directory. It asks
// before it changes something; an interrupt (Ctrl-C) stops the current turn. The conversation is
// stored in chat.jsonl, and continues when the program is started again.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"unicode"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	tools, err := builtin.New(builtin.Config{Dirs: []string{dir}})
	if err != nil {
		return err
	}
	m, err := chooseModel()
	if err != nil {
		return err
	}
	store, err := session.Dir(dir)
	if err != nil {
		return err
	}
	chat, err := session.Open(context.Background(), store, "chat")
	if err != nil {
		return err
	}
	defer chat.Close()
	t := terminal{lines: make(chan string)}
	t.agent, err = agent.New(agent.Config{
		Model:        m,
		Toolkit:      toolkit.Of(tools...),
		Instructions: "You work in " + dir + ". Be brief.",
		Policy: permission.Policy{
			Mode: permission.ModeDefault, Dirs: []string{dir},
		},
		Approve: t.approve,
		Save:    chat.Save,
	})
	if err != nil {
		return err
	}

	go func() { // a separate goroutine, because a read cannot be interrupted
		defer close(t.lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			t.lines <- in.Text()
		}
	}()
	if len(chat.State.Messages) > 0 && !chat.State.Done() {
		t.turn(chat.State) // the program was stopped during a turn
	}
	for {
		fmt.Print("> ")
		line, ok := <-t.lines
		if !ok {
			fmt.Println()
			return nil
		}
		if line != "" {
			t.turn(chat.State, agent.Say(line))
		}
	}
}

type terminal struct {
	agent *agent.Agent
	lines chan string
}

// turn runs the agent until it has answered or is interrupted.
func (t terminal) turn(st *agent.State, inputs ...agent.Input) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for ev, err := range t.agent.Run(ctx, st, inputs...) {
		if err != nil && !errors.Is(err, agent.ErrInterrupted) {
			log.Print(err)
		}
		switch ev := ev.(type) {
		case *event.TextDelta:
			fmt.Print(printable(ev.Text))
		case *event.ToolStart:
			fmt.Printf("[%s] ", ev.Name)
		case *event.ToolResult:
			fmt.Println(ev.Outcome)
		case *event.End:
			fmt.Println()
		}
	}
}

// printable makes untrusted text safe to print: it can neither move the cursor nor hide a part of
// itself.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, text)
}

// approve asks the user.
func (t terminal) approve(ctx context.Context, q event.Approval) (event.Confirm, error) {
	fmt.Printf("%s %s\n  %s\n", q.Name, printable(cmp.Or(q.Runs, string(q.Input))), printable(q.Reason))
	if len(q.Suggest) > 0 {
		fmt.Printf("  (y)es, (a)lways %s, anything else is no: ", printable(fmt.Sprint(q.Suggest)))
	} else {
		fmt.Print("  (y)es, anything else is no: ")
	}
	select {
	case <-ctx.Done():
		return event.Confirm{}, ctx.Err()
	case line := <-t.lines:
		switch {
		case line == "y":
			return q.Allow(), nil
		case line == "a" && len(q.Suggest) > 0:
			return q.Allow(q.Suggest...), nil
		}
		return q.Deny("The user said no: " + line), nil
	}
}

// chooseModel returns a real model if OPENAI_API_KEY is set, and otherwise one that follows a
// script.
func chooseModel() (model.Model, error) {
	if os.Getenv("OPENAI_API_KEY") != "" {
		return openai.FromEnv()
	}
	bash := func(command string) scripted.Turn {
		return scripted.Call("Bash", map[string]string{"command": command})
	}
	return scripted.New(
		bash("ls"), bash("mkdir notes"), bash("mkdir more"), scripted.Say("There is a directory notes now."),
		scripted.Repeat(scripted.Say("Set OPENAI_API_KEY to talk to a real model.")),
	), nil
}
