package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/sessiontest"
	"github.com/kitbag-go/kitbag/agent/session/sqlite"
	_ "github.com/kitbag-go/kitbag/internal/seed" // draws the same values each time
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func TestStore(t *testing.T) {
	open := func(dir string) (session.Store, error) { return sqlite.Open(filepath.Join(dir, "odd ?name%41#.db")) }
	sessiontest.Run(t, open)
	sessiontest.Inbox(t, open)
	sessiontest.Watcher(t, open)
	sessiontest.Reader(t, open)
}

func TestKill(t *testing.T) {
	sessiontest.Kill(t, func(dir string) (session.Store, error) { return sqlite.Open(filepath.Join(dir, "sessions.db")) })
}

func TestSame(t *testing.T) {
	sessiontest.Same(t, func(dir string) (session.Store, error) { return sqlite.Open(filepath.Join(dir, "sessions.db")) })
}

// TestTwoStores has two stores on one file, like two processes.
func TestTwoStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	one, two := open(t, path), open(t, path)
	whole := session.Record{Seq: 1, Whole: true, Data: json.RawMessage(`{}`)}
	a, b := openLog(t, one, "x"), openLog(t, two, "x")
	if err := a.Append(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	if err := b.Append(t.Context(), whole); !errors.Is(err, session.ErrConflict) || strings.Contains(err.Error(), "deleted") {
		t.Errorf("the second writer of a new session: %v", err)
	}

	// A session that was deleted and created again is independent of the old one.
	if err := two.Delete(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if err := openLog(t, two, "x").Append(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	next := session.Record{Seq: 2, Data: json.RawMessage(`{}`)}
	if err := a.Append(t.Context(), next); !errors.Is(err, session.ErrConflict) {
		t.Errorf("the writer of the deleted session: %v", err)
	}
	if recs, err := openLog(t, one, "x").Load(t.Context()); err != nil || len(recs) != 1 {
		t.Errorf("the session holds %v, %v", recs, err)
	}
}

func openLog(t *testing.T, store session.Store, id string) session.Log {
	t.Helper()
	log, err := store.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	store := open(t, path)
	if err := openLog(t, store, "x").Append(t.Context(), session.Record{Seq: 1, Whole: true, Data: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 2 {
		t.Errorf("the files are %q, %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, row := range []struct{ setup, want string }{
		{"CREATE TABLE mine (x)", "another program"},
		{"PRAGMA application_id=7", "another program"},
		{"PRAGMA application_id=0x6b697462; PRAGMA user_version=3; CREATE TABLE whatever (x)", "newer version"},
	} {
		path := filepath.Join(t.TempDir(), "x.db")
		db, err := sql.Open("sqlite", path)
		if err == nil {
			_, err = db.ExecContext(t.Context(), row.setup)
			err = errors.Join(err, db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		refused(t, path, row.want)
	}
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("dear diary ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "not a database")
}

// refused opens a database that must be refused and stay unchanged.
func refused(t *testing.T, path, want string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(path)
	if err == nil {
		t.Error(store.Close())
	}
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(want, "newer") != errors.Is(err, agent.ErrNewerState) {
		t.Errorf("%v, want %q", err, want)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("%s was changed: %v", want, err)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "sessions")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(filepath.Join(dir, "sessions.db"))
	if err != nil {
		panic(err)
	}
	defer store.Close()
	ctx := context.Background()
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
		if err := s.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// 2 messages
	// 4 messages
}

// TestOldDatabase opens a database of the first version of this package, which deleted all records before the last
// whole one.
func TestOldDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), `
CREATE TABLE session (num INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, updated INTEGER NOT NULL) STRICT;
CREATE TABLE record (num INTEGER NOT NULL REFERENCES session ON DELETE CASCADE, seq INTEGER NOT NULL, whole INTEGER NOT NULL,
	data BLOB NOT NULL, PRIMARY KEY (num, seq)) STRICT, WITHOUT ROWID;
INSERT INTO session (num, id, updated) VALUES (7, 'old', 1700000000000000);
INSERT INTO record (num, seq, whole, data) VALUES
	(7, 5, 1, CAST('{"version":1,"id":"old","messages":null,"usage":{"input_tokens":5,"output_tokens":0},"seq":0}' AS BLOB)),
	(7, 6, 0, CAST('{"set":{"usage":{"input_tokens":6,"output_tokens":0}}}' AS BLOB));
PRAGMA application_id=0x6b697462; PRAGMA user_version=1`)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	store := open(t, path)
	st, in, err := session.Read(t.Context(), store, "old", 0)
	if err != nil || st.Usage.Input != 6 || in.Seq != 6 || in.Status != "" || in.Updated.UnixMicro() != 1700000000000000 {
		t.Errorf("read %+v, %+v, %v", st, in, err)
	}
	if _, _, err := session.Read(t.Context(), store, "old", 4); !errors.Is(err, session.ErrGone) {
		t.Errorf("read what was deleted: %v, want ErrGone", err)
	}
	s, err := session.Open(t.Context(), store, "old")
	if err != nil {
		t.Fatal(err)
	}
	s.State.Usage.Input = 7
	if err := errors.Join(s.Save(t.Context(), s.State), s.Close()); err != nil {
		t.Fatal(err)
	}
	if st, _, err := session.Read(t.Context(), open(t, path), "old", 6); err != nil || st.Usage.Input != 6 {
		t.Errorf("read %+v, %v", st, err)
	}
}

// TestClaim: when the process of a working session dies, another process takes over.
func TestClaim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	dead, other := open(t, path), open(t, path)
	status := func() session.Status {
		page, err := other.List(t.Context(), session.Query{})
		if err != nil || len(page.Infos) != 1 {
			t.Fatalf("listed %+v, %v", page, err)
		}
		return page.Infos[0].Status
	}
	log := openLog(t, dead, "x")
	if err := log.Append(t.Context(), session.Record{Seq: 1, Whole: true, Data: json.RawMessage(`{}`), Status: session.StatusWorking}); err != nil {
		t.Fatal(err)
	}
	unclaimed := openLog(t, other, "x") // does not claim the session
	if err := unclaimed.Close(); err != nil || status() != session.StatusWorking {
		t.Errorf("while it is open: %s, %v", status(), err)
	}
	db, err := sql.Open("sqlite", path)
	if err == nil {
		_, err = db.ExecContext(t.Context(), "UPDATE session SET expires = 1") // as if it had not been renewed
		err = errors.Join(err, db.Close())
	}
	if err != nil || status() != session.StatusAbandoned {
		t.Errorf("after the process died: %s, %v", status(), err)
	}
	next := openLog(t, other, "x")
	if status() != session.StatusWorking {
		t.Errorf("after another store opened it: %s", status())
	}
	if err := log.Close(); err != nil || status() != session.StatusWorking {
		t.Errorf("after the first store closed it: %s, %v", status(), err)
	}
	if err := next.Close(); err != nil || status() != session.StatusAbandoned {
		t.Errorf("after the other store closed it: %s, %v", status(), err)
	}
}
