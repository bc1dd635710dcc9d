package repair

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"salvor/agent/sandbox"
	"salvor/problem"
	"salvor/repair"
)

const (
	// maxKept bounds the content of a file that an undo by files puts back, in bytes.
	maxKept = 1 << 20
	// maxHashed bounds a file whose content is hashed, holes included, in bytes.
	maxHashed = 1 << 30
	// maxAttributes bounds all extended attributes of a file, in bytes.
	maxAttributes = 64 << 10
	permissions   = 0o7777
)

// errSpecialFile is why a socket, a pipe or a device is not described.
var errSpecialFile = errors.New("is neither a file nor a link nor a folder")

// filesRoot is the mounted root of a system that is repaired.
type filesRoot struct {
	*sandbox.Root
	// stopped returns an error once the work is to end; nil: never.
	stopped func() error
}

func openRoot(folder string) (*filesRoot, error) {
	root, err := sandbox.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	return &filesRoot{Root: root}, nil
}

// openFolder opens the folder that a place lies in, and returns the place's name there.
func (r *filesRoot) openFolder(place string) (*os.File, string, error) {
	folder, err := r.Open(path.Dir(place), unix.O_RDONLY|unix.O_DIRECTORY)
	return folder, path.Base(place), err
}

// state describes what lies at a place, with the content of a file of at most room and maxKept bytes. Without anything there it is nil.
func (r *filesRoot) state(place string, room int64) (*repair.FileState, []byte, error) {
	return r.describe(place, true, room)
}

// metadata is state without the content of a file, which is not read: it has no sum.
func (r *filesRoot) metadata(place string) (*repair.FileState, error) {
	s, _, err := r.describe(place, false, 0)
	return s, err
}

func (r *filesRoot) describe(place string, withSum bool, room int64) (*repair.FileState, []byte, error) {
	f, err := r.openItself(place)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return nil, nil, &os.PathError{Op: "stat", Path: place, Err: err}
	}
	s := &repair.FileState{Size: stat.Size, Mode: stat.Mode & permissions, UID: stat.Uid, GID: stat.Gid, ModTime: stat.Mtim.Nano()}
	var content []byte
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.Kind = "file"
		if withSum {
			if content, err = r.readContent(f, s, room); err != nil {
				return nil, nil, fmt.Errorf("read %s: %w", place, err)
			}
		}
	case unix.S_IFLNK:
		s.Kind = "link"
		b := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(int(f.Fd()), "", b)
		if err != nil {
			return nil, nil, &os.PathError{Op: "readlink", Path: place, Err: err}
		}
		s.Target = strings.ToValidUTF8(string(b[:n]), "?")
	case unix.S_IFDIR:
		s.Kind, s.Size = "folder", 0
	default:
		return nil, nil, problem.Unsupportedf("%s %w", place, errSpecialFile)
	}
	if s.Attributes, err = readAttributes(r, place, maxAttributes); err != nil {
		return nil, nil, fmt.Errorf("read the extended attributes of %s: %w", place, err)
	}
	return s, content, nil
}

// openItself opens what lies at a place without following a link there.
func (r *filesRoot) openItself(place string) (*os.File, error) {
	return r.Open(place, unix.O_PATH|unix.O_NOFOLLOW)
}

// readAttributes reads all extended attributes of what lies at a place, of at most room bytes; a file system without any has none.
func readAttributes(r *filesRoot, place string, room int) (map[string][]byte, error) {
	name, closer, err := r.linkPath(place)
	if err != nil {
		return nil, err
	}
	defer closer()
	names := make([]byte, maxAttributes)
	n, err := unix.Llistxattr(name, names)
	if errors.Is(err, unix.ENOTSUP) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, attribute := range bytes.Split(bytes.TrimSuffix(names[:n], []byte{0}), []byte{0}) {
		value := make([]byte, room)
		n, err := unix.Lgetxattr(name, string(attribute), value)
		// Without any room the kernel answers the size of the attribute.
		if errors.Is(err, unix.ERANGE) || err == nil && n > room {
			return nil, problem.Unsupportedf("they have more than %d bytes", maxAttributes)
		}
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", attribute, err)
		}
		out[string(attribute)] = bytes.Clone(value[:n])
		room -= n
	}
	return out, nil
}

// linkPath is a path by which the kernel finds what lies at a place, also a link itself: a name in an open folder.
func (r *filesRoot) linkPath(place string) (string, func(), error) {
	folder, name, err := r.openFolder(place)
	if err != nil {
		return "", nil, err
	}
	if place == "/" {
		name = "."
	}
	return sandbox.KernelPath(folder) + "/" + name, func() { _ = folder.Close() }, nil
}

// applyAttributes gives a new file the extended attributes of a state. Those that it has beyond are removed.
func applyAttributes(name string, wanted map[string][]byte, present map[string][]byte) error {
	for attribute := range present {
		if _, ok := wanted[attribute]; !ok {
			if err := unix.Lremovexattr(name, attribute); err != nil && !errors.Is(err, unix.ENODATA) {
				return fmt.Errorf("remove its extended attribute %s: %w", attribute, err)
			}
		}
	}
	for attribute, value := range wanted {
		if bytes.Equal(present[attribute], value) && present[attribute] != nil {
			continue
		}
		if err := unix.Lsetxattr(name, attribute, value, 0); err != nil {
			return fmt.Errorf("set its extended attribute %s: %w", attribute, err)
		}
	}
	return nil
}

// sameState says whether a file is as a state describes it, but for its time.
func sameState(a, b *repair.FileState) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Size == b.Size && a.SHA256 == b.SHA256 && a.Target == b.Target && a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID &&
		maps.EqualFunc(a.Attributes, b.Attributes, bytes.Equal)
}

// readContent hashes an open file and returns its content where that has at most room and maxKept bytes.
func (r *filesRoot) readContent(f *os.File, s *repair.FileState, room int64) ([]byte, error) {
	if s.Size > maxHashed {
		return nil, problem.Unsupportedf("it has %d bytes, and a repair compares files of at most %d", s.Size, int64(maxHashed))
	}
	opened, err := os.Open(sandbox.KernelPath(f))
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	sum := sha256.New()
	var content bytes.Buffer
	var out io.Writer = sum
	isKept := s.Size <= min(maxKept, room)
	if isKept {
		out = io.MultiWriter(sum, &content)
	}
	n, err := io.Copy(out, stoppableReader{io.LimitReader(opened, s.Size+1), r.stopped})
	if err != nil {
		return nil, err
	}
	if n > s.Size {
		return nil, problem.Conflictf("it grows while it is read")
	}
	s.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if !isKept {
		return nil, nil
	}
	return append([]byte{}, content.Bytes()...), nil
}

// stoppableReader ends between two reads.
type stoppableReader struct {
	io.Reader
	stopped func() error
}

func (r stoppableReader) Read(b []byte) (int, error) {
	if r.stopped != nil {
		if err := r.stopped(); err != nil {
			return 0, err
		}
	}
	return r.Reader.Read(b)
}
