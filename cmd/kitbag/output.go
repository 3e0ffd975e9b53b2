package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"

	"golang.org/x/term"
)

// A checkedWriter records the first write error of standard output, so that commands need not check each line.
// Lost output must fail the command, or a script would continue with half a list.
type checkedWriter struct {
	io.Writer

	mu  sync.Mutex
	err error // the first error
}

func (w *checkedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = cmp.Or(w.err, err)
	}
	return n, err
}

func (w *checkedWriter) firstError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func isTerminal(stream any) bool {
	if w, ok := stream.(*checkedWriter); ok {
		stream = w.Writer
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// A noticeHandler prints the warnings of other packages in the format of kitbag's own warnings, without time and level.
type noticeHandler struct {
	log   io.Writer
	attrs []slog.Attr
}

func (h noticeHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h noticeHandler) Handle(_ context.Context, r slog.Record) error {
	line := "! " + r.Message
	add := func(a slog.Attr) bool {
		line += fmt.Sprintf("; %s: %s", a.Key, a.Value)
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	_, err := fmt.Fprintln(h.log, plainLine(line))
	return err
}

func (h noticeHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = slices.Concat(h.attrs, attrs)
	return h
}

// WithGroup ignores groups: attributes are printed without them.
func (h noticeHandler) WithGroup(string) slog.Handler { return h }
