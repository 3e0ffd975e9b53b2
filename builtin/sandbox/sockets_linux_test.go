//go:build amd64 || arm64

package sandbox_test

import (
	"bufio"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
	"golang.org/x/sys/unix"
)

// connectTo runs in the sandbox: it waits for the last of the sockets to be there, tries to
// reach each in every way, and prints those that it reached.
func connectTo(names []string) {
	for last := names[len(names)-1]; ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(last); err == nil {
			break
		}
	}
	for _, name := range names {
		for _, at := range []string{name, filepath.Base(name), "/proc/self/cwd/" + filepath.Base(name)} {
			for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET, unix.SOCK_DGRAM, unix.SOCK_RAW} {
				for _, flag := range []int{0, unix.SOCK_NONBLOCK} {
					fd, err := unix.Socket(unix.AF_UNIX, kind|flag, 0)
					if err != nil {
						continue
					}
					if err := unix.Connect(fd, &unix.SockaddrUnix{Name: at}); err == nil {
						fmt.Println("reached", at, "kind", kind)
					} else if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPROTOTYPE) {
						fmt.Println("unexpected error:", at, err)
					}
					unix.Close(fd)
				}
			}
		}
		for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_RAW} {
			if pair, err := unix.Socketpair(unix.AF_UNIX, kind, 0); err == nil {
				if unix.Sendto(pair[0], []byte("x"), 0, &unix.SockaddrUnix{Name: name}) == nil {
					fmt.Println("sent to", name)
				}
			}
		}
	}
	fmt.Println("done")
}

// TestSocketsOfOthers has sockets of other programs in a directory that both see, which are
// listed nowhere by the name that they have there.
func TestSocketsOfOthers(t *testing.T) {
	for _, network := range []bool{false, true} {
		t.Run(fmt.Sprintf("network=%t", network), func(t *testing.T) {
			w := newWorld(t)
			names := foreignSockets(t, w.work)
			s := sandbox.Spec{Profile: permission.ProfileWork, Write: []string{w.work}, Network: network}
			told, err := json.Marshal(names)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/proc/self/exe", "connect", string(told))
			cmd.Dir = w.work
			later := time.AfterFunc(50*time.Millisecond, func() { listen(t, names[len(names)-1]) })
			defer later.Stop()
			if out, err := confined(t, s, cmd); err != nil || out != "done\n" {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// listen makes a socket that listens, and one beside it for datagrams.
func listen(t *testing.T, name string) {
	d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name + "-datagram"})
	if err != nil {
		t.Error(err)
		return
	}
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Error(err)
		return
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { d.Close(); l.Close() })
}

// foreignSockets makes sockets in dir and returns their names. The last one is not there yet.
func foreignSockets(t *testing.T, dir string) []string {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"plain", "old", "source"} {
		listen(t, at(name))
	}
	if err := errors.Join(os.Rename(at("old"), at("renamed")), os.Link(at("source"), at("linked")), os.Remove(at("source"))); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	listen(t, fmt.Sprintf("/proc/self/fd/%d/by-another-name", fd))
	if os.Geteuid() == 0 {
		done := make(chan struct{})
		go func() { // a thread that is not used again
			defer close(done)
			runtime.LockOSThread()
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Error(err)
				return
			}
			listen(t, at("of-another-network"))
		}()
		<-done
	} else {
		listen(t, at("of-another-network"))
	}
	return []string{
		at("plain"), at("plain-datagram"), at("renamed"), at("linked"), at("by-another-name"), at("by-another-name-datagram"), at("of-another-network"), at("later"),
	}
}

// ownSockets runs in the sandbox: it prints what fails of what programs do with sockets of
// their own.
func ownSockets(network bool) {
	failed := func(what string, err error) {
		if err != nil {
			fmt.Println(what+":", err)
		}
	}
	dirs := []string{".", "/tmp", "/dev/shm", os.Getenv("SCRATCH")}
	for _, dir := range dirs {
		cwd, err := os.Getwd()
		failed("directory", errors.Join(err, os.Chdir(dir)))
		failed(dir+" by a name from here", exchange("unix", "own"))
		failed(dir, exchange("unix", filepath.Join(mustGetwd(), "own")))
		failed(dir+" of packets", exchange("unixpacket", "packets"))
		failed(dir+" renamed", exchangeRenamed())
		failed("directory", os.Chdir(cwd))
	}
	if err := exchange("unix", "@own"); (err == nil) == network {
		fmt.Println("without a file:", err)
	}
	stale, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	failed("stale", errors.Join(err, unix.Bind(stale, &unix.SockaddrUnix{Name: "/tmp/stale"}), unix.Listen(stale, 1), unix.Close(stale)))
	if _, err := net.Dial("unix", "/tmp/stale"); !errors.Is(err, unix.ECONNREFUSED) {
		fmt.Println("stale:", err)
	}
	failed("loopback", exchange("tcp", "127.0.0.1:0"))
	failed("loopback, waiting", blockingTCP())
	for _, name := range []string{"none", "dir", strings.Repeat("x", 107)} {
		os.Mkdir("dir", 0o700)
		want := map[string]error{"none": unix.ENOENT, "dir": unix.ECONNREFUSED}[name]
		if want == nil {
			want = unix.ENOENT
		}
		if _, err := net.Dial("unix", name); !errors.Is(err, want) {
			fmt.Println(name+":", err)
		}
	}
	fmt.Println("done")
}

func mustGetwd() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir
}

// exchange listens, connects from another thread, and sends a word.
func exchange(network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	defer l.Close()
	return greet(l, network, l.Addr().String())
}

func exchangeRenamed() error {
	l, err := net.Listen("unix", "first")
	if err != nil {
		return err
	}
	defer l.Close()
	if err := os.Rename("first", "second"); err != nil {
		return err
	}
	defer os.Remove("second")
	return greet(l, "unix", "second")
}

func greet(l net.Listener, network, address string) error {
	go func() {
		c, err := l.Accept()
		if err == nil {
			c.Write([]byte("hello"))
			c.Close()
		}
	}()
	c, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	text := make([]byte, 5)
	if n, err := c.Read(text); err != nil || string(text[:n]) != "hello" {
		return fmt.Errorf("got %q, %v", text[:n], err)
	}
	return nil
}

// blockingTCP connects as programs do that wait for it.
func blockingTCP() error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}})
}

// TestOwnSockets holds that a program can use sockets that it made, or another one of the same
// command.
func TestOwnSockets(t *testing.T) {
	for _, network := range []bool{false, true} {
		t.Run(fmt.Sprintf("network=%t", network), func(t *testing.T) {
			w := newWorld(t)
			s := w.spec(permission.ProfileWork)
			s.Network = network
			cmd := exec.Command("/proc/self/exe", "own", fmt.Sprint(network))
			cmd.Dir, cmd.Env = w.work, append(os.Environ(), "SCRATCH="+w.home+"/cache")
			if out, err := confined(t, s, cmd); err != nil || out != "done\n" {
				t.Errorf("%v\n%s", err, out)
			}
			out, err := confined(t, s, bash(w, `eval "$(ssh-agent -s -a own.sock)" >/dev/null && ssh-add -l; [ $? = 1 ] && ssh-agent -k >/dev/null && echo reached`))
			if err != nil || !slices.Contains(strings.Split(out, "\n"), "reached") {
				t.Errorf("an agent of its own: %v\n%s", err, out)
			}
		})
	}
}

// TestSwappedSocket has a thread that replaces the descriptor and the address while another
// one connects, so that what was looked at is not what is used.
func TestSwappedSocket(t *testing.T) {
	w := newWorld(t)
	listen(t, w.work+"/theirs")
	s := w.spec(permission.ProfileWork)
	cmd := exec.Command("/proc/self/exe", "swap", w.work+"/theirs")
	cmd.Dir = w.work
	if out, err := confined(t, s, cmd); err != nil || out != "done\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// swap runs in the sandbox.
func swap(theirs string) {
	l, err := net.Listen("unix", "own")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			if c, err := l.Accept(); err == nil {
				c.Close()
			}
		}
	}()
	addr := make([]byte, 110)
	addr[0] = unix.AF_UNIX
	own := append([]byte("./own"), make([]byte, 60)...)
	other := append([]byte(theirs), 0)
	go func() {
		for {
			copy(addr[2:], other)
			copy(addr[2:], own)
		}
	}()
	const fd = 50
	var unixFd atomic.Int64
	fresh := func() {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			panic(err)
		}
		unixFd.Store(int64(s))
	}
	fresh()
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			unix.Dup3(inet, fd, 0)
			unix.Dup3(int(unixFd.Load()), fd, 0)
		}
	}()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if err := call(unix.SYS_CONNECT, fd, ptr(&addr[0]), uintptr(2+len(other))); err == nil {
			name, err := unix.Getpeername(int(unixFd.Load()))
			if sa, ok := name.(*unix.SockaddrUnix); err == nil && ok && sa.Name == theirs {
				fmt.Println("reached", sa.Name)
			}
			fresh()
		}
	}
	fmt.Println("done")
}

// TestDatagrams holds what there is none of in the profile work: it has no connection that
// could be looked at.
func TestDatagrams(t *testing.T) {
	w := newWorld(t)
	s := w.spec(permission.ProfileWork)
	cmd := bash(w, `python3 -c 'import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)'`)
	if out, err := confined(t, s, cmd); err == nil || !strings.Contains(out, syscall.EPERM.Error()[:10]) && !strings.Contains(out, "not permitted") {
		t.Errorf("%v\n%s", err, out)
	}
}

// elsewhere has a directory on a file system whose files have another device than its mount, as
// those of btrfs do, so that the kernel's list of sockets does not say for certain which file it
// means. It runs as root of a namespace.
func elsewhere(dir string) {
	for _, name := range []string{"work", "memory", "lower"} {
		if err := os.Mkdir(dir+"/"+name, 0o755); err != nil {
			panic(err)
		}
	}
	if err := unix.Mount("tmpfs", dir+"/memory", "tmpfs", 0, ""); err != nil {
		panic(err)
	}
	options := "userxattr,lowerdir=" + dir + "/lower,upperdir=" + dir + "/memory/upper,workdir=" + dir + "/memory/work"
	err := errors.Join(os.Mkdir(dir+"/memory/upper", 0o755), os.Mkdir(dir+"/memory/work", 0o755),
		unix.Mount("overlay", dir+"/work", "overlay", 0, options))
	if err != nil {
		panic(err)
	}
	if _, err := net.Listen("unix", dir+"/work/theirs"); err != nil {
		panic(err)
	}
	for _, network := range []bool{false, true} {
		s := sandbox.Spec{Profile: permission.ProfileWork, Write: []string{dir + "/work"}, Network: network}
		cmd := exec.Command("/proc/self/exe", "both", "")
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir+"/work", os.Stdout, os.Stderr
		cleanup, err := s.Command(cmd)
		if err != nil {
			panic(err)
		}
		runErr := cmd.Run()
		if _, err := cleanup(); err != nil || runErr != nil {
			panic(errors.Join(err, runErr))
		}
	}
}

// both runs in the sandbox.
func both(string) {
	fmt.Println("own:", exchange("unix", "own"))
	_, err := net.Dial("unix", "theirs")
	fmt.Println("theirs:", errors.Is(err, unix.EACCES))
}

// TestSocketsElsewhere holds that a socket whose file is not known for certain is refused.
func TestSocketsElsewhere(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "elsewhere", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	const want = "own: <nil>\ntheirs: true\nown: dial unix own: connect: permission denied\ntheirs: true\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}

// connectOften runs in the sandbox: twice it connects to its own socket many times, and then waits for a line of its input.
func connectOften(socket string) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	in := bufio.NewReader(os.Stdin)
	for range 2 {
		for range 1500 {
			c, err := net.Dial("unix", socket)
			if err != nil {
				panic(err)
			}
			c.Close()
			if c, err = l.Accept(); err != nil {
				panic(err)
			}
			c.Close()
		}
		fmt.Println("connected")
		in.ReadString('\n')
	}
}

// TestMemory checks that the memory of the process that makes the connections does not grow with their number.
func TestMemory(t *testing.T) {
	w := newWorld(t)
	s := sandbox.Spec{Profile: permission.ProfileWork, Write: []string{w.work}}
	cmd := exec.Command("/proc/self/exe", "often", filepath.Join(w.work, "socket"))
	cmd.Dir = w.work
	cleanup, err := s.Command(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer cleanup()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var kib [2]int
	for i := range kib {
		var connected string
		fmt.Fscan(out, &connected)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil || connected != "connected" {
			t.Fatalf("%v, output %q", err, connected)
		}
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
				fmt.Sscan(rest, &kib[i])
			}
		}
		fmt.Fprintln(in)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	// Without a limit 1,500 connections would take 45 MiB.
	if kib[0] == 0 || kib[1] > kib[0]+16<<10 {
		t.Errorf("the process had %d KiB of memory, and after as many connections again %d KiB", kib[0], kib[1])
	}
}
