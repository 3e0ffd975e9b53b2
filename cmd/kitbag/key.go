package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

const keySize = 32 // bytes

// userKey returns the key that the user's session files are sealed with. It is made when
// it is first needed, in the user's configuration directory.
func userKey() ([]byte, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("the key that seals sessions: %w; set HOME or XDG_CONFIG_HOME", err)
	}
	file := filepath.Join(base, "kitbag", "session.key")
	key, err := readKey(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(file); err == nil {
			key, err = readKey(file)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the key that seals sessions: %w", err)
	}
	return key, nil
}

// readKey reads a key that only its owner can read.
func readKey(file string) ([]byte, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s has mode %v: others may have read or written it; remove it for a new one, then trust each session anew", file, mode)
	}
	key, err := os.ReadFile(file)
	if err == nil && len(key) != keySize {
		err = fmt.Errorf("%s has %d bytes, not %d; remove it for a new one, then trust each session anew", file, len(key), keySize)
	}
	return key, err
}

// makeKey makes a key. Of two programs that do so at once, the first one's stays.
func makeKey(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".session-key-") // mode 0600
	if err != nil {
		return err
	}
	key := make([]byte, keySize)
	rand.Read(key)
	_, err = f.Write(key)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		if err = os.Link(f.Name(), file); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(f.Name()))
}
