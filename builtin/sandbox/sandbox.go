// Package sandbox runs a program so that it can reach no more than it was given.
//
//	s := sandbox.Spec{Profile: permission.ProfileWork, Write: []string{"/work/project"}}
//	cmd := exec.Command("go", "test", "./...")
//	cmd.Dir = "/work/project"
//	cleanup, err := s.Command(cmd)
//	if err != nil {
//		return err // says what the kernel lacks, or which directory is missing
//	}
//	out, err := cmd.CombinedOutput()
//	result, started := cleanup()
//
// Command changes cmd so that it starts this program again, which confines itself, and
// only itself, before it runs what cmd named: an init function of this package notices that
// and does not return. There is no helper program, no daemon and no need to be root. The
// calling process is never restricted.
//
// # Profiles
//
// [permission.ProfileRead] lets a program read. It writes nothing but its private temporary
// directory, changes no mode, owner, time or attribute of a file, and has no socket but
// pairs, and one to read the machine's addresses, unless it was given the network.
//
// [permission.ProfileWork] lets it write below [Spec.Write], too, and in a temporary
// directory of its own that is mounted at /tmp; what was in /tmp is not there. It has a network
// with nothing but loopback, or that of the machine with [Spec.Network].
//
// [permission.ProfileOpen] confines nothing: Command leaves cmd as it is.
//
// In read and work a program sees no process but its own and no device but the plain ones,
// has no capability and gains none, and everything it started ends when it ends.
//
// # What is and what is not a boundary
//
// Confined are files, processes, sockets, devices and system calls. Not confined are
// processor time, what is read from files that [Spec.Hide] does not name, and what the
// caller hands over: an open descriptor, a variable of the environment. A program that gets a
// terminal as its input or output is of the caller's session and process group, and may open
// that terminal by its name; any other leads a session without one. A flaw of the kernel is
// not caught. These are known:
//
//   - A protected path that is not there can be made ([Result.Made]), and a secret that comes
//     to be while the program runs, or has another name, can be read. Where another program
//     puts a new file in the place of a protected or secret one, as editors and git config
//     do, the new one is neither until it is covered, too ([Result.Replaced]): for less
//     than a millisecond if the machine is idle, and 50 ms if the old one was moved away before.
//   - In work, a program connects to a Unix socket only if a process of the same command made
//     it. The first process makes each connection for it, so that the other end sees that one
//     as its peer. Where that cannot be, as Check says, there are no Unix sockets but pairs.
//     There are none for datagrams: sending to them asks for no connection, and nothing says
//     whose they are. With the machine's network there are none without a file, and none on a
//     file system such as btrfs, whose devices do not tell its trees apart, but in the
//     temporary directory. A socket file that nobody listens at any more is refused like that
//     of another program.
//   - What a program leaves in [Spec.Write] later ones may run, in their own profile: a test, a
//     build file, a program of the project such as those in node_modules/.bin. Who runs those
//     outside the sandbox runs what was left. Protect what others take for their own.
//   - The temporary directory, and what is written to [Spec.Scratch], are in memory. But for
//     those, and processes, Limits count for each process, and not for several commands together.
//
// The layers are Linux's: namespaces for users, mounts, processes and the network,
// Landlock, seccomp, and limits. [Check] says which of them the kernel has, and what it means
// that one is missing. Without namespaces or seccomp, and on other systems, Command fails
// with [ErrUnavailable] for every profile but open.
package sandbox

import (
	"cmp"
	"errors"
	"syscall"

	"github.com/kitbag-go/kitbag/permission"
)

// A Spec says what a confined program may reach. It may be used for several commands, at
// the same time, too.
type Spec struct {
	// Profile is read, work or open. Anything else is an error.
	Profile permission.Profile

	// Write are directories that the program may write in, absolute, which must exist. The
	// profile read ignores them.
	Write []string

	// Network gives the program the network of the machine: in the profile work all of it, in
	// read to connect to others only: the program cannot listen.
	Network bool

	// Protect are absolute paths in Write that stay as they are. What is not there when
	// the program starts can be made by it; [Result] says if it was.
	Protect []string

	// Scratch are directories, such as a compiler's cache, that the profile work sees as they
	// are, and may write in for itself: what it writes there is gone when it ends. What does
	// not exist is left out; where the kernel cannot do it they stay read-only.
	Scratch []string

	// Hide are absolute paths that cannot be read. What is not there when the program
	// starts is not hidden.
	Hide []string

	Limits Limits
}

// Limits bound what a program may use. A zero field is the default.
type Limits struct {
	Processes int   // processes and threads at the same time; 4096
	Memory    int64 // bytes of data of one process; the memory of the machine
	FileSize  int64 // bytes of one file; 16 GiB
	Files     int   // open files of one process; as for the caller
	Temporary int64 // bytes of temporary files, and of what is written to Scratch; half of the memory of the machine
}

// A Result is what only the sandbox knows of a program that has ended.
type Result struct {
	// Signal is what ended the program, 0 if it exited. For [os/exec] it exited with
	// 128 and the number of the signal, as a shell says it.
	Signal syscall.Signal

	// Left says that processes were left when the program ended, and were killed.
	Left bool

	// Made are the paths of [Spec.Protect] that were not there before and are now. No kernel
	// keeps a program from making them in a directory that it may write in.
	Made []string

	// Replaced are those of [Spec.Protect] and [Spec.Hide] in whose place another program put
	// a new file while this one ran, which could write to it, or read it, for a moment.
	Replaced []string
}

// ErrUnavailable is the error of a Spec that needs what the system lacks. The error that
// wraps it names the part.
var ErrUnavailable = errors.New("this system cannot confine the program")

// complete fills in the defaults.
func (l Limits) complete() Limits {
	l.Processes = cmp.Or(l.Processes, 4096)
	l.FileSize = cmp.Or(l.FileSize, 16<<30)
	l.Memory = cmp.Or(l.Memory, machineMemory())
	l.Temporary = cmp.Or(l.Temporary, machineMemory()/2, 1<<30)
	return l
}
