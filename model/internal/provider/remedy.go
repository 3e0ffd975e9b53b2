package provider

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/kitbag-go/kitbag/model"
)

// Remedy adds what to change to an error for a wrong key, or for an unknown path or model. key is the result of
// [KeySource], and vendor the beginning of the names of the environment variables.
func Remedy(err error, vendor, key, base, name string) {
	e, ok := errors.AsType[*model.Error](err)
	switch {
	case !ok:
	case e.Kind == model.KindAuthentication:
		AddRemedy(e, fmt.Sprintf("check %s, which must be a key for %s", key, PublicURL(base)))
	case e.Status == http.StatusNotFound && e.Kind == model.KindInvalidRequest:
		AddRemedy(e, fmt.Sprintf("check Config.Model (KITBAG_MODEL), now %q, and Config.BaseURL (%s_BASE_URL), now %s", name, vendor, PublicURL(base)))
	}
}

// KeySource names where the key for a server comes from.
func KeySource(header http.Header, vendor string, headers ...string) string {
	for _, h := range headers {
		if header.Get(h) != "" {
			return "the " + h + " in Config.Header"
		}
	}
	return "Config.Key (" + vendor + "_API_KEY)"
}

// AddRemedy adds to an error what to do.
func AddRemedy(e *model.Error, remedy string) {
	e.Message = strings.TrimSuffix(e.Message, ".") + "; " + remedy
}

// PublicURL returns a base URL without the user, password and query, which may be secret.
func PublicURL(base string) string {
	u, err := url.Parse(base)
	if err != nil { // no model is made with such a URL
		return "the server"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
