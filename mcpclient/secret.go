package mcpclient

import (
	"log/slog"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/kitbag-go/kitbag/internal/envref"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// Secrets belong in the environment, with ${NAME} in the file. A file that has a secret anyway should be
// readable only by its owner.

var (
	// secretName matches usual names of variables, headers and flags for secrets.
	secretName = lazy.Regexp(`(?i)(token|secret|passw|authorization|cookie|credential|api[-_]?key|access[-_]?key|private[-_]?key|[-_]key$|[-_]pat$)`)

	// tokenPrefix matches values that begin like well-known tokens.
	tokenPrefix = lazy.Regexp(`^(sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA[0-9A-Z]{12}|npm_|hf_|eyJ[\w-]+\.)`)

	// authScheme matches the scheme before the secret in a header.
	authScheme = lazy.Regexp(`(?i)^(bearer|basic|token)\b`)
)

// isLiteral reports whether the file has a value itself, not only the name of a variable.
func isLiteral(value string) bool {
	value = envref.Defaults(value)
	return strings.TrimSpace(authScheme().ReplaceAllString(strings.TrimSpace(value), "")) != ""
}

// looksSecret reports whether a value with that name looks like a secret.
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
		for k, vs := range u.Query() {
			if secretName().MatchString(k) && isLiteral(strings.Join(vs, "")) {
				return true
			}
		}
		return false
	case "": // an argument
		flag, v, ok := strings.Cut(value, "=")
		return tokenPrefix().MatchString(value) || ok && strings.HasPrefix(flag, "-") && looksSecret(flag, v)
	}
	return tokenPrefix().MatchString(value) || secretName().MatchString(name) && isLiteral(value)
}

// warnIfReadable warns about a file with secrets that other users can read. keys are the places of the secrets.
func warnIfReadable(path string, keys []string) {
	info, err := os.Stat(path)
	if len(keys) == 0 || err != nil || runtime.GOOS == "windows" || info.Mode().Perm()&0o044 == 0 {
		return
	}
	slog.Warn("other users of this machine can read secrets in a file of MCP servers; "+
		"write ${NAME} there and set NAME in the environment, or let only the owner read the file (chmod 600)",
		"file", path, "keys", strings.Join(keys, ", "))
}
