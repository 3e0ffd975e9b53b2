//go:build amd64 || arm64

package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
	"golang.org/x/sys/unix"
)

// host runs a command in its own process group, as a program with default settings does, and prints whether the
// command could signal that group, or access a terminal that it was not given.
func host(how string) {
	if strings.Contains(how, "landlock") {
		sandbox.WithoutLandlock()
	}
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGUSR1)
	s := sandbox.Spec{Profile: permission.Profile(strings.Fields(how)[0])}
	cmd := exec.Command("/proc/self/exe", "reach", "")
	if strings.Contains(how, "terminal") {
		cmd.Stdin = os.Stdin
	}
	out, err := os.CreateTemp("", "")
	if err != nil {
		panic(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cleanup, err := s.Command(cmd)
	if err != nil {
		panic(err)
	}
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
	}
	if _, err := cleanup(); err != nil {
		fmt.Println(err)
	}
	if text, _ := os.ReadFile(out.Name()); string(text) != "done\n" && !(string(text) == "opened the terminal\ndone\n" && cmd.Stdin != nil) {
		fmt.Printf("inside: %s", text)
	}
	select {
	case <-signals:
		fmt.Println("got a signal")
	case <-time.After(20 * time.Millisecond):
	}
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || now != nice {
		fmt.Println("priority of", now, "instead of", nice, err)
	}
	if prio, _, _ := unix.Syscall(unix.SYS_IOPRIO_GET, ioprioProcess, 0, 0); prio>>13 == ioprioIdle {
		fmt.Println("reads and writes last")
	}
	fmt.Println("host done")
}

const (
	ioprioProcess, ioprioGroup = 1, 2
	ioprioIdle                 = 3
)

// reach runs in the sandbox.
func reach(string) {
	signal.Ignore(unix.SIGUSR1)
	unix.Kill(0, unix.SIGUSR1)
	unix.Setpriority(unix.PRIO_PGRP, 0, 19)
	unix.Syscall(unix.SYS_IOPRIO_SET, ioprioGroup, 0, ioprioIdle<<13)
	if f, err := os.Open("/dev/tty"); err == nil {
		f.Close()
		fmt.Println("opened the terminal")
	}
	fmt.Println("done")
}

// TestGroupOfCaller checks that a command can access neither the process group that it was started from, nor a
// terminal that it was not given.
func TestGroupOfCaller(t *testing.T) {
	for _, how := range []string{"work", "read", "work terminal", "read terminal", "work terminal landlock", "work landlock"} {
		self, user := ordinary(t)
		cmd := exec.Command("script", "-qec", self+" host '"+how+"'", "/dev/null") // a session with a terminal
		cmd.Dir, cmd.SysProcAttr = "/", user
		out, err := cmd.CombinedOutput()
		if got := strings.ReplaceAll(string(out), "\r", ""); err != nil || got != "host done\n" {
			t.Errorf("%s: %v\n%s", how, err, got)
		}
	}
}

// ordinary returns this program, and the attributes to start it as a user without privileges, because other
// users are subject to fewer restrictions.
func ordinary(t *testing.T) (self string, attr *syscall.SysProcAttr) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return self, nil
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data, err := os.ReadFile(self)
	if err := errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(dir+"/self", data, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir + "/self", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}
