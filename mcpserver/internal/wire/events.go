package wire

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// heartbeat is the interval at which an idle stream sends a comment, so that no proxy closes it.
const heartbeat = 25 * time.Second

// Events sends messages as server-sent events of one HTTP response. The first message starts the stream.
type Events struct {
	w       http.ResponseWriter
	limit   time.Duration // of a write
	accepts bool          // the client accepts a stream as the answer
	broken  func()        // called when the client does not read

	http2 bool

	mu      sync.Mutex
	started bool
	err     error
	next    *time.Timer // for the next heartbeat; nil if there are none
}

// NewEvents returns a Responder for the response w to r. limit is the time limit of a write; broken is called when
// the client does not read. If accepts is not set, the client gets no stream, unless the caller starts one.
func NewEvents(w http.ResponseWriter, r *http.Request, limit time.Duration, accepts bool, broken func()) *Events {
	e := &Events{w: w, limit: limit, accepts: accepts, broken: broken, http2: r.ProtoMajor >= 2}
	e.clearDeadline()
	return e
}

// StartHeartbeat sends heartbeats until the stream ends.
func (e *Events) StartHeartbeat() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.next = time.AfterFunc(heartbeat, func() {
			if e.Write(":\n\n") == nil {
				e.StartHeartbeat()
			}
		})
	}
}

// clearDeadline removes the write deadline until the next write. Over HTTP/2 an expired deadline resets the
// stream even if nothing is being written. Over HTTP/1 the deadline stays, because it has no effect until
// net/http writes the end of the response.
func (e *Events) clearDeadline() {
	if e.http2 {
		_ = http.NewResponseController(e.w).SetWriteDeadline(time.Time{})
	}
}

// Streams implements [Responder].
func (e *Events) Streams() bool { return e.accepts }

// End ends the stream. If the stream was started, End sends the last message, unless that is nil, and returns
// true. Later sends fail: a goroutine that outlives its call must not write to a complete response.
func (e *Events) End(last []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started && last != nil {
		_ = e.writeLocked(Event(last)) // a failed write breaks the connection
	}
	if e.err == nil {
		e.err = ErrEnded
	}
	if e.next != nil {
		e.next.Stop()
	}
	return e.started
}

// Event returns a message as an event without an id.
func Event(message []byte) string { return "event: message\ndata: " + string(message) + "\n\n" }

// Send implements [Responder].
func (e *Events) Send(message []byte) error {
	return e.Write(Event(message))
}

// Write writes text to the stream and flushes it. After an error it writes nothing more, because an incomplete event
// may have been sent.
func (e *Events) Write(text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.writeLocked(text)
}

func (e *Events) writeLocked(text string) error {
	if e.err != nil {
		return e.err
	}
	rc := http.NewResponseController(e.w)
	// Ignore errors: a writer that does not support deadlines, as in tests without a connection, does not block.
	_ = rc.SetWriteDeadline(time.Now().Add(e.limit))
	if !e.started {
		e.started = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-cache")
		e.w.WriteHeader(http.StatusOK)
	}
	if _, e.err = io.WriteString(e.w, text); e.err == nil {
		e.err = rc.Flush()
	}
	if e.err != nil {
		e.broken()
		return e.err
	}
	e.clearDeadline()
	return nil
}
