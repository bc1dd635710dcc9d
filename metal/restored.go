package metal

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
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

// AbortJob makes one job of a node fail with the cause. The boot and the token of the node become void at once.
func (s *Nodes) AbortJob(ctx context.Context, tx job.Tx, j job.Job, cause string) error {
	if err := s.jobs.Abort(tx, j, cause); err != nil {
		return err
	}
	return s.voidBoot(ctx, tx, j.Subject.ID)
}

func (s *Nodes) voidBoot(ctx context.Context, tx job.Tx, id string) error {
	n, err := s.store.Node(ctx, tx, id)
	if problem.Is(err, problem.NotFound) || err == nil && !n.BootsRamdisk() {
		return nil
	}
	if err != nil {
		return err
	}
	n.VoidRamdisk()
	return s.store.SaveNode(tx, n)
}

// DroppedState is the state of a node after its job was dropped. After a rescue or an unrescue it is active, because both begin and
// end there, and nobody knows the state of the machine. After any other operation it is the failed state.
func DroppedState(from State) State {
	switch from {
	case Rescuing, RescueWait, Unrescuing:
		return Active
	}
	if t, err := ByEvent(from, FailEvent); err == nil {
		return t.To
	}
	return from
}

// ShowDropped shows on the node that its job was dropped. The record of a diagnosis or a repair ends, and the node stays as it was. For other
// jobs the node enters DroppedState and has no target power. After an operation, which may have changed the machine, the node is in maintenance
// until an operator has looked.
func (s *Nodes) ShowDropped(ctx context.Context, tx job.Tx, j job.Job, asker record.Asker) error {
	if j.Class == job.Ask {
		return s.endRecord(ctx, tx, j, "its job was dropped when the database was restored")
	}
	n, err := s.store.Node(ctx, tx, j.Subject.ID)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	summary := fmt.Sprintf("%s, asked for at %s, was dropped after the database was restored; no machine was touched", j.Kind, record.Moment(j.CreatedAt))
	n.TargetPower = ""
	if j.Class == job.Operation {
		if err := s.store.DeleteDocument(tx, n.ID, Steps); err != nil {
			return err
		}
		if to := DroppedState(n.ProvisionState); to != n.ProvisionState {
			s.enterState(n, to)
		}
		if n.ProvisionState == Active {
			n.Rescue = nil
		}
		n.VoidRamdisk()
		n.RamdiskCleared()
		n.LastError = summary
		if !n.Maintenance {
			n.Maintenance, n.Fault = true, ""
			n.MaintenanceReason = summary + ". Look at the machine, then run: salvor node maintenance unset " + n.handle()
		}
	}
	if err := s.store.SaveNode(tx, n); err != nil {
		return err
	}
	if err := s.note(tx, n.ID, asker, "request", summary); err != nil {
		return err
	}
	if j.Class != job.Operation {
		return nil
	}
	return s.noteState(tx, n, asker)
}

// endRecord ends the record that a diagnosis or a repair has beside its job.
func (s *Nodes) endRecord(ctx context.Context, tx job.Tx, j job.Job, why string) (err error) {
	switch j.Kind {
	case JobDiagnose:
		err = s.EditDiagnosis(ctx, tx, j.Subject.ID, j.ID, func(d *Diagnosis) { d.Fail(s.now(), why) })
	case JobRepair:
		err = NewNodeRepairs(s).Edit(ctx, tx, j.Subject.ID, j.ID, func(r *Repair) { r.end(s.now(), why) })
	}
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

func (n *Node) handle() string {
	if n.Name != "" {
		return n.Name
	}
	return n.ID
}

// Released applies the release of a held database to a node. Its next boot has a number, and so a token, that the lost history never
// had. power becomes the recorded power. The open boot of a ramdisk is void.
func (n *Node) Released(power Power, at time.Time) {
	n.VoidRamdisk()
	n.BootNumber = record.NumberAfterRelease(n.BootNumber, at)
	n.PowerState = power
}
