//go:build amd64 || arm64

package sandbox_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
	"golang.org/x/sys/unix"
)

// beats is a script that writes to a file of the working directory for ever, and leaves
// every group and session that it can.
const beats = `setsid bash -c 'trap "" TERM HUP INT; while :; do echo >>beat; sleep 0.01; done' >/dev/null 2>&1 &
until [ -s beat ]; do sleep 0.01; done
`

// stopped fails the test if the file still grows.
func stopped(t *testing.T, w world) {
	t.Helper()
	size := func() int64 {
		info, err := os.Stat(w.work + "/beat")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	time.Sleep(50 * time.Millisecond)
	if after := size(); after != before {
		t.Errorf("a process is left: the file grew from %d to %d bytes", before, after)
	}
}

func TestNobodyIsLeft(t *testing.T) {
	w := newWorld(t)
	s := w.spec(permission.ProfileWork)
	for _, end := range []string{"exit 0", "kill -9 $$", "exec true"} {
		cmd := bash(w, beats+end)
		cleanup, err := s.Command(cmd)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Run()
		r, err := cleanup()
		if err != nil {
			t.Fatal(err)
		}
		if want := end == "kill -9 $$"; !r.Left || (r.Signal == syscall.SIGKILL) != want {
			t.Errorf("%s: %+v", end, r)
		}
		stopped(t, w)
	}
	cmd := bash(w, "sleep 0 & true | true; wait")
	cleanup, err := s.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	if r, err := cleanup(); err != nil || r.Left {
		t.Errorf("processes that have ended are left: %+v, %v", r, err)
	}
}

// TestKilled holds that the first process takes all others with it, whoever ends it.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	s := w.spec(permission.ProfileWork)
	cmd := bash(w, beats+"echo ready; sleep 60")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cleanup, err := s.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 10))
	cmd.Process.Kill()
	cmd.Wait()
	if _, err := cleanup(); err != nil {
		t.Error(err)
	}
	stopped(t, w)
}

// caller starts a command, says so, and waits to be killed.
func caller(dir string) {
	s := sandbox.Spec{Profile: permission.ProfileWork, Write: []string{dir}}
	cmd := exec.Command("bash", "-c", beats+"echo ready; sleep 60")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	if _, err := s.Command(cmd); err != nil {
		panic(err)
	}
	cmd.Run()
}

func TestCallerEnds(t *testing.T) {
	w := newWorld(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "caller", w.work)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 10))
	cmd.Process.Kill()
	cmd.Wait()
	time.Sleep(100 * time.Millisecond) // until the first process has seen it
	stopped(t, w)
}

// TestSignals holds that a signal for the process, or for the group it leads, reaches the
// program once.
func TestSignals(t *testing.T) {
	w := newWorld(t)
	const script = `trap 'echo got' TERM; echo ready; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.02; done; exit 3`
	for name, c := range map[string]struct {
		attr *syscall.SysProcAttr
		kill func(pid int) error
	}{
		"process":                {nil, func(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) }},
		"process of a session":   {&syscall.SysProcAttr{Setsid: true}, func(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) }},
		"group of a session":     {&syscall.SysProcAttr{Setsid: true}, func(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }},
		"group of a group it is": {&syscall.SysProcAttr{Setpgid: true}, func(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := w.spec(permission.ProfileWork)
			cmd := bash(w, script)
			cmd.SysProcAttr = c.attr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cleanup, err := s.Command(cmd)
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			text := make([]byte, 100)
			n, _ := out.Read(text)
			if err := c.kill(cmd.Process.Pid); err != nil {
				t.Error(err)
			}
			more, _ := out.Read(text[n:])
			rest, _ := out.Read(text[n+more:])
			err = cmd.Wait()
			if got := string(text[:n+more+rest]); got != "ready\ngot\n" || exitCode(t, err) != 3 {
				t.Errorf("printed %q, %v; want one signal, and exit code 3", got, err)
			}
			if _, err := cleanup(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMade(t *testing.T) {
	w := newWorld(t)
	s := w.spec(permission.ProfileWork)
	cmd := bash(w, "echo x >.npmrc")
	cleanup, err := s.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	r, err := cleanup()
	if want := []string{w.work + "/.npmrc"}; err != nil || !slices.Equal(r.Made, want) {
		t.Errorf("got %q, %v; want %q", r.Made, err, want)
	}
}

// TestReplaced has another program put new files in the place of protected and hidden ones
// while a command runs: they are covered, too, and reported.
func TestReplaced(t *testing.T) {
	const wait = `covered() { for ((i = 0; i < 500; i++)); do "$@" || return 0; sleep 0.01; done; echo "never: $*"; }
		secret() { cat .env; }; config() { : >>.git/config; }; hook() { : >.git/hooks/x; }
		echo ready; while read && exec 2>/dev/null; do covered secret; `
	for profile, row := range map[permission.Profile]struct {
		script   string
		replaced []string
	}{
		permission.ProfileWork: {wait + "covered config; covered hook; cat .git/config kitbag.json; done", []string{"/.git/config", "/.git/hooks", "/.env"}},
		permission.ProfileRead: {wait + "cat .git/config kitbag.json; done", []string{"/.env"}},
	} {
		w := newWorld(t)
		s := w.spec(profile)
		cmd := bash(w, row.script)
		in, inErr := cmd.StdinPipe()
		out, outErr := cmd.StdoutPipe()
		cleanup, err := s.Command(cmd)
		if err := errors.Join(inErr, outErr, err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 1000)
		out.Read(text)
		for _, how := range []func(name string) error{
			func(name string) error { return os.Rename(w.work+"/new", name) },
			func(name string) error { return errors.Join(os.Remove(name), os.Rename(w.work+"/new", name)) },
			func(name string) error { return errors.Join(os.Rename(name, name+"~"), os.Rename(w.work+"/new", name)) },
		} {
			for _, name := range []string{".git/config", ".env"} {
				if err := errors.Join(os.WriteFile(w.work+"/new", []byte("new\n"), 0o644), how(w.work+"/"+name)); err != nil {
					t.Fatal(err)
				}
			}
			err = errors.Join(os.RemoveAll(w.work+"/.git/hooks"), os.Mkdir(w.work+"/.git/hooks", 0o755), os.WriteFile(w.work+"/kitbag.json", []byte("{ }\n"), 0o644))
			if err != nil {
				t.Fatal(err)
			}
			in.Write([]byte("\n"))
			n, _ := out.Read(text)
			for n > 0 && !strings.HasSuffix(string(text[:n]), "{ }\n") {
				more, err := out.Read(text[n:])
				if n += more; err != nil {
					break
				}
			}
			if got := string(text[:n]); strings.Contains(got, "never") || !strings.HasSuffix(got, "new\n{ }\n") {
				t.Errorf("%s: printed %q", profile, got)
			}
		}
		in.Close()
		cmd.Wait()
		r, err := cleanup()
		for i := range row.replaced {
			row.replaced[i] = w.work + row.replaced[i]
		}
		if err != nil || !slices.Equal(r.Replaced, row.replaced) {
			t.Errorf("%s: got %q, %v; want %q", profile, r.Replaced, err, row.replaced)
		}
	}
}

// TestTemporary holds that temporary files, and what is written to scratch directories, are
// bounded together, in size and in number.
func TestTemporary(t *testing.T) {
	w := newWorld(t)
	s := w.spec(permission.ProfileWork)
	s.Limits.Temporary = 1 << 20
	for _, script := range []string{
		"head -c 2M /dev/zero >/tmp/x", "head -c 2M /dev/zero >/dev/shm/x", "head -c 2M /dev/zero >@HOME/cache/x",
		"head -c 700K /dev/zero >/tmp/x; head -c 700K /dev/zero >@HOME/cache/x", "for ((i=0; i<3000; i++)); do : >/tmp/$i || exit; done",
	} {
		out, err := confined(t, s, bash(w, script))
		if err == nil || !strings.Contains(out, "No space left on device") || !strings.Contains(sandbox.Denied(s, exitCode(t, err), []byte(out)), "up to 1048576 bytes") {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
	if out, err := confined(t, s, bash(w, "head -c 2M /dev/zero >x && head -c 500K /dev/zero >/tmp/x")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCoveredScratch has a scratch directory where other programs' sockets may be, which is
// covered.
func TestCoveredScratch(t *testing.T) {
	for _, in := range []string{"/tmp", "/var/tmp"} {
		dir, err := os.MkdirTemp(in, "kitbag-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		cache := dir + "/a/cache"
		if err := errors.Join(os.MkdirAll(cache, 0o755), os.WriteFile(cache+"/old", []byte("cached\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t)
		s := w.spec(permission.ProfileWork)
		s.Scratch = []string{cache}
		out, err := confined(t, s, bash(w, "cat "+cache+"/old && echo new >"+cache+"/new && cat "+cache+"/new && ls "+in+" | grep -c kitbag-test"))
		if err != nil || !strings.HasPrefix(out, "cached\nnew\n") {
			t.Errorf("%v\n%s", err, out)
		}
		if _, err := os.Lstat(cache + "/new"); err == nil {
			t.Error("the file is kept")
		}
	}
}

// TestErrors holds that what cannot be confined is not run, and why.
func TestErrors(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.work, "a")
	for name, c := range map[string]struct {
		spec sandbox.Spec
		want string
	}{
		"unknown profile":    {sandbox.Spec{Profile: "wrok"}, `unknown profile "wrok"; use read, work or open`},
		"no profile":         {sandbox.Spec{}, `unknown profile ""; use read, work or open`},
		"missing directory":  {sandbox.Spec{Profile: "work", Write: []string{w.work + "/none"}}, "no such file or directory; create it, or leave it out"},
		"relative directory": {sandbox.Spec{Profile: "work", Write: []string{"work"}}, `writable directory "work" is not an absolute path`},
		"file":               {sandbox.Spec{Profile: "work", Write: []string{file}}, "is not a directory; name the directory that contains it"},
		"everything":         {sandbox.Spec{Profile: "work", Write: []string{"/"}}, "/ cannot be granted for writing, because the program could undo its confinement"},
		"kernel":             {sandbox.Spec{Profile: "work", Write: []string{"/proc/self"}}, "cannot be granted for writing"},
	} {
		cmd := exec.Command("true")
		if _, err := c.spec.Command(cmd); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %q", name, err, c.want)
		}
		if filepath.Base(cmd.Path) != "true" {
			t.Errorf("%s: the command was changed: %s", name, cmd.Path)
		}
	}
	s := w.spec(permission.ProfileRead)
	if _, err := s.Command(exec.Command("no-such-program")); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("missing program: %v", err)
	}
	for path, want := range map[string]error{w.work + "/none": fs.ErrNotExist, file: fs.ErrPermission} {
		cmd := &exec.Cmd{Path: path, Dir: w.work}
		cleanup, err := s.Command(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Run(); exitCode(t, err) != 126 {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := cleanup(); !errors.Is(err, want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := cleanup(); err == nil {
			t.Error("no error for a second cleanup")
		}
	}
	started := exec.Command("true")
	if err := started.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Command(started); err == nil {
		t.Error("no error for a command that was started")
	}
}

// TestOpen holds that the profile open changes nothing.
func TestOpen(t *testing.T) {
	s := sandbox.Spec{Profile: permission.ProfileOpen}
	cmd := exec.Command("true", "x")
	path := cmd.Path
	cleanup, err := s.Command(cmd)
	if err != nil || cmd.Path != path || len(cmd.Args) != 2 || cmd.SysProcAttr != nil {
		t.Errorf("%v, %+v", err, cmd)
	}
	if _, err := cleanup(); err != nil {
		t.Error(err)
	}
}

// without runs this machine's check where a part is really missing, as root of a namespace that the
// test has made, and prints which layers there are not, and what a command can do.
func without(part string) {
	var err error
	switch part {
	case "namespaces":
		err = os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
	case "own /proc": // as container runtimes cover files there
		err = unix.Mount("/dev/null", "/proc/timer_list", "", unix.MS_BIND, "")
	case "Landlock":
		err = withoutCall(unix.SYS_LANDLOCK_CREATE_RULESET)
	}
	if err != nil {
		panic(err)
	}
	for _, l := range sandbox.Check().Layers {
		if limit := l.Name == "limit of processes"; limit && part != "namespaces" && part != "own /proc" {
			continue // not every kernel can do it, and what else is missing does not matter
		}
		if !l.OK {
			fmt.Printf("%s: %s\n  %s\n", l.Name, l.Detail, l.Means)
		}
	}
	s := sandbox.Spec{Profile: permission.ProfileWork}
	cmd := exec.Command("bash", "-c", "echo x 2>/dev/null >"+os.Getenv("OUTSIDE")+" || echo kept; test -e /proc/1 || echo no processes")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cleanup, err := s.Command(cmd)
	if err != nil {
		fmt.Println("not run:", errors.Is(err, sandbox.ErrUnavailable))
		return
	}
	runErr := cmd.Run()
	if _, err := cleanup(); err != nil || runErr != nil {
		fmt.Println(err, runErr)
	}
}

// withoutCall has a system call fail as if the kernel had none.
func withoutCall(nr uint32) error {
	f := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	return errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, ptr(&prog)))
}

// TestConditions holds what the status says, and what a command is kept from, where a part is
// really missing.
func TestConditions(t *testing.T) {
	for part, want := range map[string]string{
		"nothing": "kept\n",
		"namespaces": "namespaces: fork/exec /proc/self/exe: no space left on device; sysctl user.max_user_namespaces is 0, which forbids user namespaces; change it\n  no command can be confined\n" +
			"own /proc: not tried, as there are no namespaces\n  no command can be confined\nlimit of processes: not tried, as there are no namespaces\n  no command can be confined\n" +
			"Unix sockets: not tried, as there are no namespaces\n  no command can be confined\nscratch directories: not tried, as there are no namespaces\n  no command can be confined\nnot run: true\n",
		"own /proc": "own /proc: a part of /proc is covered, as in many containers, so the kernel does not allow a new one; give the container an uncovered /proc\n" +
			"  /proc contains only a few files: ps, and <(…) in a shell, fail in a command\n" +
			"limit of processes: for root only the namespace can limit them, which needs Linux 6.14 and a /proc of its own; use another user\n  a command can start processes without end\n" +
			"Unix sockets: the kernel does not allow this process to handle a command's connections, as in a container whose manager handles them itself, or without its own /proc\n" +
			"  a command has no Unix sockets but pairs\nkept\nno processes\n",
		"Landlock": "Landlock: the kernel does not have it, or it is disabled; add landlock to the lsm= of the kernel's command line\n" +
			"  a command may write to named pipes of other programs, and open a descriptor that it was given in another way\nkept\n",
	} {
		cmd := exec.Command("/proc/self/exe", "without", part)
		cmd.Dir, cmd.Env = "/", append(os.Environ(), "OUTSIDE="+newWorld(t).home+"/file")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("without %s: %v\n%s\nwant\n%s", part, err, out, want)
		}
	}
}

// TestLacking holds what remains without a layer, and that Check says so.
func TestLacking(t *testing.T) {
	status := func(name string) (l sandbox.Layer) {
		for _, l = range sandbox.Check().Layers {
			if l.Name == name {
				return l
			}
		}
		t.Fatalf("no layer %q", name)
		return l
	}
	w := newWorld(t)
	s := w.spec(permission.ProfileWork)
	t.Run("namespaces", func(t *testing.T) {
		sandbox.Lacking(t, "namespaces")
		if _, err := s.Command(bash(w, "true")); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "namespaces") {
			t.Errorf("got %v", err)
		}
		if l := status("namespaces"); l.OK || l.Means != "no command can be confined" {
			t.Errorf("%+v", l)
		}
	})
	t.Run("proc", func(t *testing.T) {
		sandbox.Lacking(t, "proc")
		out, err := confined(t, s, bash(w, "ls /proc; head -c1 /proc/uptime | wc -c; cat a"))
		if want := "cpuinfo\nfilesystems\nloadavg\nmeminfo\nstat\nuptime\nversion\n1\nhello\n"; out != want || err != nil {
			t.Errorf("got %q, %v; want %q", out, err, want)
		}
		if l := status("own /proc"); l.OK {
			t.Errorf("%+v", l)
		}
	})
	t.Run("landlock", func(t *testing.T) {
		sandbox.Lacking(t, "landlock")
		out, err := confined(t, s, bash(w, "echo x >@HOME/file; echo y >b && cat b"))
		if err != nil || !strings.Contains(out, "Read-only file system") || !strings.HasSuffix(out, "y\n") {
			t.Errorf("%q, %v", out, err)
		}
		if l := status("Landlock"); l.OK {
			t.Errorf("%+v", l)
		}
		s := s
		s.Network = true
		if got := succeeding(t, s, nil); !slices.Contains(got, "own socket") || slices.Contains(got, "connect to a socket") || !slices.Contains(got, "listen") {
			t.Errorf("succeeded: %q", got)
		}
	})
	t.Run("unix", func(t *testing.T) {
		for _, layer := range []string{"unix", "proc"} {
			sandbox.Lacking(t, layer)
			if got := succeeding(t, s, nil); slices.Contains(got, "own socket") || slices.Contains(got, "connect to a socket") || !slices.Contains(got, "listen") {
				t.Errorf("succeeded without %s: %q", layer, got)
			}
			if l := status("Unix sockets"); l.OK || l.Means != "a command has no Unix sockets but pairs" {
				t.Errorf("%+v", l)
			}
		}
	})
	t.Run("scratch", func(t *testing.T) {
		sandbox.Lacking(t, "scratch")
		out, err := confined(t, s, bash(w, "echo x >@HOME/cache/new"))
		if err == nil || !strings.Contains(out, "Read-only file system") {
			t.Errorf("%q, %v", out, err)
		}
		if l := status("scratch directories"); l.OK {
			t.Errorf("%+v", l)
		}
	})
	for _, l := range sandbox.Check().Layers {
		if !l.OK {
			t.Errorf("this machine, on which everything is to be tested, lacks %s: %s", l.Name, l.Detail)
		}
	}
}

// TestCallerStays holds that a process which lends its memory to the one it starts keeps its
// rights: who has changed them cannot be debugged, and its files in /proc are root's.
func TestCallerStays(t *testing.T) {
	w := newWorld(t)
	is := func() string {
		dumpable, _, _ := unix.Syscall(unix.SYS_PRCTL, unix.PR_GET_DUMPABLE, 0, 0)
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rights, _ := strings.Cut(string(status), "CapInh:")
		rights, _, _ = strings.Cut(rights, "Seccomp_filters:")
		user, err := os.Readlink("/proc/self/ns/user")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(dumpable, rights, user)
	}
	before := is()
	for _, p := range []permission.Profile{permission.ProfileRead, permission.ProfileWork} {
		if out, err := confined(t, w.spec(p), bash(w, "true")); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	if after := is(); after != before {
		t.Errorf("the caller was\n%s\nand is\n%s", before, after)
	}
}

// starve runs in the sandbox: it keeps the process that covers files busy with connections, and reports how long it can
// read a hidden file that another program has replaced.
func starve(name string) {
	for range 64 {
		go func() {
			for {
				if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err == nil {
					unix.Connect(fd, &unix.SockaddrUnix{Name: "/none"})
					unix.Close(fd)
				}
			}
		}()
	}
	fmt.Println("ready")
	var first time.Time
	removed := false
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		data, err := os.ReadFile(name)
		switch isNew := string(data) == "new"; {
		case isNew && first.IsZero():
			first = time.Now()
		case isNew && time.Since(first) > 500*time.Millisecond:
			fmt.Println("the file stays readable")
			return
		case errors.Is(err, fs.ErrNotExist):
			removed = true
		case errors.Is(err, fs.ErrPermission) && removed:
			fmt.Println("covered")
			return
		}
	}
	fmt.Println("not covered, removed:", removed)
}

// TestCoverDespiteConnections replaces a hidden file with a pause in between, which needs checks after the last change
// of a mount.
func TestCoverDespiteConnections(t *testing.T) {
	w := newWorld(t)
	secret := filepath.Join(w.work, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sandbox.Spec{Profile: permission.ProfileWork, Write: []string{w.work}, Hide: []string{secret}}
	cmd := exec.Command("/proc/self/exe", "starve", secret)
	cmd.Dir = w.work
	cleanup, err := s.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer cleanup()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	if err := os.WriteFile(secret, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines.Scan()
	if err := cmd.Wait(); err != nil || lines.Text() != "covered" {
		t.Errorf("%v: %q", err, lines.Text())
	}
}
