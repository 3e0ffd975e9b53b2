package inspect_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
)

// TestOlder shows sessions that older versions stored: the files are named after the commit whose session.Dir wrote them.
// The first has no events, the other one has events without the parts of requests.
func TestOlder(t *testing.T) {
	for _, row := range []struct{ commit, rows, cause string }{
		{"1e2cba44", "user model tool:success model tool:error model", "no requests"},
		{"951b682e", "run user model:tool_calls tool:success model:tool_calls tool:error model:stop end:completed", ""},
	} {
		t.Run(row.commit, func(t *testing.T) {
			dir := t.TempDir()
			data, err := os.ReadFile(filepath.Join("testdata/older", row.commit+".jsonl"))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "old.jsonl"), data, 0o600)
			}
			store, openErr := session.Dir(dir)
			if err = errors.Join(err, openErr); err != nil {
				t.Fatal(err)
			}
			c, base := client(t, store, inspect.Options{})
			var list struct {
				Sessions []struct {
					Title, Problem string
					Usage          struct {
						Output int `json:"output_tokens"`
					}
				}
			}
			get(t, c, base+"api/sessions", &list)
			if got := fmt.Sprintf("%+v", list.Sessions); got != "[{Title:What is there? Problem: Usage:{Output:13}}]" {
				t.Errorf("the list is %s", got)
			}
			var compared struct{ Pairs []struct{ Same bool } }
			get(t, c, base+"api/sessions/old/compare?with=old", &compared)
			if len(compared.Pairs) == 0 || !compared.Pairs[0].Same {
				t.Errorf("compared with itself: %+v", compared)
			}
			var timeline struct {
				Rows []struct{ Kind, State, Start, Fault string }
			}
			get(t, c, base+"api/sessions/old/rows?n=100", &timeline)
			var rows []string
			for _, r := range timeline.Rows {
				rows = append(rows, strings.TrimSuffix(r.Kind+":"+r.State, ":"))
				if r.Start == "" || r.State == "error" && r.Fault != "no such place" {
					t.Errorf("%+v", r)
				}
			}
			if got := strings.Join(rows, " "); got != row.rows {
				t.Errorf("the rows are %s, want %s", got, row.rows)
			}
			var requests struct {
				Requests []struct{ Cause, Model string }
			}
			get(t, c, base+"api/sessions/old/requests?from=0", &requests)
			cause := "no requests"
			if len(requests.Requests) == 3 {
				cause = requests.Requests[1].Cause // not known
			}
			if cause != row.cause {
				t.Errorf("the requests are %+v", requests)
			}
			for path, want := range map[string]string{"details?row=2": "Bergen", "groups": `"total"`, "find?q=bergen&from=0": `"row":`,
				"export?as=html": "There is nothing.", "export?as=jsonl": "Bergen", "export?as=go": `scripted.Call("look"`} {
				resp, err := c.Get(base + "api/sessions/old/" + path)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
					t.Errorf("%s: status %d, %v: %s", path, resp.StatusCode, err, text)
				}
			}
		})
	}
}
