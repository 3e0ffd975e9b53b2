// Package sandbox runs a program that can access only what it was granted.
//
//	s := sandbox.Spec{Profile: permission.ProfileWork, Write: []string{"/work/project"}}
//	cmd := exec.Command("go", "test", "./...")
//	cmd.Dir = "/work/project"
//	cleanup, err := s.Command(cmd)
//	if err != nil {
//		return err // names the missing feature of the kernel, or the missing directory
//	}
//	out, err := cmd.CombinedOutput()
//	result, startErr := cleanup()
//
// Command changes cmd so that it starts this program again. In the new process an init function of this package
// confines the process, runs the program of cmd, and does not return. No helper program, daemon or root privilege
// is needed, and the calling process is never restricted.
//
// # Profiles
//
// [permission.ProfileRead] lets a program read. It can write only in its private temporary directory, and cannot
// change modes, owners, times or attributes of files. Unless it is granted the network, its only sockets are pairs
// and those for reading the machine's addresses.
//
// [permission.ProfileWork] also lets a program write below [Spec.Write]. Its private temporary directory is mounted at
// /tmp and hides the machine's. Its network has only loopback, or is that of the machine with [Spec.Network].
//
// [permission.ProfileOpen] confines nothing: Command does not change cmd.
//
// In read and work a program sees only its own processes and a few plain devices, and has no capabilities. When it
// ends, all processes that the program started are killed.
//
// # What is and what is not a boundary
//
// Access to files, processes, sockets, devices and system calls is confined. Not confined are processor time,
// reading files that [Spec.Hide] does not name, and the use of open descriptors and environment variables that the
// caller passes. A program that gets a terminal as its input or output is in the caller's session and process
// group, and may open that terminal by name; any other program leads a session without a terminal. The sandbox does
// not protect against bugs of the kernel. Known limits:
//
//   - A program can create a protected path that does not exist ([Result.Made]). It can read a secret that is
//     created while it runs, or has another name. If another program replaces a protected or hidden file, as
//     editors and git config do, the new file is accessible until it is covered ([Result.Replaced]): for less than
//     a millisecond on an idle machine, or 50 ms if the old file was moved away before.
//   - In work, a program can connect to a Unix socket only if a process of the same command created the socket. The
//     first process makes each connection, so the other end sees that process as its peer. If this is not possible,
//     see [Check], the only Unix sockets are pairs. Unix datagram sockets are refused, because sending needs no
//     connection that could be checked. With the machine's network, abstract sockets are refused, and so are
//     sockets outside the temporary directory on file systems such as btrfs, where a device does not identify a
//     subvolume. A socket file on which no process listens is treated like one of another program.
//   - Later programs may run files that a program has left in [Spec.Write], such as a test, a build file, or a
//     program in node_modules/.bin. In the sandbox they have only their own profile, but outside it they have all
//     rights of the user: protect files that are run there.
//   - The temporary directory and changes to [Spec.Scratch] are in memory. Limits apply to each process, except
//     Processes and Temporary, which apply to a command. No limit applies to several commands together.
//
// The layers are namespaces for users, mounts, processes and the network, Landlock, seccomp, and resource limits, all of
// Linux. [Check] reports which of them the kernel supports, and the effect of a missing one. Without namespaces or
// seccomp, and on other systems, Command fails with [ErrUnavailable] for every profile except open.
package sandbox

import (
	"cmp"
	"errors"
	"syscall"

	"github.com/kitbag-go/kitbag/permission"
)

// A Spec configures what a confined program may access. It may be used for several commands, even concurrently.
type Spec struct {
	// Profile is read, work or open. Anything else is an error.
	Profile permission.Profile

	// Write are absolute paths of existing directories in which the program may write. The profile read ignores them.
	Write []string

	// Network grants the network of the machine. In the profile read the program can only connect, not listen.
	Network bool

	// Protect are absolute paths in Write that are read-only. The program can create those that do not exist when
	// it starts; see [Result.Made].
	Protect []string

	// Scratch are directories, such as a compiler's cache, to which the profile work may write private changes,
	// which are dropped when the program ends. Missing directories are ignored. If the kernel does not support
	// private changes, the directories stay read-only.
	Scratch []string

	// Hide are absolute paths that cannot be read. Those that do not exist when the program starts are not hidden.
	Hide []string

	Limits Limits
}

// Limits bound the resources of a program. Zero fields have a default.
type Limits struct {
	Processes int   // processes and threads at the same time; default 4096
	Memory    int64 // bytes of data of one process; default the memory of the machine
	FileSize  int64 // bytes of one file; default 16 GiB
	Files     int   // open files of one process; default the caller's limit
	Temporary int64 // bytes of temporary files and of changes to Scratch; default half of the memory of the machine
}

// A Result reports facts about a program that has ended which [os/exec] does not know.
type Result struct {
	// Signal is the signal that killed the program, 0 if it exited. For [os/exec] its exit code is then 128 plus
	// the number of the signal, as in a shell.
	Signal syscall.Signal

	// Left is set if other processes were still running when the program ended; they were killed.
	Left bool

	// Made are the paths of [Spec.Protect] that did not exist before and exist now. The kernel cannot prevent a
	// program from creating them in a directory in which it may write.
	Made []string

	// Replaced are the paths of [Spec.Protect] and [Spec.Hide] where another program put a new file while the
	// confined program ran. For a moment, the confined program could write to that file, or read it.
	Replaced []string
}

// ErrUnavailable is wrapped by the error for a Spec that needs a feature that the system lacks. The wrapping error
// names the feature.
var ErrUnavailable = errors.New("this system cannot confine the program")

// complete fills in the defaults.
func (l Limits) complete() Limits {
	l.Processes = cmp.Or(l.Processes, 4096)
	l.FileSize = cmp.Or(l.FileSize, 16<<30)
	l.Memory = cmp.Or(l.Memory, machineMemory())
	l.Temporary = cmp.Or(l.Temporary, machineMemory()/2, 1<<30) // the last if the memory is unknown
	return l
}
