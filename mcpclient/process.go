package mcpclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// inherited are the variables that a started server gets anyway: what programs
// need to find their files and speak the right language, and no secrets.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
	"SystemRoot", "SystemDrive", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "ProgramFiles", "PATHEXT", "COMSPEC", "TEMP", "TMP",
}

// A process is a started server. It leads a process group of its own, which
// dies with it.
type process struct {
	cmd    *exec.Cmd
	stdin  *requestPipe
	stdout *lineReader
	stderr *tail
	exited chan struct{} // closed when it has exited and its group is dead
	status string        // how it exited; read after exited is closed

	closers []io.Closer
	copied  sync.WaitGroup
}

func environment(cfg *Config) []string {
	var env []string
	for _, name := range slices.Concat(inherited, cfg.InheritEnv) {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for name, v := range cfg.Env {
		env = append(env, name+"="+v)
	}
	slices.Sort(env)
	return env
}

// startProcess starts the server of cfg. eof is called when its output ends.
func startProcess(cfg *Config, eof func()) (*process, error) {
	cmd := exec.Command(cfg.Command, cfg.Args...)
	cmd.Dir, cmd.Env = cfg.Dir, environment(cfg)
	ownGroup(cmd)
	var files []*os.File
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w, err
	}
	inR, inW, err1 := pipe()
	outR, outW, err2 := pipe()
	errR, errW, err3 := pipe()
	err := errors.Join(err1, err2, err3)
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
		err = cmd.Start()
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, fmt.Errorf("start: %w", err)
	}
	outW.Close()
	errW.Close()
	p := &process{
		cmd:     cmd,
		stdin:   &requestPipe{r: inR, w: inW, ends: map[string]int64{}},
		stdout:  newLineReader(outR, cfg.MaxMessage, eof),
		stderr:  &tail{copy: cfg.Stderr},
		exited:  make(chan struct{}),
		closers: []io.Closer{outR, errR},
	}
	p.copied.Go(func() { _, _ = io.Copy(p.stderr, errR) })
	go p.wait()
	return p, nil
}

func (p *process) wait() {
	err := p.cmd.Wait()
	p.status = "it exited"
	if err != nil {
		p.status = "it ended: " + err.Error()
	}
	killGroup(p.cmd)
	p.stdin.abandon()
	// What the server wrote last is still in the pipes; give the readers a
	// moment before a grandchild that left the group can hold them up.
	done := make(chan struct{})
	go func() { p.copied.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
	for _, c := range p.closers {
		c.Close()
	}
	<-done
	close(p.exited)
}

// stop ends the server: its input is closed, then it is asked, then killed.
// It returns when nothing of it is left.
func (p *process) stop() {
	p.stdin.Close()
	for _, step := range []func(*exec.Cmd){terminateGroup, killGroup} {
		select {
		case <-p.exited:
			return
		case <-time.After(2 * time.Second):
			step(p.cmd)
		}
	}
	<-p.exited
}

// A requestPipe is a server's standard input. The reading end stays open on our
// side too, so that after a crash we can tell which requests the server never
// read.
type requestPipe struct {
	mu      sync.Mutex
	r, w    *os.File
	written int64
	ends    map[string]int64 // request id → offset behind it
	unread  int64            // bytes that were never read; set by drain
	closed  bool
	drained bool
	dead    atomic.Bool
}

const writeTimeout = 10 * time.Second

// Write writes one message. A server that does not read for a long time is as
// good as dead.
func (p *requestPipe) Write(msg []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, &unreached{os.ErrClosed}
	}
	_ = p.w.SetWriteDeadline(time.Now().Add(writeTimeout))
	if p.dead.Load() { // after the deadline: abandon sets both in the other order
		return 0, &unreached{os.ErrClosed}
	}
	n, err := p.w.Write(msg)
	p.written += int64(n)
	if err != nil {
		p.closed = true // a cut message spoils the stream
		p.w.Close()
		return n, &unreached{fmt.Errorf("the server does not read its input: %w", err)}
	}
	if id := requestID(msg); id != "" {
		p.ends[id] = p.written
	}
	return n, nil
}

// requestID returns the id of a request as mcp-go encodes it, or nothing.
func requestID(msg []byte) string {
	rest, ok := bytes.CutPrefix(msg, []byte(`{"jsonrpc":"2.0","id":"`))
	if !ok {
		return ""
	}
	id, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(id)
}

func (p *requestPipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		return p.w.Close()
	}
	return nil
}

// abandon ends a Write that waits for a server which has exited: since we hold
// the reading end ourselves, the system would not end it.
func (p *requestPipe) abandon() {
	p.dead.Store(true)
	_ = p.w.SetWriteDeadline(time.Unix(1, 0))
	p.Close()
}

// forget is called when a request is answered.
func (p *requestPipe) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ends, id)
}

// reached reports whether the server, which has exited, has read the request.
func (p *requestPipe) reached(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	end, sent := p.ends[id]
	return sent && end <= p.written-p.unread
}

func (p *requestPipe) drain() {
	if p.drained {
		return
	}
	p.drained = true
	if !p.closed {
		p.closed = true
		p.w.Close()
	}
	_ = p.r.SetReadDeadline(time.Now().Add(time.Second))
	p.unread, _ = io.Copy(io.Discard, p.r)
	p.r.Close()
}

// release frees the pipe when nobody will ask any more.
func (p *requestPipe) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	buf  []byte
	copy io.Writer
}

const tailBytes, tailLines = 2000, 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailBytes {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailBytes:]...)
	}
	if t.copy != nil {
		_, _ = t.copy.Write(p) // the server must not block on who watches it
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
