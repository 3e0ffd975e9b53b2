package wire

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Before revision 2026-07-28, "disconnection SHOULD NOT be interpreted as the client cancelling its request"
// (2025-11-25, basic/transports, Sending Messages). So the call continues, its events are kept, and the client
// gets the events that it has missed by a GET with Last-Event-ID (same page, Resumability and Redelivery).
// Without a connection the call is cancelled and the events are dropped after the time limit of the Replay.

const (
	// maxKept is how many bytes of events are kept for a session. maxStreams is for how many of its streams.
	// Streams that have been answered are dropped first, starting with the oldest.
	maxKept    = 1 << 20
	maxStreams = 64

	// primeAfter is when a stream without events is started with an empty one, because a client can only resume
	// from an event that it has received. Calls that end before that are answered in plain JSON.
	primeAfter = time.Second

	// retryAfter is how long the server tells clients to wait before they reconnect.
	retryAfter = time.Second
)

// A Replay keeps the events of a session's streams for a client that reconnects.
type Replay struct {
	limit time.Duration // how long a stream continues without a connection, and an answer is kept
	total *Budget       // bytes of kept events, of several sessions

	mu      sync.Mutex // locked after Stream.mu
	streams []*Stream  // streams that can be resumed, starting with the oldest
	kept    int        // bytes of kept events
}

// NewReplay returns a Replay. total may be shared with other sessions; it counts events until they are dropped.
func NewReplay(limit time.Duration, total *Budget) *Replay {
	return &Replay{limit: limit, total: total}
}

// A Stream is the messages that are sent in answer to one request, or the session's standalone stream. It may
// use several connections, one after the other.
type Stream struct {
	replay  *Replay
	tag     string             // the beginning of the ids of its events; random, so that clients cannot guess it
	accepts bool               // the client accepts a stream as the answer
	primes  bool               // the client accepts a stream, and understands events without data
	cancel  context.CancelFunc // ends the request; nil for a standalone stream
	done    chan struct{}      // closed when the stream is complete
	primer  *time.Timer        // set by PrimeLater

	mu     sync.Mutex // held while an event is written, so that events are sent in order
	to     *Events    // nil while there is no connection
	began  bool       // an event was sent, so the answer must be an event too
	ended  bool
	expiry *time.Timer // calls expire; runs while to is nil

	history history // guarded by Replay.mu
}

// A history is the events of a stream that are kept.
type history struct {
	events   []string
	first    int // the number of events[0]; the first event of a stream is 1
	size     int // of events, in bytes
	answered bool
}

// New returns a stream that starts on the connection to. primes says that the client understands events without
// data. cancel ends the request; it is nil for a standalone stream.
func (k *Replay) New(to *Events, primes bool, cancel context.CancelFunc) *Stream {
	return &Stream{replay: k, to: to, accepts: to.accepts, primes: to.accepts && primes,
		cancel: cancel, done: make(chan struct{}), history: history{first: 1}}
}

// Standalone reports whether the stream belongs to no request.
func (st *Stream) Standalone() bool { return st.cancel == nil }

// Done returns a channel that is closed when the stream is complete.
func (st *Stream) Done() <-chan struct{} { return st.done }

// Streams implements [Responder].
func (st *Stream) Streams() bool { return st.accepts }

// Send implements [Responder]. Without a connection the message is kept, which is not an error.
func (st *Stream) Send(message []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended {
		return ErrEnded
	}
	st.begin()
	st.put(Event(message))
	return nil
}

// Open starts a standalone stream.
func (st *Stream) Open() {
	if st.primes {
		st.prime()
	} else {
		_ = st.to.Write("") // a failed write calls broken
	}
}

// PrimeLater starts the stream after a second, if the client can resume it, unless it has ended before.
func (st *Stream) PrimeLater() {
	if st.primes {
		st.primer = time.AfterFunc(primeAfter, st.prime)
	}
}

// prime starts the stream with an event that has an id and no data.
func (st *Stream) prime() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.ended {
		st.begin()
	}
}

// begin makes the stream resumable. The caller holds st.mu.
func (st *Stream) begin() {
	if st.began {
		return
	}
	st.began, st.tag = true, rand.Text()
	st.replay.mu.Lock()
	st.replay.streams = append(st.replay.streams, st)
	st.replay.mu.Unlock()
	if st.primes {
		st.put(fmt.Sprintf("retry: %d\ndata: \n\n", retryAfter.Milliseconds()))
	}
}

// put keeps an event and sends it. The caller holds st.mu.
func (st *Stream) put(text string) {
	st.replay.mu.Lock()
	h := &st.history
	text = fmt.Sprintf("id: %s-%d\n%s", st.tag, h.first+len(h.events), text)
	h.events = append(h.events, text)
	st.replay.keep(h, len(text))
	st.replay.shrink(h)
	st.replay.mu.Unlock()
	if st.to != nil && st.to.Write(text) != nil {
		st.disconnected()
	}
}

// keep adds n to the counts of kept bytes; n is negative for dropped ones. The caller holds k.mu.
func (k *Replay) keep(h *history, n int) {
	h.size += n
	k.kept += n
	k.total.Add(int64(n))
}

// shrink enforces the limits of the session and of its credential. First it drops answered streams, because
// most likely their answers have arrived. Then it drops the events of the growing stream, which can then no
// longer be resumed from them. The caller holds k.mu.
func (k *Replay) shrink(growing *history) {
	tooMany := func() bool { return k.kept > maxKept || k.total.over() }
	for tooMany() || len(k.streams) > maxStreams {
		i := slices.IndexFunc(k.streams, func(st *Stream) bool { return st.history.answered })
		if i < 0 {
			break
		}
		k.drop(k.streams[i])
	}
	if tooMany() {
		k.keep(growing, -growing.size)
		growing.first += len(growing.events)
		growing.events = nil
	}
}

// drop drops the kept events of a stream. The caller holds k.mu.
func (k *Replay) drop(st *Stream) {
	if i := slices.Index(k.streams, st); i >= 0 {
		k.streams = slices.Delete(k.streams, i, i+1)
		k.keep(&st.history, -st.history.size)
		st.history.events = nil
	}
}

// disconnected records that the connection is lost. The caller holds st.mu.
func (st *Stream) disconnected() {
	st.to = nil
	if !st.ended {
		st.expiry = time.AfterFunc(st.replay.limit, st.expire)
	}
}

// expire ends a stream whose client has not reconnected in time.
func (st *Stream) expire() {
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

// Detach is called when the connection of a Responder has ended.
func (st *Stream) Detach(to *Events) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.to == to {
		st.disconnected()
	}
}

// End ends the stream. If the stream has begun, End sends the last message as an event, unless that is nil, and
// returns true; otherwise the caller must answer.
func (st *Stream) End(last []byte) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.began && last != nil {
		st.put(Event(last))
	}
	st.stop(last != nil)
	return st.began
}

// stop ends the stream. An answer is kept for the time limit, because it may not have arrived even if it was
// written. The caller holds st.mu.
func (st *Stream) stop(answered bool) {
	if st.ended {
		return
	}
	st.ended = true
	close(st.done)
	if st.primer != nil {
		st.primer.Stop()
	}
	if st.expiry != nil {
		st.expiry.Stop()
	}
	drop := func() {
		st.replay.mu.Lock()
		defer st.replay.mu.Unlock()
		st.replay.drop(st)
	}
	if !st.began || !answered {
		drop()
		return
	}
	time.AfterFunc(st.replay.limit, drop)
	st.replay.mu.Lock()
	defer st.replay.mu.Unlock()
	st.history.answered = true
}

// attach continues the stream on another connection, after the event with that number. It returns false if the
// later events are no longer kept. It closes an earlier connection, because the server may not have noticed yet
// that the connection is lost.
func (st *Stream) attach(to *Events, after int) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.replay.mu.Lock()
	h := &st.history
	skip := after - h.first + 1
	known := skip >= 0 && skip <= len(h.events)
	var missed string
	if known {
		missed = strings.Join(h.events[skip:], "")
	}
	st.replay.mu.Unlock()
	if !known {
		return false
	}
	if st.to != nil {
		st.to.broken()
		st.to.End(nil)
	}
	if st.expiry != nil {
		st.expiry.Stop()
	}
	if st.to = to; to.Write(":\n\n"+missed) != nil {
		st.disconnected()
	}
	return true
}

// Resume attaches a connection to the stream of an event. It returns nil if that is not possible. It only looks
// at streams of this session.
func (k *Replay) Resume(id string, to *Events) *Stream {
	tag, number, _ := strings.Cut(id, "-")
	after, err := strconv.Atoi(number)
	k.mu.Lock()
	i := slices.IndexFunc(k.streams, func(st *Stream) bool { return st.tag == tag })
	var st *Stream
	if i >= 0 {
		st = k.streams[i]
	}
	k.mu.Unlock()
	if err != nil || st == nil || !st.attach(to, after) {
		return nil
	}
	return st
}

// EndStandalone ends standalone streams that have lost their connection. A client that opens another stream
// does not resume them, and they could exceed maxStreams.
func (k *Replay) EndStandalone() {
	k.mu.Lock()
	all := slices.Clone(k.streams)
	k.mu.Unlock()
	for _, st := range all {
		if st.cancel == nil {
			st.expire()
		}
	}
}

// Kept is the kept events of a stream that waits for no answer, so that another server can resume it.
type Kept struct {
	Tag        string   `json:"tag"`
	First      int      `json:"first"`
	Events     []string `json:"events"`
	Standalone bool     `json:"standalone,omitempty"`
}

// Export returns the streams that have been answered and the standalone ones.
func (k *Replay) Export() (all []Kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, st := range k.streams {
		if h := st.history; h.answered || st.Standalone() {
			all = append(all, Kept{st.tag, h.first, slices.Clone(h.events), st.Standalone()})
		}
	}
	return all
}

// Import continues the streams that Export of another server has returned. primes is as in New.
func (k *Replay) Import(all []Kept, primes bool) {
	for _, o := range all {
		st := &Stream{replay: k, tag: o.Tag, accepts: true, primes: primes, began: true, done: make(chan struct{}),
			history: history{first: o.First, events: o.Events}}
		st.mu.Lock()
		k.mu.Lock()
		k.streams = append(k.streams, st)
		k.keep(&st.history, len(strings.Join(o.Events, "")))
		k.mu.Unlock()
		if o.Standalone {
			st.disconnected()
		} else {
			st.cancel = func() {}
			st.stop(true)
		}
		st.mu.Unlock()
	}
}
