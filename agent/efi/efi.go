// Package efi makes a machine's firmware boot the system that was written to a disk. It finds the boot loader on the EFI system partition
// and writes the firmware's boot entry. It knows variables, device paths and FAT, and must not know images or steps.
package efi

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unicode/utf16"

	"salvor/agent/disk"
	"salvor/problem"
)

// label of entries whose loader has no name of its own.
const label = "salvor"

// loaders by machine: the list that an installed system leaves, and the path that
// every firmware tries.
var loaders = map[string]struct{ csv, removable string }{
	"amd64": {"bootx64.csv", "bootx64.efi"},
	"arm64": {"bootaa64.csv", "bootaa64.efi"},
}

// Loader is a boot loader on an ESP.
type Loader struct {
	Label string
	Path  string // \EFI\debian\shimx64.efi
}

// Booted tells whether this machine was booted by UEFI.
func Booted(root string) bool {
	_, err := os.Stat(filepath.Join("/", root, "sys/firmware/efi"))
	return err == nil
}

// FindLoader looks for the loader of this machine: a BOOT*.CSV of a system names it,
// else it is the removable path, else Windows'.
func FindLoader(r io.ReaderAt, esp disk.Partition) (Loader, error) {
	f, err := openFAT(r, esp.Start, esp.Length)
	if err != nil {
		return Loader{}, problem.Invalidf("EFI system partition %d: %w", esp.Number, err)
	}
	top, err := f.find("EFI")
	if err != nil {
		return Loader{}, problem.NotFoundf("EFI system partition %d: %w", esp.Number, err)
	}
	vendors, err := f.list(top)
	if err != nil {
		return Loader{}, err
	}
	for _, v := range vendors {
		if loader, ok := f.byCSV(v); ok {
			return loader, nil
		}
	}
	for _, path := range [][]string{removablePath(), {"EFI", "Microsoft", "Boot", "bootmgfw.efi"}} {
		if e, err := f.find(path...); err == nil && f.isLoader(e) {
			return Loader{Label: label, Path: "\\" + strings.Join(path, "\\")}, nil
		}
	}
	return Loader{}, problem.NotFoundf("EFI system partition %d holds no boot loader for this machine (%s)", esp.Number, runtime.GOARCH)
}

func removablePath() []string {
	return []string{"EFI", "BOOT", strings.ToUpper(loaders[runtime.GOARCH].removable)}
}

// Removable tells whether firmware without any entry would start the disk too.
func Removable(r io.ReaderAt, table *disk.Table) bool {
	esp, ok := table.ESP()
	if !ok {
		return false
	}
	f, err := openFAT(r, esp.Start, esp.Length)
	if err != nil {
		return false
	}
	e, err := f.find(removablePath()...)
	return err == nil && f.isLoader(e)
}

// byCSV reads "shimx64.efi,Label,options,comment" in UTF-16, as shim's fallback does.
func (f *fatVolume) byCSV(vendor fatEntry) (Loader, bool) {
	if !vendor.dir || vendor.name == "." || vendor.name == ".." {
		return Loader{}, false
	}
	for _, name := range []string{loaders[runtime.GOARCH].csv, "boot.csv"} {
		e, err := f.find("EFI", vendor.name, name)
		if err != nil {
			continue
		}
		b, err := f.read(e)
		if err != nil {
			continue
		}
		fields := strings.Split(decodeUTF16(b), ",")
		if len(fields) < 2 || fields[0] == "" || strings.ContainsAny(fields[0], `\/`) {
			continue
		}
		if file, err := f.find("EFI", vendor.name, fields[0]); err == nil && f.isLoader(file) {
			return Loader{Label: cleanLabel(fields[1]), Path: `\EFI\` + vendor.name + `\` + fields[0]}, true
		}
	}
	return Loader{}, false
}

// isLoader: a PE program begins with MZ.
func (f *fatVolume) isLoader(e fatEntry) bool {
	b, err := f.content(e.first, 2)
	return err == nil && !e.dir && string(b) == "MZ"
}

func decodeUTF16(b []byte) string {
	var units []uint16
	for i := 0; i+1 < len(b); i += 2 {
		u := binary.LittleEndian.Uint16(b[i:])
		if u != 0xfeff {
			units = append(units, u)
		}
	}
	return string(utf16.Decode(units))
}

func cleanLabel(name string) string {
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return -1
		}
		return r
	}, name))
	if name == "" || len(name) > 64 {
		return label
	}
	return name
}

// Entry is a boot entry of the firmware.
type Entry struct {
	Number uint16
	Loader
}

// Install writes a boot entry for the loader on the disk's ESP and puts it first.
// Entries of the same label or path are replaced: another deployment is no second system.
func Install(root string, r io.ReaderAt, table *disk.Table, sector int64) (Entry, error) {
	esp, ok := table.ESP()
	if !ok {
		return Entry{}, problem.NotFoundf("there is no EFI system partition on the disk: is the image made for UEFI?")
	}
	loader, err := FindLoader(r, esp)
	if err != nil {
		return Entry{}, err
	}
	path, err := devicePath(table, esp, sector, loader.Path)
	if err != nil {
		return Entry{}, err
	}
	v := efivarsDir(filepath.Join("/", root, "sys/firmware/efi/efivars"))
	list, err := v.entries()
	if err != nil {
		return Entry{}, err
	}
	order, err := v.order()
	if err != nil {
		return Entry{}, err
	}
	used := map[uint16]bool{}
	for _, old := range list {
		if old.label == loader.Label || string(old.path) == string(path) {
			if err := v.remove(old.number); err != nil {
				return Entry{}, err
			}
			order = slices.DeleteFunc(order, func(n uint16) bool { return n == old.number })
			continue
		}
		used[old.number] = true
	}
	for n := range uint16(0xffff) {
		if used[n] || slices.Contains(order, n) {
			continue
		}
		if err := v.write(bootName(n), encodeLoadOption(loader.Label, path)); err != nil {
			return Entry{}, err
		}
		return Entry{n, loader}, v.write("BootOrder", orderBytes(append([]uint16{n}, order...)))
	}
	return Entry{}, errors.New("all boot entries are in use")
}
