//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The access rights of Landlock version 1 that the rules handle.
const (
	landRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	landNever = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK // handled, but granted nowhere
)

// Versions of Landlock that added the features used here.
const (
	abiRefer    = 2
	abiTruncate = 3
	abiTCP      = 4
	abiIoctl    = 5
	abiScope    = 6
)

// landlockVersion returns the version of the kernel's Landlock; 0 if it has none.
func landlockVersion() int {
	n, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// landlock restricts this thread, and the programs that it starts, to reading files and writing those of the plan. Mounts
// already do that, but a program can still open a read-only descriptor again for writing, and write to a named pipe.
// It fails without no_new_privs.
func (p *plan) landlock() error {
	version := landlockVersion()
	if version == 0 || p.NoLandlock {
		return nil // without Landlock the other layers still confine the program
	}
	write, ioctl := uint64(landWrite), uint64(0)
	if version >= abiRefer {
		write |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= abiTruncate {
		write |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= abiIoctl {
		ioctl = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: landRead | write | ioctl | landNever}
	if version >= abiTCP && p.ReadProfile && !p.Network {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= abiScope {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	size := unsafe.Sizeof(attr.Handled_access_fs) // older versions know only the first fields
	if version >= abiTCP {
		size += unsafe.Sizeof(attr.Handled_access_net)
	}
	if version >= abiScope {
		size += unsafe.Sizeof(attr.Scoped)
	}
	fd, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	defer unix.Close(int(fd))
	allow := func(name string, access uint64) error { return landlockAllow(int(fd), name, access) }
	if err := errors.Join(allow("/", landRead), allow("/dev", landRead|unix.LANDLOCK_ACCESS_FS_WRITE_FILE|ioctl)); err != nil {
		return err
	}
	for _, name := range p.writable() {
		if err := allow(name, landRead|write); err != nil {
			return err
		}
	}
	if _, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

// writable returns the directories that the program may write in.
func (p *plan) writable() []string {
	if p.ReadProfile {
		return []string{"/dev/shm"}
	}
	names := []string{"/tmp", "/var/tmp", "/dev/shm"}
	for _, pl := range p.Places {
		if pl.As == asWrite || pl.As == asScratch {
			names = append(names, pl.Name)
		}
	}
	return names
}

// landlockAllow adds a rule that grants access at and below name.
func landlockAllow(ruleset int, name string, access uint64) error {
	at, err := enter(name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil // there is no /var/tmp, or it is a link to another directory
	} else if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	defer unix.Close(at)
	if !isDir(at) { // the kernel refuses a rule for a file with rights for directories
		access &= unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(at)}
	if _, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %s: %w", name, errno)
	}
	return nil
}
