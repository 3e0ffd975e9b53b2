package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMayAdminister checks who may reload the configuration, and see and end logins.
func TestMayAdminister(t *testing.T) {
	const token = "the-token-of-the-admin"
	for _, row := range []struct {
		what, token, from, header, value string
		may                              bool
	}{
		{"this machine", "", "127.0.0.1:1", "", "", true},
		{"this machine, IPv6", "", "[::1]:1", "", "", true},
		{"this machine, IPv4 in IPv6", "", "[::ffff:127.0.0.1]:1", "", "", true},
		{"another machine", "", "10.0.0.7:1", "", "", false},
		{"a Unix socket", "", "@", "", "", false},
		{"another machine through a proxy on this one", "", "127.0.0.1:1", "X-Forwarded-For", "10.0.0.7", false},
		{"the same, RFC 7239", "", "127.0.0.1:1", "Forwarded", "for=10.0.0.7", false},
		{"the same, HTTP", "", "127.0.0.1:1", "Via", "1.1 proxy", false},
		{"a page", "", "127.0.0.1:1", "Origin", "null", false},
		{"a page of this machine", "", "127.0.0.1:1", "Sec-Fetch-Site", "same-origin", false},
		{"no token", token, "127.0.0.1:1", "", "", false},
		{"the token", token, "10.0.0.7:1", "Authorization", "Bearer " + token, true},
		{"half of the token", token, "10.0.0.7:1", "Authorization", "Bearer " + token[:9], false},
		{"another scheme", token, "10.0.0.7:1", "Authorization", "Basic " + token, false},
		{"an empty token", token, "10.0.0.7:1", "Authorization", "Bearer ", false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/reload", nil)
		if r.RemoteAddr = row.from; row.header != "" {
			r.Header.Set(row.header, row.value)
		}
		if got := mayAdminister(r, row.token); got != row.may {
			t.Errorf("%s: %t", row.what, got)
		}
		for _, what := range []string{"POST /reload", "GET /logins", "DELETE /logins"} {
			if row.may {
				continue
			}
			r.Method, r.URL.Path, _ = strings.Cut(what, " ")
			w := httptest.NewRecorder()
			if adminHandler(newGatewayMetrics(), row.token, nil).ServeHTTP(w, r); w.Code != http.StatusForbidden {
				t.Errorf("%s: %s: %d", row.what, what, w.Code)
			}
		}
	}
}

// TestAdminToken checks that a short token is refused before anything is served.
func TestAdminToken(t *testing.T) {
	file := filepath.Join(workspace(t), "g.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers":{"demo":{"command":"true"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(adminTokenVar, "short")
	got := kitbag(t.Context(), "mcp", "serve", "--config", file, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	if got.code != exitUsage || !strings.Contains(got.stderr, "the token in $KITBAG_ADMIN_TOKEN has 5 bytes, and needs at least 16") {
		t.Errorf("%+v", got)
	}
}
