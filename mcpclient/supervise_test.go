package mcpclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// diaryEnv names a file in which a scripted server records its pid and the calls that it has run.
const diaryEnv = "KITBAG_MCPCLIENT_TEST_DIARY"

func note(format string, args ...any) {
	f, err := os.OpenFile(os.Getenv(diaryEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintf(f, format+"\n", args...)
		f.Close()
	}
}

func init() {
	scripts["crashing"] = crashingServer
	scripts["fails to start"] = func(request, func(string)) {
		fmt.Fprintln(os.Stderr, "the database is missing")
		os.Exit(3)
	}
	scripts["offended"] = func(msg request, reply func(string)) {
		if msg.Method == "server/discover" {
			os.Exit(4) // like some servers after an unknown first message
		}
		handleStandard(msg, reply, `[{"name":"echo"}]`)
	}
	scripts["taciturn"] = func(msg request, reply func(string)) {
		if msg.Method != "server/discover" {
			handleStandard(msg, reply, `[{"name":"echo"}]`)
		}
	}
	scripts["yes-man"] = func(msg request, reply func(string)) {
		if msg.Method == "server/discover" {
			reply(msg.result(`{}`))
		} else {
			handleStandard(msg, reply, `[{"name":"echo"}]`)
		}
	}
}

const crashingTools = `[{"name":"die"},{"name":"die_once","annotations":{"readOnlyHint":true}},{"name":"idem","annotations":{"idempotentHint":true}},{"name":"freeze"},` +
	`{"name":"work"},{"name":"close_output"},{"name":"leave_child"}]`

func crashingServer(msg request, reply func(string)) {
	if msg.Method == "initialize" {
		note("pid %d", os.Getpid())
	}
	if handleStandard(msg, reply, crashingTools) {
		return
	}
	if msg.Method != "tools/call" {
		return
	}
	note("ran %s", msg.name())
	switch msg.name() {
	case "die":
		fmt.Fprintln(os.Stderr, "my last words")
		os.Exit(5)
	case "die_once":
		if diary, _ := os.ReadFile(os.Getenv(diaryEnv)); strings.Count(string(diary), "ran die_once") == 1 {
			os.Exit(6)
		}
	case "freeze":
		time.Sleep(time.Hour)
	case "close_output":
		os.Stdout.Close()
		time.Sleep(time.Hour)
	case "leave_child":
		exe, _ := os.Executable()
		os.Setenv(roleEnv, "sleeper")
		p, err := os.StartProcess(exe, []string{exe}, &os.ProcAttr{
			Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr},
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(7)
		}
		note("child %d", p.Pid)
	}
	reply(msg.result(`{"content":[{"type":"text","text":"done"}]}`))
}

// withDiary makes the server keep a diary, and returns how to read it.
func withDiary(t *testing.T, cfg *Server) func() string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "diary")
	*cfg = withEnv(*cfg, diaryEnv, file)
	return func() string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

func lastPID(t *testing.T, diary string) int {
	t.Helper()
	_, rest, _ := cutLast(diary, "pid ")
	pid, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func TestDeathDuringACall(t *testing.T) {
	cfg := child(t, "crashing")
	diary := withDiary(t, &cfg)
	c := connect(t, cfg)
	res := mustRun(t, find(t, c, "die"), `{}`)
	for _, want := range []string{`"srv"`, "lost", "exit status 5", "my last words", "may have had an effect"} {
		if strings.Count(res.Text(), want) != 1 {
			t.Errorf("%q is not in: %s", want, res.Text())
		}
	}
	if res.Outcome != message.OutcomeError {
		t.Errorf("outcome: %s", res.Outcome)
	}
	if got := mustRun(t, find(t, c, "work"), `{}`).Text(); got != "done" {
		t.Errorf("the next call: %q", got)
	}
	if n := strings.Count(diary(), "ran die"); n != 1 {
		t.Errorf("the call ran %d times", n)
	}
	if st := c.Status(); st.Restarts != 1 || st.State != stateReady {
		t.Errorf("status: %+v", st)
	}
}

func TestOnlyWhatMayRunTwiceDoes(t *testing.T) {
	cfg := child(t, "crashing")
	cfg.Options.TrustReadOnly = true
	diary := withDiary(t, &cfg)
	c := connect(t, cfg)
	if res := mustRun(t, find(t, c, "die_once"), `{}`); res.Text() != "done" {
		t.Errorf("a read-only call was not made again: %s", res.Text())
	}
	if n := strings.Count(diary(), "ran die_once"); n != 2 {
		t.Errorf("it ran %d times", n)
	}
}

// mayRunAgain reports whether an agent repeats a call of t after a crash.
func mayRunAgain(t *testing.T, tl tool.Tool) bool {
	t.Helper()
	i, ok := tool.As[tool.IdempotentChecker](tl)
	return ok && i.CheckIdempotent(json.RawMessage(`{}`))
}

func TestHintsThatACallMayRunTwice(t *testing.T) {
	cfg := child(t, "crashing")
	cfg.Options.TrustReadOnly = true
	withDiary(t, &cfg)
	c := connect(t, cfg)
	for name, want := range map[string]bool{"die": false, "die_once": true, "idem": true} {
		if got := mayRunAgain(t, find(t, c, name)); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestHintsAreClaims checks that the hints of an untrusted server's tool neither allow a call without a
// question nor its repetition, in any mode.
func TestHintsAreClaims(t *testing.T) {
	cfg := child(t, "crashing")
	diary := withDiary(t, &cfg)
	c := connect(t, cfg)
	tl := find(t, c, "die_once")
	for _, mode := range []permission.Mode{permission.ModeDefault, permission.ModeAcceptEdits, permission.ModeExplore, permission.ModeDontAsk} {
		d := permission.Decide(&permission.Policy{Mode: mode}, tool.PermissionCall(tl, json.RawMessage(`{}`)))
		if d.Behavior == permission.Allow {
			t.Errorf("mode %s allows it: %s", mode, d.Reason)
		}
	}
	if tl.Info().ReadOnly || mayRunAgain(t, tl) || mayRunAgain(t, find(t, c, "idem")) {
		t.Error("a hint counts")
	}
	if res := mustRun(t, tl, `{}`); res.Outcome != message.OutcomeError {
		t.Errorf("the call was made again: %s", res.Text())
	}
	if n := strings.Count(diary(), "ran die_once"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the condition did not become true")
}

func TestOutputClosed(t *testing.T) {
	cfg := child(t, "crashing")
	withDiary(t, &cfg)
	c := connect(t, cfg)
	if res := mustRun(t, find(t, c, "close_output"), `{}`); !strings.Contains(res.Text(), "lost") {
		t.Errorf("%s", res.Text())
	}
	if res := mustRun(t, find(t, c, "work"), `{}`); res.Text() != "done" {
		t.Errorf("%s", res.Text())
	}
}

func TestStillborn(t *testing.T) {
	start := time.Now()
	_, err := tryConnect(t.Context(), child(t, "fails to start"))
	se, ok := errors.AsType[*ServerError](err)
	if !ok || !strings.Contains(se.Stderr, "the database is missing") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error: %v", err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("the error took %v", d)
	}
}

func TestEras(t *testing.T) {
	for _, role := range []string{"offended", "taciturn", "yes-man"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			c := connect(t, child(t, role))
			if st := c.Status(); st.Protocol != "2025-11-25" {
				t.Errorf("protocol: %q", st.Protocol)
			}
		})
	}
}

// TestRepeatedOnce checks that a call of a trusted read-only or idempotent tool that kills its server runs at
// most twice, and a call of another tool once.
func TestRepeatedOnce(t *testing.T) {
	for _, row := range []struct {
		annotations string
		trust       bool
		runs        int64
	}{
		{`{"readOnlyHint":true}`, true, 2}, {`{"idempotentHint":true}`, true, 2}, {`{"readOnlyHint":true}`, false, 1}, {`{}`, true, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int64
			c := memoryClient(t, Server{Options: Options{PingInterval: -1, TrustReadOnly: row.trust}}, func(msg request, reply func(string)) {
				if !handleStandard(msg, reply, `[{"name":"die","annotations":`+row.annotations+`}]`) && msg.Method == "tools/call" {
					runs.Add(1)
					reply(hangUp)
				}
			})
			res := mustRun(t, find(t, c, "die"), `{}`)
			if runs.Load() != row.runs || res.Outcome != message.OutcomeError {
				t.Errorf("%s, trusted %t: ran %d times, want %d: %s", row.annotations, row.trust, runs.Load(), row.runs, res.Text())
			}
			c.Close()
		})
	}
}

// TestMayHaveRun checks whether errors say that the server may have run the call.
func TestMayHaveRun(t *testing.T) {
	for what, want := range map[string]bool{"hang up": true, "silent": true, "empty": true, "gone before": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var gone atomic.Bool
				c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, func(msg request, reply func(string)) {
					switch {
					case gone.Load():
						reply(hangUp)
					case handleStandard(msg, reply, `[{"name":"t"}]`) || msg.Method != "tools/call":
					case what == "hang up":
						gone.Store(true)
						reply(hangUp)
					case what == "empty":
						reply(msg.result(`null`))
					}
				})
				tl := find(t, c, "t")
				if what == "gone before" {
					gone.Store(true)
					_ = c.Ping(t.Context())
				}
				err := callError(t, tl)
				se, ok := errors.AsType[*ServerError](err)
				if !ok || se.MayHaveRun != want || strings.Count(err.Error(), "may have had an effect") != map[bool]int{true: 1}[want] {
					t.Errorf("%v", err)
				}
				c.Close()
			})
		})
	}
}
