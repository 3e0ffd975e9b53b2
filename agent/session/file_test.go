package session_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
)

func openFile(t *testing.T, path string) *session.Session {
	t.Helper()
	s, err := session.File(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func save(t *testing.T, s *session.Session) {
	t.Helper()
	s.State.Usage.Input++
	if err := s.Save(t.Context(), s.State); err != nil {
		t.Fatal(err)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "chat.json")
	s := openFile(t, path)
	if _, err := os.Stat(path); err == nil {
		t.Error("opening a new session created its file")
	}
	for range 3 {
		save(t, s)
		data, err := os.ReadFile(path)
		if want := encode(t, s.State) + "\n"; err != nil || string(data) != want {
			t.Errorf("the file holds %q, %v, want %q", data, err, want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if _, err := session.File(path); !errors.Is(err, session.ErrConflict) {
			t.Errorf("opened twice: %v, want ErrConflict", err)
		}
	}
	shut(t, s)
	if again := openFile(t, path); again.State.Usage.Input != 3 {
		t.Errorf("loaded %s", encode(t, again.State))
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}

// TestFileNewTwice opens a file that does not exist twice. The first to save creates it; the other cannot
// replace it.
func TestFileNewTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat.json")
	one, two := openFile(t, path), openFile(t, path)
	save(t, one)
	if err := two.Save(t.Context(), two.State); !errors.Is(err, session.ErrConflict) {
		t.Errorf("the second writer: %v, want ErrConflict", err)
	}
	save(t, one)
	shut(t, one)
	if again := openFile(t, path); again.State.Usage.Input != 2 {
		t.Errorf("loaded %s", encode(t, again.State))
	}
}

// TestFileCannotBeWritten fails two saves in the same way: the errors name the session's file, and have the same text, so
// that a run reports the failure once.
func TestFileCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s.json")
	s := openFile(t, path)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	first, second := s.Save(t.Context(), s.State), s.Save(t.Context(), s.State)
	if first == nil || second == nil || first.Error() != second.Error() || !strings.Contains(first.Error(), path) || !errors.Is(first, fs.ErrNotExist) {
		t.Errorf("%v\n%v", first, second)
	}
}

// TestFileReplaced replaces a session's file with another one.
func TestFileReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat.json")
	s := openFile(t, path)
	save(t, s)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), s.State); !errors.Is(err, session.ErrConflict) {
		t.Errorf("%v, want ErrConflict", err)
	}
	unchanged(t, path, []byte("mine"))
}

func TestFileLink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target.json"), filepath.Join(dir, "link.json")
	s := openFile(t, target)
	save(t, s)
	shut(t, s)
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	s = openFile(t, link)
	if _, err := session.File(target); !errors.Is(err, session.ErrConflict) {
		t.Errorf("the target, while the link is open: %v", err)
	}
	save(t, s)
	shut(t, s)
	if to, err := os.Readlink(link); err != nil || to != target {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if again := openFile(t, target); again.State.Usage.Input != 2 {
		t.Errorf("loaded %s", encode(t, again.State))
	}
}

// TestFileRefused opens files that are not sessions of this version. They are not changed.
func TestFileRefused(t *testing.T) {
	for _, row := range []struct{ data, want string }{
		{"", "unexpected end"},
		{"dear diary\n", "invalid character"},
		{"{}", `no "version"`},
		{`{"version":99,"surprise":{}}`, "newer version"},
		{`{"version":1,"messages":[{"role":"assistant","blocks":[{"type":"tool_call","id":"a","name":"n","input":{}}]}]}`, "without results"},
		{`{"version":1,"messages":[`, "unexpected end"},
	} {
		path := filepath.Join(t.TempDir(), "chat.json")
		if err := os.WriteFile(path, []byte(row.data), 0o640); err != nil {
			t.Fatal(err)
		}
		_, err := session.File(path)
		if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %q and the path", row.data, err, row.want)
		}
		if strings.Contains(row.want, "newer") != errors.Is(err, agent.ErrNewerState) {
			t.Errorf("%q: %v", row.data, err)
		}
		unchanged(t, path, []byte(row.data))
	}
	for _, path := range []string{t.TempDir(), os.DevNull, filepath.Join(t.TempDir(), "missing", "chat.json")} {
		if _, err := session.File(path); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
}

func ExampleFile() {
	dir, err := os.MkdirTemp("", "session")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for range 2 { // like two runs of a program
		s, err := session.File(filepath.Join(dir, "chat.json"))
		if err != nil {
			panic(err)
		}
		a := newGreeter(s.Save)
		reply, err := a.Reply(context.Background(), s.State, agent.Say("Hello"))
		fmt.Println(reply.Text(), err)
		if err := s.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// Hello number 1. <nil>
	// Hello number 2. <nil>
}
