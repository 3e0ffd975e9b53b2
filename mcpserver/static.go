package mcpserver

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/toolkit"
)

// A static has the toolkits for clients without sessions, whose list must not change: the whole list
// if that is short, and otherwise control tools to search it.
type static struct {
	budget int // Config.MaxListBytes
	now    atomic.Pointer[lists]

	renewing sync.Mutex // so that the latest catalogue is stored last
}

// lists are toolkits of one configuration.
type lists struct {
	short *toolkit.Toolkit // by searching
	whole *toolkit.Toolkit // nil if it is never served
	limit int              // of it, in bytes
}

func newStatic(tk *toolkit.Toolkit, budget int) (*static, error) {
	s := &static{budget: budget}
	made, err := s.derive(tk)
	if err != nil {
		return nil, err
	}
	s.now.Store(made)
	return s, nil
}

// renew follows a change of the toolkit's configuration. If that is not valid for these lists,
// because a tool has the name of a control tool, the old lists stay.
func (s *static) renew(tk *toolkit.Toolkit) {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	if made, err := s.derive(tk); err == nil {
		s.now.Store(made)
	}
}

// derive makes the lists. Groups that are open from the start are not in the short one.
func (s *static) derive(tk *toolkit.Toolkit) (made *lists, err error) {
	cfg := tk.Config()
	if cfg.LabelsOnly {
		return &lists{short: tk}, nil // the list is the same for all clients
	}
	cfg.Hidden, cfg.Initial = nil, nil
	made = &lists{}
	if made.limit = s.budget; made.limit == 0 && !hasSources(&cfg) {
		made.limit = defaultListBytes
	}
	if made.limit > 0 {
		// Every group counts as open, and labels say which tool is in which.
		all := cfg
		all.Control, all.LabelsOnly = new(toolkit.Control), true
		if made.whole, err = toolkit.New(all); err != nil {
			return nil, err
		}
	}
	cfg.Control = toolkit.Discover()
	made.short, err = toolkit.New(cfg)
	return made, err
}

// defaultListBytes is the largest list that is served whole by default.
const defaultListBytes = 16 << 10

// hasSources reports whether a toolkit has to contact anything to list its tools.
func hasSources(cfg *toolkit.Config) bool {
	return slices.ContainsFunc(append(slices.Clone(cfg.Groups), cfg.Basic), func(g toolkit.Group) bool { return len(g.Sources) > 0 })
}

// pick returns the list for a client. It depends on the configuration and on what the client may
// see, but not on calls.
func (s *static) pick(ctx context.Context, scope *toolkit.Scope) *toolkit.Toolkit {
	l := s.now.Load()
	if l.whole == nil {
		return l.short
	}
	if v, err := l.whole.View(ctx, scope); err != nil || v.Cost().Total.Bytes > l.limit {
		return l.short
	}
	return l.whole
}
