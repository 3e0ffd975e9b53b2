package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
)

// lastCalls is how long calls may run after the input has ended. The client may have ended, or it may have sent
// all of its input through a pipe and still read the answers.
const lastCalls = time.Second

// ServeStdio serves one client, with one message per line. It returns nil when in ends, and an error when ctx
// ends. Calls in flight then have one second to finish; subscriptions and questions to the client end at once.
// A Read of in cannot be interrupted: if ctx ends first and in is an [io.Closer], it is closed.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	c := s.newSession(nil)
	c.owner = newOwner(1) // not shared with other connections
	c.useSlots()
	inputEnded := make(chan struct{})
	c.inputEnded = inputEnded
	s.add(c)
	defer s.remove(c)
	ctx, cancel := context.WithCancel(ctx)
	w := &lineWriter{w: out}
	var pump, work sync.WaitGroup
	defer pump.Wait()
	defer work.Wait()
	defer cancel()
	pump.Go(func() { c.pump(ctx, w, time.Hour, nil) })

	lines := make(chan line)
	go readLines(ctx, in, s.limits.Request, lines)
	for {
		select {
		case l := <-lines:
			if l.err != nil {
				close(inputEnded) // ends questions that wait for the client's answers
				defer time.AfterFunc(lastCalls, cancel).Stop()
				work.Wait()
				if l.err == io.EOF {
					return nil
				}
				return fmt.Errorf("mcpserver: read: %w", l.err)
			}
			s.handleLine(ctx, c, l, w, &work)
		case <-w.failed():
			return fmt.Errorf("mcpserver: write: %w", w.err)
		case <-ctx.Done():
			closeReader(in)
			return fmt.Errorf("mcpserver: %w", context.Cause(ctx))
		case <-s.ctx.Done():
			closeReader(in)
			return errors.New("mcpserver: the server was closed")
		}
	}
}

// closeReader closes the reader, if it can be closed, which ends a Read in progress.
func closeReader(in io.Reader) {
	if c, ok := in.(io.Closer); ok {
		_ = c.Close() // it is no longer used
	}
}

// handleLine handles one message. Requests run in parallel; other messages are handled in order.
func (s *Server) handleLine(ctx context.Context, c *session, l line, w *lineWriter, work *sync.WaitGroup) {
	if l.tooLong {
		w.reply(rpc.Answer(rpc.RequestID(l.data, l.tail), nil, rpc.Errorf(mcp.INVALID_REQUEST, "the message is longer than the limit of %d bytes", s.limits.Request)))
		return
	}
	if len(bytes.TrimSpace(l.data)) == 0 {
		return
	}
	m, err := rpc.Parse(l.data)
	if err != nil {
		w.reply(rpc.Answer(m.ID, nil, err))
		return
	}
	if m.Method == "" || m.ID == nil || m.Method == string(mcp.MethodInitialize) {
		w.handle(ctx, c, m)
		return
	}
	select {
	case c.slots <- struct{}{}: // blocks while the client does not read; no input is read then
	case <-w.failed():
		return
	case <-ctx.Done():
		return
	case <-s.ctx.Done():
		return
	}
	work.Go(func() {
		defer func() { <-c.slots }()
		w.handle(ctx, c, m)
	})
}

// A line is a message, or the error that ended the input.
type line struct {
	data    []byte
	tooLong bool   // data is only the beginning of the message
	tail    []byte // the end of a message that is too long
	err     error
}

// keptOfTooLong is how many bytes are kept of either end of a line that is too long, to find its id.
const keptOfTooLong = 4 << 10

// readLines reads lines of at most limit bytes, and the beginning and the end of longer lines.
func readLines(ctx context.Context, in io.Reader, limit int, lines chan<- line) {
	r := bufio.NewReader(in)
	for {
		var l line
		for {
			part, err := r.ReadSlice('\n')
			if !l.tooLong {
				l.data = append(l.data, part...)
			}
			if len(l.data) > limit {
				l.data, l.tooLong = bytes.Clone(l.data[:min(keptOfTooLong, limit)]), true
			}
			if l.tooLong {
				l.tail = append(l.tail, part...)
				l.tail = l.tail[max(0, len(l.tail)-keptOfTooLong):]
			}
			if err == bufio.ErrBufferFull {
				continue
			}
			if len(l.data) == 0 && !l.tooLong {
				l.err = err
			}
			break
		}
		select {
		case lines <- l:
		case <-ctx.Done():
			return
		}
		if l.err != nil {
			return
		}
	}
}

// A lineWriter writes messages, one at a time.
type lineWriter struct {
	w    io.Writer
	once sync.Once
	fail chan struct{}

	mu  sync.Mutex
	err error
}

// streams implements responder.
func (w *lineWriter) streams() bool { return true }

// send implements responder. Messages have no line breaks, because encode writes none.
func (w *lineWriter) send(message []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if _, err := w.w.Write(append(message, '\n')); err != nil {
		w.err = err
		close(w.failed())
	}
	return w.err
}

// reply writes an answer, unless it is nil. If the answer cannot be written, ServeStdio ends.
func (w *lineWriter) reply(message []byte) {
	if message != nil {
		_ = w.send(message)
	}
}

// handle handles a message and writes the answer.
func (w *lineWriter) handle(ctx context.Context, c *session, m *rpc.Message) {
	reply, _ := c.handle(ctx, m, w)
	w.reply(reply)
}

// failed returns a channel that is closed after a failed write.
func (w *lineWriter) failed() chan struct{} {
	w.once.Do(func() { w.fail = make(chan struct{}) })
	return w.fail
}
