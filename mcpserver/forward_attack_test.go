package mcpserver_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// behind lets a handler get the requests to a replica.
func (o *oneOf) behind(h func(w http.ResponseWriter, r *http.Request, inner http.Handler)) {
	inner := o.web.Config.Handler
	o.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(w, r, inner) })
}

// TestReplicasFrozen forwards requests to a replica whose process then stands still: its connections stay open, and no
// heartbeat follows. A request that it has not read is handled by another replica; for the others the client is told.
func TestReplicasFrozen(t *testing.T) {
	for _, row := range []struct {
		name       string
		read       bool // the replica has read the request
		body, want string
	}{
		{"before it has read a call", false, callWeather, `200 "c":7`},
		{"before it has read a notification", false, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "202 "},
		{"after it has read a call", true, callWeather, "200 may have had effects"},
		{"after it has read a notification", true, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "502 may have had effects"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 2, func() mcpserver.Config { return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open} })
			_, direct := c.client("")
			at := c.holder(direct)
			c.freeze(at, row.read)
			direct[1-at].client.Timeout = 20 * time.Second
			direct[1-at].expect(row.body, row.want)
		})
	}
	t.Run("while a stream is open", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, 2, func() mcpserver.Config { return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open} })
		_, direct := c.client("")
		at := c.holder(direct)
		direct[1-at].client.Timeout = 20 * time.Second
		stream := direct[1-at].back("")
		stream.next() // primes
		c.replicas[at].shared.off.Store(true)
		began := time.Now()
		if stream.rest(); time.Since(began) > 15*time.Second {
			t.Error("the stream of the frozen replica has not ended")
		}
		again := direct[1-at].back("")
		if again.status != 200 {
			t.Errorf("the next stream: %d", again.status)
		}
		again.drop()
	})
}

const callWeather = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"weather"}}`

// freeze stops a replica at its next request, before or after it reads the body.
func (c *cluster) freeze(at int, read bool) {
	end, thaw := context.WithCancel(context.Background())
	c.t.Cleanup(thaw)
	c.replicas[at].behind(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		if read {
			_, _ = io.ReadAll(r.Body)
		}
		c.replicas[at].shared.off.Store(true)
		<-end.Done()
	})
}

// TestReplicasRefused checks what a client gets whose credential the holder of its session does not accept, as it has other
// keys of the issuer: what the holder says to its own clients, which know what to do.
func TestReplicasRefused(t *testing.T) {
	refusals := []*mcpserver.Refusal{nil, nil}
	n := -1
	c := newCluster(t, 2, func() mcpserver.Config {
		n++
		return mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open, Hosts: []string{"mcp.example.com"}, Authenticator: refusing{&refusals[n]}}
	})
	for _, o := range c.replicas {
		o.behind(func(w http.ResponseWriter, r *http.Request, inner http.Handler) {
			if r.Header.Get("Kitbag-Forwarded") != "" {
				r.Host = "10.0.0.7:8080" // as in a real network
			}
			inner.ServeHTTP(w, r)
		})
	}
	_, direct := c.client("")
	at := c.holder(direct)
	for _, r := range []*mcpserver.Refusal{
		{Status: 401, Challenge: `Bearer error="invalid_token"`, Reason: "expired"},
		{Status: 403, Challenge: `Bearer error="insufficient_scope"`, Reason: "scope"},
		{Status: 503, Reason: "no keys"},
	} {
		refusals[at] = r
		for _, host := range []string{"", "mcp.example.com"} {
			direct[1-at].header = map[string]string{}
			if host != "" {
				direct[1-at].header["Host"] = host
			}
			res, err := direct[1-at].client.Do(direct[1-at].request(t.Context(), listBody))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != r.Status || res.Header.Get("WWW-Authenticate") != r.Challenge || !strings.Contains(string(body), r.Reason) {
				t.Errorf("refused with %+v: %d %q %s", *r, res.StatusCode, res.Header.Get("WWW-Authenticate"), body)
			}
		}
	}
}

type refusing struct{ with **mcpserver.Refusal }

func (r refusing) Authenticate(*http.Request) (mcpserver.Identity, error) {
	if *r.with != nil {
		return mcpserver.Identity{}, *r.with
	}
	return mcpserver.Identity{Name: "anna"}, nil
}
