package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/term"
	"github.com/kitbag-go/kitbag/permission"
)

// A prompt asks the user at a terminal: through screen if it is set, otherwise line by line. Without a screen one
// goroutine reads the input until the program ends, so that a question can be abandoned without an answer.
type prompt struct {
	out    io.Writer
	screen *term.Screen
	lines  chan string // closed when there is no more input
	tty    *os.File    // nil if the input is not a file

	keepRules func(ctx context.Context, rules []permission.Rule) error // stores rules for the project; nil if that is not possible
}

// newPrompt starts to read from in, of which it must be the only reader. Its goroutine ends with the input or with the
// program, since a read from a terminal cannot be cancelled.
func newPrompt(in io.Reader, out io.Writer) *prompt {
	p := &prompt{out: out, lines: make(chan string)}
	p.tty, _ = in.(*os.File)
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
	if p.screen != nil || p.tty == nil { // a screen drops it itself
		return
	}
	flushInput(p.tty)
	select {
	case <-p.lines: // read before the question
	default:
	}
}

// line shows the question and returns the next line as typed.
func (p *prompt) line(ctx context.Context, question string) (string, error) {
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

// read is like line, without surrounding space.
func (p *prompt) read(ctx context.Context, question string) (string, error) {
	line, err := p.line(ctx, question)
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

// parseAnswer reads CALL_ID[.QUESTION]=allow or CALL_ID[.QUESTION]=deny[:reason].
func parseAnswer(s string) (event.Confirm, error) {
	id, reason, ok := strings.Cut(s, "=deny")
	if ok && id != "" && (reason == "" || reason[0] == ':') { // a reason may end in "=allow"
		call, question := parseQuestion(id)
		return event.Confirm{Call: call, Question: question, Reason: strings.TrimPrefix(reason, ":")}, nil
	}
	if id, ok := strings.CutSuffix(s, "=allow"); ok && id != "" {
		call, question := parseQuestion(id)
		return event.Confirm{Call: call, Question: question, Allow: true}, nil
	}
	return event.Confirm{}, usage("--answer %q: write CALL_ID.QUESTION=allow or CALL_ID.QUESTION=deny[:reason]", s)
}

// parseQuestion splits CALL_ID.QUESTION by its form alone: the model chooses the call ids, and an id may itself end in a
// dot and a number.
func parseQuestion(id string) (call string, question int64) {
	if i := strings.LastIndexByte(id, '.'); i > 0 {
		if n, err := strconv.ParseInt(id[i+1:], 10, 64); err == nil && n > 0 && questionID(id[:i], n) == id {
			return id[:i], n
		}
	}
	return id, 0
}

// questionID joins a call's id and a question's number; parseQuestion splits them.
func questionID(call string, question int64) string {
	if question == 0 { // the session was written by an older version
		return call
	}
	return fmt.Sprintf("%s.%d", call, question)
}

// parseRules reads the rules of the flags --allow, --ask and --deny.
func parseRules(texts map[permission.Behavior][]string) ([]permission.Rule, error) {
	var rules []permission.Rule
	for _, b := range []permission.Behavior{permission.Deny, permission.Ask, permission.Allow} {
		for _, text := range texts[b] {
			r, err := permission.ParseRule(text, b)
			if err != nil {
				return nil, usage("--%s: %w", b, err)
			}
			r.Source = "command line"
			rules = append(rules, r)
		}
	}
	return rules, nil
}
