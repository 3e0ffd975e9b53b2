package builtin

import (
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/builtin/internal/shell"
	"github.com/kitbag-go/kitbag/redact"
)

// environ returns the environment of a command that was not judged: that of this process without credentials,
// pagers, editors and variables that make programs load or run something.
func (c *Config) environ() []string { return shell.Environ(c.withoutCredentials(os.Environ())) }

// minSecret is how many bytes a value of Config.Secrets must have: a shorter one occurs by chance.
const minSecret = 6

func (c *Config) withoutCredentials(base []string) []string {
	return slices.DeleteFunc(slices.Clone(base), func(kv string) bool {
		name, value, _ := strings.Cut(kv, "=")
		inValue := func(secret string) bool { return len(secret) >= minSecret && strings.Contains(value, secret) }
		if slices.ContainsFunc(c.Secrets, inValue) {
			return true
		}
		return !slices.Contains(c.KeepEnv, name) && (credentialName(name) || credentialValue(value))
	})
}

// Words, suffixes and parts of the names of credentials. [pathrule.SecretVariable] has fewer, since there a match asks
// the user, and a needless question costs more than a variable that is removed needlessly.
var (
	credentialWords = []string{"KEY", "KEYS", "PAT", "COOKIES", "DSN"}
	credentialEnds  = []string{"APIKEY", "ACCESSKEY", "PRIVATEKEY", "_PWD"}
	credentialParts = []string{"PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "CREDENTIAL"}
)

// credentialName reports whether the name suggests a credential.
func credentialName(name string) bool {
	name = strings.ToUpper(name)
	switch {
	case strings.HasPrefix(name, "AWS_"):
		return true
	case name == "SSH_AUTH_SOCK": // the agent behind the socket does not reveal keys
		return false
	}
	return pathrule.SecretVariable(name) ||
		slices.ContainsFunc(strings.Split(name, "_"), func(word string) bool { return slices.Contains(credentialWords, word) }) ||
		slices.ContainsFunc(credentialEnds, func(end string) bool { return strings.HasSuffix(name, end) }) ||
		slices.ContainsFunc(credentialParts, func(part string) bool { return strings.Contains(name, part) })
}

var secretDetector = sync.OnceValue(func() *redact.Redactor {
	r, err := redact.New(redact.Rules()...)
	if err != nil {
		panic(err) // cannot happen with the built-in rules
	}
	return r
})

// credentialValue reports whether value is or contains something that looks like a key. Paths often look like keys, and
// are not searched.
func credentialValue(value string) bool {
	return !strings.HasPrefix(value, "/") && secretDetector().Text(value) != value
}
