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

	"github.com/kitbag-go/kitbag/mcpserver/oauth"
)

// A browser goes through the following pages. Each redirect carries a state, and the step that it belongs to is in a cookie
// of the browser that began it, sealed: a redirect is of no use in another browser, and no replica has to remember it.
//
//  1. The start page says to which server, and has a button for each of the gateway's own issuers.
//  2. The button leads to the issuer, which redirects to its callback: now it is known who the user is.
//  3. The callback leads to the authorization server of the MCP server, which redirects to the callback of that server. The
//     tokens that it gets are those of the user of step 2, whoever made the link of step 1.
//
// Each has a callback of its own, so that the answer of one authorization server is not mistaken for that of another
// (mix-up attack).
const (
	connectPath  = "/oauth/connect"
	callbackPath = "/oauth/callback"
	clientPath   = "/oauth/client" // the client ID metadata documents

	stepTime  = 45 * time.Second // for the requests of one page to authorization servers
	maxSteps  = 32               // pages at a time that make such requests
	maxCookie = 4000             // bytes; browsers drop longer ones
	maxForm   = 4 << 10
)

// A loginStep is what a browser brings back to the callback.
type loginStep struct {
	Server   string
	Logout   bool
	Issuer   string // in step 2
	User     string // in step 3
	Callback string // the URL
	Begun    []byte // of mcpclient.HTTP.BeginLogin
	Expires  time.Time
}

func (l *logins) page(server string) string {
	return l.origin + connectPath + "?" + url.Values{"server": {server}}.Encode()
}

// An authenticator also serves the pages for logins.
type authenticator struct {
	*oauth.ResourceServer
	logins *logins
}

// Wrap is called by [mcpserver.Server.Handler].
func (a authenticator) Wrap(next http.Handler) http.Handler {
	mux, others := http.NewServeMux(), a.ResourceServer.Wrap(next)
	busy := make(chan struct{}, maxSteps)
	page := func(serve func(http.ResponseWriter, *http.Request) error) http.Handler {
		return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), stepTime)
			defer cancel()
			conn, end := http.NewResponseController(w), time.Now().Add(stepTime)
			_, _ = conn.SetReadDeadline(end), conn.SetWriteDeadline(end.Add(time.Second))
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			_ = r.ParseForm() // first, since a slow body must not count as busy; without the form no server is found
			select {
			case busy <- struct{}{}:
				defer func() { <-busy }()
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

// client serves the client ID metadata document for a server, for authorization servers that support it.
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

// start serves the start page. It changes nothing, because programs may fetch a link without the user.
func (l *logins) start(w http.ResponseWriter, r *http.Request) error {
	server := r.URL.Query().Get("server")
	if _, err := l.find(server, ""); err != nil {
		return err
	}
	form := ""
	for _, issuer := range slices.Sorted(maps.Keys(l.identify)) {
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
	page, begun, err := l.identify[step.Issuer].BeginLogin(r.Context()) // fails for an unknown issuer
	if err != nil {
		return err
	}
	if l.audience != "" {
		page += "&" + url.Values{"audience": {l.audience}}.Encode()
	}
	step.Begun = begun
	return l.redirect(w, r, page, step)
}

// redirect sends the browser to the page of an authorization server.
func (l *logins) redirect(w http.ResponseWriter, r *http.Request, page string, step loginStep) error {
	u, err := url.Parse(page)
	if err != nil {
		return err
	}
	step.Callback, step.Expires = u.Query().Get("redirect_uri"), time.Now().Add(loginTime)
	data, err := json.Marshal(step)
	if err != nil {
		return err
	}
	c := l.cookie(u.Query().Get("state"))
	c.Value = base64.RawURLEncoding.EncodeToString(l.seal.Seal(nil, nil, data, []byte(c.Name)))
	c.MaxAge = int(loginTime.Seconds())
	if len(c.Value) > maxCookie {
		return fmt.Errorf("the metadata of the authorization server of %q is too long", step.Server)
	}
	http.SetCookie(w, c)
	setHeaders(w)
	http.Redirect(w, r, page, http.StatusSeeOther)
	return nil
}

// cookie returns the cookie of a step. Each has a name of its own, so that a user can log in on several tabs.
func (l *logins) cookie(state string) *http.Cookie {
	sum := sha256.Sum256([]byte(state))
	c := &http.Cookie{Name: "kitbag-" + hex.EncodeToString(sum[:8]), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if strings.HasPrefix(l.origin, "https:") {
		c.Name, c.Secure = "__Host-"+c.Name, true // no other host can set it
	}
	return c
}

var errNotBegun = errors.New("the redirect belongs to no login that this browser has begun, or to one that has expired or was already used")

// callback is where both authorization servers redirect to.
func (l *logins) callback(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	state := q.Get("state")
	spent := l.cookie(state)
	c, err := r.Cookie(spent.Name)
	if err != nil {
		return errNotBegun
	}
	spent.MaxAge = -1
	http.SetCookie(w, spent)
	var step loginStep
	sealed, _ := base64.RawURLEncoding.DecodeString(c.Value)
	data, err := l.seal.Open(nil, nil, sealed, []byte(spent.Name))
	if err != nil || json.Unmarshal(data, &step) != nil || time.Now().After(step.Expires) || step.Callback != l.origin+r.URL.EscapedPath() {
		return errNotBegun
	}
	if first, err := l.brief.Swap(r.Context(), "login-spent/"+spent.Name, nil, []byte{1}, 2*loginTime); err != nil || !first {
		return errors.Join(errNotBegun, err)
	}
	if step.User == "" {
		return l.continueToServer(w, r, step)
	}
	login, err := l.find(step.Server, step.User)
	if err != nil {
		return err
	}
	login.fresh = true
	if _, err := login.transport().FinishLogin(r.Context(), step.Begun, q); err != nil {
		return fmt.Errorf("MCP server %q: %w", step.Server, err)
	}
	l.gateway.Toolkit.Refresh()
	show(w, http.StatusOK, fmt.Sprintf("Logged in to %q for %s. You can close this page.", step.Server, step.User), "")
	return nil
}

// continueToServer ends step 2, which shows who the user is, and begins step 3 or logs the user out.
func (l *logins) continueToServer(w http.ResponseWriter, r *http.Request, step loginStep) error {
	token, err := l.identify[step.Issuer].FinishLogin(r.Context(), step.Begun, r.URL.Query())
	if err != nil {
		return fmt.Errorf("the login at the gateway: %w", err)
	}
	id, err := l.gateway.auth.Authenticate((&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}).WithContext(r.Context()))
	if err != nil {
		return fmt.Errorf("the login at the gateway: %w", err)
	}
	if !strings.HasPrefix(id.Name, step.Issuer+" ") {
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

// setHeaders sets what keeps the page and its URL, which may have a code, from others.
func setHeaders(w http.ResponseWriter) {
	for name, value := range map[string]string{"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'", "X-Content-Type-Options": "nosniff"} {
		w.Header().Set(name, value)
	}
}

// show writes a page: a text, and HTML that follows it.
func show(w http.ResponseWriter, status int, text, more string) {
	setHeaders(w)
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Login</title>
<p>%s</p>%s
`, html.EscapeString(text), more) // fails if the browser has left
}
