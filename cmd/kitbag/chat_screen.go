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
		slog.SetDefault(slog.New(noticeHandler{log: s}))
		prompt := &prompt{out: s, screen: s}
		r := &runner{show: showScreen(s, p), painter: p, prompt: prompt, log: s}
		return f.run(ctx, cmd, r, s)
	})
	if errors.Is(err, term.ErrForced) { // Ctrl-C twice during work
		return &exit{code: exitInterrupted}
	}
	return err
}

// showScreen shows events, with the model's text as Markdown, and the tokens of the work so far.
func showScreen(s *term.Screen, p *painter) eventPrinter {
	tokens, writtenBytes := 0, 0 // of the complete answers; of the current answer
	// A token has about four bytes. An empty label keeps the label before.
	showWork := func(label string) { s.Status(label, tokens+writtenBytes/4) }
	return func(ev event.Event) error {
		switch ev := ev.(type) {
		case *event.RunStart:
			if !ev.Resumed {
				tokens = 0
			}
		case *event.ModelStart:
			writtenBytes = 0
			showWork("thinking")
		case *event.ThinkingDelta:
			writtenBytes += len(ev.Text)
			showWork("")
		case *event.ToolCallDelta:
			writtenBytes += len(ev.Args)
			showWork("")
		case *event.TextDelta:
			writtenBytes += len(ev.Text)
			showWork("writing")
			s.Stream(ev.Text)
		case *event.Message:
			if ev.Message.Role == message.RoleAssistant {
				s.EndStream()
				if u := ev.Message.Usage; u != nil {
					tokens += u.Input + u.Output
				}
				writtenBytes = 0
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

// history opens the history of the messages that were typed in the current directory.
func (f *chatFlags) history() (*term.History, error) {
	dir, err := projectStateDir()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "history")
	if f.noRedact {
		return term.OpenHistory(file, nil)
	}
	r, err := newRedactor()
	if err != nil {
		return nil, err
	}
	return term.OpenHistory(file, r.Text)
}

// projectStateDir returns the folder for kitbag's data about the current directory. The folder is named by a hash of the
// path, and is in the user's state directory, where no project can put files.
func projectStateDir() (string, error) {
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

// stateDir returns kitbag's folder in the user's state directory: $XDG_STATE_HOME, or ~/.local/state on Linux.
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
