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

// The init process is this program, started again. It recognizes that it must confine itself by its name and by a sealed
// file in memory with the plan, which no process has by accident.
const (
	initName = "kitbag-sandbox-init"
	planName = "kitbag-sandbox-plan"
	planLink = "/memfd:" + planName + " (deleted)"
	allSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
)

// Command changes cmd, which must not be started yet, so that its program runs confined: with the same arguments,
// environment, directory, files and exit code. TMPDIR is a private temporary directory in memory. A signal sent to
// the process of cmd, or to the group that it leads, reaches the program. When the calling process ends, the program
// and all processes that it started are killed.
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
	c, err := prepare(cmd, p)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	c.guarded = s.guardedFiles(p)
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
	p.NoUnix = p.ReadProfile || disabledByTest.Proc || disabledByTest.Unix // the connector needs /proc
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
	cmd     *exec.Cmd
	files   []*os.File // files that the init process inherits; nil after cleanup
	report  *os.File   // the pipe with the reports of the init process
	guarded []guardedFile
}

// prepare changes cmd so that it starts the init process with the plan p.
func prepare(cmd *exec.Cmd, p *plan) (*confinedCmd, error) {
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
	// The environment of the init process; the program's is in the plan. Garbage collection would delay the start, and
	// only an init process that makes many connections needs it.
	cmd.Env = []string{"GOMAXPROCS=2", "GOGC=off", "GOMEMLIMIT=24MiB"}
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	// Share memory until exec, since copying that of a large process takes milliseconds. With these flags package syscall
	// cannot set the ids in the user namespace; mapUser does.
	attr.Cloneflags |= unix.CLONE_VM | unix.CLONE_VFORK
	attr.Cloneflags |= syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID
	if !p.ReadProfile {
		attr.Cloneflags |= syscall.CLONE_NEWIPC // the profile read refuses IPC calls instead
	}
	if p.ownNetwork() {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	// Capabilities of the init process, which are valid only in the new namespaces. The program gets none.
	attr.AmbientCaps = []uintptr{
		unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SYS_PTRACE,
		unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_CHOWN, unix.CAP_FSETID, // an overlay acts with those of the process that mounted it
	}
	cmd.SysProcAttr = &attr
	return c, nil
}

// ownNetwork reports whether the program has its own network namespace.
func (p *plan) ownNetwork() bool { return !p.ReadProfile && !p.Network }

// sealedFile returns a file in memory whose content, data, cannot be changed.
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
	for _, file := range c.guarded {
		switch now := identify(file.name, file.statFlags); {
		case now == (identity{}) || now == file.identity: // there is no new file
		case file.identity != (identity{}):
			res.Replaced = append(res.Replaced, file.name)
		case file.protected:
			res.Made = append(res.Made, file.name)
		}
	}
	return res, nil
}

// end kills the init process if it still runs, closes its files, and returns its last report.
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
		c.cmd.Process.Kill() // the kernel then kills all processes of the namespace
	}
	var r report
	data, err := io.ReadAll(c.report)
	for err == nil && len(data) > 0 {
		data, err = decode(data, &r)
	}
	if err != nil {
		return report{}, fmt.Errorf("read the report of the init process: %w", err)
	}
	if err := r.err(); err != nil {
		return report{}, err
	} else if !r.Started {
		return report{}, errors.New("the init process was killed before the program started")
	}
	return r, nil
}
