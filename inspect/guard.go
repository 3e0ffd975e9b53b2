package inspect

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/kitbag-go/kitbag/internal/hostcheck"
)

// cookieName is the cookie that the token is exchanged for. It has no Path: the browser sends it to the directory
// of the page only.
const cookieName = "kitbag_inspect"

// policy is the Content-Security-Policy: files of this handler only, and no text that is parsed as HTML or script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard reports whether a request may be served, and otherwise answers it.
func (h *Handler) guard(w http.ResponseWriter, r *http.Request) bool {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	refuse := func(code int, why string) bool {
		http.Error(w, why, code)
		return false
	}
	switch {
	case !hostcheck.LocalOrAddress(r.Host, h.opts.Hosts):
		return refuse(http.StatusMisdirectedRequest, "This page is not served under this name. Use localhost or an address, or add the name to the hosts of the handler.")
	case !sameOrigin(r):
		return refuse(http.StatusForbidden, "The request comes from another site.")
	}
	if token := r.URL.Query().Get("token"); token != "" && r.Method == http.MethodGet {
		if subtle.ConstantTimeCompare([]byte(token), []byte(h.opts.Token)) != 1 {
			return refuse(http.StatusForbidden, "The token is wrong. Open the URL that was printed when the server was started.")
		}
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: h.cookie(), HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
		head.Set("Location", "./") // relative, so that it is right under any prefix
		w.WriteHeader(http.StatusSeeOther)
		return false
	}
	c, err := r.Cookie(cookieName)
	if err != nil || subtle.ConstantTimeCompare([]byte(c.Value), []byte(h.cookie())) != 1 {
		return refuse(http.StatusForbidden, "Open the URL that was printed when the server was started: it has the token.")
	}
	if r.Method == http.MethodPost {
		// Forms of other sites cannot send this type without being asked for permission first.
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return refuse(http.StatusUnsupportedMediaType, "The Content-Type must be application/json.")
		}
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	}
	return true
}

// cookie returns the value of the cookie. The token cannot be computed from it.
func (h *Handler) cookie() string {
	mac := hmac.New(sha256.New, []byte(h.opts.Token))
	mac.Write([]byte("cookie"))
	return hex.EncodeToString(mac.Sum(nil))
}

// sameOrigin reports whether a request was made by this page or by the user. A browser sends an Origin with each
// request that another site makes with a script, and says in Sec-Fetch-Site of the others where they come from.
func sameOrigin(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		return err == nil && u.User == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	// A link of another site to the page itself; the browser does not send the strict cookie with it.
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate"
}
