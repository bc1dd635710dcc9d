package redfish

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/memory"
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

// actionInfo is an ActionInfo resource: what an action takes.
type actionInfo struct {
	Parameters []actionParameter
}

type actionParameter struct {
	Name     string
	Required bool
}

func (a *actionInfo) parameter(name string) *actionParameter {
	i := slices.IndexFunc(a.Parameters, func(p actionParameter) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &a.Parameters[i]
}

// actionInfoAge is how long an ActionInfo that was read counts, and maxActionInfos bounds how many are remembered. It is a matter of the
// BMC's firmware, so one reading for an operation is enough.
const (
	actionInfoAge  = 10 * time.Minute
	maxActionInfos = 1000
)

// actionInfoMemo remembers ActionInfo resources by BMC and path.
type actionInfoMemo struct {
	mu    sync.Mutex
	known map[actionInfoKey]timedActionInfo
}

type actionInfoKey struct {
	bmc  memory.Key
	path string
}

type timedActionInfo struct {
	info actionInfo
	at   time.Time
}

// actionInfo reads an ActionInfo, or remembers it.
func (s *bmcSession) actionInfo(path string) (info actionInfo, err error) {
	key := actionInfoKey{s.key, path}
	s.infos.mu.Lock()
	known, ok := s.infos.known[key]
	s.infos.mu.Unlock()
	if ok && time.Since(known.at) < actionInfoAge {
		return known.info, nil
	}
	if _, err := s.bmc.Get(path, &info); err != nil {
		return info, err
	}
	s.infos.mu.Lock()
	defer s.infos.mu.Unlock()
	if s.infos.known == nil || len(s.infos.known) >= maxActionInfos {
		s.infos.known = map[actionInfoKey]timedActionInfo{}
	}
	s.infos.known[key] = timedActionInfo{info, time.Now()}
	return info, nil
}

// maxSlots bounds how many managers and slots of a BMC are looked at.
const maxSlots = 32

// Plan computes the boot plan. A config drive needs a second virtual drive, as in Ironic one for USB sticks.
func (m *Media) Plan(n *metal.Node, r driver.Ramdisk) (*metal.BootPlan, error) {
	if r.ConfigDrive {
		if err := metal.BMCOf(n).NeedsStick(n); err != nil {
			return nil, problem.Invalidf("boot plan of node %s: %w", n.ID, err)
		}
	}
	return m.Files.Plan(n, r, metal.BootMedia)
}

// PrepareRamdisk inserts the images of n.Plan and sets the CD drive as the next boot's device.
func (m *Media) PrepareRamdisk(ctx context.Context, n *metal.Node) error {
	if n.Plan == nil {
		return problem.Invalidf("prepare ramdisk of node %s: it has no boot plan", n.ID)
	}
	return m.Driver.with(ctx, n, "insert media", func(s *bmcSession) error {
		if err := s.insertPlan(ctx, n); err != nil {
			return err
		}
		return s.setBoot(ctx, rescue.Boot{Device: "cdrom", Mode: driver.BootMode(n), Persistent: n.Plan.Persistent})
	})
}

// CleanUpRamdisk ejects what is ours and removes the override.
func (m *Media) CleanUpRamdisk(ctx context.Context, n *metal.Node) error {
	return m.Driver.with(ctx, n, "eject media", func(s *bmcSession) error {
		s.hideImages(n)
		drives, err := s.drives()
		if err != nil {
			return err
		}
		for _, slot := range drives {
			unnamed := slot.Image == "" && n.Plan != nil && (slot.cd() || n.Plan.ConfigDrive && slot.takes("disk"))
			if slot.inserted() && (isNodeImage(n, slot.Image) || unnamed) {
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
var imagePath = regexp.MustCompile(`/boot/[A-Za-z0-9_-]{32}/(` + regexp.QuoteMeta(metal.BootISO) + `|` + regexp.QuoteMeta(metal.BootConfigDrive) + `)$`)

// isSalvorImage tells our image from an operator's, of whichever boot and conductor.
func isSalvorImage(image string) bool {
	u, err := url.Parse(image)
	return err == nil && imagePath.MatchString(u.Path)
}

// isNodeImage tells what a boot of ours inserts for the node from an operator's medium: our own images, and the ISO images that the
// node's records name. A BMC may show a URL without what opens it.
func isNodeImage(n *metal.Node, image string) bool {
	if isSalvorImage(image) {
		return true
	}
	return image != "" && slices.ContainsFunc(isoImages(n), func(iso string) bool { return image == iso || metal.BareURL(image) == metal.BareURL(iso) })
}

// isoImages are the URLs of ISO images that the node's plan and records name.
func isoImages(n *metal.Node) []string {
	all := []string{metal.Text(n.InstanceInfo["boot_iso"]), n.Info("deploy_iso"), n.Info("rescue_iso")}
	if n.Plan != nil {
		all = append(all, n.Plan.ISO)
	}
	return slices.DeleteFunc(all, func(iso string) bool { return !strings.Contains(iso, "://") })
}

// hideImages keeps what opens those URLs out of errors.
func (s *bmcSession) hideImages(n *metal.Node) {
	for _, iso := range isoImages(n) {
		s.bmc.HideURL(iso)
	}
}

func (m *virtualMedia) inserted() bool {
	if m.Inserted != nil {
		return *m.Inserted
	}
	return m.Image != "" || m.ImageName != ""
}

func (m *virtualMedia) cd() bool {
	return m.takes("cdrom")
}

// drives reads all virtual drives of the managers, then of the system: BMCs have them here or there. A drive that cannot be read is left out;
// the error of one is that of the operation only where no drive can be read. Lists that are empty for the moment are no claim that all drives are empty.
func (s *bmcSession) drives() ([]*virtualMedia, error) {
	sys, err := s.read()
	if err != nil {
		return nil, err
	}
	lists, first := s.managerMedia(sys)
	if first != nil && s.bmc.LeaveOut(first) != nil {
		return nil, first
	}
	if sys.VirtualMedia.Path != "" && !slices.ContainsFunc(lists, func(l link.Link) bool { return link.Same(l.Path, sys.VirtualMedia.Path) }) {
		lists = append(lists, sys.VirtualMedia)
	}
	var out []*virtualMedia
	for _, list := range lists {
		_, err := conversation.Each(s.bmc, list, maxSlots, func(path, etag string, slot *virtualMedia) {
			slot.path, slot.etag = path, etag
			if only := s.conf.facts.list(quirkDriveOnly); len(out) < maxSlots && (len(only) == 0 || slot.hasID(only)) {
				out = append(out, slot)
			}
		})
		if s.bmc.LeaveOut(err) != nil {
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	if len(out) == 0 && first == nil {
		first = s.bmc.Emptied()
	}
	if len(out) == 0 {
		return nil, first
	}
	return out, nil
}

func (s *bmcSession) slot(path string) (*virtualMedia, error) {
	slot := &virtualMedia{path: path}
	etag, err := s.bmc.Get(path, slot)
	slot.etag = etag
	return slot, err
}

// managers are those that the system names, or else the only one of the service.
func (s *bmcSession) managers(sys *computerSystem) (link.Links, error) {
	if len(sys.Links.ManagedBy) > 0 {
		return sys.Links.ManagedBy, nil
	}
	var top serviceRoot
	if _, err := s.bmc.Get(conversation.RootPath, &top); err != nil || top.Managers.Path == "" {
		return nil, err
	}
	before := s.bmc.Unread()
	all, err := s.bmc.Members(top.Managers.Path, maxSlots)
	if err != nil || len(all) != 1 || s.bmc.Unread() > before { // several managers, none of them named as this system's: not ours to guess
		return nil, err
	}
	return all, nil
}

func (s *bmcSession) managerMedia(sys *computerSystem) (out []link.Link, err error) {
	managers, err := s.managers(sys)
	if err != nil {
		return nil, err
	}
	_, err = conversation.EachOf(s.bmc, managers[:min(len(managers), maxSlots)], func(_, _ string, doc *struct{ VirtualMedia link.Link }) {
		if doc.VirtualMedia.Path != "" {
			out = append(out, doc.VirtualMedia)
		}
	})
	return out, err
}
