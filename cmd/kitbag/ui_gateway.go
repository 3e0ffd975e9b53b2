package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kitbag-go/kitbag/inspect"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A running gateway serves "kitbag ui" on a Unix socket that only its user can open: GET / returns the JSON of an
// inspect.Gateway, which is made for each request.

// gatewayDir returns the directory of the sockets. Its name is short, since the path of a socket has at most about 100
// bytes.
func gatewayDir() (string, error) {
	dir, err := stateDir()
	return filepath.Join(dir, "gw"), err
}

// publish serves the status of g on a socket until stop is called. If the socket cannot be created, pages do not show g.
func publish(g *mcpgateway.Gateway, name, audit string) (stop func()) {
	noStop := func() {}
	dir, err := gatewayDir()
	if err != nil || os.MkdirAll(dir, 0o700) != nil || os.Chmod(dir, 0o700) != nil { // MkdirAll does not change an existing one
		return noStop
	}
	path := filepath.Join(dir, rand.Text()[:8]+".sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return noStop
	}
	if os.Chmod(path, 0o600) != nil {
		_ = l.Close()
		return noStop
	}
	started := time.Now()
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := inspect.Gateway{Name: name, Started: started, Servers: shownServers(g.Status()), Calls: lastCalls(audit)}
		var err error
		if shown.Groups, err = shownGroups(r.Context(), g.Toolkit); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(shown) // on failure the client has disconnected
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until stop
	}()
	return func() {
		_ = server.Close() // it removes the socket
		<-done
	}
}

func shownServers(list []mcpclient.Status) []inspect.GatewayServer {
	out := []inspect.GatewayServer{}
	for _, s := range list {
		shown := inspect.GatewayServer{Name: s.Name, State: s.State, Protocol: s.Protocol, Restarts: s.Restarts,
			Version: strings.TrimSpace(s.ServerName + " " + s.ServerVersion)}
		if s.Err != nil {
			shown.Error = s.Err.Error()
		}
		out = append(out, shown)
	}
	return out
}

// shownGroups returns the groups with the tools that are known. It starts no server.
func shownGroups(ctx context.Context, tk *toolkit.Toolkit) ([]inspect.GatewayGroup, error) {
	var closed toolkit.Scope
	if _, err := tk.Set(ctx, &closed); err != nil {
		return nil, err
	}
	v, err := tk.View(ctx, &closed)
	if err != nil {
		return nil, err
	}
	out, costs := []inspect.GatewayGroup{}, v.Cost().Groups
	for _, g := range tk.Groups(&closed) {
		shown := inspect.GatewayGroup{Name: g.Name, Tools: g.Tools, Failed: g.Failed}
		if i := slices.IndexFunc(costs, func(c toolkit.Cost) bool { return c.Name == g.Name }); i >= 0 {
			shown.Bytes, shown.Tokens = costs[i].Bytes, costs[i].Tokens
		}
		out = append(out, shown)
	}
	return out, nil
}

// maxAudit is how many bytes at the end of an audit log are shown.
const maxAudit = 64 << 10

// lastCalls returns the last records of an audit log; none if it cannot be read. It opens only a regular file, since
// opening a named pipe would wait for a writer.
func lastCalls(path string) (out []inspect.GatewayCall) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	data := make([]byte, min(size, maxAudit))
	if _, err := f.ReadAt(data, size-int64(len(data))); err != nil {
		return nil
	}
	for line := range bytes.Lines(data) {
		var c inspect.GatewayCall
		if json.Unmarshal(line, &c) == nil { // the first line may be cut
			out = append(out, c)
		}
	}
	return out
}

// runningGateways asks all gateways of this user for their status. It removes the sockets of gateways that have ended.
func runningGateways(ctx context.Context) ([]inspect.Gateway, error) {
	dir, err := gatewayDir()
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.sock"))
	out := []inspect.Gateway{}
	for _, path := range paths {
		g, err := askGateway(ctx, path)
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
			continue
		}
		if err != nil {
			g = inspect.Gateway{Name: filepath.Base(path) + " does not answer: " + err.Error()}
		}
		out = append(out, g)
	}
	return out, err
}

func askGateway(ctx context.Context, path string) (g inspect.Gateway, err error) {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer t.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway/", nil)
	if err != nil {
		return g, err
	}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return g, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return g, errors.New(resp.Status)
	}
	return g, json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&g)
}

// changedPins returns the tools that are withheld until the user accepts them.
func changedPins(context.Context) (out []inspect.Pin, err error) {
	all, err := new(pinFlags).all()
	for _, p := range all {
		if p.Changed != nil {
			out = append(out, inspect.Pin{File: p.File, Server: p.Server, Tool: p.Tool, Diff: p.Diff})
		}
	}
	return out, err
}

// acceptPin accepts a definition if it still is the one that the page showed.
func acceptPin(_ context.Context, shown inspect.Pin) error {
	all, err := new(pinFlags).all()
	for _, p := range all {
		if p.File != shown.File || p.Server != shown.Server || p.Tool != shown.Tool {
			continue
		}
		accepted := false
		err := p.pinFile.Update(pinKey(p.Server, p.File), func(pins map[string]mcpclient.Pin) {
			if current, ok := pins[p.Tool]; ok && current.Changed != nil && current.Diff() == shown.Diff {
				pins[p.Tool], accepted = current.Accept(), true
			}
		})
		if err == nil && !accepted {
			err = errors.New("the server has changed the tool again; reload the page to see its definition")
		}
		return err
	}
	return errors.Join(err, fmt.Errorf("the tool %s of %s is not withheld any more; reload the page", shown.Tool, shown.Server))
}
