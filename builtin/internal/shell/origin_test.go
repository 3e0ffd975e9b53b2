//go:build unix

package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// Ways to find names, and to read files by these names.
var (
	finders = []string{"find . -type f", "find . -name x", "find src", "find . -name '*.go' -o -name '*.pem'", `find . \( -name '*.go' -o -type d \) -not -name x`, "find . ! -name '*.go'",
		"find . -maxdepth 1", "find . -iname KEY.TXT", "find $PWD/src -name '*.txt'", "find . -printf '%p\\n'", "find .. -name main.go", "ls", "ls -a", "ls src", "ls -d */", "ls -d .*", "ls -R", "echo *", "echo */*",
		"printf '%s\\n' */x .e*", "grep -rl MARK .", "grep -rl --include='*.go' MARK .", "grep -L nothing src/* a", "cat list", "head -1 list | sort", "find . | sort | head -20", "find . -type f | sed s/a/a/",
		"dirname src/main.go secret/x", "pwd", "basename -a src/* secret/x", "git ls-files", "git ls-files '*.go'", "git ls-files 's*'", "git ls-files ':!*.go'", "git diff --name-only", "echo a b secret/x", "echo 'src/main.go .env'", "ls src | grep -v go"}
	readers = []string{"F | xargs cat", "F | xargs -n1 head -1", "F | xargs -I{} cat {}", `F | while read -r f; do cat "$f"; done`, `for f in $(F); do cat "$f"; done`, "cat $(F)", "while read -r f; do cat $f; done < <(F)",
		`mapfile -t a < <(F); cat "${a[@]}"`, "x=$(F | head -3); cat $x", "F | xargs -I{} cat {}/x", "for d in $(F); do cat $d/key.txt; done", "F | xargs grep -h MARK", "F | xargs grep -rh MARK", "F | xargs dirname | xargs -I{} cat {}/x",
		`while read -r f; do cat src/$f; done <<< "$(F)"`, "for f in $(F); do cat ${f%.go}.pem; done", `F | { read -r f; cat "$f"; }`, "F | xargs -I{} cat src/../{}", "cd src; F | xargs cat", "F | sort -r | uniq | xargs cat",
		"F | while IFS=/ read -r a b; do cat $b; done", "F | xargs echo | xargs cat", "a=($(F)); cat ${a[0]} ${a[3]}", "cat <(F | xargs cat)", "F | (cat; echo list) | xargs cat", "F | tail -c 9 | xargs cat", "sort --files0-from=<(F | tr '\\n' '\\0')"}
)

// TestNamesFoundAtRunTime checks that no command shows a file that a rule covers, or a secret of the directory,
// unless the analysis says that it may. It runs the commands to see what they show.
func TestNamesFoundAtRunTime(t *testing.T) {
	home := t.TempDir()
	work := filepath.Join(home, "work")
	all := map[string]string{}
	for _, name := range []string{"secret/x", "secret/y.go", "src/main.go", "src/main.pem", "src/deep/key.txt", "src/x", "a", "README.md", ".env", "credentials.json", "sub/x"} {
		all[name] = "MARK:" + name + "\n"
	}
	all["list"] = "secret/x\n.env\n"
	write(t, work, all)
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}} {
		if out, err := exec.Command("git", append([]string{"-C", work}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	write(t, work, map[string]string{"src/x": "MARK:src/x\nchanged\n"})
	at := pathrule.Place{Cwd: work, Home: home, Dirs: []string{work}, Trusted: []string{work}}
	rules := []string{"secret/**", "**/*.pem", "src/deep/**", "src/x", "*.txt", "sub/*"}
	shown, needless, n := 0, 0, 0
	for i, reader := range readers {
		for k, finder := range finders {
			if os.Getenv("KITBAG_SOUNDNESS") == "" && (i+k)%3 != 0 {
				continue
			}
			src := strings.ReplaceAll(reader, "F", finder)
			a := Analyze(src, at)
			cmd := exec.Command("bash", "--noprofile", "--norc", "-c", a.Text())
			cmd.Dir, cmd.Env = work, []string{"PATH=/usr/bin:/bin", "HOME=" + home, "LC_ALL=C"}
			out, _ := cmd.Output() // it fails for names that are not files
			marks := string(out)
			for _, rule := range rules {
				covered := false
				for name := range all {
					if ok, err := at.MatchAny(rule, name); ok && err == nil {
						covered = covered || strings.Contains(marks, "MARK:"+name+"\n")
					}
				}
				reads, err := a.Reads(at, rule)
				if err != nil {
					t.Fatal(err)
				}
				seen := reads || a.MayRead(at, rule)
				switch n++; {
				case covered && !seen:
					t.Errorf("%q shows what %s covers", src, rule)
				case covered:
					shown++
				case seen:
					needless++
				}
			}
			if (strings.Contains(marks, "MARK:.env\n") || strings.Contains(marks, "MARK:credentials.json\n")) && !asks(a, at) {
				t.Errorf("%q shows a secret", src)
			}
		}
	}
	if shown < n/20 {
		t.Errorf("only %d of %d show anything", shown, n)
	}
	t.Logf("of %d pairs of a command and a rule %d show what is covered, all seen; %d are seen that do not", n, shown, needless)
}
