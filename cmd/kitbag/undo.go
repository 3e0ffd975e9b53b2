package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/undo"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// fileHistory has snapshots of the working directories before and after each turn of a chat, for /undo and /diff.
type fileHistory struct {
	recorder *undo.Recorder
	failed   error // why no more snapshots are made
	start    undo.Snapshot
	turns    []fileTurn // turns that changed a file and were not undone
	undone   []string   // names of files that were undone; the model is told with the next message
}

// A fileTurn is a turn that changed files.
type fileTurn struct {
	message       string
	before, after undo.Snapshot
}

// close removes the snapshots.
func (h *fileHistory) close() error {
	if h.recorder == nil {
		return nil
	}
	return h.recorder.Close()
}

// snapshot returns a snapshot of the files, or nil if it cannot be made.
func (h *fileHistory) snapshot(ctx context.Context, dirs []string) undo.Snapshot {
	if h.failed != nil {
		return nil
	}
	var s undo.Snapshot
	var err error
	if h.recorder == nil {
		h.recorder, err = undo.New(ctx, dirs)
	}
	if err == nil {
		s, err = h.recorder.Take(ctx)
	}
	if err != nil && ctx.Err() == nil {
		h.failed = err
	}
	if h.start == nil {
		h.start = s
	}
	return s
}

// withSnapshots calls turn, with snapshots of the files before and after. An interrupt during the first snapshot stops the
// turn. In the mode explore it makes none, since no tool can write.
func (c *chat) withSnapshots(ctx context.Context, message string, turn func() error) error {
	if c.kit.policy.Mode == permission.ModeExplore {
		return turn()
	}
	dirs, err := c.flags.workDirs()
	if err != nil {
		return err
	}
	snapshotCtx, stop := c.frontend.Work(ctx, "making a snapshot of the files")
	before := c.files.snapshot(snapshotCtx, dirs)
	interrupted := snapshotCtx.Err() != nil
	stop()
	if interrupted && ctx.Err() == nil {
		fmt.Fprintln(c.log, c.painter.paint(yellow, "! interrupted"))
		return c.dropPending(ctx)
	}
	err = turn()
	if after := c.files.snapshot(context.WithoutCancel(ctx), dirs); before != nil && after != nil && !slices.Equal(before, after) {
		c.files.turns = append(c.files.turns, fileTurn{message, before, after})
	}
	return err
}

// say returns a message of the user. After an undo it includes a note for the model about the restored files.
func (c *chat) say(text string, blocks []message.Block) agent.Input {
	if names := c.files.undone; len(names) > 0 {
		blocks = append(blocks, &message.Hint{Source: "undo", Text: fmt.Sprintf("The user has undone your changes to these files: %s. Read them again before you edit them.",
			strings.Join(names, ", "))})
		c.files.undone = nil
	}
	return agent.Say(text, blocks...)
}

// last returns the last turn that changed files, or an error that says why there is none.
func (h *fileHistory) last() (fileTurn, error) {
	switch {
	case h.failed != nil:
		return fileTurn{}, fmt.Errorf("no snapshots of the files: %w", h.failed)
	case len(h.turns) == 0:
		return fileTurn{}, errors.New("no turn of this chat has changed a file; files that .gitignore excluded when the chat began do not count")
	}
	return h.turns[len(h.turns)-1], nil
}

func (c *chat) undo(ctx context.Context, _ string) error {
	h := c.files
	last, err := h.last()
	if err != nil {
		return fmt.Errorf("/undo: %w", err)
	}
	report, err := h.recorder.Restore(ctx, last.before, last.after)
	if err != nil {
		return fmt.Errorf("/undo: %w", err)
	}
	h.turns = h.turns[:len(h.turns)-1]
	restored, kept := relativeNames(report.Restored), relativeNames(report.Kept)
	fmt.Fprintf(c.log, "undone: what changed in files after %q\n", shorten(last.message, maxName))
	for _, name := range restored {
		fmt.Fprintf(c.log, "  restored %s\n", plainLine(name))
	}
	for _, name := range kept {
		fmt.Fprintf(c.log, "  left as it is, since it was changed afterwards: %s\n", plainLine(name))
	}
	for _, name := range relativeNames(report.Repositories) {
		fmt.Fprintf(c.log, "  left as it is, since it is or was a separate repository: %s\n", plainLine(name))
	}
	for _, name := range relativeNames(report.Failed) {
		fmt.Fprintf(c.log, "  not restored: %s\n", plainLine(name))
	}
	if report.Err != nil {
		fmt.Fprintf(c.log, "  %s\n", plainLine(report.Err.Error()))
	}
	fmt.Fprintln(c.log, "not undone: files that .gitignore excluded when the chat began, repositories in a directory, commits, and what is not a file")
	for _, name := range restored {
		if !slices.Contains(h.undone, name) {
			h.undone = append(h.undone, name)
		}
	}
	return nil
}

// relativeNames returns the paths, relative to the current directory if they are in it.
func relativeNames(paths []string) []string {
	out := slices.Clone(paths)
	cwd, err := realCurrentDir()
	if err != nil {
		return out
	}
	for i, p := range out {
		if name, ok := strings.CutPrefix(p, cwd+"/"); ok {
			out[i] = name
		}
	}
	return out
}

// realCurrentDir returns the current directory with symbolic links resolved, if that is possible.
func realCurrentDir() (string, error) {
	dir, err := currentDir()
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return dir, nil
}

// maxDiff is how many lines of changes are shown.
const maxDiff = 400

// diff shows the changes to files in the last turn that made any, or all changes since the chat began.
func (c *chat) diff(ctx context.Context, arg string) error {
	last, err := c.files.last()
	from, to := last.before, last.after
	switch {
	case arg != "" && arg != "all":
		err = fmt.Errorf("unknown argument %q; write /diff or /diff all", shorten(arg, maxName))
	case arg == "all" && c.files.start != nil: // there may be changes that no turn has made
		var dirs []string
		if dirs, err = c.flags.workDirs(); err != nil {
			return err
		}
		if from, to = c.files.start, c.files.snapshot(ctx, dirs); to == nil {
			return fmt.Errorf("/diff: no snapshot of the files: %w", errors.Join(c.files.failed, ctx.Err()))
		}
	}
	if err != nil {
		return fmt.Errorf("/diff: %w", err)
	}
	base, err := realCurrentDir()
	if err != nil {
		return err
	}
	text, err := c.files.recorder.Diff(ctx, from, to, base)
	if err != nil {
		return fmt.Errorf("/diff: %w", err)
	}
	lines := strings.Split(strings.TrimSuffix(cmp.Or(text, "no changes"), "\n"), "\n")
	for _, line := range lines[:min(len(lines), maxDiff)] {
		fmt.Fprintln(c.log, c.painter.diffLine(plain(line)))
	}
	if more := len(lines) - maxDiff; more > 0 {
		fmt.Fprintf(c.log, "… %d more lines\n", more)
	}
	return nil
}
