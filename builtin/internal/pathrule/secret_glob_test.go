package pathrule

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSecretGlobOfPlaces checks that a pattern for hidden names matches a secret, with wildcards in any position.
func TestSecretGlobOfPlaces(t *testing.T) {
	for _, row := range []struct {
		glob   string
		secret bool
	}{
		{"/home/u/.k*/config", true}, {"/home/u/.k[u]be/config", true}, {"/home/u/.a?s/config", true}, {"/home/u/.s*/config", true}, {"/home/u/.ss*/config", false},
		{"/home/u/.docker/*", true}, {"/home/u/.dock*/*", true}, {"/home/u/.docker/*.json", true}, {"/home/u/.docker/*.yml", false}, {"/home/u/.docker/sub/*", false}, {"/home/u/.docke[r]", false},
		{"/home/u/.config/g*/hosts.yml", true}, {"/home/u/.config/*/hosts.yml", true}, {"/home/u/.config/gh/*", true}, {"/home/u/.config/gh/h*", true}, {"/home/u/.config/gh/x*", false},
		{"/home/u/.config/helm/*", true}, {"/home/u/.con*/helm/reg*", true}, {"/home/u/.config/*", false}, {"/.docker/*", true}, {"/.docker/c[o]nfig.json", true},
		{"/home/u/[.]docker/*", true}, {"/home/u/.gnupg/x*", true}, {"/home/u/.gnu*/x", true}, {"/home/u/gnupg/x*", false},
		{"/home/u/.cargo/*.toml", true}, {"/home/u/.ivy2/.cred*2", true}, {"/home/u/.ivy2/*s2", false},
	} {
		if got := SecretGlob(row.glob) != ""; got != row.secret {
			t.Errorf("SecretGlob(%q) = %v", row.glob, got)
		}
	}
}

// TestSecretGlobOfSecretNames checks that the name of a secret with wildcards for some letters is found, unless
// the pattern also matches ordinary names.
func TestSecretGlobOfSecretNames(t *testing.T) {
	secrets := []string{"/.ssh/x"}
	for _, part := range secretHiddenParts {
		if part = strings.TrimSuffix(part, "/"); !strings.HasSuffix(part, ".json") {
			secrets = append(secrets, part+"/x")
		}
		secrets = append(secrets, part)
	}
	for _, name := range secretFiles {
		secrets = append(secrets, "/sub/"+name)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := "/home/u" + rapid.SampledFrom(secrets).Draw(t, "secret")
		segs := strings.Split(name, "/")
		at := rapid.IntRange(3, len(segs)-1).Draw(t, "segment")
		seg := segs[at]
		i := rapid.IntRange(0, len(seg)-1).Draw(t, "letter")
		if i == 0 && seg[0] == '.' || seg[i] == '-' { // no wildcard matches the dot, and "[-]" is not a valid pattern
			return
		}
		segs[at] = seg[:i] + rapid.SampledFrom([]string{"?", "*", "[" + seg[i:i+1] + "]", "[^,]", "?*"}).Draw(t, "wildcard") + seg[i+1:]
		if vague(segs[at]) {
			return
		}
		if SecretName(name) == "" {
			t.Fatalf("%s is not secret", name)
		}
		if glob := strings.Join(segs, "/"); SecretGlob(glob) == "" {
			t.Fatalf("%s may match %s", glob, name)
		}
	})
}
