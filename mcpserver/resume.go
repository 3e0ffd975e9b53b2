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

// Before revision 2026-07-28, "disconnection SHOULD NOT be interpreted as the client cancelling its request"
// (2025-11-25, basic/transports, Sending Messages). So the call continues, its events are kept, and the client
// gets the events that it has missed by a GET with Last-Event-ID (same page, Resumability and Redelivery).
// Without a connection the call is cancelled and the events are dropped after [Limits.Resume].

const (
	// maxKept is how many bytes of events are kept for a session. maxStreams is for how many of its streams.
	// Streams that have been answered are dropped first, starting with the oldest.
	maxKept    = 1 << 20
	maxStreams = 64

	// maxKeptTotal is how many bytes are kept for all sessions of a credential; with several credentials each has a
	// quarter of it. Sessions that have ended count until their events are dropped.
	maxKeptTotal = 64 << 20

	// primeAfter is when a stream without events is started with an empty one, because a client can only resume
	// from an event that it has received. Calls that end before that are answered in plain JSON.
	primeAfter = time.Second

	// retryAfter is how long the server tells clients to wait before they reconnect.
	retryAfter = time.Second

	lastEventID = "Last-Event-ID"
)

// A stream is the messages that are sent in answer to one request, or the session's standalone stream. It may
// use several connections, one after the other.
type stream struct {
	c       *session
	tag     string // the beginning of the ids of its events; random, so that clients cannot guess it
	accepts bool
	primes  bool               // the client understands events without data
	cancel  context.CancelFunc // ends the request; nil for a standalone stream
	done    chan struct{}      // closed when the stream is complete

	mu     sync.Mutex   // held while an event is written, so that events are sent in order
	to     *eventWriter // nil while there is no connection
	began  bool         // an event was sent, so the answer must be an event too
	ended  bool
	expiry *time.Timer // calls expire; runs while to is nil

	// These fields belong to the session: session.mu guards them.
	events   []string // the events that are kept
	first    int      // the number of events[0]; the first event of a stream is 1
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

// streams implements responder.
func (st *stream) streams() bool { return st.accepts }

// send implements responder. Without a connection the message is kept, which is not an error.
func (st *stream) send(message []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended {
		return errEnded
	}
	st.begin()
	st.put(event(message))
	return nil
}

// prime starts the stream with an event that has an id and no data.
func (st *stream) prime() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.ended {
		st.begin()
	}
}

// begin makes the stream resumable. The caller holds st.mu.
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
	st.keep(len(text))
	st.c.shrink(st)
	st.c.mu.Unlock()
	if st.to != nil && st.to.write(text) != nil {
		st.disconnected()
	}
}

// keep adds n to the counts of kept bytes; n is negative for dropped ones. The caller holds c.mu.
func (st *stream) keep(n int) {
	st.size += n
	st.c.kept += n
	st.c.owner.kept.Add(int64(n))
}

// shrink enforces the limits of the session and of its credential. First it drops answered streams, because
// most likely their answers have arrived. Then it drops the events of the growing stream, which can then no
// longer be resumed from them. The caller holds c.mu.
func (c *session) shrink(growing *stream) {
	tooMany := func() bool { return c.kept > maxKept || c.owner.kept.Load() > c.owner.maxKept }
	for tooMany() || len(c.streams) > maxStreams {
		i := slices.IndexFunc(c.streams, func(st *stream) bool { return st.answered })
		if i < 0 {
			break
		}
		c.dropStream(c.streams[i])
	}
	if tooMany() {
		growing.keep(-growing.size)
		growing.first += len(growing.events)
		growing.events = nil
	}
}

// dropStream drops the kept events of a stream. The caller holds c.mu.
func (c *session) dropStream(st *stream) {
	if i := slices.Index(c.streams, st); i >= 0 {
		c.streams = slices.Delete(c.streams, i, i+1)
		st.keep(-st.size)
		st.events = nil
	}
}

// disconnected records that the connection is lost. The caller holds st.mu.
func (st *stream) disconnected() {
	st.to = nil
	if !st.ended {
		st.expiry = time.AfterFunc(st.c.srv.limits.Resume, st.expire)
	}
}

// expire ends a stream whose client has not reconnected in time.
func (st *stream) expire() {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.to != nil || st.ended: // reconnected or ended in the meantime
	case st.cancel != nil:
		st.cancel()
	default:
		st.stop(false)
	}
}

// detach is called when the connection of a writer has ended.
func (st *stream) detach(to *eventWriter) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.to == to {
		st.disconnected()
	}
}

// end ends the stream. If the stream has begun, end sends the last message as an event, unless that is nil, and
// returns true; otherwise the caller must answer.
func (st *stream) end(last []byte) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.began && last != nil {
		st.put(event(last))
	}
	st.stop(last != nil)
	return st.began
}

// stop ends the stream. An answer is kept for [Limits.Resume], because it may not have arrived even if it was
// written. The caller holds st.mu.
func (st *stream) stop(answered bool) {
	if st.ended {
		return
	}
	st.ended = true
	close(st.done)
	if st.expiry != nil {
		st.expiry.Stop()
	}
	drop := func() {
		st.c.mu.Lock()
		defer st.c.mu.Unlock()
		st.c.dropStream(st)
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

// attach continues the stream on another connection, after the event with that number. It returns false if the
// later events are no longer kept. It closes an earlier connection, because the server may not have noticed yet
// that the connection is lost.
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
	if st.expiry != nil {
		st.expiry.Stop()
	}
	if st.to = to; to.write(":\n\n"+missed) != nil {
		st.disconnected()
	}
	return true
}

// resume attaches a connection to the stream of an event. It returns nil if that is not possible. It only looks
// at streams of this session.
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

// get handles GET: it opens the session's standalone stream, for messages that belong to no request, or resumes
// any stream. A session can only have one standalone stream, because each message is sent on one stream.
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
			// The status is not 404, which would tell the client that its session has ended.
			http.Error(w, lastEventID+" does not name an event of this session that is still kept; repeat the request", http.StatusBadRequest)
			return
		}
	}
	standalone := st == nil || st.cancel == nil
	if standalone {
		if !c.addStandalone(st != nil) {
			http.Error(w, "the session already has a stream; end that stream first, or resume it with "+lastEventID, http.StatusConflict)
			return
		}
		defer c.removeStandalone()
	}
	if st == nil {
		c.endStandalone()
		st = c.newStream(to, true, nil)
		if st.primes {
			st.prime()
		} else {
			_ = to.write("") // a failed write ends ctx
		}
	}
	defer st.detach(to)
	if standalone {
		c.pump(ctx, st, heartbeat, to.beat)
		return
	}
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = to.beat() // a failed write ends ctx
		case <-st.done:
			return
		case <-ctx.Done():
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// addStandalone counts a connection of the standalone stream. It returns false if there already is a connection
// that the new one does not replace.
func (c *session) addStandalone(replaces bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.standalone > 0 && !replaces {
		return false
	}
	c.standalone++
	return true
}

// endStandalone ends standalone streams that have lost their connection. A client that opens another stream
// does not resume them, and they could exceed maxStreams.
func (c *session) endStandalone() {
	c.mu.Lock()
	all := slices.Clone(c.streams)
	c.mu.Unlock()
	for _, st := range all {
		if st.cancel == nil {
			st.expire()
		}
	}
}

func (c *session) removeStandalone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standalone--
	c.used = time.Now()
}
