//go:build amd64 || arm64

package sandbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
	"golang.org/x/sys/unix"
)

// A target is what an attack is told of the process that it is to reach.
type target struct {
	Pid     int
	Memory  uintptr // where a byte of it is
	Dir     string  // writable in the profile work
	Outside string  // not
	Sockets []string
	Stream  string // of TCP
	Root    bool
}

var foreign func() // a system call of another architecture

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "attack" {
		var t target
		if err := json.Unmarshal([]byte(os.Args[2]), &t); err != nil {
			panic(err)
		}
		t.attack()
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "foreign" && foreign != nil {
		foreign()
		return
	}
	if len(os.Args) == 3 {
		if run := inside[os.Args[1]]; run != nil {
			run(os.Args[2])
			return
		}
	}
	os.Exit(m.Run())
}

// inside are what this program does, by its first argument, instead of testing.
var inside = map[string]func(arg string){
	"caller": caller,
	"connect": func(arg string) {
		var names []string
		if err := json.Unmarshal([]byte(arg), &names); err != nil {
			panic(err)
		}
		connectTo(names)
	},
	"own":  func(arg string) { ownSockets(arg == "true") },
	"swap": swap, "host": host, "reach": reach, "craft": craft, "elsewhere": elsewhere, "both": both, "without": without, "often": connectOften, "starve": starve,
}

// attack tries everything there is and prints what succeeded.
func (t target) attack() {
	runtime.LockOSThread()
	for _, a := range attacks {
		if err := a.try(t); err == nil {
			fmt.Println("succeeded:", a.name)
		} else if os.Getenv("VERBOSE") != "" {
			fmt.Printf("failed: %s: %v\n", a.name, err)
		}
	}
	fmt.Println("done")
}

// An attack returns an error if it has failed.
type attack struct {
	name string
	work bool // allowed in the profile work
	try  func(t target) error
}

func call(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := syscall.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// denied is an attack by a system call that must not even be looked at: an error other than
// EPERM says that it was.
func denied(name string, nr uintptr, args ...uintptr) attack {
	return attack{name: name, try: func(target) error {
		err := call(nr, args...)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			return err
		}
		return nil
	}}
}

// inWork says that an attack is allowed in the profile work.
func inWork(a attack) attack { a.work = true; return a }

func open(name string, flags int) error {
	f, err := os.OpenFile(name, flags|unix.O_NONBLOCK, 0o600)
	if err == nil {
		f.Close()
	}
	return err
}

func ptr[T any](v *T) uintptr { return uintptr(unsafe.Pointer(v)) }

var zeros [256]byte

var attacks = []attack{
	// The parent.
	{"signal the parent", false, func(t target) error { return unix.Kill(t.Pid, 0) }},
	{"signal everyone", false, func(t target) error {
		// There is the process that started this one, at least; it must not end by this.
		if err := unix.Kill(-1, unix.SIGUSR2); err != nil {
			return err
		}
		return errors.New("it reached no other process")
	}},
	{"limits of the parent", false, func(t target) error {
		return unix.Prlimit(t.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: 1}, nil)
	}},
	{"descriptor of the parent", false, func(t target) error { _, err := unix.PidfdOpen(t.Pid, 0); return err }},
	{"priority of the parent", false, func(t target) error { return unix.Setpriority(unix.PRIO_PROCESS, t.Pid, 19) }},
	{"memory of the parent", false, func(t target) error { return open(fmt.Sprintf("/proc/%d/mem", t.Pid), os.O_RDWR) }},
	{"environment of the parent", false, func(t target) error { return open(fmt.Sprintf("/proc/%d/environ", t.Pid), os.O_RDONLY) }},
	{"memory of the first process", false, func(t target) error { return open("/proc/1/mem", os.O_RDWR) }},
	{"environment of the first process", false, func(t target) error { return open("/proc/1/environ", os.O_RDONLY) }},
	{"files of the first process", false, func(t target) error {
		for fd := range 100 {
			if name := fmt.Sprintf("/proc/1/fd/%d", fd); open(name, os.O_RDONLY) == nil || open(name, os.O_WRONLY) == nil {
				return nil
			}
		}
		return errors.New("none")
	}},
	{"root of the first process", false, func(t target) error { return open("/proc/1/root/etc", os.O_RDONLY) }},
	denied("process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, 1, 0, 0, 0, 0, 0),
	denied("ptrace", unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1),
	denied("pidfd_getfd", unix.SYS_PIDFD_GETFD, ^uintptr(0), 0, 0),
	denied("kcmp", unix.SYS_KCMP, 1, 1, 0, 0, 0),
	// The kernel.
	denied("bpf", unix.SYS_BPF, 0, 0, 0),
	denied("perf_event_open", unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0),
	denied("userfaultfd", unix.SYS_USERFAULTFD, 1),
	denied("io_uring", unix.SYS_IO_URING_SETUP, 1, ptr(&zeros)),
	denied("keyctl", unix.SYS_KEYCTL, 0, 0, 0),
	denied("add_key", unix.SYS_ADD_KEY, 0, 0, 0, 0, 0),
	denied("init_module", unix.SYS_INIT_MODULE, 0, 0, 0),
	denied("kexec_load", unix.SYS_KEXEC_LOAD, 0, 0, 0, 0),
	denied("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0),
	denied("syslog", unix.SYS_SYSLOG, 10, 0, 0),
	denied("a new system call", 5000),
	denied("a system call of x32", 0x40000000+39),
	inWork(denied("shared memory of others", unix.SYS_SHMCTL, ^uintptr(0), unix.IPC_RMID, 0)),
	inWork(denied("semaphores of others", unix.SYS_SEMCTL, ^uintptr(0), 0, unix.IPC_RMID)),
	inWork(denied("message queues", unix.SYS_MSGGET, 1, 0)),
	inWork(denied("message queues with a name", unix.SYS_MQ_OPEN, ptr(&zeros), 0, 0, 0)),
	// Namespaces and mounts.
	denied("unshare user", unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
	denied("clone user", unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD)),
	denied("clone3", unix.SYS_CLONE3, 0, 0),
	denied("setns", unix.SYS_SETNS, 0, 0),
	denied("mount", unix.SYS_MOUNT, 0, 0, 0, unix.MS_REMOUNT, 0),
	denied("umount", unix.SYS_UMOUNT2, ptr(&[]byte("/proc\x00")[0]), unix.MNT_DETACH),
	denied("mount_setattr", unix.SYS_MOUNT_SETATTR, 0, 0, 0, 0, 0),
	denied("open_tree", unix.SYS_OPEN_TREE, 0, 0, 1),
	denied("pivot_root", unix.SYS_PIVOT_ROOT, 0, 0),
	denied("chroot", unix.SYS_CHROOT, ptr(&[]byte("/\x00")[0])),
	denied("sethostname", unix.SYS_SETHOSTNAME, ptr(&zeros), 0),
	{"set user", false, func(t target) error { return unix.Setresuid(1, 1, 1) }},
	{"set group", false, func(t target) error { return unix.Setgroups([]int{1}) }},
	{"raise a limit", false, func(t target) error {
		return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
	}},
	// The terminal.
	{"type at the terminal", false, func(t target) error { return ioctl(unix.TIOCSTI) }},
	{"type at the terminal, high bits", false, func(t target) error { return ioctl(unix.TIOCSTI | 1<<40) }},
	{"selection of the terminal", false, func(t target) error { return ioctl(unix.TIOCLINUX) }},
	// Files.
	{"write outside", false, func(t target) error { return open(t.Outside+"/file", os.O_WRONLY) }},
	{"make outside", false, func(t target) error { return open(t.Outside+"/new", os.O_WRONLY|os.O_CREATE) }},
	{"remove outside", false, func(t target) error { return os.Remove(t.Outside + "/file") }},
	{"rename outside", false, func(t target) error { return os.Rename(t.Outside+"/file", t.Outside+"/x") }},
	{"link to outside", false, func(t target) error { return os.Link(t.Outside+"/file", t.Dir+"/link") }},
	{"mode outside", false, func(t target) error { return os.Chmod(t.Outside+"/file", 0o777) }},
	{"times outside", false, func(t target) error { return os.Chtimes(t.Outside+"/file", time.Now(), time.Now()) }},
	{"attribute outside", false, func(t target) error { return unix.Setxattr(t.Outside+"/file", "user.x", []byte("x"), 0) }},
	{"named pipe outside", false, func(t target) error { return open(t.Outside+"/pipe", os.O_RDWR) }},
	{"write in the directory", true, func(t target) error { return open(t.Dir+"/new", os.O_WRONLY|os.O_CREATE) }},
	{"mode of standard input", false, func(t target) error { return unix.Fchmod(0, 0o666) }},
	{"times of standard input", false, func(t target) error { return unix.Futimes(0, []unix.Timeval{{Sec: 1}, {Sec: 1}}) }},
	{"write through a descriptor", false, func(t target) error { return open("/proc/self/fd/3", os.O_WRONLY) }},
	{"sysctl", false, func(t target) error { return open("/proc/sys/kernel/core_pattern", os.O_WRONLY) }},
	{"sysrq", false, func(t target) error { return open("/proc/sysrq-trigger", os.O_WRONLY) }},
	{"uevent helper", false, func(t target) error { return open("/sys/kernel/uevent_helper", os.O_WRONLY) }},
	{"cgroup", false, func(t target) error { return os.Mkdir("/sys/fs/cgroup/x", 0o755) }},
	{"make a device", false, func(t target) error { return unix.Mknod(t.Dir+"/dev", unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))) }},
	{"memory of the machine", false, func(t target) error { return open("/dev/mem", os.O_RDONLY) }},
	{"disk of the machine", false, func(t target) error { return open("/dev/vda", os.O_RDONLY) }},
	{"messages of the machine", false, func(t target) error { return open("/dev/kmsg", os.O_WRONLY) }},
	// Sockets.
	{"connect to a socket", false, func(t target) error {
		for _, name := range t.Sockets {
			if c, err := net.Dial("unix", name); err == nil {
				c.Close()
				return nil
			}
		}
		return errors.New("none")
	}},
	{"send by a pair", false, func(t target) error {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		err = unix.ENOENT
		for _, name := range t.Sockets {
			if strings.HasSuffix(name, "datagram") {
				err = unix.Sendto(pair[0], []byte("x"), 0, &unix.SockaddrUnix{Name: name})
			}
		}
		return err
	}},
	{"connect to the machine", false, func(t target) error { _, err := net.Dial("tcp", t.Stream); return err }},
	{"socket of the virtual machine's host", false, func(t target) error {
		_, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
		return err
	}},
	{"raw socket", false, func(t target) error {
		_, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		return err
	}},
	{"listen", true, func(t target) error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err }},
	{"own socket", true, func(t target) error { _, err := net.Listen("unix", "/tmp/own"); return err }},
}

func ioctl(cmd uintptr) error {
	err := call(unix.SYS_IOCTL, 0, cmd, ptr(&zeros))
	if !errors.Is(err, unix.EPERM) {
		return nil // it was looked at
	}
	return err
}

// victim makes what an attack is told, and returns a function that says what has become
// of it.
func victim(t *testing.T) (target, func() []string) {
	t.Helper()
	v := target{Pid: os.Getpid(), Dir: t.TempDir(), Outside: t.TempDir(), Root: os.Geteuid() == 0}
	for _, name := range []string{"file", "input"} {
		if err := os.WriteFile(filepath.Join(v.Outside, name), []byte("as it was"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(v.Outside, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{filepath.Join(v.Outside, "socket"), "@kitbag-test-" + filepath.Base(v.Outside)}
	if cache, err := os.UserHomeDir(); err == nil {
		dir, err := os.MkdirTemp(cache, ".kitbag-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		names = append(names, filepath.Join(dir, "socket"))
	}
	for _, name := range names {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name + "-datagram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		v.Sockets = append(v.Sockets, name, name+"-datagram")
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() })
	v.Stream = tcp.Addr().String()
	state := func() []string {
		var null unix.Stat_t
		if err := unix.Stat("/dev/null", &null); err != nil {
			t.Fatal(err)
		}
		return append(everything(t, v.Outside), fmt.Sprintf("/dev/null %o %v", null.Mode, null.Ctim))
	}
	return v, state
}

// everything describes the files below dir, with what changes if anything does.
func everything(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		out = append(out, fmt.Sprintf("%s %o %d:%d %d bytes, changed %v", name, st.Mode, st.Uid, st.Gid, st.Size, st.Ctim))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAttacks runs every attack in every profile.
func TestAttacks(t *testing.T) {
	for _, c := range []struct {
		name string
		spec sandbox.Spec
		may  []string // in addition to what the profile allows
	}{
		{name: "read", spec: sandbox.Spec{Profile: permission.ProfileRead}},
		{name: "work", spec: sandbox.Spec{Profile: permission.ProfileWork}},
		{name: "read with the network", spec: sandbox.Spec{Profile: permission.ProfileRead, Network: true}, may: []string{"connect to the machine"}},
		{name: "work with the network", spec: sandbox.Spec{Profile: permission.ProfileWork, Network: true}, may: []string{"connect to the machine"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, state := victim(t)
			before := state()
			got := succeeding(t, c.spec, &v)
			for _, name := range got {
				i := slices.IndexFunc(attacks, func(a attack) bool { return a.name == name })
				if !slices.Contains(c.may, name) && !(attacks[i].work && c.spec.Profile == permission.ProfileWork) {
					t.Errorf("succeeded: %s", name)
				}
			}
			for _, a := range attacks {
				if a.work && c.spec.Profile == permission.ProfileWork && !slices.Contains(got, a.name) {
					t.Errorf("failed, though the profile allows it: %s", a.name)
				}
			}
			if after := state(); !slices.Equal(after, before) {
				t.Errorf("outside has changed:\n%s\nit was:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
			}
		})
	}
}

// succeeding returns the names of the attacks that succeed on v, or on a victim of their own.
func succeeding(t *testing.T, s sandbox.Spec, v *target) []string {
	t.Helper()
	if v == nil {
		own, _ := victim(t)
		v = &own
	}
	s.Write = []string{v.Dir}
	told, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "attack", string(told))
	input, err := os.Open(filepath.Join(v.Outside, "input"))
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	cmd.ExtraFiles = []*os.File{input}
	out, err := confined(t, s, cmd)
	if err != nil || !strings.HasSuffix(out, "done\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	var names []string
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "succeeded: "); ok {
			names = append(names, name)
		}
	}
	return names
}

// confined runs cmd and returns its output. It fails the test if the program did not start.
func confined(t *testing.T, s sandbox.Spec, cmd *exec.Cmd) (string, error) {
	t.Helper()
	cleanup, err := s.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	out, runErr := cmd.CombinedOutput()
	if _, err := cleanup(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out), runErr
}
