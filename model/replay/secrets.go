package replay

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
)

// redacted replaces secrets.
const redacted = "REDACTED"

// secrets matches texts that must not be written to a file; nil if there are none.
type secrets struct{ *regexp.Regexp }

func (s secrets) clean(text []byte) []byte {
	if s.Regexp == nil {
		return text
	}
	return s.ReplaceAllLiteral(text, []byte(redacted))
}

// secretsOf returns the parts of a request that are likely to be keys: the password in its URL, and the values of
// headers and query parameters with such names. The longest come first, as one may be a part of another.
func secretsOf(req *http.Request) secrets {
	var found []string
	add := func(name string, values []string) {
		if !isSecretName(name) {
			return
		}
		for _, v := range values {
			for _, word := range append(strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(" ;,", r) }), v) {
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
	if found == nil {
		return secrets{}
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	for i, secret := range found {
		found[i] = escapable(secret)
	}
	return secrets{regexp.MustCompile(strings.Join(found, "|"))}
}

// escapable returns a pattern for a text, in which each character may be escaped as in a JSON string.
func escapable(text string) string {
	var b strings.Builder
	for _, c := range text {
		b.WriteString("(?:" + regexp.QuoteMeta(string(c)))
		if strings.ContainsRune(`"\/`, c) {
			b.WriteString(`|\\` + regexp.QuoteMeta(string(c)))
		}
		b.WriteString("|")
		for _, unit := range utf16.Encode([]rune{c}) {
			fmt.Fprintf(&b, `\\u(?i:%04x)`, unit)
		}
		b.WriteString(")")
	}
	return b.String()
}

// isSecretName reports whether the name of a header or query parameter suggests that the value
// is a key. It errs on the side of replacing, which does no harm.
func isSecretName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "key", "token", "secret", "cookie", "sig", "password"},
		func(word string) bool { return strings.Contains(name, word) })
}
