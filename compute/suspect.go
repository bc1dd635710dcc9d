package compute

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// When a host is called dead. It is decided from what was perceived, all at one moment, and from nothing else: Evaluate is pure.

// Signal is what one way of perceiving a host tells of it.
type Signal string

const (
	Unknown Signal = "" // it was not asked, or did not answer: nothing follows from that
	Lives   Signal = "lives"
	Dead    Signal = "dead"
)

// HostObservation is what was perceived of a host.
type HostObservation struct {
	HostID, Name, Group string
	// Silent is for how long its lease was not renewed, as far as this process could hear; HadLease: it held one at all.
	Silent   time.Duration
	HadLease bool
	// Excluded: it is fenced, forced down or revoked: it is nobody's business here.
	Excluded bool
	// ForcedDown: it is forced down and not fenced yet. It is looked at, for what is seen may contradict that.
	ForcedDown bool
	// Servers are on it.
	Servers int
	// Power is Dead where its BMC says off, Storage where none of its guests that run from volumes is connected.
	Power, Storage Signal
	// Neighbours live and could look at it; of these NeighboursAnswered have, and NeighboursReached found it.
	Neighbours, NeighboursAnswered, NeighboursReached int
	// Watchdog is the one that its newest renewal named as armed.
	Watchdog string
	// TriedAgo is how long ago its healing began, or a receipt that is open was given; 0: not within HealCycle.
	TriedAgo time.Duration
}

// FleetObservation is all that is perceived at one moment.
type FleetObservation struct {
	Hosts []HostObservation
	// Groups by name; a group that is missing is as DefaultHostGroup.
	Groups map[string]*HostGroup
	// Listening is for how long this process has heard without a gap.
	Listening time.Duration
}

// Verdict is what follows for a host that is silent.
type Verdict struct {
	HostID string
	// Suspected: it is called dead; Why says by what, or why it is not.
	Suspected bool
	Why       string
	// Heal: it is to be fenced and evacuated.
	Heal bool
}

// PartitionNote is in the words about hosts that fell silent together.
const PartitionNote = "it is more likely that the control plane is cut off"

// ignoreAfter are hosts that nobody counts any more when others fall silent: those are known to be away.
const ignoreAfter = HealCycle

// Evaluate tells of each host that is silent what to think of it. Two independent ways must call it dead, of which its lease is one; where
// too many fell silent together, it is the control plane that is cut off, and nobody is suspected.
func Evaluate(v FleetObservation) (out []Verdict) {
	if v.Listening < Suspect {
		return nil
	}
	massFailures := v.massFailures()
	healed := v.healed()
	for _, h := range v.sorted() {
		if h.Excluded || !h.silent() {
			continue
		}
		group := v.group(h.Group)
		verdict := Verdict{HostID: h.HostID, Why: cmp.Or(massFailures[h.Group], v.recentMassFailure(&h))}
		if verdict.Why == "" {
			verdict.Suspected, verdict.Why = h.judge()
		}
		if verdict.Suspected && group.Healing && h.Servers > 0 && h.TriedAgo == 0 {
			if verdict.Heal = healed[h.Group] < group.MaxHosts; verdict.Heal {
				healed[h.Group]++
			} else {
				verdict.Why += fmt.Sprintf("; it is not healed: %d of its group were within %s", healed[h.Group], HealCycle)
			}
		}
		out = append(out, verdict)
	}
	return out
}

// IsProbed tells whether more is asked about the host than its lease.
func (h *HostObservation) IsProbed() bool {
	return (!h.Excluded || h.ForcedDown) && h.HadLease && h.Silent >= ProbeAfter
}

func (h *HostObservation) silent() bool { return h.HadLease && h.Silent >= Suspect }

func (v *FleetObservation) group(name string) *HostGroup {
	if g := v.Groups[name]; g != nil {
		return g
	}
	return DefaultHostGroup()
}

// sorted are the hosts, those that have been silent longest first.
func (v *FleetObservation) sorted() []HostObservation {
	return slices.SortedFunc(slices.Values(v.Hosts), func(a, b HostObservation) int {
		return cmp.Or(cmp.Compare(b.Silent, a.Silent), strings.Compare(a.HostID, b.HostID))
	})
}

// massFailures tells of the groups whose hosts fell silent together, by name, why nobody of theirs is suspected.
func (v *FleetObservation) massFailures() map[string]string {
	all, silent := map[string]int{}, map[string]int{}
	total, gone := 0, 0
	for i := range v.Hosts {
		h := &v.Hosts[i]
		// A fenced host that speaks proves, too, that it is not the control plane that hears nothing.
		if !h.HadLease || h.Silent >= ignoreAfter || h.Excluded && h.silent() {
			continue
		}
		all[h.Group]++
		total++
		if h.silent() {
			silent[h.Group]++
			gone++
		}
	}
	out := map[string]string{}
	for name, n := range silent {
		out[name] = exceedsThreshold(n, all[name], v.group(name).MaxShare)
		if gone == total {
			out[name] = fmt.Sprintf("all %d hosts fell silent: %s", total, PartitionNote)
		}
	}
	return out
}

// exceedsThreshold tells of n hosts that fell silent together, of all of a group, whether they are too many.
func exceedsThreshold(n, all, share int) string {
	if n < 2 || n*100 < share*all {
		return ""
	}
	return fmt.Sprintf("%d of the %d hosts of its group fell silent together, %d%% or more: %s from them", n, all, share, PartitionNote)
}

// recentMassFailure is crowds for a host that has been silent for long: a crowd does not die by waiting. Those count that fell silent when it did.
func (v *FleetObservation) recentMassFailure(h *HostObservation) string {
	if h.Silent < ignoreAfter {
		return ""
	}
	all, silent, speaking := 0, 0, false
	for i := range v.Hosts {
		o := &v.Hosts[i]
		if !o.HadLease || o.Excluded && o.silent() {
			continue
		}
		speaking = speaking || !o.silent()
		if o.Group == h.Group {
			all++
			if o.silent() && (o.Silent-h.Silent).Abs() < ignoreAfter {
				silent++
			}
		}
	}
	if !speaking {
		return "no host speaks: " + PartitionNote
	}
	return exceedsThreshold(silent, all, v.group(h.Group).MaxShare)
}

// healed counts the hosts of each group that were healed of late.
func (v *FleetObservation) healed() map[string]int {
	out := map[string]int{}
	for i := range v.Hosts {
		if v.Hosts[i].TriedAgo > 0 {
			out[v.Hosts[i].Group]++
		}
	}
	return out
}

// judge asks for a second way that calls a silent host dead. A neighbour that reaches it outweighs a BMC and a storage, either of which
// may be asked about the wrong machine.
func (h *HostObservation) judge() (dead bool, why string) {
	lease := "its lease lapsed " + h.Silent.Truncate(time.Second).String() + " ago"
	if h.Watchdog != "" && h.Silent >= SelfFenceEvidence {
		return true, lease + ", and its watchdog " + h.Watchdog + " has reset it"
	}
	if h.NeighboursReached > 0 {
		return false, fmt.Sprintf("%s, but %d of %d neighbours reach it", lease, h.NeighboursReached, h.NeighboursAnswered)
	}
	var by []string
	if h.Power == Dead {
		by = append(by, "its BMC says off")
	}
	if h.Storage == Dead {
		by = append(by, "no guest of it is connected to its volumes")
	}
	if h.NeighboursAnswered > 0 && h.NeighboursAnswered >= min(2, h.Neighbours) {
		by = append(by, fmt.Sprintf("none of %d neighbours reaches it", h.NeighboursAnswered))
	}
	if len(by) == 0 {
		return false, lease + "; nothing else speaks of its death"
	}
	return true, lease + ", and " + strings.Join(by, ", and ")
}

// HealthSources are ways beside its lease by which a host is perceived. They tell at once what was seen last, and look anew by themselves;
// what is older than they think right is Unknown.
type HealthSources interface {
	// Power of a node: Dead if its BMC says off.
	Power(nodeID string) Signal
	// Connected tells which of these initiators have a connection; known is false where the storage cannot be asked, or there is none.
	Connected(initiators []string) (some, known bool)
}

// ProbeAfter is the silence after which neighbours are asked, so that they have answered when the host is Suspect.
const ProbeAfter = 2 * RenewEvery
