package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// BeginLogin begins a login whose redirect arrives at a page of the program, which may have many users. It returns the page
// for the user's browser, and the state of the login for FinishLogin, which contains secrets. Continue a login only in the
// browser that began it; otherwise an attacker could log a victim in with the attacker's account.
func (t HTTP) BeginLogin(ctx context.Context) (page string, begun []byte, err error) {
	l, closeIdle, err := t.openLogin()
	if err != nil {
		return "", nil, err
	}
	defer closeIdle()
	stored, err := l.load(ctx)
	if err != nil {
		return "", nil, err
	}
	ch := l.requestChallenge(ctx)
	site, old, err := l.findSite(ctx, stored, ch)
	if err != nil {
		return "", nil, err
	}
	page, p, err := l.begin(ctx, site, old, ch)
	if err != nil {
		return "", nil, err
	}
	if err := l.saveClient(ctx, p); err != nil {
		return "", nil, err
	}
	begun, err = json.Marshal(p)
	return page, begun, err
}

// saveClient stores the client of a login that has begun, so that the next login does not register another client. A
// stored login with tokens is kept.
func (l *login) saveClient(ctx context.Context, p *pendingLogin) error {
	unlock, err := l.cfg.Store.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if g, err := l.load(ctx); err != nil || g != nil && g.Access != "" {
		return err
	}
	return l.save(ctx, &grant{Issuer: p.Site.Issuer, Client: p.Client, Scope: p.Scope})
}

// FinishLogin finishes a login with the query of the redirect, stores the login, and returns the access token.
func (t HTTP) FinishLogin(ctx context.Context, begun []byte, redirect url.Values) (token string, err error) {
	l, closeIdle, err := t.openLogin()
	if err != nil {
		return "", err
	}
	defer closeIdle()
	var p pendingLogin
	if err := json.Unmarshal(begun, &p); err != nil {
		return "", err
	}
	g, err := l.finish(ctx, &p, redirect)
	if err != nil {
		return "", err
	}
	ctx = context.WithoutCancel(ctx) // the login cannot be finished a second time
	unlock, err := l.cfg.Store.Lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	return g.Access, l.save(ctx, g)
}

// openLogin returns the login for OAuth, and a function that closes the login's idle connections.
func (t HTTP) openLogin() (l *login, closeIdle func(), err error) {
	if t.OAuth == nil || t.OAuth.RedirectURL == "" {
		return nil, nil, errors.New("HTTP.OAuth.RedirectURL is missing; set it to the page for the redirect")
	}
	var cfg config
	if err := t.configure(&cfg); err != nil {
		return nil, nil, err
	}
	base, closeIdle := baseTransport(&cfg)
	return newLogin(t.OAuth, cfg.url, base), closeIdle, nil
}

// requestChallenge sends a request without a token and returns the challenge of the refusal. It sends nothing with
// OAuth.Scopes, which replace what a server demands.
func (l *login) requestChallenge(ctx context.Context) (ch challenge) {
	if l.cfg.Scopes != nil {
		return ch
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.server.String(), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return ch
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := l.http.Do(req)
	if err != nil {
		return ch // discover, which contacts the same server, returns the error
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized {
		ch = challengeOf(res)
	}
	return ch
}
