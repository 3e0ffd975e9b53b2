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
// it is first needed, in the user's configuration folder.
func userKey() ([]byte, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("the key that seals sessions: %w; set HOME or XDG_CONFIG_HOME", err)
	}
	file := filepath.Join(base, "kitbag", "session.key")
	key, err := readKey(file, os.Geteuid())
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(file); err == nil {
			key, err = readKey(file, os.Geteuid())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the key that seals sessions: %w", err)
	}
	return key, nil
}

// readKey reads a key that, like its folder, belongs to the user and to no one else: whoever
// knows it can seal a forged session.
func readKey(file string, user int) ([]byte, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return nil, err
	}
	const renew = "remove it to have a new key made, then trust each session again with --trust-session"
	dir := filepath.Dir(file)
	switch folder, err := os.Stat(dir); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file; %s", file, renew)
	case runtime.GOOS == "windows": // where modes do not say who may read
	case !ownedBy(folder, user):
		return nil, fmt.Errorf("%s belongs to another user; give it to the user that runs kitbag: chown %d %s", dir, user, dir)
	case folder.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has mode %v: others may replace what is in it; run: chmod 700 %s", dir, folder.Mode(), dir)
	case !ownedBy(info, user):
		return nil, fmt.Errorf("%s belongs to another user, who knows the key; %s", file, renew)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has mode %v: others may know the key; %s", file, info.Mode(), renew)
	}
	key, err := os.ReadFile(file)
	if err == nil && len(key) != keySize {
		err = fmt.Errorf("%s has %d bytes, not %d; %s", file, len(key), keySize, renew)
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
