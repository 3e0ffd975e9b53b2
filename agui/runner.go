package agui

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
)

// A runner runs sessions in this process. Each session has its own goroutine while there is something to do.
type runner struct {
	store store
	cfg   agent.Config // for runs with frontend tools
	agent *agent.Agent // for runs without frontend tools
	log   *slog.Logger

	ctx    context.Context // of all runs
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool                          // shutdown was called
	jobs      map[string]*job               // by session
	listeners map[string]map[*listener]bool // by session
}

// A job is the work on a session. The runner's mutex guards its fields.
type job struct {
	grant     *grant // of the last request; nil if wake made the job, which then uses the session's stored grant
	senders   int    // requests whose inputs are being stored
	isRunning bool   // a goroutine runs the session
	rerun     bool   // the session must be run once more, for example because an input has arrived
}

// A listener gets the events of a session's runs when they occur, before they are stored.
type listener struct {
	events chan event.Event
	failed chan error // the error of a run that failed; buffers one
}

// listenerSize is the size of a listener's buffer. A stream whose buffer is full misses events, and waits for the store
// to get them.
const listenerSize = 1024

// conflictRetry is the interval of attempts to open a session that another process has open.
const conflictRetry = 250 * time.Millisecond

func newRunner(store store, cfg agent.Config, a *agent.Agent, log *slog.Logger) *runner {
	ctx, cancel := context.WithCancel(context.Background())
	return &runner{store: store, cfg: cfg, agent: a, log: log, ctx: ctx, cancel: cancel, jobs: map[string]*job{}, listeners: map[string]map[*listener]bool{}}
}

var errClosing = &refusal{http.StatusServiceUnavailable, "the server is shutting down; try again"}

// errOtherGrant is the error for a request whose grant differs from that of the run in progress.
var errOtherGrant = &mismatch{"busy", "a run with other tools or another ceiling is in progress; wait for its end, or cancel it"}

// send sends the inputs of a request to a session, and runs the session. st and status are those with which the request
// was compared.
func (r *runner) send(ctx context.Context, id string, inputs []newInput, g grant, st *agent.State, status session.Status) error {
	stored, err := storedGrant(st)
	if err != nil {
		return err
	}
	if busy(status) && !g.equal(stored) {
		return errOtherGrant
	}
	j, err := r.reserve(id, g, stored)
	if err != nil {
		return err
	}
	for _, in := range inputs {
		if _, err = session.Send(ctx, r.store, id, in.id, in.input); err != nil {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	j.senders--
	r.start(id, j) // even after an error: some inputs may have been stored
	return err
}

// reserve sets the grant of a session's job, and returns the job. It fails if the session may be running with another
// grant. The job keeps the grant at least until the caller has decremented senders.
func (r *runner) reserve(id string, g, stored grant) (*job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.jobs[id]
	switch {
	case r.closed:
		return nil, errClosing
	case j == nil:
		j = &job{}
		r.jobs[id] = j
	case j.grant != nil && !j.grant.equal(g), j.grant == nil && !g.equal(stored):
		return nil, errOtherGrant
	}
	j.grant = &g
	j.senders++
	return j, nil
}

// wake runs a session if it has inputs, or a run that another process has not finished. If rerun is set and the session
// has a job, the job runs the session once more.
func (r *runner) wake(id string, rerun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := r.jobs[id]
	if j == nil {
		j = &job{}
		r.jobs[id] = j
	} else if !rerun {
		return
	}
	r.start(id, j)
}

// start makes the job run its session once more. The caller holds r.mu.
func (r *runner) start(id string, j *job) {
	j.rerun = true
	if !j.isRunning && !r.closed {
		j.isRunning = true
		r.wg.Go(func() { r.work(id, j) })
	}
}

// nextRun reports whether a job must run its session again, and with which grant. If not, the job ends.
func (r *runner) nextRun(id string, j *job) (g *grant, mustRun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j.rerun && r.ctx.Err() == nil {
		j.rerun = false
		return j.grant, true
	}
	j.isRunning = false
	if j.senders == 0 {
		delete(r.jobs, id)
	}
	return nil, false
}

// work runs a session until nothing is left to do.
func (r *runner) work(id string, j *job) {
	for {
		g, mustRun := r.nextRun(id, j)
		if !mustRun {
			return
		}
		err := r.run(id, g)
		switch {
		case errors.Is(err, session.ErrConflict) && r.mustRetry(id, g):
			select {
			case <-time.After(conflictRetry):
			case <-r.ctx.Done():
			}
			r.wake(id, true)
		case err != nil && !errors.Is(err, session.ErrConflict):
			r.log.ErrorContext(r.ctx, "agui: run failed", "session", id, "error", err)
			r.fail(id, err)
		}
	}
}

// mustRetry reports whether to open a session again that another process has open. That is so if a request has sent
// inputs that still wait, since the other process may end without reading the last of them.
func (r *runner) mustRetry(id string, g *grant) bool {
	if g == nil {
		return false
	}
	entries, err := r.store.Inputs(r.ctx, id)
	return err != nil || len(entries) > 0
}

// run opens a session and runs it with the grant. Without a grant it uses the session's own, and first checks whether
// there is anything to do.
func (r *runner) run(id string, g *grant) (err error) {
	if g == nil {
		_, info, err := session.Read(r.ctx, r.store, id, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist): // a new session may have an input before its first record
		case err != nil || !busy(info.Status) && info.Inputs == 0:
			return err // a run that failed is repeated only for a new input
		}
	}
	s, err := session.Open(r.ctx, r.store, id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if g != nil {
		if err := g.setIn(s.State); err != nil {
			return err
		}
	}
	stored, err := storedGrant(s.State)
	if err != nil {
		return err
	}
	a := r.agent
	if len(stored.tools) > 0 {
		if a, err = agentWithTools(r.ctx, r.cfg, stored.tools); err != nil {
			return err
		}
	}
	return r.runOnce(s, id, a)
}

// runOnce runs a session until a run ends. It leaves inputs that arrive in the meantime to the next run, since another
// replica may have accepted them with another grant.
func (r *runner) runOnce(s *session.Session, id string, a *agent.Agent) error {
	before, err := r.store.Inputs(r.ctx, id)
	if err != nil {
		return err
	}
	var end *event.End
	for ev, err := range s.Run(r.ctx, a) {
		if err != nil {
			return err
		}
		r.publish(id, ev)
		if e, ok := ev.(*event.End); ok && e.Reason != event.EndError { // after an EndError Run yields its error
			end = e
			break
		}
	}
	if end == nil || end.Reason == event.EndWaiting {
		return nil
	}
	after, err := r.store.Inputs(r.ctx, id)
	// Inputs that waited before this run and still wait need another run.
	if slices.ContainsFunc(after, func(e session.Entry) bool {
		return slices.ContainsFunc(before, func(b session.Entry) bool { return b.ID == e.ID })
	}) {
		r.wake(id, true)
	}
	return err
}

// listen returns a new listener of a session, and the function that removes the listener.
func (r *runner) listen(id string) (_ *listener, stop func()) {
	lis := &listener{make(chan event.Event, listenerSize), make(chan error, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listeners[id] == nil {
		r.listeners[id] = map[*listener]bool{}
	}
	r.listeners[id][lis] = true
	return lis, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.listeners[id], lis)
		if len(r.listeners[id]) == 0 {
			delete(r.listeners, id)
		}
	}
}

// publish passes an event to the listeners of a session, without blocking.
func (r *runner) publish(id string, ev event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lis := range r.listeners[id] {
		lis.offer(ev)
	}
}

// offer passes an event to the listener, unless its buffer is full.
func (lis *listener) offer(ev event.Event) {
	select {
	case lis.events <- ev:
	default:
	}
}

// fail passes the error of a run to the listeners of its session.
func (r *runner) fail(id string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lis := range r.listeners[id] {
		select {
		case lis.failed <- err:
		default:
		}
	}
}

func (r *runner) shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	stop := context.AfterFunc(ctx, r.cancel)
	defer stop()
	r.wg.Wait()
	r.cancel()
	return ctx.Err()
}
