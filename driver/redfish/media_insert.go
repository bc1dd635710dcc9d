package redfish

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/driver/redfish/refusal"
	"salvor/metal"
	"salvor/problem"
)

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
		return s.bmc.Lacking(problem.Unsupportedf("the BMC has no virtual %s drive in its lists of virtual media (VirtualMedia)%s", kind, otherDrives(drives)))
	}
	if slices.ContainsFunc(slots, func(slot *virtualMedia) bool { return slot.inserted() && slot.Image == image }) {
		return nil
	}
	return s.fillOne(ctx, slots, image)
}

// maxOtherDrives bounds the drives that an error names.
const maxOtherDrives = 4

// otherDrives names the drives that are there, with what they say that they take, for an error about a drive of another kind; empty: there is none.
func otherDrives(drives []*virtualMedia) string {
	var names []string
	for _, m := range drives[:min(len(drives), maxOtherDrives)] {
		names = append(names, fmt.Sprintf("%s (%s)", driver.Sanitize(link.ID(m.path)), cmp.Or(joinTexts(m.MediaTypes), "of an unknown kind")))
	}
	if names == nil {
		return ""
	}
	return "; it has " + strings.Join(names, ", ")
}

// fillOne inserts an image into the first of some drives that takes one.
func (s *bmcSession) fillOne(ctx context.Context, slots []*virtualMedia, image string) error {
	slices.SortStableFunc(slots, func(a, b *virtualMedia) int { return s.place(a) - s.place(b) })
	var first error
	for _, slot := range slots {
		err := s.insertInto(ctx, slot, image)
		if !refusal.IsForGood(err) {
			return err
		}
		if first == nil {
			first = err
		}
		driver.Note(ctx, "the virtual drive %s takes no medium: %v", s.bmc.Quote(link.ID(slot.path)), err)
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
	return slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(link.ID(m.path), b) })
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
	var order conversation.Order
	_, err = refusal.Negotiate(members, func(body map[string]any) (err error) {
		order, err = s.order(slot, slot.Actions.Insert.Target, body)
		return err
	})
	if err != nil {
		return err
	}
	// A BMC may show the image under a name of its own, so a filled drive is proof unless it shows another URL.
	return s.proveSlot(ctx, order, slot.path, "insert", func(m *virtualMedia) bool {
		return m.inserted() && (m.Image == image || metal.BareURL(m.Image) == metal.BareURL(image) || !strings.Contains(m.Image, "://"))
	})
}

// insertMembers are the parameters of an insertion. BMCs demand most of them, or refuse them, as they please.
func (s *bmcSession) insertMembers(slot *virtualMedia, image string) ([]refusal.Member, error) {
	protocol, _, _ := strings.Cut(image, "://")
	members := []refusal.Member{
		{Name: "Image", Values: []any{image}, Required: true},
		{Name: "Inserted", Values: []any{true}},
		{Name: "WriteProtected", Values: []any{true}},
		{Name: "TransferProtocolType", Values: []any{strings.ToUpper(protocol)}, OnDemand: true},
		{Name: "TransferMethod", Values: []any{"Stream", "Upload"}, OnDemand: true},
		{Name: "UserName", Values: []any{""}, OnDemand: true},
		{Name: "Password", Values: []any{""}, OnDemand: true},
	}
	for i := range members {
		if slices.Contains(s.conf.facts.list(quirkInsert), members[i].Name) {
			members[i].OnDemand, members[i].Required = false, true
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
		if p := info.parameter(members[i].Name); p != nil && p.Required {
			members[i].OnDemand, members[i].Required = false, true
		}
	}
	return members, nil
}

func (s *bmcSession) eject(ctx context.Context, slot *virtualMedia) error {
	body := map[string]any{}
	if slot.Actions.Eject.Target == "" {
		body = map[string]any{"Image": nil, "Inserted": false}
	}
	order, err := s.order(slot, slot.Actions.Eject.Target, body)
	if err != nil {
		// It may be out already.
		if now, err2 := s.slot(slot.path); err2 != nil || now.inserted() {
			return err
		}
		return nil
	}
	return s.proveSlot(ctx, order, slot.path, "eject", func(m *virtualMedia) bool { return !m.inserted() })
}

// order runs an action of a drive, or changes the drive itself where the BMC offers no action.
func (s *bmcSession) order(slot *virtualMedia, action string, body map[string]any) (order conversation.Order, err error) {
	if action == "" {
		order, err = s.bmc.Patch(slot.path, slot.etag, body)
	} else {
		order, err = s.bmc.Post(action, body)
	}
	if err != nil {
		err = problem.New(problem.KindOf(err), "virtual drive %s: %w", s.bmc.Quote(link.ID(slot.path)), err)
	}
	return order, err
}

// shownImage is what a drive shows of its medium, without what opens an image of salvor's.
func shownImage(m *virtualMedia) string {
	if m == nil || isSalvorImage(m.Image) {
		return ""
	}
	return metal.BareURL(m.Image)
}

func (s *bmcSession) proveSlot(ctx context.Context, order conversation.Order, path, what string, is func(*virtualMedia) bool) error {
	var last *virtualMedia
	done, err := s.bmc.Prove(ctx, order, func(context.Context) (bool, error) {
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
	return problem.Unavailablef("%s: %s, but the drive still reads inserted=%t and the image %s", what, s.bmc.Taken(order), last != nil && last.inserted(), s.bmc.Quote(shownImage(last)))
}
