package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/tool"
)

// Handler serves streamable HTTP, and its predecessor HTTP+SSE, at any path. It has no timeout for reading
// headers: set ReadHeaderTimeout of the [http.Server].
func (s *Server) Handler() http.Handler {
	h := http.Handler(http.HandlerFunc(s.handle))
	if a, ok := s.cat.cfg.Authenticator.(interface {
		Wrap(http.Handler) http.Handler
	}); ok {
		h = a.Wrap(h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without this the deadline of an earlier request on the connection would still apply.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cat.limits.Write))
		h.ServeHTTP(w, r)
	})
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	who, r, ok := s.admit(w, r)
	defer s.reg.leave(who)
	if !ok {
		return
	}
	switch sessionless := mcp.IsModernProtocol(r.Header.Get(mcp.HeaderProtocolVersion)); {
	case r.Method == http.MethodPost:
		s.post(w, r, who)
	case sessionless || r.Method != http.MethodGet && r.Method != http.MethodDelete:
		w.Header().Set("Allow", "POST, GET, DELETE")
		http.Error(w, "use POST; GET and DELETE are for protocol revisions before 2026-07-28", http.StatusMethodNotAllowed)
	case r.Method == http.MethodDelete:
		if c := s.findSession(w, r, who, nil); c != nil {
			s.reg.remove(c)
			if s.replicas != nil {
				s.replicas.forget(r.Context(), c)
			}
			w.WriteHeader(http.StatusNoContent)
		}
	case wantsSSE(r):
		s.openSSE(w, r, who)
	default:
		s.get(w, r, who)
	}
}

// post handles one message.
func (s *Server) post(w http.ResponseWriter, r *http.Request, who *account) {
	if !isJSON(r) {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	// The time to send a message is not limited here: a slow client occupies only its connection.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(s.cat.limits.Request)))
	if err != nil {
		status := http.StatusBadRequest
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			status = http.StatusRequestEntityTooLarge
		}
		refuse(w, status, nil, rpc.Errorf(mcp.INVALID_REQUEST, "the message cannot be read: %v", err))
		return
	}
	if s.replicas != nil {
		keepBody(r, body)
	}
	m, rpcErr := rpc.Parse(body)
	if rpcErr != nil {
		refuse(w, http.StatusBadRequest, m, rpcErr)
		return
	}
	version, header := m.Meta.Version, r.Header.Get(mcp.HeaderProtocolVersion)
	switch {
	case r.URL.Query().Has(sessionParam):
		s.postSSE(w, r, who, m)
	case mcp.IsModernProtocol(version) || mcp.IsModernProtocol(header):
		s.postSessionless(w, r, who, m, version, header)
	case header != "" && !mcp.IsValidProtocolVersion(header):
		refuse(w, http.StatusBadRequest, m, rpc.Errorf(mcp.INVALID_REQUEST, "protocol version %q is not supported; use one of %s", header, strings.Join(mcp.ValidProtocolVersions, ", ")))
	case m.Method == string(mcp.MethodInitialize):
		s.openSession(w, r, who, m)
	default:
		if c := s.findSession(w, r, who, m); c != nil {
			s.serveSession(w, r, c, m)
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

// postSessionless handles a message of a client without sessions. It ignores notifications: the client cancels a request by
// closing the connection, and its notifications/cancelled could only name the request of another client.
func (s *Server) postSessionless(w http.ResponseWriter, r *http.Request, who *account, m *rpc.Message, version, header string) {
	if !m.IsRequest() {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	err := m.Meta.Check()
	switch { // more specific errors
	case version == "":
		err = rpc.Errorf(mcp.INVALID_PARAMS, "missing or invalid _meta field %s", mcp.MetaKeyProtocolVersion)
	case header != version:
		err = rpc.Errorf(mcp.HEADER_MISMATCH, "header %s is %q, but _meta has %q; send the same", mcp.HeaderProtocolVersion, header, version)
	}
	if err == nil {
		if mismatch := mcp.ValidateStandardHeaders(r.Header.Get, version, mcp.MCPMethod(m.Method), m.Params); mismatch != nil {
			err = rpc.Errorf(mcp.HEADER_MISMATCH, "%v", mismatch)
		} else {
			err = checkTaskHeader(r.Header, m)
		}
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, m, err)
		return
	}
	if s.replicas != nil && s.replicas.forwardToHolder(w, r, m) {
		return
	}
	s.serveSessionless(w, r.WithContext(context.WithValue(r.Context(), headerKey{}, r.Header)), s.reg.sharedClient(who), m)
}

type headerKey struct{}

// checkHeaders checks that the Mcp-Param headers of a call match its arguments, because a proxy may have routed the call by
// these headers (SEP-2243). Only clients without sessions send them, if the tool's schema in their list requires them: a
// tool that was called through another tool, such as call_tool, is not in the list.
func (r *request) checkHeaders(ctx context.Context, info tool.Info, called string) *rpc.Error {
	header, sessionless := ctx.Value(headerKey{}).(http.Header)
	if !sessionless || info.Name != called || !bytes.Contains(info.Input, []byte("x-mcp-header")) {
		return nil
	}
	listed := &mcp.Tool{Name: info.Name, RawInputSchema: info.Input}
	if mcp.ValidateParamHeaderAnnotations(listed) != nil {
		return nil // the annotations are invalid: clients do not use the tool, or send no headers
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

// openSession opens a session.
func (s *Server) openSession(w http.ResponseWriter, r *http.Request, who *account, m *rpc.Message) {
	if s.replicas != nil && s.replicas.forwardInitialize(w, r, m) {
		return
	}
	c := s.reg.newSession(who)
	if !s.reg.register(r.Context(), c) {
		refuse(w, http.StatusServiceUnavailable, m, rpc.Errorf(mcp.INTERNAL_ERROR, "%s", tooManySessions))
		return
	}
	w.Header().Set(mcp.HeaderSessionID, c.id)
	s.serveSession(w, r, c, m)
	if c.snapshot().Version == "" { // initialize was rejected
		s.reg.remove(c)
	}
}

// findSession is findSessionByID for the id in the request's header.
func (s *Server) findSession(w http.ResponseWriter, r *http.Request, who *account, m *rpc.Message) *session {
	id := r.Header.Get(mcp.HeaderSessionID)
	if id == "" {
		http.Error(w, "header "+mcp.HeaderSessionID+" is missing; initialize first", http.StatusBadRequest)
		return nil
	}
	return s.findSessionByID(w, r, who, id, m, "no such session; initialize again", false)
}

// findSessionByID returns the session with the id if this replica holds it. Otherwise it forwards the request to the replica
// that holds the session, or answers with missing, and returns nil. sse says whether the session's transport must be
// HTTP+SSE. A session of another credential is treated as missing.
func (s *Server) findSessionByID(w http.ResponseWriter, r *http.Request, who *account, id string, m *rpc.Message, missing string, sse bool) *session {
	var c *session
	if s.replicas == nil {
		c = s.reg.session(id, who)
	} else if c = s.replicas.findOrForward(w, r, who, id, m, missing); c == nil {
		return nil
	}
	if c == nil || (c.sse != nil) != sse {
		http.Error(w, missing, http.StatusNotFound)
		return nil
	}
	return c
}

// serveSession handles a message of a session and writes the answer: as JSON or, if a stream has begun, as its last event.
func (s *Server) serveSession(w http.ResponseWriter, r *http.Request, c *session, m *rpc.Message) {
	if !m.IsRequest() {
		c.handle(r.Context(), m, nil)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	ctx, cancel := untilExpiry(context.WithoutCancel(r.Context()))
	defer cancel()
	to := wire.NewEvents(w, r, s.cat.limits.Write, acceptsEvents(r), func() {})
	out := c.replay.New(to, c.readsEmptyEvents(), cancel)
	defer context.AfterFunc(r.Context(), func() { out.Detach(to) })()
	out.PrimeLater() // begins the stream of a long call, so that the client can resume it
	reply, err := c.handle(ctx, m, out)
	if s.replicas != nil {
		if err == errStopping && !out.End(nil) { // the session was handed over, and nothing was sent: try again
			if c = s.findSession(w, r, c.account, m); c != nil {
				s.serveSession(w, r, c, m)
			}
			return
		}
		s.replicas.save(ctx, c) // before the client learns of a change of the session
	}
	if !out.End(reply) {
		s.writeAnswer(w, reply, http.StatusOK)
	}
}

// serveSessionless handles a request of a client without sessions, where "closing the response stream is the
// cancellation" (2026-07-28).
func (s *Server) serveSessionless(w http.ResponseWriter, r *http.Request, c *client, m *rpc.Message) {
	ctx, cancel := untilExpiry(r.Context())
	defer cancel()
	out := wire.NewEvents(w, r, s.cat.limits.Write, acceptsEvents(r), cancel)
	if out.Streams() { // a proxy that closes an idle stream would cancel the request
		out.StartHeartbeat()
		defer out.End(nil)
	}
	reply, rpcErr := s.sessionless.handle(ctx, c, m, out)
	if !out.End(reply) {
		s.writeAnswer(w, reply, statusOf(rpcErr))
	}
}

// writeAnswer writes an answer as JSON; reply is nil if the request was cancelled.
func (s *Server) writeAnswer(w http.ResponseWriter, reply []byte, status int) {
	if reply == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cat.limits.Write))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(reply) // fails if the client has left
}

const lastEventID = "Last-Event-ID"

// get handles GET: it opens the session's standalone stream, for messages that belong to no request, or resumes
// any stream. A session can only have one standalone stream, because each message is sent on one stream.
func (s *Server) get(w http.ResponseWriter, r *http.Request, who *account) {
	c := s.findSession(w, r, who, nil)
	if c == nil {
		return
	}
	ctx, cancel := untilExpiry(r.Context())
	defer cancel()
	to := wire.NewEvents(w, r, s.cat.limits.Write, true, cancel)
	defer to.End(nil)
	var stream *wire.Stream
	if id := r.Header.Get(lastEventID); id != "" {
		if stream = c.replay.Resume(id, to); stream == nil {
			// The status is not 404, which would tell the client that its session has ended.
			http.Error(w, lastEventID+" does not name an event of this session that is still kept; repeat the request", http.StatusBadRequest)
			return
		}
	}
	resumed := stream != nil
	standalone := !resumed || stream.Standalone()
	if standalone {
		if !c.addStream(resumed) {
			http.Error(w, "the session already has a stream; end that stream first, or resume it with "+lastEventID, http.StatusConflict)
			return
		}
		defer c.removeStream()
	}
	if !resumed {
		c.replay.EndStandalone() // of a lost connection, which the client does not resume
		stream = c.replay.New(to, c.readsEmptyEvents(), nil)
		stream.Open()
	}
	defer stream.Detach(to)
	to.StartHeartbeat()
	if standalone {
		c.pump(ctx, stream)
		return
	}
	select {
	case <-stream.Done():
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

// statusOf returns the HTTP status of an answer with the error e, or without an error, from revision 2026-07-28 on.
func statusOf(e *rpc.Error) int {
	switch {
	case e == nil || e.Code == mcp.INTERNAL_ERROR: // the request itself is valid
		return http.StatusOK
	case e.Code == mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
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
