package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kitbag-go/kitbag/mcpserver/internal/park"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A Server serves one toolkit to any number of clients. It is safe for concurrent use.
type Server struct {
	cat    *catalogue
	reg    *registry
	single *sessionless
	lot    *park.Lot
	stop   []func()           // end the watches of changes
	cancel context.CancelFunc // ends all clients
	work   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	pending toolkit.Change // what the next recheck compares all sessions with
}

// New returns a server. The caller must call Close.
func New(cfg Config) (*Server, error) {
	cat, err := newCatalogue(cfg)
	if err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	lot, err := park.NewLot(cat.limits.Ask)
	if err != nil {
		return nil, fmt.Errorf("mcpserver: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	reg := newRegistry(ctx, cat)
	s := &Server{cat: cat, reg: reg, single: &sessionless{reg, lot}, lot: lot, cancel: cancel}
	s.stop = append(s.stop, cat.cfg.Toolkit.OnChange(s.changed))
	if cat.cfg.upstream != nil {
		s.stop = append(s.stop, cat.cfg.upstream.OnChange(s.upstreamChanged))
	}
	return s, nil
}

// Close ends all sessions and their calls, and waits for the server's goroutines. It does not
// close the toolkit.
func (s *Server) Close() error {
	for _, stop := range s.stop {
		stop()
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.lot.Close()
	s.reg.close()
	s.cancel()
	s.work.Wait()
	s.lot.Wait()
	return nil
}

// upstreamChanged notifies the clients whose lists of prompts or resources have changed.
func (s *Server) upstreamChanged() {
	s.changed(toolkit.Change{Tools: true}) // recheck then compares all lists
	for _, c := range s.reg.listeners() {
		c.notify(catalogueChanged, true)
	}
}

// changed is called when the toolkit changes, on the goroutine that changed it.
func (s *Server) changed(ev toolkit.Change) {
	if ev.Scope != nil {
		if c := s.reg.ofScope(ev.Scope); c != nil {
			c.notify(c.changesOf(ev)|c.visibleChanges(s.cat.cfg.Toolkit), false)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Many changes may occur at once, for example when a hundred tools are registered: one recheck handles all that
	// are pending.
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
	all := s.reg.all()
	due.Tools = false // the lists of tools are compared below
	s.cat.static.renew(s.cat.cfg.Toolkit)
	for _, c := range all {
		c.notify(c.changesOf(due)|c.visibleChanges(s.cat.cfg.Toolkit)|c.toolsChange(s.reg.ctx), true)
	}
}

// ResourceUpdated notifies the clients that have subscribed to the resource, if one of its groups is still open
// for them.
func (s *Server) ResourceUpdated(uri string) {
	var groups [][]string // of the resources and templates that match
	for _, o := range s.cat.resources {
		if _, ok := o.match(uri); ok {
			groups = append(groups, o.Groups)
		}
	}
	all := s.reg.all()
	if len(groups) > 0 {
		all = slices.DeleteFunc(all, func(c *session) bool {
			reachable := s.cat.cfg.Toolkit.Reachable(c.state.Scope)
			return !slices.ContainsFunc(groups, func(in []string) bool { return shows(reachable, in) })
		})
	}
	for _, c := range append(all, s.reg.listeners()...) { // the groups of listeners never close
		c.updated(uri)
	}
}
