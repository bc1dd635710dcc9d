package config

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Bounds of an initramfs that is walked.
const (
	maxInitramfs      = 1 << 30 // bytes of the image and of all that its compressed parts hold
	MaxInitramfsParts = 64      // compressed parts
	maxInitramfsNames = 100_000
	MaxInitramfsBytes = 16 << 20 // of all names
	MaxInitramfsName  = 1024     // bytes of a name that is examined
	maxPathName       = 4096     // bytes of a name that the kernel unpacks
)

// InitramfsContent is what a walk through an initramfs found.
type InitramfsContent struct {
	// Names are the paths in its archives, without a leading slash or dot.
	Names map[string]bool
	// Modules are the names of kernel modules in it, with _ for -, and without their ends.
	Modules map[string]bool
	// OpensNothing: its list of encrypted containers to open (cryptroot/crypttab, of Debian's cryptsetup-initramfs) is empty.
	OpensNothing bool
	// Compression of its last part.
	Compression string
	// Damage says what is wrong; empty for a whole one.
	Damage string
	// NotExamined says why its content is not known; empty where it is.
	NotExamined string

	left      int64 // bytes that may still be read
	parts     int   // compressed parts so far
	nameBytes int
}

// errTooManyNames ends the walk of an initramfs that is not examined whole.
var errTooManyNames = errors.New("it holds more than is examined")

// countingReader subtracts what was read from what may be read of the image, which all readers of the image share.
type countingReader struct {
	r    io.Reader
	left *int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	if *c.left <= 0 {
		return 0, errTooManyNames
	}
	n, err := c.r.Read(p)
	*c.left -= int64(n)
	return n, err
}

// WalkInitramfs reads an initramfs as the kernel does: archives of cpio one behind the other, with zeros between them, the last ones compressed.
// See Documentation/driver-api/early-userspace/buffer-format.rst of Linux.
func WalkInitramfs(f *ReadAtFile) *InitramfsContent { return WalkInitramfsUpTo(f, maxInitramfs) }

// WalkInitramfsUpTo reads so many bytes at most.
func WalkInitramfsUpTo(f *ReadAtFile, limit int64) *InitramfsContent {
	c := &InitramfsContent{Names: map[string]bool{}, Modules: map[string]bool{}, left: limit}
	if f.Size == 0 {
		c.Damage = "it is empty"
		return c
	}
	c.walk(io.NewSectionReader(f, 0, f.Size), f, 0)
	return c
}

// Add joins the content of another one, which the kernel unpacks over it.
func (c *InitramfsContent) Add(other *InitramfsContent) {
	for name := range other.Names {
		c.Names[name] = true
	}
	for name := range other.Modules {
		c.Modules[name] = true
	}
	if other.Names["cryptroot/crypttab"] {
		c.OpensNothing = other.OpensNothing
	}
	if c.NotExamined == "" {
		c.NotExamined = other.NotExamined
	}
}

// walk reads archives until the end. depth counts compressions inside of each other.
func (c *InitramfsContent) walk(r io.Reader, f *ReadAtFile, depth int) {
	in := bufio.NewReaderSize(&countingReader{r: r, left: &c.left}, 64<<10)
	for first := true; ; first = false {
		if !skipZeros(in) {
			if c.left <= 0 {
				c.fail(errTooManyNames)
			} else if first && depth == 0 {
				c.Damage = "it holds zeros only"
			}
			return
		}
		magic, _ := in.Peek(6)
		if string(magic) == "070701" || string(magic) == "070702" {
			if err := c.readArchive(in); err != nil {
				c.fail(err)
				return
			}
			continue
		}
		if depth > 0 {
			if kind := compressionOf(magic); kind != "" {
				c.Damage = "it is compressed twice, by " + kind + " inside of " + c.Compression + ", and the kernel unpacks such a part once"
			} else {
				c.NotExamined = "it holds something that is no archive"
			}
			return
		}
		if !c.decompress(in, magic, f, first) {
			return
		}
	}
}

// fail sorts an error: what is beyond the bounds is no damage.
func (c *InitramfsContent) fail(err error) {
	switch {
	case errors.Is(err, errTooManyNames), errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrUnknownDictionary):
		c.NotExamined = err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		c.Damage = "it ends before its archive does"
	default:
		c.Damage = err.Error()
	}
}

// decompress walks through a compressed part; false where nothing follows it that can be read.
func (c *InitramfsContent) decompress(in *bufio.Reader, magic []byte, f *ReadAtFile, first bool) bool {
	if c.parts++; c.parts > MaxInitramfsParts {
		c.fail(errTooManyNames)
		return false
	}
	c.Compression = compressionOf(magic)
	switch c.Compression {
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			c.fail(err)
			return false
		}
		z.Multistream(false)
		return c.walkAll(z, f)
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderLowmem(true))
		if err != nil {
			c.fail(err)
			return false
		}
		defer z.Close()
		c.walkAll(z, f)
		return false
	case "lz4":
		c.walkAll(lz4.NewReader(in), f)
		return false
	case "bzip2":
		c.walkAll(bzip2.NewReader(in), f)
		return false
	case "xz":
		c.NotExamined = "it is compressed with xz"
		tail := make([]byte, 4096)
		if n, _ := f.ReadAt(tail, max(f.Size-int64(len(tail)), 0)); n > 0 && !bytes.HasSuffix(bytes.TrimRight(tail[:n], "\x00"), []byte("YZ")) {
			c.Damage = "it ends before its compressed data does"
		}
		return false
	case "lzma", "lzo":
		c.NotExamined = "its compression is not known here"
		return false
	}
	if first {
		c.Damage = "it begins with " + hex.EncodeToString(magic) + ", which is neither an archive nor compressed"
	} else {
		c.NotExamined = "it goes on with something that is no archive"
	}
	return false
}

// compressions are the kinds that the kernel unpacks, by their first bytes.
var compressions = []struct{ kind, magic string }{
	{"gzip", "\x1f\x8b"}, {"zstd", "\x28\xb5\x2f\xfd"}, {"lz4", "\x02\x21\x4c\x18"}, {"lz4", "\x04\x22\x4d\x18"}, {"bzip2", "BZh"}, {"xz", "\xfd7zXZ\x00"},
	{"lzma", "\x5d\x00\x00"}, {"lzo", "\x89LZO"},
}

// compressionOf is the kind of compression that begins with those bytes; empty for other bytes.
func compressionOf(magic []byte) string {
	for _, c := range compressions {
		if bytes.HasPrefix(magic, []byte(c.magic)) {
			return c.kind
		}
	}
	return ""
}

// walkAll walks through what a decompressor returns, and reads it to its end, where its checksum is. It says whether all was whole.
func (c *InitramfsContent) walkAll(z io.Reader, f *ReadAtFile) bool {
	c.walk(z, f, 1)
	if c.Damage != "" || c.NotExamined != "" {
		return false
	}
	if _, err := io.Copy(io.Discard, &countingReader{r: z, left: &c.left}); err != nil && c.Compression != "lz4" {
		if c.Compression == "zstd" && errors.Is(err, zstd.ErrMagicMismatch) { // padding behind it
			return false
		}
		c.fail(err)
		return false
	}
	return true
}

// skipZeros reads zeros; false at the end.
func skipZeros(in *bufio.Reader) bool {
	for {
		b, err := in.Peek(1)
		if err != nil {
			return errors.Is(err, bufio.ErrBufferFull)
		}
		if b[0] != 0 {
			return true
		}
		_, _ = in.Discard(1)
	}
}

// readArchive reads one archive in the format newc up to its trailer.
func (c *InitramfsContent) readArchive(in *bufio.Reader) error {
	head := make([]byte, 110)
	for {
		if _, err := io.ReadFull(in, head); err != nil {
			return err
		}
		if string(head[:5]) != "07070" {
			return fmt.Errorf("an entry of its archive begins with %s", hex.EncodeToString(head[:6]))
		}
		size, err := strconv.ParseUint(string(head[54:62]), 16, 32)
		if err != nil {
			return errors.New("the size of a file in its archive is no number")
		}
		length, err := strconv.ParseUint(string(head[94:102]), 16, 32)
		if err != nil || length == 0 || length > maxPathName {
			return errors.New("the length of a name in its archive is wrong")
		}
		name := make([]byte, length)
		if _, err := io.ReadFull(in, name); err != nil {
			return err
		}
		if err := skipBytes(in, padding(110+int64(length))); err != nil {
			return err
		}
		text := strings.TrimRight(string(name), "\x00")
		if text == "TRAILER!!!" {
			return nil
		}
		if c.nameBytes += len(text); len(c.Names) >= maxInitramfsNames || len(text) > MaxInitramfsName || c.nameBytes > MaxInitramfsBytes {
			return errTooManyNames
		}
		c.addName(text, size)
		if err := skipBytes(in, int64(size)+padding(int64(size))); err != nil {
			return err
		}
	}
}

func padding(n int64) int64 { return (4 - n%4) % 4 }

func skipBytes(in *bufio.Reader, n int64) error {
	_, err := io.CopyN(io.Discard, in, n)
	return err
}

func (c *InitramfsContent) addName(name string, size uint64) {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "./"), "/")
	c.Names[name] = true
	if name == "cryptroot/crypttab" {
		c.OpensNothing = size == 0
	}
	base := path.Base(name)
	for _, end := range []string{".ko", ".ko.xz", ".ko.zst", ".ko.gz"} {
		if module, found := strings.CutSuffix(base, end); found {
			c.Modules[ModuleName(module)] = true
		}
	}
}

// ModuleName is a module's name as the kernel writes it.
func ModuleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Has says whether a file of that name lies in any folder of the initramfs.
func (c *InitramfsContent) Has(bases ...string) bool {
	for name := range c.Names {
		for _, base := range bases {
			if path.Base(name) == base {
				return true
			}
		}
	}
	return false
}

// InitramfsModulesPath lists the modules that initramfs-tools takes beside those that it chooses.
const InitramfsModulesPath = "/etc/initramfs-tools/modules"

// omittedDrivers is a line of dracut that leaves drivers out. One whose quotes close elsewhere is none.
var omittedDrivers = regexp.MustCompile(`^(\s*omit_drivers\+?=["'])([^"'\\]*)(["']\s*(?:#.*)?)$`)

// AllowDrivers is a line of dracut's configuration that leaves out none of these modules.
func AllowDrivers(line string, modules []string) string {
	m := omittedDrivers.FindStringSubmatch(line)
	if m == nil {
		return line
	}
	words := strings.Fields(m[2])
	kept := slices.DeleteFunc(slices.Clone(words), func(name string) bool { return slices.Contains(modules, ModuleName(name)) })
	if len(kept) == len(words) {
		return line
	}
	return m[1] + " " + strings.Join(kept, " ") + " " + m[3]
}

func (c *InitramfsContent) HasBelow(folder string) bool {
	for name := range c.Names {
		if strings.HasPrefix(name, folder) {
			return true
		}
	}
	return false
}
