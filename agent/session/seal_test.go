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
			if err := open(data, key); !errors.Is(err, session.ErrUnsealed) {
				t.Fatalf("%s: %v", data, err)
			}
		}
	}
	added := append([]byte(`{"rules":[{"tool":"Bash","behavior":"allow"}],`), whole[1:]...)
	// The seal is checked first, so an untrusted file is not parsed.
	for _, data := range [][]byte{added, append(bytes.Clone(whole), " "...), []byte(`{"version":99}`), []byte("dear diary\n")} {
		if err := open(data, key); !errors.Is(err, session.ErrUnsealed) {
			t.Errorf("%s: %v", data, err)
		}
	}
	if err := open(whole, bytes.Repeat([]byte{8}, 32)); !errors.Is(err, session.ErrUnsealed) {
		t.Errorf("another key: %v", err)
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

// TestShortKey uses keys that an attacker can find: the file is neither written nor opened.
func TestShortKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.json")
	s := openFile(t, path)
	save(t, s)
	shut(t, s)
	plain, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range [][]byte{nil, {}, bytes.Repeat([]byte{7}, 15)} {
		if s, err := session.SealedFile(path, key); err == nil || errors.Is(err, session.ErrUnsealed) {
			t.Errorf("SealedFile with %d bytes: %v, %v", len(key), s, err)
		}
		if err := session.Seal(t.Context(), path, key); err == nil {
			t.Errorf("Seal with %d bytes has no error", len(key))
		}
		if key == nil {
			continue // ReadFile then reads a file without a seal
		}
		if _, err := session.ReadFile(path, key); err == nil || errors.Is(err, session.ErrUnsealed) {
			t.Errorf("ReadFile with %d bytes: %v", len(key), err)
		}
	}
	unchanged(t, path, plain)
}

// TestKeyErased erases the caller's key while the session is open: the next save uses the same key.
func TestKeyErased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.json")
	key := bytes.Repeat([]byte{7}, 32)
	erased := bytes.Clone(key)
	s, err := session.SealedFile(path, erased)
	if err != nil {
		t.Fatal(err)
	}
	clear(erased)
	save(t, s)
	shut(t, s)
	if _, err := session.ReadFile(path, key); err != nil {
		t.Error(err)
	}
}
