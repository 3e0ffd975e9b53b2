package pgsession_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
)

// TestCost counts the rows and blocks that each operation reads with a short session and with one
// that has 200 times as many records, events and inputs.
func TestCost(t *testing.T) {
	p := newPlace(t)
	store, db := open(t, p, pgsession.Options{}), connect(t, p)
	lengths := map[string]int64{"short": 10, "long": 2000}
	for id, n := range lengths {
		log := openLog(t, store, id)
		for seq := int64(1); seq <= n; seq++ {
			input := fmt.Sprint("in-", seq)
			must(t, second(store.Send(t.Context(), id, session.Entry{ID: input, Data: []byte("1")})))
			rec := record(seq)
			rec.Whole = seq%10 == 1 // a whole record after as much as it holds
			rec.Consumed = []session.ConsumedInput{{ID: input}}
			appendTo(t, log, rec)
		}
		must(t, log.Close())
	}
	must(t, store.Close())
	db.do("ANALYZE")
	read := func() int64 {
		return db.number(`SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables WHERE schemaname = $1`, p.schema)
	}
	// A connection reports what it has read when it ends, at the latest.
	measure := func(do func(store *pgsession.Store)) int64 {
		before := read()
		s, err := pgsession.Open(t.Context(), p.url+"&application_name=cost", pgsession.Options{Schema: p.schema})
		must(t, err)
		do(s)
		must(t, s.Close())
		settle(db)
		return read() - before
	}
	for _, op := range []struct {
		name string
		do   func(store *pgsession.Store, id string)
	}{
		{"nothing", func(*pgsession.Store, string) {}},
		{"open and close", func(s *pgsession.Store, id string) { must(t, openLog(t, s, id).Close()) }},
		{"append", func(s *pgsession.Store, id string) {
			log := openLog(t, s, id)
			lengths[id]++
			appendTo(t, log, record(lengths[id]))
			must(t, log.Close())
		}},
		{"load", func(s *pgsession.Store, id string) {
			log := openLog(t, s, id)
			must(t, second(log.Load(t.Context())))
			must(t, log.Close())
		}},
		{"send", func(s *pgsession.Store, id string) {
			must(t, second(s.Send(t.Context(), id, session.Entry{ID: "more", Data: json.RawMessage("1")})))
		}},
		{"send again", func(s *pgsession.Store, id string) {
			must(t, second(s.Send(t.Context(), id, session.Entry{ID: "in-3", Data: json.RawMessage("1")})))
		}},
		{"inputs", func(s *pgsession.Store, id string) { must(t, second(s.Inputs(t.Context(), id))) }},
		{"input", func(s *pgsession.Store, id string) { must(t, second(s.Input(t.Context(), id, "in-3"))) }},
		{"take", func(s *pgsession.Store, id string) {
			log := openLog(t, s, id)
			lengths[id]++
			rec := record(lengths[id])
			rec.Consumed = []session.ConsumedInput{{ID: "more"}}
			appendTo(t, log, rec)
			must(t, log.Close())
		}},
		{"read", func(s *pgsession.Store, id string) {
			_, _, err := s.Read(t.Context(), id, 0)
			must(t, err)
		}},
		{"read what was", func(s *pgsession.Store, id string) {
			_, _, err := s.Read(t.Context(), id, 5)
			must(t, err)
		}},
		{"watch", func(s *pgsession.Store, id string) {
			for _, err := range s.Watch(t.Context(), id, lengths[id]-1) {
				must(t, err)
				break
			}
		}},
		{"list", func(s *pgsession.Store, _ string) { must(t, second(s.List(t.Context(), session.Query{}))) }},
	} {
		short := measure(func(s *pgsession.Store) { op.do(s, "short") })
		long := measure(func(s *pgsession.Store) { op.do(s, "long") })
		t.Logf("%-14s reads %d rows of the short session and %d of the long one", op.name, short, long)
		if long > short+12 || op.name != "nothing" && short == 0 {
			t.Errorf("%s reads %d rows of a short session and %d of a long one", op.name, short, long)
		}
	}
}

// settle waits until the connections of a store that was closed have ended.
func settle(db database) {
	db.Helper()
	for range 1000 {
		if db.number("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cost'") == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	db.Fatal("a connection of a store that was closed does not end")
}
