//go:build !unix

package builtin

import (
	"io/fs"
	"os"
	"path/filepath"
)

// A folder is an open directory, with operations on its entries by name. It refuses symbolic links by a check
// before the operation, since this system has no call that opens a name and fails for a link. No operation leaves
// the folder.
type folder struct{ *os.Root }

// An entry describes a file or directory in a folder.
type entry struct {
	mode fs.FileMode
	id   identity
}

// An identity is always zero on this system: files are identified by name.
type identity struct{ device, inode uint64 }

func openRootFolder(path string) (root *folder, rest string, err error) {
	volume := filepath.VolumeName(path) + string(filepath.Separator)
	r, err := os.OpenRoot(volume)
	if err != nil {
		return nil, "", err
	}
	rest, err = filepath.Rel(volume, filepath.FromSlash(path))
	return &folder{r}, filepath.ToSlash(rest), err
}

func (f *folder) sub(name string) (*folder, error) {
	if err := f.refuseLink(name); err != nil {
		return nil, err
	}
	r, err := f.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &folder{r}, nil
}

func (f *folder) open(name string) (*os.File, error) {
	if err := f.refuseLink(name); err != nil {
		return nil, err
	}
	return f.Open(name)
}

func (f *folder) refuseLink(name string) error {
	e, err := f.lstat(name)
	if err == nil && e.mode&fs.ModeSymlink != 0 {
		err = ErrMoved
	}
	return err
}

func (f *folder) lstat(name string) (entry, error) {
	info, err := f.Lstat(name)
	if err != nil {
		return entry{}, err
	}
	return entry{mode: info.Mode()}, nil
}

func identityOf(fs.FileInfo) identity { return identity{} }

func (f *folder) mkdir(name string) error { return f.Mkdir(name, 0o777) }

func (f *folder) create(name string, mode fs.FileMode) (*os.File, error) {
	return f.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
}

func (f *folder) rename(from, to string) error { return f.Rename(from, to) }
func (f *folder) remove(name string) error     { return f.Remove(name) }
func (f *folder) sync() error                  { return nil } // directories cannot be synced on this system

func keepOwner(*os.File, entry) {} // an entry has no owner on this system
