package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/tool"
)

// Handler serves streamable HTTP, and its predecessor HTTP+SSE, at any path. It has no timeout for reading
// headers: set ReadHeaderTimeout of the [http.Server].
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without this the deadline of an earlier request on the connection would still apply.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.Write))
		cred, ok := s.admit(w, r)
		if !ok {
			return
		}
		sessionless := mcp.IsModernProtocol(r.Header.Get(mcp.HeaderProtocolVersion))
		switch {
		case r.Method == http.MethodPost:
			s.post(w, r, cred)
		case r.Method == http.MethodGet && !sessionless && wantsSSE(r):
			s.openSSE(w, r, cred)
		case r.Method == http.MethodGet && !sessionless:
			s.get(w, r, cred)
		case r.Method == http.MethodDelete && !sessionless:
			if c := s.find(w, r, cred); c != nil {
				s.remove(c)
				w.WriteHeader(http.StatusNoContent)
			}
		default:
			w.Header().Set("Allow", "POST, GET, DELETE")
			http.Error(w, "use POST; GET and DELETE are for protocol revisions before 2026-07-28", http.StatusMethodNotAllowed)
		}
	})
}

// post handles one message.
func (s *Server) post(w http.ResponseWriter, r *http.Request, cred *Credential) {
	if !isJSON(r) {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	// A client that sends slowly uses only a connection.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(s.limits.Request)))
	if err != nil {
		status := http.StatusBadRequest
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(w, status, nil, rpc.Errorf(mcp.INVALID_REQUEST, "the message cannot be read: %v", err))
		return
	}
	m, rpcErr := rpc.Parse(body)
	if rpcErr != nil {
		refuse(w, http.StatusBadRequest, m, rpcErr)
		return
	}
	version, header := m.Meta.Version, r.Header.Get(mcp.HeaderProtocolVersion)
	switch {
	case r.URL.Query().Has(sessionParam):
		s.postSSE(w, r, cred, m)
	case mcp.IsModernProtocol(version) || mcp.IsModernProtocol(header):
		s.postSessionless(w, r, cred, m, version, header)
	case header != "" && !mcp.IsValidProtocolVersion(header):
		refuse(w, http.StatusBadRequest, m, rpc.Errorf(mcp.INVALID_REQUEST, "protocol version %q is not supported; use one of %s", header, strings.Join(mcp.ValidProtocolVersions, ", ")))
	case m.Method == string(mcp.MethodInitialize):
		s.open(w, r, cred, m)
	default:
		if c := s.find(w, r, cred); c != nil {
			s.serve(w, r, c, m, false)
		}
	}
}

// refuse answers with an error. m may be nil.
func refuse(w http.ResponseWriter, status int, m *rpc.Message, e *rpc.Error) {
	if m == nil {
		m = &rpc.Message{}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(rpc.Answer(m.ID, nil, e)) // fails if the client has left
}

// postSessionless handles a message of a client without sessions. Notifications are ignored: such a client
// cancels a request by closing the connection, and notifications/cancelled could only name the request of
// another client.
func (s *Server) postSessionless(w http.ResponseWriter, r *http.Request, cred *Credential, m *rpc.Message, version, header string) {
	if !m.IsRequest() {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	err := m.Meta.Check()
	switch {
	case version == "":
		err = rpc.Errorf(mcp.INVALID_PARAMS, "missing or invalid _meta field %s", mcp.MetaKeyProtocolVersion)
	case header != version:
		err = rpc.Errorf(mcp.HEADER_MISMATCH, "header %s is %q, but _meta has %q; send the same", mcp.HeaderProtocolVersion, header, version)
	}
	if err == nil {
		if mismatch := mcp.ValidateStandardHeaders(r.Header.Get, version, mcp.MCPMethod(m.Method), m.Params); mismatch != nil {
			err = rpc.Errorf(mcp.HEADER_MISMATCH, "%v", mismatch)
		}
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, m, err)
		return
	}
	s.serve(w, r.WithContext(context.WithValue(r.Context(), headerKey{}, r.Header)), s.sharedSession(cred), m, true)
}

type headerKey struct{}

// checkHeaders checks that the Mcp-Param headers of a call match its arguments, because a proxy may have routed
// the call by them. It does so if the listed schema of the tool requires such headers (SEP-2243).
func (r *request) checkHeaders(ctx context.Context, info tool.Info, called string) *rpc.Error {
	header, ok := ctx.Value(headerKey{}).(http.Header)
	if !ok || info.Name != called || !bytes.Contains(info.Input, []byte("x-mcp-header")) {
		return nil
	}
	listed := &mcp.Tool{Name: info.Name, RawInputSchema: info.Input}
	if mcp.ValidateParamHeaderAnnotations(listed) != nil {
		return nil // clients do not use such a tool, or send no headers
	}
	lookup := func(name string) (string, bool) {
		values := header.Values(name)
		return strings.Join(values, ", "), len(values) > 0
	}
	if err := mcp.ValidateParamHeadersLookup(lookup, listed, r.msg.Params); err != nil {
		return rpc.Errorf(mcp.HEADER_MISMATCH, "%v", err)
	}
	return nil
}

// sharedSession returns the session that all clients without sessions of a credential share.
func (s *Server) sharedSession(cred *Credential) *session {
	name := ""
	if cred != nil {
		name = cred.Name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.shared[name]
	if c == nil {
		c = s.newSession(cred)
		c.shared = true
		s.shared[name] = c
	}
	return c
}

// open opens a session.
func (s *Server) open(w http.ResponseWriter, r *http.Request, cred *Credential, m *rpc.Message) {
	c := s.newSession(cred)
	c.id = rand.Text()
	if !s.register(c) {
		refuse(w, http.StatusServiceUnavailable, m, rpc.Errorf(mcp.INTERNAL_ERROR, "%s", tooManySessions))
		return
	}
	w.Header().Set(mcp.HeaderSessionID, c.id)
	s.serve(w, r, c, m, false)
	if !c.initialized() { // initialize was rejected
		s.remove(c)
	}
}

const tooManySessions = "too many sessions in total or for this credential; end one, or try again later"

// register adds a session over HTTP. If there are too many sessions it ends the new one and returns false.
func (s *Server) register(c *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := func() bool { return len(s.sessions) >= s.limits.Sessions || c.owner.sessions >= s.limits.Share }
	if full() {
		s.removeIdleLocked()
	}
	if s.closed || full() {
		c.end()
		return false
	}
	s.sessions[c.id], s.scopes[c.scope] = c, c
	c.owner.sessions++
	if s.sweep == nil {
		s.sweep = time.AfterFunc(s.sweepInterval(), s.removeIdle)
	}
	return true
}

// sweepInterval is how often removeIdle runs.
func (s *Server) sweepInterval() time.Duration { return max(s.limits.Idle/4, time.Minute) }

// removeIdle ends sessions whose clients have left without ending them: the data that tools keep for a session,
// such as a process, lives as long as the session.
func (s *Server) removeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeIdleLocked()
	if s.closed || len(s.sessions) == 0 {
		s.sweep = nil
		return
	}
	s.sweep.Reset(s.sweepInterval())
}

// removeIdleLocked ends the sessions that are idle. The caller holds s.mu.
func (s *Server) removeIdleLocked() {
	for _, c := range s.sessions {
		c.mu.Lock()
		idle := len(c.calls) == 0 && c.standalone == 0 && time.Since(c.used) > s.limits.Idle
		c.mu.Unlock()
		if idle {
			s.removeLocked(c)
		}
	}
}

// find returns the session that the request names. If there is none it answers the request and returns nil. A
// session of another credential is treated as missing.
func (s *Server) find(w http.ResponseWriter, r *http.Request, cred *Credential) *session {
	id := r.Header.Get(mcp.HeaderSessionID)
	if id == "" {
		http.Error(w, "header "+mcp.HeaderSessionID+" is missing; initialize first", http.StatusBadRequest)
		return nil
	}
	s.mu.Lock()
	c := s.sessions[id]
	s.mu.Unlock()
	if c == nil || c.cred != cred || c.sse != nil {
		http.Error(w, "no such session; initialize again", http.StatusNotFound)
		return nil
	}
	return c
}

// serve handles a message and writes the answer: as JSON or, if other messages were sent before it,
// as the last event of a stream.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, c *session, m *rpc.Message, sessionless bool) {
	if !m.IsRequest() {
		c.handle(r.Context(), m, nil)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var out interface {
		responder
		end(last []byte) bool
	}
	ctx := r.Context()
	to := s.newEventWriter(w, r, acceptsEvents(r), func() {})
	if sessionless { // where "closing the response stream is the cancellation" (2026-07-28)
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		to.broken, out = cancel, to
		if to.accepts { // a proxy that closes an idle stream would cancel the request
			to.startHeartbeat()
			defer to.end(nil)
		}
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		st := c.newStream(to, to.accepts, cancel)
		defer context.AfterFunc(r.Context(), func() { st.detach(to) })()
		if st.primes {
			defer time.AfterFunc(primeAfter, st.prime).Stop()
		}
		out = st
	}
	reply, rpcErr := c.handle(ctx, m, out)
	switch {
	case out.end(reply):
	case reply == nil: // the request was cancelled
		w.WriteHeader(http.StatusAccepted)
	default:
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.Write))
		w.Header().Set("Content-Type", "application/json")
		if sessionless && rpcErr != nil {
			w.WriteHeader(statusOf(rpcErr))
		}
		_, _ = w.Write(reply)
	}
}

// statusOf returns the HTTP status of an error, from revision 2026-07-28 on.
func statusOf(e *rpc.Error) int {
	switch e.Code {
	case mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case mcp.INTERNAL_ERROR:
		return http.StatusOK
	}
	return http.StatusBadRequest
}

// acceptsEvents reports whether a request can be answered by a stream. The specification requires every client
// to accept streams; a client that does not accept them gets only the result.
func acceptsEvents(r *http.Request) bool {
	for _, v := range r.Header.Values("Accept") {
		if strings.Contains(v, "text/event-stream") || strings.Contains(v, "*/*") {
			return true
		}
	}
	return false
}

// heartbeat is the interval at which an idle stream sends a comment, so that no proxy closes it.
const heartbeat = 25 * time.Second

// An eventWriter sends messages as server-sent events. The first message starts the stream.
type eventWriter struct {
	w       http.ResponseWriter
	limit   time.Duration // of a write
	accepts bool
	broken  func() // called when the client does not read

	http2 bool

	mu      sync.Mutex
	started bool
	err     error
	next    *time.Timer // for the next heartbeat; nil if the eventWriter sends none
}

func (s *Server) newEventWriter(w http.ResponseWriter, r *http.Request, accepts bool, broken func()) *eventWriter {
	e := &eventWriter{w: w, limit: s.limits.Write, accepts: accepts, broken: broken, http2: r.ProtoMajor >= 2}
	e.clearDeadline()
	return e
}

// beat sends a heartbeat.
func (e *eventWriter) beat() error { return e.write(":\n\n") }

// startHeartbeat sends heartbeats until the stream ends.
func (e *eventWriter) startHeartbeat() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.next = time.AfterFunc(heartbeat, func() {
			if e.beat() == nil {
				e.startHeartbeat()
			}
		})
	}
}

// clearDeadline removes the write deadline until the next write. Over HTTP/2 an expired deadline resets the
// stream even if nothing is being written. Over HTTP/1 the deadline stays, because it has no effect until
// net/http writes the end of the response.
func (e *eventWriter) clearDeadline() {
	if e.http2 {
		_ = http.NewResponseController(e.w).SetWriteDeadline(time.Time{})
	}
}

// streams implements responder.
func (e *eventWriter) streams() bool { return e.accepts }

// end ends the stream. If the stream was started, end sends the last message, unless that is nil, and returns
// true. Later sends fail: a goroutine that outlives its call must not write to a complete response.
func (e *eventWriter) end(last []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started && last != nil {
		_ = e.writeLocked(event(last)) // a failed write breaks the connection
	}
	if e.err == nil {
		e.err = errEnded
	}
	if e.next != nil {
		e.next.Stop()
	}
	return e.started
}

var errEnded = errors.New("the request has ended")

func event(message []byte) string { return "event: message\ndata: " + string(message) + "\n\n" }

// send implements responder.
func (e *eventWriter) send(message []byte) error {
	return e.write(event(message))
}

// write writes to the stream and flushes it. After an error it writes nothing more, because an incomplete event
// may have been sent.
func (e *eventWriter) write(text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.writeLocked(text)
}

func (e *eventWriter) writeLocked(text string) error {
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
