package redact

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// fake returns a text that looks like a secret. It is made of pieces, so that scanners do
// not report this file.
func fake(prefix string, n int) string {
	const letters = "aB3dE5gH7jK2mN4pQ6rS"
	var b strings.Builder
	b.WriteString(prefix)
	for i := range n {
		b.WriteByte(letters[i%len(letters)])
	}
	return b.String()
}

func redactor(t testing.TB, rules ...Rule) *Redactor {
	t.Helper()
	r, err := New(rules...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// secrets has an example for each rule.
var secrets = map[string][]string{
	"private-key": {
		"-----BEGIN " + "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,A1\n\nMIIE+/x=\nabc\n-----END RSA PRIVATE KEY-----",
		"-----BEGIN " + `OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA==\n-----END OPENSSH PRIVATE KEY-----`,
		"-----BEGIN " + "PRIVATE KEY-----\nMIIEvQIBADANBg",
		"-----BEGIN " + "PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2.0.22 (GNU/Linux)\nComment: Ada's key <ada@x.org>\n\nlQdGBF+/x=\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----",
		"-----BEGIN " + `PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v1.4.9 (MingW32)\n\nlQdGBF`,
		"-----BEGIN " + "RSA PRIVATE KEY-----\n-MIIE+/x\n-/abc\n-+abc\n------END RSA PRIVATE KEY-----",        // of a diff that removes it
		"-----BEGIN " + "RSA PRIVATE KEY-----\nmy_key.pem:2:MIIE\nmy_key.pem:3:-----END RSA PRIVATE KEY-----", // of grep
	},
	"jwt":                {fake("eyJ", 20) + fake(".eyJ", 20) + "." + fake("", 30)},
	"authorization":      {"Authorization: Basic " + fake("", 20) + "==", `"authorization": "token ` + fake("", 20), "Proxy-Authorization: Digest " + fake("", 9)},
	"bearer":             {"bearer " + fake("", 24), "Bearer\t" + fake("", 30) + "="},
	"url-password":       {"postgres://app:" + fake("", 8) + "@", "https://:" + fake("", 8) + "@", "redis+tls://u%20x:p%40ss@", "postgres://app:p@ss@word@"},
	"env":                {"DB_PASSWORD=" + fake("", 8), "MY_API_KEY_2='" + fake("", 4) + " " + fake("", 4) + "'", `SECRET="` + fake("", 9) + `"`, "TOKEN=" + fake("", 4)},
	"aws-secret":         {"aws_secret_access_key = " + fake("", 40), `"AwsSecretAccessKey":"` + fake("", 40), `"SecretAccessKey": "` + fake("", 40), `"SessionToken": "` + fake("", 200)},
	"aws-key-id":         {"AKIA" + "ABCDEFGH234567AB", "ASIA" + "ABCDEFGH234567AB"},
	"azure-key":          {"AccountKey=" + fake("", 86) + "=="},
	"google-key":         {fake("AIza", 35)},
	"google-oauth":       {fake("ya29.", 40), fake("GOCSPX-", 28)},
	"github-token":       {fake("ghp_", 36), fake("ghs_", 36), fake("github_pat_", 60)},
	"gitlab-token":       {fake("glpat-", 20), fake("glcbt-64_", 24)},
	"openai-key":         {fake("sk-", 48), fake("sk-proj-", 80), fake("sk-ant-api03-", 60)},
	"huggingface-token":  {fake("hf_", 34)},
	"slack-token":        {fake("xoxb-12345-", 24), fake("xoxe.xoxp-1-", 30), fake("xapp-1-", 30)},
	"slack-webhook":      {"hooks.slack.com/services/T0/B0/" + fake("", 24)},
	"stripe-key":         {fake("sk_live_", 24), fake("rk_test_", 24), fake("whsec_", 32)},
	"npm-token":          {fake("npm_", 36)},
	"pypi-token":         {fake("pypi-", 60)},
	"docker-token":       {fake("dckr_pat_", 27)},
	"digitalocean-token": {"dop_v1_" + strings.Repeat("0a1b", 16)},
	"sendgrid-key":       {fake("SG.", 22) + fake(".", 43)},
	"vault-token":        {fake("hvs.", 24)},
	"age-key":            {"AGE-SECRET-KEY-1" + strings.ToUpper(fake("", 58))},
}

// TestEveryRule finds each kind of secret at any position, completely, and names
// it.
func TestEveryRule(t *testing.T) {
	r := redactor(t, Rules()...)
	for _, rule := range Rules() {
		if rule.Source == "" || len(secrets[rule.Name]) == 0 {
			t.Errorf("%s: no source or no example", rule.Name)
		}
		for _, secret := range secrets[rule.Name] {
			want := placeholder(rule.Name)
			for _, around := range []string{"X", "a X b", "\"X\"", "'X'", "(X)", "key=X", "x\nX\ny", `{"a":"X"}`, "X,X", "é X é", "`X`", "<X>", "\x00X\x00"} {
				text := strings.ReplaceAll(around, "X", secret)
				got := r.Text(text)
				if !strings.Contains(got, want) || strings.Contains(got, secret) || len(got) > len(around)+strings.Count(around, "X")*(len(want)+len("redis+tls")) {
					t.Errorf("%s: %q became %q", rule.Name, text, got)
				}
			}
		}
	}
}

// TestOrdinaryTextStays has texts that look almost like secrets.
func TestOrdinaryTextStays(t *testing.T) {
	r := redactor(t, Rules()...)
	for _, text := range []string{
		"Ask for a token, then set the password.", "token := tokens.Next()", "MAX_TOKENS=$LIMIT", "API_KEY=$(cat key)", "PASSWORD=", `export TOKEN="$OTHER_TOKEN"`,
		"https://example.com:8080/a@b", "git@github.com:o/r.git", "ssh://git@host/x", "bearer of bad news", "Authorization: required",
		"sk-learn and sk-image", "task-force-number-one-hundred-and-one", "npm_config_", "sk-learn", "risk-adjusted-return-on-capital", "npm_config_registry", "AKIAN", "ghp_short", "eyJhbGciOiJIUzI1NiJ9",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----", "3f786850e387550fdab836ed7e6dc881de23001b",
		"user:password", `"password": {"type": "string"}`, "", "é", "\xff\xfe",
	} {
		if got := r.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestStreamsLeakNothing cuts texts with secrets at random: the output never contains the beginning of
// a secret, and all output together is that of Text for the whole.
func TestStreamsLeakNothing(t *testing.T) {
	r := redactor(t, append(Rules(), Literal("mine", "pass phrase"))...)
	var all []string
	for _, rule := range Rules() {
		all = append(all, secrets[rule.Name]...)
	}
	all = append(all, "pass phrase")
	rapid.Check(t, func(t *rapid.T) {
		var text string
		var used []string
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			secret := rapid.SampledFrom(all).Draw(t, "secret")
			used = append(used, secret)
			text += rapid.SampledFrom([]string{" ", "\n", "é ", "the key is ", "a=", "\"", "eyJ ", "-----BEGIN ", "sk-\n", "\xc3"}).Draw(t, "before") + secret
			if rapid.Bool().Draw(t, "apart") {
				text += "\n# "
			}
		}
		s := r.Stream()
		out := ""
		for rest := text; rest != ""; {
			n := min(rapid.IntRange(1, 12).Draw(t, "piece"), len(rest))
			out += s.Write(rest[:n])
			rest = rest[n:]
		}
		early := out
		out += s.Close()
		if want := r.onePass(text); out != want {
			t.Fatalf("%q in pieces: %q, whole: %q", text, out, want)
		}
		if !strings.HasPrefix(out, early) {
			t.Fatal("earlier output has changed")
		}
		if again := r.Text(r.Text(text)); again != r.Text(text) {
			t.Fatalf("%q: %q, then %q", text, r.Text(text), again)
		}
		for _, secret := range used {
			if strings.Contains(out, secret[len(secret)/3:]) {
				t.Fatalf("%q of %q is in %q", secret, text, out)
			}
		}
	})
}

// TestStreamHoldsBackNoMore checks the output after each piece.
func TestStreamHoldsBackNoMore(t *testing.T) {
	r := redactor(t, append(Rules(), Rule{Name: "line", Pattern: `secret: .{3,}`})...)
	key := fake("sk-", 30)
	for _, row := range []struct{ pieces, out []string }{
		{[]string{"Hello", " yell", "ow.", ""}, []string{"Hello", " yell", "ow.", ""}},
		{[]string{"my key is sk", "-", "y.", ""}, []string{"my key is ", "", "sk-y.", ""}},
		{[]string{key[:10], key[10:20], key[20:], " ", "ok", ""}, []string{"", "", "", placeholder("openai-key") + " ", "ok", ""}},
		{[]string{key, ""}, []string{"", placeholder("openai-key")}},
		{[]string{"a secret", ": ab", "cd", "\nq", ""}, []string{"a ", "", "", placeholder("line") + "\nq", ""}},
		{[]string{"a " + key[:15], ""}, []string{"a ", placeholder("openai-key")}}, // cut off
		{[]string{key[:15], " b"}, []string{"", key[:15] + " b"}},
		{[]string{"caf\xc3", "\xa9 ", ""}, []string{"caf", "é ", ""}},
		{[]string{"s", "s", "k", " "}, []string{"", "s", "", "sk "}},
	} {
		s := r.Stream()
		for i, piece := range row.pieces {
			got := s.Write(piece)
			if i == len(row.pieces)-1 {
				got += s.Close()
			}
			if got != row.out[i] {
				t.Errorf("%q: after %q came %q, want %q", row.pieces, piece, got, row.out[i])
			}
		}
	}
}

func TestJSON(t *testing.T) {
	r := redactor(t, Rules()...)
	key := fake("sk-", 30)
	hidden := strings.ReplaceAll(key, "-", `\u002d`)
	for _, row := range []struct{ in, want string }{
		{`{"a":"b"}`, `{"a":"b"}`},
		{`{"a":["` + key + `",1e400,null]}`, `{"a":["[redacted: openai-key]",1e400,null]}`},
		{`{"` + key + `":1}`, `{"[redacted: openai-key]":1}`},
		{`{"a":"x ` + hidden + ` y"}`, `{"a":"x [redacted: openai-key] y"}`},
		{`{"a":"\\\"` + key + `\""}`, `{"a":"\\\"[redacted: openai-key]\""}`},
		{`{"n":"sk-` + `","m":"` + key[3:] + `"}`, `{"n":"sk-","m":"` + key[3:] + `"}`},
		{`{"a":"` + key, `{"a":""`}, // cut off: the rest is unknown
	} {
		if got := string(r.JSON([]byte(row.in))); got != row.want {
			t.Errorf("%s became %s, want %s", row.in, got, row.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v := map[string]string{rapid.String().Draw(t, "name"): rapid.String().Draw(t, "text") + key + rapid.StringOf(rapid.RuneFrom([]rune(" \n\"<\u2028é"))).Draw(t, "more")}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		clean := r.JSON(data)
		if !json.Valid(clean) || string(r.JSON(clean)) != string(clean) {
			t.Fatalf("%s became %s", data, clean)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, row := range []struct {
		rule Rule
		want string
	}{
		{Rule{Name: "x", Pattern: `(`}, "missing closing"},
		{Rule{Name: "X Y", Pattern: `abcdefgh`}, "lower-case letters"},
		{Rule{Name: "x", Pattern: `a*`}, "0 characters"},
		{Rule{Name: "x", Pattern: `abcdefgh|abc`}, "3 characters"},
		{Rule{Name: "x", Pattern: `a{5}`}, "5 characters"},
		{Rule{Name: "x", Pattern: `(?:ab){2}`}, "4 characters"},
		{Rule{Name: "x", Pattern: `redacted`}, "more specific"},
		{Literal("x", "12345"), "5 characters"},
		{Literal("x", ""), "0 characters"},
	} {
		if _, err := New(row.rule); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v, want %q", row.rule, err, row.want)
		}
	}
	for _, pattern := range []string{`(?:ab){3}`, `(?:abc){2,}`, `[b-d]{6}`, `(ab)+cdef`, `abcdef|ghijklm`, `(?s)a.b.c.`} {
		if _, err := New(Rule{Name: "x", Pattern: pattern}); err != nil {
			t.Errorf("%s has six characters, but: %v", pattern, err)
		}
	}
	if got := (*Redactor)(nil).Text("sk-"); got != "sk-" || (*Redactor)(nil).Stream().Write("x") != "x" {
		t.Errorf("a nil redactor: %q", got)
	}
}

// TestAgreesWithRegexp compares the automaton with package regexp: exactly the matches
// of regexp are replaced.
func TestAgreesWithRegexp(t *testing.T) {
	patterns := []string{`\bab[a-c]{4,}`, `(?i)abc(?:x|yz)+b{3}`, `a.{5,7}c`, `(?m)^abcabc$`, `[^a]bbbbb+`, `(?:ab|b){6,}c?`, `é[a-z]{5}\b`, `abc[^ \n]{3,}`, `abcab{2,}\z`}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(patterns).Draw(t, "pattern")
		text := rapid.StringOfN(rapid.RuneFrom([]rune("abcABxyzé\n ")), 0, 40, -1).Draw(t, "text")
		text += rapid.SampledFrom([]string{"", "\xc3", "abcab\xc3", "abcabb\xe2\x82", "abcab\xf0\x9f\x98"}).Draw(t, "cut")
		r, err := New(Rule{Name: "x", Pattern: p})
		if err != nil {
			t.Fatal(err)
		}
		got, found := r.onePass(text), regexp.MustCompile(p).FindAllStringIndex(text, -1)
		if (got != text) != (found != nil) {
			t.Fatalf("%s in %q: regexp finds %v, redacted %q", p, text, found, got)
		}
		for _, m := range found {
			if n := len(text) - (m[1] - m[0]); len(found) == 1 && len(got) > n+len(placeholder("x")) {
				t.Fatalf("%s in %q: regexp finds %v, redacted %q", p, text, found, got)
			}
		}
	})
}

// TestTextsEdges has rules that match the beginning and the end of a text, and bytes of every kind in
// a secret and before it.
func TestTextsEdges(t *testing.T) {
	for _, row := range []struct{ pattern, text, want string }{
		{`\Aswordfish`, "swordfish swordfish", "[redacted: x] swordfish"},
		{`^swordfish`, "swordfish\nswordfish", "[redacted: x]\nswordfish"},
		{`(?m)^swordfish`, "swordfish\nswordfish", "[redacted: x]\n[redacted: x]"},
		{`\bswordfish\b`, "swordfish", "[redacted: x]"},
		{`\Bswordfish`, "swordfish aswordfish", "swordfish a[redacted: x]"},
		{`swordfish\z`, "swordfish swordfish", "swordfish [redacted: x]"},
		{`swordfish$`, "swordfish\nswordfish", "swordfish\n[redacted: x]"},
		{`(?m)swordfish$`, "swordfish\nswordfish", "[redacted: x]\n[redacted: x]"},
		{`(?s)swordfish.`, "swordfish", "swordfish"},
		{`\x{FFFD}swordfish`, "\x80swordfish \xffswordfish", "[redacted: x] [redacted: x]"}, // like package regexp for invalid UTF-8
		{`(?s)swordfish.?`, "swordfish", "[redacted: x]"},
	} {
		if got := redactor(t, Rule{Name: "x", Pattern: row.pattern}).onePass(row.text); got != row.want {
			t.Errorf("%s in %q: %q, want %q", row.pattern, row.text, got, row.want)
		}
	}
	r := redactor(t, Rule{Name: "x", Pattern: `(?s)[^a]sword(?s:.)fish`})
	for b := range 256 {
		if b == 'a' {
			continue
		}
		text := "a" + string([]byte{byte(b)}) + "sword" + string([]byte{byte(b)}) + "fish"
		if got := r.Text(text); got != "a[redacted: x]" {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestOverlaps has secrets that begin or end within others: all are replaced, and the placeholder has the name
// of the secret that begins first, or of the first rule.
func TestOverlaps(t *testing.T) {
	long, short := Rule{Name: "long", Pattern: "abcdefgh"}, Rule{Name: "short", Pattern: "abcdef"}
	inner, outer := Rule{Name: "inner", Pattern: "cdefgh"}, Rule{Name: "outer", Pattern: "abcdefghij"}
	left, right := Rule{Name: "left", Pattern: "abcdef"}, Rule{Name: "right", Pattern: "efghij"}
	next := Rule{Name: "next", Pattern: "ghijkl"}
	for _, row := range []struct {
		rules []Rule
		text  string
		want  string
	}{
		{[]Rule{long, short}, "-abcdefgh-", "-[redacted: long]-"},
		{[]Rule{short, long}, "-abcdefgh-", "-[redacted: short]-"},
		{[]Rule{inner, outer}, "-abcdefghij-", "-[redacted: outer]-"},
		{[]Rule{outer, inner}, "-abcdefghij-", "-[redacted: outer]-"},
		{[]Rule{inner, outer}, "-abcdefghi-", "-ab[redacted: inner]i-"},
		{[]Rule{left, right}, "-abcdefghij-", "-[redacted: left]-"},
		{[]Rule{right, left}, "-abcdefghij-", "-[redacted: left]-"},
		{[]Rule{left, next}, "-abcdefghijkl-", "-[redacted: left][redacted: next]-"},
		{[]Rule{left, right, next}, "-abcdefghijkl-", "-[redacted: left]-"},
		{[]Rule{next, right, left}, "-abcdefghijkl-", "-[redacted: left]-"},
	} {
		if got := redactor(t, row.rules...).onePass(row.text); got != row.want {
			t.Errorf("%v in %q: %q, want %q", row.rules, row.text, got, row.want)
		}
	}
}

// FuzzRedact cuts any text at any position, and treats it as JSON.
func FuzzRedact(f *testing.F) {
	for _, examples := range secrets {
		for _, secret := range examples {
			f.Add("a "+secret+" b", 5)
		}
	}
	r := redactor(f, Rules()...)
	f.Fuzz(func(t *testing.T, text string, at int) {
		at = min(max(at, 0), len(text))
		s := r.Stream()
		if got, want := s.Write(text[:at])+s.Write(text[at:])+s.Close(), r.onePass(text); got != want {
			t.Errorf("%q in two pieces: %q, whole %q", text, got, want)
		}
		if once := r.Text(text); r.Text(once) != once {
			t.Errorf("%q became %q, then %q", text, once, r.Text(once))
		}
		if clean := r.JSON([]byte(text)); json.Valid([]byte(text)) && !json.Valid(clean) {
			t.Errorf("%q is JSON, and became %q", text, clean)
		}
	})
}

// TestRedactorKeepsItsRules: a change of the caller's slice has no effect.
func TestRedactorKeepsItsRules(t *testing.T) {
	rules := []Rule{Literal("first", "swordfish")}
	r := redactor(t, rules...)
	rules[0].Name = "second"
	if got := r.Text("a swordfish"); got != "a [redacted: first]" {
		t.Errorf("got %q", got)
	}
}
