package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/park"
	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

// This file forwards requests to the replica that holds their session or call.

// forwards are requests that are being forwarded.
type forwards struct {
	ctx   context.Context
	end   context.CancelFunc
	count atomic.Int64
}

// isForwarded reports whether the request is from another replica. admit checks the header's value.
func isForwarded(r *http.Request) bool { return r.Header[replica.Header] != nil }

// errLost is the error of a request that was forwarded to a replica that has died.
var errLost = rpc.Errorf(mcp.INTERNAL_ERROR, "the replica that handled the request has ended; the request may have had effects, so repeat it only if it may run twice")

// findTimeout is longer than the time after which a replica without heartbeats is removed as dead.
const findTimeout = 6 * time.Second

// attempts yields once for each attempt to find the replica that must handle a request, until findTimeout.
func attempts(ctx context.Context) iter.Seq[int] {
	return func(yield func(int) bool) {
		end := time.Now().Add(findTimeout)
		for n := 0; time.Now().Before(end) && ctx.Err() == nil && yield(n); n++ {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// forward forwards a request to the replica with the id and the URL. It returns false if that replica has certainly not
// handled the request, and another attempt may succeed. If the replica dies while it may be handling the request, forward
// answers with errLost. m is nil for requests without a message.
func (p *replicas) forward(w http.ResponseWriter, r *http.Request, id, url string, m *rpc.Message) bool {
	lostEvent, group := "", &p.calls
	if m != nil && m.IsRequest() {
		lostEvent = wire.Event(rpc.Answer(m.ID, nil, errLost))
	}
	if r.Method == http.MethodGet {
		group = &p.streams
	}
	group.count.Add(1)
	defer group.count.Add(-1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(group.ctx, cancel)()
	defer context.AfterFunc(p.members.Alive(id), cancel)() // a process that hangs keeps its connections open
	err := p.forwarder.Forward(ctx, w, r, id, url, lostEvent)
	rpcErr := errLost
	switch {
	case err == nil:
		return true
	case group.ctx.Err() != nil && errors.Is(err, replica.ErrNotSent): // this replica is closing
		rpcErr = errStopping
	case errors.Is(err, replica.ErrRefused):
		_ = p.members.Beat(r.Context(), id) // removes the replica as dead, so the next attempt takes over the session
		return false
	case errors.Is(err, replica.ErrNotHere) || errors.Is(err, replica.ErrNotSent):
		return false
	}
	if lostEvent != "" {
		p.srv.writeAnswer(w, rpc.Answer(m.ID, nil, rpcErr), http.StatusOK)
	} else {
		http.Error(w, rpcErr.Message, http.StatusBadGateway)
	}
	return true
}

// holderOf returns the id and the URL of the other replica that holds the task, or the parked call, of a request without a
// session. The id is "" if this replica must handle the request, because it is the holder or must report an error.
func (p *replicas) holderOf(r *http.Request, m *rpc.Message) (id, url string, err error) {
	var params struct {
		State string `json:"requestState"`
	}
	task := taskID(m)
	ticket := task // the id of a task is a ticket, too
	if task == "" && bytes.Contains(m.Params, []byte("requestState")) && m.Decode(&params) == nil {
		ticket = params.State
	}
	if ticket == "" {
		return "", "", nil
	}
	t, err := p.srv.lot.Verify(r.Context(), ticket)
	if err != nil || t.Parked == "" || t.Parked == p.members.ID {
		return "", "", nil
	}
	url, err = p.members.URL(r.Context(), t.Parked)
	switch {
	case err == nil && url == "" && task != "": // the dead holder may have handed the task over to the store
		return "", "", nil
	case err == nil && url == "":
		err = park.ErrLost
	}
	return t.Parked, url, err
}

// forwardToHolder forwards a request without a session to the replica that holds its task or parked call. It returns false
// if this replica must handle the request.
func (p *replicas) forwardToHolder(w http.ResponseWriter, r *http.Request, m *rpc.Message) bool {
	failed := errors.New("the replica that has the call cannot be reached; try again")
	for range attempts(r.Context()) {
		id, url, err := p.holderOf(r, m)
		if err != nil {
			failed = err
			break
		}
		switch {
		case id == "":
			return false
		case isForwarded(r):
			http.Error(w, "the call is on another replica", http.StatusMisdirectedRequest)
			return true
		case p.forward(w, r, id, url, m):
			return true
		}
	}
	p.srv.writeAnswer(w, rpc.Answer(m.ID, nil, rpc.Errorf(mcp.INVALID_PARAMS, "%v", failed)), http.StatusBadRequest)
	return true
}

// forwardInitialize forwards a request for a new session if this replica is draining. It returns false if this replica must
// handle the request.
func (p *replicas) forwardInitialize(w http.ResponseWriter, r *http.Request, m *rpc.Message) bool {
	if !p.members.Draining() || isForwarded(r) {
		return false
	}
	id, url := p.members.Other()
	return id != "" && p.forward(w, r, id, url, m)
}

// keepBody stores the body of a request that was read, so that the request can be forwarded.
func keepBody(r *http.Request, body []byte) {
	r.ContentLength = int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}
