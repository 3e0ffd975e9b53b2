package mcpgateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/kitbag-go/kitbag/mcpclient"
)

// Health serves /livez, which answers 200 while the process can serve HTTP, and /readyz, which answers 503 while
// the gateway should get no requests; see [Gateway.Ready]. The answer of /readyz has the revision and the states of the
// servers, but not the servers' errors, because the endpoint needs no token.
func (g *Gateway) Health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		answer := struct {
			Ready    bool              `json:"ready"`
			Reason   string            `json:"reason,omitempty"`
			Revision Revision          `json:"revision"`
			Servers  map[string]string `json:"servers"`
		}{true, "", g.Revision(), map[string]string{}}
		for _, s := range g.Status() {
			answer.Servers[s.Name] = s.State
		}
		status := http.StatusOK
		if err := g.Ready(); err != nil {
			answer.Ready, answer.Reason, status = false, err.Error(), http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // the client may be gone
	})
	return mux
}

// Ready returns why the gateway should get no requests: it is closing, or its audit log cannot be written. A server that
// fails does not matter, because calls of the other servers work.
func (g *Gateway) Ready() error {
	switch {
	case g.ctx.Err() != nil || g.draining.Load():
		return errors.New("the gateway is closing")
	case g.audit != nil && !g.audit.writable():
		return errors.New("the audit log cannot be written")
	}
	return nil
}

// Drain makes [Gateway.Ready] fail, so that a load balancer sends requests to other replicas, and then waits for
// the calls in flight; see [mcpserver.Server.Drain].
func (g *Gateway) Drain(ctx context.Context) error {
	g.draining.Store(true)
	return g.Server.Drain(ctx)
}

// ServerOf returns the name of the server that the tool's name begins with, or "" if there is none.
func (g *Gateway) ServerOf(tool string) string {
	for _, u := range g.current.Load().upstreams {
		if strings.HasPrefix(tool, u.prefix) {
			return u.name
		}
	}
	return ""
}

// Saved returns how many bytes of tool definitions were not sent to clients so far, because each list had only some of the
// tools that were known at the time.
func (g *Gateway) Saved() int64 { return g.saved.Load() }

// addSaved is called when a client gets a list of tools. sent is how many bytes of definitions the list has.
func (g *Gateway) addSaved(sent int) {
	all := 0
	for _, l := range g.Loads() {
		all += l.Bytes
	}
	g.saved.Add(int64(max(0, all-sent)))
}

// A ServerLoad is what a server adds to the gateway's lists; see [Gateway.Loads].
type ServerLoad struct {
	Server   string
	Tools    int // listed so far
	Bytes    int // of the definitions of these tools
	Withheld int // tools that are not listed because they have changed since the user accepted them
}

// Loads returns what each server's tools would cost a host that lists them all. It starts no server.
func (g *Gateway) Loads() (out []ServerLoad) {
	for _, u := range g.current.Load().upstreams {
		l := ServerLoad{Server: u.name}
		u.mu.Lock()
		for _, t := range u.cleaned {
			info := t.Info()
			l.Tools++
			l.Bytes += len(info.Name) + len(info.Description) + len(info.Input)
		}
		u.mu.Unlock()
		for _, s := range u.client.Skipped() {
			if strings.Contains(s.Reason, mcpclient.ErrChanged.Error()) { // Skipped has no error value
				l.Withheld++
			}
		}
		out = append(out, l)
	}
	return out
}
