package scripted

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/size"
)

// pieceSize is the approximate number of bytes in a delta: a few words.
const pieceSize = 12

var errStopped = errors.New("the reader stopped")

// An answer is one turn being played.
type answer struct {
	ctx      context.Context
	req      *model.Request
	yield    func(model.Chunk, error) bool
	calls    int // tool calls played so far
	nextCall int // number in the next call's id
	output   int // bytes of all deltas
	thought  int // bytes of the thinking deltas
}

// play yields a turn and its finish. It returns an error without yielding it.
func (a *answer) play(turn Turn) error {
	for _, p := range turn.parts {
		if err := a.part(p); err != nil {
			return err
		}
	}
	reason := model.FinishStop
	if a.calls > 0 {
		reason = model.FinishToolCalls
	}
	input, _ := size.Of(a.req)
	return a.send(&model.Finish{Reason: reason, Model: "scripted", Usage: message.Usage{
		Input: tokens(input), Output: tokens(a.output), Reasoning: tokens(a.thought),
	}})
}

// part plays one part; an error part returns its error.
func (a *answer) part(p part) error {
	switch {
	case p.text != nil:
		a.output += len(*p.text)
		return a.pieces(*p.text, func(s string) model.Chunk { return &model.TextDelta{Text: s} })
	case p.thinking != nil:
		a.output += len(*p.thinking)
		a.thought += len(*p.thinking)
		return a.pieces(*p.thinking, func(s string) model.Chunk { return &model.ThinkingDelta{Text: s} })
	case p.call != nil:
		return a.call(p.call)
	}
	return p.err
}

// call plays a tool call: the first delta has its id and its name, as those of a real model
// do, and the arguments follow in pieces.
func (a *answer) call(c *call) error {
	index := a.calls
	a.calls++
	id := "call_" + strconv.Itoa(a.nextCall)
	a.nextCall++
	a.output += len(c.name) + len(c.args)
	if err := a.send(&model.ToolCallDelta{Index: index, ID: id, Name: c.name}); err != nil {
		return err
	}
	return a.pieces(string(c.args), func(s string) model.Chunk { return &model.ToolCallDelta{Index: index, Args: s} })
}

// pieces sends s in parts, none of which splits a rune.
func (a *answer) pieces(s string, chunk func(string) model.Chunk) error {
	for s != "" {
		n := min(pieceSize, len(s))
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n++
		}
		if err := a.send(chunk(s[:n])); err != nil {
			return err
		}
		s = s[n:]
	}
	return nil
}

// send yields a chunk, unless the context has ended.
func (a *answer) send(c model.Chunk) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if !a.yield(c, nil) {
		return errStopped
	}
	return nil
}

// nextCallNumber returns a number greater than that of every "call_N" in the conversation,
// so that ids are unique without state.
func nextCallNumber(req *model.Request) int {
	next := 1
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			c, ok := b.(*message.ToolCall)
			if !ok {
				continue
			}
			digits, ok := strings.CutPrefix(c.ID, "call_")
			if n, err := strconv.Atoi(digits); ok && err == nil {
				next = max(next, n+1)
			}
		}
	}
	return next
}

// tokens estimates the tokens in size bytes: four bytes per token, rounded up.
func tokens(size int) int { return (size + 3) / 4 }

// LastContains is a check for [Turn.Expect]: the last message, from the user or with tool results, contains text.
func LastContains(text string) func(*model.Request) error {
	return func(req *model.Request) error {
		if len(req.Messages) == 0 {
			return errors.New("the request has no messages")
		}
		last := wholeText(req.Messages[len(req.Messages)-1].Blocks)
		if !strings.Contains(last, text) {
			return fmt.Errorf("the last message does not contain %q; it is %q", text, last)
		}
		return nil
	}
}

// HasTools is a check for [Turn.Expect]: the model is shown exactly these tools, in this order.
func HasTools(names ...string) func(*model.Request) error {
	return func(req *model.Request) error {
		var shown []string
		for _, t := range req.Tools {
			shown = append(shown, t.Name)
		}
		if got, want := strings.Join(shown, " "), strings.Join(names, " "); got != want {
			return fmt.Errorf("the tools are [%s], expected [%s]", got, want)
		}
		return nil
	}
}

// wholeText joins all text of a message, tool results included.
func wholeText(bs message.Blocks) string {
	var parts []string
	for _, b := range bs {
		switch b := b.(type) {
		case *message.Text:
			parts = append(parts, b.Text)
		case *message.Hint:
			parts = append(parts, b.Text)
		case *message.ToolResult:
			parts = append(parts, wholeText(b.Blocks))
		}
	}
	return strings.Join(parts, "\n")
}
