package pgsession_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/sessiontest"
	"github.com/kitbag-go/kitbag/internal/pgtest"
	_ "github.com/kitbag-go/kitbag/internal/seed" // draws the same values each time
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
	"github.com/kitbag-go/kitbag/toolkit"
)

// The server of all tests that do not stop it. It runs without fsync, because no test crashes the
// machine.
var server = sync.OnceValues(func() (*pgtest.Server, error) { return pgtest.Start("fsync=off") })

type tests struct{ *testing.M }

// Run stops the server, if there is one, before goroutines are looked for.
func (m tests) Run() int {
	code := m.M.Run()
	if started.Load() {
		s, err := server()
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

var started atomic.Bool

func TestMain(m *testing.M) {
	child()
	flag.Parse()
	if pgtest.Missing() {
		fmt.Println(pgtest.Why)
		return
	}
	goleak.VerifyTestMain(tests{m})
}

// url returns the connection string of the server.
func url() (string, error) {
	started.Store(true)
	s, err := server()
	if err != nil {
		return "", err
	}
	return s.URL(), nil
}

var schemas atomic.Int64

func schema() string { return fmt.Sprintf("s%d", schemas.Add(1)) }

// A place is where a store is. A directory has one in a file, for all processes.
type place struct{ url, schema string }

// in returns the place of a directory.
func in(dir string) (p place, err error) {
	file := filepath.Join(dir, "place")
	data, err := os.ReadFile(file)
	if err == nil {
		_, err = fmt.Sscan(string(data), &p.url, &p.schema)
		return p, err
	}
	if p.url, err = url(); err != nil {
		return p, err
	}
	p.schema = schema()
	return p, os.WriteFile(file, fmt.Appendln(nil, p.url, p.schema), 0o600)
}

// opener opens the store in a directory.
func opener(opts pgsession.Options) sessiontest.Opener {
	return func(dir string) (session.Store, error) {
		p, err := in(dir)
		if err != nil {
			return nil, err
		}
		opts := opts
		opts.Schema = p.schema
		return pgsession.Open(context.Background(), p.url, opts)
	}
}

func TestStore(t *testing.T) {
	open := opener(pgsession.Options{})
	sessiontest.Run(t, open)
	sessiontest.Inbox(t, open)
	sessiontest.Watcher(t, open)
	sessiontest.Reader(t, open)
}

func TestSame(t *testing.T) { sessiontest.Same(t, opener(pgsession.Options{})) }

func TestKill(t *testing.T) {
	sessiontest.Kill(t, opener(pgsession.Options{Claim: 300 * time.Millisecond}))
}

func Example() {
	where, err := url() // such as postgres://agents@db.example.com/agents
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	store, err := pgsession.Open(ctx, where, pgsession.Options{})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	for _, words := range []string{"Hello", "Where were we?"} {
		s, err := session.Open(ctx, store, "customer-7")
		if err != nil {
			panic(err)
		}
		a, err := agent.New(agent.Config{Model: scripted.New(scripted.Say("Hello again.")), Toolkit: toolkit.Of(), Save: s.Save})
		if err != nil {
			panic(err)
		}
		if _, err := a.Reply(ctx, s.State, agent.Say(words)); err != nil {
			panic(err)
		}
		fmt.Println(len(s.State.Messages), "messages")
		if err := s.Close(); err != nil { // another process may open it now
			panic(err)
		}
	}
	// Output:
	// 2 messages
	// 4 messages
}
