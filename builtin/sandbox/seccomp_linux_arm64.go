package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// This architecture has no system calls of its own that matter.
var deniedAlwaysHere, deniedReadingHere []uint32
