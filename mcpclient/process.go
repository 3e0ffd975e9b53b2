package mcpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// inherited are the environment variables that every started server gets. Programs need them to find their files and the
// user's language; none is a secret.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
	"SystemRoot", "SystemDrive", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "ProgramFiles", "PATHEXT", "COMSPEC", "TEMP", "TMP",
}

// A process is a started server. It leads its own process group, which is killed with it.
type process struct {
	cmd    *exec.Cmd
	path   string // of the program, as it was configured
	stdin  *requestPipe
	stdout *lineReader
	stderr *tail
	exited chan struct{} // closed when the server has exited and its group is dead
	status string        // how the server exited; read it only after exited is closed

	outputs    []io.Closer    // the client's ends of stdout and stderr
	stderrCopy sync.WaitGroup // done when stderr has ended
	cleanup    func() error   // removes the sandbox
}

// environment returns the variables of a started server. The variables of c.Env come last, because exec uses the last
// variable of a name.
func environment(c *Command) []string {
	env := []string{} // nil would pass on all of this program's variables
	for _, name := range slices.Concat(inherited, c.InheritEnv) {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		env = append(env, name+"="+c.Env[name])
	}
	return env
}

// startProcess starts a server, whose messages may have at most maxMessage bytes. onEOF is called when the server's output ends.
func startProcess(c *Command, maxMessage int, onEOF func()) (*process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env = c.Dir, environment(c)
	newProcessGroup(cmd)
	var files []*os.File // to be closed on failure
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w, err
	}
	var cleanup func() error
	inR, inW, err1 := pipe()
	outR, outW, err2 := pipe()
	errR, errW, err3 := pipe()
	err := errors.Join(err1, err2, err3)
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
		cleanup, err = startConfined(cmd, c)
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, fmt.Errorf("start: %w", err)
	}
	outW.Close() // the server has its own copy; inR stays open for requestPipe
	errW.Close()
	stdoutRead := make(chan struct{})
	p := &process{
		cmd:     cmd,
		path:    c.Path,
		stdin:   &requestPipe{r: inR, w: inW, ends: map[string]int64{}},
		stdout:  newLineReader(outR, maxMessage, sync.OnceFunc(func() { close(stdoutRead); onEOF() })),
		stderr:  &tail{also: c.Stderr},
		exited:  make(chan struct{}),
		outputs: []io.Closer{outR, errR},
		cleanup: cleanup,
	}
	p.stderrCopy.Go(func() { _, _ = io.Copy(p.stderr, errR) })
	go p.wait(stdoutRead)
	return p, nil
}

// startConfined starts cmd, in the sandbox of c if there is one. cleanup removes the sandbox.
func startConfined(cmd *exec.Cmd, c *Command) (cleanup func() error, err error) {
	cleanup = func() error { return nil }
	if c.Sandbox.Profile != "" {
		if c.Confine == nil {
			return nil, fmt.Errorf("the server requires the sandbox %q, which this program does not provide; set Command.Confine, or remove the sandbox", c.Sandbox.Profile)
		}
		if cleanup, err = c.Confine(cmd, c.Sandbox); err != nil {
			return nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, cleanup())
	}
	return cleanup, nil
}

// wait waits until the server has exited, and cleans up. stdoutRead is closed when the server's output has been read.
func (p *process) wait(stdoutRead <-chan struct{}) {
	_ = p.cmd.Wait() // ProcessState has the reason
	p.status = fmt.Sprintf("the program %q ended: %v", p.path, p.cmd.ProcessState)
	killGroup(p.cmd)
	if err := p.cleanup(); err != nil {
		p.status += ": " + err.Error()
	}
	p.stdin.Close()
	// The pipes still have the server's last output: give the readers a moment, but do not wait for a grandchild
	// that left the group and keeps the pipes open.
	stderrRead := make(chan struct{})
	go func() { p.stderrCopy.Wait(); close(stderrRead) }()
	timeout, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, read := range []<-chan struct{}{stderrRead, stdoutRead} {
		select {
		case <-read:
		case <-timeout.Done():
		}
	}
	for _, c := range p.outputs {
		c.Close()
	}
	<-stderrRead
	close(p.exited)
}

// stop closes the server's input and kills the server, and returns when its processes have ended. If gracefully is set,
// the server has two seconds to exit, is then terminated, and is killed after two more seconds; see [Client.Close].
func (p *process) stop(gracefully bool) {
	p.stdin.Close()
	if gracefully {
		for _, step := range []func(*exec.Cmd){terminateGroup, killGroup} {
			select {
			case <-p.exited:
				return
			case <-time.After(2 * time.Second):
				step(p.cmd)
			}
		}
	} else {
		killGroup(p.cmd)
	}
	<-p.exited
}

// A requestPipe is a server's standard input. It also keeps the reading end open, to find out after a crash which
// requests the server never read.
type requestPipe struct {
	r, w *os.File

	writing sync.Mutex // held while a message is written, which may take long

	mu      sync.Mutex
	written int64            // bytes of all messages so far
	current string           // id of the request being written
	ends    map[string]int64 // for each request that a caller waits for, the value of written after it; 0 until then
	closed  bool
	drained bool
	unread  int64 // bytes that the server never read; known once drained
}

// Write writes one message, unless it is a request that no caller waits for any more.
func (p *requestPipe) Write(msg []byte) (int, error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	id := requestID(msg)
	wanted, err := p.begin(id)
	if err != nil {
		return 0, err
	}
	if !wanted {
		return len(msg), nil
	}
	n, err := p.w.Write(msg)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = ""
	p.written += int64(n)
	if err != nil {
		return n, &unreachedError{err}
	}
	if _, awaited := p.ends[id]; awaited {
		p.ends[id] = p.written
	}
	return n, nil
}

// begin records that the message is being written. wanted is false for a request that no caller waits for any more.
func (p *requestPipe) begin(id string) (wanted bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, &unreachedError{os.ErrClosed}
	}
	if _, awaited := p.ends[id]; id != "" && !awaited {
		return false, nil
	}
	p.current = id
	return true, nil
}

// requestID returns the id of a request as mcp-go encodes the request, or "" for another message. An answer also has an
// id, which the server has chosen and which may equal the id of a request; but a method only follows in a request.
func requestID(msg []byte) string {
	rest, ok := bytes.CutPrefix(msg, []byte(`{"jsonrpc":"2.0","id":"`))
	if !ok {
		return ""
	}
	id, rest, _ := bytes.Cut(rest, []byte{'"'})
	if !bytes.HasPrefix(rest, []byte(`,"method":`)) {
		return ""
	}
	return string(id)
}

// Close closes the writing end. A Write in progress fails.
func (p *requestPipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	_ = p.w.Close() // fails if the end is already closed
	return nil
}

// addWaiting records a request that a caller waits for, until removeWaiting.
func (p *requestPipe) addWaiting(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends[id] = 0
}

// removeWaiting keeps a request from being written. begun reports whether writing it had already begun.
func (p *requestPipe) removeWaiting(id string) (begun bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun = p.ends[id] > 0 || p.current == id
	delete(p.ends, id)
	return begun
}

// reached reports whether the server, which has exited, has read the request.
func (p *requestPipe) reached(id string) bool {
	p.drain()
	p.mu.Lock()
	defer p.mu.Unlock()
	end := p.ends[id]
	return end > 0 && end <= p.written-p.unread
}

// drain closes the pipe and counts what the server, which has exited, has not read.
func (p *requestPipe) drain() {
	p.Close()
	p.writing.Lock() // wait for a Write in progress
	defer p.writing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drained {
		return
	}
	p.drained = true
	_ = p.r.SetReadDeadline(time.Now().Add(time.Second)) // in case another process has the writing end
	p.unread, _ = io.Copy(io.Discard, p.r)
	p.r.Close()
}

// A tail keeps the last part of a server's stderr.
type tail struct {
	mu   sync.Mutex
	buf  []byte
	also io.Writer // Command.Stderr; may be nil
}

// tailBytes and tailLines limit the part of stderr that errors quote.
const tailBytes, tailLines = 2000, 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailBytes { // not at tailBytes, so that few writes move bytes
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailBytes:]...)
	}
	if t.also != nil {
		_, _ = t.also.Write(p) // the server must not notice an error of this program's writer
	}
	return len(p), nil
}

// String returns the last lines, cut to valid text.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.TrimSpace(strings.ToValidUTF8(string(t.buf[max(0, len(t.buf)-tailBytes):]), ""))
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
