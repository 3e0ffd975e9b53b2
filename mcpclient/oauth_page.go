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
// for the user's browser, and what FinishLogin needs. That contains secrets, and belongs to the user's browser: whoever
// makes another browser continue it logs in with the account of another user.
func (t HTTP) BeginLogin(ctx context.Context) (page string, begun []byte, err error) {
	l, idle, err := t.newLogin()
	if err != nil {
		return "", nil, err
	}
	defer idle()
	stored, err := l.load(ctx)
	if err != nil {
		return "", nil, err
	}
	ch := l.challenge(ctx)
	site, old, err := l.site(ctx, stored, ch)
	if err != nil {
		return "", nil, err
	}
	page, p, err := l.begin(ctx, site, old, ch)
	if err != nil {
		return "", nil, err
	}
	if stored == nil || stored.Access == "" { // so that the next login does not register another client
		if err := l.save(ctx, &grant{Issuer: site.Issuer, Client: p.Client, Scope: p.Scope}); err != nil {
			return "", nil, err
		}
	}
	begun, err = json.Marshal(p)
	return page, begun, err
}

// FinishLogin ends a login with the query of the redirect, and stores it.
func (t HTTP) FinishLogin(ctx context.Context, begun []byte, redirect url.Values) error {
	l, idle, err := t.newLogin()
	if err != nil {
		return err
	}
	defer idle()
	var p pending
	if err := json.Unmarshal(begun, &p); err != nil {
		return err
	}
	g, err := l.finish(ctx, &p, redirect)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // the code has been used
	unlock, err := l.cfg.Store.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return l.save(ctx, g)
}

func (t HTTP) newLogin() (l *login, idle func(), err error) {
	if t.OAuth == nil || t.OAuth.RedirectURL == "" {
		return nil, nil, errors.New("HTTP.OAuth.RedirectURL is missing; set it to the page for the redirect")
	}
	var cfg config
	if err := t.configure(&cfg); err != nil {
		return nil, nil, err
	}
	base, idle := baseTransport(&cfg)
	return newLogin(t.OAuth, cfg.url, base), idle, nil
}

// challenge returns how the server refuses a request without a token.
func (l *login) challenge(ctx context.Context) (ch challenge) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.server.String(), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return ch
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := l.http.Do(req)
	if err != nil {
		return ch // discovery returns the error
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized {
		ch = challengeOf(res)
	}
	return ch
}
