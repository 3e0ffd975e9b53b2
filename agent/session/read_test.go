package session_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/session"
)

// TestOldFile continues a session that was saved by an older version, in a file without summaries, statuses
// and events. The agent checks its seal.
func TestOldFile(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "old.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "old.jsonl"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := session.Dir(path)
	if err != nil {
		t.Fatal(err)
	}
	page, err := store.List(t.Context(), session.Query{})
	if err != nil || len(page.Infos) != 1 {
		t.Fatalf("listed %+v, %v", page, err)
	}
	if in := page.Infos[0]; in.ID != "old" || in.Seq != 12 || in.Status != "" || in.Updated.IsZero() {
		t.Errorf("the list says %+v", in)
	}
	s := open(t, store, "old")
	answer, err := finish(t.Context(), journeyAgent(t.TempDir(), s.Save), s.State)
	if err != nil || answer != journeyAnswer {
		t.Errorf("the answer is %q, %v", answer, err)
	}
}

// TestForkSealed: a sealed session cannot be forked, because its copy could not be continued.
func TestForkSealed(t *testing.T) {
	store := newDir(t)
	s := open(t, store, "a")
	if _, err := finish(t.Context(), journeyAgent(t.TempDir(), s.Save), s.State); err != nil {
		t.Fatal(err)
	}
	err := session.Fork(t.Context(), store, "a", "b", 0)
	if err == nil || !strings.Contains(err.Error(), "agent.Config.Key") {
		t.Errorf("fork: %v", err)
	}
	if _, _, err := session.Read(t.Context(), store, "b", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read the fork: %v", err)
	}
}

// TestReadFile reads files of open sessions.
func TestReadFile(t *testing.T) {
	key := []byte("a key of thirty-two random bytes")
	for name, open := range map[string]func(string) (*session.Session, error){
		"plain":  session.File,
		"sealed": func(path string) (*session.Session, error) { return session.SealedFile(path, key) },
	} {
		path := filepath.Join(t.TempDir(), name)
		if _, err := session.ReadFile(path, nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing file: %v", err)
		}
		s, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i < 3; i++ {
			s.State.Usage.Input = i
			if err := s.Save(t.Context(), s.State); err != nil {
				t.Fatal(err)
			}
			st, err := session.ReadFile(path, nil)
			if err != nil || st.Usage.Input != i {
				t.Errorf("%s: read %+v, %v", name, st, err)
			}
		}
		if _, err := session.ReadFile(path, key); errors.Is(err, session.ErrUnsealed) != (name == "plain") {
			t.Errorf("%s: with a key: %v", name, err)
		}
		shut(t, s)
	}
}
