package builtin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
)

// TestSearchObeysRulesForRead checks that a deny or ask rule for Read applies to Grep and Glob: a call that
// names a covered path is denied or needs approval, and other searches skip such paths and report it.
func TestSearchObeysRulesForRead(t *testing.T) {
	dir := files(t, map[string]string{
		"w/a.txt": "needle\n", "w/secret/b.txt": "needle\n", "w/secret/deep/c.txt": "needle\n", "w/secret/plain.md": "needle\n",
		"w/.env": "needle\n", "w/sub/cert.pem": "needle\n", "w/.gnupg/x": "needle\n", "out/o.txt": "needle\n",
	})
	for link, target := range map[string]string{"w/link": "secret", "w/alias": "secret", "w/way": "../out"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	w := filepath.Join(dir, "w")
	all := tools(t, Config{Dirs: []string{w}})
	for _, row := range []struct {
		rule string // with its behavior first
		path string
		want string // the files found, relative to w, or the decision
		out  string // what the notes say about skipped paths
	}{
		{"", ".", "a.txt secret/b.txt secret/deep/c.txt secret/plain.md sub/cert.pem", "2 paths"},
		{"deny Read(secret/**)", ".", "a.txt sub/cert.pem", "3 paths"},
		{"deny Read(secret/)", ".", "a.txt sub/cert.pem", "3 paths"},
		{"deny Read(secret)", ".", "a.txt sub/cert.pem", "3 paths"},
		{"deny Read(secret)", "secret/deep", "deny", ""},
		{"ask Read(secret/**)", ".", "a.txt sub/cert.pem", "3 paths"},
		{"typo Read(secret/**)", ".", "a.txt sub/cert.pem", "3 paths"},
		{"deny *(secret/**)", "sub", "sub/cert.pem", ""},
		{"deny Read(secret/*.txt)", ".", "a.txt secret/deep/c.txt secret/plain.md sub/cert.pem", "3 paths"},
		{"deny Read(secret/*)", ".", "a.txt secret/deep/c.txt sub/cert.pem", "4 paths"},
		{"deny Read(*.pem)", ".", "a.txt secret/b.txt secret/deep/c.txt secret/plain.md", "3 paths"},
		{"deny Read(**/deep/**)", "secret", "secret/b.txt secret/plain.md", "1 path left"},
		{"deny Read(" + w + "/secret/**)", ".", "a.txt sub/cert.pem", "3 paths"},
		{"deny Read(link/**)", ".", "a.txt sub/cert.pem", "3 paths"}, // links in rules are resolved
		{"deny Read(secret/**)", "secret", "deny", ""},
		{"deny Read(secret/**)", "secret/deep", "deny", ""},
		{"deny Read(secret/**)", "link", "deny", ""},
		{"deny Read(alias/**)", "link/deep", "deny", ""},
		{"ask Read(secret/**)", "secret", "ask", ""},
		{"ask Read(secret/**)", "alias", "ask", ""},
		{"deny Read(secret/[)", ".", "deny", ""}, // an invalid pattern
		{"deny Read(" + dir + "/out/**)", "way", "deny", ""},
		{"allow Read(" + dir + "/out/**)", "way", "ask", ""}, // permission to read does not permit a search
		{"deny Read", ".", "a.txt secret/b.txt secret/deep/c.txt secret/plain.md sub/cert.pem", "2 paths"},
		{"", ".env", "ask", ""},
		{"", ".gnupg", "ask", ""},
	} {
		for _, name := range []string{"Grep", "Glob"} {
			in := args("pattern", "needle", "path", row.path)
			if name == "Glob" {
				if row.path == ".env" {
					continue // not a directory
				}
				in = args("pattern", "**", "path", row.path)
			}
			p := &permission.Policy{Dirs: []string{w}}
			if b, text, ok := strings.Cut(row.rule, " "); ok {
				rule, err := permission.ParseRule(text, permission.Allow)
				if err != nil {
					t.Fatal(err)
				}
				rule.Behavior = permission.Behavior(b)
				p.Rules = []permission.Rule{rule}
			}
			res, d := judged(t.Context(), all[name], p, in, nil)
			if res == nil {
				if string(d.Behavior) != row.want {
					t.Errorf("%s in %s with %s: %s (%s), want %s", name, row.path, row.rule, d.Behavior, d.Reason, row.want)
				}
				continue
			}
			var found []string
			notes := ""
			for line := range strings.Lines(res.Text()) {
				if rel, ok := strings.CutPrefix(strings.TrimSpace(line), w+"/"); ok {
					found = append(found, rel)
				} else {
					notes += line
				}
			}
			slices.Sort(found)
			if got := strings.Join(found, " "); got != row.want || !strings.Contains(notes, row.out) || row.out == "" && strings.Contains(notes, "left out") {
				t.Errorf("%s in %s with %s finds %q with notes %q;  want %q and %q", name, row.path, row.rule, got, notes, row.want, row.out)
			}
		}
	}
}
