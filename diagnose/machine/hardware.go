package machine

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"salvor/diagnose"
)

// faultKind is a kind of failing hardware that event logs and sensors tell of. None of them is called the cause of a machine that does not boot:
// a worn part and a wrong line in a file are often there at once, and only the line is proven.
type faultKind struct {
	id    string
	stage diagnose.Stage
	what  string
	match *regexp.Regexp
	hand  string
}

var faultKinds = []faultKind{
	{"memory-failing", diagnose.Firmware, "memory", regexp.MustCompile(`(?i)memory|dimm|\becc\b`), "Move the workload away and replace the memory module."},
	{"drive-failing", diagnose.Root, "a drive", regexp.MustCompile(`(?i)drive|\bdisk|\bhdd|\bssd|nvme|raid|volume|storage`), "Copy the disk first, then replace the drive; do not repair its file systems before."},
	{"battery-low", diagnose.Firmware, "the battery of the clock", regexp.MustCompile(`(?i)cmos|battery`), "Replace the battery; then set the clock and look at the firmware's settings."},
	{"power-supply-failing", diagnose.Power, "a power supply", regexp.MustCompile(`(?i)power supply|\bpsu|\bps ?\d|redundancy`), "Look at the power supplies and their cables."},
	{"too-hot", diagnose.Power, "temperature or a fan", regexp.MustCompile(`(?i)temp|thermal|\bfan|cooling`), "Look at fans and the air flow; a machine that is too hot switches itself off."},
	{"processor-failing", diagnose.Firmware, "a processor", regexp.MustCompile(`(?i)processor|\bcpu|machine check|\bierr|\bmce`), "Have the processor and its board checked by the vendor."},
	{"bus-error", diagnose.Firmware, "a PCI device", regexp.MustCompile(`(?i)pci|\bbus\b`), "Look which card sits in the slot; reseat or replace it."},
	{"hardware-failing", diagnose.Firmware, "a component", regexp.MustCompile(``), "Look at the BMC's own pages for the component."},
}

// maxHardwareEvidence bounds what one finding quotes.
const maxHardwareEvidence = 5

// hardware finds what the BMC calls critical: events that were asserted and not deasserted since, and components that are not well now.
func (s *State) hardware() []diagnose.Finding {
	evidence := map[string][]diagnose.Evidence{}
	for _, e := range slices.Backward(s.openEvents()) { // the newest first
		id := faultOf(e.Sensor + " " + e.Message).id
		evidence[id] = append(evidence[id], diagnose.Evidence{Kind: diagnose.FromEventLog, At: e.At, Text: strings.TrimSpace(e.Sensor + " " + e.Message)})
	}
	for _, c := range s.Unhealthy {
		if !c.Critical {
			continue
		}
		id := faultOf(c.Kind + " " + c.Name + " " + c.Message).id
		text := fmt.Sprintf("%s %s: %s", c.Kind, c.Name, strings.TrimSpace(c.State+" "+c.Message))
		evidence[id] = slices.Insert(evidence[id], 0, diagnose.Evidence{Kind: diagnose.FromBMC, Text: text})
	}
	var out []diagnose.Finding
	for _, f := range faultKinds {
		if shown := evidence[f.id]; len(shown) > 0 {
			out = append(out, diagnose.Finding{
				ID: f.id, Stage: f.stage, Severity: diagnose.Degrades, Confidence: 0.9, ByHand: f.hand,
				Title: fmt.Sprintf("The BMC calls %s critical.", f.what), Evidence: shown[:min(len(shown), maxHardwareEvidence)],
			})
		}
	}
	return out
}

// faultOf is the first kind that a text is about; the last one is about everything.
func faultOf(text string) faultKind {
	i := slices.IndexFunc(faultKinds, func(f faultKind) bool { return f.match.MatchString(text) })
	return faultKinds[i]
}

// openEvents are the critical events that no later record of the same sensor takes back.
func (s *State) openEvents() []Event {
	var open []Event
	for _, e := range s.Events {
		if e.State == "deasserted" {
			open = slices.DeleteFunc(open, func(o Event) bool { return cmp.Or(o.Sensor, o.Message) == cmp.Or(e.Sensor, e.Message) })
			continue
		}
		if e.Critical {
			open = append(open, e)
		}
	}
	return open
}
