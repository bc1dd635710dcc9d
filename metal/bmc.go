package metal

import (
	"slices"
	"strings"
	"time"

	"salvor/problem"
	"salvor/record"
)

// BMC describes what a BMC offers, as far as the check of an operation needs it. It is read when a node becomes manageable or is
// adopted, and again before an operation works on the machine if it is old. The zero BMC knows nothing and objects to nothing.
type BMC struct {
	ReadAt time.Time
	// DrivesKnown tells whether the virtual drives were read. Drives are their types of medium: CD, DVD, USBStick, ...
	DrivesKnown bool
	Drives      []string
	// OneDriveOnly: no two drives take a CD and a USB stick at the same time, though one takes either.
	OneDriveOnly bool
	// DrivesRefused: the BMC denied the access to its virtual drives (403), as BMCs do without a licence for them.
	DrivesRefused bool
	// MediaUnlicensedAt is the time at which the BMC refused a medium for lack of a licence; zero: it has not since manage read it last.
	MediaUnlicensedAt time.Time
	// Vendor and Model are the machine's, BMCModel and Firmware its BMC's, as the BMC tells them; empty: it does not.
	Vendor, Model, BMCModel, Firmware string
	// Quirks are what salvor knows of this BMC beyond what it tells, as "kind=value".
	Quirks []string
	// QuirkTexts are the same in words, each what salvor does: "waits 5s after a power off".
	QuirkTexts []string
	// BootTargets are the boot devices that the BMC takes, in Ironic's words; empty: any.
	BootTargets []string
}

// bmcKey is where driver_internal_info keeps the description.
const bmcKey = "salvor_bmc"

// BMCOf reads the node's description of its BMC.
func BMCOf(n *Node) BMC {
	o, ok := n.InternalInfo[bmcKey].(map[string]any)
	if !ok {
		return BMC{}
	}
	var b BMC
	b.ReadAt, _ = time.Parse(time.RFC3339, formatScalar(o["read_at"]))
	b.Drives, b.DrivesKnown = textList(o["virtual_drives"])
	b.OneDriveOnly, _ = o["virtual_drive_shared"].(bool)
	b.DrivesRefused, _ = o["virtual_drives_refused"].(bool)
	b.MediaUnlicensedAt, _ = time.Parse(time.RFC3339, formatScalar(o["virtual_media_unlicensed_at"]))
	b.BootTargets, _ = textList(o["boot_devices"])
	b.Quirks, _ = textList(o["quirks"])
	b.QuirkTexts, _ = textList(o["quirk_texts"])
	for key, text := range b.identity() {
		*text, _ = o[key].(string)
	}
	return b
}

func (b *BMC) identity() map[string]*string {
	return map[string]*string{"vendor": &b.Vendor, "model": &b.Model, "bmc_model": &b.BMCModel, "firmware": &b.Firmware}
}

func textList(v any) ([]string, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := []string{}
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out, true
}

// KeepBMC stores the description in the node; the zero BMC removes it.
func KeepBMC(n *Node, b BMC) {
	if b.ReadAt.IsZero() && b.MediaUnlicensedAt.IsZero() {
		n.SetInternal(bmcKey, nil)
		return
	}
	o := map[string]any{}
	if !b.ReadAt.IsZero() {
		o["read_at"] = b.ReadAt.UTC().Format(time.RFC3339)
	}
	list := func(key string, values []string) {
		all := make([]any, len(values))
		for i, w := range values {
			all[i] = w
		}
		o[key] = all
	}
	if b.DrivesKnown {
		list("virtual_drives", b.Drives)
	}
	if b.OneDriveOnly {
		o["virtual_drive_shared"] = true
	}
	if b.DrivesRefused {
		o["virtual_drives_refused"] = true
	}
	if !b.MediaUnlicensedAt.IsZero() {
		o["virtual_media_unlicensed_at"] = b.MediaUnlicensedAt.UTC().Format(time.RFC3339)
	}
	if len(b.BootTargets) > 0 {
		list("boot_devices", b.BootTargets)
	}
	if len(b.Quirks) > 0 {
		list("quirks", b.Quirks)
	}
	if len(b.QuirkTexts) > 0 {
		list("quirk_texts", b.QuirkTexts)
	}
	for key, text := range b.identity() {
		if *text != "" {
			o[key] = *text
		}
	}
	n.SetInternal(bmcKey, o)
}

// NeedsDrive tells why the machine cannot be shown a virtual CD; nil: no reason is known.
func (b BMC) NeedsDrive(n *Node) error {
	switch {
	case !b.MediaUnlicensedAt.IsZero():
		return problem.Invalidf("the BMC of node %s said at %s that it lacks the licence for virtual media: buy or renew it, or set boot_interface to ipxe or http. To have it tried again: salvor node boot device show --supported %s",
			n.ID, record.Moment(b.MediaUnlicensedAt), n.ID)
	case b.DrivesRefused:
		return problem.Invalidf("the BMC of node %s does not let salvor use its virtual drives (403): give its user the right, or the BMC the licence for virtual media%s", n.ID, b.again(n))
	case b.DrivesKnown && !slices.Contains(b.Drives, "CD") && !slices.Contains(b.Drives, "DVD"):
		return problem.Invalidf("the BMC of node %s has no virtual CD drive: set boot_interface to ipxe or http%s", n.ID, b.again(n))
	}
	return nil
}

// NeedsStick tells why the machine cannot be shown a USB stick beside a CD.
func (b BMC) NeedsStick(n *Node) error {
	switch {
	case b.DrivesKnown && !slices.Contains(b.Drives, "USBStick"):
		return problem.Invalidf("the BMC of node %s has no virtual USB drive for the config drive: deploy without one%s", n.ID, b.again(n))
	case b.OneDriveOnly:
		return problem.Invalidf("the BMC of node %s has one virtual drive, for a CD or a USB stick, and the config drive needs a second one: deploy without a config drive%s", n.ID, b.again(n))
	}
	return nil
}

// NeedsTarget tells why the machine cannot be set to boot from a device.
func (b BMC) NeedsTarget(n *Node, device string) error {
	if len(b.BootTargets) == 0 || slices.Contains(b.BootTargets, device) {
		return nil
	}
	return problem.Invalidf("the BMC of node %s cannot boot from %s, only from %s: set another boot_interface%s", n.ID, device, strings.Join(b.BootTargets, ", "), b.again(n))
}

func (b BMC) again(n *Node) string {
	return ". This was read at " + record.Moment(b.ReadAt) + "; salvor node boot device show --supported " + n.ID + " reads it again"
}
