// Package machine holds the rules about a machine as its BMC and salvor's records show it: what can be said without a boot. It is pure.
package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/diagnose"
)

// State is what was read of a machine without booting it. Empty fields were not read.
type State struct {
	// Provision is the node's provision state; InUse: it runs a tenant's system.
	Provision string
	InUse     bool
	Power     string // power on, power off
	// BootDevice is the override of the boot device, such as pxe; empty: the firmware's own order.
	BootDevice     string
	BootPersistent bool
	// BootsElsewhere: its own system does not start from a disk of the machine.
	BootsElsewhere bool
	// Fault and Maintenance are salvor's own marks on the node.
	Fault, Maintenance string
	// Ports are the MAC addresses of the node's ports.
	Ports []string
	// NetworkData is an OpenStack network_data.json.
	NetworkData json.RawMessage
	// Events are those of the BMC's event log, in the order of their records, Health what it says of the machine as a whole, Unhealthy the
	// components that are not well.
	Events    []Event
	Health    string
	Unhealthy []Component
	// Recorded is what the newest inspection found; nil: there was none.
	Recorded *diagnose.RecordedHardware
	// Changes are what was done to the machine through salvor, the oldest first.
	Changes []diagnose.Change
}

// Event is an entry of a BMC's event log.
type Event struct {
	At       time.Time // zero: the BMC's clock was not set
	Critical bool
	// Sensor is what the entry is about, State is asserted, deasserted or empty.
	Sensor, Message, State string
}

// Component is a part of the machine whose health is not ok.
type Component struct {
	Kind, Name, State, Message string
	Critical                   bool
}

// Observations are the facts in the order in which a person wants to read them.
func (s *State) Observations() []diagnose.Observation {
	boot := "the firmware's own order"
	if s.BootDevice != "" {
		boot = s.BootDevice + ", for the next boot only"
		if s.BootPersistent {
			boot = s.BootDevice + ", for all boots"
		}
	}
	out := []diagnose.Observation{{Name: "state", Text: s.Provision}, {Name: "power", Text: cmp.Or(s.Power, "not known")}, {Name: "boot device", Text: boot}}
	if s.Health != "" {
		out = append(out, diagnose.Observation{Name: "health", Text: s.Health})
	}
	if s.Maintenance != "" || s.Fault != "" {
		out = append(out, diagnose.Observation{Name: "maintenance", Text: strings.TrimSpace(s.Fault + " " + s.Maintenance)})
	}
	for i := range out {
		out[i].Text = diagnose.Excerpt(out[i].Text)
	}
	return out
}

// Report is the report of what needs no boot. The findings that the request itself brought stay, from the console that it gave.
func (s *State) Report(requested *diagnose.Report, gaps []diagnose.Gap) diagnose.Report {
	out := diagnose.Report{Observed: s.Observations(), NotExamined: gaps, Findings: append(s.Findings(), requested.Symptoms()...), Changes: s.Changes}
	if s.Recorded != nil {
		out.Record(*s.Recorded)
	}
	return out
}

// Findings applies all rules.
func (s *State) Findings() []diagnose.Finding {
	return slices.Concat(s.powerOff(), s.networkBoot(), s.networkData(), s.hardware())
}

// powerOff tells that a machine in use is off. Nobody can say whether somebody wants that, so it is no cause.
func (s *State) powerOff() []diagnose.Finding {
	if !s.InUse || s.Power != "power off" {
		return nil
	}
	return []diagnose.Finding{{
		ID: "machine-off", Stage: diagnose.Power, Severity: diagnose.Info, Confidence: 1, Title: "The machine is off.",
		Evidence: []diagnose.Evidence{{Kind: diagnose.FromBMC, Text: s.Power}},
		ByHand:   "To start it: salvor node power on NODE",
	}}
}

// networkBoot finds a boot override that was left behind: the machine starts from the network instead of its disk at every boot.
func (s *State) networkBoot() []diagnose.Finding {
	if !s.InUse || s.BootsElsewhere || !s.BootPersistent || !slices.Contains([]string{"pxe", "cdrom", "bios"}, s.BootDevice) {
		return nil
	}
	return []diagnose.Finding{{
		ID: "boot-device-override", Stage: diagnose.Firmware, Severity: diagnose.BlocksBoot, Confidence: 0.7,
		Title:    fmt.Sprintf("The BMC has the machine start from %s at every boot, and not from its disk.", s.BootDevice),
		Evidence: []diagnose.Evidence{{Kind: diagnose.FromBMC, Text: "boot device " + s.BootDevice + ", persistent"}},
		Repair:   &diagnose.Repair{Summary: "Set the boot device to disk.", Consent: diagnose.ConsentSettings, Writes: []string{"boot device"}},
		ByHand:   "salvor node boot device set NODE disk --persistent",
	}}
}
