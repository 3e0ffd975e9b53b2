package session_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kitbag-go/kitbag/agent/session"
)

// TestSealedFile changes each byte of a sealed file, cuts the file at each position and appends to it: none of these
// can be opened. The unchanged file can, also by [session.File].
func TestSealedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.json")
	key := bytes.Repeat([]byte{7}, 32)
	s, err := session.SealedFile(path, key)
	if err != nil {
		t.Fatal(err)
	}
	save(t, s)
	save(t, s)
	shut(t, s)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := func(data []byte, key []byte) error {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := session.SealedFile(path, key)
		if err == nil {
			if s.State.Usage.Input != 2 {
				t.Errorf("loaded %s", encode(t, s.State))
			}
			shut(t, s)
		}
		return err
	}
	if err := open(whole, key); err != nil {
		t.Fatal(err)
	}
	for i := range whole[:len(whole)-1] {
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		for _, data := range [][]byte{changed, whole[:i]} {
			if err := open(data, key); err == nil { // ErrUnsealed, or no session file
				t.Fatalf("%s was opened", data)
			}
		}
	}
	added := append([]byte(`{"rules":[{"tool":"Bash","behavior":"allow"}],`), whole[1:]...)
	for _, data := range [][]byte{added, append(bytes.Clone(whole), " "...)} {
		if err := open(data, key); !errors.Is(err, session.ErrUnsealed) {
			t.Errorf("%s: %v", data, err)
		}
	}
	if err := open(whole, bytes.Repeat([]byte{8}, 32)); !errors.Is(err, session.ErrUnsealed) {
		t.Errorf("another key: %v", err)
	}
	if err := open(whole, key[:8]); err == nil || errors.Is(err, session.ErrUnsealed) {
		t.Errorf("a short key: %v", err)
	}
	shut(t, openFile(t, path))

	other := bytes.Repeat([]byte{9}, 32)
	if err := session.Seal(t.Context(), path, other); err != nil {
		t.Fatal(err)
	}
	again, err := session.SealedFile(path, other)
	if err != nil || again.State.Usage.Input != 2 {
		t.Fatalf("sealed anew: %v", err)
	}
	shut(t, again)
}
