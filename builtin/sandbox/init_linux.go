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

// exitFailed is the exit code of the init process if it cannot start the program, or cannot wait for its end.
const exitFailed = 126

// init runs the plan and exits, if this process was started as the init process of a sandbox.
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
	// Confinement applies to one thread. The program must be started from it.
	runtime.LockOSThread()
	os.Exit(runInit(fd))
}

// runInit runs the plan in the descriptor fd, and reports to the pipe in the descriptor after it.
func runInit(fd int) (exitCode int) {
	reportPipe := os.NewFile(uintptr(fd+1), "report")
	code, r := runPlan(os.NewFile(uintptr(fd), "plan"), reportPipe)
	if err := r.err(); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
	}
	reportPipe.Write(encode(&r))
	return code
}

// err returns the error of the report, from which failed made it.
func (r *report) err() error {
	switch {
	case r.Error == "":
		return nil
	case r.Errno == 0:
		return errors.New(r.Error)
	}
	return fmt.Errorf("%s: %w", r.Error, syscall.Errno(r.Errno))
}

// failed returns the exit code and the report for a program that could not be run. The report keeps the errno apart, so
// that the caller of Command can test for it.
func failed(err error) (exitCode int, r report) {
	r = report{Error: err.Error()}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		r.Errno, r.Error = int(errno), strings.TrimSuffix(r.Error, ": "+errno.Error())
	}
	return exitFailed, r
}

// runPlan confines this process, and runs the program of the plan.
func runPlan(planFile, reportPipe *os.File) (exitCode int, last report) {
	var p plan
	data, err := io.ReadAll(io.NewSectionReader(planFile, 0, math.MaxInt64)) // the offset is at the end, where the writer left it
	planFile.Close()
	if err == nil {
		_, err = decode(data, &p)
	}
	if err != nil {
		return failed(fmt.Errorf("read the plan: %w", err))
	}
	// Notify takes a while: another thread calls it while this one mounts file systems.
	signals, notified := make(chan os.Signal, 16), make(chan struct{})
	go func() { signal.Notify(signals, forwardedSignals...); close(notified) }()
	listener, err := p.confine()
	if err != nil {
		return failed(err)
	}
	if p.Probe {
		return 0, report{Started: true, Proc: !p.NoProc, Pids: p.limitsProcesses, Scratch: !p.NoScratch, Unix: !p.NoUnix}
	}
	<-notified
	// Report before the start, as the caller may kill this process on the first effect of the program.
	reportPipe.Write(encode(&report{Started: true}))
	pid, err := p.startProgram()
	if err != nil {
		return failed(fmt.Errorf("start %s: %w", p.Path, err))
	}
	if p.inCallersGroup {
		unix.Setpgid(0, 0) // so that a signal to the caller's group reaches the program only once
		go forward(signals, pid)
	} else {
		go forward(signals, -pid)
	}
	go watch(reportPipe, &connector{listener: listener, machineNetwork: p.Network, privateDevices: p.privateDevices()}, p.keeper)
	return wait(pid)
}

// confine removes the rights that the program must not have from this process or thread. It returns the descriptor
// of the notifications about connect calls, or -1.
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
	if err := unix.CloseRange(uint(3+p.Files), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return -1, fmt.Errorf("close_range: %w", err)
	}
	// The program must not read the memory of this process, whose other threads keep their capabilities.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("dumpable: %w", err)
	}
	if err := p.setLimits(); err != nil {
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

// mapUser maps the caller's user and group to the same ids in the new user namespace.
func (p *plan) mapUser() error {
	for _, file := range []struct{ name, content string }{
		{"setgroups", "deny"}, // without which gid_map is not writable
		{"gid_map", fmt.Sprintf("%d %[1]d 1", p.Group)},
		{"uid_map", fmt.Sprintf("%d %[1]d 1", p.User)},
	} {
		fd, err := unix.Open("/proc/self/"+file.name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte(file.content))
			unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("user namespace: %s: %w", file.name, err)
		}
	}
	return nil
}

// replaceNull reopens /dev/null where it is one of the first three descriptors. The new descriptor is of a read-only
// mount; with the caller's, a program with the rights of root could change the mode of the machine's /dev/null.
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

// setLimits sets the resource limits of the program and of this process.
func (p *plan) setLimits() error {
	limits := []struct {
		name  string
		which int
		value int64
	}{
		{"core", unix.RLIMIT_CORE, -1}, // becomes 0 bytes below, where 0 means no limit
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

func (p *plan) startProgram() (pid int, err error) {
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

// hasTerminal reports whether the caller gave the program a terminal. Only such a program is in the caller's session,
// and can open the terminal by name.
func hasTerminal() bool {
	for fd := range 3 {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			return true
		}
	}
	return false
}

// forwardedSignals are the signals that other programs may send to the program.
var forwardedSignals = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGWINCH, syscall.SIGIO, syscall.SIGPIPE,
}

// forward passes the signals of this process on to the program, or to the program's group if pid is negative.
func forward(signals <-chan os.Signal, pid int) {
	for s := range signals {
		if s == syscall.SIGTSTP && pid < 0 {
			s = syscall.SIGSTOP // an orphaned process group ignores SIGTSTP
		}
		unix.Kill(pid, s.(syscall.Signal))
	}
}

// watch responds to the notifications about connect calls, and keeps places covered. When the calling process has ended,
// which had the other end of the pipe, watch exits. The kernel then kills all processes of the namespace.
func watch(reportPipe *os.File, c *connector, k *keeper) {
	mounts, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		mounts = -1 // without /proc the keeper only polls
	}
	fds := []unix.PollFd{{Fd: int32(reportPipe.Fd())}, {Fd: int32(c.listener), Events: unix.POLLIN}, {Fd: int32(mounts), Events: unix.POLLPRI}}
	caller, connects, mountChanges := &fds[0], &fds[1], &fds[2]
	interval, looked := k.look(), time.Now()
	for {
		n, err := unix.Poll(fds, int(interval/time.Millisecond))
		if err != nil && err != unix.EINTR {
			return
		}
		if n == 0 || mountChanges.Revents != 0 || time.Since(looked) >= interval { // connections must not delay the check
			interval, looked = k.look(), time.Now()
		}
		switch {
		case caller.Revents != 0:
			os.Exit(exitFailed)
		case connects.Revents&unix.POLLIN != 0:
			c.respond()
		case connects.Revents != 0:
			connects.Fd = -1 // no process is left that could connect
		}
	}
}

// wait waits for the program, and reaps other processes that end before the program.
func wait(pid int) (exitCode int, r report) {
	r.Started = true
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
			r.Left = othersLeft()
			return 128 + r.Signal, r
		default:
			r.Left = othersLeft()
			return status.ExitStatus(), r
		}
	}
}

// othersLeft reports whether a process of the namespace still runs, after the program has ended.
func othersLeft() bool {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == nil && pid > 0 || err == syscall.EINTR {
			continue // the process pid has ended, too
		}
		return err == nil // ECHILD if no process is left
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
