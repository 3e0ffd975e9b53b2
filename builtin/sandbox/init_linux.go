//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exitFailed is the exit code of a program that was not started.
const exitFailed = 126

// init confines this process and runs a program in it, if Command has started this process. Then it does not return.
func init() {
	if len(os.Args) != 2 || os.Args[0] != initName {
		return
	}
	fd, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return
	}
	link, err := os.Readlink("/proc/self/fd/" + os.Args[1])
	seals, sealErr := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || link != planLink || sealErr != nil || seals != allSeals {
		return
	}
	// Confinement applies to a thread, from which the program must be started.
	runtime.LockOSThread()
	os.Exit(runInit(fd))
}

// runInit runs the plan in the descriptor fd, as the first process of its namespaces. It returns the exit code.
func runInit(fd int) int {
	reportPipe := os.NewFile(uintptr(fd+1), "report")
	code, r := runPlan(os.NewFile(uintptr(fd), "plan"), reportPipe)
	if r.Error != "" {
		fmt.Fprintln(os.Stderr, "sandbox:", r.text())
	}
	reportPipe.Write(encode(&r))
	return code
}

func (r *report) text() string {
	if r.Errno != 0 {
		return r.Error + ": " + syscall.Errno(r.Errno).Error()
	}
	return r.Error
}

// failed returns the exit code and the report for a program that could not be run.
func failed(err error) (int, report) {
	r := report{Error: err.Error()}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		r.Errno, r.Error = int(errno), strings.TrimSuffix(r.Error, ": "+errno.Error())
	}
	return exitFailed, r
}

// runPlan confines this process, and runs the program of the plan. It returns the exit code and the report.
func runPlan(planFile, reportPipe *os.File) (int, report) {
	var p plan
	data, err := io.ReadAll(io.NewSectionReader(planFile, 0, math.MaxInt64))
	planFile.Close()
	if err == nil {
		_, err = decode(data, &p)
	}
	if err != nil {
		return failed(fmt.Errorf("read the plan: %w", err))
	}
	// Other threads receive signals while this one mounts file systems.
	signals, ready := make(chan os.Signal, 16), make(chan struct{})
	go func() { signal.Notify(signals, forwardedSignals...); close(ready) }()
	listener, err := p.confine()
	if err != nil {
		return failed(err)
	}
	if p.Probe {
		return 0, report{Started: true, Proc: !p.NoProc, Pids: p.limitsProcesses, Scratch: !p.NoScratch, Unix: !p.NoUnix}
	}
	<-ready
	reportPipe.Write(encode(&report{Started: true})) // before it starts, as its first effect may make the caller kill this process
	pid, err := p.run()
	if err != nil {
		return failed(fmt.Errorf("start %s: %w", p.Path, err))
	}
	if p.inCallersGroup {
		unix.Setpgid(0, 0) // so that a signal to the group reaches the program only once
		go forward(signals, pid)
	} else {
		go forward(signals, -pid)
	}
	go watch(reportPipe, &connector{listener: listener, shared: p.Network, private: p.private()}, p.keeper)
	return wait(pid)
}

// confine removes the rights that the program must not have from this process or thread. It returns the descriptor
// of the notifications about connect calls.
func (p *plan) confine() (listener int, err error) {
	if err := p.mapUser(); err != nil {
		return -1, err
	}
	if err := p.mount(); err != nil {
		return -1, err
	}
	if err := os.Chdir(p.Dir); err != nil {
		return -1, fmt.Errorf("the working directory: %w", err)
	}
	if p.ownNetwork() {
		if err := loopbackUp(); err != nil {
			return -1, fmt.Errorf("loopback: %w", err)
		}
	}
	if err := replaceNull(); err != nil {
		return -1, err
	}
	p.inCallersGroup = !p.Leader && hasTerminal()
	if err := unix.CloseRange(uint(3+p.Files), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return -1, fmt.Errorf("close_range: %w", err)
	}
	// The program must not read the memory of this process, which keeps some privileges.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("dumpable: %w", err)
	}
	if err := p.limit(); err != nil {
		return -1, err
	}
	if err := dropPrivileges(); err != nil {
		return -1, err
	}
	if err := p.landlock(); err != nil {
		return -1, err
	}
	return p.seccomp()
}

// mapUser maps the user and the group into the new user namespace.
func (p *plan) mapUser() error {
	for _, m := range [][2]string{
		{"setgroups", "deny"}, {"gid_map", fmt.Sprintf("%d %[1]d 1", p.Group)}, {"uid_map", fmt.Sprintf("%d %[1]d 1", p.User)},
	} {
		fd, err := unix.Open("/proc/self/"+m[0], unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte(m[1]))
			unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("user namespace: %s: %w", m[0], err)
		}
	}
	return nil
}

// replaceNull replaces /dev/null in the first three descriptors by the private one, which is mounted read-only:
// otherwise a program of the device's owner could change the mode of the machine's.
func replaceNull() error {
	for fd := range 3 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return err
		}
		null, err := unix.Open("/dev/null", flags&(unix.O_ACCMODE|unix.O_APPEND)|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("/dev/null: %w", err)
		}
		err = unix.Dup3(null, fd, 0)
		unix.Close(null)
		if err != nil {
			return err
		}
	}
	return nil
}

// limit sets the limits of the program. They apply to this process, too.
func (p *plan) limit() error {
	limits := []struct {
		name  string
		which int
		value int64
	}{
		{"core", unix.RLIMIT_CORE, -1}, // a limit of 0 bytes, while the value 0 means no limit
		{"processes", unix.RLIMIT_NPROC, int64(p.Limits.Processes)},
		{"memory", unix.RLIMIT_DATA, p.Limits.Memory},
		{"file size", unix.RLIMIT_FSIZE, p.Limits.FileSize},
		{"open files", unix.RLIMIT_NOFILE, int64(p.Limits.Files)},
	}
	for _, l := range limits {
		if l.value == 0 {
			continue
		}
		var now syscall.Rlimit
		if err := syscall.Getrlimit(l.which, &now); err != nil {
			return fmt.Errorf("limit of %s: %w", l.name, err)
		}
		value := min(uint64(max(l.value, 0)), now.Max)
		// Unlike unix.Setrlimit, syscall.Setrlimit keeps the runtime from restoring the limit of open files at exec.
		if err := syscall.Setrlimit(l.which, &syscall.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("limit of %s: %w", l.name, err)
		}
	}
	return nil
}

// run starts the program.
func (p *plan) run() (pid int, err error) {
	files := make([]uintptr, 3+p.Files)
	for i := range files {
		files[i] = uintptr(i)
	}
	path := p.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.Dir, path)
	}
	return syscall.ForkExec(path, p.Args, &syscall.ProcAttr{
		Dir: p.Dir, Env: p.Env, Files: files,
		Sys: &syscall.SysProcAttr{Setpgid: p.Leader && hasTerminal(), Setsid: !hasTerminal()},
	})
}

// hasTerminal reports whether the caller gave the program a terminal. Only then is the program in the caller's
// session, and can open that terminal by name.
func hasTerminal() bool {
	for fd := range 3 {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			return true
		}
	}
	return false
}

// forwardedSignals are the signals that programs send to each other.
var forwardedSignals = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGWINCH, syscall.SIGIO, syscall.SIGPIPE,
}

// forward passes the signals of this process on to the program.
func forward(signals <-chan os.Signal, pid int) {
	for s := range signals {
		if s == syscall.SIGTSTP && pid < 0 {
			s = syscall.SIGSTOP // an orphaned process group ignores SIGTSTP
		}
		unix.Kill(pid, s.(syscall.Signal))
	}
}

// watch responds to the notifications about connect calls, and keeps places covered. When the calling process, which
// has the other end of the pipe, has ended, watch exits, which kills all processes of the namespace.
func watch(reportPipe *os.File, c *connector, k *keeper) {
	mounts, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		mounts = -1 // without /proc the keeper only polls
	}
	fds := []unix.PollFd{{Fd: int32(reportPipe.Fd())}, {Fd: int32(c.listener), Events: unix.POLLIN}, {Fd: int32(mounts), Events: unix.POLLPRI}}
	interval := k.look()
	for {
		n, err := unix.Poll(fds, int(interval/time.Millisecond))
		if err != nil && err != unix.EINTR {
			return
		}
		if n == 0 || fds[2].Revents != 0 {
			interval = k.look()
		}
		switch {
		case fds[0].Revents != 0:
			os.Exit(exitFailed)
		case fds[1].Revents&unix.POLLIN != 0:
			c.respond()
		case fds[1].Revents != 0:
			fds[1].Fd = -1 // no process is left that could connect
		}
	}
}

// wait waits for the program, reaps other processes that end before it, and returns how the program ended.
func wait(pid int) (int, report) {
	r := report{Started: true}
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return failed(fmt.Errorf("wait: %w", err))
		case got != pid:
		case status.Signaled():
			r.Signal = int(status.Signal())
			r.Left = left()
			return 128 + r.Signal, r
		default:
			r.Left = left()
			return status.ExitStatus(), r
		}
	}
}

// left reports whether any other process is left.
func left() bool {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == nil && pid > 0 || err == syscall.EINTR {
			continue // it has ended, too
		}
		return err == nil
	}
}

// dropPrivileges removes all capabilities of this thread, and all ways to regain them.
func dropPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	for c := uintptr(0); c <= 63; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			break // the kernel knows no further capabilities
		} else if err != nil {
			return fmt.Errorf("capabilities: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// loopbackUp enables 127.0.0.1 in a new network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
