package mcpserver

import (
	"context"
	"net/http"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

const lastEventID = "Last-Event-ID"

// get handles GET: it opens the session's standalone stream, for messages that belong to no request, or resumes
// any stream. A session can only have one standalone stream, because each message is sent on one stream.
func (s *Server) get(w http.ResponseWriter, r *http.Request, cred *Credential) {
	c := s.find(w, r, cred)
	if c == nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	to := wire.NewEvents(w, r, s.cat.limits.Write, true, cancel)
	defer to.End(nil)
	var st *wire.Stream
	if id := r.Header.Get(lastEventID); id != "" {
		if st = c.replay.Resume(id, to); st == nil {
			// The status is not 404, which would tell the client that its session has ended.
			http.Error(w, lastEventID+" does not name an event of this session that is still kept; repeat the request", http.StatusBadRequest)
			return
		}
	}
	standalone := st == nil || st.Standalone()
	if standalone {
		if !c.addStream(st != nil) {
			http.Error(w, "the session already has a stream; end that stream first, or resume it with "+lastEventID, http.StatusConflict)
			return
		}
		defer c.removeStream()
	}
	if st == nil {
		c.replay.EndStandalone()
		st = c.replay.New(to, c.primes(), nil)
		st.Open()
	}
	defer st.Detach(to)
	if standalone {
		c.pump(ctx, st, wire.Heartbeat, to.Beat)
		return
	}
	ticker := time.NewTicker(wire.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = to.Beat() // a failed write ends ctx
		case <-st.Done():
			return
		case <-ctx.Done():
			return
		case <-c.ctx.Done():
			return
		}
	}
}
