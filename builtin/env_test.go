package builtin

import (
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
)

func TestWithoutCredentials(t *testing.T) {
	c := Config{KeepEnv: []string{"NPM_TOKEN", "LLM_KEY"}, Secrets: []string{"the-key-of-the-model", "", "x", "false"}}
	for _, row := range []struct {
		kv   string
		kept bool
	}{
		{"OPENAI_API_KEY=x", false}, {"GITHUB_TOKEN=x", false}, {"GITHUBTOKEN=x", false}, {"CLIENT_SECRET=x", false}, {"PGPASSWORD=x", false},
		{"MYSQL_PWD=x", false}, {"DB_PASS=x", false}, {"openai_api_key=x", false}, {"OpenaiApiKey=x", false}, {"AWS_REGION=eu", false},
		{"GOOGLE_APPLICATION_CREDENTIALS=/k.json", false}, {"SSH_KEY_PASSPHRASE=x", false}, {"GH_PAT=x", false}, {"NPM_CONFIG__AUTH=x", false},
		{"SENTRY_DSN=x", false}, {"AWS_SECRET_ACCESS_KEY=x", false}, {"KEY=x", false}, {"S3_ACCESSKEY=x", false},
		{"DEPLOY=ghp_abcdefghijklmnopqrstuvwxyz0123456789", false}, {"X=sk-abcdefghijklmnopqrstuvwxyz", false},
		{"DATABASE_URL=postgres://u:hunter22@db/x", false}, {"PRIVATE=-----BEGIN RSA PRIVATE KEY-----\nMIIE", false},
		{"HTTPS_PROXY=http://me:secret@proxy:3128", false},
		{"SAFE=prefix the-key-of-the-model suffix", false}, {"LLM_KEY=the-key-of-the-model", false},
		{"NPM_TOKEN=x", true}, {"LLM_KEY=other", true},
		{"PATH=/bin:/opt/sk-learn-tools-and-more-of-them", true}, {"HOME=/home/u", true}, {"PWD=/w", true}, {"OLDPWD=/w", true}, {"LANG=C", true},
		{"SSH_AUTH_SOCK=/tmp/agent", true}, {"TOKENIZERS_PARALLELISM=false", true}, {"KEYBOARD=us", true}, {"MONKEY=1", true},
		{"HTTPS_PROXY=http://proxy:3128", true}, {"MIRROR_URL=postgres://db/x", true}, {"COMPASS=n", true}, {"EMPTY=", true}, {"NOVALUE", true},
	} {
		if got := len(c.withoutCredentials([]string{row.kv})) == 1; got != row.kept {
			t.Errorf("%s: kept %v, want %v", row.kv, got, row.kept)
		}
	}
	base := []string{"A=1", "X_TOKEN=1", "B=2"}
	if got := c.withoutCredentials(base); !slices.Equal(got, []string{"A=1", "B=2"}) || base[1] != "X_TOKEN=1" {
		t.Errorf("%q of %q", got, base)
	}
}

// TestBashHasNoCredentials checks that the environment of a command has no credentials, except those that
// KeepEnv names.
func TestBashHasNoCredentials(t *testing.T) {
	t.Setenv("KITBAG_TEST_TOKEN", "tok")
	t.Setenv("KITBAG_TEST_PLAIN", "plain-sk-abcdefghijklmnopqrstuvwxyz")
	t.Setenv("KITBAG_TEST_OTHER", "visible")
	dir := files(t, nil)
	for _, row := range []struct {
		keep []string
		want string
	}{
		{nil, "//visible"},
		{[]string{"KITBAG_TEST_TOKEN"}, "tok//visible"},
	} {
		bash, err := Bash(Config{Dirs: []string{dir}, KeepEnv: row.keep})
		if err != nil {
			t.Fatal(err)
		}
		res := call(t.Context(), bash, args("command", `echo "$KITBAG_TEST_TOKEN/$KITBAG_TEST_PLAIN/$KITBAG_TEST_OTHER"; cat /proc/self/environ`))
		text := res.Text()
		if res.Outcome != message.OutcomeSuccess || !strings.HasPrefix(text, row.want+"\n") {
			t.Errorf("keep %q: %.100q, want %q", row.keep, text, row.want)
		}
		if strings.Contains(text, "sk-abcdef") || row.keep == nil && strings.Contains(text, "=tok") {
			t.Errorf("keep %q: a credential is in the environment of the process", row.keep)
		}
	}
	// A program that uses the backend directly gets the same environment.
	var out strings.Builder
	if _, err := (&Local{}).Run(t.Context(), Command{Args: []string{"env"}, Dir: dir, Output: &out}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "KITBAG_TEST_TOKEN") || !strings.Contains(out.String(), "KITBAG_TEST_OTHER") {
		t.Errorf("%s", out.String())
	}
}
