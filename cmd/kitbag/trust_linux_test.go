package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestTrustIrregularPrograms: settings of programs that are no regular files neither block kitbag nor are read without end.
func TestTrustIrregularPrograms(t *testing.T) {
	workspace(t)
	if err := syscall.Mkfifo(".nvmrc", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(".nvmrc", ".npmrc"); err != nil {
		t.Fatal(err)
	}
	writeConfig(t, configFile, `{"maxSteps":5}`)
	if _, shown := answerTrust(t, "y\n"); !strings.Contains(shown, "programs of .npmrc") {
		t.Errorf("shown: %s", shown)
	}
	if _, shown := answerTrust(t, "n\n"); shown != "" {
		t.Errorf("asked again: %s", shown)
	}
	if err := os.Remove(".npmrc"); err != nil {
		t.Fatal(err)
	}
	if _, shown := answerTrust(t, "n\n"); !strings.Contains(shown, "Do you trust it?") {
		t.Errorf("not asked again: %s", shown)
	}
}
