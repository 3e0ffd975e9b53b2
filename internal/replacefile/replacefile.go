// Package replacefile writes a file so that after a crash it has the old or the new content.
package replacefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write writes a temporary file in the same folder, since a rename works only within a file system, and renames it.
func Write(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
