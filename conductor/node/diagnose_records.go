package node

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"salvor/diagnose"
	"salvor/diagnose/machine"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/wire/agent"
)

// Bounds of what a report lists of a machine's history.
const (
	changeHistory = 90 * 24 * time.Hour
	maxTimeline   = 500 // events that are read of the timeline
	maxChanges    = 30
)

// diagnosisRecords read what salvor's own records tell of a machine.
type diagnosisRecords struct{ *Conductor }

// collect adds what is stored about the machine. What cannot be read is a gap.
func (c diagnosisRecords) collect(ctx context.Context, m *managedNode, seen *machine.State) []diagnose.Gap {
	var gaps []diagnose.Gap
	for _, part := range []struct {
		name string
		read func(context.Context, *metal.Node, *machine.State) error
	}{{"the stored inventory", c.readInventory}, {"the timeline", c.readChanges}, {"the network_data of the config drive", c.readDriveNetwork}} {
		if err := part.read(ctx, m.node, seen); err != nil {
			gaps = append(gaps, diagnose.Gap{What: part.name, Why: diagnose.Reason(problem.Public(err))})
		}
	}
	return gaps
}

// readInventory reads what the newest inspection found, by a ramdisk or by the BMC.
func (c diagnosisRecords) readInventory(ctx context.Context, n *metal.Node, seen *machine.State) error {
	doc, err := c.Nodes.Document(ctx, n.ID, metal.Inventory)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var found agent.Inventory
	if err := json.Unmarshal(doc.Body, &found); err != nil {
		return problem.Invalidf("the inventory of node %s is not of the form that an inspection stores: %w", n.ID, err)
	}
	seen.Recorded = recordedHardware(&found, doc.UpdatedAt)
	return nil
}

// recordedHardware takes from an inventory what is compared. A BMC tells what the modules hold, and gives it as both numbers.
func recordedHardware(found *agent.Inventory, at time.Time) *diagnose.RecordedHardware {
	r := &diagnose.RecordedHardware{At: at, Hardware: diagnose.Hardware{Memory: found.Memory.Total}}
	if fitted := found.Memory.PhysicalMB; fitted != nil && *fitted > 0 && *fitted < 1<<40 && (r.Memory == 0 || r.Memory == *fitted<<20) {
		r.Memory, r.Fitted = *fitted<<20, true
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	for _, d := range found.Disks {
		r.Disks = append(r.Disks, diagnose.DiskRecord{Model: d.Model, Serial: text(d.Serial), WWN: text(d.WWN), Size: d.Size})
	}
	for _, i := range found.Interfaces {
		if mac, err := metal.ParseMAC(i.MACAddress); err == nil && !slices.Contains(r.NICs, mac) {
			r.NICs = append(r.NICs, mac)
		}
	}
	return r
}

// noChange are requests of the timeline that change nothing of a machine or its system.
var noChange = regexp.MustCompile(`^(asked to (diagnose|rescue|unrescue|power |reboot|soft )|asked for |held off|no longer held off|maintenance |aborted|confirmed that it works)`)

// readChanges lists what was asked for, and what a BMC told anew of firmware and BIOS settings.
func (c diagnosisRecords) readChanges(ctx context.Context, n *metal.Node, seen *machine.State) error {
	since := c.Now().Add(-changeHistory)
	var changes []diagnose.Change
	add := func(at time.Time, format string, args ...any) {
		if at.After(since) {
			changes = append(changes, diagnose.Change{At: at.UTC(), Text: diagnose.Sentence(fmt.Sprintf(format, args...))})
		}
	}
	events, err := c.Store.Latest(ctx, job.Node(n.ID), maxTimeline)
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.Type == "request" && !noChange.MatchString(e.Text) {
			add(e.At, "%s", e.Text)
		}
	}
	firmware, err := c.Nodes.Firmware(ctx, n.ID)
	if err != nil {
		return err
	}
	for _, f := range firmware {
		if !f.UpdatedAt.IsZero() {
			add(f.UpdatedAt, "the firmware of %s is %s since then, and was %s first", f.Component, f.CurrentVersion, f.InitialVersion)
		}
	}
	settings, err := c.Nodes.BIOSSettings(ctx, n.ID)
	if err != nil {
		return err
	}
	for _, s := range settings {
		if !s.UpdatedAt.IsZero() {
			add(s.UpdatedAt, "the BIOS setting %s has another value since then", s.Name) // the value may be a password
		}
	}
	slices.SortStableFunc(changes, func(a, b diagnose.Change) int { return a.At.Compare(b.At) })
	seen.Changes = changes[max(0, len(changes)-maxChanges):]
	return nil
}

// readDriveNetwork takes the network_data of a config drive that is stored as an object, where the node has none of its own.
func (c diagnosisRecords) readDriveNetwork(ctx context.Context, n *metal.Node, seen *machine.State) error {
	if len(seen.NetworkData) > 0 {
		return nil
	}
	stored, err := c.Nodes.ConfigDrive(ctx, n)
	if err != nil || len(stored) == 0 {
		return err
	}
	var drive struct {
		NetworkData json.RawMessage `json:"network_data"`
	}
	if json.Unmarshal(stored, &drive) == nil { // else an image or a URL
		seen.NetworkData = drive.NetworkData
	}
	return nil
}
