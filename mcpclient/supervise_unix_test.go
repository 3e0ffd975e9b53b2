//go:build unix

package mcpclient

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

// TestUnreadRequestIsSentAgain kills a server while a request waits in the pipe. That request must run once,
// since it was never read; the request before it was read, and must not run again.
func TestUnreadRequestIsSentAgain(t *testing.T) {
	cfg := child(t, "crashing")
	diary := withDiary(t, &cfg)
	c := connect(t, cfg)
	frozen, waiting := make(chan *message.ToolResult, 1), make(chan *message.ToolResult, 1)
	freeze, work := find(t, c, "freeze"), find(t, c, "work")
	go func() { res, _ := run(t.Context(), freeze, `{}`); frozen <- res }()
	until(t, func() bool { return strings.Contains(diary(), "ran freeze") })
	go func() { res, _ := run(t.Context(), work, `{"x":"`+strings.Repeat("y", 200_000)+`"}`); waiting <- res }()
	until(t, func() bool {
		c.sup.mu.Lock()
		defer c.sup.mu.Unlock()
		return c.sup.conn.activeUses.Load() == 2
	})
	time.Sleep(50 * time.Millisecond) // let as much of it be written as the pipe takes
	if err := syscall.Kill(lastPID(t, diary()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if res := <-frozen; res == nil || !strings.Contains(res.Text(), "lost") {
		t.Errorf("the call that was read: %+v", res)
	}
	if res := <-waiting; res == nil || res.Text() != "done" {
		t.Errorf("the call that was not read: %+v", res)
	}
	if d := diary(); strings.Count(d, "ran freeze") != 1 || strings.Count(d, "ran work") != 1 {
		t.Errorf("diary:\n%s", d)
	}
}

func TestKilledWhileIdle(t *testing.T) {
	cfg := child(t, "crashing")
	diary := withDiary(t, &cfg)
	c := connect(t, cfg)
	for range 3 {
		pid := lastPID(t, diary())
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// Until the process is dead, its kernel side may still read a request from the pipe; then it is unknown whether
		// it ran.
		until(t, func() bool { return syscall.Kill(pid, 0) != nil })
		if res := mustRun(t, find(t, c, "work"), `{}`); res.Text() != "done" {
			t.Fatalf("%s", res.Text())
		}
	}
	if n := strings.Count(diary(), "ran work"); n != 3 {
		t.Errorf("3 calls ran %d times", n)
	}
}

// TestGrandchildrenDie relies on connect, which checks for processes that are left.
func TestGrandchildrenDie(t *testing.T) {
	cfg := child(t, "crashing")
	diary := withDiary(t, &cfg)
	c := connect(t, cfg)
	mustRun(t, find(t, c, "leave_child"), `{}`)
	_, rest, _ := strings.Cut(diary(), "child ")
	pid, err := strconv.Atoi(strings.TrimSpace(rest))
	if err != nil || syscall.Kill(pid, 0) != nil {
		t.Fatalf("there is no child %q; the test would check nothing", rest)
	}
	c.Close()
}
