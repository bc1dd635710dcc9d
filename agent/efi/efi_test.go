package efi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"salvor/agent/disk"
	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
)

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(debian.Program(t, name, "dosfstools or mtools"), args...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "MTOOLS_SKIP_CHECK=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v (dosfstools, mtools): %s", name, args, err, out)
	}
}

func utf16LE(text string) []byte {
	b := encodeUTF16(text)
	return b[:len(b)-2]
}

// esp makes a FAT of so many KiB with the given files and gives its bytes.
func esp(t *testing.T, bits, kib int, files map[string][]byte) []byte {
	t.Helper()
	dir := t.TempDir()
	image := filepath.Join(dir, "esp")
	tool(t, "mkfs.vfat", "-C", "-F", fmt.Sprint(bits), image, fmt.Sprint(kib))
	made := map[string]bool{}
	for name, content := range files {
		parts := strings.Split(name, "/")
		for i := 1; i < len(parts); i++ {
			if folder := strings.Join(parts[:i], "/"); !made[folder] {
				tool(t, "mmd", "-i", image, "::/"+folder)
				made[folder] = true
			}
		}
		file := filepath.Join(dir, "file")
		must.OK(t, os.WriteFile(file, content, 0o600))
		tool(t, "mcopy", "-i", image, file, "::/"+name)
	}
	b := must.Get(os.ReadFile(image))(t)
	return b
}

var program = append([]byte("MZ"), bytes.Repeat([]byte{7}, 100<<10)...)

func TestFindLoader(t *testing.T) {
	csv := func(text string) []byte { return append([]byte{0xff, 0xfe}, utf16LE(text)...) }
	for name, c := range map[string]struct {
		bits  int
		files map[string][]byte
		label string
		path  string
	}{
		"named by a CSV":     {32, map[string][]byte{"EFI/debian/BOOTX64.CSV": csv("shimx64.efi,Debian GNU,,this is the system\n"), "EFI/debian/shimx64.efi": program, "EFI/BOOT/BOOTX64.EFI": program}, "Debian GNU", `\EFI\debian\shimx64.efi`},
		"old CSV":            {16, map[string][]byte{"EFI/centos with a long name/boot.csv": utf16LE("grubx64.efi,C\x01entOS"), "EFI/centos with a long name/grubx64.efi": program}, "CentOS", `\EFI\centos with a long name\grubx64.efi`},
		"removable":          {12, map[string][]byte{"efi/boot/bootx64.efi": program}, "salvor", `\EFI\BOOT\BOOTX64.EFI`},
		"Windows":            {32, map[string][]byte{"EFI/Microsoft/Boot/bootmgfw.efi": program}, "salvor", `\EFI\Microsoft\Boot\bootmgfw.efi`},
		"CSV of nothing":     {16, map[string][]byte{"EFI/x/BOOTX64.CSV": csv("none.efi,X"), "EFI/BOOT/BOOTX64.EFI": program}, "salvor", `\EFI\BOOT\BOOTX64.EFI`},
		"CSV that leads out": {16, map[string][]byte{"EFI/x/BOOTX64.CSV": csv(`..\evil.efi,X`), "EFI/evil.efi": program, "EFI/BOOT/BOOTX64.EFI": program}, "salvor", `\EFI\BOOT\BOOTX64.EFI`},
		"no program":         {16, map[string][]byte{"EFI/BOOT/BOOTX64.EFI": []byte("#!/bin/sh")}, "", ""},
		"nothing":            {32, map[string][]byte{"README": []byte("hello")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			kib := map[int]int{12: 2 << 10, 16: 16 << 10, 32: 64 << 10}[c.bits]
			b := esp(t, c.bits, kib, c.files)
			disc := append(make([]byte, 1<<20), b...)
			loader, err := FindLoader(bytes.NewReader(disc), disk.Partition{Number: 1, Start: 1 << 20, Length: int64(len(b))})
			if c.path == "" {
				if !problem.Is(err, problem.NotFound) {
					t.Errorf("%+v, %v", loader, err)
				}
				return
			}
			if err != nil || loader.Label != c.label || !strings.EqualFold(loader.Path, c.path) {
				t.Errorf("%+v, %v", loader, err)
			}
		})
	}
	if _, err := FindLoader(bytes.NewReader(make([]byte, 4096)), disk.Partition{Length: 4096}); !problem.Is(err, problem.Invalid) {
		t.Errorf("no FAT: %v", err)
	}
}

func variable(t *testing.T, root, name string, content []byte) {
	t.Helper()
	dir := filepath.Join(root, "sys/firmware/efi/efivars")
	must.OK(t, os.MkdirAll(dir, 0o755))
	must.OK(t, os.WriteFile(filepath.Join(dir, name+global), append([]byte{7, 0, 0, 0}, content...), 0o600))
}

func TestInstall(t *testing.T) {
	root := t.TempDir()
	if Booted(root) {
		t.Error("booted by UEFI without its folder")
	}
	path := func(n byte) []byte { return []byte{n, 1, 5, 0, n, 0x7f, 0xff, 4, 0} }
	variable(t, root, "Boot0000", encodeLoadOption("PXE", path(3)))
	variable(t, root, "Boot0001", encodeLoadOption("Debian", path(4)))
	variable(t, root, "Boot0003", []byte("garbage"))
	variable(t, root, "BootOrder", orderBytes([]uint16{1, 2, 0}))
	variable(t, root, "BootNext", []byte{0, 0})
	b := esp(t, 16, 16<<10, map[string][]byte{"EFI/debian/BOOTX64.CSV": utf16LE("shimx64.efi,Debian"), "EFI/debian/shimx64.efi": program})
	disc := append(make([]byte, 1<<20), b...)
	table := &disk.Table{Label: disk.GPT, Partitions: []disk.Partition{{Number: 1, Start: 1 << 20, Length: int64(len(b)), Type: disk.TypeESP, ID: "00112233-4455-6677-8899-aabbccddeeff"}}}
	for range 2 { // the second time replaces the first
		entry, err := Install(root, bytes.NewReader(disc), table, 512)
		if err != nil || entry.Number != 1 || entry.Label != "Debian" {
			t.Fatalf("%+v, %v", entry, err)
		}
	}
	v := efivarsDir(filepath.Join(root, "sys/firmware/efi/efivars"))
	if order, err := v.order(); err != nil || !slices.Equal(order, []uint16{1, 2, 0}) {
		t.Errorf("order %v, %v", order, err)
	}
	list, err := v.entries()
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	raw := list[1].path
	le := binary.LittleEndian
	if list[1].label != "Debian" || !bytes.Equal(raw[:4], []byte{4, 1, 42, 0}) || le.Uint32(raw[4:]) != 1 || le.Uint64(raw[8:]) != 2048 || le.Uint64(raw[16:]) != 32768 ||
		!bytes.Equal(raw[24:42], []byte{0x33, 0x22, 0x11, 0, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 2, 2}) ||
		!strings.HasPrefix(decodeUTF16(raw[46:]), `\EFI\debian\shimx64.efi`) || !bytes.HasSuffix(raw, []byte{0x7f, 0xff, 4, 0}) {
		t.Errorf("device path %x", raw)
	}
	if !Booted(root) {
		t.Error("not booted by UEFI")
	}
	if _, err := Install(root, bytes.NewReader(disc), &disk.Table{Label: disk.GPT}, 512); !problem.Is(err, problem.NotFound) || !strings.Contains(err.Error(), "UEFI") {
		t.Errorf("no ESP: %v", err)
	}
	if Removable(bytes.NewReader(disc), table) {
		t.Error("there is no removable path")
	}
	if _, err := Install(t.TempDir(), bytes.NewReader(disc), table, 512); !problem.Is(err, problem.Unavailable) {
		t.Errorf("no variables: %v", err)
	}
}

func FuzzFAT(f *testing.F) {
	head := make([]byte, 64<<10)
	copy(head, "\xeb\x3c\x90mkfs.fat\x00\x02\x04\x01\x00\x02\x00\x02\x80\x00\xf8\x01\x00")
	head[510], head[511] = 0x55, 0xaa
	f.Add(head)
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, b []byte) {
		b = append(bytes.Clone(b), make([]byte, 64<<10)...)
		_, _ = FindLoader(bytes.NewReader(b), disk.Partition{Number: 1, Length: int64(len(b))})
	})
}

func FuzzOption(f *testing.F) {
	f.Add(encodeLoadOption("x", []byte{1, 2, 3}))
	f.Fuzz(func(_ *testing.T, b []byte) { parseOption(b) })
}
