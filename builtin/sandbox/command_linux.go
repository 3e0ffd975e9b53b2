//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/kitbag-go/kitbag/permission"
	"golang.org/x/sys/unix"
)

// The started process recognizes its task by its name, and by a sealedFile file in memory with the plan. A process does
// not have both by accident.
const (
	initName = "kitbag-sandbox-init"
	planName = "kitbag-sandbox-plan"
	planLink = "/memfd:" + planName + " (deleted)"
	allSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
)

// Command changes cmd, which has not been started, so that its program runs confined: with the same arguments,
// environment, directory, files and exit code. TMPDIR is a private temporary directory in memory. A signal sent to
// the process, or to the group it leads, reaches the program; when the calling process ends, the program and all
// processes that it started are killed.
//
// The caller must call cleanup after [exec.Cmd.Wait], or if cmd is not started. cleanup returns an error if the
// program did not start, which the exit code does not show.
func (s *Spec) Command(cmd *exec.Cmd) (cleanup func() (Result, error), err error) {
	switch {
	case cmd.Err != nil:
		return nil, cmd.Err
	case cmd.Process != nil:
		return nil, errors.New("sandbox: the command was started already; call Command before Start")
	case s.Profile == permission.ProfileOpen:
		return func() (Result, error) { return Result{}, nil }, nil
	case s.Profile != permission.ProfileRead && s.Profile != permission.ProfileWork:
		return nil, fmt.Errorf("sandbox: unknown profile %q; use read, work or open", s.Profile)
	}
	if err := Check().Confines(); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	p, err := s.plan(cmd)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	c, err := start(cmd, p)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	c.before = s.covers(p)
	return c.cleanup, nil
}

// plan resolves the paths in s and cmd.
func (s *Spec) plan(cmd *exec.Cmd) (*plan, error) {
	p := &plan{
		User: os.Geteuid(), Group: os.Getegid(),
		Path: cmd.Path, Args: cmd.Args, Env: cmd.Environ(), Dir: cmd.Dir,
		ReadProfile: s.Profile == permission.ProfileRead, Network: s.Network, Limits: s.Limits.complete(), Files: len(cmd.ExtraFiles),
	}
	p.NoLandlock, p.NoProc, p.NoScratch = disabledByTest.Landlock, disabledByTest.Proc, disabledByTest.Scratch
	p.NoUnix = p.ReadProfile || disabledByTest.Proc || disabledByTest.Unix
	if len(p.Args) == 0 {
		p.Args = []string{p.Path}
	}
	if attr := cmd.SysProcAttr; attr != nil {
		p.Leader = attr.Setsid || attr.Setpgid
	}
	var err error
	if p.Dir == "" {
		if p.Dir, err = os.Getwd(); err != nil {
			return nil, fmt.Errorf("the working directory: %w; set the command's Dir", err)
		}
	}
	if p.Dir, err = filepath.Abs(p.Dir); err != nil {
		return nil, err
	}
	if p.Places, err = s.places(p); err != nil {
		return nil, err
	}
	tmpdir := "/tmp"
	if p.ReadProfile {
		tmpdir = "/dev/shm" // /tmp stays readable in this profile
	}
	p.Env = append(slices.DeleteFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, "TMPDIR=") }), "TMPDIR="+tmpdir)
	return p, nil
}

// A confinedCmd is a command between Command and cleanup.
type confinedCmd struct {
	cmd    *exec.Cmd
	files  []*os.File // files that the process inherits; nil after cleanup
	report *os.File   // the pipe with the process's report
	before []cover    // the protected and hidden files before the program ran
}

// start changes cmd so that it starts this program again, with the plan p.
func start(cmd *exec.Cmd, p *plan) (*confinedCmd, error) {
	planFile, err := sealedFile(encode(p))
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		planFile.Close()
		return nil, err
	}
	c := &confinedCmd{cmd: cmd, files: []*os.File{planFile, w}, report: r}
	cmd.ExtraFiles = append(slices.Clip(cmd.ExtraFiles), c.files...)
	cmd.Path = "/proc/self/exe"
	cmd.Args = []string{initName, strconv.Itoa(3 + p.Files)}
	// The environment of the init process; the program's is in the plan. The init process rarely lives long enough for
	// a garbage collection, which it needs only from this much memory on.
	cmd.Env = []string{"GOMAXPROCS=2", "GOGC=off", "GOMEMLIMIT=24MiB"}
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	// Share the memory of this process until exec, since copying a large one takes milliseconds. Package syscall could
	// not set the ids in the user namespace then, so the new process does; see mapUser.
	attr.Cloneflags |= unix.CLONE_VM | unix.CLONE_VFORK
	attr.Cloneflags |= syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID
	if !p.ReadProfile {
		attr.Cloneflags |= syscall.CLONE_NEWIPC // the profile read needs none: it refuses IPC calls
	}
	if p.ownNetwork() {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	// These apply only in the new namespaces, and the program gets none. An overlay needs the last four
	// in the process that mounted it.
	attr.AmbientCaps = []uintptr{
		unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SYS_PTRACE, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_CHOWN, unix.CAP_FSETID,
	}
	cmd.SysProcAttr = &attr
	return c, nil
}

// ownNetwork reports whether the program has its own network namespace.
func (p *plan) ownNetwork() bool { return !p.ReadProfile && !p.Network }

// sealedFile returns a file in memory with data, which cannot be changed.
func sealedFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(planName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), planName)
	_, err = f.Write(data)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, allSeals)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (c *confinedCmd) cleanup() (Result, error) {
	if c.files == nil {
		return Result{}, errors.New("sandbox: cleanup was called twice")
	}
	r, err := c.end()
	if err != nil {
		return Result{}, fmt.Errorf("sandbox: %w", err)
	}
	res := Result{Signal: syscall.Signal(r.Signal), Left: r.Left}
	for _, was := range c.before {
		switch now := identify(was.name, was.statFlags); {
		case now == (identity{}) || now == was.identity:
		case was.identity != (identity{}):
			res.Replaced = append(res.Replaced, was.name)
		case was.protected:
			res.Made = append(res.Made, was.name)
		}
	}
	return res, nil
}

// end kills the process, closes its files, and returns its report.
func (c *confinedCmd) end() (report, error) {
	for _, f := range c.files {
		f.Close()
	}
	c.files = nil
	defer c.report.Close()
	if c.cmd.Process == nil {
		return report{}, nil // the command was not started
	}
	if c.cmd.ProcessState == nil {
		c.cmd.Process.Kill() // which kills all processes of the namespace
	}
	var r report
	data, err := io.ReadAll(c.report)
	for err == nil && len(data) > 0 {
		data, err = decode(data, &r)
	}
	if err != nil {
		return report{}, fmt.Errorf("read the report of the process: %w", err)
	}
	switch {
	case r.Error != "" && r.Errno != 0:
		return report{}, fmt.Errorf("%s: %w", r.Error, syscall.Errno(r.Errno))
	case r.Error != "":
		return report{}, errors.New(r.Error)
	case !r.Started:
		return report{}, errors.New("the process was killed before the program started")
	}
	return r, nil
}
