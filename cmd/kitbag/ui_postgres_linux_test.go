package main

import (
	"testing"

	"github.com/kitbag-go/kitbag/internal/pgtest"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
)

// TestUIPostgres shows and copies a session of a real Postgres.
func TestUIPostgres(t *testing.T) {
	workspace(t)
	if pgtest.Missing() {
		t.Skip(pgtest.Why)
	}
	server, err := pgtest.Start("fsync=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	store, err := pgsession.Open(t.Context(), server.URL(), pgsession.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fillStore(t, store)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	c := startUI(t, "--store", server.URL())
	var list struct{ Sessions []struct{ Title string } }
	c.call("GET", "api/sessions", "", &list)
	if len(list.Sessions) != 1 || list.Sessions[0].Title != "Who is there?" {
		t.Errorf("%+v", list)
	}
	if rows := c.rows("customer-7", 4); len(rows) != 4 || rows[2].Text != "Hello." || rows[2].End.IsZero() {
		t.Errorf("%+v", rows)
	}
	var got struct{ ID string }
	c.call("POST", "api/sessions/customer-7/fork", `{"to":"copy","record":1}`, &got)
	if rows := c.rows("copy", 1); len(rows) != 1 || rows[0].Text != "Who is there?" {
		t.Errorf("the copy is %+v", rows)
	}
}
