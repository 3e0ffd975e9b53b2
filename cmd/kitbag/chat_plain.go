package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

// lineFrontend is a frontend that reads messages line by line.
type lineFrontend struct {
	prompt *prompt
	log    io.Writer
}

// message returns the user's next message, or an error at the end of the input. Unlike an answer to a
// question, a message may be typed while the agent works.
func (f lineFrontend) message(ctx context.Context) (string, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	var text []string
	question := "> "
	for {
		line, err := f.prompt.line(ctx, question)
		if err != nil {
			if errors.Is(err, errNoAnswer) {
				fmt.Fprintln(f.log) // start a new line for the shell's prompt
			}
			return "", err
		}
		more, continued := strings.CutSuffix(line, `\`)
		text = append(text, more)
		if !continued {
			return strings.TrimSpace(strings.Join(text, "\n")), nil
		}
		question = ". "
	}
}

func (f lineFrontend) work(ctx context.Context, _ string) (context.Context, func()) {
	return interruptible(ctx, f.log)
}
