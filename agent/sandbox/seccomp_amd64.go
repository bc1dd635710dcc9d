package sandbox

import "golang.org/x/sys/unix"

const auditMachine = unix.AUDIT_ARCH_X86_64

// machineCalls are refused calls that only this architecture has: raw input and output.
var machineCalls = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT}
