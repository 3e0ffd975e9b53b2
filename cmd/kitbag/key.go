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

// userKey returns the key that seals the user's sessions. On first use it is created in the user's configuration
// directory.
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

// readKey reads a key. The file and its directory must belong to the user and be inaccessible to others: anyone who
// knows the key can seal a forged session.
func readKey(file string, user int) ([]byte, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return nil, err
	}
	const remedy = "remove it to get a new key, then trust each session again with --trust-session"
	dir := filepath.Dir(file)
	switch dirInfo, err := os.Stat(dir); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file; %s", file, remedy)
	case runtime.GOOS == "windows": // there owners and modes say nothing about who can read a file
	case !ownedBy(dirInfo, user):
		return nil, fmt.Errorf("%s belongs to another user; change its owner to the user that runs kitbag: chown %d %s", dir, user, dir)
	case dirInfo.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has mode %v: others may replace its files; run: chmod 700 %s", dir, dirInfo.Mode(), dir)
	case !ownedBy(info, user):
		return nil, fmt.Errorf("%s belongs to another user, who may know the key; %s", file, remedy)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has mode %v: others may know the key; %s", file, info.Mode(), remedy)
	}
	key, err := os.ReadFile(file)
	if err == nil && len(key) != keySize {
		err = fmt.Errorf("%s has %d bytes, not %d; %s", file, len(key), keySize, remedy)
	}
	return key, err
}

// makeKey writes a new key to file, or leaves a key as it is that another process has written meanwhile.
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
		if err = os.Link(f.Name(), file); errors.Is(err, fs.ErrExist) { // unlike Rename, Link does not replace a file
			err = nil
		}
	}
	return errors.Join(err, os.Remove(f.Name()))
}
