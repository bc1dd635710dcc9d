package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refusedCalls are system calls that answer EPERM to a program of a system, because a program may change only files of its own system.
var refusedCalls = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SYSLOG,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP, unix.SYS_FANOTIFY_INIT, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY,
}

// newNamespaces are the flags of clone(2) that make a namespace.
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// socketFamilies are the families of sockets that a program may make. Their sockets reach nobody beyond the program's own network namespace. Sockets of
// other families may: AF_VSOCK reaches the host of a virtual machine from each namespace.
var socketFamilies = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// Places in struct seccomp_data, of which the lower half of an argument comes first on the machines that salvor knows.
const (
	callNumber    = 0
	callMachine   = 4
	firstArgument = 16
	// foreignCalls is the bit in the numbers of the x32 calls.
	foreignCalls = 0x40000000
)

// callFilter is a program for the kernel that lets all calls of this machine through but the refused ones.
func callFilter() []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	unless := func(compare uint16, k uint32) unix.SockFilter { // skips the next one unless the comparison holds
		return unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, K: k, Jf: 1}
	}
	refused := answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	filter := []unix.SockFilter{
		load(callMachine),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: auditMachine, Jt: 1},
		answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(callNumber),
		unless(unix.BPF_JGE, foreignCalls), refused,
		// Its flags lie in memory, which a filter does not see. Programs fall back to clone.
		unless(unix.BPF_JEQ, unix.SYS_CLONE3), answer(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)),
	}
	for _, call := range refusedCalls {
		filter = append(filter, unless(unix.BPF_JEQ, call), refused)
	}
	for _, call := range machineCalls {
		filter = append(filter, unless(unix.BPF_JEQ, call), refused)
	}
	for _, call := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		block := []unix.SockFilter{load(firstArgument)}
		for _, family := range socketFamilies {
			block = append(block, unless(unix.BPF_JEQ, family), answer(unix.SECCOMP_RET_ALLOW))
		}
		block = append(block, answer(unix.SECCOMP_RET_ERRNO|uint32(unix.EAFNOSUPPORT)))
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: uint8(len(block))})
		filter = append(filter, block...)
	}
	return append(filter,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		load(firstArgument), unless(unix.BPF_JSET, newNamespaces), refused,
		answer(unix.SECCOMP_RET_ALLOW))
}

// refuseCalls puts the filter over this thread and what it starts.
func refuseCalls() error {
	filter := callFilter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); errno != 0 {
		return fmt.Errorf("set the filter of system calls: %w", errno)
	}
	return nil
}
