package pgsession_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
)

// A database is a connection to the tables of a store.
type database struct {
	testing.TB
	*pgx.Conn
}

func connect(t testing.TB, p place) database {
	t.Helper()
	config, err := pgx.ParseConfig(p.url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["search_path"] = p.schema
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return database{t, conn}
}

func (db database) do(sql string, args ...any) {
	db.Helper()
	if _, err := db.Exec(db.Context(), sql, args...); err != nil {
		db.Fatalf("%s: %v", sql, err)
	}
}

func (db database) number(sql string, args ...any) (n int64) {
	db.Helper()
	if err := db.QueryRow(db.Context(), sql, args...).Scan(&n); err != nil {
		db.Fatalf("%s: %v", sql, err)
	}
	return n
}

func TestRefused(t *testing.T) {
	for _, row := range []struct{ setup, want string }{
		{"CREATE TABLE mine (x integer)", "tables of another program; choose another name in Options.Schema"},
		{"CREATE TABLE format (x integer)", "tables of another program"},
		{"CREATE TABLE format (name text, version integer, oldest integer)", "tables of another program"},
		{"CREATE SEQUENCE format", "tables of another program"},
		{"CREATE TABLE format AS SELECT 'diary' AS name, 1 AS version, 1 AS oldest", "tables of another program"},
		{"CREATE TABLE format AS SELECT 'kitbag sessions' AS name, 9 AS version, 8 AS oldest", "programs of version 8 and later can use, and this one is of version 2; update the program"},
	} {
		p := newPlace(t)
		db := connect(t, p)
		db.do("CREATE SCHEMA " + p.schema)
		db.do(row.setup)
		_, err := pgsession.Open(t.Context(), p.url, pgsession.Options{Schema: p.schema})
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(row.want, "update") != errors.Is(err, agent.ErrNewerState) {
			t.Errorf("%s: %v, want %q", row.setup, err, row.want)
		}
		if n := db.number("SELECT count(*) FROM pg_class WHERE relnamespace = $1::regnamespace", p.schema); n != 1 {
			t.Errorf("%s: there are %d relations", row.setup, n)
		}
	}
	u, err := url()
	must(t, err)
	for _, row := range []struct {
		url  string
		opts pgsession.Options
		want string
	}{
		{u, pgsession.Options{Schema: "Robert'; DROP TABLE"}, "Options.Schema"},
		{u, pgsession.Options{Claim: time.Millisecond}, "Options.Claim"},
		{u, pgsession.Options{Schema: "missing", ReadOnly: true}, "open it once without Options.ReadOnly"},
		{strings.Replace(u, "/postgres?", "/missing?", 1), pgsession.Options{}, `database "missing" does not exist`},
		{"postgres://test@/postgres?host=/nowhere", pgsession.Options{}, "no such file"},
		{"not a URL", pgsession.Options{}, "cannot parse"},
	} {
		if _, err := pgsession.Open(t.Context(), row.url, row.opts); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s, %+v: %v, want %q", row.url, row.opts, err, row.want)
		}
	}
}

// TestRollingUpdate has a program of this version work with the tables of a newer one that allows it.
func TestRollingUpdate(t *testing.T) {
	p := newPlace(t)
	old := open(t, p, pgsession.Options{})
	log := openLog(t, old, "x")
	appendTo(t, log, record(1))
	db := connect(t, p)
	db.do("ALTER TABLE session ADD COLUMN extra text DEFAULT 'x'; ALTER TABLE record ADD COLUMN extra text; ALTER TABLE event ADD COLUMN extra text")
	db.do("UPDATE format SET version = 9, oldest = 1")
	appendTo(t, log, record(2))
	must(t, log.Close())
	log = openLog(t, open(t, p, pgsession.Options{}), "x")
	if recs, err := log.Load(t.Context()); err != nil || len(recs) != 2 {
		t.Errorf("the session holds %v, %v", recs, err)
	}
	if n := db.number("SELECT version FROM format"); n != 9 {
		t.Errorf("the version was set to %d", n)
	}
}

// TestUpgrade upgrades the tables of the first version while another store has a session open.
func TestUpgrade(t *testing.T) {
	p := newPlace(t)
	log := openLog(t, open(t, p, pgsession.Options{}), "x")
	appendTo(t, log, record(1))
	db := connect(t, p)
	db.do("ALTER TABLE format DROP COLUMN secret; UPDATE format SET version = 1")
	if _, err := pgsession.Open(t.Context(), p.url, pgsession.Options{Schema: p.schema, ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "without Options.ReadOnly") {
		t.Errorf("a reader of the old tables: %v", err)
	}
	open(t, p, pgsession.Options{})
	appendTo(t, log, record(2))
	if n := db.number("SELECT count(*) FROM format WHERE version = 2 AND length(secret) >= 26"); n != 1 {
		t.Error("the tables were not upgraded")
	}
}

// TestReadOnly reads with a role that may do nothing else.
func TestReadOnly(t *testing.T) {
	p := newPlace(t)
	writer := open(t, p, pgsession.Options{})
	log := openLog(t, writer, "x")
	appendTo(t, log, record(1))
	role := "reader_" + p.schema
	connect(t, p).do(fmt.Sprintf("CREATE ROLE %[1]s LOGIN; GRANT USAGE ON SCHEMA %[2]s TO %[1]s; GRANT SELECT ON ALL TABLES IN SCHEMA %[2]s TO %[1]s", role, p.schema))
	reader := open(t, place{strings.Replace(p.url, "test@", role+"@", 1), p.schema}, pgsession.Options{ReadOnly: true})
	ctx := t.Context()
	if in, recs, err := reader.Read(ctx, "x", 0); err != nil || len(recs) != 1 || in.Status != session.StatusWorking {
		t.Errorf("read %+v, %v, %v", in, recs, err)
	}
	if page, err := reader.List(ctx, session.Query{}); err != nil || len(page.Infos) != 1 {
		t.Errorf("listed %+v, %v", page, err)
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		if err := log.Append(ctx, record(2)); err != nil {
			t.Error(err)
		}
	}()
	for ev, err := range reader.Watch(ctx, "x", 1) {
		if err != nil || ev.Seq != 2 {
			t.Errorf("watched %+v, %v", ev, err)
		}
		break
	}
	for name, err := range map[string]error{
		"open":   second(reader.Open(ctx, "x")),
		"send":   second(reader.Send(ctx, "x", session.Entry{ID: "1", Data: []byte("1")})),
		"delete": reader.Delete(ctx, "x"),
		"prune":  second(reader.Prune(ctx, pgsession.Retention{})),
	} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "Options.ReadOnly") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestClosed uses a store that was closed.
func TestClosed(t *testing.T) {
	p := newPlace(t)
	store := open(t, p, pgsession.Options{})
	log := openLog(t, store, "x")
	appendTo(t, log, record(1))
	ended := make(chan error)
	go func() {
		for _, err := range store.Watch(t.Context(), "x", 1) {
			ended <- err
		}
	}()
	time.Sleep(10 * time.Millisecond)
	must(t, store.Close())
	for _, err := range []error{<-ended, log.Append(t.Context(), record(2)), second(log.Load(t.Context())), second(store.Open(t.Context(), "x")),
		second(store.List(t.Context(), session.Query{})), store.Delete(t.Context(), "x")} {
		if err == nil || !strings.Contains(err.Error(), "the store is closed") {
			t.Errorf("the store was closed: %v", err)
		}
	}
	must(t, log.Close())
	appendTo(t, openLog(t, open(t, p, pgsession.Options{}), "x"), record(2)) // its claims went with it
}

// TestLarge stores payloads beside the log, and removes them with their session.
func TestLarge(t *testing.T) {
	p := newPlace(t)
	store, db := open(t, p, pgsession.Options{}), connect(t, p)
	large := fmt.Appendf(nil, "%q", strings.Repeat("0123456789abcdef", 5<<16)) // 5 MiB
	accepted, err := store.Send(t.Context(), "x", session.Entry{ID: "1", Data: large})
	if err != nil || !accepted {
		t.Fatalf("send: %v, %v", accepted, err)
	}
	log := openLog(t, store, "x")
	one, two := record(1), record(2)
	one.Data, one.Events[0].Data = large, large
	two.Events = append(two.Events, session.Event{Seq: 3, Data: large}, session.Event{Seq: 4, Data: []byte("4")})
	appendTo(t, log, one, two)
	const largest = `SELECT max(greatest((SELECT max(length(data)) FROM record), (SELECT max(length(data)) FROM event), (SELECT max(length(data)) FROM input), (SELECT max(length(data)) FROM payload)))`
	if n := db.number(largest); n != 1<<20 {
		t.Errorf("a row has %d bytes", n)
	}
	if n := db.number("SELECT count(DISTINCT ref) FROM payload"); n != 4 {
		t.Errorf("%d payloads are beside the log", n)
	}
	recs, err := log.Load(t.Context())
	if err != nil || len(recs) != 2 || string(recs[0].Data) != string(large) {
		t.Errorf("loaded %d records, %v", len(recs), err)
	}
	if in, err := store.Inputs(t.Context(), "x"); err != nil || len(in) != 1 || string(in[0].Data) != string(large) {
		t.Errorf("%d inputs, %v", len(in), err)
	}
	var sizes []int
	for ev, err := range store.Watch(t.Context(), "x", 0) {
		must(t, err)
		if sizes = append(sizes, len(ev.Data)); ev.Seq == 4 {
			break
		}
	}
	if got, want := fmt.Sprint(sizes), fmt.Sprint([]int{len(large), 1, len(large), 1}); got != want {
		t.Errorf("the events have %s bytes, want %s", got, want)
	}
	late := openLog(t, store, "y") // what is refused leaves nothing behind
	db.do("UPDATE session SET token = 'other' WHERE id = 'y'")
	one.Events = nil
	if err := late.Append(t.Context(), one); !errors.Is(err, session.ErrConflict) {
		t.Errorf("a claim that was lost: %v", err)
	}
	must(t, log.Close())
	must(t, store.Delete(t.Context(), "x"))
	if n := db.number("SELECT (SELECT count(*) FROM payload) + (SELECT count(*) FROM record) + (SELECT count(*) FROM event) + (SELECT count(*) FROM input)"); n != 0 {
		t.Errorf("%d rows were left", n)
	}
}

// TestPrune removes sessions and history by their age.
func TestPrune(t *testing.T) {
	p := newPlace(t)
	store, other, db := open(t, p, pgsession.Options{}), open(t, p, pgsession.Options{}), connect(t, p)
	ctx := t.Context()
	for _, id := range []string{"old", "open", "sent", "new"} {
		log := openLog(t, store, id)
		for seq := int64(1); seq <= 1200; seq++ {
			if id != "new" && seq > 3 {
				break
			}
			rec := record(seq)
			rec.Whole = seq%500 == 1
			appendTo(t, log, rec)
		}
		if id != "open" {
			must(t, log.Close())
		}
	}
	openLog(t, store, "unborn")
	must(t, second(store.Send(ctx, "sent", session.Entry{ID: "1", Data: []byte("1")})))
	db.do("UPDATE session SET updated = updated - interval '10 days' WHERE id <> 'new'")
	db.do("UPDATE record SET at = at - interval '10 days' WHERE num = (SELECT num FROM session WHERE id = 'new') AND seq < 700")
	db.do("INSERT INTO session (id, holder, token) VALUES ('crashed', 'dead', 'dead')")
	for range 2 { // the second finds nothing more to do
		done, err := other.Prune(ctx, pgsession.Retention{Sessions: 24 * time.Hour, History: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("removed %+v", done)
	}
	page, err := store.List(ctx, session.Query{})
	must(t, err)
	var ids []string
	for _, in := range page.Infos {
		ids = append(ids, in.ID)
	}
	if got := strings.Join(ids, " "); len(ids) != 3 || strings.Contains(got, "old") {
		t.Errorf("left are %s", got)
	}
	if n := db.number("SELECT count(*) FROM session WHERE id IS NULL OR id = 'crashed'"); n != 0 {
		t.Errorf("%d rows of sessions were left", n)
	}
	if n := db.number("SELECT count(*) FROM record WHERE num NOT IN (SELECT num FROM session)"); n != 0 {
		t.Errorf("%d records were left", n)
	}
	// The last whole record that is old enough is 501; 1001 is younger.
	for seq, want := range map[int64]error{1: session.ErrGone, 500: session.ErrGone, 501: nil, 1000: nil, 1200: nil} {
		if _, recs, err := store.Read(ctx, "new", seq); !errors.Is(err, want) || err == nil && recs[len(recs)-1].Seq != seq {
			t.Errorf("record %d: %d records, %v", seq, len(recs), err)
		}
	}
	for after, want := range map[int64]error{0: session.ErrGone, 499: session.ErrGone, 500: nil} {
		for ev, err := range store.Watch(ctx, "new", after) {
			if !errors.Is(err, want) || err == nil && ev.Seq != 501 {
				t.Errorf("after event %d: %+v, %v", after, ev, err)
			}
			break
		}
	}
	if n := db.number("SELECT count(*) FROM event WHERE num = (SELECT num FROM session WHERE id = 'new')"); n != 700 {
		t.Errorf("%d events are left", n)
	}
	appendTo(t, openLog(t, store, "new"), record(1201))
	if _, err := store.Prune(ctx, pgsession.Retention{History: -1}); err == nil {
		t.Error("a negative duration was accepted")
	}
}

// TestClocks has a process whose clock is years behind those of the others, first as the holder and then as the follower:
// only the database's clock matters.
func TestClocks(t *testing.T) {
	const claim = time.Second
	p := newPlace(t)
	begin := time.Now()
	synctest.Test(t, func(t *testing.T) { // in here it is the year 2000, and no timer fires while a connection is read
		if time.Now().Year() != 2000 {
			t.Fatal("the clock of the test is right")
		}
		db := connect(t, p)
		now := func() time.Duration {
			return time.Duration(db.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")) * time.Millisecond
		}
		wrong, err := pgsession.Open(context.Background(), p.url, pgsession.Options{Schema: p.schema, Claim: claim})
		must(t, err)
		defer wrong.Close()
		log, err := wrong.Open(context.Background(), "x")
		must(t, err)
		must(t, log.Append(context.Background(), record(1)))
		in, _, err := wrong.Read(context.Background(), "x", 0)
		if err != nil || in.Updated.Before(begin) || in.Status != session.StatusWorking {
			t.Errorf("the session is %+v, %v", in, err)
		}

		since := now()
		follower := startProcess(t, "append", p, claim)
		if got := follower.line(); got != "2" {
			t.Errorf("the follower says %q", got)
		}
		if took := now() - since; took < claim/2 || took > claim+5*time.Second {
			t.Errorf("it has taken over after %v", took)
		}
		if err := log.Append(context.Background(), record(2)); !errors.Is(err, session.ErrConflict) {
			t.Errorf("a claim that was lost: %v", err)
		}

		follower.kill()
		since = now()
		_, err = wrong.Open(context.Background(), "x")
		for errors.Is(err, session.ErrConflict) {
			db.do("SELECT pg_sleep(0.01)")
			_, err = wrong.Open(context.Background(), "x")
		}
		must(t, err)
		if took := now() - since; took < claim/3 || took > claim+5*time.Second {
			t.Errorf("it has taken over after %v", took)
		}
	})
}

// TestClaimAtOnce has another process claim a session, as the first thing it does, at the moment this one
// opens, deletes or prunes it.
func TestClaimAtOnce(t *testing.T) {
	p := newPlace(t)
	store, db, look := open(t, p, pgsession.Options{}), connect(t, p), connect(t, p)
	for name, do := range map[string]func(id string) error{
		"open":   func(id string) error { return second(store.Open(t.Context(), id)) },
		"delete": func(id string) error { return store.Delete(t.Context(), id) },
		"prune": func(string) error {
			done, err := store.Prune(t.Context(), pgsession.Retention{Sessions: time.Nanosecond})
			if err == nil && done.Sessions == 0 {
				err = session.ErrConflict
			}
			return err
		},
	} {
		log := openLog(t, store, name)
		appendTo(t, log, record(1))
		must(t, log.Close())
		db.do("BEGIN")
		db.do("INSERT INTO holder VALUES ($1, clock_timestamp() + interval '1 hour', interval '1 hour')", "holder of "+name)
		db.do("UPDATE session SET holder = $1, token = 'x' WHERE id = $2", "holder of "+name, name)
		result := make(chan error)
		go func() { result <- do(name) }()
		for range 500 {
			if look.number("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%session%'") > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		db.do("COMMIT")
		if err := <-result; !errors.Is(err, session.ErrConflict) {
			t.Errorf("%s: %v, want ErrConflict", name, err)
		}
	}
}

// TestUpdated sets the clock of a database back. A later record still gets a later time.
func TestUpdated(t *testing.T) {
	p := newPlace(t)
	store, db := open(t, p, pgsession.Options{}), connect(t, p)
	log := openLog(t, store, "x")
	appendTo(t, log, record(1))
	db.do("UPDATE session SET updated = updated + interval '1 hour'")
	before, _, err := store.Read(t.Context(), "x", 0)
	must(t, err)
	appendTo(t, log, record(2))
	if after, _, err := store.Read(t.Context(), "x", 0); err != nil || !after.Updated.After(before.Updated) {
		t.Errorf("record 2 was stored %v, record 1 %v, %v", after.Updated, before.Updated, err)
	}
}
