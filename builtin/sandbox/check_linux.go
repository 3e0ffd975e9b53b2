//go:build amd64 || arm64

package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/permission"
	"golang.org/x/sys/unix"
)

// Check reports which layers of the sandbox this machine supports. The first call starts this program again to
// try them; later calls return the same result.
func Check() Status { return checked() }

var checked = sync.OnceValue(check)

func check() Status {
	probed, err := probe()
	s := Status{Layers: []Layer{{Name: layerSystem, OK: true, Detail: runtime.GOOS + "/" + runtime.GOARCH}}}
	add := func(name string, ok bool, supported, missing Layer) {
		l := missing
		if ok {
			l = supported
		}
		l.Name, l.OK = name, ok
		s.Layers = append(s.Layers, l)
	}
	// addNested adds a layer that needs the namespaces.
	addNested := func(name string, ok bool, supported, missing Layer) {
		if err != nil {
			ok, missing = false, Layer{Detail: "not tried, as there are no namespaces", Means: "no command can be confined"}
		}
		add(name, ok, supported, missing)
	}
	var namespacesMissing string
	if err != nil {
		namespacesMissing = fmt.Sprintf("%v; %s", err, namespaceRemedy(err))
	}
	add(layerNamespaces, err == nil, Layer{
		Detail: "user, mount, process, IPC and network namespaces",
		Means:  "files are read-only except those that are granted; a command cannot access other processes, sockets and networks; no process outlives the command",
	}, Layer{Detail: namespacesMissing, Means: "no command can be confined"})
	addNested(layerProc, probed.Proc, Layer{Means: "a command only sees its own processes in /proc"}, Layer{
		Detail: "a part of /proc is covered, as in many containers, so the kernel does not allow a new one; give the container an uncovered /proc",
		Means:  "/proc contains only a few files: ps, and <(…) in a shell, fail in a command",
	})
	limited, detail := processLimit(probed)
	addNested(layerLimit, limited, Layer{Detail: detail, Means: "a command has no more processes than its limit"},
		Layer{Detail: detail, Means: "a command can start processes without end"})
	actions, seccompErr := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	add(layerSeccomp, seccompErr == nil && strings.Contains(string(actions), "errno"), Layer{
		Means: "system calls that access other processes or the kernel, or, in the profile read, sockets and metadata, are refused",
	}, Layer{
		Detail: "the kernel has no seccomp filters; use one built with CONFIG_SECCOMP_FILTER",
		Means:  "no command can be confined",
	})
	version := landlockVersion()
	add(layerLandlock, version > 0 && !disabledByTest.Landlock, Layer{
		Detail: fmt.Sprintf("version %d", version),
		Means:  "read-only files stay read-only through descriptors and named pipes too",
	}, Layer{
		Detail: "the kernel does not have it, or it is disabled; add landlock to the lsm= of the kernel's command line",
		Means:  "a command may write to named pipes of other programs, and open a descriptor that it was given in another way",
	})
	addNested(layerUnix, probed.Unix, Layer{Means: "a command can connect to its own Unix sockets, and to no others"}, Layer{
		Detail: "the kernel does not allow this process to handle a command's connections, as in a container whose manager handles them itself, or without its own /proc",
		Means:  "a command has no Unix sockets but pairs",
	})
	addNested(layerScratch, probed.Scratch, Layer{
		Means: "files that a compiler writes to its cache are kept separate, and removed when the command ends",
	}, Layer{
		Detail: "the kernel does not mount an overlay in a user namespace; use 5.11 or later",
		Means:  "caches are read-only: grant write access to them, or builds may fail or be slow",
	})
	return s
}

// processLimit reports whether and how the number of a command's processes is limited. RLIMIT_NPROC does not apply
// to root.
func processLimit(probed report) (limited bool, detail string) {
	switch id := os.Geteuid(); {
	case id != 0:
		return true, fmt.Sprintf("for user %d", id)
	case probed.Pids:
		return true, "for root, by the namespace"
	}
	return false, "for root only the namespace can limit them, which needs Linux 6.14 and a /proc of its own; use another user"
}

// namespaceRemedy returns the probable reason why this user cannot create namespaces, and the remedy.
func namespaceRemedy(err error) string {
	if errors.Is(err, unix.ENOSYS) {
		return "the kernel is too old; use 5.12 or later"
	}
	for _, sysctl := range []struct{ name, forbids string }{
		{"user.max_user_namespaces", "0"},
		{"kernel.unprivileged_userns_clone", "0"},
		{"kernel.apparmor_restrict_unprivileged_userns", "1"},
	} {
		value, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(sysctl.name, ".", "/"))
		if err == nil && strings.TrimSpace(string(value)) == sysctl.forbids {
			return fmt.Sprintf("sysctl %s is %s, which forbids user namespaces; change it", sysctl.name, sysctl.forbids)
		}
	}
	return "user namespaces may be forbidden, as in a container by its seccomp profile; allow clone and unshare there"
}

// probe starts the init process with all layers and no program, and returns which layers worked.
func probe() (report, error) {
	if disabledByTest.Namespaces {
		return report{}, errors.New("disabled by a test")
	}
	cmd := &exec.Cmd{Path: "/proc/self/exe", Dir: "/"}
	s := Spec{Profile: permission.ProfileWork, Scratch: []string{os.TempDir()}}
	p, err := s.plan(cmd)
	if err != nil {
		return report{}, err
	}
	p.Probe = true
	c, err := prepare(cmd, p)
	if err != nil {
		return report{}, err
	}
	runErr := cmd.Run()
	r, err := c.end()
	return r, cmp.Or(err, runErr)
}

// machineMemory returns the machine's memory in bytes; 0 if it is unknown.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// disabledByTest are layers that a test makes appear missing.
var disabledByTest struct{ Namespaces, Proc, Landlock, Scratch, Unix bool }
