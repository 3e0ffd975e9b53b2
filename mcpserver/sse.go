package mcpserver

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

// HTTP+SSE is the transport of revision 2024-11-05. A GET opens a stream, whose first event is the
// URL that the client posts its messages to; all messages of the server are events of the stream.

// sessionParam is the query parameter, in the URL for posting messages, that has the id of the session.
const sessionParam = "sessionId"

// An sseStream is the stream of a session over HTTP+SSE.
type sseStream struct {
	out   *wire.Events
	ctx   context.Context // cancelled when the stream ends
	slots slots           // limit the requests that wait for writing to the stream

	mu    sync.Mutex
	ended bool           // no more goroutines start
	work  sync.WaitGroup // the goroutines of requests, which may write to the stream
}

// start runs fn in a goroutine, and returns false if the stream has ended.
func (st *sseStream) start(fn func()) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.ended {
		st.work.Go(fn)
	}
	return !st.ended
}

// finish waits for the goroutines, because nothing may write to the stream after openSSE has returned.
func (st *sseStream) finish() {
	st.mu.Lock()
	st.ended = true
	st.mu.Unlock()
	st.work.Wait()
}

// wantsSSE reports whether a GET is for HTTP+SSE. A GET of streamable HTTP names a session.
func wantsSSE(r *http.Request) bool {
	return r.Header.Get(mcp.HeaderSessionID) == "" && strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// openSSE opens a session over HTTP+SSE, which ends with its stream.
func (s *Server) openSSE(w http.ResponseWriter, r *http.Request, who *account) {
	ctx, cancel := untilExpiry(r.Context())
	defer cancel()
	c := s.reg.newSession(who)
	c.addStream(false) // so the session is not idle
	c.sse = &sseStream{ctx: ctx, out: wire.NewEvents(w, r, s.cat.limits.Write, true, cancel), slots: newSlots(&s.cat.limits)}
	if !s.reg.register(r.Context(), c) {
		http.Error(w, tooManySessions, http.StatusServiceUnavailable)
		return
	}
	if s.replicas != nil {
		s.replicas.save(r.Context(), c)
		defer s.replicas.forget(r.Context(), c)
	}
	defer c.sse.out.End(nil)
	defer c.sse.finish()
	defer s.reg.remove(c)
	// Use the path as the client requested it, because a router may have shortened the path in r.URL.
	at, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		at = r.URL
	}
	endpoint := url.URL{Path: at.Path, RawPath: at.RawPath, RawQuery: url.Values{sessionParam: {c.id}}.Encode()}
	if c.sse.out.Write("event: endpoint\ndata: "+endpoint.String()+"\n\n") == nil {
		c.sse.out.StartHeartbeat()
		c.pump(ctx, c.sse.out)
	}
}

// postSSE handles a message over HTTP+SSE. The answer is an event of the stream.
func (s *Server) postSSE(w http.ResponseWriter, r *http.Request, who *account, m *rpc.Message) {
	c := s.findSessionByID(w, r, who, r.URL.Query().Get(sessionParam), m, "no such session; open a stream by GET first", true)
	if c == nil {
		return
	}
	if !m.IsRequest() { // needs no slot: it may be the answer to a question of a call that holds a slot
		c.handle(c.sse.ctx, m, nil)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	started := false
	select {
	case c.sse.slots <- struct{}{}: // blocks while the client does not read its stream
		started = c.sse.start(func() {
			defer func() { <-c.sse.slots }()
			ctx, cancel := untilExpiry(context.WithValue(c.sse.ctx, identityKey{}, r.Context().Value(identityKey{})))
			defer cancel()
			if reply, _ := c.handle(ctx, m, c.sse.out); reply != nil {
				_ = c.sse.out.Send(reply) // a failed write ends the stream
			}
		})
	case <-c.ctx.Done():
	case <-r.Context().Done():
	}
	if !started {
		http.Error(w, "the session's stream has ended; open another one by GET", http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}
