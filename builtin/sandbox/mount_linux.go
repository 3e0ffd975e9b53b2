//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The kinds of access that the program has to a path.
const (
	asWrite   = "write"   // writable
	asShow    = "show"    // readable although a directory above it is covered
	asScratch = "scratch" // writable, but the changes are dropped when the program ends
	asPin     = "pin"     // the access of the directory above, but cannot be moved
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

// mayBeMissing reports whether a path with this access may be removed before the mount: then nothing is left to protect.
func mayBeMissing(as string) bool { return as == asPin || as == asProtect }

// coveredDirs are the directories that the profile work replaces by private ones, because they contain sockets of
// other programs.
var coveredDirs = []string{"/tmp", "/var/tmp", "/run", "/var/run"}

// devices are the names in /dev that programs may need.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// noSuidNoDev are the attributes of every mount except those of the devices.
const noSuidNoDev = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// A tree is a copy of mounts that is not attached yet.
type tree struct {
	fd  int    // -1 if the tree is not made yet; see copyTrees
	at  string // the path to attach the tree to
	as  string // the program's access, if the tree is of a place
	dir bool
}

// enter opens a path, to mount at it or to copy its mounts. It follows no links, as a program that can write in a
// granted directory could have created one.
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

// copyTree copies the mounts at and below name, to attach them at another path.
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

// base is where a file system in memory is mounted. It contains the program's temporary directory, the directories and
// files that cover others, and the changes to scratch directories. Later /proc is mounted over the base, so that the
// program reaches only the parts that are mounted at other paths.
const base = "/proc"

// makeBase mounts the base and makes its directories.
func (p *plan) makeBase() error {
	size := p.Limits.Temporary
	inodes := size/4096 + 1024 // for files of a page each, and those that take no page
	if err := mountNew("tmpfs", base, 0, fmt.Sprintf("mode=755,size=%d,nr_inodes=%d", size, inodes)); err != nil {
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

// makeMountPoint creates the mount point of the tree, if it is in a directory of the base.
func makeMountPoint(dirs []baseDir, t tree) error {
	i := slices.IndexFunc(dirs, func(dir baseDir) bool { return t.at != dir.at && isWithin(t.at, dir.at) })
	if i < 0 {
		return nil
	}
	name := filepath.Join(base, dirs[i].name, strings.TrimPrefix(t.at, dirs[i].at))
	if t.dir {
		return os.MkdirAll(name, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, nil, 0o600)
}

// A baseDir is a directory in the base that the program sees at the path at.
type baseDir struct {
	name, at string
	attr     uint64
}

func (d baseDir) attach() error {
	t, err := copyTree(filepath.Join(base, d.name), d.at, d.attr)
	if err != nil {
		return err
	}
	return t.attach()
}

func (p *plan) baseDirs() []baseDir {
	const readOnly = noSuidNoDev | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_RDONLY
	dirs := []baseDir{{"dev", "/dev", readOnly}, {"tmp", "/dev/shm", noSuidNoDev}}
	if p.ReadProfile {
		return dirs // /tmp and /run stay readable: in this profile no connection to a socket is possible
	}
	for _, dir := range []baseDir{{"tmp", "/tmp", noSuidNoDev}, {"tmp", "/var/tmp", noSuidNoDev}, {"run", "/run", readOnly}, {"run", "/var/run", readOnly}} {
		if info, err := os.Lstat(dir.at); err == nil && info.IsDir() { // not missing, and not a link such as /var/run
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func mountNew(kind, at string, flags uintptr, options string) error {
	if err := unix.Mount(kind, at, kind, flags|unix.MS_NOSUID, options); err != nil {
		return fmt.Errorf("mount %s: %w", at, err)
	}
	return nil
}

// mount makes the program's view of the file system: all of it is made read-only, and the trees of the places are
// mounted over it. They are copied first, because later mounts would change their originals.
func (p *plan) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	trees, err := p.copyTrees()
	if err != nil {
		return err
	}
	procs, err := p.procTrees()
	if err != nil {
		return err
	}
	err = unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: noSuidNoDev | unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		return fmt.Errorf("make / read-only: %w", err)
	}
	if err := p.makeBase(); err != nil {
		return err
	}
	if p.keeper, err = newKeeper(); err != nil {
		return err
	}
	trees = p.makeScratch(trees) // before their directories are covered
	dirs := p.baseDirs()
	granted := "" // the last writable directory, whose tree already contains the places below it
	for _, t := range trees {
		if t.as == asHide || granted != "" && isWithin(t.at, granted) {
			continue
		}
		if err := makeMountPoint(dirs, t); err != nil {
			return err
		}
		if t.as == asWrite {
			granted = t.at
		}
	}
	for _, dir := range dirs {
		if err := dir.attach(); err != nil {
			return err
		}
	}
	if !p.ReadProfile {
		if err := mountNew("devpts", "/dev/pts", unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=600"); err != nil {
			return err
		}
	}
	if err := p.attachAll(trees); err != nil {
		return err
	}
	return p.mountProc(procs)
}

// attachAll attaches the trees of copyTrees, and has the keeper watch those that remove access.
func (p *plan) attachAll(trees []tree) (err error) {
	for _, t := range trees {
		if t.as == asHide {
			if t.fd, err = p.keeper.hidingTree(t.at); err != nil {
				return err
			} else if t.fd < 0 {
				continue
			}
		}
		if t.as == asProtect || t.as == asHide {
			if err := p.keeper.keep(t); err != nil {
				return err
			}
		}
		if err := t.attach(); err != nil && !(mayBeMissing(t.as) && errors.Is(err, unix.ENOENT)) {
			return err
		}
	}
	return nil
}

// copyTrees returns trees of the places, in their order, and of the devices. Those with asHide or asScratch are made
// later, as they need the base.
func (p *plan) copyTrees() ([]tree, error) {
	var trees []tree
	for _, pl := range p.Places {
		t := tree{fd: -1, at: pl.Name}
		var err error
		switch pl.As {
		case asWrite, asPin:
			t, err = copyTree(pl.Name, pl.Name, noSuidNoDev)
		case asShow, asProtect:
			t, err = copyTree(pl.Name, pl.Name, noSuidNoDev|unix.MOUNT_ATTR_RDONLY)
		}
		if mayBeMissing(pl.As) && errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return nil, err
		}
		t.as = pl.As
		trees = append(trees, t)
	}
	for _, name := range devices {
		t, err := copyTree("/dev/"+name, "/dev/"+name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY)
		if errors.Is(err, unix.ENOENT) {
			continue // such as tty on a machine without a terminal
		} else if err != nil {
			return nil, err
		}
		trees = append(trees, t)
	}
	return trees, nil
}

// makeScratch makes the trees of the scratch directories. Those that the kernel cannot make are left out, so that their
// directories stay read-only.
func (p *plan) makeScratch(trees []tree) []tree {
	var made []tree
	for i, t := range trees {
		if t.as == asScratch {
			if p.NoScratch {
				continue
			}
			fd, err := overlay(t.at, filepath.Join(base, "scratch", strconv.Itoa(i)))
			if err != nil {
				p.NoScratch = true
				continue
			}
			t.fd, t.dir = fd, true
		}
		made = append(made, t)
	}
	return made
}

// overlay returns a mount with the contents of the directory name, which keeps changes in dir.
func overlay(name, dir string) (mount int, err error) {
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return -1, err
		}
	}
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	lower := strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace(name)
	for _, kv := range [][2]string{{"lowerdir", lower}, {"upperdir", upper}, {"workdir", work}} {
		if err := unix.FsconfigSetString(fs, kv[0], kv[1]); err != nil {
			return -1, err
		}
	}
	if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil { // which a user namespace requires
		return -1, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, noSuidNoDev)
}

// newProc returns a /proc with only the program's processes, and limits their number.
func (p *plan) newProc() (tree, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return tree{}, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return tree{}, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, noSuidNoDev|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return tree{}, err
	}
	// RLIMIT_NPROC does not apply to root. Not every kernel has pid_max for each namespace.
	if pids, err := unix.Openat(fd, "sys/kernel/pid_max", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, err = unix.Write(pids, fmt.Append(nil, max(p.Limits.Processes, minPids)))
		p.limitsProcesses = err == nil
		unix.Close(pids)
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	return tree{fd: fd, at: "/proc", dir: true}, err
}

// procTrees returns the trees for /proc. If parts of the existing /proc are covered, the kernel permits no new /proc;
// then the program sees only procFiles.
func (p *plan) procTrees() ([]tree, error) {
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
		if t, err := copyTree("/proc/"+name, "/proc/"+name, noSuidNoDev|unix.MOUNT_ATTR_RDONLY); err == nil {
			trees = append(trees, t)
		}
	}
	return trees, nil
}

// mountProc attaches the trees of procTrees. Without a new /proc it creates mount points for them first.
func (p *plan) mountProc(trees []tree) error {
	if p.NoProc {
		for _, t := range trees {
			if err := os.WriteFile(filepath.Join(base, t.at), nil, 0o600); err != nil {
				return err
			}
		}
		if err := (baseDir{"proc", "/proc", noSuidNoDev | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_RDONLY}).attach(); err != nil {
			return err
		}
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

// minPids is the smallest useful pid_max, for 20 processes: the kernel reserves the first 300 ids of a namespace.
const minPids = 321
