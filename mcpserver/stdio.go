package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
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
	w := wire.NewLines(out)
	var pump, work sync.WaitGroup
	defer pump.Wait()
	defer work.Wait()
	defer cancel()
	pump.Go(func() { c.pump(ctx, w, time.Hour, nil) })

	lines := make(chan wire.Line)
	go wire.ReadLines(ctx, in, s.limits.Request, lines)
	for {
		select {
		case l := <-lines:
			if l.Err != nil {
				close(inputEnded) // ends questions that wait for the client's answers
				defer time.AfterFunc(lastCalls, cancel).Stop()
				work.Wait()
				if l.Err == io.EOF {
					return nil
				}
				return fmt.Errorf("mcpserver: read: %w", l.Err)
			}
			s.handleLine(ctx, c, l, w, &work)
		case <-w.Failed():
			return fmt.Errorf("mcpserver: write: %w", w.Err())
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
func (s *Server) handleLine(ctx context.Context, c *session, l wire.Line, w *wire.Lines, work *sync.WaitGroup) {
	if l.TooLong {
		sendLine(w, rpc.Answer(rpc.RequestID(l.Data, l.Tail), nil, rpc.Errorf(mcp.INVALID_REQUEST, "the message is longer than the limit of %d bytes", s.limits.Request)))
		return
	}
	if len(bytes.TrimSpace(l.Data)) == 0 {
		return
	}
	m, err := rpc.Parse(l.Data)
	if err != nil {
		sendLine(w, rpc.Answer(m.ID, nil, err))
		return
	}
	if m.Method == "" || m.ID == nil || m.Method == string(mcp.MethodInitialize) {
		handleOver(ctx, c, m, w)
		return
	}
	select {
	case c.slots <- struct{}{}: // blocks while the client does not read; no input is read then
	case <-w.Failed():
		return
	case <-ctx.Done():
		return
	case <-s.ctx.Done():
		return
	}
	work.Go(func() {
		defer func() { <-c.slots }()
		handleOver(ctx, c, m, w)
	})
}

// sendLine writes an answer, unless it is nil. If the answer cannot be written, ServeStdio ends.
func sendLine(w *wire.Lines, message []byte) {
	if message != nil {
		_ = w.Send(message)
	}
}

// handleOver handles a message and writes the answer.
func handleOver(ctx context.Context, c *session, m *rpc.Message, w *wire.Lines) {
	answer, _ := c.handle(ctx, m, w)
	sendLine(w, answer)
}
