package mcpserver

import (
	"sync/atomic"

	"github.com/kitbag-go/kitbag/toolkit"
)

// A static is the toolkit for clients to whom the list must not change: what is
// in the groups of the one that is served is found by searching.
type static struct {
	now atomic.Pointer[toolkit.Toolkit]
}

func newStatic(tk *toolkit.Toolkit) (*static, error) {
	made, err := derive(tk)
	if err != nil {
		return nil, err
	}
	s := &static{}
	s.now.Store(made)
	return s, nil
}

// renew follows a change of the catalogue. One that cannot be followed, because a
// tool now has the name of a control tool, leaves the old one.
func (s *static) renew(tk *toolkit.Toolkit) {
	if made, err := derive(tk); err == nil {
		s.now.Store(made)
	}
}

// derive makes the static toolkit. Groups that are open from the start stay out of
// the list too: it shall be short.
func derive(tk *toolkit.Toolkit) (*toolkit.Toolkit, error) {
	cfg := tk.Config()
	if cfg.Policy.NoActivation {
		return tk, nil // labels: the list is the same for everybody as it is
	}
	cfg.Control, cfg.Hidden, cfg.Initial = toolkit.Discover(), nil, nil
	return toolkit.New(cfg)
}
