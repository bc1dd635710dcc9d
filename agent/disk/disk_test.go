package disk

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/debian"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

// place is a directory with the folders of a machine.
type place struct {
	t    *testing.T
	root string
}

func newPlace(t *testing.T) *place { return &place{t, t.TempDir()} }

func (p *place) file(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.root, name)
	must.OK(p.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.OK(p.t, os.WriteFile(path, []byte(content), 0o644))
}

// disk makes a disk of so many bytes in sysfs, and its device if it is small.
func (p *place) disk(name string, size string, more map[string]string) {
	p.file("sys/block/"+name+"/size", size)
	for file, content := range more {
		p.file("sys/block/"+name+"/"+file, content)
	}
}

// dirty makes a file of so many bytes full of old data and opens it.
func (p *place) dirty(name string, size int64) *Device {
	p.t.Helper()
	p.file("dev/"+name, strings.Repeat("old data", int(size/8)))
	return p.open(name)
}

// device is the same, empty.
func (p *place) device(name string, size int64) *Device {
	p.t.Helper()
	p.file("dev/"+name, "")
	must.OK(p.t, os.Truncate(filepath.Join(p.root, "dev", name), size))
	return p.open(name)
}

func (p *place) open(name string) *Device {
	p.t.Helper()
	d := must.Get(Open(p.root, "/dev/"+name))(p.t)
	p.t.Cleanup(func() { _ = d.Close() })
	return d
}

func sfdisk(t *testing.T, d *Device, script string) string {
	t.Helper()
	return tool(t, script, "sfdisk", "-q", "-w", "never", "-W", "never", d.file.Name())
}

func tool(t *testing.T, in, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(debian.Program(t, name, "fdisk"), args...)
	cmd.Stdin = strings.NewReader(in)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v (fdisk, util-linux): %s", name, args, err, out)
	}
	return string(out)
}

func TestList(t *testing.T) {
	p := newPlace(t)
	gib := "8388608" // sectors of 4 GiB
	p.disk("sda", gib, map[string]string{"device/model": "Disk One  \n", "device/vendor": "ATA     \n", "queue/rotational": "1\n",
		"device/vpd_pg80": "\x00\x80\x00\x08 SERIAL1", "device/wwid": "naa.6001405aaaaaaaaa1234567890abcdef\n", "queue/logical_block_size": "512"})
	p.disk("nvme0n1", gib, map[string]string{"device/serial": "N1", "wwid": "eui.0025385b71b00001", "device/model": "Fast"})
	p.disk("vda", gib, map[string]string{"serial": "V1"})
	p.disk("sdb", gib, map[string]string{"removable": "1"})
	p.disk("sdc", gib, map[string]string{"device/model": "Virtual HDisk0"})
	p.disk("sdd", "0", nil)
	p.disk("sde", gib, map[string]string{"ro": "1"})
	for _, other := range []string{"loop0", "ram0", "zram0", "sr0", "dm-0", "md127", "fd0"} {
		p.disk(other, gib, nil)
	}
	found := must.Get(List(p.root))(t)
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
	}
	if want := []string{"/dev/nvme0n1", "/dev/sda", "/dev/sde", "/dev/vda"}; !slices.Equal(names, want) {
		t.Fatalf("disks %v, want %v", names, want)
	}
	sda := found[1]
	if sda.Size != 4*gibi || !sda.Rotational || *sda.Vendor != "ATA" || *sda.Serial != "SERIAL1" || sda.Model != "Disk One" || !found[2].ReadOnly || *found[3].Serial != "V1" {
		t.Errorf("%+v", sda)
	}
	if *sda.WWN != "0x6001405aaaaaaaaa" || *sda.WWNVendorExtension != "0x1234567890abcdef" || *sda.WWNWithExtension != "0x6001405aaaaaaaaa1234567890abcdef" || *found[0].WWN != "eui.0025385b71b00001" {
		t.Errorf("names %+v", sda)
	}
	if none, err := List(t.TempDir()); err != nil || none != nil {
		t.Errorf("without sysfs: %v, %v", none, err)
	}
}

func TestPaths(t *testing.T) {
	p := newPlace(t)
	link := func(name, target string) {
		p.disk(name, "8388608", map[string]string{"nsid": "1"})
		at := filepath.Join(p.root, "sys", target)
		must.OK(t, os.MkdirAll(at, 0o755))
		must.OK(t, os.Symlink(at, filepath.Join(p.root, "sys/block", name, "device")))
	}
	link("sda", "devices/pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0")
	p.file("sys/devices/pci0000:00/0000:00:1f.2/ata3/ata_port/ata3/port_no", "1\n")
	link("sdb", "devices/pci0000:00/0000:00:04.0/virtio1/host6/target6:0:3/6:0:3:1")
	link("vda", "devices/pci0000:00/0000:00:02.0/virtio0")
	link("nvme0n1", "devices/pci0000:00/0000:00:1d.0/0000:03:00.0/nvme/nvme0")
	found := must.Get(List(p.root))(t)
	want := map[string]string{
		"/dev/sda": "pci-0000:00:1f.2-ata-1", "/dev/sdb": "pci-0000:00:04.0-scsi-0:0:3:1", "/dev/vda": "pci-0000:00:02.0", "/dev/nvme0n1": "pci-0000:03:00.0-nvme-1",
	}
	for _, f := range found {
		if f.ByPath == nil || *f.ByPath != "/dev/disk/by-path/"+want[f.Name] {
			t.Errorf("%s: %v", f.Name, f.ByPath)
		}
	}
	if found[1].HCTL == nil || *found[1].HCTL != "2:0:0:0" || found[3].HCTL != nil {
		t.Errorf("hctl %+v", found)
	}
}

func text(s string) *string { return &s }

func TestHints(t *testing.T) {
	d := wire.Disk{Name: "/dev/sda", Model: "Fast Disk 9000", Size: 40 * gibi, Vendor: text("ACME"), Serial: text("AbC-1"), WWN: text("0x5000"), HCTL: text("1:0:0:0")}
	for hints, want := range map[string]bool{
		`{"size": 40}`: true, `{"size": "40"}`: true, `{"size": 39}`: false, `{"size": ">= 40"}`: true, `{"size": "> 1"}`: false, `{"size": "<= 39"}`: false,
		`{"size": "= 30"}`: true, `{"size": "== 40"}`: true, `{"size": "!= 40"}`: false, `{"size": "int == 40"}`: true, `{"size": "<or> 20 <or> 40"}`: true, `{"size": "<or> 20 <or> 30"}`: false,
		`{"model": "fast disk 9000"}`: true, `{"model": "Fast"}`: false, `{"model": "<in> disk"}`: true, `{"model": "<all-in> fast <all-in> 9000"}`: true,
		`{"model": "<all-in> fast <all-in> slow"}`: false, `{"vendor": "s== acme"}`: true, `{"vendor": "s!= acme"}`: false, `{"vendor": "s!= other"}`: true,
		`{"serial": "<or> x <or> abc-1"}`: true, `{"serial": "<or> x <or> y"}`: false, `{"serial": "s>= abc"}`: true, `{"serial": "s< abc"}`: false,
		`{"rotational": false}`: true, `{"rotational": "yes"}`: false, `{"hctl": "1:0:0:0"}`: true, `{"name": "/dev/sda"}`: true, `{"by_path": "x"}`: false,
		`{"wwn": "0x5000", "size": ">= 10", "rotational": "false"}`: true, `{"wwn": "0x5000", "size": ">= 100"}`: false, `{}`: true,
	} {
		var raw map[string]any
		must.OK(t, json.Unmarshal([]byte(hints), &raw))
		h, err := ParseHints(raw)
		if err != nil && hints != `{"size": "> 1"}` {
			t.Errorf("%s: %v", hints, err)
		}
		if ok, _ := h.Match(d); err == nil && ok != want {
			t.Errorf("%s matches: %v", hints, ok)
		}
	}
	for _, bad := range []map[string]any{
		{"colour": "red"}, {"size": "big"}, {"size": "-1"}, {"size": 0.0}, {"size": ""}, {"model": " "}, {"rotational": "maybe"}, {"model": []any{"x"}},
		{"model": "<or>"}, {"model": "<in>"}, {"size": "<range-in> [1 2]"}, {"model": strings.Repeat("x", 2000)}, {"serial": nil},
	} {
		if h, err := ParseHints(bad); !problem.Is(err, problem.Invalid) {
			t.Errorf("%v: %v, %v", bad, h, err)
		}
	}
}

func TestChoose(t *testing.T) {
	disks := []Found{
		{Disk: wire.Disk{Name: "/dev/sda", Size: 100 * gibi}}, {Disk: wire.Disk{Name: "/dev/sdb", Size: 2 * gibi}},
		{Disk: wire.Disk{Name: "/dev/sdc", Size: 5 * gibi}, ReadOnly: true}, {Disk: wire.Disk{Name: "/dev/sde", Size: 10 * gibi}}, {Disk: wire.Disk{Name: "/dev/sdd", Size: 10 * gibi}},
	}
	if d, err := Choose(disks, nil); err != nil || d.Name != "/dev/sdd" {
		t.Errorf("without hints: %v, %v", d.Name, err)
	}
	hints, err := ParseHints(map[string]any{"size": ">= 50"})
	if d, errC := Choose(disks, hints); err != nil || errC != nil || d.Name != "/dev/sda" {
		t.Errorf("with hints: %v, %v", d.Name, errC)
	}
	hints, _ = ParseHints(map[string]any{"size": 5, "name": "/dev/sdc"})
	if _, err := Choose(disks, hints); !problem.Is(err, problem.NotFound) || !strings.Contains(err.Error(), "/dev/sda (name)") {
		t.Errorf("none fits: %v", err)
	}
	if _, err := Choose(disks[1:2], nil); !problem.Is(err, problem.NotFound) || !strings.Contains(err.Error(), "2048 MiB") {
		t.Errorf("too small: %v", err)
	}
}

func TestOpen(t *testing.T) {
	p := newPlace(t)
	d := p.device("sda", mebi)
	if _, err := d.WriteAt([]byte("xx"), mebi-1); !problem.Is(err, problem.Invalid) {
		t.Errorf("a write past the end: %v", err)
	}
	if err := d.Zero(mebi-10, 11); !problem.Is(err, problem.Invalid) {
		t.Errorf("zeros past the end: %v", err)
	}
	if _, err := Open(p.root, "/dev/../../etc/passwd"); !problem.Is(err, problem.NotFound) {
		t.Errorf("outside: %v", err)
	}
	if _, err := Open("", "/etc/passwd"); !problem.Is(err, problem.Invalid) {
		t.Errorf("a file of the machine: %v", err)
	}
	if done, err := d.Purge(Allow{NVMe: true, ATA: true}); done || err != nil {
		t.Errorf("a file erases itself: %v", err)
	}
}

func zeros(t *testing.T, d *Device, off, n int64) bool {
	t.Helper()
	b := make([]byte, n)
	must.Get(d.ReadAt(b, off))(t)
	return bytes.Equal(b, make([]byte, n))
}

func TestWipe(t *testing.T) {
	p := newPlace(t)
	d := p.dirty("sda", 160*mebi)
	sfdisk(t, d, "label: gpt\nstart=2048, size=40MiB\nsize=50MiB\n")
	p.file("sys/block/sda/sda7/partition", "7")
	p.file("sys/block/sda/sda7/start", "245760") // 120 MiB, known to the kernel alone
	p.file("sys/block/sda/sda7/size", "20480")
	must.OK(t, d.WipeMetadata(p.root))
	for _, at := range []int64{0, 1, 40, 41, 90, 120, 129, 159} {
		if !zeros(t, d, at*mebi, mebi) {
			t.Errorf("MiB %d is not wiped", at)
		}
	}
	if zeros(t, d, 20*mebi, mebi) {
		t.Error("data were wiped too")
	}
	if out := tool(t, "", "wipefs", "-n", d.file.Name()); strings.TrimSpace(out) != "" {
		t.Errorf("wipefs: %s", out)
	}
	if table, err := ReadTable(d, d.Size(), d.Sector()); err != nil || table.Label != NoLabel {
		t.Errorf("%+v, %v", table, err)
	}
}

func TestSpecial(t *testing.T) {
	for script, want := range map[string]string{
		"label: gpt\nsize=1MiB, type=linux\nsize=2MiB, type=AA31E02A-400F-11DB-9590-000C2911D1B8\n": "partition 2 holds VMFS",
		"label: dos\nsize=2MiB, type=fb\n": "partition 1 holds VMFS", "label: gpt\nsize=1MiB, type=linux\n": "",
	} {
		d := newPlace(t).device("sda", 8*mebi)
		sfdisk(t, d, script)
		if got := d.Special(); got != want {
			t.Errorf("%q: %q", script, got)
		}
	}
	d := newPlace(t).device("sda", 8*mebi)
	if _, err := d.WriteAt([]byte{1, 0x16, 0x19, 0x70}, 64<<10); err != nil || !strings.Contains(d.Special(), "GFS2") {
		t.Errorf("%v %s", err, d.Special())
	}
}

func TestOverwrite(t *testing.T) {
	d := newPlace(t).dirty("sda", 9*mebi)
	var done int64
	if err := d.Overwrite(context.Background(), 2, false, func(n int64) { done += n }); err != nil || done != 18*mebi || zeros(t, d, 0, mebi) {
		t.Fatalf("%v, %d", err, done)
	}
	b := make([]byte, 9*mebi)
	if _, err := d.ReadAt(b, 0); err != nil || bytes.Contains(b, []byte("old data")) {
		t.Error("old data are left")
	}
	if err := d.Overwrite(context.Background(), 0, true, nil); err != nil || !zeros(t, d, 0, 9*mebi) {
		t.Errorf("zeros: %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Overwrite(ended, 1, true, nil); err == nil {
		t.Error("goes on after its end")
	}
}

func FuzzHint(f *testing.F) {
	for _, s := range []string{">= 40", "<or> a <or> b", "s== x", "<all-in> a <all-in>", "int == 3", "<in>", "=", "<range-in> [ 1 2 ]"} {
		f.Add("model", s)
		f.Add("size", s)
	}
	d := wire.Disk{Name: "/dev/sda", Model: "x", Size: gibi}
	f.Fuzz(func(_ *testing.T, name, value string) {
		if h, err := ParseHints(map[string]any{name: value}); err == nil {
			h.Match(d)
		}
	})
}
