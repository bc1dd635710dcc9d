package serve

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// HardenProcess keeps the memory of a process that holds secrets to itself: it and what it starts dump no core, and no other
// process of its user may trace it or read its memory and environment.
func HardenProcess() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	return nil
}

// setUmask has every file that this process makes be its user's alone, unless the code asks for less than that.
func setUmask() { unix.Umask(0o077) }
