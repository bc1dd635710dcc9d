package disk

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

func read(t *testing.T, d *Device) *Table {
	t.Helper()
	table := must.Get(ReadTable(d, d.Size(), d.Sector()))(t)
	return table
}

// grown is a disk onto which an image of another size was written.
func grown(t *testing.T, script string, image, size int64) *Device {
	t.Helper()
	p := newPlace(t)
	small := p.device("image", image)
	sfdisk(t, small, script)
	b := must.Get(os.ReadFile(small.file.Name()))(t)
	d := p.device("sda", size)
	must.Get(d.WriteAt(b, 0))(t)
	return d
}

func TestGPT(t *testing.T) {
	d := grown(t, "label: gpt\nlabel-id: 11111111-2222-3333-4444-555555555555\nsize=4MiB, type=uefi, name=\"boot ü\"\nsize=10MiB, type=linux\n", 32*mebi, 200*mebi)
	table := read(t, d)
	esp, ok := table.ESP()
	if !ok || esp.Number != 1 || esp.Start != mebi || esp.Length != 4*mebi || esp.Name != "boot ü" || table.DiskID != "11111111-2222-3333-4444-555555555555" || len(table.Partitions) != 2 {
		t.Fatalf("%+v", table)
	}
	must.OK(t, table.MoveBackup(d))
	if out := tool(t, "", "sfdisk", "--verify", d.file.Name()); !strings.Contains(out, "No errors detected") {
		t.Errorf("sfdisk: %s", out)
	}
	made, err := table.Add(d, 64*mebi, "config-2")
	if err != nil || made.Number != 3 || made.Start != 135*mebi || made.Length != 64*mebi {
		t.Fatalf("%+v, %v", made, err)
	}
	out := tool(t, "", "sfdisk", "-d", d.file.Name())
	if !strings.Contains(out, `name="config-2"`) || strings.Contains(out, "corrupt") {
		t.Errorf("sfdisk: %s", out)
	}
	again := read(t, d)
	if len(again.Partitions) != 3 || again.Partitions[2] != made {
		t.Errorf("%+v, made %+v", again.Partitions, made)
	}
	// The backup alone is enough for tools.
	must.OK(t, d.Zero(512, 512))
	if out := tool(t, "", "sfdisk", "-d", d.file.Name()); !strings.Contains(out, "config-2") {
		t.Errorf("from the backup: %s", out)
	}
}

func TestMBR(t *testing.T) {
	d := grown(t, "label: dos\nlabel-id: 0x1234abcd\nsize=4MiB, type=ef\nsize=10MiB, bootable\n", 32*mebi, 200*mebi)
	table := read(t, d)
	if esp, ok := table.ESP(); !ok || esp.Number != 1 || table.Label != MBR || table.DiskID != "0x1234abcd" || table.MoveBackup(d) != nil {
		t.Fatalf("%+v", table)
	}
	made, err := table.Add(d, 64*mebi, "config-2")
	if err != nil || made.Number != 3 || made.Start != 136*mebi {
		t.Fatalf("%+v, %v", made, err)
	}
	if out := tool(t, "", "sfdisk", "--verify", d.file.Name()); !strings.Contains(out, "No errors detected") {
		t.Errorf("sfdisk: %s", out)
	}
	if again := read(t, d); len(again.Partitions) != 3 || again.Partitions[2] != made {
		t.Errorf("%+v", again.Partitions)
	}
	full := grown(t, "label: dos\nsize=1MiB\nsize=1MiB\nsize=1MiB\nsize=1MiB\n", 32*mebi, 200*mebi)
	if _, err := read(t, full).Add(full, 64*mebi, "x"); !problem.Is(err, problem.Invalid) {
		t.Errorf("a fifth partition: %v", err)
	}
}

func TestRoom(t *testing.T) {
	d := grown(t, "label: gpt\nsize=2MiB\nstart=90MiB, size=100MiB\n", 200*mebi, 200*mebi)
	made, err := read(t, d).Add(d, 64*mebi, "config-2")
	if err != nil || made.Start != 26*mebi {
		t.Errorf("between: %+v, %v", made, err)
	}
	if _, err := read(t, d).Add(d, 64*mebi, "x"); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "64 MiB") {
		t.Errorf("no room: %v", err)
	}
	if _, err := (&Table{}).Add(d, mebi, "x"); !problem.Is(err, problem.Invalid) {
		t.Errorf("no table: %v", err)
	}
}

func TestBrokenTables(t *testing.T) {
	change := func(b []byte, at int, with ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], with)
		return b
	}
	d := grown(t, "label: gpt\nsize=4MiB\nsize=4MiB\n", 32*mebi, 32*mebi)
	gpt := must.Get(os.ReadFile(d.file.Name()))(t)
	m := grown(t, "label: dos\nsize=4MiB\nsize=4MiB\n", 32*mebi, 32*mebi)
	mbr := must.Get(os.ReadFile(m.file.Name()))(t)
	for name, c := range map[string]struct {
		b      []byte
		size   int64
		sector int64
		text   string
	}{
		"header":       {change(gpt, 512+60, 1, 2), 32 * mebi, 512, "checksum of its GPT header"},
		"entries":      {change(gpt, 1024+33, 9), 32 * mebi, 512, "entries"},
		"length":       {change(gpt, 512+12, 0xff, 0xff), 32 * mebi, 512, "claims"},
		"smaller disk": {gpt, 6 * mebi, 512, "outside"},
		"protective":   {change(gpt, 512, 0), 32 * mebi, 512, "no GPT"},
		"4096":         {gpt, 32 * mebi, 4096, "sectors of 512"},
		"MBR outside":  {mbr, 6 * mebi, 512, "outside"},
		"MBR overlaps": {change(mbr, 446+16+8, 0, 9, 0, 0), 32 * mebi, 512, "overlap"},
	} {
		_, err := ReadTable(bytes.NewReader(c.b), c.size, c.sector)
		if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// discard takes writes inside of a disk.
type discard struct{ size int64 }

func (d discard) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > d.size {
		panic("outside of the disk")
	}
	return len(p), nil
}

var _ io.WriterAt = discard{}

func FuzzTable(f *testing.F) {
	head := make([]byte, 40<<10)
	copy(head[512:], gptMagic)
	f.Add(head)
	f.Add([]byte{})
	head = make([]byte, 512)
	head[510], head[511], head[446+4], head[446+9], head[446+13] = 0x55, 0xaa, 0x83, 8, 8
	f.Add(head)
	f.Fuzz(func(t *testing.T, b []byte) {
		size := int64(4 * mebi)
		b = append(bytes.Clone(b), make([]byte, max(0, int(size)-len(b)))...)
		table, err := ReadTable(bytes.NewReader(b), size, 512)
		if err != nil {
			return
		}
		for _, p := range table.Partitions {
			if p.Start < 0 || p.Length <= 0 || p.End() > size {
				t.Errorf("%+v", p)
			}
		}
		if table.MoveBackup(discard{size}) == nil && table.Label != NoLabel {
			_, _ = table.Add(discard{size}, mebi, "x")
		}
	})
}
