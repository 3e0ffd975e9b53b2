package provider

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/kitbag-go/kitbag/model"
)

// Remedy tells the reader of an error for a wrong key, for a redirect, or for an unknown path or model, what to change.
// vendor is the beginning of the names of the environment variables, and keySource the result of [KeySource].
func Remedy(err error, vendor, keySource, baseURL, modelName string) {
	e, ok := errors.AsType[*model.Error](err)
	switch {
	case !ok:
	case e.Kind == model.KindAuthentication:
		AddRemedy(e, fmt.Sprintf("check %s, which must be a key for %s", keySource, PublicURL(baseURL)))
	case e.Status/100 == 3:
		AddRemedy(e, fmt.Sprintf("set Config.BaseURL (%s_BASE_URL) to the address to which %s redirects; a key is not sent to another host", vendor, PublicURL(baseURL)))
	case e.Status == http.StatusNotFound && e.Kind == model.KindInvalidRequest:
		AddRemedy(e, fmt.Sprintf("check Config.Model (KITBAG_MODEL), now %q, and Config.BaseURL (%s_BASE_URL), now %s", modelName, vendor, PublicURL(baseURL)))
	}
}

// KeySource names the setting that the key for a server comes from. headers are those that may have a key.
func KeySource(header http.Header, vendor string, headers ...string) string {
	for _, h := range headers {
		if header.Get(h) != "" {
			return "the " + h + " in Config.Header"
		}
	}
	return "Config.Key (" + vendor + "_API_KEY)"
}

// AddRemedy appends to the message of an error what to do.
func AddRemedy(e *model.Error, remedy string) {
	e.Message = strings.TrimSuffix(e.Message, ".") + "; " + remedy
}

// PublicURL returns a base URL without the user, password and query, which may be secret.
func PublicURL(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" { // only for the error of New
		base, _, _ = strings.Cut(base, "?")
		return base[strings.LastIndex(base, "@")+1:]
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
