//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A program must not connect to a Unix socket of another program. No namespace separates the paths of their sockets, and
// a seccomp filter cannot read a path in memory. So the kernel notifies this process of each connect call
// (SECCOMP_RET_USER_NOTIF), and this process checks the address and connects the program's socket itself. If it let the
// call continue after the check, another thread of the program could change the address in between.

// A notification is struct seccomp_notif of the kernel.
type notification struct {
	ID    uint64
	Pid   uint32
	Flags uint32
	Nr    int32
	Arch  uint32
	IP    uint64
	Args  [6]uint64
}

// A response is struct seccomp_notif_resp of the kernel.
type response struct {
	ID    uint64
	Value int64
	Error int32
	Flags uint32
}

// A connector makes the connections of the program.
type connector struct {
	listener       int      // descriptor of the notifications; -1 if there are none
	machineNetwork bool     // the network namespace also has sockets of other programs
	privateDevices []uint32 // of file systems that only the program sees
}

// respond receives one notification, and responds to it in another goroutine.
func (c *connector) respond() {
	n := new(notification)
	if ioctlPtr(c.listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(n)) != 0 {
		return // the calling thread has ended
	}
	go func() {
		r := response{ID: n.ID, Error: -int32(c.connect(n))}
		ioctlPtr(c.listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
	}()
	runtime.Gosched() // before the caller blocks in poll, where the goroutine would wait for another thread
}

func ioctlPtr(fd int, cmd uintptr, arg unsafe.Pointer) syscall.Errno {
	_, _, errno := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, uintptr(arg))
	return errno
}

// connect does the work of the system call, unless the target is a Unix socket of another program. It returns the
// errno for the caller.
func (c *connector) connect(notif *notification) syscall.Errno {
	size := int32(notif.Args[2]) // the arguments are the descriptor, the address and its size
	if size < 0 || int(size) > unix.SizeofSockaddrAny {
		return unix.EINVAL
	}
	addr := make([]byte, size)
	if size > 0 {
		local := []unix.Iovec{{Base: &addr[0], Len: uint64(size)}}
		remote := []unix.RemoteIovec{{Base: uintptr(notif.Args[1]), Len: int(size)}}
		if n, err := unix.ProcessVMReadv(int(notif.Pid), local, remote, 0); err != nil || n != int(size) {
			return unix.EFAULT
		}
	}
	fd, err := copyDescriptor(int(notif.Pid), int(int32(notif.Args[0])))
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(fd)
	if ioctlPtr(c.listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&notif.ID)) != 0 {
		return unix.EINTR // the calling thread has ended; the address and descriptor may be of another one with its id
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return errnoOf(err)
	}
	switch domain {
	case unix.AF_UNIX:
		return c.connectUnix(fd, int(notif.Pid), addr)
	case unix.AF_INET, unix.AF_INET6:
		return connectRaw(fd, addr)
	}
	return unix.EPERM // such as AF_NETLINK, where this process has privileges that the program lacks
}

func connectRaw(fd int, addr []byte) syscall.Errno {
	_, _, errno := syscall.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(addr))), uintptr(len(addr)))
	return errno
}

// connectUnix connects fd to an address as the thread tid would resolve it.
func (c *connector) connectUnix(fd, tid int, addr []byte) syscall.Errno {
	const familySize = 2
	if len(addr) <= familySize || binary.NativeEndian.Uint16(addr) != unix.AF_UNIX || len(addr) > unix.SizeofSockaddrUnix {
		return unix.EINVAL
	}
	if addr[familySize] == 0 { // an abstract address, which belongs to the network namespace
		if c.machineNetwork {
			return unix.EACCES
		}
		return connectToProgram(fd, addr)
	}
	name, _, _ := bytes.Cut(addr[familySize:], []byte{0})
	at, err := lookUp(tid, string(name))
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return errnoOf(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return unix.ECONNREFUSED
	}
	if made, err := c.madeByProgram(at); err != nil || !made {
		return unix.EACCES
	}
	// The path of the descriptor leads to the file that was checked, even if the program has replaced it.
	file := fmt.Append([]byte{addr[0], addr[1]}, "/proc/self/fd/", at, "\x00")
	return connectToProgram(fd, file)
}

// connectToProgram connects, and disconnects again if the listening process is not one of the program's: other processes
// have no id in this namespace. This is a second check after madeByProgram. Before it ends, another thread of the program
// may already write to the socket.
func connectToProgram(fd int, addr []byte) syscall.Errno {
	errno := connectRaw(fd, addr)
	if errno != 0 {
		return errno
	}
	if peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil || peer.Pid == 0 {
		unix.Shutdown(fd, unix.SHUT_RDWR)
		return unix.EACCES
	}
	return 0
}

// lookUp resolves name as the thread tid would, and opens the file with O_PATH.
func lookUp(tid int, name string) (int, error) {
	proc := fmt.Sprintf("/proc/%d", tid)
	for _, self := range []string{"/proc/self/", "/proc/thread-self/"} { // links to the process that resolves them
		if rest, ok := strings.CutPrefix(name, self); ok {
			name = proc + "/" + rest
		}
	}
	dir, err := unix.Open(proc+"/cwd", unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC, 0)
}

// copyDescriptor returns a copy of the descriptor fd of the thread's process.
func copyDescriptor(tid, fd int) (int, error) {
	pid := tid // unless the file names another
	for line := range lines(fmt.Sprintf("/proc/%d/status", tid)) {
		if n, ok := strings.CutPrefix(line, "Tgid:"); ok {
			fmt.Sscan(n, &pid)
		}
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, fd, 0)
}

func errnoOf(err error) syscall.Errno {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return unix.EACCES
}

// madeByProgram reports whether the program created the socket file that is open as at. The kernel lists the sockets of
// the network namespace with their files. If other programs are in that namespace, a process of the program must also
// have the socket open.
func (c *connector) madeByProgram(at int) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(at, &fs); err != nil || fs.Flags&unix.ST_RDONLY != 0 {
		return false, err // the program cannot create files on a read-only mount
	}
	file, err := statMounted(at)
	if err != nil {
		return false, err
	}
	if slices.Contains(c.privateDevices, file.mountDevice) {
		return true, nil
	}
	var sockets []uint32 // inode numbers of the sockets that may be bound to the file
	err = eachUnixSocket(func(inode uint32, listed socketFile) {
		if listed == (socketFile{uint32(file.inode), file.mountDevice}) {
			sockets = append(sockets, inode)
		}
	})
	if err != nil || len(sockets) == 0 {
		return false, err
	}
	// A listed file has only the low half of the inode number, and the device of the mount: another file may have both.
	unique := file.inode>>32 == 0 && file.device == file.mountDevice
	if unique && !c.machineNetwork {
		return true, nil
	}
	for _, inode := range sockets {
		socket, err := copySocket(inode)
		if err != nil {
			return false, nil // no process of the program has the socket open
		}
		bound := unique || isBoundTo(socket, file)
		unix.Close(socket)
		if !bound {
			return false, nil
		}
	}
	return true, nil
}

// A mountedFile identifies a file. In some file systems, such as btrfs, the device of a file differs from that of its
// mount.
type mountedFile struct {
	inode               uint64
	device, mountDevice uint32 // see deviceNumber
}

// A socketFile is a file as the kernel lists it for a socket, struct unix_diag_vfs.
type socketFile struct{ inode, device uint32 }

// deviceNumber returns the number that the kernel uses in unix_diag_vfs.
func deviceNumber(major, minor uint32) uint32 { return major<<20 | minor }

func statMounted(fd int) (mountedFile, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_MNT_ID, &st); err != nil {
		return mountedFile{}, err
	}
	for line := range lines("/proc/self/mountinfo") {
		var id uint64
		var parent int
		var major, minor uint32
		if _, err := fmt.Sscanf(line, "%d %d %d:%d ", &id, &parent, &major, &minor); err == nil && id == st.Mnt_id {
			return mountedFile{st.Ino, deviceNumber(st.Dev_major, st.Dev_minor), deviceNumber(major, minor)}, nil
		}
	}
	return mountedFile{}, unix.ENOENT
}

// isBoundTo reports whether the socket is bound to the file. The kernel answers only a process with CAP_NET_ADMIN in the
// network namespace of the socket.
func isBoundTo(socket int, file mountedFile) bool {
	const siocUnixFile = 0x89e0 // SIOCUNIXFILE of linux/un.h
	at, err := unix.IoctlRetInt(socket, siocUnixFile)
	if err != nil {
		return false
	}
	defer unix.Close(at)
	bound, err := statMounted(at)
	return err == nil && bound == file
}

// copySocket returns a copy of a descriptor of the socket from one of the program's processes: /proc has no others.
func copySocket(inode uint32) (int, error) {
	procDirs, _ := filepath.Glob("/proc/[0-9]*") // fails only if the pattern is malformed
	for _, procDir := range procDirs {
		pid, err := strconv.Atoi(filepath.Base(procDir))
		if err != nil {
			continue
		}
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		fd, err := copySocketFrom(pidfd, procDir, inode)
		unix.Close(pidfd)
		if err == nil {
			return fd, nil
		}
	}
	return -1, unix.ENOENT
}

// maxUnlisted is how many descriptors are tried of a process that is not dumpable, since they cannot be listed.
const maxUnlisted = 256

func copySocketFrom(pidfd int, procDir string, inode uint32) (int, error) {
	want := fmt.Sprintf("socket:[%d]", inode)
	entries, listErr := os.ReadDir(procDir + "/fd")
	for _, e := range entries {
		if link, err := os.Readlink(procDir + "/fd/" + e.Name()); err == nil && link == want {
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				return -1, err
			}
			return unix.PidfdGetfd(pidfd, fd, 0)
		}
	}
	if listErr == nil {
		return -1, unix.ENOENT
	}
	for fd := range maxUnlisted {
		socket, err := unix.PidfdGetfd(pidfd, fd, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(socket, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && st.Ino == uint64(inode) {
			return socket, nil
		}
		unix.Close(socket)
	}
	return -1, unix.ENOENT
}

// Constants of the kernel's linux/unix_diag.h.
const (
	diagShowFile    = 2  // UDIAG_SHOW_VFS
	diagFile        = 1  // UNIX_DIAG_VFS
	diagMessageSize = 16 // of struct unix_diag_msg, in bytes
)

// eachUnixSocket calls f for each Unix socket of this network namespace that has a file.
func eachUnixSocket(f func(inode uint32, file socketFile)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	native := binary.NativeEndian
	req := native.AppendUint32(nil, 40) // bytes of the request: struct nlmsghdr, struct unix_diag_req
	req = native.AppendUint16(req, unix.SOCK_DIAG_BY_FAMILY)
	req = native.AppendUint16(req, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req = append(req, make([]byte, 8)...)        // sequence, port
	req = append(req, unix.AF_UNIX, 0, 0, 0)     // family, protocol
	req = native.AppendUint32(req, ^uint32(0))   // all states
	req = native.AppendUint32(req, 0)            // all inode numbers
	req = native.AppendUint32(req, diagShowFile) // the requested attributes
	req = append(req, make([]byte, 8)...)        // cookie
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		} else if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return nil
			case m.Header.Type == unix.NLMSG_ERROR:
				return unix.EACCES
			case len(m.Data) >= diagMessageSize:
				if file, ok := fileInAttrs(m.Data[diagMessageSize:]); ok {
					f(native.Uint32(m.Data[4:]), file) // after family, type, state and padding, a byte each
				}
			}
		}
	}
}

// fileInAttrs returns the file from the attributes of a socket. A socket without a path has none.
func fileInAttrs(attrs []byte) (file socketFile, ok bool) {
	native := binary.NativeEndian
	for len(attrs) >= unix.SizeofRtAttr {
		size := int(native.Uint16(attrs))
		if size < unix.SizeofRtAttr || size > len(attrs) {
			break
		}
		if native.Uint16(attrs[2:]) == diagFile && size >= unix.SizeofRtAttr+8 {
			return socketFile{native.Uint32(attrs[4:]), native.Uint32(attrs[8:])}, true
		}
		attrs = attrs[min(len(attrs), (size+3)&^3):] // attributes are aligned to 4 bytes
	}
	return socketFile{}, false
}
