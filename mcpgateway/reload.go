package mcpgateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
)

// A Revision identifies the configuration that a gateway serves. It is in the answer of /readyz, and in the result of
// groups/list as the member kitbag/revision of _meta.
type Revision struct {
	Number int       `json:"number"` // begins with 1; each reload adds 1
	Digest string    `json:"digest"` // of the servers, groups and permissions, without environment variables and headers
	Since  time.Time `json:"since"`
}

func (r Revision) String() string { return fmt.Sprintf("%d-%s", r.Number, r.Digest) }

// revisionOf returns a new revision of a configuration. The digest leaves out environment variables and headers of servers:
// everyone can read the digest, which must not help to guess a secret.
func revisionOf(number int, cfg Config) Revision {
	type server struct {
		Name   string
		Target []string
	}
	var servers []server
	for _, s := range cfg.Servers {
		var target []string
		switch t := s.Transport.(type) {
		case mcpclient.Command:
			target = append([]string{t.Dir, t.Path}, t.Args...)
		case mcpclient.HTTP:
			target = []string{t.URL}
		}
		servers = append(servers, server{s.Name, target})
	}
	// Marshal fails for a policy with a function; the digest is then the digest of nothing.
	data, _ := json.Marshal([]any{servers, cfg.Groups, cfg.Labels, cfg.PerSession, cfg.Initial, cfg.Serve.Policy})
	sum := sha256.Sum256(data)
	return Revision{number, hex.EncodeToString(sum[:4]), time.Now()}
}

// Revision returns the revision of the configuration that is served.
func (g *Gateway) Revision() Revision { return g.current.Load().revision }

// Reload replaces Servers, Groups, Labels, PerSession, Initial and Serve.Policy, while sessions continue: their open groups
// stay open if they still exist. A server whose entry has not changed keeps running; calls of servers that were changed or
// removed are cancelled. If Reload returns an error, as it does if another field has changed, nothing changes.
func (g *Gateway) Reload(ctx context.Context, cfg Config) (err error) {
	g.replacing.Lock()
	defer g.replacing.Unlock()
	old := g.current.Load()
	if err := errors.Join(checkReloadable(old.cfg, cfg), cfg.check()); err != nil {
		return fmt.Errorf("mcpgateway: reload: %w", err)
	}
	next := &generation{cfg: cfg, revision: revisionOf(old.revision.Number+1, cfg)}
	var added []*upstream
	defer func() {
		if err != nil {
			err = fmt.Errorf("mcpgateway: reload: %w", errors.Join(err, closeAll(added)))
		}
	}()
	for _, c := range cfg.Servers {
		i := slices.IndexFunc(old.cfg.Servers, func(o mcpclient.Server) bool { return o.Name == c.Name })
		if i >= 0 && sameServer(&old.cfg, &cfg, old.cfg.Servers[i], c) {
			next.upstreams = append(next.upstreams, old.upstreams[i])
			continue
		}
		u, err := g.newUpstream(c, &cfg)
		if err != nil {
			return err
		}
		next.upstreams, added = append(next.upstreams, u), append(added, u)
		g.watch(u)
	}
	labelsCtx, cancel := context.WithTimeout(ctx, labelsTimeout)
	defer cancel()
	next.refreshLabels(labelsCtx)
	if err := g.Server.Reload(cfg.Serve.Policy, next.revision.String()); err != nil {
		return err
	}
	if err := g.replaceGroups(next); err != nil {
		return errors.Join(err, g.Server.Reload(old.cfg.Serve.Policy, old.revision.String()))
	}
	for i := range next.upstreams {
		next.upstreams[i].pinListed.Store(&next.cfg.Servers[i].Options.PinListed)
	}
	g.current.Store(next)
	removed := slices.DeleteFunc(slices.Clone(old.upstreams), func(u *upstream) bool { return slices.Contains(next.upstreams, u) })
	g.background.Go(func() { _ = closeAll(removed) })
	g.itemsChanged()
	return nil
}

// checkReloadable returns an error that names the changed settings that need a restart.
func checkReloadable(old, now Config) error {
	var errs []error
	for _, setting := range []struct {
		name     string
		old, now any
	}{
		{"style", old.Style, now.Style},
		{"search", old.Search, now.Search},
		{"audit", []any{old.AuditFile, old.AuditDatabase, old.AuditArguments}, []any{now.AuditFile, now.AuditDatabase, now.AuditArguments}},
		{"rates", old.Serve.Rates, now.Serve.Rates},
		{"taskAfter", old.Serve.TaskAfter, now.Serve.TaskAfter},
		{"credentials", old.Serve.Credentials, now.Serve.Credentials},
		{"oauth", old.OAuth, now.OAuth},
		{"upstreamTokens", old.UpstreamTokens, now.UpstreamTokens},
		{"logins", old.Logins, now.Logins},
		{"instructions", old.Serve.Instructions, now.Serve.Instructions},
		{"hosts", old.Serve.Hosts, now.Serve.Hosts},
		{"origins", old.Serve.Origins, now.Serve.Origins},
		{"replicas", []string{old.ReplicaStore, replicaURL(old)}, []string{now.ReplicaStore, replicaURL(now)}},
	} {
		if !reflect.DeepEqual(setting.old, setting.now) {
			errs = append(errs, fmt.Errorf("%s: a reload cannot change it; restart the gateway", setting.name))
		}
	}
	return errors.Join(errs...)
}

func replicaURL(cfg Config) string {
	if cfg.Serve.Replicas == nil {
		return ""
	}
	return cfg.Serve.Replicas.URL
}

// sameServer reports whether a server can keep running because its entry and its place in Labels and PerSession are the
// same. Functions are ignored: they cannot be compared, and come from the program, not from the file.
func sameServer(oldCfg, newCfg *Config, old, now mcpclient.Server) bool {
	for _, s := range []*mcpclient.Server{&old, &now} {
		o := &s.Options
		o.Elicitation, o.Sampling, o.Log, o.PinListed = nil, nil, nil, nil
	}
	return reflect.DeepEqual(old, now) &&
		slices.Contains(oldCfg.Labels, old.Name) == slices.Contains(newCfg.Labels, now.Name) &&
		slices.Contains(oldCfg.PerSession, old.Name) == slices.Contains(newCfg.PerSession, now.Name)
}
