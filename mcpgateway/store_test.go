package mcpgateway_test

import (
	"crypto/rand"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/internal/pgtest"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/mcpserver/postgres"
)

// eachStore runs a test with logins in a directory, for which store is nil, and in an empty store in Postgres.
func eachStore(t *testing.T, do func(t *testing.T, store mcpserver.Shared)) {
	t.Run("directory", func(t *testing.T) { do(t, nil) })
	t.Run("postgres", func(t *testing.T) { do(t, openPostgres(t)) })
}

// database starts when a test first needs it.
var database = sync.OnceValues(func() (*pgtest.Server, error) {
	s, err := pgtest.Start("fsync=off")
	if err == nil {
		stopDatabase = s.Close
	}
	return s, err
})

var stopDatabase = func() error { return nil } // called after all tests

// openPostgres returns an empty store, which has a schema of its own.
func openPostgres(t *testing.T) mcpserver.Shared {
	t.Helper()
	server, err := database()
	if err != nil {
		t.Fatal(err)
	}
	db, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	name := "logins_" + strings.ToLower(rand.Text())
	if _, err := db.Exec(t.Context(), "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), server.URL()+"&search_path="+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
