package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

// TestMain lets the test start this program as a separate process.
func TestMain(m *testing.M) {
	if os.Getenv("BATCH_CHILD") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestKill(t *testing.T) {
	t.Chdir(t.TempDir())
	first := child(t)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	for begun := 0; begun < jobs/10; {
		files, err := filepath.Glob(labels + "/*")
		if err != nil {
			t.Fatal(err)
		}
		begun = len(files)
		time.Sleep(time.Millisecond)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err == nil {
		t.Fatal("the batch had ended before it was killed")
	}

	out, err := child(t).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var done int
	if _, err := fmt.Sscanf(string(out), "500 tickets: %d were done before, 0 failed", &done); err != nil || done == 0 || done == jobs {
		t.Errorf("the second run says %q, %v", out, err)
	}
	store, err := session.Dir("tickets/sessions")
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= jobs; n++ {
		id := fmt.Sprintf("ticket-%d", n)
		if got, err := os.ReadFile(filepath.Join(labels, id)); string(got) != "bug\n" {
			t.Errorf("%s is labelled %q, %v", id, got, err)
		}
		s, err := session.Open(context.Background(), store, id)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.State.Messages) != 4 || !s.State.Done() {
			t.Errorf("%s has %d messages, and is done: %v", id, len(s.State.Messages), s.State.Done())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func child(t *testing.T) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "BATCH_CHILD=1", "OPENAI_API_KEY=")
	cmd.Stderr = &strings.Builder{}
	return cmd
}
