package mcpserver

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// HTTP+SSE is the transport of revision 2024-11-05, for hosts that know no other: a
// GET opens a stream, which first names the address that messages are posted to,
// and on which everything else comes that the server has to say.

// sessionParam is the parameter of that address that holds the session's id.
const sessionParam = "sessionId"

// An oldStream is the stream of such a session.
type oldStream struct {
	out  *eventWriter
	ctx  context.Context // ends with the stream
	mu   sync.Mutex
	over bool
	work sync.WaitGroup // what may still write to the stream
}

// start runs fn beside the stream, unless that is over.
func (o *oldStream) start(fn func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.work.Go(fn)
	}
	return !o.over
}

// finish waits for what writes to the stream: after its handler nobody may.
func (o *oldStream) finish() {
	o.mu.Lock()
	o.over = true
	o.mu.Unlock()
	o.work.Wait()
}

// wantsOld tells the GET of the old transport by what the new one's has: a session.
func wantsOld(r *http.Request) bool {
	return r.Header.Get(mcp.HeaderSessionID) == "" && strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// openOld makes a session of the old transport, which lives as long as its stream.
func (s *Server) openOld(w http.ResponseWriter, r *http.Request, cred *Credential) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c := s.newSession(cred)
	c.id, c.standing = rand.Text(), 1
	c.oneStream()
	c.old = &oldStream{ctx: ctx, out: s.newEventWriter(w, r, true, cancel)}
	if !s.enter(c) {
		http.Error(w, "there are too many sessions; try again later", http.StatusServiceUnavailable)
		return
	}
	defer c.old.out.end(nil)
	defer c.old.finish()
	defer s.remove(c)
	// As the client wrote it, whatever a router has cut off since.
	at, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		at = r.URL
	}
	endpoint := url.URL{Path: at.Path, RawPath: at.RawPath, RawQuery: url.Values{sessionParam: {c.id}}.Encode()}
	if c.old.out.write("event: endpoint\ndata: "+endpoint.String()+"\n\n") == nil {
		c.pump(ctx, c.old.out, heartbeat, c.old.out.beat)
	}
}

// postOld takes a message of the old transport. The answer comes on the stream.
func (s *Server) postOld(w http.ResponseWriter, r *http.Request, cred *Credential, m *rpcMessage) {
	s.mu.Lock()
	c := s.sessions[r.URL.Query().Get(sessionParam)]
	s.mu.Unlock()
	// As in find: the session of another credential does not exist.
	if c == nil || c.cred != cred || c.old == nil {
		http.Error(w, "no such session; open a stream again", http.StatusNotFound)
		return
	}
	if m.ID == nil || m.Method == "" { // in order: an answer may be waited for
		c.handle(c.old.ctx, m, nil)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	taken := false
	select {
	case c.slots <- struct{}{}: // none is free while the client does not read
		taken = c.old.start(func() {
			defer func() { <-c.slots }()
			if reply, _ := c.handle(c.old.ctx, m, c.old.out); reply != nil {
				_ = c.old.out.send(reply) // that it fails ends the stream
			}
		})
	case <-c.ctx.Done():
	case <-r.Context().Done():
	}
	if !taken {
		http.Error(w, "the stream has ended; open one again", http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}
