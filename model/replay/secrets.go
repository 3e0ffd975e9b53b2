package replay

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// redacted replaces secrets.
const redacted = "REDACTED"

// secrets is a list of texts that must not be written to a file.
type secrets []string

func (s secrets) clean(text []byte) []byte {
	for _, secret := range s {
		text = bytes.ReplaceAll(text, []byte(secret), []byte(redacted))
	}
	return text
}

// secretsOf returns the parts of a request that are likely to be keys: the password in its URL, and the values of
// headers and query parameters with such names. The longest come first, as one may be a part of another.
func secretsOf(req *http.Request) secrets {
	var found secrets
	add := func(name string, values []string) {
		if !isSecretName(name) {
			return
		}
		for _, v := range values {
			for _, word := range strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(" ;,", r) }) {
				if len(word) >= 8 { // a shorter one may occur in a body by chance
					found = append(found, word)
				}
			}
		}
	}
	for name, values := range req.Header {
		add(name, values)
	}
	for name, values := range req.URL.Query() {
		add(name, values)
	}
	if password, ok := req.URL.User.Password(); ok {
		add("password", []string{password})
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return found
}

// isSecretName reports whether the name of a header or query parameter suggests that the value
// is a key. It errs on the side of replacing, which does no harm.
func isSecretName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "key", "token", "secret", "cookie", "sig", "password"},
		func(word string) bool { return strings.Contains(name, word) })
}
