//go:build unix

package builtin

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A folder is an open directory, with operations on its entries by name. No operation follows a symbolic link: a link
// fails with ELOOP or ENOTDIR.
type folder struct{ *os.File }

// An entry describes a file or directory in a folder.
type entry struct {
	mode     fs.FileMode
	id       identity
	uid, gid int
}

// An identity identifies a file of this machine, whatever its names.
type identity struct{ device, inode uint64 }

// openRootFolder opens the root directory of an absolute path, and returns the rest of the path.
func openRootFolder(name string) (root *folder, rest string, err error) {
	root, err = openFolder(unix.AT_FDCWD, "/", "")
	return root, strings.Trim(name, "/"), err
}

// openFolder opens the folder name in the open folder parent. Package os needs the path to look up the type of an entry
// if the kernel lists the entry without a type.
func openFolder(parent int, name, parentPath string) (*folder, error) {
	fd, err := openat(parent, name, unix.O_DIRECTORY|searchOnly)
	if err != nil {
		return nil, err
	}
	return &folder{os.NewFile(uintptr(fd), strings.TrimSuffix(parentPath, "/")+"/"+strings.TrimPrefix(name, "/"))}, nil
}

func openat(parent int, name string, flags int) (fd int, err error) {
	for {
		fd, err = unix.Openat(parent, name, unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func (f *folder) fd() int { return int(f.Fd()) }

// sub opens a folder in f.
func (f *folder) sub(name string) (*folder, error) { return openFolder(f.fd(), name, f.Name()) }

// open opens a file or folder for reading. It does not block on a pipe, and does not make a terminal the controlling
// terminal of this process.
func (f *folder) open(name string) (*os.File, error) {
	fd, err := openat(f.fd(), name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path.Join(f.Name(), name)), nil
}

// lstat returns the entry of f with this name; "." is f itself.
func (f *folder) lstat(name string) (entry, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(f.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return entry{}, err
	}
	e := entry{id: identity{uint64(st.Dev), st.Ino}, uid: int(st.Uid), gid: int(st.Gid), mode: fs.FileMode(st.Mode & 0o777)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		e.mode |= fs.ModeDir
	case unix.S_IFLNK:
		e.mode |= fs.ModeSymlink
	default:
		e.mode |= fs.ModeIrregular
	}
	return e, nil
}

func identityOf(info fs.FileInfo) identity {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{uint64(st.Dev), st.Ino}
}

func (f *folder) mkdir(name string) error { return unix.Mkdirat(f.fd(), name, 0o777) }

// create creates a file for writing, and fails if it exists.
func (f *folder) create(name string, mode fs.FileMode) (*os.File, error) {
	fd, err := unix.Openat(f.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode.Perm()))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (f *folder) rename(from, to string) error { return unix.Renameat(f.fd(), from, f.fd(), to) }
func (f *folder) remove(name string) error     { return unix.Unlinkat(f.fd(), name, 0) }

// sync makes a rename in f survive a crash of the machine.
func (f *folder) sync() error {
	d, err := f.open(".")
	if err != nil {
		return nil // the folder may be writable but not readable
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the file system cannot sync directories
		return err
	}
	return nil
}

// keepOwner gives the new file f the owner and group of old, which f replaces, unless the owner is the user of
// this process. Errors are ignored, since writing the file matters more.
func keepOwner(f *os.File, old entry) {
	if old.uid != os.Geteuid() {
		f.Chown(old.uid, old.gid)
	}
}
