package pgsession_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kitbag-go/kitbag/internal/pgtest"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
)

// BenchmarkAppend saves steps with one event each, by one writer and by eight at once, on a
// server that waits for its disk.
func BenchmarkAppend(b *testing.B) {
	server, err := pgtest.Start()
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	store, err := pgsession.Open(context.Background(), server.URL()+"&pool_max_conns=8", pgsession.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	var sessions atomic.Int64
	db := connect(b, place{server.URL(), "kitbag"})
	wal := func() float64 { return float64(db.number("SELECT (pg_current_wal_lsn() - '0/0')::bigint")) }
	write := func(b *testing.B, next func() bool) {
		log, err := store.Open(b.Context(), fmt.Sprint("s", sessions.Add(1)))
		if err != nil {
			b.Error(err)
			return
		}
		defer log.Close()
		for seq := int64(1); next(); seq++ {
			if err := log.Append(b.Context(), record(seq)); err != nil {
				b.Error(err)
				return
			}
		}
	}
	b.Run("1", func(b *testing.B) {
		b.ReportAllocs()
		before := wal()
		write(b, b.Loop)
		b.ReportMetric((wal()-before)/float64(b.N), "WAL-B/op")
	})
	b.Run("8", func(b *testing.B) {
		b.SetParallelism(8) // on two cores these are more
		b.RunParallel(func(pb *testing.PB) { write(b, pb.Next) })
	})
}
