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

	"github.com/kitbag-go/kitbag/tool"
)

// Handler serves streamable HTTP, at whatever path it is mounted, and at the same
// path the transport that came before it, HTTP+SSE. It has no time-outs of its own
// for reading headers: set ReadHeaderTimeout of the [http.Server].
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Always, since a deadline of the request before would still be set.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.Write))
		cred, ok := s.admit(w, r)
		if !ok {
			return
		}
		modern := mcp.IsModernProtocol(r.Header.Get(mcp.HeaderProtocolVersion))
		switch {
		case r.Method == http.MethodPost:
			s.post(w, r, cred)
		case r.Method == http.MethodGet && !modern && wantsOld(r):
			s.openOld(w, r, cred)
		case r.Method == http.MethodGet && !modern:
			s.get(w, r, cred)
		case r.Method == http.MethodDelete && !modern:
			if c := s.find(w, r, cred); c != nil {
				s.remove(c)
				w.WriteHeader(http.StatusNoContent)
			}
		default:
			w.Header().Set("Allow", "POST, GET, DELETE")
			http.Error(w, "use POST; GET and DELETE exist before protocol 2026-07-28", http.StatusMethodNotAllowed)
		}
	})
}

// post takes one message.
func (s *Server) post(w http.ResponseWriter, r *http.Request, cred *Credential) {
	if !isJSON(r) {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	// A client that sends slowly holds a connection, nothing else.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(s.limits.Request)))
	if err != nil {
		status := http.StatusBadRequest
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(w, status, nil, invalid(mcp.INVALID_REQUEST, "the message cannot be read: %v", err))
		return
	}
	m, bad := parseMessage(body)
	if bad != nil {
		refuse(w, http.StatusBadRequest, nil, bad)
		return
	}
	version, header := m.meta.Version, r.Header.Get(mcp.HeaderProtocolVersion)
	switch {
	case r.URL.Query().Has(sessionParam):
		s.postOld(w, r, cred, m)
	case mcp.IsModernProtocol(version) || mcp.IsModernProtocol(header):
		s.postModern(w, r, cred, m, version, header)
	case header != "" && !mcp.IsValidProtocolVersion(header):
		refuse(w, http.StatusBadRequest, m, invalid(mcp.INVALID_REQUEST, "protocol version %q is not supported", header))
	case m.Method == string(mcp.MethodInitialize):
		s.open(w, r, cred, m)
	default:
		if c := s.find(w, r, cred); c != nil {
			s.serve(w, r, c, m, false)
		}
	}
}

// refuse answers with an error of the request itself.
func refuse(w http.ResponseWriter, status int, m *rpcMessage, e *rpcError) {
	if m == nil {
		m = &rpcMessage{}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(answer(m.ID, nil, e)) // the client has gone
}

// postModern takes a message of the new era. There a client ends its request by
// leaving, so that a notification that would cancel one is not heard: it could
// only name another client's.
func (s *Server) postModern(w http.ResponseWriter, r *http.Request, cred *Credential, m *rpcMessage, version, header string) {
	if m.ID == nil || m.Method == "" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	meta := m.meta
	bad := meta.check()
	switch {
	case version == "":
		bad = invalid(mcp.INVALID_PARAMS, "missing or invalid _meta field %s", mcp.MetaKeyProtocolVersion)
	case header != version:
		bad = invalid(mcp.HEADER_MISMATCH, "header %s is %q, and _meta says %q", mcp.HeaderProtocolVersion, header, version)
	}
	if bad == nil {
		if err := mcp.ValidateStandardHeaders(r.Header.Get, version, mcp.MCPMethod(m.Method), m.Params); err != nil {
			bad = invalid(mcp.HEADER_MISMATCH, "%v", err)
		}
	}
	if bad != nil {
		refuse(w, http.StatusBadRequest, m, bad)
		return
	}
	s.serve(w, r.WithContext(context.WithValue(r.Context(), headerKey{}, r.Header)), s.looseSession(cred), m, true)
}

type headerKey struct{}

// checkHeaders holds the Mcp-Param headers of a call against its arguments, where
// the schema of the tool, as it is listed, asks for such headers (SEP-2243). What
// stands between may have routed the call by them.
func (r *request) checkHeaders(ctx context.Context, info tool.Info, called string) *rpcError {
	header, ok := ctx.Value(headerKey{}).(http.Header)
	if !ok || info.Name != called || !bytes.Contains(info.Input, []byte("x-mcp-header")) {
		return nil
	}
	listed := &mcp.Tool{Name: info.Name, RawInputSchema: info.Input}
	if mcp.ValidateParamHeaderAnnotations(listed) != nil {
		return nil // clients leave such a tool alone, or its headers
	}
	lookup := func(name string) (string, bool) {
		values := header.Values(name)
		return strings.Join(values, ", "), len(values) > 0
	}
	if err := mcp.ValidateParamHeadersLookup(lookup, listed, r.msg.Params); err != nil {
		return invalid(mcp.HEADER_MISMATCH, "%v", err)
	}
	return nil
}

// looseSession is what the clients of a credential share that have no sessions.
func (s *Server) looseSession(cred *Credential) *session {
	name := ""
	if cred != nil {
		name = cred.Name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.loose[name]
	if c == nil {
		c = s.newSession(cred)
		c.shared = true
		s.loose[name] = c
	}
	return c
}

// open makes a session.
func (s *Server) open(w http.ResponseWriter, r *http.Request, cred *Credential, m *rpcMessage) {
	c := s.newSession(cred)
	c.id = rand.Text()
	if !s.enter(c) {
		refuse(w, http.StatusServiceUnavailable, m, invalid(mcp.INTERNAL_ERROR, "there are as many sessions as there may be, or as many of this credential; try again later"))
		return
	}
	w.Header().Set(mcp.HeaderSessionID, c.id)
	s.serve(w, r, c, m, false)
	if !c.introduced() { // it was refused, and nobody will use it
		s.remove(c)
	}
}

// enter gives the session a place, if there is one; else it ends it.
func (s *Server) enter(c *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := func() bool { return len(s.sessions) >= s.limits.Sessions || c.owner.sessions >= s.limits.Share }
	if full() {
		s.dropIdle()
	}
	if s.closed || full() {
		c.end()
		return false
	}
	s.sessions[c.id], s.scopes[c.scope] = c, c
	c.owner.sessions++
	if s.sweep == nil {
		s.sweep = time.AfterFunc(s.sweepEvery(), s.endIdle)
	}
	return true
}

// sweepEvery is how often idle sessions are looked for.
func (s *Server) sweepEvery() time.Duration { return max(s.limits.Idle/4, time.Minute) }

// endIdle ends sessions whose clients went away without a word: what tools keep for
// a session, such as a process, lives as long as it does.
func (s *Server) endIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropIdle()
	if s.closed || len(s.sessions) == 0 {
		s.sweep = nil
		return
	}
	s.sweep.Reset(s.sweepEvery())
}

// dropIdle ends the sessions that are idle. The caller holds s.mu.
func (s *Server) dropIdle() {
	for _, c := range s.sessions {
		c.mu.Lock()
		idle := len(c.calls) == 0 && c.standing == 0 && time.Since(c.used) > s.limits.Idle
		c.mu.Unlock()
		if idle {
			s.forget(c)
		}
	}
}

// find returns the session that the request names, or answers it. A session of
// another credential does not exist.
func (s *Server) find(w http.ResponseWriter, r *http.Request, cred *Credential) *session {
	id := r.Header.Get(mcp.HeaderSessionID)
	if id == "" {
		http.Error(w, "header "+mcp.HeaderSessionID+" is missing; initialize first", http.StatusBadRequest)
		return nil
	}
	s.mu.Lock()
	c := s.sessions[id]
	s.mu.Unlock()
	if c == nil || c.cred != cred || c.old != nil {
		http.Error(w, "no such session; initialize again", http.StatusNotFound)
		return nil
	}
	return c
}

// serve handles a message and writes the answer, as JSON or, if something else was
// sent before it, as the last event of a stream.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, c *session, m *rpcMessage, modern bool) {
	if m.ID == nil || m.Method == "" {
		c.handle(r.Context(), m, nil)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var out interface {
		outlet
		end(last []byte) bool
	}
	ctx := r.Context()
	to := s.newEventWriter(w, r, acceptsEvents(r), func() {})
	if modern { // where "closing the response stream is the cancellation" (2026-07-28)
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		to.broken, out = cancel, to
		if to.accepts { // what is cut off in between, for being silent, would be cancelled
			to.beatOn()
			defer to.end(nil)
		}
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		st := c.newStream(to, to.accepts, cancel)
		defer context.AfterFunc(r.Context(), func() { st.leave(to) })()
		if st.primes {
			defer time.AfterFunc(primeAfter, st.prime).Stop()
		}
		out = st
	}
	reply, bad := c.handle(ctx, m, out)
	switch {
	case out.end(reply):
	case reply == nil: // it was cancelled
		w.WriteHeader(http.StatusAccepted)
	default:
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.Write))
		w.Header().Set("Content-Type", "application/json")
		if modern && bad != nil {
			w.WriteHeader(statusOf(bad))
		}
		_, _ = w.Write(reply)
	}
}

// statusOf is the HTTP status that the new era has for an error.
func statusOf(e *rpcError) int {
	switch e.Code {
	case mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case mcp.INTERNAL_ERROR:
		return http.StatusOK
	}
	return http.StatusBadRequest
}

// acceptsEvents reports whether a request can be answered by a stream. The specification
// wants every client to accept one; those that do not get the result alone.
func acceptsEvents(r *http.Request) bool {
	for _, v := range r.Header.Values("Accept") {
		if strings.Contains(v, "text/event-stream") || strings.Contains(v, "*/*") {
			return true
		}
	}
	return false
}

// heartbeat is how often an idle stream shows that it lives, so that nothing in
// between closes it.
const heartbeat = 25 * time.Second

// An eventWriter sends messages as server-sent events. It starts the stream with
// the first.
type eventWriter struct {
	w       http.ResponseWriter
	limit   time.Duration // for a write
	accepts bool
	broken  func() // called when the client does not read

	http2 bool

	mu   sync.Mutex
	on   bool
	err  error
	next *time.Timer // until it shows that it lives; nil if others see to that
}

func (s *Server) newEventWriter(w http.ResponseWriter, r *http.Request, accepts bool, broken func()) *eventWriter {
	e := &eventWriter{w: w, limit: s.limits.Write, accepts: accepts, broken: broken, http2: r.ProtoMajor >= 2}
	e.rest()
	return e
}

// beat shows that the stream lives.
func (e *eventWriter) beat() error { return e.write(":\n\n") }

// beatOn shows it every now and then, from now until the end.
func (e *eventWriter) beatOn() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.next = time.AfterFunc(heartbeat, func() {
			if e.beat() == nil {
				e.beatOn()
			}
		})
	}
}

// rest takes the write deadline away until the next write. Over HTTP/2 one that passes
// resets the stream, though nothing waits to be written. Over HTTP/1 it does no harm, and
// stays for the end of the answer, which net/http writes.
func (e *eventWriter) rest() {
	if e.http2 {
		_ = http.NewResponseController(e.w).SetWriteDeadline(time.Time{})
	}
}

// streams implements outlet.
func (e *eventWriter) streams() bool { return e.accepts }

// end closes the stream, if it was started, with the last message, unless that is nil,
// and reports whether it was. Nothing is sent afterwards: what a call has left behind
// must not write to an answer that is complete.
func (e *eventWriter) end(last []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.on && last != nil {
		_ = e.writeLocked(event(last)) // that it fails the client notices
	}
	if e.err == nil {
		e.err = errEnded
	}
	if e.next != nil {
		e.next.Stop()
	}
	return e.on
}

var errEnded = errors.New("the request that this belongs to has ended")

func event(message []byte) string { return "event: message\ndata: " + string(message) + "\n\n" }

// send implements outlet.
func (e *eventWriter) send(message []byte) error {
	return e.write(event(message))
}

// write writes to the stream and flushes it. After the first failure nothing is tried any
// more: half an event may have been sent.
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
	// Where a deadline cannot be set, as in tests without a connection, nothing
	// blocks either.
	_ = rc.SetWriteDeadline(time.Now().Add(e.limit))
	if !e.on {
		e.on = true
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
	e.rest()
	return nil
}
