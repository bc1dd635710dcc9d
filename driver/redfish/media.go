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
	bmc  sessionKey
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
	if _, err := s.get(path, &info); err != nil {
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
		s.hide(iso)
	}
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
		all, err := s.members(list, maxSlots)
		if err != nil {
			return nil, err
		}
		for _, member := range all {
			if len(out) >= maxSlots {
				return out, nil
			}
			slot, err := s.slot(member.Path)
			if err != nil {
				return nil, err
			}
			if only := s.conf.facts.list(quirkDriveOnly); len(only) == 0 || slot.hasID(only) {
				out = append(out, slot)
			}
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

// managers are those that the system names, or else the only one of the service.
func (s *bmcSession) managers(sys *computerSystem) ([]resourceLink, error) {
	if len(sys.Links.ManagedBy) > 0 {
		return sys.Links.ManagedBy, nil
	}
	var top serviceRoot
	if _, err := s.get(rootPath, &top); err != nil || top.Managers.Path == "" {
		return nil, err
	}
	all, err := s.members(top.Managers.Path, maxSlots)
	if err != nil || len(all) != 1 { // several managers, none of them named as this system's: not ours to guess
		return nil, err
	}
	return all, nil
}

func (s *bmcSession) managerMedia(sys *computerSystem) ([]string, error) {
	managers, err := s.managers(sys)
	if err != nil {
		return nil, err
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

// insertPlan shows the machine the images of its plan: the CD, and the config drive if it has one.
func (s *bmcSession) insertPlan(ctx context.Context, n *metal.Node) error {
	s.hideImages(n)
	images := []string{n.Plan.ISOURL()}
	if n.Plan.ConfigDrive {
		images = append(images, n.Plan.FileURL(metal.BootConfigDrive))
	}
	drives, err := s.drives()
	if err != nil {
		return err
	}
	// An image of a former boot in another drive could be what the machine boots.
	for _, slot := range drives {
		if slot.inserted() && isNodeImage(n, slot.Image) && !slices.Contains(images, slot.Image) {
			if err := s.eject(ctx, slot); err != nil {
				return err
			}
			now, err := s.slot(slot.path)
			if err != nil {
				return err
			}
			*slot = *now
		}
	}
	if len(images) > 1 { // a drive that takes both is left to the USB stick
		slices.SortStableFunc(drives, func(a, b *virtualMedia) int {
			return map[bool]int{true: 1}[a.takes("disk")] - map[bool]int{true: 1}[b.takes("disk")]
		})
	}
	if err := s.fill(ctx, drives, "CD", images[0], (*virtualMedia).cd); err != nil || len(images) == 1 {
		return err
	}
	if drives, err = s.drives(); err != nil {
		return err
	}
	return s.fill(ctx, drives, "USB", images[1], func(m *virtualMedia) bool {
		return m.takes("disk") && !(m.inserted() && (m.Image == images[0] || m.Image == "" && m.cd()))
	})
}

// fill inserts an image into one of the drives that suit, unless one has it already.
func (s *bmcSession) fill(ctx context.Context, drives []*virtualMedia, kind, image string, suits func(*virtualMedia) bool) error {
	slots := slices.DeleteFunc(slices.Clone(drives), func(m *virtualMedia) bool { return !suits(m) })
	if len(slots) == 0 {
		return problem.Unsupportedf("the BMC has no virtual %s drive", kind)
	}
	if slices.ContainsFunc(slots, func(slot *virtualMedia) bool { return slot.inserted() && slot.Image == image }) {
		return nil
	}
	return s.fillOne(ctx, slots, image)
}

// fillOne inserts an image into the first of some drives that takes one.
func (s *bmcSession) fillOne(ctx context.Context, slots []*virtualMedia, image string) error {
	slices.SortStableFunc(slots, func(a, b *virtualMedia) int { return s.place(a) - s.place(b) })
	var first error
	for _, slot := range slots {
		err := s.insertInto(ctx, slot, image)
		if !isRefusedForGood(err) {
			return err
		}
		if first == nil {
			first = err
		}
		driver.Note(ctx, "the virtual drive %s takes no medium: %v", s.quote(lastPart(slot.path)), err)
	}
	return first
}

// place is the place of a drive among the others. Empty drives come first, and among these the ones with an action: some BMCs show drives
// that nobody but themselves may fill.
func (s *bmcSession) place(m *virtualMedia) int {
	place := 0
	if first := s.conf.facts.list(quirkDriveOrder); len(first) > 0 && !m.hasID(first) {
		place += 4
	}
	if m.inserted() && !isSalvorImage(m.Image) {
		place += 2
	}
	if m.Actions.Insert.Target == "" {
		place++
	}
	return place
}

// hasID tells whether the drive's id has one of some beginnings.
func (m *virtualMedia) hasID(beginnings []string) bool {
	return slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(lastPart(m.path), b) })
}

// insertInto inserts an image into a drive, whose medium it ejects.
func (s *bmcSession) insertInto(ctx context.Context, slot *virtualMedia, image string) error {
	if slot.inserted() {
		if err := s.eject(ctx, slot); err != nil {
			return err
		}
	}
	members, err := s.insertMembers(slot, image)
	if err != nil {
		return err
	}
	if _, err := negotiate(members, func(body map[string]any) error { return s.order(slot, slot.Actions.Insert.Target, body) }); err != nil {
		return err
	}
	// A BMC may show the image under a name of its own, so a filled drive is proof unless it shows another URL.
	return s.proveSlot(ctx, slot.path, "insert", func(m *virtualMedia) bool {
		return m.inserted() && (m.Image == image || metal.BareURL(m.Image) == metal.BareURL(image) || !strings.Contains(m.Image, "://"))
	})
}

// insertMembers are the parameters of an insertion. BMCs demand most of them, or refuse them, as they please.
func (s *bmcSession) insertMembers(slot *virtualMedia, image string) ([]bodyMember, error) {
	protocol, _, _ := strings.Cut(image, "://")
	members := []bodyMember{
		{name: "Image", values: []any{image}, required: true},
		{name: "Inserted", values: []any{true}},
		{name: "WriteProtected", values: []any{true}},
		{name: "TransferProtocolType", values: []any{strings.ToUpper(protocol)}, onDemand: true},
		{name: "TransferMethod", values: []any{"Stream", "Upload"}, onDemand: true},
		{name: "UserName", values: []any{""}, onDemand: true},
		{name: "Password", values: []any{""}, onDemand: true},
	}
	for i := range members {
		if slices.Contains(s.conf.facts.list(quirkInsert), members[i].name) {
			members[i].onDemand, members[i].required = false, true
		}
	}
	if slot.Actions.Insert.Info == "" {
		return members, nil
	}
	info, err := s.actionInfo(slot.Actions.Insert.Info)
	if problem.Is(err, problem.Unavailable) {
		return nil, err
	}
	if err != nil {
		return members, nil // it is no more than a hint
	}
	for i := range members {
		if p := info.parameter(members[i].name); p != nil && p.Required {
			members[i].onDemand, members[i].required = false, true
		}
	}
	return members, nil
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
