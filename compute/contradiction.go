package compute

import (
	"slices"
)

// Contradiction is live evidence against the word of a person that a host is off.
type Contradiction struct {
	Code ContradictionCode `json:"code"`
	Text string            `json:"text"`
}

// ContradictionCode names a kind of contradiction; an attestation disputes it by this.
type ContradictionCode string

const (
	// GuestSeenRunning: another host, or a cluster, tells a guest of one of its servers that is not off. It cannot be disputed.
	GuestSeenRunning ContradictionCode = "guest-seen-running"
	// NeighboursReachIt: hosts that were asked to look at it reach it.
	NeighboursReachIt ContradictionCode = "neighbours-reach-it"
	// JoinedAgain: a host of the same name or address speaks under another identity.
	JoinedAgain ContradictionCode = "joined-again"
	// BMCReadsOn: the BMC of its node says that it is on.
	BMCReadsOn ContradictionCode = "bmc-reads-on"
)

// ContradictionCodes are all of them.
var ContradictionCodes = []ContradictionCode{GuestSeenRunning, NeighboursReachIt, JoinedAgain, BMCReadsOn}

// Undisputed lists the contradictions that an attestation with these disputes does not answer.
func Undisputed(all []Contradiction, disputes []ContradictionCode) []Contradiction {
	return slices.DeleteFunc(slices.Clone(all), func(c Contradiction) bool {
		return c.Code != GuestSeenRunning && slices.Contains(disputes, c.Code)
	})
}

// ContradictedBy joins contradictions for people.
func ContradictedBy(all []Contradiction) string {
	codes := make([]string, len(all))
	for i, c := range all {
		codes[i] = string(c.Code) + " (" + c.Text + ")"
	}
	return AbbreviateList(codes)
}
