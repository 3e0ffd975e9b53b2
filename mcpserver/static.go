package mcpserver

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/toolkit"
)

// staticLists has the toolkits for clients without sessions, whose list of tools must not change. The list contains all tools
// if it is short enough, and otherwise control tools to search for the others.
type staticLists struct {
	maxBytes int // Config.MaxListBytes
	current  atomic.Pointer[staticToolkits]

	renewing sync.Mutex // held by renew, so that an older configuration does not replace a newer one
	warned   sync.Once
}

// staticToolkits are derived from one configuration of a toolkit.
type staticToolkits struct {
	allTools    *toolkit.Toolkit // its list contains all tools; nil if it is never served
	maxBytes    int              // the size up to which the list of allTools is served
	fallback    *toolkit.Toolkit // served otherwise; its list contains control tools that search all tools
	opensGroups bool             // the configured control opens groups, which clients without sessions cannot do
}

func newStaticLists(tk *toolkit.Toolkit, maxBytes int) (*staticLists, error) {
	s := &staticLists{maxBytes: maxBytes}
	return s, s.renew(tk)
}

// renew derives the toolkits again after a change of the configuration of tk. It fails, and the old toolkits stay, if a tool
// has the name of a control tool of fallback.
func (s *staticLists) renew(tk *toolkit.Toolkit) error {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	derived, err := s.derive(tk)
	if err == nil {
		s.current.Store(derived)
	}
	return err
}

func (s *staticLists) derive(tk *toolkit.Toolkit) (derived *staticToolkits, err error) {
	cfg := tk.Config()
	if cfg.LabelsOnly {
		return &staticToolkits{fallback: tk}, nil // has no groups to open, so its list does not change
	}
	cfg.Hidden, cfg.Initial = nil, nil // no tool of the new Control is hidden, and no group is open
	derived = &staticToolkits{maxBytes: s.maxBytes}
	if s.maxBytes == 0 && !hasSources(&cfg) {
		derived.maxBytes = defaultListBytes
	}
	if derived.maxBytes > 0 {
		all := cfg
		all.Control, all.LabelsOnly = new(toolkit.Control), true
		if derived.allTools, err = toolkit.New(all); err != nil {
			return nil, err
		}
	}
	// A control with a Caller, such as toolkit.Discover, calls tools without opening their groups.
	derived.opensGroups = cfg.Control != nil && cfg.Control.Tools != nil && cfg.Control.Caller == ""
	cfg.Control = toolkit.Discover()
	derived.fallback, err = toolkit.New(cfg)
	return derived, err
}

// defaultListBytes is the default of Config.MaxListBytes for toolkits without sources.
const defaultListBytes = 16 << 10

// hasSources reports whether a toolkit must contact a source to list its tools.
func hasSources(cfg *toolkit.Config) bool {
	return slices.ContainsFunc(append(slices.Clone(cfg.Groups), cfg.Basic), func(g toolkit.Group) bool { return len(g.Sources) > 0 })
}

// pick returns the toolkit for a client. The choice depends on the configuration and on what the client may see, but not
// on earlier calls.
func (s *staticLists) pick(ctx context.Context, scope *toolkit.Scope) *toolkit.Toolkit {
	current := s.current.Load()
	if current.allTools != nil {
		if v, err := current.allTools.View(ctx, scope); err == nil && v.Cost().Total.Bytes <= current.maxBytes { // View fails only after ctx has ended
			return current.allTools
		}
	}
	if current.opensGroups {
		s.warned.Do(func() {
			slog.Warn("a client's protocol (2026-07-28 or later) has no lists that change: it finds tools with search_tools instead of opening groups")
		})
	}
	return current.fallback
}
