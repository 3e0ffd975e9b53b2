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
