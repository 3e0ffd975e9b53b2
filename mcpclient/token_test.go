package mcpclient

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/server"
)

// TestToken checks that HTTP.Token is asked for each request, and that its token is sent to the configured host only.
func TestToken(t *testing.T) {
	var stolen, refused atomic.Int64
	other := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			stolen.Add(1)
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	inner := server.NewStreamableHTTPServer(goServer())
	var away atomic.Bool
	own := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		case away.Load():
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	var failing atomic.Bool
	c := connect(t, Server{Name: "srv", Options: Options{PingInterval: -1}, Transport: HTTP{URL: own.URL + "/mcp",
		Token: func(context.Context) (string, error) {
			if failing.Load() {
				return "", errors.New("no token")
			}
			return "secret", nil
		}}})
	echo := find(t, c, "echo")
	if res := mustRun(t, echo, `{"m":"in"}`); res.Text() != "in" || refused.Load() > 0 {
		t.Errorf("%q, %d requests were refused", res.Text(), refused.Load())
	}
	failing.Store(true)
	if res := mustRun(t, echo, `{"m":"in"}`); !strings.Contains(res.Text(), "login required: no token") {
		t.Errorf("without a token: %s", res.Text())
	}
	failing.Store(false)
	away.Store(true)
	if res := mustRun(t, echo, `{"m":"in"}`); res.Text() == "in" || stolen.Load() > 0 {
		t.Errorf("%q; another host got %d tokens", res.Text(), stolen.Load())
	}
	for _, row := range []struct {
		h    HTTP
		want string
	}{
		{HTTP{URL: "http://mcp.example.com/"}, "must be https"},
		{HTTP{URL: "https://mcp.example.com/", OAuth: &OAuth{}}, "both set"},
	} {
		row.h.Token = func(context.Context) (string, error) { return "", nil }
		if _, err := New("srv", row.h, nil); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
}

// TestURLSecret checks that no error contains the query or the user of the server's URL, which may be secrets.
func TestURLSecret(t *testing.T) {
	closed := serveHTTP(t, http.NotFoundHandler())
	address := strings.TrimPrefix(closed.URL, "http://")
	closed.Close()
	denied := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	for _, row := range []struct {
		url   string
		oauth *OAuth
	}{
		{"ftp://hidden@example.com/?key=hidden", nil},
		{"https://hidden@exa mple.com/?key=hidden", nil},
		{"http://hidden@mcp.example.com/?key=hidden", &OAuth{}},
		{"http://hidden@" + address + "/mcp?key=hidden", nil},
		{"http://hidden@" + address + "/mcp?key=hidden", &OAuth{}},
		{denied.URL + "/mcp?key=hidden", nil},
		{denied.URL + "/mcp?key=hidden", &OAuth{}},
	} {
		for _, sse := range []bool{false, true} {
			_, err := tryConnect(t.Context(), Server{Name: "srv", Transport: HTTP{URL: row.url, SSE: sse, OAuth: row.oauth}, Options: Options{PingInterval: -1}})
			if err == nil || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%s, SSE %t: %v", row.url, sse, err)
			}
		}
	}
}
