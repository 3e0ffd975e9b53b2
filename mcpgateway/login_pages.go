package mcpgateway

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
)

// A login has three steps in the user's browser:
//
//  1. The start page names the MCP server, and has a button for each of the gateway's own issuers.
//  2. The button leads to the issuer, where the user logs in. The issuer redirects to the gateway, which then knows the user.
//  3. The gateway redirects to the authorization server of the MCP server, which redirects to the gateway again. The tokens
//     that the gateway then gets belong to the user of step 2, whoever made the link to the start page.
//
// During step 2 or 3 an encrypted cookie has the data of the step. The state in the redirect to the gateway determines the
// cookie. Therefore a redirect is useless in another browser, and the replicas need not share steps.
//
// Each issuer and each server has its own callback URL, so that the answer of one authorization server is not mistaken for
// the answer of another (mix-up attack).
const (
	connectPath  = "/oauth/connect"
	callbackPath = "/oauth/callback"
	clientPath   = "/oauth/client" // the client ID metadata documents

	pageTime  = 45 * time.Second // the time limit for a page, which may wait for authorization servers
	maxPages  = 32               // how many pages are served at a time
	maxCookie = 4000             // in bytes; browsers drop longer cookies
	maxForm   = 4 << 10          // in bytes
)

// A loginStep is the content of the cookie of step 2 or 3.
type loginStep struct {
	Server   string
	Logout   bool
	Issuer   string // only in step 2
	User     string // only in step 3
	Callback string // the URL to which the authorization server redirects
	Begun    []byte // what mcpclient.HTTP.BeginLogin returned, for FinishLogin
	Expires  time.Time
}

// startURL returns the URL of the start page.
func (l *logins) startURL(server string) string {
	return l.origin + connectPath + "?" + url.Values{"server": {server}}.Encode()
}

// A loginAuthenticator is a ResourceServer that also serves the pages for logins.
type loginAuthenticator struct {
	mcpserver.ResourceServer
	logins *logins
}

// Wrap is called by [mcpserver.Server.Handler].
func (a loginAuthenticator) Wrap(next http.Handler) http.Handler {
	mux, others := http.NewServeMux(), a.ResourceServer.Wrap(next)
	serving := make(chan struct{}, maxPages)
	page := func(serve func(http.ResponseWriter, *http.Request) error) http.Handler {
		return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), pageTime)
			defer cancel()
			conn, end := http.NewResponseController(w), time.Now().Add(pageTime)
			_, _ = conn.SetReadDeadline(end), conn.SetWriteDeadline(end.Add(time.Second)) // fail if w has no deadlines
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			_ = r.ParseForm() // not within the limit of maxPages, since the body may be slow; without a form serve finds no server
			select {
			case serving <- struct{}{}:
				defer func() { <-serving }()
			default:
				show(w, http.StatusServiceUnavailable, "Too many logins at the moment. Try again.", "")
				return
			}
			if err := serve(w, r.WithContext(ctx)); err != nil {
				slog.InfoContext(ctx, "a login has failed", "err", err)
				show(w, http.StatusBadRequest, "The login has failed. Start again from the link that you were given.", "")
			}
		}))
	}
	mux.Handle("GET "+connectPath, page(a.logins.start))
	mux.Handle("POST "+connectPath, page(a.logins.connect))
	mux.Handle("GET "+callbackPath, page(a.logins.callback))
	mux.Handle("GET "+callbackPath+"/", page(a.logins.callback))
	mux.Handle("GET "+clientPath+"/{server}", page(a.logins.client))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

// client serves the gateway's client ID metadata document for a server, for authorization servers that support such
// documents.
func (l *logins) client(w http.ResponseWriter, r *http.Request) error {
	login, err := l.find(r.PathValue("server"), "")
	if err != nil {
		return err
	}
	o := login.transport().OAuth
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{"client_id": l.origin + r.URL.EscapedPath(), "client_name": "kitbag gateway", "redirect_uris": []string{o.RedirectURL},
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"}, "token_endpoint_auth_method": "none"})
}

// start serves the start page. A GET changes nothing, because programs may fetch a link without the user.
func (l *logins) start(w http.ResponseWriter, r *http.Request) error {
	server := r.URL.Query().Get("server")
	if _, err := l.find(server, ""); err != nil {
		return err
	}
	form := ""
	for _, issuer := range slices.Sorted(maps.Keys(l.issuers)) {
		form += fmt.Sprintf(`<form method="post" action="`+connectPath+`"><input type="hidden" name="server" value="%s"><input type="hidden" name="issuer" value="%s">
%[2]s: <button>Log in</button> <button name="do" value="logout">Log out</button></form>
`, html.EscapeString(server), html.EscapeString(issuer))
	}
	show(w, http.StatusOK, fmt.Sprintf("A program asks you to log in to %q. First you log in here, so that only you can use your account there.", server), form)
	return nil
}

// connect begins step 2, or a logout, when the user presses a button of the start page.
func (l *logins) connect(w http.ResponseWriter, r *http.Request) error {
	step := loginStep{Server: r.PostFormValue("server"), Logout: r.PostFormValue("do") == "logout", Issuer: r.PostFormValue("issuer")}
	if _, err := l.find(step.Server, ""); err != nil {
		return err
	}
	page, begun, err := l.issuers[step.Issuer].BeginLogin(r.Context()) // fails for an unknown issuer
	if err != nil {
		return err
	}
	if l.audience != "" {
		page += "&" + url.Values{"audience": {l.audience}}.Encode()
	}
	step.Begun = begun
	return l.redirect(w, r, page, step)
}

// redirect sends the browser to the page of an authorization server, with the cookie of the step.
func (l *logins) redirect(w http.ResponseWriter, r *http.Request, page string, step loginStep) error {
	u, err := url.Parse(page)
	if err != nil {
		return err
	}
	step.Callback, step.Expires = u.Query().Get("redirect_uri"), time.Now().Add(stepTime)
	data, err := json.Marshal(step)
	if err != nil {
		return err
	}
	c := l.cookie(u.Query().Get("state"))
	c.Value = base64.RawURLEncoding.EncodeToString(l.seal.Seal(nil, nil, data, []byte(c.Name)))
	c.MaxAge = int(stepTime.Seconds())
	if len(c.Value) > maxCookie {
		return fmt.Errorf("the metadata of the authorization server of %q is too long", step.Server)
	}
	http.SetCookie(w, c)
	setHeaders(w)
	http.Redirect(w, r, page, http.StatusSeeOther)
	return nil
}

// cookie returns the cookie of a step, without a value. The name depends on the state, so that a user can log in on several
// tabs.
func (l *logins) cookie(state string) *http.Cookie {
	sum := sha256.Sum256([]byte(state))
	c := &http.Cookie{Name: "kitbag-" + hex.EncodeToString(sum[:8]), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if strings.HasPrefix(l.origin, "https:") {
		c.Name, c.Secure = "__Host-"+c.Name, true // no other host can set it
	}
	return c
}

var errNotBegun = errors.New("this browser has begun no login with the state of the redirect, or the login has expired or was already used")

// callback serves the redirects at the end of steps 2 and 3.
func (l *logins) callback(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	deletion := l.cookie(q.Get("state"))
	name := deletion.Name
	c, err := r.Cookie(name)
	if err != nil {
		return errNotBegun
	}
	deletion.MaxAge = -1
	http.SetCookie(w, deletion)
	var step loginStep
	sealed, _ := base64.RawURLEncoding.DecodeString(c.Value) // Open fails for an invalid value
	data, err := l.seal.Open(nil, nil, sealed, []byte(name))
	if err != nil || json.Unmarshal(data, &step) != nil || time.Now().After(step.Expires) || step.Callback != l.origin+r.URL.EscapedPath() {
		return errNotBegun
	}
	// The browser need not delete the cookie. The store remembers that the cookie was used until the step has expired.
	if first, err := l.transient.Swap(r.Context(), "login-spent/"+name, nil, []byte{1}, 2*stepTime); err != nil || !first {
		return errors.Join(errNotBegun, err)
	}
	if step.User == "" {
		return l.continueToServer(w, r, step)
	}
	login, err := l.find(step.Server, step.User)
	if err != nil {
		return err
	}
	login.newlyLoggedIn = true
	if _, err := login.transport().FinishLogin(r.Context(), step.Begun, q); err != nil {
		return fmt.Errorf("MCP server %q: %w", step.Server, err)
	}
	l.gateway.Toolkit.Refresh()
	show(w, http.StatusOK, fmt.Sprintf("Logged in to %q for %s. You can close this page.", step.Server, step.User), "")
	return nil
}

// continueToServer ends step 2 and begins step 3, or logs the user out.
func (l *logins) continueToServer(w http.ResponseWriter, r *http.Request, step loginStep) error {
	token, err := l.issuers[step.Issuer].FinishLogin(r.Context(), step.Begun, r.URL.Query())
	if err != nil {
		return fmt.Errorf("the login at the gateway: %w", err)
	}
	// The same check as for a client that sends this token.
	id, err := l.gateway.auth.Authenticate((&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}).WithContext(r.Context()))
	if err != nil {
		return fmt.Errorf("the login at the gateway: %w", err)
	}
	if !strings.HasPrefix(id.Name, step.Issuer+" ") { // the name is ISSUER SUBJECT
		return fmt.Errorf("the login at the gateway: %s has sent a token of another issuer", step.Issuer)
	}
	login, err := l.find(step.Server, id.Name)
	if err != nil {
		return err
	}
	if step.Logout {
		if err := login.remove(r.Context()); err != nil {
			return err
		}
		show(w, http.StatusOK, fmt.Sprintf("The gateway has forgotten the login to %q of %s.", step.Server, id.Name), "")
		return nil
	}
	page, begun, err := login.transport().BeginLogin(r.Context())
	if err != nil {
		return fmt.Errorf("MCP server %q: %w", step.Server, err)
	}
	return l.redirect(w, r, page, loginStep{Server: step.Server, User: id.Name, Begun: begun})
}

// setHeaders keeps the page and its URL, which may contain an authorization code, from caches and other sites.
func setHeaders(w http.ResponseWriter) {
	for name, value := range map[string]string{"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'", "X-Content-Type-Options": "nosniff"} {
		w.Header().Set(name, value)
	}
}

// show writes a page with a text and, after it, the HTML of a form, which may be empty.
func show(w http.ResponseWriter, status int, text, form string) {
	setHeaders(w)
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Login</title>
<p>%s</p>%s
`, html.EscapeString(text), form) // fails if the browser has disconnected
}
