package builtin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kitbag-go/kitbag/internal/pathrule"
)

// Local is the machine the program runs on. The zero Local is ready. Every
// file is opened through an [os.Root]: that of the working directory it lies
// in, its links resolved, or else that of its own directory.
type Local struct {
	Dirs []string // working directories, absolute

	// Confined refuses files outside Dirs even where a person allowed them.
	Confined bool
}

// Open implements [Backend].
func (l *Local) Open(ctx context.Context, path string) (fs.File, error) {
	root, name, err := l.root(path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := open(root, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, cause(err))
	}
	return f, nil
}

func open(root *os.Root, name string) (fs.File, error) {
	// Opening a device may do something, and a pipe may block: look first.
	info, err := root.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return openDir(root, name)
	case !info.Mode().IsRegular():
		return nil, ErrNotRegular
	}
	f, err := openRegular(root, name)
	if err == nil && isKernelFile(f) {
		f.Close()
		return nil, ErrNotRegular
	}
	return f, err
}

func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat() // of what was opened, whatever it was before
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func openDir(root *os.Root, name string) (*localDir, error) {
	sub, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	f, err := openList(sub)
	if err == nil && isKernelFile(f) {
		f.Close()
		err = ErrNotRegular
	}
	if err != nil {
		sub.Close()
		return nil, err
	}
	return &localDir{File: f, root: sub}, nil
}

// A localDir is an open directory whose entries are opened without walking
// their path again, and without leaving it: who swaps a directory for a link while
// a search goes on does not lead it elsewhere.
type localDir struct {
	*os.File
	root *os.Root
}

// Open opens a regular file in d.
func (d *localDir) Open(name string) (fs.File, error) {
	f, err := openRegular(d.root, name)
	if err != nil {
		return nil, err
	}
	return regularFile{f}, nil
}

// Sub opens a directory in d.
func (d *localDir) Sub(name string) (fs.FS, error) { return openDir(d.root, name) }

func (d *localDir) Close() error { return errors.Join(d.root.Close(), d.File.Close()) }

// A regularFile knows that a regular file that gives less than it was asked
// for has ended, which saves a system call for each small file.
type regularFile struct{ *os.File }

func (f regularFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Write implements [Backend]: a temporary file beside the old one is written,
// synced and renamed.
func (l *Local) Write(ctx context.Context, path string, data []byte) error {
	root, name, err := l.root(path)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := replace(root, name, data); err != nil {
		return fmt.Errorf("write %s: %w", path, cause(err))
	}
	return nil
}

func replace(root *os.Root, name string, data []byte) error {
	// What is there is replaced, not written into: who reads it at the same time,
	// or after a crash, has the old content or the new. It costs hard links their
	// common content.
	mode := fs.FileMode(0o666) // less the umask
	old, err := root.Stat(name)
	switch {
	case err == nil && old.IsDir():
		return errors.New("is a directory")
	case err == nil && !old.Mode().IsRegular():
		return ErrNotRegular
	case err == nil:
		mode = old.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return err
		}
	}
	tmp := filepath.Join(filepath.Dir(name), ".kitbag-"+rand.Text()[:12])
	if err := writeTemp(root, tmp, data, mode, old); err != nil {
		root.Remove(tmp)
		return err
	}
	if err := root.Rename(tmp, name); err != nil {
		root.Remove(tmp)
		return err
	}
	return syncDir(root, filepath.Dir(name))
}

// writeTemp writes and syncs the file that takes the place of old, which is
// nil for a new one.
func writeTemp(root *os.Root, tmp string, data []byte, mode fs.FileMode, old fs.FileInfo) error {
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	if old != nil {
		keepOwner(f, old)
		if err := f.Chmod(mode); err != nil { // the umask took bits away
			return err
		}
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// root returns an open root and the name of path in it, all links resolved.
func (l *Local) root(path string) (*os.Root, string, error) {
	if !filepath.IsAbs(path) {
		return nil, "", fmt.Errorf("%s: not an absolute path", path)
	}
	real := (pathrule.Place{}).Real(path)
	if real == "" {
		return nil, "", fmt.Errorf("%s: its symbolic links cannot be resolved", path)
	}
	for _, dir := range l.Dirs {
		realDir := (pathrule.Place{}).Real(dir)
		if realDir == "" || !pathrule.Below(real, realDir) {
			continue
		}
		rel, err := filepath.Rel(realDir, real)
		if err != nil {
			continue
		}
		return openRoot(path, realDir, rel)
	}
	if l.Confined {
		return nil, "", fmt.Errorf("%s: outside the working directories (%s), to which this agent is confined",
			path, strings.Join(l.Dirs, ", "))
	}
	dir, name := existingDir(real)
	return openRoot(path, dir, name)
}

// openRoot opens dir; path is for the error.
func openRoot(path, dir, name string) (*os.Root, string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, cause(err))
	}
	return root, name, nil
}

// existingDir splits path into its longest existing directory and the rest: an
// [os.Root] wants one that is there, and Write makes the others below it.
func existingDir(path string) (dir, rest string) {
	dir, rest = filepath.Split(path)
	dir = filepath.Clean(dir)
	if rest == "" {
		return dir, "."
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest)
	}
	return dir, rest
}

// cause returns what is inside a path error: the path in it is relative to a
// root that nobody outside knows.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
