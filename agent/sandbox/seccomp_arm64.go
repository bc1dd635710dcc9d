package sandbox

import "golang.org/x/sys/unix"

const auditMachine = unix.AUDIT_ARCH_AARCH64

// machineCalls are refused calls that only this architecture has: none.
var machineCalls []uint32
