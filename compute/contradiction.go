package compute

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"salvor/problem"
	"salvor/record"
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

// contradictionCodes are all of them.
var contradictionCodes = []ContradictionCode{GuestSeenRunning, NeighboursReachIt, JoinedAgain, BMCReadsOn}

// Bounds of the wait for a BMC that was not asked of late.
const (
	senseTries = 10
	sensePause = 200 * time.Millisecond
)

// Contradictions lists the live evidence against the word that a host is off.
func (s *Hosts) Contradictions(ctx context.Context, h *Host) (out []Contradiction, err error) {
	add := func(code ContradictionCode, format string, args ...any) {
		out = append(out, Contradiction{code, fmt.Sprintf(format, args...)})
	}
	reports, err := s.reportedElsewhere(ctx, h.ID)
	if err != nil {
		return nil, err
	}
	running, _, err := s.runsThere(ctx, nil, reports)
	if err != nil {
		return nil, err
	}
	if running != "" {
		add(GuestSeenRunning, "%s", running)
	}
	if reached, asked := s.lookout.reached(h.ID, s.now()); reached > 0 {
		add(NeighboursReachIt, "%d of %d neighbours reach it", reached, asked)
	}
	again, err := s.joinedAgain(ctx, h)
	if err != nil {
		return nil, err
	}
	for _, o := range again {
		add(JoinedAgain, "host %s (%s) at address %s speaks", orID(o), o.ID, orNone(o.Inventory.Address))
	}
	if s.lookout.power(h) == Lives {
		add(BMCReadsOn, "the BMC of node %s says that it is on", h.NodeID)
	}
	return out, nil
}

// reached tells how many of the neighbours that looked at a host of late reach it.
func (l *failureDetector) reached(hostID string, now time.Time) (reached, asked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, saw := range l.seen[hostID] {
		if now.Sub(saw.at) < observationTTL {
			if asked++; saw.reached {
				reached++
			}
		}
	}
	return reached, asked
}

// power is what the BMC of a host said last.
func (l *failureDetector) power(h *Host) Signal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.senses == nil || h.NodeID == "" {
		return Unknown
	}
	return l.senses.Power(h.NodeID)
}

// joinedAgain lists the hosts that speak and have the name or the address of a host.
func (s *Hosts) joinedAgain(ctx context.Context, h *Host) (out []*Host, err error) {
	if h.Kind != AgentHost {
		return nil, nil
	}
	all, err := s.store.Hosts().List(ctx, nil, HostFilter{Kind: AgentHost}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		same := strings.EqualFold(o.Name, h.Name) || o.Inventory.Address == h.Inventory.Address && isRoutable(h.Inventory.Address)
		silent, _, known := s.Silence(o.ID)
		if o.ID != h.ID && same && known && silent < Suspect {
			out = append(out, o)
		}
	}
	return out, nil
}

// isRoutable tells whether an address tells hosts apart.
func isRoutable(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified()
}

// Undisputed lists the contradictions that an attestation with these disputes does not answer.
func Undisputed(all []Contradiction, disputes []ContradictionCode) []Contradiction {
	return slices.DeleteFunc(slices.Clone(all), func(c Contradiction) bool {
		return c.Code != GuestSeenRunning && slices.Contains(disputes, c.Code)
	})
}

// ContradictedBy joins contradictions for people.
func ContradictedBy(all []Contradiction) string {
	words := make([]string, len(all))
	for i, c := range all {
		words[i] = string(c.Code) + " (" + c.Text + ")"
	}
	return abbreviateList(words)
}

// attestable refuses an attestation against live evidence, unless its disputes are all codes of that evidence and no others.
func (s *Hosts) attestable(ctx context.Context, h *Host, disputes []ContradictionCode) error {
	for _, d := range disputes {
		if !slices.Contains(contradictionCodes, d) {
			return problem.Invalidf("fence host %s: %.50q is no code of evidence: want some of %v", orID(h), d, contradictionCodes)
		}
	}
	for range senseTries { // whoever asks a BMC for the first time is told what it says a little later
		if h.NodeID == "" || !s.lookout.asksBMCs() || s.lookout.power(h) != Unknown {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sensePause):
		}
	}
	all, err := s.Contradictions(ctx, h)
	if err != nil {
		return err
	}
	var codes []string
	for _, c := range all {
		if !slices.Contains(codes, string(c.Code)) {
			codes = append(codes, string(c.Code))
		}
	}
	given := []string{}
	for _, d := range disputes {
		given = append(given, string(d))
	}
	slices.Sort(codes)
	slices.Sort(given)
	given = slices.Compact(given)
	switch {
	case slices.Contains(codes, string(GuestSeenRunning)):
		return problem.Conflictf("fence host %s: its attestation is contradicted by %s. A guest that is seen running cannot be disputed: end it first", orID(h), ContradictedBy(all))
	case slices.Equal(codes, given):
		return nil
	case len(codes) == 0:
		return problem.Conflictf("fence host %s: nothing contradicts its attestation, and %s is disputed; ask without disputes", orID(h), strings.Join(given, ","))
	}
	return problem.Conflictf("fence host %s: its attestation is contradicted by %s. If you know better, run: salvor fence %s --attest \"who saw what\" --dispute %s",
		orID(h), ContradictedBy(all), orID(h), strings.Join(codes, ","))
}

// asksBMCs tells whether somebody here asks BMCs.
func (l *failureDetector) asksBMCs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.senses != nil
}
