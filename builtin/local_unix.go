//go:build unix

package builtin

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

const (
	termGrace = 50 * time.Millisecond // between SIGTERM and SIGKILL
	pipeGrace = 50 * time.Millisecond // how long an open pipe may be silent after the program has ended
)

// Run implements [Backend]. The program leads its own session, without a terminal, so that nothing can prompt
// for a password. On Linux, processes that left its group are found and ended too. On other systems, if a
// process that was left behind has the output open, the whole group is ended.
func (l *Local) Run(ctx context.Context, c Command) (Exit, error) {
	if err := ctx.Err(); err != nil {
		return Exit{}, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return Exit{}, err
	}
	defer r.Close()
	mark := newMark()
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Dir = c.Dir
	if cmd.Env = c.Env; c.Env == nil {
		cmd.Env = new(Config).environ()
	}
	cmd.Env = append(slices.Clip(cmd.Env), mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// Use a file, not a writer: with a writer, Wait would wait for every process that has the pipe open.
	cmd.Stdout, cmd.Stderr = w, w
	out := c.Output
	spec, confined, err := l.specFor(ctx, c)
	if err != nil {
		w.Close()
		return Exit{}, err
	}
	var cleanup func() (sandbox.Result, error)
	var programs map[string][]string
	tail := &tail{to: out}
	if confined {
		if spec.Profile == permission.ProfileWork {
			_, installDirs := programDirsIn(spec.Write)
			programs = programsIn(installDirs)
		}
		if cleanup, err = spec.Command(cmd); err != nil {
			w.Close()
			return Exit{}, err
		}
		out = tail
	}
	err = cmd.Start()
	w.Close()
	if err != nil {
		if confined {
			cleanup()
		}
		return Exit{}, err
	}
	reachedEOF := make(chan bool, 1)
	go func() { reachedEOF <- copyOutput(out, r) }()
	exited := make(chan struct{})
	go func() { defer close(exited); cmd.Wait() }()
	exit, err := supervise(ctx, cmd, mark, r, reachedEOF, exited, out)
	if !confined {
		return exit, err
	}
	result, startErr := cleanup()
	shadows := renameShadows(programs, spec.Write)
	if startErr != nil && err == nil {
		return Exit{}, startErr
	}
	exit = confinedExit(spec, exit, result, tail.text)
	if len(shadows) > 0 {
		note := "the command created " + strings.Join(shadows, ", ") + ", which would hide other programs of that name: check them"
		exit.Denied = strings.Trim(exit.Denied+"; "+note, "; ")
	}
	return exit, err
}

// confinedExit adds the sandbox's report to exit.
func confinedExit(spec sandbox.Spec, exit Exit, r sandbox.Result, output []byte) Exit {
	if r.Signal != 0 {
		exit.Code, exit.Signal = -1, r.Signal.String()
	}
	var notes []string
	if why := sandbox.Denied(spec, exit.Code, output); why != "" {
		notes = append(notes, why)
	}
	if r.Left {
		notes = append(notes, "a background process was ended with the command, as processes in the sandbox cannot outlive it")
	}
	if len(r.Made) > 0 {
		notes = append(notes, "the command created "+strings.Join(renameInRepositories(r.Made), ", ")+", which programs run or trust: check it, or remove it")
	}
	if len(r.Replaced) > 0 {
		notes = append(notes, "another program replaced "+strings.Join(r.Replaced, ", ")+" while the command ran, and the new files were not protected for a moment: check them")
	}
	exit.Denied = strings.Join(notes, "; ")
	return exit
}

// A tail passes on what is written to it and keeps the last part.
type tail struct {
	to   io.Writer
	text []byte
}

const tailSize = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p[max(0, len(p)-tailSize):]...)
	if over := len(t.text) - tailSize; over > tailSize {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	if t.to == nil {
		return len(p), nil
	}
	return t.to.Write(p)
}

// supervise waits for the program, or ends it, and empties the pipe. After the program's end its children may
// still have the pipe open, so reading ends by deadlines and not at the end of the file.
func supervise(ctx context.Context, cmd *exec.Cmd, mark string, r *os.File, reachedEOF <-chan bool, exited <-chan struct{}, out io.Writer) (Exit, error) {
	var err error
	select {
	case <-exited:
	case <-ctx.Done():
		err = ctx.Err()
		endGroup(cmd.Process.Pid)
		killMarked(mark)
		select {
		case <-exited:
		case <-time.After(time.Second): // stuck in the kernel, where SIGKILL does not end it
			return Exit{Code: -1, Signal: "killed"}, err
		}
	}
	r.SetReadDeadline(time.Now().Add(pipeGrace))
	eof := <-reachedEOF
	leftBehind := !eof && err == nil
	// A process that was left behind has the pipe open. End only such processes, and the rest of the group only if
	// that is not enough.
	for _, end := range []func(){
		func() { killHolders(mark, r) },
		func() { endGroup(cmd.Process.Pid) },
		func() { killMarked(mark) },
	} {
		if eof || err != nil {
			break
		}
		end()
		r.SetReadDeadline(time.Now().Add(pipeGrace))
		eof = copyOutput(out, r)
	}
	exit := exitOf(cmd.ProcessState)
	exit.LeftBehind = leftBehind
	return exit, err
}

// copyOutput copies r to w until the end. After a read deadline it stops when the pipe is silent, and at the latest
// after a second. It reports whether it reached the end.
func copyOutput(w io.Writer, r *os.File) (eof bool) {
	if w == nil {
		w = io.Discard
	}
	buf := make([]byte, 64<<10)
	var stop time.Time // when to stop even if more can be read
	silent := false
	for {
		n, err := r.Read(buf)
		w.Write(buf[:n])
		if n > 0 {
			silent = false
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return true
		}
		// After the deadline the pipe may still have data: read again.
		now := time.Now()
		if stop.IsZero() {
			stop = now.Add(time.Second)
		}
		if silent || now.After(stop) {
			return false
		}
		silent = true
		r.SetReadDeadline(now.Add(pipeGrace / 5))
	}
}

// endGroup ends the processes of a group: with SIGTERM, and after termGrace with SIGKILL. The id cannot be reused while the group
// has a member, and hardly within milliseconds after that.
func endGroup(pgid int) {
	if syscall.Kill(-pgid, syscall.SIGTERM) != nil {
		return // no such group
	}
	for limit := time.Now().Add(termGrace); time.Now().Before(limit); time.Sleep(2 * time.Millisecond) {
		if syscall.Kill(-pgid, 0) != nil {
			return
		}
	}
	syscall.Kill(-pgid, syscall.SIGKILL)
}

func exitOf(s *os.ProcessState) Exit {
	e := Exit{Code: s.ExitCode()}
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal().String()
	}
	return e
}
