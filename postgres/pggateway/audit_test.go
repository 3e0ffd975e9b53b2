package pggateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/postgres/pggateway"
)

// TestAudit checks that lines are stored, also those that jsonb cannot have, that a Write fails while the database is stopped,
// stores nothing then, and works when it is back.
func TestAudit(t *testing.T) {
	a, err := pggateway.OpenAudit(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	write := func(lines string) bool {
		t.Helper()
		n, err := a.Write([]byte(lines))
		if (err == nil) != (n == len(lines)) {
			t.Errorf("%q: %d %v", lines, n, err)
		}
		return err == nil
	}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	if !write("{\"a\":1}\n{\"b\":\"\\u0000 \\ud800 \xff\"}\n") || !write(deep+"\n") {
		t.Error("not stored")
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if write("lost\n") {
		t.Error("stored without a database")
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !write("{\"c\":1}\n"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not stored after the database is back")
		}
	}
	db, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	rows, err := db.Query(t.Context(), `SELECT record FROM kitbag_audit ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if want := "{\"a\":1}|{\"b\":\"\\u0000 \\ud800 \ufffd\"}|" + deep + "|{\"c\":1}"; err != nil || strings.Join(got, "|") != want {
		t.Errorf("%v: %d rows: %.200q", err, len(got), got)
	}
}
