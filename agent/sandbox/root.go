package sandbox

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is the mounted root of a system. Its places are absolute in the system and hold no links, as diagnose.Tree resolves them; the kernel
// refuses a place that has become a link, and no place leads out.
type Root struct{ *os.File }

// OpenRoot opens the folder where the root of a system is mounted.
func OpenRoot(folder string) (*Root, error) {
	f, err := os.OpenFile(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Root{File: f}, nil
}

// Open opens a place with the flags of open(2).
func (r *Root) Open(place string, flags int) (*os.File, error) {
	fd, err := unix.Openat2(int(r.Fd()), "./"+strings.TrimPrefix(place, "/"), &unix.OpenHow{
		Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: place, Err: err}
	}
	return os.NewFile(uintptr(fd), place), nil
}

// KernelPath is a path by which the kernel finds an open file, whatever its name has become.
func KernelPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }
