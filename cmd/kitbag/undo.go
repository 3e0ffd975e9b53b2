package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/undo"
	"github.com/kitbag-go/kitbag/message"
)

// fileHistory remembers the working directories before and after each turn of a chat, for /undo and /diff.
type fileHistory struct {
	keeper *undo.Keeper
	failed error // why nothing is remembered any more
	start  undo.Moment
	turns  []fileTurn // those that changed a file and were not undone
	note   string     // what the model is told with the next message
}

// A fileTurn is a turn that changed files.
type fileTurn struct {
	said          string
	before, after undo.Moment
}

// close forgets everything. It works on nil.
func (h *fileHistory) close() error {
	if h == nil || h.keeper == nil {
		return nil
	}
	return h.keeper.Close()
}

// now returns what the files are, nil if that is not known.
func (h *fileHistory) now(ctx context.Context, dirs []string) undo.Moment {
	if h.failed == nil && h.keeper == nil {
		h.keeper, h.failed = undo.New(ctx, dirs)
	}
	if h.failed != nil {
		return nil
	}
	m, err := h.keeper.Remember(ctx)
	if err != nil && ctx.Err() == nil {
		h.failed = err
	}
	if h.start == nil {
		h.start = m
	}
	return m
}

// during calls turn, and remembers the files before and after. Nothing can write in the mode explore.
func (c *chat) during(ctx context.Context, said string, turn func() error) error {
	if c.flags.mode == "explore" {
		return turn()
	}
	dirs, err := c.flags.workDirs()
	if err != nil {
		return err
	}
	looking, stop := c.front.work(ctx, "remembering the files")
	before := c.files.now(looking, dirs)
	stop()
	err = turn()
	if after := c.files.now(context.WithoutCancel(ctx), dirs); before != nil && after != nil && !slices.Equal(before, after) {
		c.files.turns = append(c.files.turns, fileTurn{said, before, after})
	}
	return err
}

// say returns a message of the user. After an undo the model is told which files changed under its hands.
func (c *chat) say(text string, blocks []message.Block) agent.Input {
	if c.files.note != "" {
		blocks = append(blocks, &message.Hint{Source: "undo", Text: c.files.note})
		c.files.note = ""
	}
	return agent.Say(text, blocks...)
}

// last returns the last turn that changed files, or why there is none.
func (h *fileHistory) last() (fileTurn, error) {
	switch {
	case h.failed != nil:
		return fileTurn{}, fmt.Errorf("the files are not remembered: %w", h.failed)
	case len(h.turns) == 0:
		return fileTurn{}, errors.New("no turn of this chat has changed a file; files that .gitignore excludes do not count")
	}
	return h.turns[len(h.turns)-1], nil
}

// undo takes back what the last turn that changed files has changed in them.
func (c *chat) undo(ctx context.Context, _ string) error {
	h := c.files
	last, err := h.last()
	if err != nil {
		return fmt.Errorf("/undo: %w", err)
	}
	report, err := h.keeper.Restore(ctx, last.before, last.after)
	if err != nil {
		return fmt.Errorf("/undo: %w", err)
	}
	h.turns = h.turns[:len(h.turns)-1]
	restored, kept := c.names(report.Restored), c.names(report.Kept)
	fmt.Fprintf(c.log, "undone: what changed in files after %q\n", shorten(last.said, maxName))
	for _, name := range restored {
		fmt.Fprintf(c.log, "  restored %s\n", plainLine(name))
	}
	for _, name := range kept {
		fmt.Fprintf(c.log, "  left as it is, since it was changed afterwards: %s\n", plainLine(name))
	}
	fmt.Fprintln(c.log, "not undone: files that .gitignore excludes, repositories in a directory, commits, and what is not a file")
	if len(restored) > 0 {
		h.note = fmt.Sprintf("The user has undone your changes to these files, which are again as they were before: %s. Read them again before you edit them.",
			strings.Join(restored, ", "))
	}
	return nil
}

// names returns paths relative to the current directory where they are in it.
func (c *chat) names(paths []string) []string {
	out := slices.Clone(paths)
	cwd, err := currentDir()
	if err != nil {
		return out
	}
	if real, err := filepath.EvalSymlinks(cwd); err == nil {
		cwd = real
	}
	for i, p := range out {
		if name, ok := strings.CutPrefix(p, cwd+"/"); ok {
			out[i] = name
		}
	}
	return out
}

// maxDiff is how many lines of changes are shown.
const maxDiff = 400

// diff shows what the last turn changed in files, or everything since the chat began.
func (c *chat) diff(ctx context.Context, arg string) error {
	last, err := c.files.last()
	if arg != "" && arg != "all" {
		err = fmt.Errorf("%q is neither nothing nor all", shorten(arg, maxName))
	}
	if err != nil {
		return fmt.Errorf("/diff: %w", err)
	}
	from, to := last.before, last.after
	if arg == "all" {
		dirs, err := c.flags.workDirs()
		if err != nil {
			return err
		}
		if from, to = c.files.start, c.files.now(ctx, dirs); to == nil {
			return fmt.Errorf("/diff: the files are not remembered: %w", errors.Join(c.files.failed, ctx.Err()))
		}
	}
	base, err := currentDir()
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(base); err == nil {
		base = real
	}
	text, err := c.files.keeper.Diff(ctx, from, to, base)
	if err != nil {
		return fmt.Errorf("/diff: %w", err)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range lines[:min(len(lines), maxDiff)] {
		fmt.Fprintln(c.log, c.painter.changeLine(plain(line)))
	}
	if more := len(lines) - maxDiff; more > 0 {
		fmt.Fprintf(c.log, "… %d more lines\n", more)
	}
	return nil
}
