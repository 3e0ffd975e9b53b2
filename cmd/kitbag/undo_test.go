package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// TestChatUndo changes files with the tools and takes the changes back.
func TestChatUndo(t *testing.T) {
	edit := openaitest.Calls(call("Bash", `{"command":"echo two > a && mkdir new && echo x > new/b"}`))
	second := openaitest.Calls(call("Bash", `{"command":"echo more > new/c"}`))
	text := openaitest.Text
	for _, row := range []struct {
		why, mode, typed string
		turns            []openaitest.Turn
		left             string // of a and new/b
		log              []string
	}{
		{"undone", "bypass", "go\n/diff\n/undo\nagain\n", []openaitest.Turn{edit, text("done"), text("well").Expect(undone("a, new/b"))}, "one\n",
			[]string{"--- a\n+++ a\n@@ -1 +1 @@\n-one\n+two\n", "+++ new/b\n", `undone: what changed in files after "go"`, "restored a\n", "restored new/b\n", "not undone: "}},
		{"only once", "bypass", "go\n/undo\n/undo\n/diff\n", []openaitest.Turn{edit, text("done")}, "one\n", []string{"undone: ", "! /undo: no turn of this chat has changed a file", "! /diff: no turn"}},
		{"two turns", "bypass", "go\nmore\n/undo\n/undo\nagain\n", []openaitest.Turn{edit, text("done"), second, text("done"), text("well").Expect(undone("new/c, a, new/b"))}, "one\n",
			[]string{`after "more"`, `after "go"`}},
		{"everything, when nothing is left", "bypass", "go\n/undo\n/diff all\n", []openaitest.Turn{edit, text("done")}, "one\n", []string{"undone: ", "no changes\n"}},
		{"everything, before the first turn", "bypass", "/diff all\n", nil, "one\n", []string{"! /diff: no turn"}},
		{"the turn before", "bypass", "go\nhow?\n/undo\n", []openaitest.Turn{edit, text("done"), text("so")}, "one\n", []string{`after "go"`}},
		{"nothing changed", "bypass", "hi\n/undo\n", []openaitest.Turn{text("hello")}, "one\n", []string{"! /undo: no turn of this chat has changed a file"}},
		{"everything", "bypass", "go\n/diff all\n", []openaitest.Turn{edit, text("done")}, "two\nx\n", []string{"-one\n+two\n"}},
		{"a wrong argument", "bypass", "go\n/diff al\n", []openaitest.Turn{edit, text("done")}, "two\nx\n", []string{`! /diff: unknown argument "al"`}},
	} {
		t.Run(row.why, func(t *testing.T) {
			dir := workspace(t)
			if err := os.WriteFile(filepath.Join(dir, "a"), []byte("one\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			serve(t, row.turns...)
			f := plainFlags()
			f.mode = row.mode
			got, err := runChat(t, f, row.typed)
			if err != nil {
				t.Error(err)
			}
			rest := got.stderr
			for _, want := range row.log {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("%q is not shown, or too early: %s", want, got.stderr)
				}
				rest = after
			}
			left := ""
			for _, name := range []string{"a", "new/b"} {
				data, _ := os.ReadFile(filepath.Join(dir, name))
				left += string(data)
			}
			if left != row.left {
				t.Errorf("the files contain %q, want %q", left, row.left)
			}
		})
	}
}

// undone checks that a request says which files were undone.
func undone(files string) func(*openaitest.Request) error {
	return func(r *openaitest.Request) error {
		if got := r.Messages[len(r.Messages)-1].Text(); !strings.Contains(got, "The user has undone your changes to these files: "+files+".") {
			return errors.New("the last message is " + got)
		}
		return nil
	}
}

// TestChatCompact makes the conversation shorter.
func TestChatCompact(t *testing.T) {
	text := openaitest.Text
	long := strings.Repeat("many words ", 200)
	workspace(t)
	s := serve(t, text(long), text(long), text("they talked"), text("fine"))
	got, err := runChat(t, plainFlags(), "hi\nand?\n/compact\nwell?\n")
	if err != nil || !strings.Contains(got.stderr, "the conversation was compacted: from about") || !strings.HasSuffix(got.out, "fine\n") {
		t.Errorf("%v: %+v", err, got)
	}
	reqs := s.Requests()
	said := ""
	for _, m := range reqs[len(reqs)-1].Messages[1:] {
		said += m.Text() + "\n"
	}
	if !strings.Contains(said, "they talked") || strings.Contains(said, "hi\n") {
		t.Errorf("the last request says %q", said)
	}

	workspace(t)
	serve(t, text("hello"))
	if got, err := runChat(t, plainFlags(), "hi\n/compact\n"); err != nil || !strings.Contains(got.stderr, "the conversation is not shorter than before") {
		t.Errorf("%v: %+v", err, got)
	}

	workspace(t)
	serve(t, text(long), text(long), openaitest.Status(401, `{"error":{"message":"bad key"}}`), text("fine"))
	if got, err := runChat(t, plainFlags(), "hi\nand?\n/compact\nwell?\n"); err != nil || !strings.Contains(got.stderr, "the conversation is not compacted, as the model gave no summary") || !strings.HasSuffix(got.out, "fine\n") {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestSnapshotInterrupted: an interrupted first snapshot does not prevent later ones.
func TestSnapshotInterrupted(t *testing.T) {
	dir := workspace(t)
	h := new(fileHistory)
	defer h.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s := h.snapshot(ctx, []string{dir}); s != nil {
		t.Errorf("interrupted: %q", s)
	}
	if s := h.snapshot(t.Context(), []string{dir}); s == nil {
		t.Errorf("no snapshot afterwards: %v", h.failed)
	}
}

// TestSnapshotStopsTurn: an interrupt while a snapshot is made stops the turn; the next turn is made as usual.
func TestSnapshotStopsTurn(t *testing.T) {
	workspace(t)
	serve(t, openaitest.Text("hello").Expect(lastSaid("again")))
	got, err := runChatAt(t, plainFlags(), "stop\nagain\n", func(f lineFrontend) frontend { return &interruptOnce{lineFrontend: f} })
	if err != nil || got.out != "hello\n" || !strings.Contains(got.stderr, "! interrupted") {
		t.Errorf("%v: %+v", err, got)
	}
}

// interruptOnce is a frontend whose user interrupts the first work.
type interruptOnce struct {
	lineFrontend
	done bool
}

func (f *interruptOnce) Work(ctx context.Context, label string) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	if !f.done {
		f.done = true
		cancel()
	}
	return ctx, cancel
}
