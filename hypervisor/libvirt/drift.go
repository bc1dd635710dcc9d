package libvirt

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/beevik/etree"
	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
)

// tree is the text of a definition as elements.
func tree(text string) (*etree.Element, error) {
	doc := etree.NewDocument()
	if err := doc.ReadFromString(text); err != nil {
		return nil, err
	}
	root := doc.Root()
	if root == nil {
		return nil, errDefinition
	}
	return root, nil
}

func untree(root *etree.Element) (string, error) {
	doc := etree.NewDocument()
	doc.SetRoot(root.Copy())
	return doc.WriteToString()
}

// libvirtVersion is the version of the daemon as a number: 9000000 is 9.0.0.
func (h *Hypervisor) libvirtVersion(ctx context.Context) (uint64, error) {
	return callLibvirt(ctx, h, "read libvirt's version", h.opts.Timeout, func(c *rpc.Libvirt) (uint64, error) { return c.ConnectGetLibVersion() })
}

// write makes a guest's persistent definition what next says, with what somebody else changed since salvor last wrote it. before is the
// definition that is there, with its passwords; nil: there is none. Conflict: an edit and next cannot both be.
//
// libvirt adds its own words to a definition. So write reads the definition back, takes the edits out of it, and keeps the result in
// the metadata: the next write and each look compare with it.
func (h *Hypervisor) write(ctx context.Context, before *definition, next *libvirtxml.Domain) error {
	text, err := next.Marshal()
	if err != nil {
		return fmt.Errorf("define guest %s: %w", next.Name, err)
	}
	root, err := tree(text)
	if err != nil {
		return fmt.Errorf("define guest %s: %w", next.Name, err)
	}
	version, err := h.libvirtVersion(ctx)
	if err != nil {
		return err
	}
	var edits []edit
	if before != nil {
		now, err := tree(before.text)
		if err != nil {
			return fmt.Errorf("define guest %s: %w", next.Name, err)
		}
		if edits, err = applyEdits(root, now, before.edits(now, root, version), next.Name); err != nil {
			return err
		}
	}
	if text, err = untree(root); err != nil {
		return fmt.Errorf("define guest %s: %w", next.Name, err)
	}
	dom, err := h.defineXML(ctx, next.Name, text)
	if err != nil {
		return err
	}
	return h.noteWritten(ctx, dom, edits, version, next.Name)
}

// noteWritten keeps in the metadata of a definition what salvor wrote: the definition as it is now without the edits, under the name that
// salvor gave the guest.
func (h *Hypervisor) noteWritten(ctx context.Context, dom rpc.Domain, edits []edit, version uint64, name string) error {
	def, err := h.persistent(ctx, dom) // without passwords
	if err != nil {
		return err
	}
	mine, err := tree(def.text)
	if err != nil {
		return fmt.Errorf("define guest %s: %w", dom.Name, err)
	}
	revertEdits(mine, edits)
	if e := mine.SelectElement("name"); e != nil && name != "" {
		e.SetText(name)
	}
	for _, e := range mine.FindElements("//*[@passwd]") { // an edit was read with it
		e.RemoveAttr("passwd")
	}
	if old := mine.SelectElement("metadata"); old != nil {
		mine.RemoveChild(old)
	}
	written := writtenDefinition{Libvirt: version}
	if written.Text, err = untree(mine); err != nil {
		return fmt.Errorf("define guest %s: %w", dom.Name, err)
	}
	text, err := written.xml()
	if err != nil {
		return fmt.Errorf("define guest %s: %w", dom.Name, err)
	}
	// This element alone is written: a snapshot that another tool takes meanwhile stays in the definition.
	return callOnly(ctx, h, "mark guest "+dom.Name, h.opts.Timeout, func(c *rpc.Libvirt) error {
		return c.DomainSetMetadata(dom, int32(rpc.DomainMetadataElement), rpc.OptString{text}, rpc.OptString{writtenPrefix}, rpc.OptString{writtenNamespace}, rpc.DomainAffectConfig)
	})
}

func (h *Hypervisor) defineXML(ctx context.Context, guest, text string) (rpc.Domain, error) {
	return callLibvirt(ctx, h, "define guest "+guest, h.opts.Timeout, func(c *rpc.Libvirt) (rpc.Domain, error) {
		dom, err := c.DomainDefineXML(text)
		if err != nil {
			return dom, err
		}
		if on, err := c.DomainGetAutostart(dom); err != nil || on == 0 {
			return dom, err
		}
		return dom, c.DomainSetAutostart(dom, 0)
	})
}

// amend has change, a call of libvirt, change a guest's persistent definition, and counts that change as salvor's.
func (h *Hypervisor) amend(ctx context.Context, dom rpc.Domain, change func() error) error {
	before, err := h.persistent(ctx, dom)
	if err != nil {
		return err
	}
	version, err := h.libvirtVersion(ctx)
	if err != nil {
		return err
	}
	now, err := tree(before.text)
	if err != nil {
		return fmt.Errorf("read guest %s: %w", dom.Name, err)
	}
	if err := change(); err != nil || before.mark.Written.Text == "" {
		return err
	}
	return h.noteWritten(ctx, dom, before.edits(now, nil, version), version, nameOf(before.mark.Written.Text))
}

// edits are what somebody else changed in a definition since salvor last wrote it. now is the definition as elements; next, what salvor
// is about to write, is looked at where nothing tells what salvor wrote last.
func (d *definition) edits(now, next *etree.Element, version uint64) []edit {
	written, err := tree(d.mark.Written.Text)
	if d.mark.Written.Text == "" || err != nil {
		return editsOfFormerRelease(now, next, d.mark.Rescue != "")
	}
	edits := findEdits(written, now)
	if d.mark.Written.Libvirt == version {
		return edits
	}
	return slices.DeleteFunc(edits, edit.mayBeLibvirts)
}

// mayBeLibvirts tells whether another version of libvirt may have made the edit by itself: it added a default.
func (e edit) mayBeLibvirts() bool {
	return e.added() && !(e.whole() && slices.Contains(attachedByPeople, kind(e.device()))) && !slices.Contains(tunedByPeople, e.path[0])
}

// attachedByPeople are the kinds of devices that libvirt never adds by itself, tunedByPeople the elements below <domain>.
var (
	attachedByPeople = []string{"disk", "interface", "hostdev", "filesystem", "graphics", "sound", "tpm", "redirdev", "watchdog", "vsock", "shmem", "memory",
		"smartcard", "lease", "panic", "channel", "crypto"}
	tunedByPeople = []string{"memoryBacking", "memtune", "numatune", "cputune", "iothreads", "iothreadids", "blkiotune", "sysinfo", "qemu:commandline", "launchSecurity", "idmap"}
)

// editsOfFormerRelease finds edits where no definition of ours is kept: disks in other files, and what libvirt never adds by itself.
// What differs otherwise may be the work of the former release.
func editsOfFormerRelease(now, next *etree.Element, rescued bool) (out []edit) {
	if next == nil {
		return nil
	}
	before, after := childrenOf(next), childrenOf(now)
	for _, c := range after {
		if before.get(c.key) == nil && slices.Contains(tunedByPeople, c.FullTag()) {
			out = append(out, edit{path: []string{c.key}, now: c.Element})
		}
	}
	mine, theirs := next.SelectElement("devices"), now.SelectElement("devices")
	if mine == nil || theirs == nil {
		return out
	}
	before, after = childrenOf(mine), childrenOf(theirs)
	for _, c := range after {
		path := []string{"devices", c.key}
		was := before.get(c.key)
		switch {
		case was == nil && rescued && (kind(c.key) == "disk" || kind(c.key) == "channel"): // the rescue system's
		case was == nil && kind(c.key) == "disk" && isOurDisk(c.Element): // detached by salvor meanwhile
		case was == nil && slices.Contains(attachedByPeople, kind(c.key)) && kind(c.key) != "channel":
			out = append(out, edit{path: path, now: c.Element})
		case was != nil && kind(c.key) == "disk" && was.SelectAttrValue("device", "disk") == "disk" && isMoved(was, c.Element):
			out = append(out, findBelow(path, was, c.Element)...)
		}
	}
	return out
}

// ownSerial is the form of the serial that salvor gives a disk in a file: its name, and half of the server's UUID.
var ownSerial = regexp.MustCompile(`^vd[a-z]-[0-9a-f]{16}$`)

// isOurDisk tells whether salvor attached a disk: its serial is one that salvor gives, which for a volume is its UUID.
func isOurDisk(e *etree.Element) bool {
	serial := serialOf(e)
	return ownSerial.MatchString(serial) || uuid.Validate(serial) == nil
}

// isMoved tells whether a disk lies in another file than salvor would write. A file that is not there may be on a store that is not mounted, so
// it counts too.
func isMoved(next, now *etree.Element) bool {
	want, is := sourceFile(next), sourceFile(now)
	return want != "" && is != "" && want != is
}

func sourceFile(disk *etree.Element) string {
	if s := disk.SelectElement("source"); s != nil {
		return s.SelectAttrValue("file", "")
	}
	return ""
}

// findBelow are the edits of the source and the driver of one disk.
func findBelow(path []string, was, now *etree.Element) (out []edit) {
	for _, key := range []string{"source", "driver", "backingStore"} {
		w, n := was.SelectElement(key), now.SelectElement(key)
		below := append(slices.Clone(path), key)
		switch {
		case w != nil && n != nil && key == "driver":
			if w.SelectAttrValue("type", "") != n.SelectAttrValue("type", "") {
				out = append(out, edit{path: below, attr: "type", was: w, now: n})
			}
		case w != nil && n != nil:
			out = append(out, appendEdits(nil, below, w, n)...)
		case n != nil:
			out = append(out, edit{path: below, now: n})
		}
	}
	return out
}

// disksOf are the disks of a guest that lie in files, without CD drives and the disk of a rescue system.
func disksOf(def *libvirtxml.Domain) []compute.GuestDisk {
	var out []compute.GuestDisk
	if def.Devices == nil {
		return nil
	}
	for _, d := range def.Devices.Disks {
		if d.Device == "cdrom" || d.Device == "floppy" || d.Serial == rescueSerial || d.Target == nil || d.Source == nil || d.Source.File == nil {
			continue
		}
		disk := compute.GuestDisk{Name: d.Target.Dev, Target: d.Target.Dev, File: d.Source.File.File}
		// On another bus than virtio a disk of the server has another target. A disk of somebody else keeps the name of its target.
		if name, _, salvors := strings.Cut(d.Serial, "-"); salvors && ownSerial.MatchString(d.Serial) {
			disk.Name = name
		}
		if d.Driver != nil {
			disk.Format = d.Driver.Type
		}
		disk.Chain = chainOf(nil, d.BackingStore)
		disk.Copying = d.Mirror != nil
		out = append(out, disk)
	}
	return out
}

// chainOf are the files of a disk: its own first, then those that it is based on.
func chainOf(s *libvirtxml.DomainDiskSource, below *libvirtxml.DomainDiskBackingStore) (out []string) {
	if s != nil && s.File != nil {
		out = append(out, s.File.File)
	}
	for ; below != nil; below = below.BackingStore {
		if below.Source != nil && below.Source.File != nil {
			out = append(out, below.Source.File.File)
		}
	}
	return out
}

// driftOf says what somebody else changed in a guest's definition. Each definition is compared once: the answer is kept until the text
// changes.
func (h *Hypervisor) driftOf(ctx context.Context, def *definition) []compute.Drift {
	h.mu.Lock()
	known, ok := h.drift[def.UUID]
	h.mu.Unlock()
	if ok && known.text == def.text {
		return known.drift
	}
	version, err := h.libvirtVersion(ctx)
	if err != nil {
		return known.drift
	}
	now, err := tree(def.text)
	if err != nil {
		return nil
	}
	found := def.drift(now, version)
	h.mu.Lock()
	h.drift[def.UUID] = knownDrift{text: def.text, drift: found}
	h.mu.Unlock()
	return found
}

// drift says what somebody else changed in a definition since salvor last wrote it. now is the definition as elements.
func (d *definition) drift(now *etree.Element, version uint64) []compute.Drift {
	found := describeEdits(d.edits(now, nil, version), textOfChild(now, "name"))
	if was, is := nameOf(d.mark.Written.Text), textOfChild(now, "name"); was != "" && was != is {
		found = append([]compute.Drift{{Part: "name", Text: "was changed from " + was + " to " + is, Refuses: true, Off: true, Remedy: renameCommand(is, was)}}, found...)
	}
	return compute.BoundDrift(found)
}

// renameCommand is the command that gives a guest its name again. libvirt renames only persistent guests that are off.
func renameCommand(is, was string) string { return "virsh domrename " + is + " " + was }

// nameOf is the guest's name in the text of a definition; empty: it is not understood.
func nameOf(text string) string {
	root, err := tree(text)
	if err != nil {
		return ""
	}
	return textOfChild(root, "name")
}

func textOfChild(e *etree.Element, child string) string {
	if c := e.SelectElement(child); c != nil {
		return c.Text()
	}
	return ""
}

// attachCommand is the command that attaches a disk in a file to a guest again, on the guest's next start; disk is its element when salvor
// wrote it last. A guest may be on or off for it. Empty: the disk is a volume, for which virsh has no command.
func attachCommand(guest string, disk *etree.Element) string {
	file, target, format := sourceFile(disk), disk.FindElement("target"), "raw"
	if file == "" || target == nil {
		return ""
	}
	if d := disk.SelectElement("driver"); d != nil {
		format = d.SelectAttrValue("type", format)
	}
	return fmt.Sprintf("virsh attach-disk %s %s %s --config --subdriver %s --serial %s", guest, file, target.SelectAttrValue("dev", ""), format, serialOf(disk))
}

type knownDrift struct {
	text  string
	drift []compute.Drift
}

// describeEdits says edits in words, one line for each device or element. Disks in other files are told by whoever knows the files.
func describeEdits(edits []edit, guest string) (out []compute.Drift) {
	for _, e := range edits {
		part, text := e.path[0], "was changed"
		if e.device() != "" {
			part = e.device()
		}
		switch {
		case e.added() && (len(e.path) == 1 || e.whole()):
			text = compute.DriftAdded
		case e.removed() && (len(e.path) == 1 || e.whole()):
			text = "was removed"
		}
		if i := slices.IndexFunc(out, func(d compute.Drift) bool { return d.Part == part }); i < 0 {
			d := compute.Drift{Part: part, Text: text}
			if e.whole() && e.removed() && kind(part) == "disk" && isOurDisk(e.was) {
				d.Refuses, d.Remedy = true, attachCommand(guest, e.was)
			}
			out = append(out, d)
		}
	}
	return out
}
