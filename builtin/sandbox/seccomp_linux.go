//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls that every profile denies, because they access other processes, the kernel, or namespaces.
var deniedAlways = []uint32{
	// Other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_PERF_EVENT_OPEN,
	// Interfaces of the kernel that need no file, or that had many vulnerabilities.
	unix.SYS_BPF, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	// Mounts and namespaces.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_SETNS, unix.SYS_UNSHARE,
	unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	// The machine.
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_NFSSERVCTL,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_VHANGUP,
}

// System calls that only the profile read denies: changes of metadata, which mounts do not prevent if the program was
// passed a descriptor of the file, servers, and IPC.
var deniedInRead = []uint32{
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
	unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	// The profile read has no separate IPC namespace.
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

const (
	newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

	fsSetXattr = 0x401c5820                // FS_IOC_FSSETXATTR
	newestCall = unix.SYS_RSEQ_SLICE_YIELD // the newest call known to the lists above

	retAllow = unix.SECCOMP_RET_ALLOW
	retKill  = unix.SECCOMP_RET_KILL_PROCESS
	retEPERM = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retNoSys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// Offsets in struct seccomp_data, on little-endian architectures.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// loadArg loads the low half of an argument. The kernel ignores the high half of an int, so a filter that compared both
// halves could be bypassed by setting a bit in the high half.
func loadArg(n uint32) unix.SockFilter { return load(dataArgs + 8*n) }

// when continues with the next instruction if the condition holds, and otherwise skips the given number of
// instructions.
func when(cond uint16, value uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | cond | unix.BPF_K, K: value, Jf: skip}
}

func ret(value uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
}

// filter returns the BPF program that decides about system calls. Without network it refuses internet sockets. With
// noUnix it refuses all Unix sockets except pairs; otherwise it has the kernel notify the init process of each connect
// call. Calls by the 32-bit ABI kill the process, since the same numbers mean other calls there. Calls of the x32 ABI,
// and those above newestCall, fail with ENOSYS.
func filter(readProfile, network, noUnix bool) []unix.SockFilter {
	f := []unix.SockFilter{
		load(dataArch), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: auditArch, Jt: 1}, ret(retKill),
		load(dataNr), when(unix.BPF_JGT, newestCall, 1), ret(retNoSys),
	}
	denied := slices.Concat(deniedAlways, deniedAlwaysArch)
	if readProfile {
		denied = slices.Concat(denied, deniedInRead, deniedInReadArch)
	}
	f = append(f, deny(denied)...)
	// The flags of clone3 are in memory, which a filter cannot read: with ENOSYS programs fall back to clone.
	f = append(f, when(unix.BPF_JEQ, unix.SYS_CLONE3, 1), ret(retNoSys))
	f = append(f, forCall(unix.SYS_CLONE, loadArg(0), when(unix.BPF_JSET, newNamespaces, 1), ret(retEPERM))...)
	// TIOCSTI simulates input to the user's terminal; TIOCLINUX can paste the terminal's selection.
	ioctls := []unix.SockFilter{loadArg(1)}
	for _, cmd := range []uint32{unix.TIOCSTI, unix.TIOCLINUX} {
		ioctls = append(ioctls, when(unix.BPF_JEQ, cmd, 1), ret(retEPERM))
	}
	if readProfile {
		for _, cmd := range []uint32{unix.FS_IOC_SETFLAGS, fsSetXattr} {
			ioctls = append(ioctls, when(unix.BPF_JEQ, cmd, 1), ret(retEPERM))
		}
	}
	f = append(f, forCall(unix.SYS_IOCTL, ioctls...)...)
	// A datagram socket, even one of a pair, can send to any Unix socket without a connection.
	f = append(f, forCall(unix.SYS_SOCKETPAIR, allowConnected...)...)
	if !noUnix {
		f = append(f, forCall(unix.SYS_CONNECT, ret(unix.SECCOMP_RET_USER_NOTIF))...)
	}
	f = append(f, forCall(unix.SYS_SOCKET, socketFilter(network, noUnix)...)...)
	return append(f, ret(retAllow))
}

// groupFilter refuses priority changes of a process group, and with signals also signals to the sender's own group.
func groupFilter(signals bool) []unix.SockFilter {
	const ioprioGroup = 2 // IOPRIO_WHO_PGRP
	f := slices.Concat(
		[]unix.SockFilter{load(dataNr)},
		forCall(unix.SYS_SETPRIORITY, loadArg(0), when(unix.BPF_JEQ, unix.PRIO_PGRP, 1), ret(retEPERM)),
		forCall(unix.SYS_IOPRIO_SET, loadArg(0), when(unix.BPF_JEQ, ioprioGroup, 1), ret(retEPERM)),
	)
	if signals {
		f = append(f, forCall(unix.SYS_KILL, loadArg(0), when(unix.BPF_JEQ, 0, 1), ret(retEPERM))...)
	}
	return append(f, ret(retAllow))
}

// allowConnected allows the types of Unix socket that can only send over a connection. The low 4 bits are the type.
var allowConnected = []unix.SockFilter{
	loadArg(1), {Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf},
	when(unix.BPF_JEQ, unix.SOCK_STREAM, 1), ret(retAllow), when(unix.BPF_JEQ, unix.SOCK_SEQPACKET, 1), ret(retAllow), ret(retEPERM),
}

// deny refuses system calls by a binary search, because the kernel runs the filter for every call number when it loads
// the filter.
func deny(calls []uint32) []unix.SockFilter {
	var bounds []uint32 // the first numbers of ranges, alternately refused and allowed
	for _, nr := range slices.Sorted(slices.Values(calls)) {
		switch n := len(bounds); {
		case n > 0 && bounds[n-1] == nr:
			bounds[n-1]++
		case n == 0 || bounds[n-1] < nr:
			bounds = append(bounds, nr, nr+1)
		}
	}
	f := search(bounds, false)
	for i := range f {
		if f[i].Code == jump { // to the end of f
			f[i].K = uint32(len(f) - i - 1)
		}
	}
	return f
}

const jump = unix.BPF_JMP | unix.BPF_JA

// search finds the range of the call number. refused says whether the range below the first bound is refused; it changes
// at each bound.
func search(bounds []uint32, refused bool) []unix.SockFilter {
	if len(bounds) == 0 {
		if refused {
			return []unix.SockFilter{ret(retEPERM)}
		}
		return []unix.SockFilter{{Code: jump}} // continue after the search
	}
	mid := len(bounds) / 2
	high := search(bounds[mid+1:], refused != (mid%2 == 0))
	low := search(bounds[:mid], refused)
	return slices.Concat([]unix.SockFilter{when(unix.BPF_JGE, bounds[mid], uint8(len(high)))}, high, low)
}

// socketFilter decides which sockets can be created. Netlink sockets for the machine's addresses always can, as without
// privileges they only read addresses. Other families, such as AF_VSOCK, are refused: namespaces do not confine them.
func socketFilter(network, noUnix bool) []unix.SockFilter {
	f := []unix.SockFilter{loadArg(0)}
	if !noUnix {
		f = append(f, when(unix.BPF_JEQ, unix.AF_UNIX, uint8(len(allowConnected))))
		f = append(f, allowConnected...)
	}
	if network {
		f = append(f, when(unix.BPF_JEQ, unix.AF_INET, 1), ret(retAllow), when(unix.BPF_JEQ, unix.AF_INET6, 1), ret(retAllow))
	}
	return append(f, when(unix.BPF_JEQ, unix.AF_NETLINK, 3), loadArg(2), when(unix.BPF_JEQ, unix.NETLINK_ROUTE, 1), ret(retAllow), ret(retEPERM))
}

// forCall applies body to the system call nr. If body does not decide, the next instruction finds the number loaded.
func forCall(nr uint32, body ...unix.SockFilter) []unix.SockFilter {
	return slices.Concat([]unix.SockFilter{when(unix.BPF_JEQ, nr, uint8(len(body)+1))}, body, []unix.SockFilter{load(dataNr)})
}

// seccomp restricts the system calls of this thread and of the programs that it starts. It returns the descriptor
// of the notifications about connect calls, or -1.
func (p *plan) seccomp() (listener int, err error) {
	if p.inCallersGroup { // with abiScope, Landlock refuses signals to processes outside the sandbox
		if _, errno := install(groupFilter(p.NoLandlock || landlockVersion() < abiScope), 0); errno != 0 {
			return -1, fmt.Errorf("seccomp: %w", errno)
		}
	}
	network := p.Network || !p.ReadProfile // in the profile work a namespace denies the network
	if !p.NoUnix {
		fd, errno := install(filter(p.ReadProfile, network, false), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
		if errno == 0 {
			return fd, nil
		}
		p.NoUnix = true // an outer filter already has a listener, as in some containers
	}
	if _, errno := install(filter(p.ReadProfile, network, true), 0); errno != 0 {
		return -1, fmt.Errorf("seccomp: %w", errno)
	}
	return -1, nil
}

func install(f []unix.SockFilter, flags uintptr) (listener int, errno syscall.Errno) {
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	fd, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	return int(fd), errno
}
