package provider

import (
	"runtime"
	"sync"
	"weak"

	"github.com/kitbag-go/kitbag/message"
)

// A MessageSet is a set of messages with weak references: a message that is garbage-collected leaves the set. It
// is safe for concurrent use.
type MessageSet struct{ keys sync.Map }

// Add adds a message.
func (s *MessageSet) Add(m *message.Message) {
	key := weak.Make(m)
	if _, loaded := s.keys.LoadOrStore(key, true); !loaded {
		runtime.AddCleanup(m, func(key weak.Pointer[message.Message]) { s.keys.Delete(key) }, key)
	}
}

// Has reports whether a message is in the set.
func (s *MessageSet) Has(m *message.Message) bool {
	_, has := s.keys.Load(weak.Make(m))
	return has
}
