package libvirt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/beevik/etree"

	"salvor/compute"
	"salvor/lab/odd"
	"salvor/problem"
	"salvor/test/must"
)

// A change by somebody else is carried into whatever salvor defines next, is seen as such again afterwards, and hides no change of salvor's.
func TestDefinitionsOfOthersAreMerged(t *testing.T) {
	changes := odd.Changes("/elsewhere")
	if len(changes) < 30 {
		t.Fatalf("the generator has %d kinds of changes, want 30 at least", len(changes))
	}
	bases := must.Get(filepath.Glob("testdata/*.xml"))(t)
	nexts := []string{"testdata/bios.xml", "testdata/bios-kernel.xml", "testdata/uefi-iso.xml", "testdata/scsi-disk.xml", "testdata/volume-disk.xml"}
	combinations := 0
	for _, change := range changes {
		t.Run(change.Name, func(t *testing.T) {
			for _, from := range bases {
				base := treeOf(t, from)
				current := base.Copy()
				if change.Kept(base) || !change.Make(current) {
					continue
				}
				for _, to := range nexts {
					combinations++
					checkMerge(t, change, base, current, treeOf(t, to), filepath.Base(from)+" to "+filepath.Base(to))
				}
			}
		})
	}
	t.Logf("%d combinations of %d kinds of changes", combinations, len(changes))
}

func treeOf(t *testing.T, file string) *etree.Element {
	t.Helper()
	return must.Get(tree(string(must.Get(os.ReadFile(file))(t))))(t)
}

func checkMerge(t *testing.T, change odd.Change, base, current, next *etree.Element, which string) {
	t.Helper()
	edits := findEdits(base, current)
	if len(edits) == 0 {
		t.Errorf("%s: no edit is found", which)
		return
	}
	merged := next.Copy()
	applied, err := applyEdits(merged, current, edits, "g")
	// The definitions of testdata attach their disks to several buses: where the next one has not the disk, nothing of it is left to keep.
	hasPlace := change.Make(next.Copy()) && sameRoot(base, next)
	switch {
	case change.Fate == odd.Refused && hasPlace:
		if !problem.Is(err, problem.Conflict) {
			t.Errorf("%s: %v, want a Conflict", which, err)
		}
		return
	case problem.Is(err, problem.Conflict) && !sameRoot(base, next):
		return // the changed disk is gone, and another disk has its place
	case err != nil:
		t.Errorf("%s: %v", which, err)
		return
	case change.Fate == odd.Carried && hasPlace && !change.Kept(merged):
		t.Errorf("%s: the change is lost:\n%s", which, textOf(t, merged))
	case change.Fate == odd.Restored && change.Kept(merged) && !change.Kept(next):
		t.Errorf("%s: the change stayed, though the record decides:\n%s", which, textOf(t, merged))
	}
	// What salvor wrote is what is left without the edits: nothing of the next definition is taken for somebody else's.
	mine := merged.Copy()
	revertEdits(mine, applied)
	for _, e := range findEdits(mine, merged) {
		if !slices.ContainsFunc(edits, func(o edit) bool { return sharesPath(o, e) }) {
			t.Errorf("%s: %v %s is counted as someone else's change", which, e.path, e.attr)
		}
	}
	again := next.Copy()
	if _, err := applyEdits(again, merged, findEdits(mine, merged), "g"); err != nil {
		t.Errorf("%s, a second time: %v", which, err)
	} else if change.Fate == odd.Carried && hasPlace && !change.Kept(again) {
		t.Errorf("%s: the change is lost at the second time:\n%s", which, textOf(t, again))
	}
}

// sharesPath tells whether one edit lies at or below the place of the other.
func sharesPath(a, b edit) bool {
	n := min(len(a.path), len(b.path))
	return slices.Equal(a.path[:n], b.path[:n])
}

// sameRoot tells whether two definitions attach their first disk in the same way.
func sameRoot(a, b *etree.Element) bool {
	root := func(e *etree.Element) string {
		for _, key := range keysOf(childrenOf(e.SelectElement("devices"))) {
			if kind(key) == "disk" && strings.HasSuffix(key, "a") {
				return key + serialOf(find(e, []string{"devices", key}))
			}
		}
		return ""
	}
	return root(a) == root(b)
}

func textOf(t *testing.T, e *etree.Element) string {
	t.Helper()
	return must.Get(untree(e))(t)
}

// A definition is no change of itself, and taking changes back leaves what salvor wrote.
func TestEditsAreTakenBack(t *testing.T) {
	for _, file := range must.Get(filepath.Glob("testdata/*.xml"))(t) {
		base := treeOf(t, file)
		if edits := findEdits(base, base.Copy()); len(edits) != 0 {
			t.Errorf("%s: %d edits of an unchanged definition, want none", file, len(edits))
		}
		for _, change := range odd.Changes("/elsewhere") {
			current := base.Copy()
			if change.Kept(base) || !change.Make(current) {
				continue
			}
			mine := current.Copy()
			revertEdits(mine, findEdits(base, current))
			if left := findEdits(base, mine); len(left) != 0 {
				t.Errorf("%s, %s: %v %s is left", file, change.Name, left[0].path, left[0].attr)
			}
		}
	}
}

// A guest of a release that kept no definition is no stranger: nothing of it counts as changed, in a rescue or out of it.
func TestGuestsOfAFormerRelease(t *testing.T) {
	var files []string
	for _, file := range must.Get(filepath.Glob("testdata/*.xml"))(t) {
		if name := filepath.Base(file); strings.HasPrefix(name, "bios") || strings.HasPrefix(name, "uefi") {
			files = append(files, file)
		}
	}
	for _, from := range files {
		now := &definition{text: string(must.Get(os.ReadFile(from))(t))}
		must.OK(t, now.Unmarshal(now.text))
		now.mark, _ = parseMark(now.Metadata.XML)
		for _, to := range files {
			if edits := now.edits(treeOf(t, from), treeOf(t, to), 9_000_000); len(edits) != 0 {
				t.Errorf("%s to %s: %v %s counts as someone else's change", from, to, edits[0].path, edits[0].attr)
			}
		}
	}
	// What nobody but a person adds, and a disk in another file, is seen all the same.
	for _, change := range odd.Changes("/elsewhere") {
		if !slices.Contains([]string{"external snapshot", "blockcopy and pivot", "screen", "PCI device of the host", "pinned CPUs", "second disk"}, change.Name) {
			continue
		}
		base, next := treeOf(t, "testdata/bios.xml"), treeOf(t, "testdata/bios.xml")
		current := base.Copy()
		change.Make(current)
		applied, err := applyEdits(next, current, (&definition{}).edits(current, next, 9_000_000), "g")
		if err != nil || len(applied) == 0 || !change.Kept(next) {
			t.Errorf("%s on a guest of a former release: %d edits applied, error %v, want the change kept:\n%s", change.Name, len(applied), err, textOf(t, next))
		}
	}
}

// Another version of libvirt words a definition otherwise: what it adds is nobody's change.
func TestAnotherLibvirtIsNoStranger(t *testing.T) {
	base := treeOf(t, "testdata/bios.xml")
	now := base.Copy()
	now.SelectElement("cpu").CreateAttr("migratable", "on")
	now.SelectElement("devices").CreateElement("audio").CreateAttr("type", "none")
	now.SelectElement("devices").SelectElement("controller").CreateAttr("ports", "1")
	def := &definition{mark: domainMetadata{Written: writtenDefinition{Libvirt: 9_000_000, Text: textOf(t, base)}}}
	if edits := def.edits(now, nil, 9_000_000); len(edits) != 3 {
		t.Errorf("the same version: %d edits, want 3", len(edits))
	}
	if edits := def.edits(now, nil, 10_000_000); len(edits) != 0 {
		t.Errorf("another version: %v %s counts as someone else's change", edits[0].path, edits[0].attr)
	}
	for _, change := range odd.Changes("/elsewhere") {
		if change.Name != "screen" && change.Name != "second disk" && change.Name != "blockcopy and pivot" {
			continue
		}
		changed := now.Copy()
		change.Make(changed)
		if len(def.edits(changed, nil, 10_000_000)) == 0 {
			t.Errorf("another version: %s is not seen", change.Name)
		}
	}
}

// What is kept of a definition comes back as it was, and holds no password.
func TestWrittenDefinitionInTheMark(t *testing.T) {
	want := domainMetadata{ID: serverID, Epoch: 3, Written: writtenDefinition{Libvirt: 9_000_000, Text: string(must.Get(os.ReadFile("testdata/uefi-disk.xml"))(t))}}
	written := strings.Replace(must.Get(want.Written.xml())(t), "<written ", `<w:written xmlns:w="`+writtenNamespace+`" `, 1)
	text := must.Get(want.xml())(t) + strings.Replace(written, "</written>", "</w:written>", 1)
	got, ours := parseMark(text)
	if !ours || got != want {
		t.Fatalf("the mark came back as %+v (ours: %v), want %+v", got, ours, want)
	}
	if len(text) > 4096 {
		t.Errorf("the mark has %d bytes, want 4096 at most", len(text))
	}
	for _, broken := range []string{"", "?", "H4sIAAAAAAAA", strings.Repeat("A", 1<<16)} {
		m, ours := parseMark(`<salvor:server xmlns:salvor="urn:salvor:server:1" id="` + serverID + `" epoch="3"/><w:written xmlns:w="` + writtenNamespace + `" libvirt="1">` + broken + `</w:written>`)
		if !ours || m.Epoch != 3 || m.Written.Text != "" {
			t.Errorf("written %.20q: ours %v, epoch %d, %d bytes; want a mark with epoch 3 that tells of no definition", broken, ours, m.Epoch, len(m.Written.Text))
		}
	}
}

// The words name the device, once.
func TestDriftInWords(t *testing.T) {
	for _, change := range odd.Changes("/elsewhere") {
		base := treeOf(t, "testdata/bios.xml")
		current := base.Copy()
		if !change.Make(current) {
			continue
		}
		if drift := describeEdits(findEdits(base, current), "g"); len(drift) != 1 || drift[0].Part == "" || drift[0].Text == "" {
			t.Errorf("%s is told as %+v, want one line", change.Name, drift)
		}
	}
}

// TestDriftThatRefusesADefinition: what Define refuses is told with the command that ends it, and in the words of that command's guest.
func TestDriftThatRefusesADefinition(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*etree.Element)
		want   compute.Drift
	}{
		{"renamed", func(e *etree.Element) { e.SelectElement("name").SetText("web") },
			compute.Drift{Part: "name", Text: "was changed from salvor-7 to web",
				Remedy: "virsh domrename web salvor-7", Refuses: true, Off: true}},
		{"disk detached", func(e *etree.Element) {
			devices := e.SelectElement("devices")
			devices.RemoveChild(childrenOf(devices).get("disk vda"))
		}, compute.Drift{Part: "disk vda", Text: "was removed", Refuses: true,
			Remedy: "virsh attach-disk salvor-7 /disks/vda.qcow2 vda --config --subdriver qcow2 --serial vda-6a1f0c9e6d9c4b7e"}},
	} {
		base := treeOf(t, "testdata/bios.xml")
		current := base.Copy()
		c.change(current)
		def := &definition{text: must.Get(untree(current))(t), mark: domainMetadata{Written: writtenDefinition{Libvirt: 9, Text: must.Get(untree(base))(t)}}}
		if got := def.drift(current, 9); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// A disk of the server has the name of its record on every bus; a disk that somebody else attached never takes that name.
func TestNamesOfDisks(t *testing.T) {
	text := `<domain><devices>
<disk type="file" device="disk"><source file="/pool/a"/><target dev="sda" bus="sata"/><serial>vda-6a1f0c9e6d9c4b7e</serial></disk>
<disk type="file" device="disk"><source file="/x.img"/><target dev="vda" bus="virtio"/></disk>
<disk type="file" device="disk"><source file="/y.img"/><target dev="sdb" bus="usb"/><serial>DATA-1</serial></disk>
<disk type="file" device="cdrom"><source file="/z.iso"/><target dev="sdx" bus="sata"/></disk>
</devices></domain>`
	def := &definition{}
	must.OK(t, def.Unmarshal(text))
	var got []string
	for _, d := range disksOf(&def.Domain) {
		got = append(got, d.Name+" "+d.Target+" "+d.File)
	}
	if want := []string{"vda sda /pool/a", "vda vda /x.img", "sdb sdb /y.img"}; !slices.Equal(got, want) {
		t.Errorf("the disks are %q, want %q", got, want)
	}
}

// What somebody changed of one disk is never done to another disk that has its place now.
func TestChangesOfADiskThatIsGone(t *testing.T) {
	for name, wantConflict := range map[string]bool{"external snapshot": true, "cache mode of a disk": false} {
		base, next := treeOf(t, "testdata/bios.xml"), treeOf(t, "testdata/bios.xml")
		current := base.Copy()
		for _, change := range odd.Changes("/elsewhere") {
			if change.Name == name {
				change.Make(current)
			}
		}
		other := find(next, []string{"devices", "disk vda"})
		other.SelectElement("serial").SetText("vda-ffffffffffffffff")
		other.SelectElement("source").CreateAttr("file", "/disks/other")
		_, err := applyEdits(next, current, findEdits(base, current), "g")
		if problem.Is(err, problem.Conflict) != wantConflict || sourceFile(other) != "/disks/other" || other.SelectElement("driver").SelectAttr("cache") != nil {
			t.Errorf("%s of the former disk: %v; the new disk is\n%s\nwant a Conflict: %v, and the new disk untouched", name, err, textOf(t, other), wantConflict)
		}
	}
}
