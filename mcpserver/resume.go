package mcpserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// Before revision 2026-07-28, "disconnection SHOULD NOT be interpreted as the client
// cancelling its request" (2025-11-25, basic/transports, Sending Messages): a laptop that
// sleeps must not undo a long call. The call goes on, what it has to say is kept, and the
// client gets the rest by a GET with Last-Event-ID (same page, Resumability and
// Redelivery). Both end after [Limits.Resume] without a connection.

const (
	// maxKept is how many bytes of events a session keeps for clients that come back,
	// maxStreams of how many streams. What was answered first goes first.
	maxKept    = 1 << 20
	maxStreams = 64

	// primeAfter is when a call that has said nothing yet starts its stream all the
	// same, since a client can come back only to an event that it has got. Most calls
	// are quicker and are answered by plain JSON.
	primeAfter = time.Second

	// retryAfter is how long clients are told to wait before they come back.
	retryAfter = time.Second

	lastEventID = "Last-Event-ID"
)

// A stream is what is sent in answer to one request, or without one on a stream of its
// own, over as many connections as that takes.
type stream struct {
	c       *session
	tag     string // of its events' ids; other streams cannot be guessed by it
	accepts bool
	primes  bool               // the client understands events without data
	cancel  context.CancelFunc // ends the request; nil if there is none
	done    chan struct{}      // closed when there is no more to say

	mu    sync.Mutex   // is held while an event is written: they go out in order
	to    *eventWriter // nil while the connection is lost
	began bool         // there are events, so that the answer has to be one
	over  bool
	away  *time.Timer // runs while to is nil

	// These belong to the session: session.mu guards them.
	events   []string // that are kept
	first    int      // the number of events[0]; the first of all is 1
	size     int      // of events, in bytes
	answered bool
}

func (c *session) newStream(to *eventWriter, accepts bool, cancel context.CancelFunc) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Clients of older revisions parse the data of every event as JSON.
	return &stream{c: c, to: to, accepts: accepts, primes: accepts && c.version >= mcp.LATEST_LEGACY_PROTOCOL_VERSION,
		cancel: cancel, done: make(chan struct{}), first: 1}
}

// streams implements outlet.
func (st *stream) streams() bool { return st.accepts }

// send implements outlet. That nobody is there to read is no error: the message is kept.
func (st *stream) send(message []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over {
		return errEnded
	}
	st.begin()
	st.put(event(message))
	return nil
}

// prime starts the stream with an event that says nothing, but has an id to come back to.
func (st *stream) prime() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.over {
		st.begin()
	}
}

// begin makes the stream one that can be resumed. The caller holds st.mu.
func (st *stream) begin() {
	if st.began {
		return
	}
	st.began, st.tag = true, rand.Text()
	st.c.mu.Lock()
	st.c.streams = append(st.c.streams, st)
	st.c.mu.Unlock()
	if st.primes {
		st.put(fmt.Sprintf("retry: %d\ndata: \n\n", retryAfter.Milliseconds()))
	}
}

// put keeps an event and sends it. The caller holds st.mu.
func (st *stream) put(text string) {
	st.c.mu.Lock()
	text = fmt.Sprintf("id: %s-%d\n%s", st.tag, st.first+len(st.events), text)
	st.events = append(st.events, text)
	st.size += len(text)
	st.c.kept += len(text)
	st.c.shrink(st)
	st.c.mu.Unlock()
	if st.to != nil && st.to.write(text) != nil {
		st.lose()
	}
}

// shrink keeps the session below its limits. Who has been answered has most likely got
// the answer; if that is not enough, the stream that grows can no longer be resumed. The
// caller holds c.mu.
func (c *session) shrink(growing *stream) {
	for c.kept > maxKept || len(c.streams) > maxStreams {
		i := slices.IndexFunc(c.streams, func(st *stream) bool { return st.answered })
		if i < 0 {
			break
		}
		c.forget(c.streams[i])
	}
	if c.kept > maxKept {
		c.kept -= growing.size
		growing.first += len(growing.events)
		growing.events, growing.size = nil, 0
	}
}

// forget drops what is kept of a stream. The caller holds c.mu.
func (c *session) forget(st *stream) {
	if i := slices.Index(c.streams, st); i >= 0 {
		c.streams = slices.Delete(c.streams, i, i+1)
		c.kept -= st.size
		st.events, st.size = nil, 0
	}
}

// lose notes that the connection is lost. The caller holds st.mu.
func (st *stream) lose() {
	st.to = nil
	if !st.over {
		st.away = time.AfterFunc(st.c.srv.limits.Resume, st.giveUp)
	}
}

// giveUp ends what nobody has come back to.
func (st *stream) giveUp() {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.to != nil || st.over: // just in time
	case st.cancel != nil:
		st.cancel()
	default:
		st.stop(false)
	}
}

// leave is called when the connection of a writer has ended.
func (st *stream) leave(to *eventWriter) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.to == to {
		st.lose()
	}
}

// end ends the stream with the last message, unless that is nil, and reports whether it
// was sent as an event, or would have been: else the stream has not begun.
func (st *stream) end(last []byte) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.began && last != nil {
		st.put(event(last))
	}
	st.stop(last != nil)
	return st.began
}

// stop takes no more messages. The answer is kept for a while, since that it was written
// does not mean that it has arrived. The caller holds st.mu.
func (st *stream) stop(answered bool) {
	if st.over {
		return
	}
	st.over = true
	close(st.done)
	if st.away != nil {
		st.away.Stop()
	}
	drop := func() {
		st.c.mu.Lock()
		defer st.c.mu.Unlock()
		st.c.forget(st)
	}
	if !st.began || !answered {
		drop()
		return
	}
	time.AfterFunc(st.c.srv.limits.Resume, drop)
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	st.answered = true
}

// attach has the stream go on where it was after the event of a number. It reports whether
// that can be: what came afterwards may no longer be kept. A connection that the stream
// still has gives way, since a server hears late, or never, that one is lost.
func (st *stream) attach(to *eventWriter, after int) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.c.mu.Lock()
	skip := after - st.first + 1
	known := skip >= 0 && skip <= len(st.events)
	var missed string
	if known {
		missed = strings.Join(st.events[skip:], "")
	}
	st.c.mu.Unlock()
	if !known {
		return false
	}
	if st.to != nil {
		st.to.broken()
		st.to.end(nil)
	}
	if st.away != nil {
		st.away.Stop()
	}
	if st.to = to; to.write(":\n\n"+missed) != nil {
		st.lose()
	}
	return true
}

// resume finds what an event id names and attaches to it. Ids of other sessions name
// nothing here.
func (c *session) resume(id string, to *eventWriter) *stream {
	tag, number, _ := strings.Cut(id, "-")
	after, err := strconv.Atoi(number)
	c.mu.Lock()
	i := slices.IndexFunc(c.streams, func(st *stream) bool { return st.tag == tag })
	var st *stream
	if i >= 0 {
		st = c.streams[i]
	}
	c.mu.Unlock()
	if err != nil || st == nil || !st.attach(to, after) {
		return nil
	}
	return st
}

// get is the stream for what belongs to no request, or the rest of any stream whose
// connection was lost. Of the first there is one in a session: a second would take messages
// from it.
func (s *Server) get(w http.ResponseWriter, r *http.Request, cred *Credential) {
	c := s.find(w, r, cred)
	if c == nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	to := s.newEventWriter(w, r, true, cancel)
	defer to.end(nil)
	var st *stream
	if id := r.Header.Get(lastEventID); id != "" {
		if st = c.resume(id, to); st == nil {
			// Not 404, which would tell the client that its session is gone.
			http.Error(w, lastEventID+" names no event that can be resumed from; it is not of this session, or too old", http.StatusBadRequest)
			return
		}
	}
	standing := st == nil || st.cancel == nil
	if standing {
		if !c.stand(st != nil) {
			http.Error(w, "the session has a stream already", http.StatusConflict)
			return
		}
		defer c.unstand()
	}
	if st == nil {
		c.endStanding()
		st = c.newStream(to, true, nil)
		if st.primes {
			st.prime()
		} else {
			_ = to.write("") // that it fails ends ctx
		}
	}
	defer st.leave(to)
	if standing {
		c.pump(ctx, st, heartbeat, to.beat)
		return
	}
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = to.beat() // that it fails ends ctx
		case <-st.done:
			return
		case <-ctx.Done():
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// stand notes a connection for what belongs to no request. A second is let in only if it
// takes the place of the first.
func (c *session) stand(again bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.standing > 0 && !again {
		return false
	}
	c.standing++
	return true
}

// endStanding ends earlier streams of the kind that have lost their connection: a client that
// begins anew does not come back to them, and connections that come and go would leave
// behind more of them than maxStreams.
func (c *session) endStanding() {
	c.mu.Lock()
	all := slices.Clone(c.streams)
	c.mu.Unlock()
	for _, st := range all {
		if st.cancel == nil {
			st.giveUp()
		}
	}
}

func (c *session) unstand() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standing--
	c.used = time.Now()
}
