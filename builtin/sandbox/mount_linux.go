//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The kinds of access that the program has to a path.
const (
	asWrite   = "write"   // writable
	asShow    = "show"    // readable although a directory above it is covered
	asScratch = "scratch" // writable, but the changes are dropped when the program ends
	asPin     = "pin"     // as the directory above it, but it cannot be moved
	asProtect = "protect" // read-only
	asHide    = "hide"    // not readable
)

// mountOrder is the order of the mounts for the same path: those that remove access come last.
var mountOrder = []string{asWrite, asShow, asScratch, asPin, asProtect, asHide}

// A place is a path, absolute and without links, with the program's access to it.
type place struct {
	Name string
	As   string
}

// mayBeMissing reports whether the path may have been removed before the mount: then nothing is left to protect.
func (p place) mayBeMissing() bool { return p.As == asPin || p.As == asProtect }

// covered are directories that the profile work replaces by private ones, because they contain sockets of other
// programs.
var covered = []string{"/tmp", "/var/tmp", "/run", "/var/run"}

// devices are the names in /dev that programs may need.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

const plain = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// A tree is a copy of mounts that is not attached yet.
type tree struct {
	fd  int    // -1 if the tree is not made yet; see copies
	at  string // the path to attach it to
	dir bool

	hides bool
	gone  bool // the path was removed after the plan was made, or the kernel does not support the mount
}

// enter opens a path, to mount at it or to copy it, without following links: a program that can write in a granted
// directory could have created one.
func enter(name string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	return fd, nil
}

func isDir(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// copyTree copies the mounts at and below name.
func copyTree(name, at string, attr uint64) (tree, error) {
	from, err := enter(name)
	if err != nil {
		return tree{}, err
	}
	defer unix.Close(from)
	return cloneMount(from, at, attr)
}

// cloneMount copies the mounts at and below an open path.
func cloneMount(from int, at string, attr uint64) (tree, error) {
	fd, err := unix.OpenTree(from, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return tree{}, fmt.Errorf("copy the mount of %s: %w", at, err)
	}
	t := tree{fd: fd, at: at, dir: isDir(from)}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr})
	if err != nil {
		unix.Close(fd)
		return tree{}, fmt.Errorf("restrict the mount of %s: %w", at, err)
	}
	return t, nil
}

// attach attaches the tree to its path.
func (t tree) attach() error {
	defer unix.Close(t.fd)
	to, err := enter(t.at)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := unix.MoveMount(t.fd, "", to, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", t.at, err)
	}
	return nil
}

// base is where a file system in memory is mounted, which has the program's temporary directory, the directories
// that cover others, and the changes to scratch directories. Later /proc is mounted over it, so that the program
// cannot reach it there.
const base = "/proc"

// newTree returns a tree of a directory in the base.
func newTree(name, at string, attr uint64) (tree, error) {
	return copyTree(filepath.Join(base, name), at, attr)
}

// makeBase mounts the base and makes its directories.
func (p *plan) makeBase() error {
	if err := mountNew("tmpfs", base, 0, fmt.Sprintf("mode=755,size=%d,nr_inodes=%d", p.Limits.Temporary, p.Limits.Temporary/4096+1024)); err != nil {
		return err
	}
	for _, name := range []string{"dev", "dev/pts", "dev/shm", "run", "scratch", "proc", "hidden", "hidden/directory"} {
		if err := unix.Mkdir(base+"/"+name, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	links := []struct{ target, name string }{{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"}}
	for _, l := range links {
		if err := unix.Symlink(l.target, base+"/dev/"+l.name); err != nil {
			return fmt.Errorf("make %s: %w", l.name, err)
		}
	}
	return errors.Join(
		unix.Mkdir(base+"/tmp", 0o700),
		unix.Mknod(base+"/hidden/file", unix.S_IFREG, 0),
		unix.Chmod(base+"/hidden/directory", 0),
	)
}

// makePoint creates the mount point of the tree, if it is in a directory of the base.
func makePoint(list []owned, t tree) error {
	for _, own := range list {
		if t.hides || t.gone || !below(t.at, own.at) || t.at == own.at {
			continue
		}
		name := filepath.Join(base, own.name, strings.TrimPrefix(t.at, own.at))
		if t.dir {
			return os.MkdirAll(name, 0o755)
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return nil
}

// An owned directory is a directory in the base, with the path at which the program sees it.
type owned struct {
	name, at string
	attr     uint64
}

// ownedDirs returns the directories of the base that the program sees.
func (p *plan) ownedDirs() []owned {
	const readOnly = plain | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_RDONLY
	list := []owned{{"dev", "/dev", readOnly}, {"tmp", "/dev/shm", plain}}
	if p.ReadProfile {
		return list // /tmp and /run stay readable: in this profile no connection to a socket is possible
	}
	for _, dir := range []owned{{"tmp", "/tmp", plain}, {"tmp", "/var/tmp", plain}, {"run", "/run", readOnly}, {"run", "/var/run", readOnly}} {
		if info, err := os.Lstat(dir.at); err == nil && info.IsDir() { // not a link to one of the others
			list = append(list, dir)
		}
	}
	return list
}

func mountNew(kind, at string, flags uintptr, options string) error {
	if err := unix.Mount(kind, at, kind, flags|unix.MS_NOSUID, options); err != nil {
		return fmt.Errorf("mount %s: %w", at, err)
	}
	return nil
}

// mount makes the program's view of the file system: everything read-only, and mounted over it the writable places.
// The trees are copied first, because later mounts would change their originals.
func (p *plan) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	trees, err := p.copies()
	if err != nil {
		return err
	}
	procs, err := p.procs()
	if err != nil {
		return err
	}
	err = unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: plain | unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		return fmt.Errorf("make / read-only: %w", err)
	}
	if err := p.makeBase(); err != nil {
		return err
	}
	if p.keeper, err = newKeeper(); err != nil {
		return err
	}
	p.scratches(trees) // before their directories are covered
	list := p.ownedDirs()
	granted := "" // a copied tree contains the places below it
	for i, t := range trees {
		if granted != "" && below(t.at, granted) {
			continue
		}
		if err := makePoint(list, t); err != nil {
			return err
		}
		if i < len(p.Places) && p.Places[i].As == asWrite {
			granted = t.at
		}
	}
	for _, dir := range list {
		t, err := newTree(dir.name, dir.at, dir.attr)
		if err != nil {
			return err
		}
		if err := t.attach(); err != nil {
			return err
		}
	}
	if !p.ReadProfile {
		if err := mountNew("devpts", "/dev/pts", unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=600"); err != nil {
			return err
		}
	}
	for i, t := range trees {
		if t.gone {
			continue
		}
		if t.fd < 0 {
			var ok bool
			if t, ok, err = unreadable(t.at); err != nil {
				return err
			} else if !ok {
				continue
			}
		}
		if i < len(p.Places) && (p.Places[i].As == asProtect || p.Places[i].As == asHide) {
			if err := p.keeper.keep(t, p.Places[i].As); err != nil {
				return err
			}
		}
		err := t.attach()
		if i < len(p.Places) && p.Places[i].mayBeMissing() && errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return err
		}
	}
	return p.mountProc(procs)
}

// copies returns trees of the devices and of the places, in their order. A tree that hides, or that is from the
// base, has no descriptor yet.
func (p *plan) copies() ([]tree, error) {
	var trees []tree
	for _, pl := range p.Places {
		t, err := tree{fd: -1, at: pl.Name}, error(nil)
		switch pl.As {
		case asWrite, asPin:
			t, err = copyTree(pl.Name, pl.Name, plain)
		case asShow, asProtect:
			t, err = copyTree(pl.Name, pl.Name, plain|unix.MOUNT_ATTR_RDONLY)
		case asHide:
			t.hides = true
		}
		if pl.mayBeMissing() && errors.Is(err, unix.ENOENT) {
			t, err = tree{fd: -1, at: pl.Name, gone: true}, nil
		}
		if err != nil {
			return nil, err
		}
		trees = append(trees, t)
	}
	for _, name := range devices {
		t, err := copyTree("/dev/"+name, "/dev/"+name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY)
		if errors.Is(err, unix.ENOENT) {
			continue // a machine without a terminal
		} else if err != nil {
			return nil, err
		}
		trees = append(trees, t)
	}
	return trees, nil
}

// scratches makes the trees of the scratch directories.
func (p *plan) scratches(trees []tree) {
	for i, pl := range p.Places {
		if pl.As != asScratch {
			continue
		}
		trees[i] = tree{gone: true}
		if p.NoScratch {
			continue
		}
		t, err := overlay(pl.Name, filepath.Join(base, "scratch", fmt.Sprint(i)))
		if err != nil {
			p.NoScratch = true // not every kernel supports it; the directory stays read-only
			continue
		}
		trees[i] = t
	}
}

// overlay returns a tree with the contents of the directory name, whose changes are kept in dir.
func overlay(name, dir string) (t tree, err error) {
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return tree{}, err
		}
	}
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return tree{}, err
	}
	defer unix.Close(fs)
	lower := strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace(name)
	for _, kv := range [][2]string{{"lowerdir", lower}, {"upperdir", upper}, {"workdir", work}} {
		if err := unix.FsconfigSetString(fs, kv[0], kv[1]); err != nil {
			return tree{}, err
		}
	}
	if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
		return tree{}, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return tree{}, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, plain)
	return tree{fd: fd, at: name, dir: true}, err
}

// unreadable returns the tree to mount over the path name to hide it. ok is false if the program could not read it
// anyway.
func unreadable(name string) (t tree, ok bool, err error) {
	at, err := enter(name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
		return tree{}, false, nil // removed, covered, or not accessible to this user
	} else if err != nil {
		return tree{}, false, err
	}
	what := "hidden/file"
	if isDir(at) {
		what = "hidden/directory"
	}
	unix.Close(at)
	t, err = newTree(what, name, plain|unix.MOUNT_ATTR_RDONLY)
	return t, err == nil, err
}

// newProc returns a /proc with only the program's processes.
func (p *plan) newProc() (tree, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return tree{}, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return tree{}, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, plain|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return tree{}, err
	}
	// RLIMIT_NPROC does not apply to root. Not every kernel has pid_max for each namespace.
	if pids, err := unix.Openat(fd, "sys/kernel/pid_max", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, err = unix.Write(pids, fmt.Append(nil, max(p.Limits.Processes, minPids)))
		p.countsPids = err == nil
		unix.Close(pids)
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	return tree{fd: fd, at: "/proc", dir: true}, err
}

// procs returns the trees for /proc. If parts of the existing /proc are covered, the kernel permits no new one;
// then the program sees a few files of it, and no processes.
func (p *plan) procs() ([]tree, error) {
	if !p.NoProc {
		t, err := p.newProc()
		if err == nil {
			return []tree{t}, nil
		} else if !errors.Is(err, unix.EPERM) {
			return nil, fmt.Errorf("mount /proc: %w", err)
		}
		p.NoProc, p.NoUnix = true, true // the connector needs /proc to look up names and descriptors
	}
	var trees []tree
	for _, name := range procFiles {
		if t, err := copyTree("/proc/"+name, "/proc/"+name, plain|unix.MOUNT_ATTR_RDONLY); err == nil {
			trees = append(trees, t)
		}
	}
	return trees, nil
}

// mountProc attaches the trees of procs.
func (p *plan) mountProc(trees []tree) error {
	if p.NoProc {
		for _, t := range trees {
			if err := os.WriteFile(filepath.Join(base, t.at), nil, 0o600); err != nil {
				return err
			}
		}
		t, err := newTree("proc", "/proc", plain|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY)
		if err != nil {
			return err
		}
		trees = slices.Insert(trees, 0, t)
	}
	for _, t := range trees {
		if err := t.attach(); err != nil {
			return err
		}
	}
	return nil
}

// procFiles are files about the machine that reveal nothing about its processes.
var procFiles = []string{"cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems"}

// minPids is the smallest useful pid_max: the kernel reserves the first 300 process ids of a namespace.
const minPids = 321
