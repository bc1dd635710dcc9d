package config

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"salvor/diagnose"
)

// ReadAtFile reads any part of a file of a tree.
type ReadAtFile struct {
	io.ReaderAt
	Size int64
	file io.Closer // nil where nothing is open
}

// Close releases the file.
func (f *ReadAtFile) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// OpenReadAt opens a file for reads at any place. The files of every tree have ReadAt.
func OpenReadAt(t *diagnose.Tree, name string) (*ReadAtFile, error) {
	f, err := t.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	r, ok := f.(io.ReaderAt)
	if !ok {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", name, errors.ErrUnsupported)
	}
	return &ReadAtFile{r, info.Size(), f}, nil
}

// KernelImage is what the head of a kernel says.
type KernelImage struct {
	// Format is bzImage, arm64, PE, gzip or empty for one that is not known.
	Format string
	// Release is the version that the kernel gives itself, such as 6.1.0-27-amd64; empty where the head does not say.
	Release string
	// Arch in Go's words; empty where the head does not say.
	Arch string
	// Certificates counts the signatures of a PE file.
	Certificates int
	// Damage says what is wrong; empty for a whole image.
	Damage string
}

// ReadKernelImage checks a kernel by its head and its size.
func ReadKernelImage(f *ReadAtFile) KernelImage {
	head := make([]byte, 4096)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return KernelImage{}
	}
	head = head[:n]
	le := binary.LittleEndian
	zero := len(bytes.Trim(head, "\x00")) == 0
	switch {
	case f.Size == 0:
		return KernelImage{Damage: "it is empty"}
	case zero:
		return KernelImage{Damage: "it begins with zeros"}
	case len(head) >= 0x210 && string(head[0x202:0x206]) == "HdrS" && le.Uint16(head[0x1fe:]) == 0xaa55:
		return readBzImage(f, head)
	case len(head) > 60 && string(head[56:60]) == "ARM\x64":
		k := KernelImage{Format: "arm64", Arch: "arm64"}
		if pe, err := ReadPE(f); err == nil {
			k.Damage = pe.Damage
		} else if f.Size < 4096 {
			k.Damage = fmt.Sprintf("it holds %d bytes only", f.Size)
		}
		return k
	case string(head[:min(2, len(head))]) == "MZ":
		pe, err := ReadPE(f)
		if err != nil {
			return KernelImage{Format: "PE", Damage: err.Error()}
		}
		return KernelImage{Format: "PE", Arch: pe.Arch, Damage: pe.Damage}
	case len(head) > 2 && head[0] == 0x1f && head[1] == 0x8b:
		return KernelImage{Format: "gzip"}
	case f.Size < 64<<10:
		return KernelImage{Damage: fmt.Sprintf("it holds %d bytes, and they are no kernel", f.Size)}
	}
	return KernelImage{}
}

// readBzImage follows Documentation/arch/x86/boot.rst of Linux.
func readBzImage(f *ReadAtFile, head []byte) KernelImage {
	le := binary.LittleEndian
	k := KernelImage{Format: "bzImage", Arch: "amd64"}
	setup := int64(head[0x1f1])
	if setup == 0 {
		setup = 4
	}
	want := (setup+1)*512 + int64(le.Uint32(head[0x1f4:]))*16
	if at := int64(le.Uint16(head[0x20e:])); at > 0 {
		b := make([]byte, 128)
		n, _ := f.ReadAt(b, 0x200+at)
		k.Release, _, _ = strings.Cut(string(b[:n]), " ")
		if len(k.Release) == n || strings.ContainsAny(k.Release, "/\x00") {
			k.Release = ""
		}
	}
	if f.Size+15 < want {
		k.Damage = fmt.Sprintf("it holds %d of the %d bytes that its head names", f.Size, want)
		return k
	}
	if pe, err := ReadPE(f); err == nil {
		k.Certificates = pe.Certificates
		if pe.Damage != "" {
			k.Damage = pe.Damage
		}
	}
	return k
}

// peImage is what the head of a program for UEFI says.
type peImage struct {
	Arch         string
	Certificates int
	Sections     []peSection
	Damage       string
}

type peSection struct {
	Name         string
	Offset, Size int64
}

// ReadPE reads the head of a PE file as its specification by Microsoft describes it. An error: it is none.
func ReadPE(f *ReadAtFile) (*peImage, error) {
	le := binary.LittleEndian
	head := make([]byte, 8192)
	n, _ := f.ReadAt(head, 0)
	head = head[:n]
	if n < 0x40 || string(head[:2]) != "MZ" {
		return nil, errors.New("it is no program for UEFI")
	}
	at := int(le.Uint32(head[0x3c:]))
	if at < 0x40 || at > n-24 || string(head[at:at+4]) != "PE\x00\x00" {
		return nil, errors.New("it is no program for UEFI")
	}
	out := &peImage{Arch: map[uint16]string{0x8664: "amd64", 0xaa64: "arm64", 0x14c: "386", 0x5064: "riscv64"}[le.Uint16(head[at+4:])]}
	sections, optional := int(le.Uint16(head[at+6:])), int(le.Uint16(head[at+20:]))
	table := at + 24 + optional
	for i := range min(sections, 96) {
		e := table + 40*i
		if e+40 > n {
			out.Damage = "it ends in the table of its sections"
			break
		}
		s := peSection{strings.TrimRight(string(head[e:e+8]), "\x00"), int64(le.Uint32(head[e+20:])), int64(le.Uint32(head[e+16:]))}
		if s.Offset+s.Size > f.Size {
			out.Damage = fmt.Sprintf("it holds %d bytes, and its section %s ends at %d", f.Size, s.Name, s.Offset+s.Size)
		}
		out.Sections = append(out.Sections, s)
	}
	directory := at + 24 + 112 + 4*8 // of certificates, in a PE32+
	if optional >= 152 && directory+8 <= n && le.Uint16(head[at+24:]) == 0x20b {
		start, length := int64(le.Uint32(head[directory:])), int64(le.Uint32(head[directory+4:]))
		if start > 0 && length > 0 && start+length > f.Size && out.Damage == "" {
			out.Damage = fmt.Sprintf("it holds %d bytes, and its signatures end at %d", f.Size, start+length)
		}
		for length > 8 && out.Certificates < 16 && start+8 <= f.Size {
			var b [4]byte
			if _, err := f.ReadAt(b[:], start); err != nil {
				break
			}
			one := (int64(le.Uint32(b[:])) + 7) &^ 7
			if one < 8 {
				break
			}
			out.Certificates++
			start, length = start+one, length-one
		}
	}
	return out, nil
}

// UnifiedOptions is the command line in a unified kernel image.
func UnifiedOptions(t *diagnose.Tree, name string) []string {
	f, err := OpenReadAt(t, name)
	if err != nil {
		return nil
	}
	defer f.Close()
	pe, err := ReadPE(f)
	if err != nil {
		return nil
	}
	for _, s := range pe.Sections {
		if s.Name == ".cmdline" {
			b := make([]byte, min(s.Size, 8192))
			n, _ := f.ReadAt(b, s.Offset)
			return SplitArguments(strings.Trim(string(b[:n]), "\x00\n "))
		}
	}
	return nil
}

// ReleaseOfName is the version in the name of a kernel's file: vmlinuz-6.1.0-27-amd64.
func ReleaseOfName(name string) string {
	base := path.Base(name)
	for _, prefix := range []string{"vmlinuz-", "vmlinux-", "Image-", "kernel-", "bzImage-"} {
		if release, found := strings.CutPrefix(base, prefix); found {
			return strings.TrimSuffix(release, ".efi")
		}
	}
	if base == "linux" { // of systemd's kernel-install: MACHINE/RELEASE/linux
		return path.Base(path.Dir(name))
	}
	return ""
}

// IsFolder says whether a path leads to a folder.
func IsFolder(t *diagnose.Tree, name string) bool {
	info, err := t.Stat(name)
	return err == nil && info.Mode()&fs.ModeDir != 0
}
