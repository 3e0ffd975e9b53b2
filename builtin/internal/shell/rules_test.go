package shell

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/internal/casetest"
)

func TestRuleAdversarial(t *testing.T) {
	type row struct {
		Behavior, Pattern, Command, Reason string
		ExpectMatch                        bool `json:"expect_match"`
	}
	deviations := casetest.LoadDeviations(t, "deviations_rule.json")
	for _, c := range casetest.Rows[row](t, "bash_rule_adversarial.jsonl") {
		a := Analyze(c.Command, here)
		got, err := a.Mentions(c.Pattern)
		if c.Behavior == "allow" {
			got, err = a.CoveredBy(c.Pattern)
		}
		if got != c.ExpectMatch && !deviations.Allowed(c.Behavior+" "+c.Pattern+" | "+c.Command) {
			t.Errorf("%s %q on %q: %v, %v: %s", c.Behavior, c.Pattern, c.Command, got, err, c.Reason)
		}
	}
}

func TestRuleMatch(t *testing.T) {
	type row struct {
		Pattern, Command string
		Match            bool
	}
	deviations := casetest.LoadDeviations(t, "deviations_rule_match.json")
	for _, c := range casetest.Rows[row](t, "bash_rule_match.jsonl") {
		if c.Pattern == "" {
			continue // the engine handles rules without a pattern
		}
		a := Analyze(c.Command, here)
		asks, _ := a.Mentions(c.Pattern)
		allows, _ := a.CoveredBy(c.Pattern)
		for name, got := range map[string]bool{"deny": asks, "allow": allows} {
			key := name + " " + c.Pattern + " | " + c.Command
			if got != c.Match && !deviations.Allowed(key) {
				t.Errorf("%q: %v, upstream %v", key, got, c.Match)
			}
		}
	}
}

func TestAcceptEdits(t *testing.T) {
	type row struct{ ID, Command, Expect, Reason string }
	for _, c := range casetest.Rows[row](t, "bash_accept_edits_adversarial.jsonl") {
		a := Analyze(c.Command, here)
		danger := safety(a)
		allowed := !danger && (a.ReadOnly() == "" || a.EditsInside(here))
		want := c.Expect == "allow" || c.Expect == "allow_preferred"
		if allowed != want || c.Expect == "ask_immune" && !danger {
			t.Errorf("%s %q: allowed %v, dangers %v, want %s: %s (%s)", c.ID, c.Command, allowed, a.Dangers(here, pathrule.Protected{}), c.Expect, c.Reason, a.ReadOnly())
		}
	}
}

// TestEditsThroughLinks checks links in the working directory that lead out of it, or to protected files.
func TestEditsThroughLinks(t *testing.T) {
	work := t.TempDir()
	for _, dir := range []string{"src", ".git/hooks"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"etc": "/etc", "hooks": ".git/hooks", "in": "src", "env": ".env"} {
		if err := os.Symlink(target, filepath.Join(work, link)); err != nil {
			t.Fatal(err)
		}
	}
	at := pathrule.Place{Cwd: work, Home: "/home/u", Dirs: []string{work}}
	for cmd, want := range map[string]bool{
		"touch src/a":                       true,
		"touch in/a":                        true,
		"touch etc/a":                       false,
		"cp src/a hooks/pre-commit":         false,
		"rm env":                            false,
		"mv in/../a src":                    true,
		"cd src && touch a":                 true,
		"cd src; touch ../a":                false, // if src does not exist, the file is outside
		"cd etc && touch a":                 false,
		"mv src d && touch d/a":             false, // may be a link once it is there
		"mkdir d && touch d/a":              true,
		"mkdir d && cp src/a d/../hooks/x":  false, // once d is there, hooks is the link again
		"cp -r src d; touch d/a":            false,
		"touch a && cd .. && touch b":       false,
		"(touch a)":                         false,
		"sed -i s/a/b/ src/a":               true,
		"sed -i -e s/a/b/ -e p src/a src/b": true,
		"sed -i s/a/b/ /etc/x":              false,
		"sed -i.bak s/a/b/ src/a":           true,
		"sed -i/tmp/x s/a/b/ src/a":         false,
		"touch a & touch b":                 false,
		"git status && mkdir -p a/b/c":      true,
		"for f in a b; do touch $f; done":   true,
		"for f in a $x; do touch $f; done":  false,
		"touch a{1,2}":                      true,
		"touch a{1,/../../x}":               false,
		"rm -r src && ls":                   true,
		"mkdir -m 755 x && cp -p src/a x/b": true,
		"touch -r /etc/passwd a":            false,
		"test -f a || touch a":              true,
		"mkdir a 2>/dev/null || true":       true,
		"touch a >> b":                      false,
		"touch \"$(pwd)/a\"":                false,
		"touch \"$PWD/a\"":                  true,
		"touch \"$HOME/a\"":                 false,
	} {
		a := Analyze(cmd, at)
		got := a.EditsInside(at) && len(a.Dangers(at, pathrule.Protected{})) == 0
		if got != want {
			t.Errorf("%q: allowed %v (%s; %v)", cmd, got, a.ReadOnly(), a.Dangers(at, pathrule.Protected{}))
		}
	}
}

func TestReadOnlyRows(t *testing.T) {
	type row struct {
		Command  string
		ReadOnly bool `json:"read_only"`
	}
	deviations := casetest.LoadDeviations(t, "deviations_readonly.json")
	for _, c := range casetest.Rows[row](t, "bash_readonly.jsonl") {
		if a := Analyze(c.Command, here); (a.ReadOnly() == "") != c.ReadOnly && !deviations.Allowed(c.Command) {
			t.Errorf("%q: %q", c.Command, a.ReadOnly())
		}
	}
}

// TestInjection checks that a command that upstream considers an injection is not allowed, unless it is proved
// read-only, which upstream does not attempt.
func TestInjection(t *testing.T) {
	type row struct {
		Command   string
		Injection bool
	}
	for _, c := range casetest.Rows[row](t, "bash_injection.jsonl") {
		a := Analyze(c.Command, here)
		dynamic := slices.ContainsFunc(a.Dangers(here, pathrule.Protected{}), func(d Danger) bool { return d.Kind == Dynamic })
		if c.Injection && !dynamic && a.ReadOnly() != "" && c.Command != "function myfunc() { echo hello; }" && c.Command != "myfunc() { ls -la; }" {
			t.Errorf("%q: no alarm: %s", c.Command, a.ReadOnly())
		}
		if !c.Injection && dynamic {
			t.Errorf("%q: alarm: %v", c.Command, a.Dangers(here, pathrule.Protected{}))
		}
	}
}

func TestSedRows(t *testing.T) {
	type row struct {
		Command        string
		DangerousFiles []string `json:"dangerous_files"`
		Rejected       bool
	}
	deviations := casetest.LoadDeviations(t, "deviations_sed.json")
	for _, c := range casetest.Rows[row](t, "bash_sed.jsonl") {
		dangers := Analyze(c.Command, here).Dangers(here, pathrule.Protected{Files: c.DangerousFiles})
		if (len(dangers) > 0) != c.Rejected && !deviations.Allowed(c.Command) {
			t.Errorf("%q: %v, upstream rejects: %v", c.Command, dangers, c.Rejected)
		}
	}
}

func TestDangerousPattern(t *testing.T) {
	type row struct {
		Command string
		Pattern *string
	}
	for _, c := range casetest.Rows[row](t, "bash_dangerous_pattern.jsonl") {
		if got := safety(Analyze(c.Command, here)); got != (c.Pattern != nil) {
			t.Errorf("%q: alarm %v", c.Command, got)
		}
	}
}

func TestSuggestRows(t *testing.T) {
	type row struct {
		Tool    string
		Input   struct{ Command string }
		Suggest []string
	}
	deviations := casetest.LoadDeviations(t, "deviations_suggest.json")
	for _, c := range casetest.Rows[row](t, "suggestions.jsonl") {
		if c.Tool != "Bash" {
			continue
		}
		a := Analyze(c.Input.Command, here)
		got := a.Suggest()
		if safety(a) {
			got = nil // the engine suggests nothing where no rule would help
		}
		if !slices.Equal(got, c.Suggest) && !deviations.Allowed(c.Input.Command) {
			t.Errorf("%q: %q, upstream %q", c.Input.Command, got, c.Suggest)
		}
	}
}

func TestPrefixRows(t *testing.T) {
	type row struct {
		Command     string
		MaxPrefixes int `json:"max_prefixes"`
		Prefixes    []string
	}
	deviations := casetest.LoadDeviations(t, "deviations_prefixes.json")
	for _, c := range casetest.Rows[row](t, "bash_prefixes.jsonl") {
		got := Analyze(c.Command, here).Suggest()
		want := slices.Clone(c.Prefixes)
		for i := range want {
			want[i] += ":*"
		}
		if !slices.Equal(got, want) && !deviations.Allowed(c.Command) {
			t.Errorf("%q: %q, upstream %q", c.Command, got, want)
		}
	}
}

// TestSuggestionsAreNarrow checks that a suggestion covers what the command does, not everything that its
// program can do.
func TestSuggestionsAreNarrow(t *testing.T) {
	for cmd, want := range map[string]string{
		"docker compose up -d":      "docker compose up:*",
		"gh pr create --fill":       "gh pr create:*",
		"git stash push -m wip":     "git stash push:*",
		"git stash":                 "",
		"git remote add o u":        "git remote add:*",
		"uv pip install x":          "uv pip install:*",
		"go mod tidy":               "go mod tidy:*",
		"go tool pprof x":           "go tool pprof:*",
		"aws s3 cp a b":             "aws s3 cp:*",
		"gcloud compute ssh x":      "",
		"python3 -m pip install x":  "python3 -m pip install:*",
		"python3 -m pytest -x":      "python3 -m pytest:*",
		"npm run build":             "npm run:*",
		"git push origin main":      "git push:*",
		"kubectl apply -f x":        "kubectl apply:*",
		"sort -o out f":             "sort -o out:*",
		"sort f -o out && rm x":     "sort f:*,rm x:*",
		"git log --output=x":        "",
		"tar xf a --to-command=cat": "",
		"go test -exec ./x ./...":   "",
		"docker exec c ls":          "",
		"docker container exec c x": "",
		"docker compose run c x":    "",
		"npm x p":                   "",
		"mytool '' x":               "",
		"'./a*' x":                  `./a\* x:*`,
		"mv a b & mv '&b' c":        "", // a rule for "mv &b" would read as two commands
	} {
		if got := strings.Join(Analyze(cmd, here).Suggest(), ","); got != want {
			t.Errorf("%q: %q, want %q", cmd, got, want)
		}
	}
}

// TestRulesForWhatRunsOthers checks that an option that runs a program, beyond the command's purpose, must be
// in the rule. See "Rules for commands that run others" in the package doc.
func TestRulesForWhatRunsOthers(t *testing.T) {
	for _, row := range []struct {
		rule, command string
		covered       bool
	}{
		// Its purpose is to run others: the rule allows everything that it runs.
		{"xargs:*", "ls | xargs rm", true},
		{"ssh:*", "ssh h rm x", true},
		{"make:*", "make x", true},
		{"npm run:*", "npm run x", true},
		{"docker:*", "docker run -v /:/host x rm -r /host/tmp", true},
		{"docker ps:*", "docker run x", false},
		{"git:*", "git bisect run make", true},
		{"python3:*", "python3 x.py", true},
		{"strace:*", "strace rm x", true},

		// Transparent: the rule must cover the command inside.
		{"env:*", "env rm x", false},
		{"timeout:*", "timeout 5 rm x", false},
		{"nice:*", "nice rm x", false},
		{"rm:*", "timeout 5 nice rm x", true},

		// It runs a program by an option: the rule must contain the option as a word.
		{"find:*", "find . -exec rm {} +", false},
		{"find . -execdir:*", "find . -execdir true \\; -exec rm {} +", false},
		{"find . -exec:*", "find . -exec rm {} +", true},
		{"find:*", "find . -maxdepth 0 -exec sed -n p + -e '1e touch x' a \\;", false},
		{"find:*", "find . -maxdepth 0 -exec sed -n p \"$x\" + -e '1e touch x' a \\;", false},
		{"env:*", "env -S 'rm x'", false},
		{"tar:*", "tar cf a --checkpoint=1 --checkpoint-action=exec=./x .", false},
		{"tar cf a --checkpoint=1:*", "tar cf a --checkpoint=1 --checkpoint-action=exec=./x .", false},
		{"tar:*", "tar xIf ./x a", false},
		{"rsync --exclude=x:*", "rsync --exclude=x -e ./x a b", false},
		{"rsync -e ssh:*", "rsync -e ssh a b", true},
		{"git:*", "git --exec-path=./x log", false},
		{"git:*", "git --config-env=core.pager=X log", false},
		{"git clone:*", "git clone -c core.fsmonitor=./x u", false},
		{"git clone:*", "git clone --config=core.fsmonitor=./x u", false},
		{"git clone:*", "git clone --template=./x u", false},
		{"git init:*", "git init --template ./x", false},
		{"npm:*", "npm --script-shell=./x run y", false},
		{"cargo:*", "cargo --config ./x build", false},
		{"hg:*", "hg --config ui.editor=./x commit", false},
		{"svn:*", "svn diff --diff-cmd ./x", false},
		{"scp:*", "scp -S ./x a h:b", false},
		{"sftp:*", "sftp -D ./x h", false},
		{"ssh:*", "ssh -F ./x h", false},
		{"ssh:*", "ssh -I ./x.so h", false},
		{"ssh -F:*", "ssh -F ./x h", true},
		{"zip:*", "zip a b -T -TT ./x", false},
		{"zip:*", "zip a b -T --unzip-command=./x", false},
		{"bat:*", "bat --pager=./x y", false},
		{"wget:*", "wget --use-askpass=./x u", false},
		{"awk:*", "awk -f x.awk f", false},

		// It runs a program in a text: the rule must be the whole command.
		{"awk:*", `awk 'BEGIN{system("rm x")}'`, false},
		{"awk:*", `awk '{print | "sh"}' f`, false},
		{"awk *", `awk '{print > "out"}' f`, false},
		{"gawk:*", "gawk -l ./x.so '{print}' f", false},
		{"awk:*", "awk \"$X\" f", false},
		{`awk BEGIN{system("date")}`, `awk 'BEGIN{system("date")}'`, true},
		{`awk BEGIN{system("date")}`, `awk 'BEGIN{system("date")}' f`, false},
		{"git:*", "git -c core.pager=./x log", false},
		{"git:*", "git -ccore.pager=./x log", false},
		{"git -c:*", "git -c core.pager=./x log", false},
		{"git -c user.name=x commit", "git -c user.name=x commit", true},
		{"git commit:*", "git -c color.ui=never commit", false},
		{"git:*", "git -c color.ui=never commit", true},
		{"ssh:*", "ssh -o ProxyCommand=./x h", false},
		{"ssh:*", "ssh -vo 'proxycommand ./x' h", false},
		{"ssh:*", "ssh -voProxyCommand=./x h", false},
		{"ssh:*", "ssh h -o LocalCommand=./x -oPermitLocalCommand=yes ls", false},
		{"ssh:*", "ssh h -F ./x ls", false},
		{"ssh:*", "ssh h grep -F x", true},
		{"scp:*", "scp -o ProxyCommand=./x a h:b", false},
		{"ssh:*", "ssh -o StrictHostKeyChecking=no h ls", true},
	} {
		got, err := Analyze(row.command, here).CoveredBy(row.rule)
		if got != row.covered || err != nil {
			t.Errorf("%s on %q: %v, %v", row.rule, row.command, got, err)
		}
	}
}

// TestJoinedPattern checks that an allow rule that joins commands covers none of them, and that the error says
// which rules would.
func TestJoinedPattern(t *testing.T) {
	for _, row := range []struct{ rule, write string }{
		{"npm run build && npm test", "write a rule for each: Bash(npm run build) and Bash(npm test)"},
		{"npm run build && npm test:*", "Bash(npm run build) and Bash(npm test:*)"},
		{"go vet * || go test ./...; make", "Bash(go vet *) and Bash(go test ./...) and Bash(make)"},
		{"make | tee log", "Bash(make) and Bash(tee log)"},
		{"a &\nb &", "Bash(a) and Bash(b)"},
		{"go vet ./... > out && make", "Bash(go vet ./... > out) and Bash(make)"},
		{"make > out", "write Bash(make)"}, {"make test 2>&1:*", "write Bash(make test:*)"}, {"go vet * >>log", "write Bash(go vet *)"}, {"sort <in", "write Bash(sort)"},
		{"grep '>' f", ""}, {"npm test", ""}, {`git commit -m "a && b"`, ""}, {"make &", ""}, {"grep 'a|b':*", ""}, {"echo '; ls", ""}, {"curl a?b=1&", ""},
	} {
		covered, err := Analyze(row.rule, here).CoveredBy(row.rule)
		if row.write == "" && err != nil || row.write != "" && (covered || err == nil || !strings.HasSuffix(err.Error(), row.write)) {
			t.Errorf("%q: %v, %v", row.rule, covered, err)
		}
		if _, err := Analyze("ls", here).Mentions(row.rule); err != nil {
			t.Errorf("deny %q: %v", row.rule, err)
		}
	}
}
