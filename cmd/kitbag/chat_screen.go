package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/term"
	"github.com/kitbag-go/kitbag/message"
)

// fullTerminal reports whether all streams are a terminal that can show the editor for messages (package term).
func fullTerminal(cmd *cobra.Command) bool {
	return isTerminal(cmd.InOrStdin()) && isTerminal(cmd.OutOrStdout()) && isTerminal(cmd.ErrOrStderr()) && os.Getenv("TERM") != "dumb"
}

// onScreen runs kitbag chat with the editor for messages.
func (f *chatFlags) onScreen(cmd *cobra.Command) error {
	p := newPainter(cmd.ErrOrStderr())
	p.hasPrompt = true
	history, err := f.history()
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "! the history of messages is not available: %s\n", plainLine(err.Error()))
	}
	err = term.Run(cmd.Context(), term.Options{Colour: p.colour, History: history, Complete: complete}, func(ctx context.Context, s *term.Screen) error {
		defer slog.SetDefault(slog.Default())
		slog.SetDefault(slog.New(notices{log: s}))
		prompt := &prompt{out: s, screen: s}
		r := &runner{show: showScreen(s, p), painter: p, prompt: prompt, log: s}
		return f.run(ctx, cmd, r, screenFrontend{s})
	})
	if errors.Is(err, term.ErrForced) { // Ctrl-C twice during work
		return &exit{code: exitInterrupted}
	}
	return err
}

// screenFrontend is a frontend with the editor for messages.
type screenFrontend struct{ *term.Screen }

func (f screenFrontend) message(ctx context.Context) (string, error) { return f.Message(ctx) }
func (f screenFrontend) work(ctx context.Context, label string) (context.Context, func()) {
	return f.Work(ctx, label)
}

// showScreen shows events, with the model's text as Markdown, and the tokens of the work so far.
func showScreen(s *term.Screen, p *painter) show {
	tokens, written := 0, 0 // tokens of the complete answers; bytes of the current one, about four for a token
	showWork := func(label string) { s.Status(label, tokens+written/4) }
	return func(ev event.Event) error {
		switch ev := ev.(type) {
		case *event.RunStart:
			if !ev.Resumed {
				tokens = 0
			}
		case *event.ModelStart:
			written = 0
			showWork("thinking")
		case *event.ThinkingDelta:
			written += len(ev.Text)
			showWork("")
		case *event.ToolCallDelta:
			written += len(ev.Args)
			showWork("")
		case *event.TextDelta:
			written += len(ev.Text)
			showWork("writing")
			s.Stream(ev.Text)
		case *event.Message:
			if ev.Message.Role == message.RoleAssistant {
				s.EndStream()
				if u := ev.Message.Usage; u != nil {
					tokens += u.Input + u.Output
				}
				written = 0
				showWork("")
			}
		case *event.Discard, *event.End:
			s.EndStream()
		case *event.ToolStart:
			showWork("running " + shorten(ev.Name, maxName))
		}
		if line := p.line(ev); line != "" {
			s.Print(line)
		}
		return nil
	}
}

// complete returns the slash commands and files that begin with word.
func complete(word string) (out []term.Candidate) {
	if strings.HasPrefix(word, "@") {
		return completeFile(word)
	}
	for _, c := range slashCommands() {
		if strings.HasPrefix(c.name, word) {
			out = append(out, term.Candidate{Text: c.name, Help: c.help})
		}
	}
	return out
}

// history opens the history of the current directory.
func (f *chatFlags) history() (*term.History, error) {
	dir, err := directoryState()
	if err != nil {
		return nil, err
	}
	clean, err := redactor()
	if err != nil {
		return nil, err
	}
	redact := clean.Text
	if f.noRedact {
		redact = nil
	}
	return term.OpenHistory(filepath.Join(dir, "history"), redact)
}

// directoryState returns the folder for kitbag's data about the current directory. It is in the user's state directory,
// under a hash of the path, so that no project can put files there.
func directoryState() (string, error) {
	dir, err := currentDir()
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	base, err := stateDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(base, "directories", hex.EncodeToString(sum[:8])), nil
}

// stateDir returns the user's state directory of kitbag: $XDG_STATE_HOME, or ~/.local/state on Linux.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "kitbag"), nil
	}
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		dir, err := os.UserConfigDir()
		return filepath.Join(dir, "kitbag", "state"), err
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state", "kitbag"), err
}
