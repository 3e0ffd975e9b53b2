package pggateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// users takes the token as the user's name. Each may have four requests in flight, and three sessions.
type users struct{}

func (users) Authenticate(r *http.Request) (mcpserver.Identity, error) {
	_, name, ok := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return mcpserver.Identity{}, errors.New("no user")
	}
	return mcpserver.Identity{Name: name, Calls: 4, Sessions: 3}, nil
}

// replicas serves a tool on three replicas with connections of their own to the database. post sends a message to each in turn.
func replicas(t *testing.T, run func(context.Context) error, rates ...mcpserver.Rate) (post func(user, method, params string) (status int, body string)) {
	t.Helper()
	open(t) // makes the table
	db, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	if _, err := db.Exec(t.Context(), `DELETE FROM kitbag_mcp`); err != nil { // with -count there are values of the last run
		t.Fatal(err)
	}
	var urls []string
	for range 3 {
		var server *mcpserver.Server
		web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { server.Handler().ServeHTTP(w, r) }))
		url := "http://" + web.Listener.Addr().String() + "/"
		hit := tool.Must(tool.New("hit", "Runs.", func(ctx context.Context, _ struct{}) (string, error) { return "hit", run(ctx) }))
		if server, err = mcpserver.New(mcpserver.Config{
			Toolkit: toolkit.Of(hit), Name: "n", Version: "1", Policy: &permission.Policy{Mode: permission.ModeBypass},
			Authenticator: users{}, Rates: rates, Replicas: &mcpserver.Replicas{Shared: open(t), URL: url},
		}); err != nil {
			t.Fatal(err)
		}
		web.Start()
		t.Cleanup(func() { _ = server.Close(); web.Close() })
		urls = append(urls, url)
	}
	var next atomic.Int64
	return func(user, method, params string) (int, string) {
		const version = "2026-07-28"
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s}}`, method, params)
		if method != "initialize" {
			body = strings.TrimSuffix(body, "}}") + fmt.Sprintf(`,"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientCapabilities":{}}}}`, version)
		}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, urls[int(next.Add(1))%len(urls)], strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+user)
		r.Header.Set("Content-Type", "application/json")
		if method != "initialize" {
			r.Header.Set("MCP-Protocol-Version", version)
			r.Header.Set("Mcp-Method", method)
			r.Header.Set("Mcp-Name", "hit")
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer res.Body.Close()
		data, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(data)
	}
}

const hit = `"name":"hit","arguments":{}`

// TestRates checks that the rates of a tool hold for three replicas together: one for all users, and one for each. In an hour
// the buckets get no token during the test.
func TestRates(t *testing.T) {
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	for _, row := range []struct {
		rate      mcpserver.Rate
		all, each int64 // how many calls of six users, and of one of them, run
		refused   string
	}{
		{mcpserver.Rate{Tools: "hit", Calls: 20, Every: time.Hour}, 20, 20, "The call of hit was not run: there were more than 20 calls of hit in 1h"},
		{mcpserver.Rate{Tools: "h*", Calls: 5, Every: time.Hour, Each: true}, 30, 5, "The call of hit was not run: there were more than 5 calls of h* in 1h"},
	} {
		t.Run(row.rate.Tools, func(t *testing.T) {
			var ran, refused atomic.Int64
			post := replicas(t, func(context.Context) error { ran.Add(1); return nil }, row.rate)
			var work sync.WaitGroup
			for i := range 6 {
				work.Go(func() {
					own := int64(0)
					for range 30 { // so many that each replica uses up what it has taken
						switch _, body := post(fmt.Sprint("user", i), "tools/call", hit); {
						case strings.Contains(body, row.refused):
							refused.Add(1)
						case strings.Contains(body, `"text":"hit"`):
							own++
						default:
							t.Error(body)
						}
					}
					if own > row.each {
						t.Errorf("%d calls of a user ran, want at most %d", own, row.each)
					}
				})
			}
			work.Wait()
			if ran.Load() != row.all || refused.Load() != 6*30-row.all {
				t.Errorf("%v: %d calls ran, and %d were refused, want %d and %d", row.rate, ran.Load(), refused.Load(), row.all, 6*30-row.all)
			}
		})
	}
}

// TestUsers checks that the limits of users, of whom the replicas learn from an Authenticator, hold for three replicas together, can be
// used up through any of them, and do not concern other users.
func TestUsers(t *testing.T) {
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	var now, most atomic.Int64
	release := make(chan struct{})
	post := replicas(t, func(ctx context.Context) error {
		defer now.Add(-1)
		for n := now.Add(1); n > most.Load(); {
			most.Store(n)
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	var work sync.WaitGroup
	refused := atomic.Int64{}
	for end := time.Now().Add(20 * time.Second); (now.Load() < 4 || refused.Load() == 0) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for range 4 {
			work.Go(func() {
				if _, body := post("anna", "tools/call", hit); strings.Contains(body, "too many requests in flight") {
					refused.Add(1)
				}
			})
		}
	}
	if now.Load() != 4 || most.Load() != 4 || refused.Load() == 0 {
		t.Errorf("%d calls of a user run at once, at most %d, %d were refused; want 4, 4 and some", now.Load(), most.Load(), refused.Load())
	}
	work.Go(func() { post("otto", "tools/call", hit) })
	for end := time.Now().Add(10 * time.Second); now.Load() < 5 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	if now.Load() != 5 {
		t.Error("the limit of one user concerns another one")
	}
	close(release)
	work.Wait()

	opened := 0
	for end := time.Now().Add(20 * time.Second); opened < 3 && time.Now().Before(end); {
		if _, body := post("anna", "initialize", `"protocolVersion":"2025-11-25","capabilities":{}`); strings.Contains(body, "serverInfo") {
			opened++
		}
	}
	for range 12 {
		if _, body := post("anna", "initialize", `"protocolVersion":"2025-11-25","capabilities":{}`); strings.Contains(body, "serverInfo") {
			opened++
		}
	}
	if opened != 3 {
		t.Errorf("%d sessions were opened, and the user may have 3", opened)
	}
}
