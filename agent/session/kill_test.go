package session_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/internal/killed"
)

// The environment of a child process: the path and the kind of the session,
// and the number of the save after which (or, if negative, before which) the
// process kills itself.
const (
	childDir  = "KITBAG_TEST_SESSION_DIR"
	childKind = "KITBAG_TEST_SESSION_KIND"
	childKill = "KITBAG_TEST_SESSION_KILL"

	childHold = 1 << 20 // only keep the session open
)

func TestMain(m *testing.M) {
	if os.Getenv(childDir) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func openJourney(dir, kind string) (*session.Session, error) {
	store, err := session.Dir(filepath.Join(dir, "sessions"))
	if err == nil && kind == "sealed" {
		store, err = session.Sealed(store, sealKey)
	}
	if err != nil {
		return nil, err
	}
	return session.Open(context.Background(), store, "journey")
}

// child continues the journey until it ends or the process is killed.
func child() error {
	dir := os.Getenv(childDir)
	kill, err := strconv.Atoi(os.Getenv(childKill))
	if err != nil {
		return err
	}
	kind := os.Getenv(childKind)
	if kind == kindPay || kind == kindPrint || kind == kindBehind {
		return payment(dir, kind, kill)
	}
	s, err := openJourney(dir, kind)
	if err != nil {
		return err
	}
	defer s.Close()
	if kill == childHold {
		fmt.Println("open")
		select {}
	}
	answer, err := finish(context.Background(), journeyAgent(dir, killed.Save(kill, s.Save)), s.State)
	fmt.Println(answer)
	return err
}

func childCmd(dir, kind string, kill int) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childKind+"="+kind, childKill+"="+strconv.Itoa(kill),
		"GORACE=atexit_sleep_ms=0") // otherwise each process of the race detector sleeps a second at its end
	return cmd
}

// hold starts a process that keeps the session open, and returns a function that kills it.
func hold(t *testing.T, dir, kind string) (stop func()) {
	t.Helper()
	cmd := childCmd(dir, kind, childHold)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	t.Cleanup(stop)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("the process wrote %q: %v", line, err)
	}
	return stop
}

// process runs a child and returns what it printed, and whether it was killed.
func process(t *testing.T, dir, kind string, kill int) (out string, died bool) {
	t.Helper()
	out, died, err := killed.Run(childCmd(dir, kind, kill))
	if err != nil {
		t.Fatalf("process that dies at save %d: %v", kill, err)
	}
	return out, died
}

// checkEnd checks the answer and the effects of a journey.
func checkEnd(t *testing.T, dir, kind, answer string) {
	t.Helper()
	if answer != journeyAnswer {
		t.Errorf("the answer is %q, want %q", answer, journeyAnswer)
	}
	got := effects(dir)
	slices.Sort(got)
	want := strings.Fields("1 10 11 12 2 3 4 5 6 7 9") // 8 is the host's
	if !slices.Equal(got, want) {
		t.Errorf("the effects are %v, want %v", got, want)
	}
	s, err := openJourney(dir, kind)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := agent.CheckHistory(s.State.Messages); err != nil {
		t.Error(err)
	}
}

// TestKill kills a process with SIGKILL after, and before, each save of a run
// of twelve calls, and continues in another process. The answer is the same, and
// no call has its effect twice.
func TestKill(t *testing.T) {
	for _, row := range []struct {
		kind       string
		sign, step int
	}{{"dir", 1, 1}, {"dir", -1, 3}, {"sealed", 1, 4}, {"sealed", -1, 9}} {
		t.Run(fmt.Sprintf("%s%+d", row.kind, row.sign), func(t *testing.T) {
			t.Parallel()
			for n := 1; killAt(t, row.kind, row.sign*n); n += row.step {
			}
		})
	}
}

// killAt reports whether the run had a save of that number.
func killAt(t *testing.T, kind string, kill int) bool {
	dir := t.TempDir()
	answer, died := process(t, dir, kind, kill)
	if !died && max(kill, -kill) < 30 {
		t.Fatalf("the run made less than %d saves", max(kill, -kill))
	}
	if died { // starting a third process would take longer
		answer = resume(t, dir, kind)
	}
	if checkEnd(t, dir, kind, answer); t.Failed() {
		t.Fatalf("the process was killed at save %d", kill)
	}
	return died
}

// resume runs the journey to its end in this process.
func resume(t *testing.T, dir, kind string) string {
	s, err := openJourney(dir, kind)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	answer, err := finish(t.Context(), journeyAgent(dir, s.Save), s.State)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestKillAgain kills every process at its fifth save until one finishes.
func TestKillAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n := 1; ; n++ {
		answer, died := process(t, dir, "dir", 5)
		if !died {
			if n < 5 {
				t.Errorf("only %d processes were killed", n-1)
			}
			checkEnd(t, dir, "dir", answer)
			return
		}
		if n > 60 {
			t.Fatal("60 processes did not finish the journey")
		}
	}
}
