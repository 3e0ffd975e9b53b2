package pggateway_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/internal/pgtest"
	"github.com/kitbag-go/kitbag/mcpserver/sharedtest"
	"github.com/kitbag-go/kitbag/postgres/pggateway"
)

var server *pgtest.Server

func TestMain(m *testing.M) {
	flag.Parse()
	if pgtest.Missing() {
		fmt.Println(pgtest.Why)
		return
	}
	var err error
	if server, err = pgtest.Start("fsync=off"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func open(t *testing.T) *pggateway.Shared {
	t.Helper()
	s, err := pggateway.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestShared(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	opened := make(chan *pggateway.Shared, 1)
	go func() { // both make the table
		s, err := pggateway.Open(context.Background(), server.URL())
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	one := open(t)
	other := <-opened
	defer other.Close()
	sharedtest.Run(t, one, other)
}

// TestAway checks that operations fail while the database is stopped, and work when it is back.
func TestAway(t *testing.T) {
	s := open(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "away"); err == nil || !strings.Contains(err.Error(), `get "away"`) {
		t.Error(err)
	}
	if ok, err := s.Swap(t.Context(), "away", nil, []byte("x"), time.Hour); ok || err == nil {
		t.Error(ok, err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.Swap(t.Context(), "away", nil, []byte("x"), time.Hour); !ok || err != nil {
		t.Error(ok, err)
	}
}
