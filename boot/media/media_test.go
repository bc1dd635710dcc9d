package media

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"
	"pgregory.net/rapid"

	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
)

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func debianFile(t *testing.T, path, pkg string) Blob {
	t.Helper()
	debian.File(t, path, pkg)
	b := must.Get(os.ReadFile(path))(t)
	return bytesBlob(b)
}

func testParts(t *testing.T, kernel, initrd []byte) Parts {
	return Parts{
		Kernel:   bytesBlob(kernel),
		Initrd:   bytesBlob(initrd),
		Stub:     debianFile(t, "/usr/lib/systemd/boot/efi/linuxx64.efi.stub", "systemd-boot-efi"),
		Isolinux: debianFile(t, "/usr/lib/ISOLINUX/isolinux.bin", "isolinux"),
		Ldlinux:  debianFile(t, "/usr/lib/syslinux/modules/bios/ldlinux.c32", "syslinux-common"),
		Name:     "test ramdisk",
	}
}

func readAll(t *testing.T, r io.Reader) []byte {
	t.Helper()
	b := must.Get(io.ReadAll(r))(t)
	return b
}

// openISO gives the directory with the files of an image as xorriso reads it, which shares no code with us.
func openISO(t *testing.T, image []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	must.OK(t, os.WriteFile(path, image, 0o600))
	return debian.ExtractISO(t, path)
}

func readFile(t *testing.T, dir, name string) []byte {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join(dir, name)))(t)
	return b
}

func checkUKI(t *testing.T, raw, kernel, initrd []byte, params string) {
	t.Helper()
	f := must.Get(pe.NewFile(bytes.NewReader(raw)))(t)
	content := func(name string) []byte {
		s := f.Section(name)
		if s == nil {
			t.Fatalf("no section %s", name)
		}
		b, err := s.Data()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return b[:s.VirtualSize]
	}
	if !bytes.Equal(content(".linux"), kernel) || !bytes.Equal(content(".initrd"), initrd) {
		t.Error("kernel or ramdisk differs")
	}
	if got := string(content(".cmdline")); strings.TrimRight(got, " ") != params || len(got) != fieldSize {
		t.Errorf("parameters %q", got)
	}
	var end uint32
	for _, s := range f.Sections {
		if s.VirtualAddress < end {
			t.Errorf("section %s overlaps its predecessor", s.Name)
		}
		end = s.VirtualAddress + s.VirtualSize
	}
	if size := f.OptionalHeader.(*pe.OptionalHeader64).SizeOfImage; size < end {
		t.Errorf("size of image %d, sections end at %d", size, end)
	}
}

func TestISOReadsBack(t *testing.T) {
	kernel, initrd := noise(1, 700_001), noise(2, 300_003)
	image := must.Get(ISO(testParts(t, kernel, initrd)))(t)
	const params = "ipa-api-url=http://192.0.2.1:6385 console=ttyS0"
	opened := must.Get(image.Open(params))(t)
	raw := readAll(t, opened)
	if int64(len(raw)) != image.Layout().Size {
		t.Fatalf("%d bytes, layout says %d", len(raw), image.Layout().Size)
	}
	f := openISO(t, raw)
	if !bytes.Equal(readFile(t, f, "/kernel"), kernel) || !bytes.Equal(readFile(t, f, "/initrd"), initrd) {
		t.Error("kernel or ramdisk differs")
	}
	if cfg := string(readFile(t, f, "/isolinux.cfg")); !strings.HasSuffix(strings.TrimRight(cfg, "\n"), "\nAPPEND "+params) {
		t.Errorf("isolinux.cfg: %q", cfg)
	}
	esp := readFile(t, f, "/efi.img")
	checkUKI(t, mtype(t, esp, efiFile("BOOT", AMD64)), kernel, initrd, params)
	if int64(len(raw)) > int64(len(kernel)+len(initrd))+600_000 {
		t.Errorf("image of %d bytes holds its content twice", len(raw))
	}
}

// TestSignedISOReadsBack: the CD and its EFI system partition both hold the configuration that GRUB looks for, with the parameters of one
// machine. GRUB that finds none searches the machine's own disks.
func TestSignedISOReadsBack(t *testing.T) {
	kernel, initrd, shim, grub := noise(1, 700_001), noise(2, 300_003), noise(3, 9001), noise(4, 20_001)
	p := testParts(t, kernel, initrd)
	p.Shim, p.Grub = bytesBlob(shim), bytesBlob(grub)
	image := must.Get(ISO(p))(t)
	for _, params := range []string{"", "ipa-api-url=http://192.0.2.1:6385/?a=b&c=d console=ttyS0", strings.Repeat("a", MaxParams)} {
		raw := readAll(t, must.Get(image.Open(params))(t))
		cd := openISO(t, raw)
		volume := readFile(t, cd, "/efi.img")
		for name, want := range map[string][]byte{"KERNEL": kernel, "INITRD": initrd, "EFI/BOOT/BOOTX64.EFI": shim, "EFI/BOOT/GRUBX64.EFI": grub} {
			if !bytes.Equal(mtype(t, volume, name), want) {
				t.Errorf("%s of the EFI system partition differs", name)
			}
		}
		if !bytes.Equal(readFile(t, cd, "/kernel"), kernel) || !bytes.Equal(readFile(t, cd, "/initrd"), initrd) {
			t.Error("kernel or ramdisk of the CD differs")
		}
		config := readFile(t, cd, "/boot/grub/grub.cfg")
		if !bytes.Equal(mtype(t, volume, "BOOT/GRUB/GRUB.CFG"), config) {
			t.Error("the CD and its EFI system partition have different configurations of GRUB")
		}
		set, rest, _ := strings.Cut(string(config), "\n")
		if !strings.HasPrefix(set, "set params='") || strings.TrimRight(set, " '") != strings.TrimRight("set params='"+params, " '") ||
			strings.Count(set, "'") != 2 || !strings.HasPrefix(rest, "linux /kernel $params\ninitrd /initrd\nboot\n") {
			t.Errorf("configuration of GRUB: %q", config)
		}
		if cfg := string(readFile(t, cd, "/isolinux.cfg")); !strings.HasSuffix(strings.TrimRight(cfg, "\n"), "APPEND "+params) {
			t.Errorf("isolinux.cfg: %q", cfg)
		}
		if len(raw) > len(kernel)+len(initrd)+600_000 {
			t.Errorf("image of %d bytes holds its content twice", len(raw))
		}
	}
	p.Grub = io.NewSectionReader(zeros{}, 0, maxGrub+1)
	if _, err := ISO(p); !problem.Is(err, problem.Invalid) {
		t.Errorf("a GRUB of %d bytes: %v", maxGrub+1, err)
	}
}

// forARM64 marks a PE file as one for arm64.
func forARM64(pe []byte) []byte {
	pe = bytes.Clone(pe)
	binary.LittleEndian.PutUint16(pe[binary.LittleEndian.Uint32(pe[0x3c:])+4:], ARM64.machine())
	return pe
}

// TestARM64: the names of boot loaders follow the kernel's architecture, and a stub of another one is refused.
func TestARM64(t *testing.T) {
	p := testParts(t, nil, noise(2, 5000))
	stub := readAll(t, p.Stub)
	kernel := forARM64(stub)
	if a := ArchOf(bytesBlob(kernel)); a != ARM64 {
		t.Errorf("architecture %s", a)
	}
	for name, other := range map[string][]byte{"amd64": stub, "text": noise(1, 5000), "empty": nil, "cut": kernel[:0x40], "a header beyond the end": append([]byte("MZ"), bytes.Repeat([]byte{0xff}, 100)...)} {
		if a := ArchOf(bytesBlob(other)); a != AMD64 {
			t.Errorf("%s: architecture %s", name, a)
		}
	}
	p.Kernel, p.Isolinux, p.Ldlinux = bytesBlob(kernel), nil, nil
	if _, err := ISO(p); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "arm64") {
		t.Errorf("a stub for amd64: %v", err)
	}
	p.Stub = bytesBlob(kernel)
	unsigned := readFile(t, openISO(t, readAll(t, must.Get(ISO(p))(t).Base())), "/efi.img")
	checkUKI(t, mtype(t, unsigned, "EFI/BOOT/BOOTAA64.EFI"), kernel, noise(2, 5000), ARM64.DefaultParams())
	p.Shim, p.Grub = bytesBlob(noise(3, 3000)), bytesBlob(noise(4, 4000))
	signed := readFile(t, openISO(t, readAll(t, must.Get(ISO(p))(t).Base())), "/efi.img")
	if !bytes.Equal(mtype(t, signed, "EFI/BOOT/BOOTAA64.EFI"), noise(3, 3000)) || !bytes.Equal(mtype(t, signed, "EFI/BOOT/GRUBAA64.EFI"), noise(4, 4000)) {
		t.Error("shim or GRUB differs")
	}
}

func TestUKIReadsBack(t *testing.T) {
	kernel, initrd := noise(3, 90_001), noise(4, 40_000)
	image := must.Get(UKI(testParts(t, kernel, initrd)))(t)
	checkUKI(t, readAll(t, image.Base()), kernel, initrd, DefaultParams)
	opened := must.Get(image.Open("x=1"))(t)
	checkUKI(t, readAll(t, opened), kernel, initrd, "x=1")
}

func TestImageOfOneFirmware(t *testing.T) {
	p := testParts(t, noise(1, 5000), noise(2, 5000))
	bios, uefi, none := p, p, p
	bios.Stub, uefi.Isolinux, none.Stub, none.Ldlinux = nil, nil, nil, nil
	for name, p := range map[string]Parts{"bios": bios, "uefi": uefi} {
		image, err := ISO(p)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := len(image.Layout().Fields); n != 1 {
			t.Errorf("%s: %d fields", name, n)
		}
		if !bytes.Equal(readFile(t, openISO(t, readAll(t, image.Base())), "/initrd"), noise(2, 5000)) {
			t.Errorf("%s: ramdisk differs", name)
		}
	}
	if _, err := ISO(none); !problem.Is(err, problem.Invalid) {
		t.Errorf("no boot loader: %v", err)
	}
}

// paramText draws texts that CheckParams accepts.
var paramText = rapid.StringOfN(rapid.RuneFrom([]rune("abcXYZ0123456789=.,:/@%+~?!*()_ -")), 0, MaxParams, MaxParams)

func TestSpliceProperties(t *testing.T) {
	base := noise(5, 20_000)
	layout := Layout{Size: 20_000, Fields: []Field{{Offset: 1000, Size: 2048, Pad: ' '}, {Offset: 9000, Size: 1920, Pad: '\n'}}}
	image := must.Get(NewImage(bytes.NewReader(base), layout))(t)
	rapid.Check(t, func(t *rapid.T) {
		params := paramText.Draw(t, "params")
		r := must.Get(image.Open(params))(t)
		want := bytes.Clone(base)
		for _, f := range layout.Fields {
			field := want[f.Offset:][:f.Size]
			copy(field, params)
			copy(field[len(params):], bytes.Repeat([]byte{f.Pad}, len(field)))
		}
		off := rapid.Int64Range(0, layout.Size).Draw(t, "offset")
		n := rapid.Int64Range(0, layout.Size-off).Draw(t, "length")
		must.Get(r.Seek(off, io.SeekStart))(t)
		got := make([]byte, n)
		must.Get(io.ReadFull(r, got))(t)
		if !bytes.Equal(got, want[off:off+n]) {
			t.Fatalf("range %d+%d differs", off, n)
		}
	})
}

func TestLayoutIsChecked(t *testing.T) {
	for name, l := range map[string]Layout{
		"negative":  {Size: -1},
		"outside":   {Size: 10, Fields: []Field{{Offset: 5, Size: 6, Pad: ' '}}},
		"overflow":  {Size: 10, Fields: []Field{{Offset: 1 << 62, Size: 1 << 62, Pad: ' '}}},
		"overlap":   {Size: 10, Fields: []Field{{Offset: 0, Size: 6, Pad: ' '}, {Offset: 5, Size: 2, Pad: ' '}}},
		"empty":     {Size: 10, Fields: []Field{{Offset: 0, Pad: ' '}}},
		"odd pad":   {Size: 10, Fields: []Field{{Offset: 0, Size: 2, Pad: 'x'}}},
		"small one": {Size: 10, Fields: []Field{{Offset: -1, Size: 2, Pad: ' '}}},
	} {
		if _, err := NewImage(bytes.NewReader(nil), l); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	image := must.Get(NewImage(bytes.NewReader(make([]byte, 10)), Layout{Size: 10, Fields: []Field{{Offset: 1, Size: 3, Pad: ' '}}}))(t)
	if _, err := image.Open("four"); !problem.Is(err, problem.Invalid) {
		t.Errorf("parameters longer than the field: %v", err)
	}
}

// TestParametersThatALoaderWouldRead: no character that means something to isolinux, GRUB or iPXE passes, wherever it stands.
func TestParametersThatALoaderWouldRead(t *testing.T) {
	forbidden := "\"'`\\$;|<>{}#\x7f"
	for c := range byte(' ') {
		forbidden += string(rune(c))
	}
	for i := range len(forbidden) {
		c := forbidden[i : i+1]
		for _, text := range []string{c, "a=b" + c + "d=e", c + " a=b", "a=b " + c, "a=b " + c + " d=e", "a=b " + c + "d"} {
			if err := CheckParams(text); !problem.Is(err, problem.Invalid) {
				t.Errorf("%q passes: %v", text, err)
			}
		}
	}
	for _, text := range []string{"&", "&&", "a=b && d", "a & b"} {
		if err := CheckParams(text); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q passes: %v", text, err)
		}
	}
	for _, text := range []string{"", DefaultParams, "u=http://h/?a=b&c=d", "a=(b)[c]!%^*+,-./:=?@_~", strings.Repeat("a", MaxParams)} {
		if err := CheckParams(text); err != nil {
			t.Errorf("%q is refused: %v", text, err)
		}
	}
}

func FuzzCheckParams(f *testing.F) {
	for _, s := range []string{"", "a=b", "a\nKERNEL x", "a\x00", "a\"b", "x && shell", "x ${net0/mac}", "u=http://h/?a=b&c=d", "é", strings.Repeat("a", 1921)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := CheckParams(s)
		if err != nil {
			if !problem.Is(err, problem.Invalid) {
				t.Fatalf("kind of %v", err)
			}
			if len(s) > 8 && strings.Contains(err.Error(), s) {
				t.Fatal("the error repeats the parameters")
			}
			return
		}
		if len(s) > MaxParams || strings.ContainsAny(s, "\n\r\x00\"'\\$;|`") {
			t.Fatalf("%q was accepted", s)
		}
	})
}

func FuzzUKIStub(f *testing.F) {
	const file = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"
	debian.File(f, file, "systemd-boot-efi")
	stub := must.Get(os.ReadFile(file))(f)
	f.Add(stub[:1024]) // all headers; the whole file would slow the fuzzer down
	f.Add(stub[0x80+4 : 1024])
	f.Add([]byte("MZ"))
	f.Fuzz(func(t *testing.T, stub []byte) {
		p := Parts{Kernel: bytesBlob([]byte("k")), Initrd: bytesBlob([]byte("i")), Stub: bytesBlob(stub)}
		if image, err := UKI(p); err == nil {
			must.Get(io.Copy(io.Discard, image.Base()))(t)
		}
	})
}

func TestCPIORoundTrip(t *testing.T) {
	entries := []Entry{
		{Path: "init", Mode: 0o755, Data: bytesBlob([]byte("#!/bin/sh\n"))},
		{Path: "bin", Mode: os.ModeDir | 0o755},
		{Path: "bin/sh", Mode: os.ModeSymlink | 0o777, Link: "busybox"},
		{Path: "bin/busybox", Mode: 0o755, Data: bytesBlob(noise(6, 1001))},
		{Path: "empty", Mode: 0o600},
	}
	var first, second bytes.Buffer
	must.OK(t, WriteCPIO(&first, entries))
	must.OK(t, WriteCPIO(&second, []Entry{entries[4], entries[3], entries[2], entries[1], entries[0]}))
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the order of the entries shows in the archive")
	}
	got := map[string]string{}
	r := cpio.NewReader(&first)
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = h.Linkname + string(readAll(t, r))
	}
	want := map[string]string{"init": "#!/bin/sh\n", "bin": "", "bin/sh": "busybox", "bin/busybox": string(noise(6, 1001)), "empty": ""}
	for name, content := range want {
		if got[name] != content {
			t.Errorf("%s: %d bytes, want %d", name, len(got[name]), len(content))
		}
	}
	for _, bad := range [][]Entry{{{Path: "a/b"}}, {{Path: "../x"}}, {{Path: "/x"}}, {{Path: "x"}, {Path: "x"}}, {{Path: "x", Mode: os.ModeDevice}}} {
		if err := WriteCPIO(io.Discard, bad); !problem.Is(err, problem.Invalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
