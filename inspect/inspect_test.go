package inspect_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/inspect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns a server of a store, and a client that has exchanged the token.
func client(t *testing.T, store session.Store, opts inspect.Options) (*http.Client, string) {
	t.Helper()
	h, err := inspect.New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/at/", http.StripPrefix("/at", h))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if len(r.Cookies()) > 0 {
			t.Errorf("the cookie was sent to %s", r.URL)
		}
	})
	server := httptest.NewServer(mux)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(func() {
		h.Close()
		c.CloseIdleConnections()
		server.Close()
	})
	resp, err := c.Get(server.URL + "/at/?token=" + h.Token())
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || resp.Request.URL.RawQuery != "" || !strings.Contains(string(page), "app.js") {
		t.Fatalf("GET with the token: %d %v at %s", resp.StatusCode, err, resp.Request.URL)
	}
	return c, server.URL + "/at/"
}

func TestGuard(t *testing.T) {
	c, base := client(t, session.Memory(), inspect.Options{Hosts: []string{"kit.example"}, Resume: func(context.Context, string, inspect.Variant) error { return nil }})
	if resp, err := c.Get(strings.TrimSuffix(base, "at/") + "other"); err != nil {
		t.Fatal(err)
	} else {
		resp.Body.Close()
	}
	self := strings.TrimSuffix(base, "/at/")
	for _, row := range []struct {
		name, method, path string
		body               string // "" for {}
		head               map[string]string
		stranger           bool // without the cookie
		want               int
	}{
		{name: "the list", method: "GET", path: "api/sessions", want: 200},
		{name: "no cookie", method: "GET", path: "api/sessions", stranger: true, want: 403},
		{name: "no cookie, a file", method: "GET", path: "app.js", stranger: true, want: 403},
		{name: "a wrong token", method: "GET", path: "?token=guess-guess-guess", stranger: true, want: 403},
		{name: "a wrong cookie", method: "GET", path: "api/sessions", stranger: true, head: map[string]string{"Cookie": "kitbag_inspect=00"}, want: 403},
		{name: "a name that resolves to this machine", method: "GET", path: "api/sessions", head: map[string]string{"Host": "attack.invalid"}, want: 421},
		{name: "the token by such a name", method: "GET", path: "?token=x", head: map[string]string{"Host": "attack.invalid:80"}, want: 421},
		{name: "a known name", method: "GET", path: "api/sessions", head: map[string]string{"Host": "KIT.example:8080"}, want: 200},
		{name: "localhost", method: "GET", path: "api/sessions", head: map[string]string{"Host": "localhost:1"}, want: 200},
		{name: "another address", method: "GET", path: "api/sessions", head: map[string]string{"Host": "[::1]:1"}, want: 200},
		{name: "another site", method: "GET", path: "api/sessions", head: map[string]string{"Origin": "https://attack.invalid"}, want: 403},
		{name: "another port", method: "GET", path: "api/sessions", head: map[string]string{"Origin": "http://127.0.0.1:1"}, want: 403},
		{name: "a user in the origin", method: "GET", path: "api/sessions", head: map[string]string{"Origin": strings.Replace(self, "://", "://x@", 1)}, want: 403},
		{name: "no origin", method: "POST", path: "api/sessions/x/answer", head: map[string]string{"Origin": "null"}, want: 403},
		{name: "a script of another site", method: "GET", path: "app.js", head: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, want: 403},
		{name: "a page of another port", method: "GET", path: "api/sessions", head: map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, want: 403},
		{name: "a link", method: "GET", path: "", head: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, want: 200},
		{name: "a form", method: "POST", path: "api/sessions/x/answer", head: map[string]string{"Origin": self, "Content-Type": "text/plain"}, want: 415},
		{name: "an answer to nothing", method: "POST", path: "api/sessions/x/answer", head: map[string]string{"Origin": self, "Content-Type": "application/json"}, want: 404},
		{name: "to run nothing", method: "POST", path: "api/sessions/x/resume", head: map[string]string{"Origin": self, "Content-Type": "application/json"}, want: 404},
		{name: "another method", method: "DELETE", path: "api/sessions/x", want: 405},
		{name: "a bad id", method: "GET", path: "api/sessions/..x", want: 400},
		{name: "a path as an id", method: "GET", path: "api/sessions/..%2F..%2Fx", want: 400},
		{name: "a path as an id, exported", method: "GET", path: "api/sessions/..%2Fx/export?as=jsonl", want: 400},
		{name: "a path as an id, live", method: "GET", path: "api/live?session=..%2Fx", want: 400},
		{name: "a copy to a path", method: "POST", path: "api/sessions/x/fork", body: `{"to":"../x"}`, head: map[string]string{"Origin": self, "Content-Type": "application/json"}, want: 400},
		{name: "a file outside of the page", method: "GET", path: "..%2Fhandler.go", want: 404},
		{name: "too many rows", method: "GET", path: "api/sessions/x/rows?n=501", want: 400},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := http.NewRequest(row.method, base+row.path, strings.NewReader(cmp.Or(row.body, "{}")))
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range row.head {
				if r.Header.Set(k, v); k == "Host" {
					r.Host = v
				}
			}
			if !row.stranger { // the jar would choose by the Host
				for _, cookie := range c.Jar.Cookies(r.URL) {
					r.AddCookie(cookie)
				}
			}
			stranger := &http.Client{Transport: c.Transport}
			resp, err := stranger.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != row.want {
				body, err := io.ReadAll(resp.Body)
				t.Errorf("status %d, want %d: %s %v", resp.StatusCode, row.want, body, err)
			}
			if got := resp.Header.Get("Referrer-Policy"); got != "no-referrer" {
				t.Errorf("the Referrer-Policy is %q", got)
			}
			if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
				t.Errorf("the Content-Security-Policy is %q", csp)
			}
		})
	}
}

// TestShortToken refuses a secret that can be guessed.
func TestShortToken(t *testing.T) {
	if _, err := inspect.New(session.Memory(), inspect.Options{Token: "secret"}); err == nil {
		t.Error("a token of 6 bytes is accepted")
	}
}

// get decodes the answer to a request.
func get(t *testing.T, c *http.Client, url string, into any) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v", url, resp.StatusCode, err)
	}
}
