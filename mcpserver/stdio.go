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
)

// lastCalls is how long calls may run after the client has closed its output: it may have gone, or
// may be a pipe that has sent everything.
const lastCalls = time.Second

// ServeStdio serves one client, a message a line, until in ends, which is not an error, or ctx
// does. Calls in flight then have a second to end; subscriptions and questions to the client end at
// once. A Read of in cannot be interrupted: if ctx ends first and in is an [io.Closer], it is
// closed.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	c := s.newSession(nil)
	c.owner = &owner{share: maxWatched} // no one else's
	c.oneStream()
	silent := make(chan struct{})
	c.silent = silent
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
				close(silent) // end what waits for the client
				defer time.AfterFunc(lastCalls, cancel).Stop()
				work.Wait()
				if l.err == io.EOF {
					return nil
				}
				return fmt.Errorf("mcpserver: read: %w", l.err)
			}
			s.takeLine(ctx, c, l, w, &work)
		case <-w.failed():
			return fmt.Errorf("mcpserver: write: %w", w.err)
		case <-ctx.Done():
			closeInput(in)
			return fmt.Errorf("mcpserver: %w", context.Cause(ctx))
		case <-s.ctx.Done():
			closeInput(in)
			return errors.New("mcpserver: the server was closed")
		}
	}
}

// closeInput ends a Read.
func closeInput(in io.Reader) {
	if c, ok := in.(io.Closer); ok {
		_ = c.Close() // it is not used any more
	}
}

// takeLine handles one message. Requests run in parallel; other messages are handled in order.
func (s *Server) takeLine(ctx context.Context, c *session, l line, w *lineWriter, work *sync.WaitGroup) {
	if l.tooLong {
		w.reply(answer(nil, nil, invalid(mcp.INVALID_REQUEST, "the message is longer than %d bytes", s.limits.Request)))
		return
	}
	if len(bytes.TrimSpace(l.data)) == 0 {
		return
	}
	m, bad := parseMessage(l.data)
	if bad != nil {
		w.reply(answer(nil, nil, bad))
		return
	}
	if m.Method == "" || m.ID == nil || m.Method == string(mcp.MethodInitialize) {
		w.handle(ctx, c, m)
		return
	}
	select {
	case c.slots <- struct{}{}: // none is free while the client does not read; then its input is not read either
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

// A line is a message, or why there are no more.
type line struct {
	data    []byte
	tooLong bool
	err     error
}

// readLines reads lines of at most limit bytes; of longer ones it skips the rest.
func readLines(ctx context.Context, in io.Reader, limit int, lines chan<- line) {
	r := bufio.NewReader(in)
	for {
		var l line
		for {
			part, err := r.ReadSlice('\n')
			if len(l.data)+len(part) > limit {
				l.data, l.tooLong = nil, true
			}
			if !l.tooLong {
				l.data = append(l.data, part...)
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

// A lineWriter writes messages whole, one after the other.
type lineWriter struct {
	w    io.Writer
	once sync.Once
	fail chan struct{}

	mu  sync.Mutex
	err error
}

// streams implements outlet.
func (w *lineWriter) streams() bool { return true }

// send implements outlet. Messages never have line breaks: encode writes none.
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

// reply writes an answer; nil is none. If it cannot be written ServeStdio ends.
func (w *lineWriter) reply(message []byte) {
	if message != nil {
		_ = w.send(message)
	}
}

// handle handles a message and writes the answer.
func (w *lineWriter) handle(ctx context.Context, c *session, m *rpcMessage) {
	reply, _ := c.handle(ctx, m, w)
	w.reply(reply)
}

// failed is closed after a failed write.
func (w *lineWriter) failed() chan struct{} {
	w.once.Do(func() { w.fail = make(chan struct{}) })
	return w.fail
}
