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

// A State holds what tools remember between calls: the task list, the files that were read. The zero State is empty and
// ready to use. A State is safe for concurrent use.
type State struct {
	mu      sync.Mutex
	decoded map[string]any             // by key name: pointers to values that were used
	encoded map[string]json.RawMessage // by key name: saved values that were not used yet
}

// A Key names a value of type T in a State. T must survive a JSON round
// trip. Make keys with [NewKey], as package variables.
type Key[T any] struct{ name string }

// NewKey returns the key for name, which must be unique in the program.
func NewKey[T any](name string) Key[T] { return Key[T]{name} }

type ctxKey struct{}

// With returns a context that carries s. Tools that are called with this context use s.
func With(ctx context.Context, s *State) context.Context {
	return context.WithValue(ctx, ctxKey{}, s)
}

// From returns the State that ctx carries, or nil.
func From(ctx context.Context) *State {
	s, _ := ctx.Value(ctxKey{}).(*State)
	return s
}

// Update calls fn with a pointer to the key's value, which is zero at first, while it holds the State's lock. So fn must
// be quick, must not use the State, which would deadlock, and must not keep the pointer. Update returns fn's error;
// the changes that fn made are kept. Update fails if ctx carries no State, if a saved value does not decode into T,
// and if another key of the same name has another type.
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

// load returns the value of a key. A saved value is decoded when it is first used, since only the key knows the type; a
// value that does not decode stays encoded. The caller holds the State's lock.
func load[T any](s *State, k Key[T]) (*T, error) {
	if v, ok := s.decoded[k.name]; ok {
		p, ok := v.(*T)
		if !ok {
			return nil, fmt.Errorf("tool state %q: holds a %T, not a %T; two keys share the name", k.name, v, p)
		}
		return p, nil
	}
	p := new(T)
	if raw, ok := s.encoded[k.name]; ok {
		if err := json.Unmarshal(raw, p); err != nil {
			return nil, fmt.Errorf("tool state %q: %w", k.name, err)
		}
		delete(s.encoded, k.name)
	}
	if s.decoded == nil {
		s.decoded = map[string]any{}
	}
	s.decoded[k.name] = p
	return p, nil
}

// MarshalJSON writes the state as an object with one member per key, sorted by name. It
// fails if a value does not encode.
func (s *State) MarshalJSON() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.Marshal(s.all())
}

// all returns all values by key name. The caller holds the lock.
func (s *State) all() map[string]any {
	all := map[string]any{}
	maps.Copy(all, s.decoded)
	for name, raw := range s.encoded {
		all[name] = raw
	}
	return all
}

// UnmarshalJSON replaces the state, and keeps values whose keys the program does not
// know. If data is not a JSON object it fails and changes nothing.
func (s *State) UnmarshalJSON(data []byte) error {
	var encoded map[string]json.RawMessage
	if err := json.Unmarshal(data, &encoded); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decoded, s.encoded = nil, encoded
	return nil
}

// Keys returns the names of the values that the state holds, sorted.
func (s *State) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.all()))
}
