package agui

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
)

// A loop runs sessions in this process, each in its own goroutine while it has inputs.
type loop struct {
	store store
	cfg   agent.Config
	agent *agent.Agent // for runs without frontend tools
	log   *slog.Logger

	ctx    context.Context // of all runs
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	jobs      map[string]*job
	listeners map[string]map[*listener]bool // by session
}

// A job is the work on a session. The loop's mutex guards its fields.
type job struct {
	grant   *grant // of the last request; nil if the session was only woken
	senders int    // requests whose inputs are being stored
	running bool   // a goroutine runs the session
	again   bool   // the session must be run once more, for example because an input has arrived
}

// A listener gets the events of a run when they occur, unless its buffer is full.
type listener struct {
	events chan event.Event
	failed chan error // buffers one error
}

// listenerSize is how many events a stream may be behind a run. Beyond that it only gets the stored ones.
const listenerSize = 1024

// conflictRetry is the interval of attempts to open a session that another process has open.
const conflictRetry = 250 * time.Millisecond

func newLoop(s store, cfg agent.Config, a *agent.Agent, log *slog.Logger) *loop {
	ctx, cancel := context.WithCancel(context.Background())
	return &loop{store: s, cfg: cfg, agent: a, log: log, ctx: ctx, cancel: cancel, jobs: map[string]*job{}, listeners: map[string]map[*listener]bool{}}
}

var errClosing = &refusal{503, "the server is shutting down; try again"}

// errGrant is the error for a request whose grant differs from that of the run in progress.
var errGrant = &mismatch{"busy", "a run with other tools or another ceiling is in progress; wait for its end, or cancel it"}

// send sends the inputs of a request to a session and runs it. The request was checked against st and status.
func (l *loop) send(ctx context.Context, id string, inputs []newInput, g grant, st *agent.State, status session.Status) error {
	stored, err := grantOf(st)
	if err != nil {
		return err
	}
	if busy(status) && !g.equal(stored) {
		return errGrant
	}
	j, err := l.reserve(id, g, stored)
	if err != nil {
		return err
	}
	for _, in := range inputs {
		if _, err = session.Send(ctx, l.store, id, in.id, in.input); err != nil {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	j.senders--
	l.start(id, j) // some inputs may have been stored even after an error
	return err
}

// reserve returns the job of a session with the grant. Until its inputs are stored, requests with another grant are
// refused.
func (l *loop) reserve(id string, g, stored grant) (*job, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[id]
	switch {
	case l.closed:
		return nil, errClosing
	case j == nil:
		j = &job{}
		l.jobs[id] = j
	case j.grant != nil && !j.grant.equal(g), j.grant == nil && !g.equal(stored):
		return nil, errGrant
	}
	j.grant = &g
	j.senders++
	return j, nil
}

func (l *loop) interrupt(ctx context.Context, id, input string) error {
	if _, err := session.Send(ctx, l.store, id, input, agent.Interrupt{}); err != nil {
		return err
	}
	l.wake(id, true)
	return nil
}

// wake runs a session if it has inputs or an unfinished run, for example because its process has died. If again is
// set, a session that is running is checked once more afterwards.
func (l *loop) wake(id string, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.jobs[id]
	if j == nil {
		j = &job{}
		l.jobs[id] = j
	} else if !again {
		return
	}
	l.start(id, j)
}

// start makes the job run its session once more. The caller holds l.mu.
func (l *loop) start(id string, j *job) {
	j.again = true
	if !j.running && !l.closed {
		j.running = true
		l.wg.Go(func() { l.work(id, j) })
	}
}

// next reports whether a job must run its session again, and with which grant. If not, it removes the job.
func (l *loop) next(id string, j *job) (g *grant, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j.again && l.ctx.Err() == nil {
		j.again = false
		return j.grant, true
	}
	j.running = false
	if j.senders == 0 {
		delete(l.jobs, id)
	}
	return nil, false
}

// work runs a session until nothing is left to do.
func (l *loop) work(id string, j *job) {
	for {
		g, more := l.next(id, j)
		if !more {
			return
		}
		err := l.run(id, g)
		switch {
		case errors.Is(err, session.ErrConflict) && l.mustRetry(id, g):
			select {
			case <-time.After(conflictRetry):
			case <-l.ctx.Done():
			}
			l.mu.Lock()
			j.again = true
			l.mu.Unlock()
		case err != nil && !errors.Is(err, session.ErrConflict):
			l.log.ErrorContext(l.ctx, "agui: run failed", "session", id, "error", err)
			l.fail(id, err)
		}
	}
}

// mustRetry reports whether inputs wait in a session that another process has open: that process may end without seeing
// the last of them. A session that was only woken is left to that process.
func (l *loop) mustRetry(id string, g *grant) bool {
	if g == nil {
		return false
	}
	entries, err := l.store.Inputs(l.ctx, id)
	return err != nil || len(entries) > 0
}

// run opens a session and runs it. If it was only woken, without a grant, it may have nothing to do.
func (l *loop) run(id string, g *grant) (err error) {
	if g == nil {
		_, info, err := session.Read(l.ctx, l.store, id, 0)
		if errors.Is(err, fs.ErrNotExist) {
			info.Inputs = 1 // a new session may have an input before its first record
		} else if err != nil || !busy(info.Status) && info.Inputs == 0 {
			return err // a run that failed is repeated only for a new input
		}
	}
	s, err := session.Open(l.ctx, l.store, id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if g != nil {
		if err := g.apply(s.State); err != nil {
			return err
		}
	}
	now, err := grantOf(s.State)
	if err != nil {
		return err
	}
	a := l.agent
	if len(now.tools) > 0 {
		if a, err = withFrontend(l.ctx, l.cfg, now.tools); err != nil {
			return err
		}
	}
	return l.runOnce(s, id, a)
}

// runOnce runs a session until a run ends. Inputs that arrive in the meantime are left to a later job, since they may have
// been sent to another replica with another grant.
func (l *loop) runOnce(s *session.Session, id string, a *agent.Agent) error {
	before, err := l.store.Inputs(l.ctx, id)
	if err != nil {
		return err
	}
	var end *event.End
	for ev, err := range s.Run(l.ctx, a) {
		if err != nil {
			return err
		}
		l.publish(id, ev)
		if e, ok := ev.(*event.End); ok && e.Reason != event.EndError { // after an EndError Run yields its error
			end = e
			break
		}
	}
	if end == nil || end.Reason == event.EndWaiting {
		return nil
	}
	after, err := l.store.Inputs(l.ctx, id)
	// Inputs that waited before this run and still wait need another one.
	if slices.ContainsFunc(after, func(e session.Entry) bool {
		return slices.ContainsFunc(before, func(b session.Entry) bool { return b.ID == e.ID })
	}) {
		l.wake(id, true)
	}
	return err
}

// listen returns a listener of a session, and the function that ends it.
func (l *loop) listen(id string) (*listener, func()) {
	n := &listener{make(chan event.Event, listenerSize), make(chan error, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listeners[id] == nil {
		l.listeners[id] = map[*listener]bool{}
	}
	l.listeners[id][n] = true
	return n, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.listeners[id], n)
		if len(l.listeners[id]) == 0 {
			delete(l.listeners, id)
		}
	}
}

// publish passes an event to the listeners. It never blocks: a slow stream gets the stored events later.
func (l *loop) publish(id string, ev event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.listeners[id] {
		n.offer(ev)
	}
}

// offer passes an event to a listener, unless its buffer is full.
func (n *listener) offer(ev event.Event) {
	select {
	case n.events <- ev:
	default:
	}
}

// fail passes the error of a session that could not be run to its listeners.
func (l *loop) fail(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.listeners[id] {
		select {
		case n.failed <- err:
		default:
		}
	}
}

func (l *loop) shutdown(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	stop := context.AfterFunc(ctx, l.cancel)
	defer stop()
	l.wg.Wait()
	l.cancel()
	return ctx.Err()
}
