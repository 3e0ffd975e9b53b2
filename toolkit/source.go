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
	listTimeout = 30 * time.Second // for a source to list its tools
	retryAfter  = 30 * time.Second // before a source that failed is listed again
)

// A source is a registered tool.Source and its last list. It survives a change of the catalogue, so that
// the list need not be fetched again.
type source struct {
	src     tool.Source
	name    string
	known   []string      // the names of its tools in an earlier run; nil if they are not known
	busy    chan struct{} // holds one element while the list is fetched
	listing atomic.Pointer[listing]
	stale   atomic.Bool // the list must be fetched again, even if it is not due
}

// A listing is the list of a source, and when it was fetched. It is immutable.
type listing struct {
	tools        []tool.Tool
	instructions string
	err          error // of the last fetch; tools and instructions are then of an earlier fetch
	at           time.Time
}

// source returns the record of s. The caller holds tk.mu.
func (tk *Toolkit) source(s tool.Source) (*source, error) {
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
	src := &source{src: s, name: fmt.Sprintf("%T", s), busy: make(chan struct{}, 1)}
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

// Tools makes a source a tool.Source. In a catalogue's configuration the source replaces src, so that the next catalogue
// built from it finds the list even if src is not comparable.
func (s *source) Tools(ctx context.Context) ([]tool.Tool, error) { return s.src.Tools(ctx) }

// Refresh reports a change that the toolkit cannot see: of a source's list, or of what a
// predicate depends on. Sources are listed again when a view needs them, including those
// that are being listed, and listeners are called once.
func (tk *Toolkit) Refresh() {
	tk.mu.Lock()
	for _, g := range tk.current.Load().allGroups() {
		for _, s := range g.sources {
			s.stale.Store(true) // a fetch in progress may return the old list
		}
	}
	tk.mu.Unlock()
	tk.epoch.Add(1)
	tk.notify(Change{Tools: true})
}

// upToDate returns the catalogue with the current lists of the sources. If several callers wait for the same lists,
// only the first builds the catalogue.
func (tk *Toolkit) upToDate(sources []*source) (*catalogue, error) {
	if c := tk.current.Load(); c.has(sources) {
		return c, nil
	}
	tk.mu.Lock()
	defer tk.mu.Unlock()
	old := tk.current.Load()
	if old.has(sources) {
		return old, nil
	}
	c, err := build(tk, old.cfg)
	if err != nil {
		return nil, fmt.Errorf("toolkit: %w", err)
	}
	c.prompt = old.prompt
	tk.install(c)
	return c, nil
}

// has reports whether the catalogue was built from the sources' current lists.
func (c *catalogue) has(sources []*source) bool {
	return !slices.ContainsFunc(sources, func(s *source) bool { return c.listings[s] != s.listing.Load() })
}

// lists reports whether a source listed a tool of that name.
func (c *catalogue) lists(name string) bool {
	for _, l := range c.listings {
		if l != nil && slices.ContainsFunc(l.tools, func(t tool.Tool) bool { return t.Info().Name == name }) {
			return true
		}
	}
	return false
}

// due returns when the list must be fetched again; zero for never.
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

// fetch lists the source's tools, unless another caller has done so in the meantime.
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
	s.stale.Store(false)
	tools, err := s.list(ctx)
	if ctx.Err() != nil {
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

// list lists the source's tools, with a time limit. A panic is returned as an error.
func (s *source) list(ctx context.Context) (tools []tool.Tool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("listing its tools panicked: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	tools, err = s.src.Tools(ctx)
	if err == nil && slices.Contains(tools, nil) {
		return nil, errors.New("the source listed a nil tool")
	}
	return tools, err
}

// instructions returns the instructions of a source that was listed, if it has any.
func (s *source) instructions() (text string) {
	defer func() {
		if recover() != nil { // tools work without instructions
			text = ""
		}
	}()
	if i, ok := s.src.(interface{ Instructions() string }); ok {
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

// load fetches the lists of the sources that are due, concurrently, and returns the catalogue with them. It holds
// no lock of the toolkit meanwhile: a server that hangs delays only the callers that need it.
func (tk *Toolkit) load(ctx context.Context, c *catalogue, sources []*source) (*catalogue, error) {
	var due []*source
	for _, s := range sources {
		if !s.fresh(c.cfg.Refresh) && !slices.Contains(due, s) {
			due = append(due, s)
		}
	}
	if len(due) == 0 && c.has(sources) {
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
	return tk.upToDate(sources)
}

// needed returns the sources whose tools the state may show: those of the basic group and of groups that are open.
func (c *catalogue) needed(r *scopeState) []*source {
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

// loadFor returns the catalogue for a transition of s, with the tools of the
// groups that will be opened: quotas count them, and the answer names them.
func (tk *Toolkit) loadFor(ctx context.Context, s *Scope, o op, batches [][]string) (*catalogue, error) {
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

// nextFetch returns the time at which the next list is due; zero for never.
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
