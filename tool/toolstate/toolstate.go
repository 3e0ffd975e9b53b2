// Package toolstate holds what tools remember between their calls in a session, such as the task list.
//
//	var notes = toolstate.NewKey[[]string]("notes")
//
//	err := notes.Update(ctx, func(n *[]string) error { *n = append(*n, in.Text); return nil })
//
// An agent gives each session a [State] and saves it with the session. A program that runs tools itself uses [With].
package toolstate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// A State holds what tools remember between calls: the task list, the files that were read. It is saved with the
// session. The zero State is empty and ready; it is safe for concurrent use.
type State struct {
	mu    sync.Mutex
	live  map[string]any             // pointers to decoded values
	saved map[string]json.RawMessage // not yet decoded
}

// A Key names a value of type T in a State. T must survive a JSON round
// trip. Make keys with [NewKey], as package variables.
type Key[T any] struct{ name string }

// NewKey returns the key for name, which must be unique in the program.
func NewKey[T any](name string) Key[T] { return Key[T]{name} }

type ctxKey struct{}

// With returns a context that carries s to the tools that are called with it.
func With(ctx context.Context, s *State) context.Context {
	return context.WithValue(ctx, ctxKey{}, s)
}

// From returns the State that ctx carries, or nil.
func From(ctx context.Context) *State {
	s, _ := ctx.Value(ctxKey{}).(*State)
	return s
}

// Update calls fn with the value, which is zero at first, and holds the State's lock meanwhile. So fn must be
// quick, must not use the State, which would deadlock, and must not keep the pointer. Changes are kept even if fn
// returns an error, which Update returns. Update fails if ctx carries no State, if a saved value does not decode
// into T, and if another key of the same name has another type.
func (k Key[T]) Update(ctx context.Context, fn func(*T) error) error {
	s := From(ctx)
	if s == nil {
		return fmt.Errorf("tool state %q: the context carries no toolstate.State; run the tool through an agent or use toolstate.With", k.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := load(s, k)
	if err != nil {
		return err
	}
	return fn(v)
}

// load returns the value of a key, decoding it at its first use, since only the key knows its
// type. A saved value that does not decode is kept. The caller holds the State's lock.
func load[T any](s *State, k Key[T]) (*T, error) {
	if v, ok := s.live[k.name]; ok {
		p, ok := v.(*T)
		if !ok {
			return nil, fmt.Errorf("tool state %q: holds a %T, not a %T; two keys share the name", k.name, v, p)
		}
		return p, nil
	}
	p := new(T)
	if raw, ok := s.saved[k.name]; ok {
		if err := json.Unmarshal(raw, p); err != nil {
			return nil, fmt.Errorf("tool state %q: %w", k.name, err)
		}
		delete(s.saved, k.name)
	}
	if s.live == nil {
		s.live = map[string]any{}
	}
	s.live[k.name] = p
	return p, nil
}

// MarshalJSON writes the state as an object with one member per key, sorted by name. It
// fails if a value does not encode.
func (s *State) MarshalJSON() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.Marshal(s.all())
}

// all returns the values, decoded or not, by their names. The caller holds the lock.
func (s *State) all() map[string]any {
	all := maps.Clone(s.live)
	if all == nil {
		all = map[string]any{}
	}
	for k, v := range s.saved {
		all[k] = v
	}
	return all
}

// UnmarshalJSON replaces the state. Values of keys that the program does not
// know are kept. It fails if data is not a JSON object; the state is then as before.
func (s *State) UnmarshalJSON(data []byte) error {
	var saved map[string]json.RawMessage
	if err := json.Unmarshal(data, &saved); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live, s.saved = nil, saved
	return nil
}

// Keys returns the names of the values that the state holds, sorted.
func (s *State) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.all()))
}
