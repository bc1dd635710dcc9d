package metal

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"time"

	"salvor/job"
	"salvor/record"
	"salvor/rescue"
)

// While a restored database is held, conductors read the machines. The functions here compare the readings with the records.

// HeldReading is one reading of a machine. The reading changed nothing.
type HeldReading struct {
	NodeID string
	ReadAt time.Time
	Facts  HeldFacts
}

// HeldFacts are the facts that a BMC reported. Unreadable gives the error for a fact that could not be read. A fact that the driver
// does not support is absent.
type HeldFacts struct {
	Power      Power             `json:"power,omitempty"`
	Boot       *rescue.Boot      `json:"boot,omitempty"`
	Media      []Medium          `json:"media,omitempty"`
	MediaRead  bool              `json:"media_read,omitempty"`
	Networks   []string          `json:"networks,omitempty"`
	NetsRead   bool              `json:"networks_read,omitempty"`
	Unreadable map[string]string `json:"unreadable,omitempty"`
}

// Names of facts.
const (
	FactPower  = "power"
	FactBoot   = "boot device"
	FactMedia  = "virtual media"
	FactNet    = "network"
	noOverride = "no override"
	noMedia    = "none"
	noNetwork  = "none"
)

// HeldStore stores the readings.
type HeldStore interface {
	// UnreadNodes lists up to limit nodes of the conductor groups that have no reading; nil groups: of all groups. It skips nodes in
	// enroll, because their machines are unknown.
	UnreadNodes(ctx context.Context, groups []string, limit int) ([]*Node, error)
	// SaveReadings stores readings and replaces earlier ones. It ignores nodes that do not exist any more.
	SaveReadings(ctx context.Context, readings []HeldReading) error
	// Readings lists the readings of these nodes, by id; there is none of a node that was not read.
	Readings(ctx context.Context, tx job.Tx, ids []string) (map[string]HeldReading, error)
	// DropReadings deletes all readings, so that conductors read again.
	DropReadings(tx job.Tx) error
}

// HeldDifferences compares a node with the reading of its machine.
func (n *Node) HeldDifferences(r HeldReading) []record.Difference {
	var out []record.Difference
	add := func(what, recorded, found string) {
		why := r.Facts.Unreadable[what]
		if why == "" && recorded == found {
			return
		}
		out = append(out, record.Difference{Subject: job.Node(n.ID), Name: n.Name, What: what, Recorded: recorded, Found: found, Unreadable: why, ReadAt: r.ReadAt})
	}
	if r.Facts.Power != "" || r.Facts.Unreadable[FactPower] != "" {
		add(FactPower, orUnknown(string(n.PowerState)), string(r.Facts.Power))
	}
	if r.Facts.Boot != nil || r.Facts.Unreadable[FactBoot] != "" {
		add(FactBoot, n.recordedOverride(r.Facts.Boot), describeOverride(r.Facts.Boot))
	}
	if r.Facts.MediaRead || r.Facts.Unreadable[FactMedia] != "" {
		add(FactMedia, n.recordedMedia(), describeMedia(r.Facts.Media))
	}
	if recorded, known := n.RecordedNetwork(); known && (r.Facts.NetsRead || r.Facts.Unreadable[FactNet] != "") {
		add(FactNet, cmp.Or(recorded, noNetwork), cmp.Or(strings.Join(r.Facts.Networks, ", "), noNetwork))
	}
	return out
}

// RecordedNetwork is the network, as a driver.Net, that the machine is on by the node's state; empty: none. known is false in states in which
// an action moves the machine, or in which it may be on any network.
func (n *Node) RecordedNetwork() (net string, known bool) {
	switch n.ProvisionState {
	case Rescue:
		if n.Rescue.IsForRepair() {
			return "rescuing", true
		}
		return "tenant", true
	case Active:
		return "tenant", true
	case RescueWait:
		return "rescuing", true
	case DeployWait, DeployHold:
		return "provisioning", true
	case CleanWait, CleanHold, ServiceWait, ServiceHold:
		return "cleaning", true
	case InspectWait:
		return "inspection", true
	case Available, Manageable:
		return "", true
	}
	return "", false
}

func orUnknown(word string) string {
	if word == "" {
		return "unknown"
	}
	return word
}

// recordedOverride is the boot override that the record expects. No record has a persistent device, so one that was found is never a
// difference.
func (n *Node) recordedOverride(found *rescue.Boot) string {
	if found != nil && found.Persistent {
		return describeOverride(found)
	}
	if !n.BootsRamdisk() {
		return noOverride
	}
	device := "pxe"
	if n.Plan.Method == BootMedia {
		device = "cdrom"
	}
	return "once " + device
}

func describeOverride(b *rescue.Boot) string {
	switch {
	case b == nil || b.Device == "":
		return noOverride
	case b.Persistent:
		return "always " + b.Device
	}
	return "once " + b.Device
}

func (n *Node) recordedMedia() string {
	if n.BootsRamdisk() && n.Plan.Method == BootMedia {
		return "a ramdisk of ours"
	}
	return noMedia
}

// describeMedia lists the inserted media. It shows only the host of a URL, because the path may be the proof of a boot.
func describeMedia(media []Medium) string {
	var summary []string
	for _, m := range media {
		if !m.Inserted {
			continue
		}
		kind := strings.Join(m.MediaTypes, "/")
		if u, err := url.Parse(m.Image); err == nil && u.Host != "" {
			kind += " from " + u.Host
		}
		summary = append(summary, kind)
	}
	if len(summary) == 0 {
		return noMedia
	}
	return strings.Join(summary, ", ")
}

// EndedState is the state of a node whose operation failed, and was not taken back.
func (n *Node) EndedState(j *job.Job) State {
	event := FailEvent
	if n.IsUntouchedBy(j) {
		event = ReturnEvent
	}
	if t, err := ByEvent(n.ProvisionState, event); err == nil {
		return t.To
	}
	return n.ProvisionState
}

// IsUntouchedBy tells whether a failed job is a rescue for a diagnosis or a repair that never touched its machine.
func (n *Node) IsUntouchedBy(j *job.Job) bool {
	return j.Kind == "rescue" && !j.Advanced() && n.ProvisionState == Rescuing && n.Rescue != nil && n.Rescue.MadeByJob() && !n.Rescue.SavedKnown
}

// Released applies the release of a held database to a node. Its next boot has a number, and so a token, that the lost history never
// had. power becomes the recorded power. The open boot of a ramdisk is void.
func (n *Node) Released(power Power, at time.Time) {
	n.VoidRamdisk()
	n.BootNumber = record.NumberAfterRelease(n.BootNumber, at)
	n.PowerState = power
}
