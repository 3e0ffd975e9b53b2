package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/term"
	"github.com/kitbag-go/kitbag/permission"
)

// A prompt asks the user at a terminal: through screen if it is set, otherwise line by line.
type prompt struct {
	out    io.Writer
	screen *term.Screen
	lines  chan string // the typed lines, closed at the end of the input; nil with a screen
	input  *os.File    // nil with a screen, and in tests

	keepRules func(ctx context.Context, rules []permission.Rule) error // stores rules for the project; nil if that is not possible
}

// newPrompt returns a prompt without a screen, which must be the only reader of in. A goroutine reads all lines until the
// input or the program ends: a question can be abandoned, but a read from a terminal cannot be cancelled.
func newPrompt(in io.Reader, out io.Writer) *prompt {
	p := &prompt{out: out, lines: make(chan string)}
	p.input, _ = in.(*os.File)
	go func() {
		defer close(p.lines)
		for sc := bufio.NewScanner(in); sc.Scan(); {
			p.lines <- sc.Text()
		}
	}()
	return p
}

// errNoAnswer means that the user ended the input without an answer.
var errNoAnswer = errors.New("no answer")

// discardTyped drops what was typed before the question was shown, since it cannot be the answer.
func (p *prompt) discardTyped() {
	if p.input == nil { // a screen drops typed text itself
		return
	}
	flushInput(p.input)
	select {
	case <-p.lines: // the goroutine of newPrompt reads one line ahead
	default:
	}
}

// readLine shows the question and returns the next line as typed.
func (p *prompt) readLine(ctx context.Context, question string) (string, error) {
	if p.screen != nil {
		return p.screen.Line(ctx, question, "")
	}
	fmt.Fprint(p.out, question)
	select {
	case line, ok := <-p.lines:
		if !ok {
			return "", errNoAnswer
		}
		return line, nil
	case <-ctx.Done():
		fmt.Fprintln(p.out) // end the question's line
		return "", context.Cause(ctx)
	}
}

// readTrimmed is like readLine, without surrounding space.
func (p *prompt) readTrimmed(ctx context.Context, question string) (string, error) {
	line, err := p.readLine(ctx, question)
	return strings.TrimSpace(line), err
}

// waitOrInterrupt returns the result of read, or an exit error when ctx ends. In that case read may continue until the
// program ends, since a read from a terminal or a pipe cannot be cancelled.
func waitOrInterrupt(ctx context.Context, read func() error) error {
	done := make(chan error, 1)
	go func() { done <- read() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return &exit{code: exitInterrupted}
	}
}
