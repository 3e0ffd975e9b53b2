package toolkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
)

// A Scope is the state of a toolkit in one session: the open groups in the order in which they were opened, a
// phase, and a ceiling. It is the only thing about a toolkit that changes from step to step. The zero Scope has
// the toolkit's initial groups open, no phase and no ceiling. It is saved as JSON, is safe for concurrent use, and
// must not be copied.
//
// Names that the toolkit does not know, such as that of a removed group, have no effect and
// are dropped by the next transition.
type Scope struct {
	mu           sync.Mutex
	transitioned bool     // a transition has set active; until then the toolkit's initial groups are open
	active       []string // the open groups, in order of activation; the slice is never modified
	byUser       []string // groups that the user was the last to open or close; the slice is never modified
	phase        string   // empty for none
	ceiling      Ceiling
	version      uint64 // counts the calls of change
	lastView     *View  // nil if the scope has changed since

	busy chan struct{} // holds one element while a transition runs; nil before the first
}

// undefined is what Scope.Phase returns for a scope without a phase.
const undefined = "undefined"

// Active returns the names of the groups that were opened, in that order, and whether any transition has taken
// place: before the first, the toolkit's initial groups are open.
func (s *Scope) Active() ([]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.active), s.transitioned
}

// ByUser records that the user, not the model, caused the transition with this outcome, such as with a button. It only
// changes what [GroupInfo].ByUser and event.Group.By report.
func (s *Scope) ByUser(out Outcome) {
	s.change(func() {
		s.byUser = slices.Concat(slices.DeleteFunc(slices.Clone(s.byUser), out.has), out.Closed, out.Opened)
	})
}

// Phase returns the current phase; "undefined" if there is none. "undefined" is a phase
// like any other: a tool that is limited to phases is visible in it only if its setting names "undefined" or "*".
func (s *Scope) Phase() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == "" {
		return undefined
	}
	return s.phase
}

// SetPhase moves to another phase.
func (s *Scope) SetPhase(phase string) {
	s.change(func() { s.phase = phase })
}

// Ceiling returns the ceiling.
func (s *Scope) Ceiling() Ceiling {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ceiling
}

// SetCeiling replaces the ceiling. Open groups that it does not grant stay open, but have no effect.
func (s *Scope) SetCeiling(c Ceiling) {
	s.change(func() { s.ceiling = c })
}

// Sub returns the scope for a sub-agent: a new scope with the ceiling of s.
func (s *Scope) Sub() *Scope { return &Scope{ceiling: s.Ceiling()} }

// change calls fn, which changes fields, with the lock held, and drops the cached view.
func (s *Scope) change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	s.version++
	s.lastView = nil
}

// scopeJSON is the saved form of a scope.
type scopeJSON struct {
	Active  []string `json:"active,omitzero"` // absent: the toolkit's initial groups; []: no group
	ByUser  []string `json:"by_user,omitempty"`
	Phase   string   `json:"phase,omitempty"`
	Ceiling Ceiling  `json:"ceiling,omitzero"`
}

// MarshalJSON writes the scope: {"active": […], "by_user": […], "phase": "…", "ceiling": […]}, without the members that
// were not set.
func (s *Scope) MarshalJSON() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := scopeJSON{ByUser: s.byUser, Phase: s.phase, Ceiling: s.ceiling}
	if s.transitioned {
		out.Active = append([]string{}, s.active...) // [] if active is nil
	}
	return json.Marshal(out)
}

// UnmarshalJSON replaces the scope. Unknown members are ignored.
func (s *Scope) UnmarshalJSON(data []byte) error {
	var in scopeJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("scope: %w", err)
	}
	s.change(func() {
		s.active, s.transitioned, s.byUser, s.phase, s.ceiling = in.Active, in.Active != nil, in.ByUser, in.Phase, in.Ceiling
	})
	return nil
}

// A state is a copy of a scope's fields at one moment.
type state struct {
	active  []string
	byUser  []string
	phase   string
	ceiling Ceiling
}

// snapshot returns the current state of the scope, with the initial groups of c if there was no transition yet, and
// the scope's version.
func (s *Scope) snapshot(c *catalogue) (state, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := state{active: s.active, byUser: s.byUser, phase: s.phase, ceiling: s.ceiling}
	if !s.transitioned {
		st.active = c.cfg.Initial
	}
	if st.phase == "" {
		st.phase = undefined
	}
	return st, s.version
}

// key returns a string that is equal only for states in which the same tools are visible, in the same order.
func (r *scopeState) key() string {
	b := strconv.AppendBool(make([]byte, 0, 64), r.ceiling.isSet)
	for _, names := range [...][]string{r.ceiling.names, r.active, r.byUser, {r.phase}} {
		b = strconv.AppendInt(b, int64(len(names)), 10)
		for _, name := range names {
			b = strconv.AppendQuote(b, name)
		}
	}
	for _, result := range r.predicates {
		b = strconv.AppendBool(b, result)
	}
	return string(b)
}

// errFromHook is returned when a hook starts a transition of the scope whose transition runs the hook: waiting for that
// transition to end would deadlock.
var errFromHook = errors.New("a hook cannot change the scope whose transition runs it; change another scope, or wait until the transition has ended")

// hookCtx is the key that marks a scope in the context of its hooks, so that begin can return errFromHook, also if the
// hook was run by a transition of another scope. A hook that uses another context deadlocks.
type hookCtx struct{ scope *Scope }

// begin waits for other transitions of the scope. busy is a channel instead of a mutex, so that waiting ends
// with ctx, and separate from s.mu, so that listing and saving do not wait for hooks.
func (s *Scope) begin(ctx context.Context) error {
	if ctx.Value(hookCtx{s}) != nil {
		return errFromHook
	}
	s.mu.Lock()
	if s.busy == nil {
		s.busy = make(chan struct{}, 1)
	}
	busy := s.busy
	s.mu.Unlock()
	select { // first without ctx: without another transition, begin succeeds even if ctx has ended
	case busy <- struct{}{}:
		return nil
	default:
	}
	select {
	case busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another transition: %w", context.Cause(ctx))
	}
}

// end lets the next transition begin.
func (s *Scope) end() { <-s.busy }
