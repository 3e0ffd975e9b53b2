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
	spec, confined, err := l.specFor(ctx, c)
	if err != nil {
		return Exit{}, err
	}
	mark := newMark()
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Dir = c.Dir
	if cmd.Env = c.Env; c.Env == nil {
		cmd.Env = new(Config).environ()
	}
	cmd.Env = append(slices.Clip(cmd.Env), mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !confined {
		return run(ctx, cmd, mark, c.Output)
	}
	var programsBefore map[string][]string // by directory
	if spec.Profile == permission.ProfileWork {
		_, installDirs := programDirsIn(spec.Write)
		programsBefore = programsIn(installDirs)
	}
	cleanup, err := spec.Command(cmd)
	if err != nil {
		return Exit{}, err
	}
	output := &tail{to: c.Output}
	exit, err := run(ctx, cmd, mark, output)
	result, startErr := cleanup()
	if cmd.Process == nil { // not even the sandbox was started
		return exit, err
	}
	shadows := renameShadows(programsBefore, spec.Write)
	if startErr != nil && err == nil {
		return Exit{}, startErr
	}
	return confinedExit(spec, exit, result, shadows, output.text), err
}

// confinedExit adds to exit what the sandbox did, and the shadows that were renamed.
func confinedExit(spec sandbox.Spec, exit Exit, r sandbox.Result, shadows []string, output []byte) Exit {
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
	if len(shadows) > 0 {
		notes = append(notes, "the command created "+strings.Join(shadows, ", ")+", which would hide other programs of that name: check them")
	}
	exit.Denied = strings.Join(notes, "; ")
	return exit
}

// A tail passes on what is written to it and keeps the end.
type tail struct {
	to   io.Writer // may be nil
	text []byte    // at least the last tailSize bytes
}

const tailSize = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p[max(0, len(p)-tailSize):]...)
	if len(t.text) > 2*tailSize { // not at every write, which would move the text each time
		t.text = append(t.text[:0], t.text[len(t.text)-tailSize:]...)
	}
	if t.to == nil {
		return len(p), nil
	}
	return t.to.Write(p)
}

// run starts the program, waits for it or ends it, and copies its output to out. After the program's end its children
// may still have the pipe open, so reading ends by deadlines and not at the end of the file.
func run(ctx context.Context, cmd *exec.Cmd, mark string, out io.Writer) (Exit, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return Exit{}, err
	}
	defer r.Close()
	// Use a file, not a writer: with a writer, Wait would wait for every process that has the pipe open.
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		return Exit{}, err
	}
	reachedEOF := make(chan bool, 1)
	go func() { reachedEOF <- copyOutput(out, r) }()
	exited := make(chan struct{})
	go func() { defer close(exited); cmd.Wait() }()
	select {
	case <-exited:
	case <-ctx.Done():
		endGroup(cmd.Process.Pid)
		killMarked(mark)
		select {
		case <-exited:
		case <-time.After(time.Second): // stuck in the kernel, where SIGKILL does not end it
			return Exit{Code: -1, Signal: "killed"}, ctx.Err()
		}
		err = ctx.Err()
	}
	r.SetReadDeadline(time.Now().Add(pipeGrace))
	eof := <-reachedEOF
	exit := exitOf(cmd.ProcessState)
	if eof || err != nil {
		return exit, err
	}
	// A process that was left behind has the pipe open. End only such processes, and the rest of the group only if
	// that is not enough.
	exit.LeftBehind = true
	for _, end := range []func(){
		func() { killHolders(mark, r) },
		func() { endGroup(cmd.Process.Pid) },
		func() { killMarked(mark) },
	} {
		end()
		r.SetReadDeadline(time.Now().Add(pipeGrace))
		if copyOutput(out, r) {
			break
		}
	}
	return exit, nil
}

// copyOutput copies r to w until the end. After a read deadline it stops when the pipe is silent, and at the latest
// after a second. It reports whether it reached the end.
func copyOutput(w io.Writer, r *os.File) (eof bool) {
	if w == nil {
		w = io.Discard
	}
	buf := make([]byte, 64<<10)
	var stop time.Time // when to stop even if more can be read
	silent := false    // since the last deadline
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
		// After the deadline the pipe may still have data: read again, with a short deadline.
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

// endGroup ends the processes of a group: with SIGTERM, and after termGrace with SIGKILL. The id cannot be reused while
// the group has a member, and hardly within milliseconds after that.
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
