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

// userKey returns the key that seals the user's session files. On first use it is created in the user's configuration
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
	const renew = "remove it to get a new key, then trust each session again with --trust-session"
	dir := filepath.Dir(file)
	switch folder, err := os.Stat(dir); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file; %s", file, renew)
	case runtime.GOOS == "windows": // file modes do not restrict reading there
	case !ownedBy(folder, user):
		return nil, fmt.Errorf("%s belongs to another user; change its owner to the user that runs kitbag: chown %d %s", dir, user, dir)
	case folder.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has mode %v: others may replace its files; run: chmod 700 %s", dir, folder.Mode(), dir)
	case !ownedBy(info, user):
		return nil, fmt.Errorf("%s belongs to another user, who may know the key; %s", file, renew)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has mode %v: others may know the key; %s", file, info.Mode(), renew)
	}
	key, err := os.ReadFile(file)
	if err == nil && len(key) != keySize {
		err = fmt.Errorf("%s has %d bytes, not %d; %s", file, len(key), keySize, renew)
	}
	return key, err
}

// makeKey writes a new key to file. If two programs do so at once, the first one's key is kept.
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
