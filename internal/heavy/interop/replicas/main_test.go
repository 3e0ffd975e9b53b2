package main

import (
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestReplicas is the command, in short.
func TestReplicas(t *testing.T) {
	got, err := run(t.Context(), options{sessions: 20, pause: 100 * time.Millisecond, between: 500 * time.Millisecond, log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", got)
	if err := got.check(); err != nil {
		t.Error(err)
	}
}
