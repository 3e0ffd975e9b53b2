package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// This architecture has no additional system calls that matter.
var deniedAlwaysArch, deniedInReadArch []uint32
