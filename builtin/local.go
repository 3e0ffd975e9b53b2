package builtin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

// Local is the machine the program runs on. The zero Local is ready.
//
// A file is reached from the top, directory by directory, and never through a symbolic
// link: links were resolved when the call was judged, and one that came since is not
// followed. On Unix systems the file that was opened must be the one that was judged, by
// device and inode, and a new one is created in the directory that was judged; what has
// moved fails with [ErrMoved]. Elsewhere there are no such numbers, and a link that is put
// in place at the very moment of opening may lead to another file of the same directory.
type Local struct {
	Dirs []string // working directories, absolute

	// Confined refuses files outside Dirs even where a person allowed them.
	Confined bool

	// Sandbox says how commands are confined where [sandbox.Check] finds that they can be:
	// one that was judged runs in the profile of its judgement, and may write in Dirs. One
	// of profile open, or of none, because nobody judged it, is not confined. Where the
	// system cannot confine, no command is, and Bash has the rights of the process.
	//
	// A Profile here counts for every command, so that open turns the sandbox off. Write and
	// Network grant more. Protect, Hide and Scratch are in addition to what is well known:
	// what other programs run or trust, what holds credentials, and caches; see
	// [Local.Spec].
	Sandbox sandbox.Spec

	// Reveal are paths, absolute, that a confined command may read although they are in
	// Sandbox.Hide, or are well known to hold credentials, they and what is below them.
	Reveal []string

	found finder
}

// Identify returns what stands at path now, which is absolute and has no symbolic link in it.
func (l *Local) Identify(name string) permission.File {
	f := permission.File{Path: name}
	for at := name; ; at = path.Dir(at) {
		info, err := os.Lstat(at)
		if err == nil {
			id := identityOf(info)
			f.Device, f.Inode = id.device, id.inode
			return f
		}
		if !errors.Is(err, fs.ErrNotExist) || at == path.Dir(at) {
			return f
		}
		f.New = true
	}
}

// Open implements [Backend].
func (l *Local) Open(ctx context.Context, file permission.File) (fs.File, error) {
	f, err := l.open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Path, cause(err))
	}
	return f, nil
}

func (l *Local) open(file permission.File) (fs.File, error) {
	d, name, _, err := l.enter(&file, false)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	// Opening a device may do something, and a pipe may block: look first.
	e, err := d.look(name)
	if err != nil {
		return nil, err
	}
	if file.New {
		return nil, ErrMoved
	}
	var f fs.File
	switch {
	case e.mode&fs.ModeSymlink != 0:
		return nil, ErrMoved
	case e.mode.IsDir():
		f, err = openDir(d, name)
	case e.mode.IsRegular():
		f, err = openRegular(d, name)
	default:
		return nil, ErrNotRegular
	}
	if err != nil {
		return nil, err
	}
	if err := check(osFile(f), file); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// osFile returns what is open.
func osFile(f fs.File) *os.File {
	if d, ok := f.(*localDir); ok {
		return d.File
	}
	return f.(*os.File) // nothing else is opened here
}

// check returns an error unless f is the file that was judged, and not made up by the
// kernel.
func check(f *os.File, judged permission.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if judged.Inode != 0 && identityOf(info) != (identity{judged.Device, judged.Inode}) {
		return ErrMoved
	}
	if isKernelFile(f) {
		return ErrNotRegular
	}
	return nil
}

// enter opens the directory that the file is in, and returns the file's name there, "."
// for the top. The file's path is one without links afterwards. With create, missing
// directories are made. judged reports whether one on the way was the judged one.
func (l *Local) enter(file *permission.File, create bool) (d *folder, name string, judged bool, err error) {
	if !filepath.IsAbs(file.Path) {
		return nil, "", false, errors.New("not an absolute path")
	}
	if file.Inode == 0 { // nobody has looked yet
		if file.Path = (pathrule.Place{}).Real(file.Path); file.Path == "" {
			return nil, "", false, errors.New("its symbolic links cannot be resolved")
		}
	}
	if err := l.confine(file.Path); err != nil {
		return nil, "", false, err
	}
	d, rest, err := rootFolder(file.Path)
	if err != nil {
		return nil, "", false, err
	}
	for {
		if create && !judged {
			e, err := d.look(".")
			judged = err == nil && e.id == (identity{file.Device, file.Inode})
		}
		seg, tail, more := strings.Cut(rest, "/")
		if !more {
			if seg == "" {
				seg = "."
			}
			return d, seg, judged, nil
		}
		next, err := step(d, seg, create && (judged || file.Inode == 0))
		d.Close()
		if err != nil {
			return nil, "", false, err
		}
		d, rest = next, tail
	}
}

// step opens the folder name in d.
func step(d *folder, name string, create bool) (*folder, error) {
	next, err := d.sub(name)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err := d.make(name); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		next, err = d.sub(name)
	}
	if err == nil {
		return next, nil
	}
	// A link was put in the way since the path was resolved.
	if e, lookErr := d.look(name); lookErr == nil && e.mode&fs.ModeSymlink != 0 {
		return nil, ErrMoved
	}
	return nil, err
}

// confine returns an error for a path without links that the tools are kept from.
func (l *Local) confine(real string) error {
	if !l.Confined {
		return nil
	}
	for _, dir := range l.Dirs {
		if realDir := (pathrule.Place{}).Real(dir); realDir != "" && pathrule.Below(real, realDir) {
			return nil
		}
	}
	return fmt.Errorf("outside the working directories (%s), to which this agent is confined", strings.Join(l.Dirs, ", "))
}

func openRegular(d *folder, name string) (*os.File, error) {
	f, err := d.open(name)
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

func openDir(d *folder, name string) (*localDir, error) {
	sub, err := d.sub(name)
	if err != nil {
		return nil, err
	}
	f, err := sub.open(".")
	if err == nil && isKernelFile(f) {
		f.Close()
		err = ErrNotRegular
	}
	if err != nil {
		sub.Close()
		return nil, err
	}
	return &localDir{File: f, folder: sub}, nil
}

// A localDir is an open directory whose entries are opened without walking
// their path again, and without leaving it: who swaps a directory for a link while
// a search goes on does not lead it elsewhere.
type localDir struct {
	*os.File
	folder *folder
}

// Open opens a regular file in d.
func (d *localDir) Open(name string) (fs.File, error) {
	f, err := openRegular(d.folder, name)
	if err != nil {
		return nil, err
	}
	return regularFile{f}, nil
}

// Sub opens a directory in d.
func (d *localDir) Sub(name string) (fs.FS, error) { return openDir(d.folder, name) }

func (d *localDir) Close() error { return errors.Join(d.folder.Close(), d.File.Close()) }

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
func (l *Local) Write(ctx context.Context, file permission.File, data []byte) error {
	if err := l.write(file, data); err != nil {
		return fmt.Errorf("write %s: %w", file.Path, cause(err))
	}
	return nil
}

func (l *Local) write(file permission.File, data []byte) error {
	// Without an identity to compare, what is missing may be made.
	create := file.New || file.Inode == 0
	d, name, judged, err := l.enter(&file, create)
	if errors.Is(err, fs.ErrNotExist) { // it was there, or could have been made
		return ErrMoved
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if file.New && file.Inode != 0 && !judged {
		return ErrMoved
	}
	old, err := replaced(d, name, file)
	if err != nil {
		return err
	}
	// What is there is replaced, not written into: who reads it at the same time,
	// or after a crash, has the old content or the new. It costs hard links their
	// common content.
	tmp := ".kitbag-" + rand.Text()[:12]
	err = writeTemp(d, tmp, data, old)
	if err == nil {
		_, err = replaced(d, name, file) // writing may have taken long
	}
	if err == nil {
		err = d.rename(tmp, name)
	}
	if err != nil {
		d.remove(tmp)
		return err
	}
	return d.sync()
}

// replaced returns what stands where the file is to be written, nil for nothing, or an
// error if that is not what was judged.
func replaced(d *folder, name string, file permission.File) (*entry, error) {
	old, err := d.look(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (file.New || file.Inode == 0):
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrMoved
	case err != nil:
		return nil, err
	case old.mode.IsDir():
		return nil, errors.New("is a directory")
	case old.mode&fs.ModeSymlink != 0, file.New, file.Inode != 0 && old.id != (identity{file.Device, file.Inode}):
		return nil, ErrMoved
	case !old.mode.IsRegular():
		return nil, ErrNotRegular
	}
	return &old, nil
}

// writeTemp writes and syncs the file that takes the place of old, which is
// nil for a new one.
func writeTemp(d *folder, tmp string, data []byte, old *entry) error {
	mode := fs.FileMode(0o666) // less the umask
	if old != nil {
		mode = old.mode.Perm()
	}
	f, err := d.create(tmp, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	if old != nil {
		keepOwner(f, *old)
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

// cause returns what is inside a path error: the path in it is relative to a
// folder that nobody outside knows.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
