package sandbox

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/permission"
)

// Phrases that programs print after a refusal, by the part of the sandbox that probably caused it. Case is ignored.
var (
	saysReadOnly = []string{"read-only file system", "erofs"}
	saysNoNet    = []string{"network is unreachable", "temporary failure in name resolution", "could not resolve host", "name or service not known",
		"eai_again", "enotfound", "enetunreach", "no such host", "dial tcp", "failed to lookup address", "unable to connect to", "err_internet_disconnected"}
	saysEPERM     = []string{"operation not permitted", "eperm", "permissionerror: [errno 1]"}
	saysNoSocket  = []string{"docker daemon", "/var/run/docker.sock", "/run/", "x display", "ssh-agent", "d-bus", "dbus"}
	saysFull      = []string{"file too large", "efbig"}
	saysNoSpace   = []string{"no space left on device", "enospc"}
	saysNoProcess = []string{"resource temporarily unavailable", "cannot fork", "eagain", "failed to create new os thread"}
	saysMissing   = []string{"no such file or directory", "enoent", "directory nonexistent"}
	saysEACCES    = []string{"permission denied", "eacces"}
)

// Denied returns what the sandbox may have denied to a program that failed, according to the exit code and the
// output, and how to grant that, or "" if they suggest no denial. A program can write such output without a denial.
func Denied(spec Spec, exit int, output []byte) string {
	if exit == 0 || spec.Profile != permission.ProfileRead && spec.Profile != permission.ProfileWork {
		return ""
	}
	text := string(bytes.ToLower(output))
	says := func(phrases []string) bool {
		return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(text, p) })
	}
	hidden := slices.IndexFunc(spec.Hide, func(name string) bool { return strings.Contains(string(output), name) })
	switch {
	case says(saysReadOnly) && spec.Profile == permission.ProfileRead:
		return "the command ran in the sandbox's profile read, in which nothing can be written; to write, it must run in the profile work"
	case says(saysReadOnly):
		return fmt.Sprintf("in the sandbox a command can only write in %s and /tmp, except to protected files; to write to another directory, add it to the working directories, or have the command approved to run outside the sandbox", cmp.Or(strings.Join(spec.Write, ", "), "no directory"))
	case says(saysEACCES) && hidden >= 0:
		return fmt.Sprintf("the sandbox hides %s, which may contain credentials; to read it, have the settings reveal it, or the command approved to run outside the sandbox", spec.Hide[hidden])
	case says(saysNoNet) && !spec.Network && spec.Profile == permission.ProfileRead:
		return "the command ran in the sandbox's profile read, which has no network; to use it, have the network granted, or the command approved to run outside the sandbox"
	case says(saysNoNet) && !spec.Network:
		return "the sandbox has no network except loopback; to use it, have the network granted, or the command approved to run outside the sandbox"
	case says(saysNoSocket) && spec.Profile == permission.ProfileWork:
		return "the sandbox hides the sockets of other programs, such as Docker's; to use them, have the command approved to run outside the sandbox"
	case says(saysEPERM) && spec.Profile == permission.ProfileRead:
		return "the command ran in the sandbox's profile read, in which sockets and changes of modes, owners and times are refused; to use them, it must run in the profile work"
	case says(saysEPERM):
		return "the sandbox refuses operations that need privileges or access other processes, such as mounts, debuggers and changes of owner; to perform them, have the command approved to run outside of the sandbox"
	case says(saysFull), exit == 128+25: // SIGXFSZ of Linux, for which other systems have no constant
		return fmt.Sprintf("the sandbox limits a file to %d bytes", spec.Limits.complete().FileSize)
	case says(saysNoSpace):
		return fmt.Sprintf("the sandbox keeps temporary files and files written to caches in memory, up to %d bytes; write large files to a working directory", spec.Limits.complete().Temporary)
	case says(saysNoProcess):
		return fmt.Sprintf("the sandbox limits a command to %d processes and threads", spec.Limits.complete().Processes)
	case says(saysMissing) && strings.Contains(text, "/tmp/") && spec.Profile == permission.ProfileWork:
		return "in the sandbox each command has its own /tmp, which is empty at first; keep files in a working directory"
	}
	return ""
}
