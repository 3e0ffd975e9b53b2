package mcpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver/internal/park"
	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A Server serves one toolkit to any number of clients. It is safe for concurrent use.
type Server struct {
	cat         *catalogue
	reg         *registry
	sessionless *sessionless
	lot         *park.Lot          // calls of clients without sessions that wait for an answer or are tasks
	stop        []func()           // end the calls of changed and upstreamChanged
	cancel      context.CancelFunc // ends registry.ctx
	work        sync.WaitGroup     // the server's goroutines
	replicas    *replicas          // nil if the server is alone

	mu      sync.Mutex
	closed  bool
	pending toolkit.Change // the changes for the next recheck
}

// New returns a server. The caller must call Close.
func New(cfg Config) (*Server, error) {
	cat, err := newCatalogue(cfg)
	if err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	var store replica.Store = new(replica.Memory)
	if cfg.Replicas != nil {
		store = cfg.Replicas.Shared
	}
	keys, replicaID := replica.NewKeys(store), rand.Text()
	lot := park.NewLot(cat.limits.Ask, store, keys, replicaID)
	ctx, cancel := context.WithCancel(context.Background())
	reg := newRegistry(ctx, cat, store)
	s := &Server{cat: cat, reg: reg, sessionless: &sessionless{reg, lot}, lot: lot, cancel: cancel}
	if cfg.Replicas != nil {
		if s.replicas, err = newReplicas(ctx, s, cfg.Replicas, keys, replicaID); err != nil {
			cancel()
			return nil, fmt.Errorf("mcpserver: join the replicas: %w", err)
		}
		s.work.Go(func() { s.replicas.run(ctx) })
	}
	s.stop = append(s.stop, cat.cfg.Toolkit.OnChange(s.changed))
	if cat.cfg.upstream != nil {
		s.stop = append(s.stop, cat.cfg.upstream.OnChange(s.upstreamChanged))
	}
	return s, nil
}

// closeTimeout is how long Close waits for the tools of calls that it has cancelled, and for the store of the replicas.
const closeTimeout = 2 * time.Second

// Drain prepares for Close when another replica, or the next process, takes over. It waits for all calls to end, including
// tasks and calls that wait for an answer. It hands sessions without calls, and the results of tasks, over to the other
// replicas, which then get the requests for them. When ctx ends, Drain cancels the remaining calls, with an error for their
// clients. The server must be listening while Drain runs.
func (s *Server) Drain(ctx context.Context) error {
	if s.replicas != nil {
		if err := s.replicas.members.Drain(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("mcpserver: drain: %w", err)
		}
		s.replicas.streams.end() // the client resumes them through another replica
	}
	for _, c := range s.reg.listeners() {
		c.cancel() // the client will listen to another replica
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		busy, err := s.handOverIdle(ctx)
		if busy = max(busy, s.lot.Calls()); busy == 0 || err != nil { // not the sum: a call of the lot may be in flight, too
			return errors.Join(err, s.handOverTasks(ctx))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("mcpserver: drain: %d calls are cancelled: %w", busy, errors.Join(context.Cause(ctx), s.abort()))
		}
	}
}

// abort cancels the calls in flight and hands over all sessions and tasks.
func (s *Server) abort() (err error) {
	for _, c := range s.reg.clients() {
		c.stop()
	}
	if s.replicas != nil {
		s.replicas.streams.end()
		s.replicas.calls.end()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for ctx.Err() == nil {
		var busy int
		if busy, err = s.handOverIdle(ctx); busy == 0 || err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return errors.Join(err, s.handOverTasks(ctx))
}

func (s *Server) handOverTasks(ctx context.Context) error {
	if s.replicas == nil {
		return nil
	}
	return s.lot.HandOver(ctx)
}

// handOverIdle hands over the sessions that have no calls in flight. It returns the number of calls in flight of all clients,
// and of forwarded requests.
func (s *Server) handOverIdle(ctx context.Context) (busy int, err error) {
	for _, c := range s.reg.clients() {
		busy += c.inFlight()
	}
	if s.replicas != nil {
		busy += int(s.replicas.calls.count.Load())
		for _, c := range s.reg.httpSessions() {
			if c.sse == nil && c.stopIfIdle() { // a session over HTTP+SSE cannot leave the replica that has its stream
				err = errors.Join(err, s.replicas.handOver(ctx, c))
			}
		}
	}
	return busy, err
}

// background runs fn in a goroutine that Close waits for.
func (s *Server) background(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Go(fn)
	}
}

// Close ends all sessions and their calls, and waits for the server's goroutines. It does not
// close the toolkit. Call [Server.Drain] first if another replica, or the next process, takes over.
func (s *Server) Close() error {
	for _, stop := range s.stop {
		stop()
	}
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if s.replicas != nil && !closed {
		_ = s.abort() // other replicas take over the sessions that could not be handed over
		defer s.replicas.close()
	}
	s.lot.Close()
	s.reg.close()
	s.cancel()
	s.work.Wait()
	s.lot.Wait()
	return nil
}

// upstreamChanged notifies the clients whose lists of prompts or resources have changed.
func (s *Server) upstreamChanged() {
	s.changed(toolkit.Change{Tools: true}) // any change makes recheck compare the lists of prompts and resources
	for _, c := range s.reg.listeners() {
		c.notify(catalogueChanged, true)
	}
}

// changed is called after a change of the toolkit, on the goroutine that made the change.
func (s *Server) changed(ev toolkit.Change) {
	if ev.Scope != nil {
		if c := s.reg.sessionWithScope(ev.Scope); c != nil {
			c.notify(c.changesOf(ev)|c.takeVisibleChanges(s.cat.cfg.Toolkit), false)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// One recheck handles all pending changes, because many can occur at once, as when a hundred tools are registered.
	p := &s.pending
	scheduled := p.Tools || p.Groups || p.Skills
	p.Tools, p.Groups, p.Skills = p.Tools || ev.Tools, p.Groups || ev.Groups, p.Skills || ev.Skills
	if !s.closed && !scheduled {
		s.work.Go(s.recheck)
	}
}

// recheck notifies the sessions whose lists have changed.
func (s *Server) recheck() {
	s.mu.Lock()
	due := s.pending
	s.pending = toolkit.Change{}
	s.mu.Unlock()
	all := s.reg.allSessions()
	due.Tools = false // the lists of tools are compared below
	_ = s.cat.static.renew(s.cat.cfg.Toolkit)
	for _, c := range all {
		c.notify(c.changesOf(due)|c.takeVisibleChanges(s.cat.cfg.Toolkit)|c.takeToolsChange(s.reg.ctx), true)
	}
}

// ResourceUpdated notifies the clients that have subscribed to the resource, except clients for which none of the resource's
// groups is still open.
func (s *Server) ResourceUpdated(uri string) {
	var groups [][]string // of the resources and templates that match
	for _, o := range s.cat.resources {
		if _, ok := o.match(uri); ok {
			groups = append(groups, o.Groups)
		}
	}
	all := s.reg.allSessions()
	if len(groups) > 0 {
		all = slices.DeleteFunc(all, func(c *session) bool {
			reachable := s.cat.cfg.Toolkit.Reachable(c.state.Scope)
			return !slices.ContainsFunc(groups, func(in []string) bool { return isVisible(reachable, in) })
		})
	}
	for _, c := range append(all, s.reg.listeners()...) { // the groups of listeners never close
		c.markUpdated(uri)
	}
}
