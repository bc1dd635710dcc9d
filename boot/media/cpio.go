package media

import (
	"io"
	"io/fs"
	"sort"
	"strings"
	"time"

	"github.com/cavaliergopher/cpio"

	"salvor/problem"
)

// Entry is one file of an archive. Mode carries type and permissions; regular
// files, directories and symbolic links are known (devices come from devtmpfs). All
// entries belong to root and have a fixed time, so that the same tree gives the same
// bytes.
type Entry struct {
	// Path is slash separated without a leading slash, as "etc/passwd".
	Path string
	Mode fs.FileMode
	// Data is the content of a regular file; nil means empty.
	Data Blob
	// Link is the target of a symbolic link.
	Link string
}

// WriteCPIO writes entries as an uncompressed newc archive, the format of an
// initramfs, in the order of their paths. Missing parent directories are an error
// (problem.Invalid): the kernel would drop the file without a word.
func WriteCPIO(w io.Writer, entries []Entry) error {
	sorted := append([]Entry(nil), entries...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Path < sorted[j].Path })
	cw := cpio.NewWriter(w)
	dirs := map[string]bool{"": true}
	for i, e := range sorted {
		if !fs.ValidPath(e.Path) || e.Path == "." {
			return problem.Invalidf("archive: path %q is not valid", e.Path)
		}
		if i > 0 && sorted[i-1].Path == e.Path {
			return problem.Invalidf("archive: %s is there twice", e.Path)
		}
		if parent := e.Path[:max(0, strings.LastIndexByte(e.Path, '/'))]; !dirs[parent] {
			return problem.Invalidf("archive: %s has no directory %s", e.Path, parent)
		}
		if e.Mode.IsDir() {
			dirs[e.Path] = true
		}
		if err := writeEntry(cw, e, int64(i+1)); err != nil {
			return err
		}
	}
	return cw.Close()
}

func writeEntry(cw *cpio.Writer, e Entry, inode int64) error {
	h := &cpio.Header{Name: e.Path, Inode: inode, ModTime: time.Unix(0, 0), Links: 1, Mode: cpio.FileMode(e.Mode.Perm())}
	var data io.Reader
	switch e.Mode.Type() {
	case 0:
		h.Mode |= cpio.TypeReg
		if e.Data != nil {
			h.Size = e.Data.Size()
			data = io.NewSectionReader(e.Data, 0, e.Data.Size())
		}
	case fs.ModeDir:
		h.Mode |= cpio.TypeDir
		h.Links = 2
	case fs.ModeSymlink:
		h.Mode |= cpio.TypeSymlink
		h.Size = int64(len(e.Link))
		data = strings.NewReader(e.Link)
	default:
		return problem.Invalidf("archive: %s: type %v is not supported", e.Path, e.Mode.Type())
	}
	if err := cw.WriteHeader(h); err != nil {
		return err
	}
	if data != nil {
		if _, err := io.Copy(cw, data); err != nil {
			return err
		}
	}
	return nil
}
