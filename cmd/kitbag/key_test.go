//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUserKey checks that a key is only used if its file and folder belong to the user alone, and
// that the error has the remedy.
func TestUserKey(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(dir, file string) error
		want   string // what the error says; empty for none
	}{
		{"as made", func(_, _ string) error { return nil }, ""},
		{"file only readable", func(_, file string) error { return os.Chmod(file, 0o400) }, ""},
		{"file readable by others", func(_, file string) error { return os.Chmod(file, 0o644) }, "remove it"},
		{"file writable by a group", func(_, file string) error { return os.Chmod(file, 0o620) }, "remove it"},
		{"folder listed by others", func(dir, _ string) error { return os.Chmod(dir, 0o755) }, "chmod 700"},
		{"folder writable by others", func(dir, _ string) error { return os.Chmod(dir, 0o703) }, "chmod 700"},
		{"file is a link", func(_, file string) error {
			return first(os.Rename(file, file+".real"), os.Symlink(file+".real", file))
		}, "is not a regular file"},
		{"folder is a link", func(dir, _ string) error { return first(os.Rename(dir, dir+".real"), os.Symlink(dir+".real", dir)) }, ""},
		{"folder behind a link", func(dir, _ string) error {
			return first(os.Rename(dir, dir+".real"), os.Symlink(dir+".real", dir), os.Chmod(dir+".real", 0o777))
		}, "chmod 700"},
		{"short", func(_, file string) error { return os.Truncate(file, 31) }, "has 31 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("XDG_CONFIG_HOME", home)
			t.Setenv("HOME", home)
			key, err := userKey()
			if err != nil {
				t.Fatal(err)
			}
			base, err := os.UserConfigDir()
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(base, "kitbag")
			file := filepath.Join(dir, "session.key")
			if err := row.change(dir, file); err != nil {
				t.Fatal(err)
			}
			again, err := userKey()
			switch {
			case row.want == "" && (err != nil || string(again) != string(key)):
				t.Errorf("%v", err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), dir)):
				t.Errorf("%v, want %q", err, row.want)
			}
			if _, err := readKey(file, os.Geteuid()+1); row.want == "" && (err == nil || !strings.Contains(err.Error(), "belongs to another user")) {
				t.Errorf("for another user: %v", err)
			}
		})
	}
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
