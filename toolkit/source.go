package toolkit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/tool"
)

const (
	listTimeout = 30 * time.Second // the time that a source has to list its tools
	retryAfter  = 30 * time.Second // the time until a source that failed is listed again, unless Config.Refresh is shorter
)

// A source is a registered tool.Source and its last list. It survives a change of the catalogue, so that
// the list need not be fetched again.
type source struct {
	inner   tool.Source
	name    string
	known   []string                // the result of its method Known; nil without that method
	busy    chan struct{}           // holds one element while the list is fetched
	listing atomic.Pointer[listing] // nil until the list was fetched
	stale   atomic.Bool             // the list must be fetched again, even if it is not due
}

// A listing is the list of a source. It is immutable.
type listing struct {
	tools        []tool.Tool
	instructions string
	err          error     // of the last fetch; if set, tools and instructions are those of an earlier fetch
	at           time.Time // of the last fetch
}

// wrapSource returns the source whose inner source is s, or s if it is a *source already. The caller holds tk.mu.
func (tk *Toolkit) wrapSource(s tool.Source) (*source, error) {
	if s == nil {
		return nil, errors.New("a source is nil; remove it")
	}
	if src, ok := s.(*source); ok {
		return src, nil
	}
	canBeKey := reflect.ValueOf(s).Comparable()
	if canBeKey && tk.sources[s] != nil {
		return tk.sources[s], nil
	}
	src := &source{inner: s, name: fmt.Sprintf("%T", s), busy: make(chan struct{}, 1)}
	if n, ok := s.(interface{ Name() string }); ok {
		src.name = n.Name()
	}
	if k, ok := s.(interface{ Known() []string }); ok {
		src.known = k.Known()
	}
	if canBeKey {
		tk.sources[s] = src
	}
	return src, nil
}

// Tools makes a *source a tool.Source. It replaces its inner source in the Config of the catalogue, so that the list is
// found when the catalogue is rebuilt, even if the inner source is not comparable.
func (s *source) Tools(ctx context.Context) ([]tool.Tool, error) { return s.inner.Tools(ctx) }

// Refresh reports a change that the toolkit cannot see: of a source's list, or of what a
// predicate depends on. All sources, including those that are being listed now, are listed again when a
// view needs them. Listeners are called once.
func (tk *Toolkit) Refresh() {
	tk.mu.Lock()
	for _, g := range tk.current.Load().allGroups() {
		for _, s := range g.sources {
			s.stale.Store(true) // a fetch in progress may return the old list
		}
	}
	tk.mu.Unlock()
	tk.refreshes.Add(1)
	tk.notify(Change{Tools: true})
}

// withLists returns a catalogue with the current lists of the sources. If several callers wait for the same lists,
// only the first builds the catalogue.
func (tk *Toolkit) withLists(sources []*source) (*catalogue, error) {
	if c := tk.current.Load(); c.hasLists(sources) {
		return c, nil
	}
	tk.mu.Lock()
	defer tk.mu.Unlock()
	old := tk.current.Load()
	if old.hasLists(sources) {
		return old, nil
	}
	c, err := build(tk, old.cfg)
	if err != nil {
		return nil, fmt.Errorf("toolkit: %w", err)
	}
	c.prompt = old.prompt // which depends only on the configuration; see loadState
	tk.install(c)
	return c, nil
}

// hasLists reports whether the catalogue was built with the current lists of the sources.
func (c *catalogue) hasLists(sources []*source) bool {
	return !slices.ContainsFunc(sources, func(s *source) bool { return c.listings[s] != s.listing.Load() })
}

// isListed reports whether a source listed a tool with this name.
func (c *catalogue) isListed(name string) bool {
	for _, l := range c.listings {
		if l != nil && slices.ContainsFunc(l.tools, func(t tool.Tool) bool { return t.Info().Name == name }) {
			return true
		}
	}
	return false
}

// due returns when the list must be fetched again; zero for never. refresh is Config.Refresh.
func (l *listing) due(refresh time.Duration) time.Time {
	switch {
	case l.err != nil && (refresh == 0 || refresh > retryAfter):
		return l.at.Add(retryAfter)
	case refresh > 0:
		return l.at.Add(refresh)
	}
	return time.Time{}
}

// fresh reports whether the list need not be fetched.
func (s *source) fresh(refresh time.Duration) bool {
	l := s.listing.Load()
	if l == nil || s.stale.Load() {
		return false
	}
	due := l.due(refresh)
	return due.IsZero() || time.Now().Before(due)
}

// fetch lists the source's tools, unless another caller has listed them while fetch waited.
// Only the context's error is returned: a source that fails keeps its last list.
func (s *source) fetch(ctx context.Context, refresh time.Duration) error {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.fresh(refresh) {
		return nil
	}
	s.stale.Store(false) // before listing, so that a Refresh in the meantime is not lost
	tools, err := s.list(ctx)
	if ctx.Err() != nil { // the source may have failed because of that
		s.stale.Store(true)
		return context.Cause(ctx)
	}
	next := &listing{tools: tools, err: err, at: time.Now()}
	if err == nil {
		next.instructions = s.instructions()
	} else if last := s.listing.Load(); last != nil {
		next.tools, next.instructions = last.tools, last.instructions
	}
	s.listing.Store(next)
	return nil
}

// list calls the source's Tools with a time limit. A panic is returned as an error.
func (s *source) list(ctx context.Context) (tools []tool.Tool, err error) {
	defer func() {
		if r := recover(); r != nil {
			tools, err = nil, fmt.Errorf("listing its tools panicked: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	tools, err = s.inner.Tools(ctx)
	if err != nil {
		_ = err.Error() // may panic, as for a nil pointer
		return nil, err
	}
	for _, t := range tools {
		if t == nil {
			return nil, errors.New("the source listed a nil tool")
		}
		_ = t.Info() // the same
	}
	return tools, nil
}

// instructions returns the instructions of a source that was listed, if it has any.
func (s *source) instructions() (text string) {
	defer func() {
		if recover() != nil { // tools work without instructions
			text = ""
		}
	}()
	if i, ok := s.inner.(interface{ Instructions() string }); ok {
		return strings.TrimSpace(i.Instructions())
	}
	return ""
}

// instructions returns the group's instructions and those of its sources, each once.
func (c *catalogue) instructions(g *group) string {
	parts := []string{strings.TrimSpace(g.Instructions)}
	for _, s := range g.sources {
		if l := c.listings[s]; l != nil && !slices.Contains(parts, l.instructions) {
			parts = append(parts, l.instructions)
		}
	}
	return strings.TrimSpace(strings.Join(parts, "\n\n"))
}

// load concurrently fetches those lists of the sources that are due, and returns a catalogue with the current lists. It
// fetches without a lock of the toolkit, so that a server that hangs delays only the callers that need the server.
func (tk *Toolkit) load(ctx context.Context, c *catalogue, sources []*source) (*catalogue, error) {
	var due []*source
	for _, s := range sources {
		if !s.fresh(c.cfg.Refresh) && !slices.Contains(due, s) {
			due = append(due, s)
		}
	}
	if len(due) == 0 && c.hasLists(sources) {
		return c, nil
	}
	var wg sync.WaitGroup
	errs := make([]error, len(due))
	for i, s := range due {
		wg.Go(func() { errs[i] = s.fetch(ctx, c.cfg.Refresh) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("list the tools: %w", err)
	}
	return tk.withLists(sources)
}

// neededSources returns the sources of the basic group and of the open groups; with Config.LabelsOnly, where all groups
// count as open, of the groups that the ceiling grants.
func (c *catalogue) neededSources(r *scopeState) []*source {
	out := slices.Clone(c.basic.sources)
	if c.cfg.LabelsOnly {
		for i, g := range c.groups {
			if c.grantsGroup(i, r.ceiling) {
				out = append(out, g.sources...)
			}
		}
		return out
	}
	for _, g := range r.order {
		out = append(out, c.groups[g].sources...)
	}
	return out
}

// loadForTransition returns the catalogue for a transition of s, with the tools of the
// groups that may be opened: quotas count these tools, and the answer names them.
func (tk *Toolkit) loadForTransition(ctx context.Context, s *Scope, o op, batches [][]string) (*catalogue, error) {
	c := tk.current.Load()
	if o == disable {
		return c, nil
	}
	ceiling := s.Ceiling()
	var sources []*source
	for _, names := range batches {
		for _, name := range names {
			if i, ok := c.index[name]; ok && c.grantsGroup(i, ceiling) {
				sources = append(sources, c.groups[i].sources...)
			}
		}
	}
	return tk.load(ctx, c, sources)
}

// nextFetch returns the earliest time at which a fetched list is due again; zero for never.
func (c *catalogue) nextFetch() time.Time {
	var first time.Time
	for _, g := range c.allGroups() {
		for _, s := range g.sources {
			l := s.listing.Load()
			if l == nil {
				continue
			}
			if due := l.due(c.cfg.Refresh); !due.IsZero() && (first.IsZero() || due.Before(first)) {
				first = due
			}
		}
	}
	return first
}
