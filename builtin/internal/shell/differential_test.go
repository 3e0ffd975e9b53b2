//go:build unix

package shell

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// prelude defines the commands that may run: functions that report their arguments on a separate descriptor.
// Nothing else can run, because PATH is empty.
const prelude = `
exec 9>"$1" 2>/dev/null
trap "" PIPE
ulimit -t 30 -f 2000
log() { (( ++__calls < 300 )) || exit 7; local IFS=$'\x1f'; builtin printf '%s\x1f%s\x1f\x1e' "$__id" "$*" >&9; }
probe() { log probe "$@"; }
fail() { log fail "$@"; return 1; }
touch() { log touch "$@"; }
find() { log find "$@"; }
echo() { log echo "$@"; builtin echo "$@"; return 0; }
cat() { local text; if [ $# -eq 0 ]; then IFS= read -r -d '' text; log stdin "$text"; builtin printf %s "$text"; else log cat "$@"; fi; return 0; }
command_not_found_handle() { log lost "$@"; }
PATH=/nonexistent HOME=/home/u x= y=v N=
unset x BASH_ENV
run() {
	builtin printf '\x1c%s\x1e' "$1" >&9
	local command=$2 __id=$1 # a process may report after its command has ended
	( set --; trap wait EXIT; eval -- "$command"
	wait ) </dev/null >"$3"
	builtin printf '\x1d%s\x1f' "$?" >&9
	local out; IFS= read -r -d '' out <"$3"
	builtin printf '%s\x1e' "$out" >&9
}
`

// A result records the effects of a command in bash.
type result struct {
	calls  []string // the functions that it called, sorted
	output string
	status string
	done   bool
}

// A bench runs many commands in bash in one process.
type bench struct {
	dir  string
	runs int
}

func newBench(t testing.TB) *bench {
	b := &bench{dir: t.TempDir()}
	b.clean(t)
	return b
}

// clean recreates the working directory, and reports whether commands changed it.
func (b *bench) clean(t testing.TB) (changed bool) {
	t.Helper()
	work := b.dir + "/work"
	files, _ := os.ReadDir(work)
	names := ""
	for _, f := range files {
		names += f.Name() + " "
	}
	if names == "-delete a.b sub " {
		return false
	}
	os.RemoveAll(work)
	if err := os.MkdirAll(work+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"-delete", "a.b"} {
		if err := os.WriteFile(filepath.Join(work, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

func singleQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// run runs each of texts in a separate shell, and returns their effects.
func (b *bench) run(t testing.TB, texts []string) []result {
	t.Helper()
	var script strings.Builder
	script.WriteString(prelude)
	for i, text := range texts {
		fmt.Fprintf(&script, "run %d %s \"$2\"\n", i, singleQuote(text))
	}
	b.runs++
	file, log := b.dir+"/script", fmt.Sprint(b.dir, "/log", b.runs)
	defer os.Remove(log)
	if err := os.WriteFile(file, []byte(script.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", file, log, b.dir+"/out")
	cmd.Dir, cmd.Env = b.dir+"/work", []string{"LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	_ = cmd.Run() // the log shows how it ended
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	// A command may name a file by $$, which later commands would find.
	if cmd.Process != nil && !strings.Contains(script.String(), strconv.Itoa(cmd.Process.Pid)) {
		pid := regexp.MustCompile(fmt.Sprintf(`(^|[^0-9])%d($|[^0-9])`, cmd.Process.Pid))
		raw = pid.ReplaceAll(raw, []byte("${1}PID${2}"))
	}
	return readLog(raw, len(texts))
}

func readLog(raw []byte, n int) []result {
	results := make([]result, n)
	at := -1 // index of the command that runs
	for record := range bytes.SplitSeq(raw, []byte{0x1e}) {
		text := string(record)
		switch {
		case text == "":
		case text[0] == 0x1c:
			at, _ = strconv.Atoi(text[1:])
		case text[0] == 0x1d && at >= 0:
			status, out, _ := strings.Cut(text[1:], "\x1f")
			results[at].status, results[at].output, results[at].done = status, out, true
		default:
			id, call, _ := strings.Cut(text, "\x1f")
			if i, err := strconv.Atoi(id); err == nil && i >= 0 && i < n {
				results[i].calls = append(results[i].calls, call)
			}
		}
	}
	for i := range results {
		slices.Sort(results[i].calls)
	}
	return results
}

// runsWords are builtins that run their arguments. A command whose name is not literal may be one of them: every deny rule for
// Bash matches it, and it always needs approval.
var runsWords = []string{"eval", "command", "builtin", "exec", "source", ".", "trap"}

// fitting reports whether the analysis predicted a call.
func fitting(a *Analysis, call string) bool {
	words := strings.Split(strings.TrimSuffix(call, "\x1f"), "\x1f")
	if words[0] == "lost" {
		words = words[1:]
	}
	stdin := words[0] == "stdin"
	for i := range a.cmds {
		c := &a.cmds[i]
		switch {
		case stdin && (c.name == "cat" || fits(c.args, []string{"cat"})):
			return true
		case len(words) > 0 && len(c.args) > 0 && fits(c.args, words):
			return true
		case len(c.args) > 0 && !c.args[0].known && slices.ContainsFunc(runsWords, func(name string) bool { return fits(c.args[:1], []string{name}) }):
			return true
		}
	}
	return false
}

// fits reports whether args may expand to words.
func fits(args []arg, words []string) bool {
	if len(args) == 0 {
		return len(words) == 0
	}
	a := args[0]
	if a.known {
		return len(words) > 0 && a.text == words[0] && fits(args[1:], words[1:])
	}
	if a.field && fits(args[1:], words) && a.text == hole {
		return true // it may expand to no word
	}
	if a.field || a.wild && !strings.Contains(a.text, hole) {
		for n := 1; n <= len(words) && (n == 1 || a.wild); n++ {
			if !matches(a, words[n-1]) {
				return false
			}
			if fits(args[1:], words[n:]) {
				return true
			}
		}
		return false
	}
	for n := 0; n <= len(words); n++ {
		if n > 0 && a.noDash && strings.HasPrefix(words[n-1], "-") {
			return false
		}
		if fits(args[1:], words[n:]) {
			return true
		}
	}
	return false
}

func matches(a arg, word string) bool {
	if a.noDash && strings.HasPrefix(word, "-") {
		return false
	}
	if a.wild {
		return true // the expansion of a pattern is not predicted
	}
	parts := strings.Split(a.text, hole)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(parts, ".*") + `$`).MatchString(word)
}

// evaluates reports whether the analysis says that a command may do anything.
func evaluates(a *Analysis) bool {
	return slices.ContainsFunc(a.static, func(d Danger) bool { return d.Kind == Dynamic || d.Kind == Unreadable })
}

// A tally counts the tried commands and the results.
type tally struct {
	commands, refused, readOnly, beyond, changed, unequal, unfinished int
	shown                                                             int
}

func (c *tally) report(t *testing.T, format string, args ...any) {
	if c.shown++; c.shown <= 40 {
		t.Errorf(format, args...)
	}
}

func (b *bench) analyze(src string) *Analysis {
	return Analyze(src, pathrule.Place{Cwd: b.dir + "/work", Home: here.Home, Dirs: []string{b.dir}, Readlink: here.Readlink})
}

// differ runs commands as written and as printed, and compares their effects with each other and with the verdict.
func (b *bench) differ(t *testing.T, c *tally, commands []string) {
	t.Helper()
	var texts, sources []string
	var verdicts []*Analysis
	for _, src := range commands {
		c.commands++
		a := b.analyze(src)
		if a.Err() != nil {
			c.refused++
			continue
		}
		sources, texts, verdicts = append(sources, src), append(texts, a.Text()), append(verdicts, a)
	}
	printed := b.run(t, texts)
	wrote := b.clean(t)
	asWritten := b.run(t, sources)
	b.clean(t)
	for i, a := range verdicts {
		got, want := printed[i], asWritten[i]
		if !got.done || !want.done {
			if c.unfinished++; i > 0 && printed[i-1].done && asWritten[i-1].done {
				t.Logf("unfinished: %q", sources[i])
			}
			continue
		}
		silent := a.ReadOnly() == "" && len(a.static) == 0
		if silent {
			c.readOnly++
		}
		for _, call := range got.calls {
			if !evaluates(a) && !fitting(a, call) {
				c.beyond++
				c.report(t, "%q\nas %q\nran %q, which is not in %q", sources[i], texts[i], call, argvs(a))
			} else if silent && strings.HasPrefix(call, "touch") {
				c.beyond++
				c.report(t, "%q is called read-only, and ran %q", sources[i], call)
			}
		}
		if silent && wrote && b.writes(t, texts[i]) {
			c.changed++
			c.report(t, "%q is called read-only, and wrote", texts[i])
		}
		if texts[i] == sources[i] || a.background || reasoned(sources[i]) || strings.Contains(sources[i], "eval") && evaluates(a) || got.equal(want) {
			continue
		}
		// Files that other commands of the batch leave behind may be the reason.
		if got, want = b.alone(t, texts[i]), b.alone(t, sources[i]); !got.equal(want) {
			c.unequal++
			c.report(t, "%q\nas %q\nran %q %q, not %q %q", sources[i], texts[i], got.calls, got.output, want.calls, want.output)
		}
	}
}

// alone runs a command in a new working directory.
func (b *bench) alone(t *testing.T, text string) result {
	b.clean(t)
	defer b.clean(t)
	return b.run(t, []string{text})[0]
}

// errorLine matches the part of an error of bash that has the number of a line and quotes the
// source, which may be different in a print.
var errorLine = regexp.MustCompile(`: line \d+:[^\n\x1e\x1f]*`)

func (r *result) equal(other result) bool {
	plain := func(text string) string { return errorLine.ReplaceAllString(text, ": line N:") }
	return plain(strings.Join(r.calls, "\x1e")) == plain(strings.Join(other.calls, "\x1e")) && plain(r.output) == plain(other.output)
}

func (b *bench) writes(t *testing.T, text string) bool {
	b.run(t, []string{text})
	return b.clean(t)
}

// reasoned reports whether a source may have effects other than those of its print.
func reasoned(src string) bool {
	return strings.Contains(src, "LINENO") || strings.Contains(src, "$_") || strings.Contains(src, "$!") || strings.Contains(src, "time") || strings.Contains(src, "BASH_") || strings.Contains(src, "$$") || strings.Contains(src, "declare") || strings.Contains(src, "local") || strings.Contains(src, "set") ||
		strings.Contains(src, "<(") || strings.Contains(src, ">(") || computedOffset.MatchString(src)
}

// computedOffset matches a substring whose offset or length names a variable. The value of that variable is evaluated
// too, and may assign to the variable that is cut: then bash 5.2 reads memory that it has freed, and prints other bytes
// each time. An example is x=( x=yes ); echo ${x:x:1}.
var computedOffset = regexp.MustCompile(`\$\{\w+(\[[^]]*\])?:([A-Za-z_]|[^-=+?}][^}]*[A-Za-z_])`)

func argvs(a *Analysis) (out [][]string) {
	for i := range a.cmds {
		var words []string
		for _, arg := range a.cmds[i].args {
			words = append(words, fmt.Sprintf("%s(%v)", strings.ReplaceAll(arg.text, hole, "…"), arg.known))
		}
		out = append(out, words)
	}
	return out
}

// TestDifferential checks that the effects of a print in bash are those of its source, and agree with the
// verdict. KITBAG_DIFFERENTIAL=200000 tries that many commands, and KITBAG_SEED others.
func TestDifferential(t *testing.T) {
	total, seed := 2500, uint64(1)
	if n, err := strconv.Atoi(os.Getenv("KITBAG_DIFFERENTIAL")); err == nil {
		total = n
	}
	if n, err := strconv.ParseUint(os.Getenv("KITBAG_SEED"), 10, 64); err == nil {
		seed = n
	}
	g, b, c := newGrammar(seed), newBench(t), &tally{}
	b.differ(t, c, seeds)
	for c.commands < total {
		var batch []string
		for len(batch) < 200 {
			s := g.next()
			if dangerous(s) || strings.ContainsAny(s, "\x00\x1c\x1d\x1e\x1f") {
				continue
			}
			// Most cannot be printed, so there is nothing to compare: a few of those are enough.
			if b.analyze(s).Err() == nil || g.IntN(8) == 0 {
				batch = append(batch, s)
			}
		}
		b.differ(t, c, batch)
	}
	t.Logf("%+v", *c)
	if c.refused*100 > c.commands*30 || c.unfinished*50 > c.commands || c.readOnly*100 < c.commands {
		t.Errorf("too few commands were compared: %+v", *c)
	}
}
