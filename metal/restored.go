package metal

import (
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

// While a restored database is held, conductors read the machines, and what they found is compared with the records here.

// HeldReading is one look at a machine that changed nothing.
type HeldReading struct {
	NodeID string
	ReadAt time.Time
	Facts  HeldFacts
}

// HeldFacts are what the BMC said. Unreadable says by name of the fact why it is missing; a fact that the driver cannot read is in neither.
type HeldFacts struct {
	Power      Power             `json:"power,omitempty"`
	Boot       *rescue.Boot      `json:"boot,omitempty"`
	Media      []Medium          `json:"media,omitempty"`
	MediaRead  bool              `json:"media_read,omitempty"`
	Unreadable map[string]string `json:"unreadable,omitempty"`
}

// Names of facts.
const (
	FactPower  = "power"
	FactBoot   = "boot device"
	FactMedia  = "virtual media"
	noOverride = "no override"
	noMedia    = "none"
)

// HeldStore keeps the readings.
type HeldStore interface {
	// UnreadNodes lists up to limit nodes of the conductor groups of which there is no reading; nil: of all groups. Of nodes that
	// are only enrolled no machine is known.
	UnreadNodes(ctx context.Context, groups []string, limit int) ([]*Node, error)
	// SaveReadings keeps readings in place of those before; of a node that is gone nothing.
	SaveReadings(ctx context.Context, readings []HeldReading) error
	// Readings lists all readings.
	Readings(ctx context.Context, tx job.Tx) ([]HeldReading, error)
	// DropReadings forgets them, so that conductors read again.
	DropReadings(tx job.Tx) error
}

// HeldDifferences compares a node with what was read of its machine.
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
	return out
}

func orUnknown(word string) string {
	if word == "" {
		return "unknown"
	}
	return word
}

// recordedOverride is the override that the record knows of. A persistent device is nobody's record: whatever it is, it is the machine's own.
func (n *Node) recordedOverride(found *rescue.Boot) string {
	if found != nil && found.Persistent {
		return describeOverride(found)
	}
	if !n.BootsRamdisk() {
		return noOverride
	}
	device := "pxe"
	if n.Plan.Road == RoadMedia {
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
	if n.BootsRamdisk() && n.Plan.Road == RoadMedia {
		return "a ramdisk of ours"
	}
	return noMedia
}

// describeMedia names what is inserted. Of a URL it shows the host alone: the path may be the proof of a boot.
func describeMedia(media []Medium) string {
	var words []string
	for _, m := range media {
		if !m.Inserted {
			continue
		}
		kind := strings.Join(m.MediaTypes, "/")
		if u, err := url.Parse(m.Image); err == nil && u.Host != "" {
			kind += " from " + u.Host
		}
		words = append(words, kind)
	}
	if len(words) == 0 {
		return noMedia
	}
	return strings.Join(words, ", ")
}

// AbortJob has one job of a node fail with the cause. Its boot and its token are void at once.
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

// DroppedState is the state of a node whose job is dropped. A rescue and an unrescue leave it active, as it is before and after them;
// what became of the machine meanwhile nobody knows. Any other operation has failed.
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

// ShowDropped shows on the node that a job of it was dropped: it is in the state before the operation or in that of its failure, asks
// for no power, and, if the operation may have changed the machine, is in maintenance until somebody has looked.
func (s *Nodes) ShowDropped(ctx context.Context, tx job.Tx, j job.Job, who record.Asker) error {
	n, err := s.store.Node(ctx, tx, j.Subject.ID)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	words := fmt.Sprintf("%s, asked for at %s, was dropped after the database was restored; no machine was touched", j.Kind, record.Moment(j.CreatedAt))
	n.TargetPower = ""
	if j.Class == job.Operation {
		if err := s.store.DeleteDocument(tx, n.ID, Steps); err != nil {
			return err
		}
		if to := DroppedState(n.ProvisionState); to != n.ProvisionState {
			s.enter(n, to)
		}
		if n.ProvisionState == Active {
			n.Rescue = nil
		}
		n.VoidRamdisk()
		n.RamdiskCleared()
		n.LastError = words
		if !n.Maintenance {
			n.Maintenance, n.Fault = true, ""
			n.MaintenanceReason = words + ". Look at the machine, then run: salvor node maintenance unset " + n.handle()
		}
	}
	if err := s.store.SaveNode(tx, n); err != nil {
		return err
	}
	if err := s.note(tx, n.ID, who, "request", words); err != nil {
		return err
	}
	if j.Class != job.Operation {
		return nil
	}
	return s.noteState(tx, n, who)
}

func (n *Node) handle() string {
	if n.Name != "" {
		return n.Name
	}
	return n.ID
}

// NumberStep is how far numbers jump that are known outside of the database: whatever the lost history handed out is lower.
const NumberStep = 1 << 20

// Released is what a release of the held database makes of a node: its next boot has a number, and so a token, that no lost one had. The power
// becomes the recorded one. The open boot of a ramdisk is void.
func (n *Node) Released(power Power) {
	n.VoidRamdisk()
	n.BootNumber += NumberStep
	n.PowerState = power
}
