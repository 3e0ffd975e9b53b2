package main

import (
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

func (o *checkedWriter) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// failed returns the first error, or nil.
func (o *checkedWriter) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func isTerminal(stream any) bool {
	if o, ok := stream.(*checkedWriter); ok {
		stream = o.Writer
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// notices is a [slog.Handler] that prints warnings of packages like kitbag's own, without time and level.
type notices struct {
	log   io.Writer
	attrs []slog.Attr
}

func (n notices) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (n notices) Handle(_ context.Context, r slog.Record) error {
	line := "! " + r.Message
	add := func(a slog.Attr) bool {
		line += fmt.Sprintf("; %s: %s", a.Key, a.Value)
		return true
	}
	for _, a := range n.attrs {
		add(a)
	}
	r.Attrs(add)
	_, err := fmt.Fprintln(n.log, plainLine(line))
	return err
}

func (n notices) WithAttrs(attrs []slog.Attr) slog.Handler {
	n.attrs = slices.Concat(n.attrs, attrs)
	return n
}

// WithGroup ignores groups: attributes are printed without them.
func (n notices) WithGroup(string) slog.Handler { return n }
