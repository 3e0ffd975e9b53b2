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

// Message implements frontend. Unlike an answer to a question, a message may be typed while the agent works.
func (f lineFrontend) Message(ctx context.Context) (string, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	var text []string
	question := "> "
	for {
		line, err := f.prompt.readLine(ctx, question)
		if err != nil {
			if errors.Is(err, errNoAnswer) {
				fmt.Fprintln(f.log) // start a new line for the shell's prompt
			}
			return "", err
		}
		line, continued := strings.CutSuffix(line, `\`)
		text = append(text, line)
		if !continued {
			return strings.TrimSpace(strings.Join(text, "\n")), nil
		}
		question = ". " // the message continues
	}
}

// Work implements frontend, without a status line.
func (f lineFrontend) Work(ctx context.Context, _ string) (context.Context, func()) {
	return interruptible(ctx, f.log)
}
