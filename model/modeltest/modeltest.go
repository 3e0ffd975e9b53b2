// Package modeltest tests a [model.Model]: the contract of its Generate, on which agents, [model.Collect]
// and the models of package middleware rely.
//
//	func TestVendor(t *testing.T) {
//		modeltest.Run(t, newVendor(startServer(t, answer)), modeltest.Options{
//			Fails: newVendor(startServer(t, status500)),
//			Hangs: newVendor(startServer(t, silence)),
//		})
//	}
//
// The model is called for real, many times: give it a server of the test, or recorded answers (package
// replay). Run the test with -race.
package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// Options configure Run.
type Options struct {
	// Fails is a model whose every call fails, without an answer or in the middle of one. Nil skips these tests.
	Fails model.Model

	// Hangs is a model whose server sends nothing, or stops in the middle of an answer, until the request is
	// cancelled. Nil skips these tests.
	Hangs model.Model

	// Request is the request to send; nil means a user's "Hello".
	Request *model.Request
}

// patience is how long a call may last after its context has ended; it allows for a busy machine.
const patience = 10 * time.Second

// Run tests m, which must give the same answer each time, if possible with all kinds of deltas. It reports as
// errors of the test:
//
//   - an answer that does not end with exactly one Finish, or whose Finish has no reason
//   - anything after an error or the Finish, or after the consumer has stopped
//   - deltas of calls that are not numbered from 0 on, repeat an id or a name, or have no name
//   - chunks that change after they were yielded, and a request that was changed
//   - a failure that is not a [*model.Error] with a kind
//   - a call that does not end with its context, or ends with another error than the context's
//   - an answer that differs when several requests are made at a time
func Run(t *testing.T, m model.Model, o Options) {
	t.Helper()
	for _, err := range check(t.Context(), m, o) {
		t.Error(err)
	}
}

func check(ctx context.Context, m model.Model, o Options) []error {
	c := &checker{ctx: ctx, model: m, req: o.Request}
	if c.req == nil {
		c.req = &model.Request{Messages: []*message.Message{message.User("Hello")}}
	}
	if chunks, answer := c.checkAnswer(); chunks > 0 {
		c.checkStop(chunks)
		c.checkCancel(chunks)
		c.checkConcurrent(answer)
	}
	if o.Fails != nil {
		s := c.read(ctx, o.Fails, -1, nil)
		if e, ok := errors.AsType[*model.Error](s.err); !ok || e.Kind == "" {
			c.errorf("a failed call ended with %#v; want a *model.Error with a Kind", s.err)
		}
	}
	if o.Hangs != nil {
		limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		s := c.read(limited, o.Hangs, -1, nil)
		if took := time.Since(start); !errors.Is(s.err, context.DeadlineExceeded) || took > patience {
			c.errorf("a call that was cut off ended after %v with %v; want the context's error", took, s.err)
		}
	}
	return c.errs
}

// A checker tests a model by its answers to a request.
type checker struct {
	ctx   context.Context
	model model.Model
	req   *model.Request

	mu   sync.Mutex
	errs []error
}

// errorf adds an error to errs, unless errs has it already: the same error may occur in many calls.
func (c *checker) errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := fmt.Errorf(format, args...)
	if !slices.ContainsFunc(c.errs, func(e error) bool { return e.Error() == err.Error() }) {
		c.errs = append(c.errs, err)
	}
}

// A stream has the chunks and the error that a call has yielded.
type stream struct {
	chunks []model.Chunk
	texts  []string // of the chunks, when they were yielded
	err    error
}

// read makes a call and stops after n chunks, unless n is -1. each, if not nil, is called after every chunk.
func (c *checker) read(ctx context.Context, m model.Model, n int, each func()) *stream {
	s := &stream{}
	stopped := false
	m.Generate(ctx, c.req)(func(chunk model.Chunk, err error) bool { // unlike a range loop it sees chunks after the end
		switch {
		case stopped:
			c.errorf("%T, %v came after the consumer had stopped", chunk, err)
			return false
		case s.err != nil:
			c.errorf("%T, %v came after the error %v", chunk, err, s.err)
			return false
		case err != nil:
			if s.err = err; chunk != nil {
				c.errorf("a %T came with the error %v", chunk, err)
			}
			return true
		case chunk == nil:
			c.errorf("neither a chunk nor an error was yielded")
			return true
		}
		s.chunks, s.texts = append(s.chunks, chunk), append(s.texts, text(chunk))
		if each != nil {
			each()
		}
		stopped = len(s.chunks) == n
		return !stopped
	})
	for i, chunk := range s.chunks {
		if text(chunk) != s.texts[i] {
			c.errorf("chunk %d was changed after it was yielded: from %s to %s", i, s.texts[i], text(chunk))
		}
	}
	c.checkOrder(s)
	return s
}

// text returns a chunk in a form that can be compared.
func text(chunk model.Chunk) string {
	data, err := json.Marshal(chunk)
	return fmt.Sprintf("%T %s %v", chunk, data, err)
}

// checkOrder checks the order of the chunks, and the indexes, ids and names of tool calls.
func (c *checker) checkOrder(s *stream) {
	ids, names := map[int]string{}, map[int]string{} // of calls, by index
	for i, chunk := range s.chunks {
		switch chunk := chunk.(type) {
		case *model.Finish:
			if i < len(s.chunks)-1 || s.err != nil {
				c.errorf("the Finish is chunk %d of %d, with the error %v; nothing may follow it", i, len(s.chunks), s.err)
			}
			if chunk.Reason == "" {
				c.errorf("the Finish has no Reason; use model.FinishStop if the server gives none")
			}
		case *model.ToolCallDelta:
			index := chunk.Index
			if _, known := ids[index]; !known && index != len(ids) {
				c.errorf("call %d of the answer has the Index %d", len(ids), index)
			}
			if ids[index] != "" && chunk.ID != "" || names[index] != "" && chunk.Name != "" {
				c.errorf("call %d has an ID or a Name twice; each comes once, complete", index)
			}
			ids[index] += chunk.ID
			names[index] += chunk.Name
		}
	}
	for index := range len(names) {
		if s.finished() && names[index] == "" {
			c.errorf("call %d has no Name", index)
		}
	}
}

// finished reports whether the last chunk is a Finish.
func (s *stream) finished() bool {
	n := len(s.chunks)
	return n > 0 && strings.HasPrefix(s.texts[n-1], "*model.Finish ")
}

// all yields the chunks again, but not the error.
func (s *stream) all(yield func(model.Chunk, error) bool) {
	for _, chunk := range s.chunks {
		if !yield(chunk, nil) {
			return
		}
	}
}

// content returns the content of an answer, without ids, which may differ each time.
func content(chunks iter.Seq2[model.Chunk, error]) string {
	msg, _, err := model.Collect(chunks)
	text := fmt.Sprintf("%q", msg.Text())
	for _, call := range msg.ToolCalls() {
		text += fmt.Sprintf(" %s%s", call.Name, call.Input)
	}
	return fmt.Sprint(text, " ", err)
}

// checkAnswer reads a whole answer, and checks that it has the same content as what Collect returns for a second call. It
// returns the number of chunks, 0 if the answer is not complete, and the content.
func (c *checker) checkAnswer() (chunks int, answer string) {
	before, _ := json.Marshal(c.req)
	s := c.read(c.ctx, c.model, -1, nil)
	if s.err != nil || !s.finished() {
		c.errorf("the answer did not end with a Finish, but with %d chunks and the error %v", len(s.chunks), s.err)
		return 0, ""
	}
	if after, _ := json.Marshal(c.req); string(before) != string(after) {
		c.errorf("the request was changed from\n%s\nto\n%s", before, after)
	}
	answer = content(s.all)
	if second := content(c.model.Generate(c.ctx, c.req)); second != answer {
		c.errorf("Collect returns %s for one answer, and %s for the chunks of the other", second, answer)
	}
	return len(s.chunks), answer
}

// checkStop makes a call for each chunk of the answer, and stops reading after that chunk.
func (c *checker) checkStop(chunks int) {
	for n := 1; n <= chunks; n++ {
		if s := c.read(c.ctx, c.model, n, nil); s.err != nil {
			c.errorf("the consumer stopped after chunk %d, and the call ended with %v", n, s.err)
		}
	}
}

// checkCancel makes a call whose context has ended, and calls whose context ends after the first chunk, the second, and so
// on. The model may still yield chunks that it has received.
func (c *checker) checkCancel(chunks int) {
	for n := range chunks { // cancel after n chunks
		ctx, cancel := context.WithCancel(c.ctx)
		if n == 0 {
			cancel()
		}
		start, seen := time.Now(), 0
		s := c.read(ctx, c.model, -1, func() {
			if seen++; seen == n {
				cancel()
			}
		})
		cancel()
		if took := time.Since(start); s.err != nil && !errors.Is(s.err, context.Canceled) || s.err == nil && !s.finished() || took > patience {
			c.errorf("a call that was cancelled after %d chunks ended after %v with %v; want the context's error, or the rest of the answer", n, took, s.err)
		}
	}
}

// checkConcurrent makes several calls at a time, which must have the given answer.
func (c *checker) checkConcurrent(answer string) {
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			if s := c.read(c.ctx, c.model, -1, nil); s.err != nil || content(s.all) != answer {
				c.errorf("a concurrent call has the answer %s, error %v; alone the answer is %s", content(s.all), s.err, answer)
			}
		})
	}
	calls.Wait()
}
