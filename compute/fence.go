package compute

import (
	"slices"
	"time"

	"salvor/record"
)

// Evidence is a way in which it was proven that nothing of a host's runs any more, or can write any more.
type Evidence string

const (
	// PowerCut: the BMC of the node that the host is read twice that it is off.
	PowerCut Evidence = "power"
	// StorageRevoked: the storage lets the host's initiators in no more, and none of their connections remains.
	StorageRevoked Evidence = "storage"
	// SelfFenced: the lease lapsed for SelfFenceEvidence, and its newest renewal named an armed hardware watchdog.
	SelfFenced Evidence = "self-fence"
	// Acknowledged: the host, alive, was told to stop its guests and told that none runs.
	Acknowledged Evidence = "acknowledgement"
	// Attested: a person said so, with name and words.
	Attested Evidence = "attestation"
)

// Clocks of the self-fence, from the moment at which the newest renewal that was answered was sent (host) or answered (control plane).
const (
	// SelfFenceKill is when a host ends its guests.
	SelfFenceKill = 8 * time.Second
	// SelfFenceWatchdog is when its hardware watchdog resets it.
	SelfFenceWatchdog = 12 * time.Second
	// SelfFenceEvidence is when the control plane takes the silence as proof.
	SelfFenceEvidence = 15 * time.Second
)

// Proof is one piece of evidence, in words for people.
type Proof struct {
	Evidence Evidence  `json:"evidence"`
	Text     string    `json:"text"`
	At       time.Time `json:"at"`
}

// Receipt is the record of a fence. A host has at most one that is open; no server leaves a host that died without one.
type Receipt struct {
	record.Record
	Num    int64
	HostID string
	// BootID of the boot that was fenced; it is never admitted by this fence's end, unless the host stopped its guests itself.
	BootID string
	// Epoch counts the fences of the host.
	Epoch  int64
	Proofs []Proof
	// By is who asked for the fence (empty: salvor itself); Words are those of an attestation.
	By, Words string
	// ClosedAt is when it ended; Closed says why: the host was admitted again (then BackBootID is its boot), or the evidence was contradicted.
	ClosedAt   time.Time
	Closed     string
	BackBootID string
	// HeardAt is when the fenced boot was heard last, after that; zero: it was not, or was proven off again.
	HeardAt time.Time
	// OtherBootID is another boot of the host that reported a guest while the receipt was open. OtherHeardAt is the last report of such
	// a boot, stored up to heardEvery late.
	OtherBootID  string
	OtherHeardAt time.Time
	// Incarnation is the former incarnation of the database that gave the receipt; empty: the current one, or the host was proven off
	// again since.
	Incarnation string
}

// OtherBootProvenOff tells whether a proof that the machine was off is newer than seen and newer than the last report of the other boots.
func (r *Receipt) OtherBootProvenOff(seen time.Time) bool {
	return !r.OtherHeardAt.IsZero() && slices.ContainsFunc(r.Proofs, func(p Proof) bool {
		return p.EndsAllBoots() && p.At.After(seen) && p.At.After(r.OtherHeardAt.Add(HeardEvery))
	})
}

// EndsAllBoots tells whether the proof shows that the machine itself was off.
func (p Proof) EndsAllBoots() bool { return p.Evidence == PowerCut || p.Evidence == Attested }

// LastHeardAt is the last report of any boot of the host while the receipt was open; zero: no boot reported.
func (r *Receipt) LastHeardAt() time.Time {
	if r.OtherHeardAt.After(r.HeardAt) {
		return r.OtherHeardAt
	}
	return r.HeardAt
}

// Doubted tells whether the boot that was fenced spoke after that, and has not told that none of its guests runs: nothing is attached
// elsewhere by such a receipt.
func (r *Receipt) Doubted() bool { return !r.HeardAt.IsZero() && !r.Has(Acknowledged) }

// Former tells whether it is of a former incarnation of the database. In the lost history the host may have been admitted again, and
// its guests may run. So the receipt proves nothing until the host is proven off again.
func (r *Receipt) Former() bool { return r.Incarnation != "" }

// Proves tells whether it proves the fenced boot off.
func (r *Receipt) Proves() bool { return !r.Former() && !r.Doubted() }

// Open tells whether servers may be moved by it.
func (r *Receipt) Open() bool { return r.ClosedAt.IsZero() }

// Has tells whether the receipt rests on this evidence, among others.
func (r *Receipt) Has(e Evidence) bool {
	for _, p := range r.Proofs {
		if p.Evidence == e {
			return true
		}
	}
	return false
}

// ReceiptFilter narrows a list of receipts.
type ReceiptFilter struct {
	HostID string
	// Open keeps those that are open.
	Open bool
}

// ReimagePolicy says whether a server whose disk died with its host may be made anew from its image: its data are lost.
type ReimagePolicy string

const (
	// ReimageAsk: only servers that are named.
	ReimageAsk    ReimagePolicy = "ask"
	ReimageNever  ReimagePolicy = "never"
	ReimageAlways ReimagePolicy = "always"
)

// VariablesPolicy says whether a server may be evacuated whose UEFI variables lie on its dead host alone: it begins with new ones.
type VariablesPolicy string

const (
	// VariablesAsk: only with consent in the request.
	VariablesAsk     VariablesPolicy = "ask"
	VariablesDiscard VariablesPolicy = "discard"
)

// HostGroup is what operators decide for several hosts at once. A host without a group follows DefaultHostGroup.
type HostGroup struct {
	record.Record
	Num  int64
	Name string
	// Healing: a host of the group that is dead is fenced and evacuated without anybody asking.
	Healing bool
	// SelfFence: its hosts end their guests when their lease lapses.
	SelfFence bool
	// Require lists evidence that a receipt must rest on; empty: any one.
	Require []Evidence
	Reimage ReimagePolicy
	// Variables is empty in records of former releases, which is VariablesAsk.
	Variables VariablesPolicy
	// MaxHosts are healed within HealCycle; MaxShare is the percentage of all hosts of the group: if so many or more of them, two at
	// least, fell silent within HealCycle, it is the control plane that is cut off.
	MaxHosts, MaxShare int
	// Parallel bounds how many servers of a host are moved at a time.
	Parallel int
	// Healed are the hosts of the group whose healing began within HealCycle: all control planes count in this row.
	Healed []Healing
}

// Healing is the beginning of a host's healing.
type Healing struct {
	HostID string    `json:"host_id"`
	At     time.Time `json:"at"`
}

// HostGroupFilter narrows a list of host groups.
type HostGroupFilter struct{ Name string }

// HealCycle is the time in which at most MaxHosts hosts of a group are healed.
const HealCycle = 10 * time.Minute

// DefaultHostGroup is the group of hosts that have none.
func DefaultHostGroup() *HostGroup {
	return &HostGroup{Name: "", Reimage: ReimageAsk, Variables: VariablesAsk, MaxHosts: 1, MaxShare: 50, Parallel: 16}
}
