package mcpserver

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/toolkit"
)

// staticLists has the toolkits for clients without sessions, whose list of tools must not change: all tools if their list
// is short, otherwise control tools to search it.
type staticLists struct {
	budget  int // Config.MaxListBytes
	current atomic.Pointer[lists]

	renewing sync.Mutex // held by renew, so that the latest catalogue is stored last
	notice   sync.Once
}

// lists are toolkits derived from one configuration.
type lists struct {
	short       *toolkit.Toolkit // its control tools search the whole list
	opensGroups bool             // the configured control opens groups, which clients without sessions cannot do
	whole       *toolkit.Toolkit // nil if it is never served
	limit       int              // the largest whole list that is served, in bytes
}

func newStaticLists(tk *toolkit.Toolkit, budget int) (*staticLists, error) {
	s := &staticLists{budget: budget}
	l, err := s.derive(tk)
	if err != nil {
		return nil, err
	}
	s.current.Store(l)
	return s, nil
}

// renew derives the lists again after a change of the toolkit's configuration. If the configuration is not
// valid for them, because a tool has the name of a control tool, the old lists stay.
func (s *staticLists) renew(tk *toolkit.Toolkit) {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	if l, err := s.derive(tk); err == nil {
		s.current.Store(l)
	}
}

// derive derives the lists from a toolkit. In the short list no groups are open initially.
func (s *staticLists) derive(tk *toolkit.Toolkit) (l *lists, err error) {
	cfg := tk.Config()
	if cfg.LabelsOnly {
		return &lists{short: tk}, nil // the list is the same for all clients
	}
	cfg.Hidden, cfg.Initial = nil, nil
	l = &lists{}
	if l.limit = s.budget; l.limit == 0 && !hasSources(&cfg) {
		l.limit = defaultListBytes
	}
	if l.limit > 0 {
		// All groups are open, and labels show the groups of each tool.
		all := cfg
		all.Control, all.LabelsOnly = new(toolkit.Control), true
		if l.whole, err = toolkit.New(all); err != nil {
			return nil, err
		}
	}
	l.opensGroups = cfg.Control != nil && cfg.Control.Tools != nil && cfg.Control.Caller == ""
	cfg.Control = toolkit.Discover()
	l.short, err = toolkit.New(cfg)
	return l, err
}

// defaultListBytes is the default for toolkits without sources; see Config.MaxListBytes.
const defaultListBytes = 16 << 10

// hasSources reports whether a toolkit must contact a source to list its tools.
func hasSources(cfg *toolkit.Config) bool {
	return slices.ContainsFunc(append(slices.Clone(cfg.Groups), cfg.Basic), func(g toolkit.Group) bool { return len(g.Sources) > 0 })
}

// pick returns the toolkit for a client. The choice depends on the configuration and on what the client may see, but not
// on earlier calls.
func (s *staticLists) pick(ctx context.Context, scope *toolkit.Scope) *toolkit.Toolkit {
	l := s.current.Load()
	if l.whole != nil {
		if v, err := l.whole.View(ctx, scope); err == nil && v.Cost().Total.Bytes <= l.limit {
			return l.whole
		}
	}
	if l.opensGroups {
		s.notice.Do(func() {
			slog.Warn("a client's protocol (2026-07-28 or later) has no lists that change: it finds tools with search_tools instead of opening groups")
		})
	}
	return l.short
}
