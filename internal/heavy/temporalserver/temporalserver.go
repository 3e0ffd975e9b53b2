// Package temporalserver runs a Temporal server for tests: a separate process with a database in a temporary directory,
// which ends with this process. The first use compiles the server, which takes minutes.
package temporalserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/kitbag-go/kitbag/internal/testproc"
)

// A Server is a Temporal server with a namespace "default".
type Server struct {
	Address string // of the frontend, for client.Options.HostPort

	source, dir string
	run         *exec.Cmd
	alive       io.Closer // the server's standard input: when it ends, so does the server
	pid         int
}

// Start compiles the server in the directory source, which is internal/heavy/temporalserver/server, and starts it.
func Start(source string) (*Server, error) {
	s, err := start(source)
	if err != nil {
		return nil, fmt.Errorf("temporalserver: %w", err)
	}
	return s, nil
}

func start(source string) (*Server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = ln.Close()
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "temporalserver")
	if err != nil {
		return nil, err
	}
	s := &Server{Address: ln.Addr().String(), source: source, dir: dir}
	if err := s.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// Start starts the server again after Kill.
func (s *Server) Start() error {
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return err
	}
	// Tests of several packages may be the first at the same time: only one of them compiles the server.
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "kitbag-temporalserver.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // also unlocks it
	if err := testproc.LockFile(lock); err != nil {
		return err
	}
	// The go command caches the linked program, so that only the first run takes minutes.
	s.run = exec.Command("go", "run", "-ldflags=-s -w", ".", "-db", filepath.Join(s.dir, "db"), "-port", port)
	s.run.Dir = s.source
	s.run.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	s.run.Stderr = os.Stderr
	testproc.Detach(s.run) // ^C is for the tests, not for the server
	if s.alive, err = s.run.StdinPipe(); err != nil {
		return err
	}
	out, err := s.run.StdoutPipe()
	if err == nil {
		err = s.run.Start()
	}
	if err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, notReady := fmt.Sscanf(line, "ready %d", &s.pid); notReady != nil {
		return errors.Join(fmt.Errorf("the server does not start: it prints %s", strconv.Quote(line)), err, s.stop())
	}
	return nil
}

// PID returns the id of the server's process.
func (s *Server) PID() int { return s.pid }

// Kill kills the server as kill -9 does.
func (s *Server) Kill() error {
	p, err := os.FindProcess(s.pid)
	if err == nil {
		err = p.Kill()
	}
	_ = s.stop()
	return err
}

func (s *Server) stop() error {
	return errors.Join(s.alive.Close(), s.run.Wait())
}

// Close stops the server and removes its database.
func (s *Server) Close() error {
	return errors.Join(s.stop(), os.RemoveAll(s.dir))
}
