package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

func newBash(t testing.TB) (tool.Tool, string) {
	t.Helper()
	dir := files(t, nil)
	b, err := Bash(Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	return b, dir
}

func TestBash(t *testing.T) {
	b, dir := newBash(t)
	for _, row := range []struct {
		command string
		outcome message.Outcome
		text    string
		out     bashOut
	}{
		{"echo hi", "success", "hi\n", bashOut{}},
		{"true", "success", "(no output)", bashOut{}},
		{"pwd", "success", dir + "\n", bashOut{}},
		{"cd /; pwd", "success", "/\n", bashOut{}},
		{"for i in 1 2 3; do echo $i; echo e$i >&2; done", "success", "1\ne1\n2\ne2\n3\ne3\n", bashOut{}},
		{"exit 3", "error", "(no output)\n[exit code 3]", bashOut{ExitCode: 3}},
		{"echo x; kill -9 $$", "error", "x\n\n[ended by signal: killed]", bashOut{ExitCode: -1, Signal: "killed"}},
		{"no-such-program", "error", "not found", bashOut{ExitCode: 127}},
		{"if", "error", "syntax error", bashOut{ExitCode: 2}},
		{"printf 'a\\r\\nb\\rc'", "success", "a\nb\rc", bashOut{}},
		{"printf '\\377'", "success", "\uFFFD", bashOut{}},
		{"[[ a == a ]] && echo yes", "success", "yes\n", bashOut{}},
		{"cat; read x; echo \"got $? [$x]\"", "success", "got 1 []\n", bashOut{}},
		{"true 2>/dev/null </dev/tty || echo no terminal", "success", "no terminal\n", bashOut{}},
		{"sleep 100", "error", "[timed out after 300 ms", bashOut{ExitCode: -1, Signal: "terminated", TimedOut: true}},
	} {
		timeout := maxTimeout
		if row.out.TimedOut {
			timeout = 300
		}
		res := call(t.Context(), b, args("command", row.command, "timeout", timeout))
		want(t, res, row.outcome, row.text)
		var out bashOut
		if err := json.Unmarshal(res.Structured, &out); err != nil || out != row.out {
			t.Errorf("%s: structured result %s (%v), want %+v", row.command, res.Structured, err, row.out)
		}
	}
}

func TestBashBadArguments(t *testing.T) {
	b, _ := newBash(t)
	for _, in := range []string{`{}`, `{"command":""}`, `{"command":"ls","timeout":0}`, `{"command":1}`} {
		want(t, call(t.Context(), b, in), "error", "")
	}
}

func TestBashNotInstalled(t *testing.T) {
	b, _ := newBash(t)
	t.Setenv("PATH", t.TempDir())
	want(t, call(t.Context(), b, args("command", "true")), "error", "bash is not installed")
}

func TestBashNoDirectory(t *testing.T) {
	b, err := Bash(Config{Dirs: []string{"/no/such/dir"}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, call(t.Context(), b, args("command", "true")), "error", "/no/such/dir")
}

// TestBashLongOutput checks that long output keeps its head and its tail, and output at the limit is whole.
func TestBashLongOutput(t *testing.T) {
	b, _ := newBash(t)
	res := call(t.Context(), b, args("command", "head -c 30000 /dev/zero | tr '\\0' a"))
	if want := strings.Repeat("a", 30000); res.Text() != want {
		t.Errorf("30000 characters came back as %d", len(res.Text()))
	}
	res = call(t.Context(), b, args("command", "printf START; head -c 100000 /dev/zero | tr '\\0' a; printf END"))
	text := res.Text()
	var out bashOut
	json.Unmarshal(res.Structured, &out)
	if !strings.HasPrefix(text, "STARTaaa") || !strings.HasSuffix(text, "aaaEND") || len(text) > 30200 || out.Omitted != 70008 {
		t.Errorf("%d characters, %.20q … %q, omitted %d", len(text), text, text[len(text)-20:], out.Omitted)
	}
	// A character of several bytes counts as one, wherever reads split it.
	res = call(t.Context(), b, args("command", "for i in {1..30000}; do printf 你; done"))
	if want := strings.Repeat("你", 30000); res.Text() != want {
		t.Errorf("30000 wide characters came back as %d bytes", len(res.Text()))
	}
}

// TestBashMemory checks that half a gigabyte of output needs only bounded memory: keeping a sixteenth of it
// would fail the test.
func TestBashMemory(t *testing.T) {
	b, _ := newBash(t)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before) // which has what other tests have left
	peak := make(chan uint64)
	stop := make(chan struct{})
	go func() {
		var largest uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			largest = max(largest, m.HeapInuse)
			select {
			case <-stop:
				peak <- largest
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	want(t, call(t.Context(), b, args("command", "head -c 536870912 /dev/zero | tr '\\0' 'a'; echo END")), "success", "aEND\n")
	close(stop)
	if grown := int64(<-peak) - int64(before.HeapInuse); grown > 32<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// TestBashStreams checks that output is streamed.
func TestBashStreams(t *testing.T) {
	b, dir := newBash(t)
	c := tool.Call{ID: "c", Name: "Bash", Input: json.RawMessage(args("command", "echo one; while [ ! -e go ]; do sleep 0.01; done; echo two"))}
	var text string
	for ch, err := range b.Call(t.Context(), c) {
		if err != nil {
			t.Fatal(err)
		}
		text += ch.Block.(*message.Text).Text
		if text == "one\n" {
			os.WriteFile(filepath.Join(dir, "go"), nil, 0o666) // the command waits for this file
		}
	}
	if text != "one\ntwo\n" {
		t.Errorf("got %q", text)
	}
}

// TestBashKills checks that a call that is ended early, in any way, ends soon and leaves no process.
func TestBashKills(t *testing.T) {
	linux := map[string]bool{"own session": true, "daemon": true, "does not hold the pipe": true}
	for what, script := range map[string]string{
		"child in a pipe":        "SLEEP | cat",
		"grandchild":             "bash -c 'SLEEP & wait'",
		"ignores SIGTERM":        "trap '' TERM; (trap '' TERM; SLEEP) & while :; do sleep 1; done",
		"own process group":      "set -m; SLEEP & wait",
		"own session":            "setsid SLEEP & SLEEP",
		"daemon":                 "(setsid bash -c 'SLEEP & disown' &) ; SLEEP",
		"does not hold the pipe": "setsid SLEEP >/dev/null 2>&1 & SLEEP",
	} {
		for end, run := range map[string]func(ctx context.Context, b tool.Tool, in func(timeout int) string) time.Duration{
			"timeout": timesOut, "cancel": isCancelled, "break": isLeft,
		} {
			t.Run(what+"/"+end, func(t *testing.T) {
				if linux[what] && runtime.GOOS != "linux" {
					t.Skip("processes that leave their group are found on Linux only")
				}
				t.Parallel() // it waits most of the time
				// The machine may be busy, so the best of several times counts.
				best := time.Hour
				for range 10 {
					if best = min(best, endOnce(t, script, run)); best <= 2*time.Second {
						return
					}
				}
				t.Errorf("ended %v too late", best)
			})
		}
	}
}

// endOnce runs a script in which SLEEP is a program that the test can find, ends it with run and returns how
// late it ended.
func endOnce(t *testing.T, script string, run func(context.Context, tool.Tool, func(int) string) time.Duration) time.Duration {
	t.Helper()
	b, dir := newBash(t)
	mark := fmt.Sprintf("mark-%d-%d", os.Getpid(), time.Now().UnixNano())
	sleep, err := exec.LookPath("sleep")
	if err == nil {
		err = os.Symlink(sleep, filepath.Join(dir, mark))
	}
	if err != nil {
		t.Fatal(err)
	}
	script = "echo start; " + strings.ReplaceAll(script, "SLEEP", "./"+mark+" 1234")
	late := run(t.Context(), b, func(ms int) string { return args("command", script, "timeout", ms) })
	// On a busy machine a killed process may exist for a while.
	var left []byte
	for range 100 {
		if left, _ = exec.Command("pgrep", "-af", mark).Output(); len(left) == 0 {
			return late
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("left behind:\n%s", left)
	return late
}

func timesOut(ctx context.Context, b tool.Tool, in func(int) string) time.Duration {
	start := time.Now()
	if res := call(ctx, b, in(200)); !strings.Contains(res.Text(), "timed out") {
		return time.Hour
	}
	return time.Since(start) - 200*time.Millisecond
}

func isCancelled(ctx context.Context, b tool.Tool, in func(int) string) time.Duration {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at := make(chan time.Time, 1)
	time.AfterFunc(200*time.Millisecond, func() { at <- time.Now(); cancel() })
	if res := call(ctx, b, in(60_000)); res.Outcome != message.OutcomeInterrupted {
		return time.Hour
	}
	return time.Since(<-at)
}

func isLeft(ctx context.Context, b tool.Tool, in func(int) string) time.Duration {
	for range b.Call(ctx, tool.Call{ID: "c", Name: "Bash", Input: json.RawMessage(in(60_000))}) {
		break
	}
	return 0
}

// TestBashEnvironment checks that the environment of the program cannot change the meaning of a command, or
// make it wait for input.
func TestBashEnvironment(t *testing.T) {
	b, dir := newBash(t)
	hook := filepath.Join(files(t, map[string]string{"hook": "echo HOOKED\n"}), "hook")
	os.WriteFile(filepath.Join(dir, "cat"), []byte("#!/bin/sh\necho HOOKED\n"), 0o777)
	for k, v := range map[string]string{
		"BASH_ENV": hook, "ENV": hook, "BASH_FUNC_pwd%%": "() { echo HOOKED; }", "SHELLOPTS": "xtrace", "PS4": "HOOKED", "POSIXLY_CORRECT": "1",
		"PATH": ":.:" + os.Getenv("PATH"), "GIT_PAGER": "HOOKED", "PAGER": "HOOKED", "LESSOPEN": "|HOOKED %s", "GIT_EXTERNAL_DIFF": "HOOKED", "CDPATH": "/",
	} {
		t.Setenv(k, v)
	}
	res := call(t.Context(), b, args("command", "pwd; cat /dev/null; cd tmp 2>/dev/null; env; set -o | grep posix"))
	if strings.Contains(res.Text(), "HOOKED") {
		t.Errorf("the environment reached the command:\n%s", res.Text())
	}
	for _, setting := range []string{"GIT_PAGER=cat\n", "PAGER=cat\n", "GIT_TERMINAL_PROMPT=0\n", "GIT_OPTIONAL_LOCKS=0\n", "\toff\n"} {
		want(t, res, "success", setting)
	}
}

// TestBashBackground checks that a background process ends with the command if it has the output open, and
// continues if not.
func TestBashBackground(t *testing.T) {
	b, dir := newBash(t)
	want(t, call(t.Context(), b, args("command", "sleep 1234 & echo $! >pid; echo x")), "success", "x\n\n[a background process still had the output open when the command ended, and was stopped;")
	want(t, call(t.Context(), b, args("command", "ps -o stat= -p $(cat pid) | grep -v Z")), "error", "exit code 1")

	if runtime.GOOS == "linux" { // other systems cannot find a process that left the group
		want(t, call(t.Context(), b, args("command", "setsid sleep 1234 & echo $! >pid; echo x")), "success", "x\n")
		want(t, call(t.Context(), b, args("command", "ps -o stat= -p $(cat pid) | grep -v Z")), "error", "exit code 1")
	}

	other := ""
	if runtime.GOOS == "linux" { // other systems end every process that the call left behind
		other = "sleep 1234 & echo $! >pid; "
	}
	want(t, call(t.Context(), b, args("command", "(while [ ! -e stop ]; do sleep 0.01; done; echo done >out) >log 2>&1 & "+other+"echo y")), "success", "y\n")
	want(t, call(t.Context(), b, args("command", "ps -o stat= -p $(cat pid) | grep -v Z")), "error", "exit code 1")
	os.WriteFile(filepath.Join(dir, "stop"), nil, 0o666)
	want(t, call(t.Context(), b, args("command", "while [ ! -s out ]; do sleep 0.01; done; cat out", "timeout", 60_000)), "success", "done\n")
}

// TestBashLastOutput checks that output just before the end of the shell is not lost, however long.
func TestBashLastOutput(t *testing.T) {
	b, _ := newBash(t)
	for range 20 {
		res := call(t.Context(), b, args("command", "head -c 29990 /dev/zero | tr '\\0' a; echo END"))
		if !strings.HasSuffix(res.Text(), "aEND\n") || len(res.Text()) != 29994 {
			t.Fatalf("%d bytes, end %q", len(res.Text()), res.Text()[max(0, len(res.Text())-10):])
		}
	}
}
