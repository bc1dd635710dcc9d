package ramdisk

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
)

// unpack reads an archive: path to mode and content, or "-> target".
func unpack(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	got := map[string]string{}
	for c := cpio.NewReader(r); ; {
		h, err := c.Next()
		if err == io.EOF {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		if h.Linkname != "" {
			b = []byte("-> " + h.Linkname)
		}
		got[h.Name] = fmt.Sprintf("%o %s", h.Mode.Perm(), b)
	}
}

func TestTreeIsLockedAndReproducible(t *testing.T) {
	make := func() []byte {
		tree := NewTree()
		tree.accounts()
		tree.File("a/b/c", 0o640, []byte("x"))
		var b bytes.Buffer
		must.OK(t, tree.Archive(&b))
		return b.Bytes()
	}
	first := make()
	if !bytes.Equal(first, make()) {
		t.Error("two archives of one tree differ")
	}
	got := unpack(t, bytes.NewReader(first))
	for path, want := range map[string]string{
		"bin":        "777 -> usr/bin",
		"a/b":        "755 ",
		"a/b/c":      "640 x",
		"root":       "700 ",
		"etc/shadow": "600 root:*:19000:0:99999:7:::\nrescue:*:19000:0:99999:7:::\n",
	} {
		if got[path] != want {
			t.Errorf("%s: %q, want %q", path, got[path], want)
		}
	}
}

func TestCompressionsUnpack(t *testing.T) {
	tree := NewTree()
	tree.File("data", 0o644, bytes.Repeat([]byte("salvor "), 100_000))
	for c, open := range map[Compression]func(io.Reader) (io.Reader, error){
		Plain: func(r io.Reader) (io.Reader, error) { return r, nil },
		Gzip:  func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		Zstd:  func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
		LZ4:   func(r io.Reader) (io.Reader, error) { return lz4.NewReader(r), nil },
	} {
		var first, second bytes.Buffer
		for _, w := range []io.Writer{&first, &second} {
			if err := tree.Initramfs(w, c); err != nil {
				t.Fatalf("%s: %v", c, err)
			}
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s: not reproducible", c)
		}
		r, err := open(&first)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if got := unpack(t, r)["data"]; len(got) != 700_000+len("644 ") {
			t.Errorf("%s: %d bytes came back", c, len(got))
		}
	}
	if _, err := Compression("xz").writer(io.Discard); !problem.Is(err, problem.Invalid) {
		t.Errorf("xz: %v", err)
	}
}

// writeModule writes the smallest ELF file that has a .modinfo section.
func writeModule(t *testing.T, dir, path string, info ...string) {
	t.Helper()
	data := []byte(strings.Join(info, "\x00") + "\x00")
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	var b bytes.Buffer
	write := func(v any) {
		must.OK(t, binary.Write(&b, binary.LittleEndian, v))
	}
	at := uint64(64 + len(data) + len(names))
	h := elf.Header64{Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Shoff: at, Shentsize: 64, Shnum: 3, Shstrndx: 2}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	write(h)
	b.Write(data)
	b.Write(names)
	write(elf.Section64{})
	write(elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: 64, Size: uint64(len(data))})
	write(elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: 64 + uint64(len(data)), Size: uint64(len(names))})
	file := filepath.Join(dir, "lib/modules/6.1.0-test", path)
	must.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.OK(t, os.WriteFile(file, b.Bytes(), 0o644))
}

func TestModulesAreClosedAndIndexed(t *testing.T) {
	dir := t.TempDir()
	writeModule(t, dir, "kernel/net/failover.ko", "license=GPL", "depends=")
	writeModule(t, dir, "kernel/net/net_failover.ko", "depends=failover")
	writeModule(t, dir, "kernel/drivers/net/virtio-net.ko", "depends=net_failover,virtio", "alias=virtio:d00000001v*", "softdep=pre: extra-mod post: other")
	writeModule(t, dir, "kernel/drivers/virtio.ko", "depends=")
	writeModule(t, dir, "kernel/extra-mod.ko", "depends=")
	writeModule(t, dir, "kernel/other.ko", "depends=")
	base := filepath.Join(dir, "lib/modules/6.1.0-test")
	must.OK(t, os.WriteFile(filepath.Join(base, "modules.builtin"), []byte("kernel/fs/ext4.ko\n"), 0o644))
	s := must.Get(readModules(dir))(t)
	var order []string
	closed := s.closure([]string{"virtio_net", "ext4", "virtio-net"})
	for _, m := range closed {
		order = append(order, m.name)
	}
	if want := []string{"extra_mod", "failover", "net_failover", "virtio", "virtio_net"}; !slices.Equal(order, want) {
		t.Errorf("closure %v, want %v", order, want)
	}
	tree := NewTree()
	must.OK(t, s.install(tree, closed))
	var b bytes.Buffer
	must.OK(t, tree.Archive(&b))
	got := unpack(t, &b)
	const at = "usr/lib/modules/6.1.0-test/"
	if want := "alias virtio:d00000001v* virtio_net\n"; !strings.HasSuffix(got[at+"modules.alias"], want) {
		t.Errorf("modules.alias: %q", got[at+"modules.alias"])
	}
	want := "kernel/drivers/net/virtio-net.ko: kernel/drivers/virtio.ko kernel/net/net_failover.ko kernel/net/failover.ko\n"
	if !strings.Contains(got[at+"modules.dep"], want) {
		t.Errorf("modules.dep: %q, wants %q", got[at+"modules.dep"], want)
	}
	if got := s.under([]string{"kernel/net"}, []string{"kernel/net/failover"}); !slices.Equal(got, []string{"net_failover"}) {
		t.Errorf("under: %v", got)
	}
	if _, ok := got[at+"kernel/other.ko"]; ok {
		t.Error("a module that nobody asked for")
	}
}

func TestAddTarKeepsWhatIsNeeded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools.tar")
	f := must.Get(os.Create(file))(t)
	w := tar.NewWriter(f)
	for _, e := range []struct {
		tar.Header
		data string
	}{
		{tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}, ""},
		{tar.Header{Name: "./usr/sbin/", Typeflag: tar.TypeDir, Mode: 0o755}, ""},
		{tar.Header{Name: "./usr/sbin/fdisk", Typeflag: tar.TypeReg, Mode: 0o755}, "disk"},
		{tar.Header{Name: "./usr/sbin/cfdisk", Typeflag: tar.TypeLink, Linkname: "./usr/sbin/fdisk"}, ""},
		{tar.Header{Name: "./usr/share/doc/fdisk/copyright", Typeflag: tar.TypeReg, Mode: 0o644}, "long"},
		{tar.Header{Name: "./etc/shadow", Typeflag: tar.TypeReg, Mode: 0o640}, "root::"},
		{tar.Header{Name: "./../../escape", Typeflag: tar.TypeReg, Mode: 0o644}, "x"},
		{tar.Header{Name: "./dev/null", Typeflag: tar.TypeChar}, ""},
	} {
		e.Size = int64(len(e.data))
		must.OK(t, w.WriteHeader(&e.Header))
		must.Get(io.WriteString(w, e.data))(t)
	}
	must.OK(t, w.Close())
	must.Get(f.Seek(0, io.SeekStart))(t)
	tree := NewTree()
	must.OK(t, tree.addTar(f))
	tree.accounts()
	var b bytes.Buffer
	must.OK(t, tree.Archive(&b))
	f.Close()
	got := unpack(t, &b)
	if got["usr/sbin/fdisk"] != "755 disk" || got["usr/sbin/cfdisk"] != "755 disk" || got["escape"] != "644 x" {
		t.Errorf("files: %q %q %q", got["usr/sbin/fdisk"], got["usr/sbin/cfdisk"], got["escape"])
	}
	if got["usr/share/doc/fdisk/copyright"] != "" || !strings.Contains(got["etc/shadow"], "root:*:") {
		t.Errorf("documentation or accounts came along: %q", got["etc/shadow"])
	}
}

func TestScriptsParse(t *testing.T) {
	for _, name := range []string{"init", "default.script", "salvor-chroot"} {
		if out, err := exec.Command(debian.Program(t, "busybox", "busybox-static"), "sh", "-n", "files/"+name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v (package busybox-static): %s", name, err, out)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"no folder":   {},
		"profile":     {Out: "x", Profile: "huge"},
		"kernel":      {Out: "x", Kernel: "rt"},
		"compression": {Out: "x", Compression: "xz"},
		"no agent":    {Out: "x"},
		"not an ELF":  {Out: "x", Agent: "ramdisk.go"},
		"dynamic":     {Out: "x", Agent: "/usr/sbin/dropbear"},
	} {
		o.Cache = t.TempDir()
		if _, err := Build(t.Context(), o); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadManifest(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadManifest(dir); !problem.Is(err, problem.NotFound) {
		t.Errorf("no manifest: %v", err)
	}
	for text, kind := range map[string]problem.Kind{
		`{`:                           problem.Invalid,
		`{"files":{"../x":{}}}`:       problem.Invalid,
		`{"files":{".hidden":{}}}`:    problem.Invalid,
		`{"profile":"minimal"}`:       problem.Internal,
		`{"files":{"rescue.iso":{}}}`: problem.Internal,
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, FileManifest), []byte(text), 0o644))
		if _, err := ReadManifest(dir); (err != nil) != (kind != problem.Internal) || err != nil && !problem.Is(err, kind) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzReadModule(f *testing.F) {
	dir := f.TempDir()
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, b []byte) {
		file := filepath.Join(dir, "m.ko")
		must.OK(t, os.WriteFile(file, b, 0o600))
		// Neither may panic.
		_, _ = readModule(file)
		_, _, _ = elfNeeds(file, AMD64)
	})
}

// TestArchitectureOfABuild: the architecture follows the kernel flavour and the other way round; what does not fit is refused before anything is fetched.
func TestArchitectureOfABuild(t *testing.T) {
	native := map[Arch]Flavour{AMD64: Cloud, ARM64: CloudARM64}[nativeArch()]
	for _, c := range []struct {
		o      Options
		kernel Flavour
	}{
		{Options{}, native},
		{Options{Arch: ARM64}, CloudARM64},
		{Options{Arch: AMD64, Profile: Full}, Generic},
		{Options{Arch: AMD64, Profile: Diagnose}, Cloud},
		{Options{Arch: ARM64, Profile: Diagnose}, CloudARM64},
		{Options{Kernel: GenericARM64}, GenericARM64},
		{Options{Kernel: Cloud}, Cloud},
	} {
		c.o.Out = "x"
		if err := c.o.complete(); err != nil || c.o.Kernel != c.kernel || c.o.Arch != c.kernel.Arch() {
			t.Errorf("%+v, %v; want kernel %s", c.o, err, c.kernel)
		}
	}
	for _, o := range []Options{{Arch: "mips"}, {Arch: ARM64, Kernel: Cloud}, {Arch: AMD64, Kernel: GenericARM64}, {Kernel: "cloud-riscv64"}, {Arch: ARM64, Profile: Full}, {Profile: "whole"}} {
		o.Out = "x"
		if err := o.complete(); !problem.Is(err, problem.Invalid) && !problem.Is(err, problem.Unsupported) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
