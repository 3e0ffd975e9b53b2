package mcpclient

import (
	"log/slog"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/internal/envref"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// Secrets belong in the environment, with ${NAME} in the configuration file. A configuration file that has a secret
// anyway should be readable only by its owner.

var (
	// secretName matches usual names of variables, headers and flags for secrets.
	secretName = lazy.Regexp(`(?i)(token|secret|passw|authorization|cookie|credential|api[-_]?key|access[-_]?key|private[-_]?key|[-_]key$|[-_]pat$)`)

	// tokenPrefix matches values that begin like well-known tokens.
	tokenPrefix = lazy.Regexp(`^(sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA[0-9A-Z]{12}|npm_|hf_|eyJ[\w-]+\.)`)

	// authScheme matches the scheme before the secret in a header.
	authScheme = lazy.Regexp(`(?i)^(bearer|basic|token)\b`)
)

// publicURL returns a URL without the user and the query, which may be secrets.
func publicURL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// A cleanError is an error without the secrets in its text.
type cleanError struct {
	error
	text string
}

func (e *cleanError) Error() string { return e.text }
func (e *cleanError) Unwrap() error { return e.error }

// withoutURLSecrets returns err without the user and the query of the server's URL: package net/http quotes URLs.
func (c *config) withoutURLSecrets(err error) error {
	if c.url == nil || c.url.User == nil && c.url.RawQuery == "" {
		return err
	}
	text := err.Error()
	for _, secret := range []string{c.url.User.String() + "@", c.url.User.Username() + ":***@", "?" + c.url.RawQuery} {
		if len(secret) > 1 {
			quoted := strconv.Quote(secret)
			text = strings.NewReplacer(secret, "", quoted[1:len(quoted)-1], "").Replace(text)
		}
	}
	return &cleanError{err, text}
}

// isLiteral reports whether a value has text besides ${NAME} and an authentication scheme, such as a default in ${NAME:-text}.
func isLiteral(value string) bool {
	value = envref.Defaults(value)
	return strings.TrimSpace(authScheme().ReplaceAllString(strings.TrimSpace(value), "")) != ""
}

// looksSecret reports whether a value looks like a secret. The name is "url" for a server's URL, and "" for an argument.
func looksSecret(name, value string) bool {
	switch name {
	case "url":
		u, err := url.Parse(value)
		if err != nil {
			return false
		}
		if password, ok := u.User.Password(); ok && isLiteral(password) {
			return true
		}
		for param, values := range u.Query() {
			if secretName().MatchString(param) && isLiteral(strings.Join(values, "")) {
				return true
			}
		}
		return false
	case "":
		flag, flagValue, ok := strings.Cut(value, "=")
		return tokenPrefix().MatchString(value) || ok && strings.HasPrefix(flag, "-") && looksSecret(flag, flagValue)
	}
	return tokenPrefix().MatchString(value) || secretName().MatchString(name) && isLiteral(value)
}

// warnIfReadable warns about a file with secrets that other users can read. places are the members that have the secrets.
func warnIfReadable(path string, places []string) {
	info, err := os.Stat(path)
	if len(places) == 0 || err != nil || runtime.GOOS == "windows" || info.Mode().Perm()&0o044 == 0 {
		return
	}
	slog.Warn("other users of this machine can read secrets in a file of MCP servers; "+
		"write ${NAME} there and set NAME in the environment, or let only the owner read the file (chmod 600)",
		"file", path, "keys", strings.Join(places, ", "))
}
