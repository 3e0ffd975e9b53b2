// Package pgtest runs a Postgres server for tests in a temporary directory, which ends with the process. It uses an
// installed Postgres, or as root installs Debian's package.
package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/internal/testproc"
)

// A Server is a Postgres server. It listens on a Unix socket in its directory only.
type Server struct {
	Dir string

	bin   string
	run   *exec.Cmd
	alive io.Closer // the server's standard input: when it ends, so does the server
}

// Start makes a new database cluster and starts its server. Settings are as in
// postgresql.conf, "fsync=off" for instance.
func Start(settings ...string) (*Server, error) {
	s, err := start(settings)
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	return s, nil
}

func start(settings []string) (_ *Server, err error) {
	s := &Server{}
	if s.bin, err = findOrInstall(); err != nil {
		return nil, err
	}
	// The path of a Unix socket must be short, which a directory of a test may not be.
	if s.Dir, err = os.MkdirTemp("/tmp", "pgtest"); err != nil {
		return nil, err
	}
	if err := s.init(settings); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.Dir))
	}
	if err := s.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.Dir))
	}
	return s, nil
}

// Missing reports whether Start would fail since no Postgres is installed. Tests with -short are then left out, but for
// those of CI, so that "make test" passes where nobody has prepared it.
func Missing() bool {
	return testing.Short() && installed() == "" && os.Getuid() != 0 && os.Getenv("CI") == ""
}

// Why is the reason to leave tests out.
const Why = "left out: no Postgres is installed; install the package postgresql, or put initdb into PATH"

// findOrInstall returns the directory with the programs of Postgres.
func findOrInstall() (string, error) {
	if dir := installed(); dir != "" {
		return dir, nil
	}
	if os.Getuid() != 0 {
		return "", errors.New("no Postgres is installed; run apt-get install postgresql, or put initdb into PATH")
	}
	// Tests of several packages may be the first at the same time.
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "kitbag-pgtest.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // also unlocks it
	if err := testproc.LockFile(lock); err != nil {
		return "", err
	}
	if dir := installed(); dir != "" {
		return dir, nil
	}
	var out []byte
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "postgresql"}} {
		cmd := exec.Command("apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err = cmd.CombinedOutput(); err != nil && args[0] == "install" {
			return "", fmt.Errorf("no Postgres is installed, and apt-get install postgresql fails; install it: %w\n%s", err, out)
		}
	}
	if dir := installed(); dir != "" {
		return dir, nil
	}
	return "", fmt.Errorf("apt-get has installed postgresql, and there is no initdb in /usr/lib/postgresql/*/bin\n%s", out)
}

// installed returns the directory with the programs of the newest installed Postgres; empty if there is none.
func installed() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is valid
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 for a folder that is not a version
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if len(found) == 0 {
		if path, err := exec.LookPath("initdb"); err == nil {
			if path, err = filepath.EvalSymlinks(path); err == nil {
				found = []string{path}
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[0])
}

// command returns a command of Postgres, which refuses to run as root.
func (s *Server) command(name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.Dir
	// Signals for the tests, such as ^C, must not reach the server, which is shut down in order.
	testproc.Detach(cmd)
	if os.Getuid() != 0 {
		return cmd, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		if who, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("neither of the users postgres and nobody exists, and Postgres refuses to run as root: %w", err)
		}
	}
	uid, err := strconv.Atoi(who.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(who.Gid)
	if err != nil {
		return nil, err
	}
	testproc.RunAs(cmd, uid, gid)
	return cmd, os.Chown(s.Dir, uid, gid)
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

func (s *Server) init(settings []string) error {
	cmd, err := s.command(filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	var conf bytes.Buffer
	for _, line := range append([]string{"listen_addresses=''", "unix_socket_directories='" + s.Dir + "'", "max_connections=200"}, settings...) {
		fmt.Fprintln(&conf, line)
	}
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(conf.Bytes())
	return errors.Join(err, f.Close())
}

// Start starts the server again after Stop.
func (s *Server) Start() error {
	// The shell ends the server when this process has ended, however it ended.
	const script = `"$@" >>log 2>&1 <&- & server=$!; cat >/dev/null; kill -INT $server; wait $server`
	cmd, err := s.command("/bin/sh", "-c", script, "sh", filepath.Join(s.bin, "postgres"), "-D", s.data())
	if err != nil {
		return err
	}
	s.run = cmd
	if s.alive, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for range 600 { // at most 30 s
		ready := exec.Command(filepath.Join(s.bin, "pg_isready"), "-q", "-h", s.Dir)
		if ready.Run() == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	log, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	return errors.Join(fmt.Errorf("the server does not start:\n%s", log), err, s.Stop())
}

// Stop stops the server and ends the connections of its clients. Start starts it again.
func (s *Server) Stop() error {
	if s.run == nil {
		return nil
	}
	err := s.alive.Close()
	_ = s.run.Wait() // its exit code is that of an interrupt
	s.run = nil
	return err
}

// Kill kills the server with all its processes, as kill -9 does, so that it has to recover.
func (s *Server) Kill() error {
	cmd, err := s.command(filepath.Join(s.bin, "pg_ctl"), "stop", "-D", s.data(), "-m", "immediate")
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_ctl: %w\n%s", err, out)
	}
	return s.Stop()
}

// Close stops the server and removes what it has stored.
func (s *Server) Close() error {
	return errors.Join(s.Stop(), os.RemoveAll(s.Dir))
}

// URL returns the connection string for the server.
func (s *Server) URL() string { return "postgres://test@/postgres?host=" + s.Dir }
