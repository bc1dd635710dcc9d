package redfish

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// Media is the boot interface redfish-virtual-media: the BMC shows the machine an
// ISO image of ours as a CD drive.
type Media struct {
	Driver *Driver
	Files  driver.BootFiles
}

// maxSlots bounds how many managers and slots of a BMC are looked at.
const maxSlots = 32

// Plan computes the boot plan.
func (m *Media) Plan(n *metal.Node, r driver.Ramdisk) (*metal.BootPlan, error) {
	return m.Files.Plan(n, r, metal.BootMedia)
}

// PrepareRamdisk inserts the image of n.Plan and sets the CD drive as the next boot's device.
func (m *Media) PrepareRamdisk(ctx context.Context, n *metal.Node) error {
	if n.Plan == nil {
		return problem.Invalidf("prepare ramdisk of node %s: it has no boot plan", n.ID)
	}
	image := n.Plan.FileURL(metal.BootISO)
	return m.Driver.with(ctx, n, "insert media", func(s *bmcSession) error {
		if err := s.insert(ctx, image); err != nil {
			return err
		}
		return s.setBoot(ctx, rescue.Boot{Device: "cdrom", Mode: driver.BootMode(n), Persistent: n.Plan.Persistent})
	})
}

// CleanUpRamdisk ejects what is ours and removes the override.
func (m *Media) CleanUpRamdisk(ctx context.Context, n *metal.Node) error {
	return m.Driver.with(ctx, n, "eject media", func(s *bmcSession) error {
		slots, err := s.slots()
		if err != nil {
			return err
		}
		for _, slot := range slots {
			if slot.inserted() && (isSalvorImage(slot.Image) || (slot.Image == "" && n.Plan != nil)) {
				if err := s.eject(ctx, slot); err != nil {
					return err
				}
			}
		}
		return s.setBoot(ctx, rescue.Boot{})
	})
}

// PrepareInstance sets the boot that was saved.
func (m *Media) PrepareInstance(ctx context.Context, n *metal.Node, saved rescue.Boot) error {
	return m.Driver.SetBootDevice(ctx, n, saved)
}

// imagePath is the path of every image that a conductor of ours has given out.
var imagePath = regexp.MustCompile(`/boot/[A-Za-z0-9_-]{32}/` + regexp.QuoteMeta(metal.BootISO) + `$`)

// isSalvorImage tells our image from an operator's, of whichever boot and conductor.
func isSalvorImage(image string) bool {
	u, err := url.Parse(image)
	return err == nil && imagePath.MatchString(u.Path)
}

func (m *virtualMedia) inserted() bool {
	if m.Inserted != nil {
		return *m.Inserted
	}
	return m.Image != "" || m.ImageName != ""
}

func (m *virtualMedia) cd() bool {
	return slices.ContainsFunc(m.MediaTypes, func(t string) bool { return t == "CD" || t == "DVD" })
}

// slots reads the CD drives.
func (s *bmcSession) slots() ([]*virtualMedia, error) {
	all, err := s.drives()
	return slices.DeleteFunc(all, func(m *virtualMedia) bool { return !m.cd() }), err
}

// drives reads all virtual drives of the managers, then of the system: BMCs have them here or there.
func (s *bmcSession) drives() ([]*virtualMedia, error) {
	sys, err := s.read()
	if err != nil {
		return nil, err
	}
	lists, err := s.managerMedia(sys)
	if err != nil {
		return nil, err
	}
	if sys.VirtualMedia.Path != "" && !slices.Contains(lists, sys.VirtualMedia.Path) {
		lists = append(lists, sys.VirtualMedia.Path)
	}
	var out []*virtualMedia
	for _, list := range lists {
		var all resourceCollection
		if _, err := s.get(list, &all); err != nil {
			return nil, err
		}
		for _, member := range all.Members {
			if len(out) >= maxSlots {
				return out, nil
			}
			slot, err := s.slot(member.Path)
			if err != nil {
				return nil, err
			}
			out = append(out, slot)
		}
	}
	return out, nil
}

func (s *bmcSession) slot(path string) (*virtualMedia, error) {
	slot := &virtualMedia{path: path}
	etag, err := s.get(path, slot)
	slot.etag = etag
	return slot, err
}

func (s *bmcSession) managerMedia(sys *computerSystem) ([]string, error) {
	managers := sys.Links.ManagedBy
	if len(managers) == 0 {
		var top serviceRoot
		if _, err := s.get(rootPath, &top); err != nil {
			return nil, err
		}
		if top.Managers.Path != "" {
			var all resourceCollection
			if _, err := s.get(top.Managers.Path, &all); err != nil {
				return nil, err
			}
			// Several managers, none of them said to be this system's: not ours to guess.
			if len(all.Members) == 1 {
				managers = all.Members
			}
		}
	}
	var out []string
	for _, manager := range managers[:min(len(managers), maxSlots)] {
		var doc struct{ VirtualMedia resourceLink }
		if _, err := s.get(manager.Path, &doc); err != nil {
			return nil, err
		}
		if doc.VirtualMedia.Path != "" {
			out = append(out, doc.VirtualMedia.Path)
		}
	}
	return out, nil
}

// insert puts the image into a CD drive: the one that has it already, else an empty
// one, else the first, whose medium is ejected.
func (s *bmcSession) insert(ctx context.Context, image string) error {
	slots, err := s.slots()
	if err != nil {
		return err
	}
	if len(slots) == 0 {
		return problem.Unsupportedf("the BMC has no virtual CD drive")
	}
	chosen := slots[0]
	for _, slot := range slots {
		if slot.inserted() && slot.Image == image {
			return nil
		}
		if chosen.inserted() && !slot.inserted() {
			chosen = slot
		}
	}
	// An image of a former boot in another drive could be what the machine boots.
	for _, slot := range slots {
		if slot.inserted() && (slot == chosen || isSalvorImage(slot.Image)) {
			if err := s.eject(ctx, slot); err != nil {
				return err
			}
		}
	}
	return s.fill(ctx, chosen, image)
}

// fill inserts an image into an empty drive.
func (s *bmcSession) fill(ctx context.Context, slot *virtualMedia, image string) error {
	if err := s.order(slot, slot.Actions.Insert.Target, map[string]any{"Image": image, "Inserted": true, "WriteProtected": true}); err != nil {
		if !problem.Is(err, problem.Invalid) {
			return err
		}
		// Some refuse every parameter but the image.
		if err := s.order(slot, slot.Actions.Insert.Target, map[string]any{"Image": image}); err != nil {
			return err
		}
	}
	// A BMC may show the image under a name of its own, so a filled drive is proof unless it shows another URL.
	return s.proveSlot(ctx, slot.path, "insert", func(m *virtualMedia) bool {
		return m.inserted() && (m.Image == image || metal.BareURL(m.Image) == metal.BareURL(image) || !strings.Contains(m.Image, "://"))
	})
}

func (s *bmcSession) eject(ctx context.Context, slot *virtualMedia) error {
	body := map[string]any{}
	if slot.Actions.Eject.Target == "" {
		body = map[string]any{"Image": nil, "Inserted": false}
	}
	if err := s.order(slot, slot.Actions.Eject.Target, body); err != nil {
		// It may be out already.
		if now, err2 := s.slot(slot.path); err2 != nil || now.inserted() {
			return err
		}
		return nil
	}
	return s.proveSlot(ctx, slot.path, "eject", func(m *virtualMedia) bool { return !m.inserted() })
}

// order runs an action of a drive, or changes the drive itself where the BMC offers no action.
func (s *bmcSession) order(slot *virtualMedia, action string, body map[string]any) error {
	if action == "" {
		return s.patch(slot.path, slot.etag, body)
	}
	definite, err := s.post(action, body)
	if err != nil && !definite {
		// Cut off: whether it was taken, the read-back tells.
		return nil
	}
	return err
}

func (s *bmcSession) proveSlot(ctx context.Context, path, what string, is func(*virtualMedia) bool) error {
	var last *virtualMedia
	done, err := driver.PollUntil(ctx, func(context.Context) (bool, error) {
		now, err := s.slot(path)
		if err != nil {
			return false, err
		}
		last = now
		return is(now), nil
	})
	if done || err != nil {
		return err
	}
	return problem.Unavailablef("%s: the BMC took the order, but the drive still reads inserted=%t", what, last != nil && last.inserted())
}
