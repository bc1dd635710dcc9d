package compute

import (
	"slices"
	"strings"

	"salvor/problem"
)

// GuestDisk is a disk of a guest that lies in a file.
type GuestDisk struct {
	// Name is the disk's name in the record of the server: "vda".
	Name string
	// Target is the disk's name at the hypervisor, for commands typed on the host: "sda"; empty: Name.
	Target string
	// File is the absolute path, Format "raw" or "qcow2" as the hypervisor was told.
	File, Format string
	// Chain are the files that File is based on, the nearest first, as far as the hypervisor tells them.
	Chain []string
	// Copying: a job of the hypervisor copies the disk to another file, and the guest may go on there.
	Copying bool
}

// Drift is one way in which a guest differs from what salvor last wrote: somebody else changed it.
type Drift struct {
	// Part is the part that differs: "disk vda", "graphics vnc", "memory".
	Part string `json:"part"`
	// Text says what differs, to be read after the part: "was added".
	Text string `json:"text"`
	// Disk: the data of the server lie elsewhere than its record says. Only its present host can run it with all of its data.
	Disk bool `json:"disk,omitempty"`
	// Refuses: salvor does not define the guest, and so does not start it, until the difference ends.
	Refuses bool `json:"refuses,omitempty"`
	// Remedy is the command that ends the difference, to be typed on the host; empty: none is known.
	Remedy string `json:"remedy,omitempty"`
	// Off: the hypervisor takes the remedy only while the guest is off. For a Disk, it takes the remedy only while the guest runs.
	Off bool `json:"off,omitempty"`
}

// DriftAdded is the text of a device that somebody else added.
const DriftAdded = "was added"

// maxDriftText bounds each word of a drift, and maxDrifts the drifts of one server: hosts tell them.
const (
	maxDriftText = 1024
	maxDrifts    = 32
)

// BoundDrift is what is kept of the drifts that a host told.
func BoundDrift(all []Drift) []Drift {
	var out []Drift
	for _, d := range all[:min(len(all), maxDrifts)] {
		d.Part, d.Text, d.Remedy = cut(d.Part), cut(d.Text), cut(d.Remedy)
		out = append(out, d)
	}
	return out
}

func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxDriftText)], "") }

// String is the drift as a clause: "disk vda lies in FILE".
func (d Drift) String() string { return d.Part + " " + d.Text }

// dataElsewhere is the first drift by which the guest's data lie elsewhere than the record says; nil: there is none.
func dataElsewhere(all []Drift) *Drift {
	for i := range all {
		if all[i].Disk {
			return &all[i]
		}
	}
	return nil
}

// refusalToLeave is Conflict where a server cannot leave its host, or lose a disk, without the loss of what was written.
func refusalToLeave(what string, all []Drift) error {
	d := dataElsewhere(all)
	if d == nil {
		return nil
	}
	return problem.Conflictf("%s: %s; the writes since then would be lost%s", what, d, d.hint())
}

// hint names the remedy; a stopped guest must run for it.
func (d Drift) hint() string {
	if d.Remedy == "" {
		return ""
	}
	return ". End that on its host, while the server runs: " + d.Remedy
}

// LeavesDisks tells whether an order would leave the disks of a guest behind, or replace one. The guest must have them where its record says.
// All other orders go on with the disks that the guest has.
func (v Verb) LeavesDisks(a *Args) bool {
	switch v {
	case MigrateBegin, MigratePerform, Discard:
		return true
	case Stage:
		return !a.Cancel
	}
	return false
}

// RefusalToLeave is Conflict where the guest cannot leave its host, or have a disk replaced, without the loss of what was written.
// Unavailable where a disk store could not be read, so that nobody knows.
func (g *Guest) RefusalToLeave() error {
	err := refusalToLeave("guest "+g.Name, g.Drift)
	if err == nil && g.DriftUnknown {
		err = problem.Unavailablef("guest %s: a disk store of its host does not answer, so nobody knows whether its disks lie where salvor made them", g.Name)
	}
	return err
}

// RefusalToLeave is that of the server's guest as its host last told it.
func (s *Server) RefusalToLeave() error { return refusalToLeave("server "+s.label(), s.Drift) }

// RefusalToRebuild is Conflict where a rebuild would lose what was written. Only operators are told of files of the host.
func (s *Server) RefusalToRebuild(operator bool) error {
	if operator || dataElsewhere(s.Drift) == nil {
		return s.RefusalToLeave()
	}
	return problem.Conflictf("server %s: an administrator of its host moved a disk, and a rebuild would lose the writes since then; ask the administrator to end that", s.label())
}

// DescribeDriftChange says what is new among the drifts of a server, and what of them has ended.
func DescribeDriftChange(before, now []Drift) (out []string) {
	for _, d := range now {
		if !slices.Contains(before, d) {
			out = append(out, "changed by someone other than salvor: "+d.String())
		}
	}
	for _, d := range before {
		if !slices.ContainsFunc(now, func(e Drift) bool { return e.Part == d.Part }) {
			out = append(out, "as salvor wrote it again: "+d.Part)
		}
	}
	return out
}
