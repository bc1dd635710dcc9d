package examine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/problem"
)

const (
	// maxOpenFiles bounds the open files of all processes that are looked at for one disk.
	maxOpenFiles = 1 << 17
	maxFileInfo  = 16 << 10
)

// refuseWriters is problem.Conflict where a program has one of the block devices open for writing: its writes would fail once the device is
// read-only. A mounted file system and an array hold a device otherwise, see protectDisk.
func refuseWriters(nodes []string) error {
	devices := map[[2]uint32]bool{}
	for _, node := range nodes {
		var stat unix.Stat_t
		if err := unix.Stat(node, &stat); err != nil {
			return fmt.Errorf("look for programs that write to it: %w", err)
		}
		devices[[2]uint32{unix.Major(uint64(stat.Rdev)), unix.Minor(uint64(stat.Rdev))}] = true
	}
	program, err := findWriter("/proc", maxOpenFiles, func(s *unix.Statx_t) bool {
		return s.Mode&unix.S_IFMT == unix.S_IFBLK && devices[[2]uint32{s.Rdev_major, s.Rdev_minor}]
	})
	if err == nil && program != "" {
		err = problem.Conflictf("%s has it open for writing: let it end, then examine again", program)
	}
	return err
}

// findWriter names a process that has a file open for writing, by its name and its number; "": there is none. problem.Unavailable: there are
// more than so many open files. Processes that end meanwhile are passed over.
func findWriter(proc string, most int, isWanted func(*unix.Statx_t) bool) (program string, err error) {
	processes, err := os.ReadDir(proc)
	if err != nil {
		return "", err
	}
	for _, process := range processes {
		if _, err := strconv.ParseUint(process.Name(), 10, 32); err != nil {
			continue
		}
		folder := filepath.Join(proc, process.Name())
		files, err := readNames(filepath.Join(folder, "fd"), most+1)
		if err != nil && !isGone(err) {
			return "", err
		}
		if most -= len(files); most < 0 {
			return "", problem.Unavailablef("the programs of this ramdisk have too many files open to tell whether one of them writes to it")
		}
		for _, file := range files {
			var stat unix.Statx_t
			// A file of a server that does not answer is not asked for.
			if unix.Statx(unix.AT_FDCWD, filepath.Join(folder, "fd", file), unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &stat) != nil || !isWanted(&stat) {
				continue
			}
			if writes, err := isOpenForWriting(filepath.Join(folder, "fdinfo", file)); err != nil || !writes {
				if err != nil && !isGone(err) {
					return "", err
				}
				continue
			}
			name, _ := os.ReadFile(filepath.Join(folder, "comm"))
			return fmt.Sprintf("the program %.16q (process %s)", strings.TrimSpace(string(name)), process.Name()), nil
		}
	}
	return "", nil
}

// readNames lists at most so many names of a folder.
func readNames(folder string, most int) ([]string, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// isGone tells by an error below /proc whether the process, or its file, is no more.
func isGone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// isOpenForWriting reads the flags of open(2) in a file of fdinfo, in octal.
func isOpenForWriting(fdinfo string) (bool, error) {
	f, err := os.Open(fdinfo)
	if err != nil {
		return false, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, maxFileInfo)); lines.Scan(); {
		text, found := strings.CutPrefix(lines.Text(), "flags:")
		if !found {
			continue
		}
		flags, err := strconv.ParseUint(strings.TrimSpace(text), 8, 64)
		if err != nil {
			return false, fmt.Errorf("%s: flags: %w", fdinfo, err)
		}
		return flags&unix.O_ACCMODE != unix.O_RDONLY, nil
	}
	return false, fmt.Errorf("%s: %w", fdinfo, os.ErrNotExist)
}
