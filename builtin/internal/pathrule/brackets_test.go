package pathrule

import (
	"path"
	"strings"
	"testing"
)

// TestShellPattern checks brackets against bash 5.2's [[ name == pattern ]]: a pattern must match each of the
// first letters, and none of the second.
func TestShellPattern(t *testing.T) {
	for _, row := range []struct{ pattern, yes, no string }{
		{"[ab]", "ab", "c]!^-["}, {"[a-c]", "abc", "]!^-["}, {"[!a]", "bc]!^-[", "a"}, {"[^a]", "bc]!^-[", "a"}, {"[a!]", "a!", "bc]^-["}, {"[!^a]", "bc]!-[", "^a"},
		{"[[:alpha:]]", "abc", ""}, {"[![:alpha:]]", "]!^-[", ""}, {"[[:lower:]b]", "abc", ""}, {"[[.a.]]", "a", ""}, {"[[=a=]]", "a", ""}, {"[]]", "]", ""}, {"[!]]", "abc", ""},
		{"[]a]", "]a", ""}, {"[!]a]", "bc!^-[", ""}, {"[-]", "-", ""}, {"[a-]", "a-", ""}, {"[-a]", "a-", ""}, {"[[]", "[", ""}, {"[a[]", "a[", ""},
		{`[\]]`, "]", "abc!^-["}, {`[a\]]`, "a]", "bc!^-["}, {`[\a-\c]`, "abc", "]!^-["}, {`[a\-c]`, "a-c", "b]!^["},
		{"[", "[", "abc]!^-"}, {`\[`, "[", "abc]!^-"}, {"a", "a", "bc]!^-["},
	} {
		for yes, letters := range map[bool]string{true: row.yes, false: row.no} {
			for _, c := range letters {
				if got, err := path.Match(ShellPattern(row.pattern), string(c)); got != yes || err != nil {
					t.Errorf("%s, as %s: %c: %v, %v", row.pattern, ShellPattern(row.pattern), c, got, err)
				}
			}
		}
	}
	for _, row := range []struct{ pattern, name string }{
		{"[]", "[]"}, {"[!]", "[!]"}, {"[^]", "[^]"}, {"a[b", "a[b"}, {"[a][", "a["}, {"[[:alpha]", "l"}, {`[\]`, "[]"},
		{".en[[:lower:]]*", ".env.x"}, {"[[:digit:]][!a]", "1b"}, {`\[[a]`, "[a"}, {`\\[a]`, `\a`},
	} {
		if got, err := path.Match(ShellPattern(row.pattern), row.name); !got || err != nil {
			t.Errorf("%s, as %s: %s: %v, %v", row.pattern, ShellPattern(row.pattern), row.name, got, err)
		}
	}
}

// TestBracketsHideNothing checks that a secret is found behind every kind of brackets.
func TestBracketsHideNothing(t *testing.T) {
	at := tree("/w/.env", "/w/id_rsa", "/w/main.go")
	for _, glob := range []string{"/w/.en[[:alpha:]]", "/w/.en[]v]", "/w/.en[!a]", "/w/id_rs[[=a=]]", "/w/id[_-]rsa", "/w/i[[:lower:]]_rsa"} {
		if SecretGlob(glob) == "" || !MayBeSecret(glob[len("/w/"):]) {
			t.Errorf("SecretGlob(%q) finds nothing", glob)
		}
		if names, _ := at.Glob(glob); len(names) != 1 {
			t.Errorf("Glob(%q) = %q", glob, names)
		}
	}
	for _, pattern := range []string{".EN[[:alpha:]]", ".en[!a]", "[]x.]env"} {
		if at.SecretAmong("/w", true, []string{pattern}) == "" {
			t.Errorf("SecretAmong of %q finds nothing", pattern)
		}
	}
	for _, glob := range []string{"/w/.bashr[[:lower:]]", "/w/.gi[]t]/hooks/x", "/w/.zsh[!a]c"} {
		if len(Likely(glob)) == 0 {
			t.Errorf("Likely(%q) finds nothing", glob)
		}
	}
}

// TestLikely checks that a pattern finds the protected names that it matches, in their directory, and no others.
func TestLikely(t *testing.T) {
	for glob, want := range map[string]string{
		"/home/u/.b*rc": "/home/u/.bashrc", "/home/u/.HUSK?/pre": "/home/u/.husky/pre", "/w/.gi[t]/hooks/x": "/w/.git/hooks/x", "/w/*rc": "", "/w/.x*": "/w/.xinitrc /w/.xprofile /w/.xsession /w/.xsessionrc", "/w/.bashrc": "",
	} {
		if got := strings.Join(Likely(glob), " "); got != want {
			t.Errorf("Likely(%q) = %q, want %q", glob, got, want)
		}
	}
}
