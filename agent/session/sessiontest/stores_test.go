package sessiontest_test

import (
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/sessiontest"
	_ "github.com/kitbag-go/kitbag/internal/seed" // draws the same values each time
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memories returns an Opener with a store in memory for each directory.
func memories() sessiontest.Opener {
	var mu sync.Mutex
	stores := map[string]session.Store{}
	return func(dir string) (session.Store, error) {
		mu.Lock()
		defer mu.Unlock()
		if stores[dir] == nil {
			stores[dir] = session.Memory()
		}
		return stores[dir], nil
	}
}

// sealed returns an Opener of sealed stores.
func sealed(open sessiontest.Opener) sessiontest.Opener {
	return func(dir string) (session.Store, error) {
		store, err := open(dir)
		if err != nil {
			return nil, err
		}
		return session.Sealed(store, []byte("a key of thirty-two random bytes"))
	}
}

func TestStores(t *testing.T) {
	for name, open := range map[string]sessiontest.Opener{"memory": memories(), "dir": session.Dir,
		"sealed memory": sealed(memories()), "sealed dir": sealed(session.Dir)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sessiontest.Run(t, open)
			sessiontest.Inbox(t, open)
			sessiontest.Watcher(t, open)
			sessiontest.Reader(t, open)
		})
	}
}

func TestKillDir(t *testing.T) { sessiontest.Kill(t, session.Dir) }

func TestKillSealed(t *testing.T) { sessiontest.Kill(t, sealed(session.Dir)) }

func TestSameDir(t *testing.T) { sessiontest.Same(t, session.Dir) }

func TestSameSealed(t *testing.T) { sessiontest.Same(t, sealed(session.Dir)) }
