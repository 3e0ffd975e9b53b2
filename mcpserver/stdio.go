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

// lastCallsTimeout is how long calls may run after the input has ended. The client may have ended, or it may have sent all of
// its input through a pipe and still read the answers.
const lastCallsTimeout = time.Second

// ServeStdio serves one client, with one message per line. When in ends, calls in flight have one second to finish, while
// subscriptions and questions to the client end at once; ServeStdio then returns nil. When ctx ends it returns an error. Since
// a Read of in cannot be interrupted, it then also closes in, if in is an [io.Closer].
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	// The connection has its own budgets. Its calls count towards the rates of clients without a credential.
	client := s.reg.newClient(&account{budgets: newBudgets(&s.cat.limits, 1), buckets: s.reg.anonymous.buckets}, false)
	inputEnded := make(chan struct{})
	client.inputEnded = inputEnded
	c := &stdioConn{session: newSession(client), sessionless: s.sessionless, out: wire.NewLines(out), slots: newSlots(&s.cat.limits)}
	s.reg.registerStdio(c.session)
	defer s.reg.remove(c.session)
	ctx, cancel := context.WithCancel(ctx)
	var pump sync.WaitGroup
	defer pump.Wait()
	defer c.work.Wait()
	defer cancel()
	pump.Go(func() { c.pump(ctx, c.out) })

	lines := make(chan wire.Line)
	go wire.ReadLines(ctx, in, s.cat.limits.Request, lines)
	for {
		select {
		case l := <-lines:
			if l.Err != nil {
				close(inputEnded) // ends questions that wait for the client's answers
				defer time.AfterFunc(lastCallsTimeout, cancel).Stop()
				c.work.Wait()
				if l.Err == io.EOF {
					return nil
				}
				return fmt.Errorf("mcpserver: read: %w", l.Err)
			}
			c.handleLine(ctx, l)
		case <-c.out.Failed():
			return fmt.Errorf("mcpserver: write: %w", c.out.Err())
		case <-ctx.Done():
			closeReader(in)
			return fmt.Errorf("mcpserver: %w", context.Cause(ctx))
		case <-s.reg.ctx.Done():
			closeReader(in)
			return errors.New("mcpserver: the server was closed")
		}
	}
}

// closeReader closes a reader that can be closed, to end a Read in progress.
func closeReader(in io.Reader) {
	if c, ok := in.(io.Closer); ok {
		_ = c.Close()
	}
}

// A stdioConn is a client over stdio, whose messages may be of any revision.
type stdioConn struct {
	*session
	sessionless *sessionless
	out         *wire.Lines
	slots       slots
	work        sync.WaitGroup // the goroutines of requests
}

// slots limit the requests whose answers share one stream: each holds a slot until its answer is written. There are
// more slots than calls, so a request only waits for a slot while the client does not read.
type slots chan struct{}

func newSlots(l *Limits) slots { return make(slots, 2*l.Calls) }

// handleLine handles one message. Requests run in parallel; other messages are handled in order.
func (c *stdioConn) handleLine(ctx context.Context, l wire.Line) {
	if l.TooLong {
		c.reply(rpc.Answer(rpc.RequestID(l.Data, l.Tail), nil, rpc.Errorf(mcp.INVALID_REQUEST, "the message is longer than the limit of %d bytes", c.cat.limits.Request)))
		return
	}
	if len(bytes.TrimSpace(l.Data)) == 0 {
		return
	}
	m, err := rpc.Parse(l.Data)
	if err != nil {
		c.reply(rpc.Answer(m.ID, nil, err))
		return
	}
	if !m.IsRequest() || m.Method == string(mcp.MethodInitialize) {
		c.serve(ctx, m)
		return
	}
	select {
	case c.slots <- struct{}{}: // while the client does not read, this blocks, so that no more input is read
	case <-c.out.Failed():
		return
	case <-ctx.Done():
		return
	case <-c.ctx.Done():
		return
	}
	ctx, done := c.expect(ctx, string(m.ID)) // the next line may cancel the request before its goroutine runs
	c.work.Go(func() {
		defer func() { done(); <-c.slots }()
		c.serve(ctx, m)
	})
}

// serve handles a message and writes the answer. A request of 2026-07-28 or later names its revision, others are of the session.
func (c *stdioConn) serve(ctx context.Context, m *rpc.Message) {
	var answer []byte
	if m.IsRequest() && mcp.IsModernProtocol(m.Meta.Version) {
		if err := m.Meta.Check(); err != nil {
			answer = rpc.Answer(m.ID, nil, err)
		} else {
			answer, _ = c.sessionless.handle(ctx, c.client, m, c.out)
		}
	} else {
		answer, _ = c.session.handle(ctx, m, c.out)
	}
	c.reply(answer)
}

// reply writes an answer, unless it is nil. If it cannot be written, ServeStdio ends.
func (c *stdioConn) reply(answer []byte) {
	if answer != nil {
		_ = c.out.Send(answer)
	}
}
