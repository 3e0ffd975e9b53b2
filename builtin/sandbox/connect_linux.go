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

// A Unix socket is reached by a path, and no namespace separates paths from those of other programs. A seccomp
// filter cannot read a path in memory. So the kernel notifies this process of each connect call
// (SECCOMP_RET_USER_NOTIF), and this process connects the program's socket itself. It does not let the call
// continue after a check, because another thread could change the address in between.

// A notification is struct seccomp_notif, a response struct seccomp_notif_resp.
type notification struct {
	ID    uint64
	Pid   uint32
	Flags uint32
	Nr    int32
	Arch  uint32
	IP    uint64
	Args  [6]uint64
}

type response struct {
	ID    uint64
	Value int64
	Error int32
	Flags uint32
}

// A connector makes the connections of the program.
type connector struct {
	listener int      // descriptor of the notifications; -1 if there are none
	shared   bool     // the network is that of the machine, which has sockets of other programs
	private  []uint32 // devices of file systems that only the program sees
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
	runtime.Gosched()
}

func ioctlPtr(fd int, cmd uintptr, arg unsafe.Pointer) syscall.Errno {
	_, _, errno := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, uintptr(arg))
	return errno
}

// connect does the work of the system call, unless the target is a Unix socket of another program.
func (c *connector) connect(notif *notification) syscall.Errno {
	size := int32(notif.Args[2])
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
	fd, err := descriptor(int(notif.Pid), int(int32(notif.Args[0])))
	if err != nil {
		return errnoOf(err)
	}
	defer unix.Close(fd)
	if ioctlPtr(c.listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&notif.ID)) != 0 {
		return unix.EINTR // the calling thread has ended, and its id may be another's
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
	return unix.EPERM // this process has privileges there that the program lacks
}

func connectRaw(fd int, addr []byte) syscall.Errno {
	var none byte
	at := &none
	if len(addr) > 0 {
		at = &addr[0]
	}
	_, _, errno := syscall.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(at)), uintptr(len(addr)))
	return errno
}

// connectUnix connects fd to an address as the thread tid would resolve it.
func (c *connector) connectUnix(fd, tid int, addr []byte) syscall.Errno {
	const head = 2 // the family
	if len(addr) <= head || binary.NativeEndian.Uint16(addr) != unix.AF_UNIX || len(addr) > unix.SizeofSockaddrUnix {
		return unix.EINVAL
	}
	if addr[head] == 0 { // an abstract address, which belongs to the network namespace
		if c.shared {
			return unix.EACCES
		}
		return connectToProgram(fd, addr)
	}
	name, _, _ := bytes.Cut(addr[head:], []byte{0})
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
	if own, err := c.madeByProgram(at); err != nil || !own {
		return unix.EACCES
	}
	file := fmt.Append([]byte{addr[0], addr[1]}, "/proc/self/fd/", at, "\x00")
	return connectToProgram(fd, file)
}

// connectToProgram connects, and disconnects again if the listening process is not one of the program's: other processes
// have no id in this namespace. It is a second check after madeByProgram; until it, another thread of the program may write.
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

// lookUp resolves name as the thread would, and opens the result with O_PATH.
func lookUp(tid int, name string) (int, error) {
	proc := fmt.Sprintf("/proc/%d", tid)
	for _, self := range []string{"/proc/self/", "/proc/thread-self/"} {
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

// descriptor returns a copy of a descriptor of the thread's process.
func descriptor(tid, fd int) (int, error) {
	pid := tid
	for line := range lines(fmt.Sprintf("/proc/%d/status", tid)) {
		if n, ok := strings.CutPrefix(line, "Tgid:"); ok {
			fmt.Sscan(n, &pid)
		}
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(process)
	return unix.PidfdGetfd(process, fd, 0)
}

func errnoOf(err error) syscall.Errno {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return unix.EACCES
}

// madeByProgram reports whether the program created the socket file at. The kernel lists the sockets of a network namespace
// with their files. If that namespace is shared, a process of the program must also have the socket open.
func (c *connector) madeByProgram(at int) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(at, &fs); err != nil || fs.Flags&unix.ST_RDONLY != 0 {
		return false, err // the program could not have created it
	}
	file, err := statMounted(at)
	if err != nil {
		return false, err
	}
	if slices.Contains(c.private, file.mount) {
		return true, nil // only the program sees its own file systems
	}
	var found []uint32
	err = eachUnixSocket(func(inode uint32, sf socketFile) {
		if sf == (socketFile{uint32(file.inode), file.mount}) {
			found = append(found, inode)
		}
	})
	if err != nil || len(found) == 0 {
		return false, err
	}
	// The list has only half of the inode number, and the device of the mount. If that is not unique, it may mean
	// another file.
	exact := file.inode>>32 == 0 && file.device == file.mount
	if exact && !c.shared {
		return true, nil
	}
	for _, inode := range found {
		socket, err := copySocket(inode)
		if err != nil {
			return false, nil
		}
		same := exact || isBoundTo(socket, file)
		unix.Close(socket)
		if !same {
			return false, nil
		}
	}
	return true, nil
}

// A mountedFile identifies a file. In some file systems the device of a file differs from that of its mount.
type mountedFile struct {
	inode         uint64
	device, mount uint32
}

// A socketFile is a file as the kernel lists it for a socket, struct unix_diag_vfs.
type socketFile struct{ inode, device uint32 }

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
			return mountedFile{st.Ino, st.Dev_major<<20 | st.Dev_minor, major<<20 | minor}, nil
		}
	}
	return mountedFile{}, unix.ENOENT
}

// isBoundTo reports whether the file is that of the socket. The kernel reports a socket's file only to a process with
// CAP_NET_ADMIN in its network namespace.
func isBoundTo(socket int, file mountedFile) bool {
	const fileOfSocket = 0x89e0 // SIOCUNIXFILE
	at, err := unix.IoctlRetInt(socket, fileOfSocket)
	if err != nil {
		return false
	}
	defer unix.Close(at)
	got, err := statMounted(at)
	return err == nil && got == file
}

// copySocket returns a copy of a descriptor of the socket from one of the program's processes, which are all processes
// in this namespace.
func copySocket(inode uint32) (int, error) {
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		process, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		fd, err := copySocketFrom(process, name, inode)
		unix.Close(process)
		if err == nil {
			return fd, nil
		}
	}
	return -1, unix.ENOENT
}

// maxUnlisted is how many descriptors are tried of a process whose descriptors cannot be listed because it is not
// dumpable.
const maxUnlisted = 256

func copySocketFrom(process int, name string, inode uint32) (int, error) {
	want := fmt.Sprintf("socket:[%d]", inode)
	entries, listErr := os.ReadDir(name + "/fd")
	for _, e := range entries {
		if link, err := os.Readlink(name + "/fd/" + e.Name()); err == nil && link == want {
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				return -1, err
			}
			return unix.PidfdGetfd(process, fd, 0)
		}
	}
	for fd := 0; listErr != nil && fd < maxUnlisted; fd++ {
		got, err := unix.PidfdGetfd(process, fd, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(got, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && st.Ino == uint64(inode) {
			return got, nil
		}
		unix.Close(got)
	}
	return -1, unix.ENOENT
}

// Constants of the kernel's linux/unix_diag.h.
const (
	diagShowFile    = 2 // UDIAG_SHOW_VFS
	diagFile        = 1 // UNIX_DIAG_VFS
	diagMessageSize = 16
)

// eachUnixSocket calls f for each Unix socket of this network namespace that has a file.
func eachUnixSocket(f func(inode uint32, file socketFile)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	native := binary.NativeEndian
	req := native.AppendUint32(nil, 40) // bytes of the request
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
					f(native.Uint32(m.Data[4:]), file)
				}
			}
		}
	}
}

// fileInAttrs returns the file from the attributes of a socket.
func fileInAttrs(attrs []byte) (socketFile, bool) {
	native := binary.NativeEndian
	for len(attrs) >= unix.SizeofRtAttr {
		size := int(native.Uint16(attrs))
		if size < unix.SizeofRtAttr || size > len(attrs) {
			break
		}
		if native.Uint16(attrs[2:]) == diagFile && size >= unix.SizeofRtAttr+8 {
			return socketFile{native.Uint32(attrs[4:]), native.Uint32(attrs[8:])}, true
		}
		attrs = attrs[min(len(attrs), (size+3)&^3):]
	}
	return socketFile{}, false
}
