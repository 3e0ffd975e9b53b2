package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpgateway"
)

// TestPublishPrivate checks that only the user can open the socket of a gateway, also in a directory that others may read.
func TestPublishPrivate(t *testing.T) {
	state, err := os.MkdirTemp("", "kb") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	t.Setenv("XDG_STATE_HOME", state)
	dir, err := gatewayDir()
	if err != nil || os.MkdirAll(dir, 0o700) != nil || os.Chmod(dir, 0o755) != nil {
		t.Fatal(err)
	}
	defer publish(new(mcpgateway.Gateway), "test", "")()
	sockets, err := filepath.Glob(filepath.Join(dir, "*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatal(sockets, err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, sockets[0]: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// TestLastCalls reads an audit log that is a file, and does not wait for one that is not.
func TestLastCalls(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(file, []byte(`{"tool":"demo__echo"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{file: 1, fifo: 0, dir: 0, "": 0, "/dev/null": 0} {
		got := make(chan int, 1)
		go func() { got <- len(lastCalls(path)) }()
		select {
		case n := <-got:
			if n != want {
				t.Errorf("%s has %d calls, want %d", path, n, want)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("the page waits for %s", path)
			f, err := os.OpenFile(path, os.O_RDWR, 0) // ends the wait
			if err != nil {
				t.Fatal(err)
			}
			<-got
			_ = f.Close()
		}
	}
}
