package service

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// Bounds of the wait for a BMC that was not asked of late.
const (
	senseTries = 10
	sensePause = 200 * time.Millisecond
)

// Contradictions lists the live evidence against the word that a host is off.
func (s *Fences) Contradictions(ctx context.Context, h *compute.Host) (out []compute.Contradiction, err error) {
	add := func(code compute.ContradictionCode, format string, args ...any) {
		out = append(out, compute.Contradiction{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	reports, err := s.reports.reportedElsewhere(ctx, h.ID)
	if err != nil {
		return nil, err
	}
	running, _, err := s.reports.runsThere(ctx, nil, reports)
	if err != nil {
		return nil, err
	}
	if running != "" {
		add(compute.GuestSeenRunning, "%s", running)
	}
	if reached, asked := s.cache.reached(h.ID, s.now()); reached > 0 {
		add(compute.NeighboursReachIt, "%d of %d neighbours reach it", reached, asked)
	}
	again, err := s.joinedAgain(ctx, h)
	if err != nil {
		return nil, err
	}
	for _, o := range again {
		add(compute.JoinedAgain, "host %s (%s) at address %s speaks", compute.OrID(o), o.ID, compute.OrNone(o.Inventory.Address))
	}
	if s.cache.power(h) == compute.Lives {
		add(compute.BMCReadsOn, "the BMC of node %s says that it is on", h.NodeID)
	}
	return out, nil
}

// reached tells how many of the neighbours that looked at a host of late reach it.
func (c *hostCache) reached(hostID string, now time.Time) (reached, asked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, saw := range c.probes.seen[hostID] {
		if now.Sub(saw.at) < observationTTL {
			if asked++; saw.reached {
				reached++
			}
		}
	}
	return reached, asked
}

// power is what the BMC of a host said last.
func (c *hostCache) power(h *compute.Host) compute.Signal {
	by := c.healthSources()
	if by == nil || h.NodeID == "" {
		return compute.Unknown
	}
	return by.Power(h.NodeID)
}

// joinedAgain lists the hosts that speak and have the name or the address of a host.
func (s *Fences) joinedAgain(ctx context.Context, h *compute.Host) (out []*compute.Host, err error) {
	if h.Kind != compute.AgentHost {
		return nil, nil
	}
	all, err := s.store.Hosts().List(ctx, nil, compute.HostFilter{Kind: compute.AgentHost}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		same := strings.EqualFold(o.Name, h.Name) || o.Inventory.Address == h.Inventory.Address && isRoutable(h.Inventory.Address)
		silent, _, known := s.liveness.Silence(o.ID)
		if o.ID != h.ID && same && known && silent < compute.Suspect {
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

// attestable refuses an attestation against live evidence, unless its disputes are all codes of that evidence and no others.
func (s *Fences) attestable(ctx context.Context, h *compute.Host, disputes []compute.ContradictionCode) error {
	for _, d := range disputes {
		if !slices.Contains(compute.ContradictionCodes, d) {
			return problem.Invalidf("fence host %s: %.50q is no code of evidence: want some of %v", compute.OrID(h), d, compute.ContradictionCodes)
		}
	}
	for range senseTries { // whoever asks a BMC for the first time is told what it says a little later
		if h.NodeID == "" || s.cache.healthSources() == nil || s.cache.power(h) != compute.Unknown {
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
	codes := codesOf(all)
	given := []string{}
	for _, d := range disputes {
		given = append(given, string(d))
	}
	slices.Sort(codes)
	slices.Sort(given)
	given = slices.Compact(given)
	switch {
	case slices.Contains(codes, string(compute.GuestSeenRunning)):
		return problem.Conflictf("fence host %s: its attestation is contradicted by %s. A guest that is seen running cannot be disputed: end it first", compute.OrID(h), compute.ContradictedBy(all))
	case slices.Equal(codes, given):
		return nil
	case len(codes) == 0:
		return problem.Conflictf("fence host %s: nothing contradicts its attestation, and %s is disputed; ask without disputes", compute.OrID(h), strings.Join(given, ","))
	}
	return problem.Conflictf("fence host %s: its attestation is contradicted by %s. If you know better, run: %s", compute.OrID(h), compute.ContradictedBy(all), disputeCommand(h, codes))
}

// codesOf are the codes of live evidence, each once.
func codesOf(all []compute.Contradiction) (codes []string) {
	for _, c := range all {
		if !slices.Contains(codes, string(c.Code)) {
			codes = append(codes, string(c.Code))
		}
	}
	slices.Sort(codes)
	return codes
}

// againstForcedDown says why the word that a host is forced down does not count, and what to do.
func againstForcedDown(h *compute.Host, against []compute.Contradiction) string {
	why := "that it is forced down is contradicted by " + compute.ContradictedBy(against)
	if codes := codesOf(against); !slices.Contains(codes, string(compute.GuestSeenRunning)) {
		return why + "; if you know better, run: " + disputeCommand(h, codes)
	}
	return why + "; end that guest, and run: salvor fence " + compute.OrID(h)
}

// disputeCommand fences a host by the word of a person who disputes what contradicts it.
func disputeCommand(h *compute.Host, codes []string) string {
	return fmt.Sprintf("salvor fence %s --attest \"who saw what\" --dispute %s", compute.OrID(h), strings.Join(codes, ","))
}
