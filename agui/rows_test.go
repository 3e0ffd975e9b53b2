package agui_test

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kitbag-go/kitbag/agent/session"
)

var update = flag.Bool("update", false, "write the expected events")

// TestRows sends the requests of each file in testdata to a new server and compares the events. A request is a file
// named POST, GET or DELETE; GET and DELETE contain the query. The file after it is what comes back: the events, without
// their times and with the pieces of a text joined, or the status and the error.
func TestRows(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := newReplica(t, session.Memory())
			out := &txtar.Archive{Comment: ar.Comment}
			for _, f := range ar.Files {
				if f.Name == "events" || f.Name == "response" {
					continue
				}
				name, got := r.row(f.Name, strings.TrimSpace(string(f.Data)))
				out.Files = append(out.Files, f, txtar.File{Name: name, Data: []byte(got)})
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got, want := string(txtar.Format(out)), string(txtar.Format(ar)); got != want {
				t.Errorf("got\n%s\nwant\n%s\n(go test ./agui -run TestRows -update writes what comes back)", got, want)
			}
		})
	}
}

func (r *replica) row(method, body string) (name, got string) {
	r.t.Helper()
	query := ""
	if method != "POST" {
		query, body = body, ""
	}
	res := r.do(method, query, body)
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		var list []frame
		frames(r.t, res.Body, func(f frame) bool { list = append(list, f); return true })
		return "events", normal(r.t, list)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return "response", res.Status + "\n" + string(text)
}
