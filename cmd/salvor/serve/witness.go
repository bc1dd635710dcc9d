package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"salvor/compute"
	"salvor/record"
	"salvor/secret"
	wire "salvor/wire/host"
)

// hostWitnesses compares the witnesses of VM hosts with the database, and gives hosts new ones. It runs no query while both agree.
type hostWitnesses struct {
	program *ControlPlane
	mu      sync.Mutex
	sealed  *wire.Witness
	// former are earlier incarnations of the database that hosts have reported.
	former map[string]bool
	// heard holds the newest witness of each host that this control plane sealed.
	heard map[string]wire.Witness
}

// readWitnesses gives the witnesses that this process can read: its files, and those of the hosts that renew their leases at it.
func (p *ControlPlane) readWitnesses() []record.SeenWitness {
	var out []record.SeenWitness
	for _, path := range witnessFiles(p.cfg) {
		w, err := readWitness(path)
		seen := record.SeenWitness{Name: path, Witness: w}
		if err != nil {
			seen.Unreadable = err.Error()
		}
		out = append(out, seen)
	}
	if p.hostWitnesses == nil {
		return out
	}
	h := p.hostWitnesses
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.heard)) {
		out = append(out, record.SeenWitness{HostID: id, Witness: record.Witness{ID: h.heard[id].Incarnation, Counter: h.heard[id].Counter}})
	}
	return out
}

// witnessPlace is the purpose for which the key seals a proof.
const witnessPlace = "witness"

func proofOf(id string, counter int64) string { return fmt.Sprintf("%s %d", id, counter) }

// CurrentWitness implements host.Witnesses. While the database is held, hosts get no new witness.
func (h *hostWitnesses) CurrentWitness() *wire.Witness {
	i := h.program.Store.Known()
	if i.Held != nil || i.ID == "" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sealed == nil || h.sealed.Incarnation != i.ID || h.sealed.Counter != i.Counter {
		h.sealed = &wire.Witness{Incarnation: i.ID, Counter: i.Counter, Proof: h.program.key.Seal(secret.New(proofOf(i.ID, i.Counter)), witnessPlace)}
	}
	return h.sealed
}

// RecordWitness implements host.Witnesses. A host's witness counts only if this control plane's key sealed its proof.
func (h *hostWitnesses) RecordWitness(ctx context.Context, hostID string, w wire.Witness) error {
	agrees := func() bool {
		i := h.program.Store.Known()
		return i.Held != nil || h.former[w.Incarnation] || w.Incarnation == i.ID && w.Counter <= i.Counter
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if w != h.heard[hostID] && h.isProven(w) {
		if h.heard == nil {
			h.heard = map[string]wire.Witness{}
		}
		h.heard[hostID] = w
	}
	if !agrees() {
		if !h.isProven(w) {
			return nil
		}
		if err := h.program.Store.Compare(ctx, record.Witness{ID: w.Incarnation, Counter: w.Counter}, "host "+hostID); err != nil {
			return err
		}
		if i := h.program.Store.Known(); i.Held == nil && w.Incarnation != i.ID {
			h.former[w.Incarnation] = true
		}
	}
	if h.program.Store.StandsBy() && h.knowsTheStart(w) {
		h.program.Store.StandBy(0)
	}
	return nil
}

// knowsTheStart tells whether the host has at least the counter that this process found at its start. A host with a lower counter
// does not show that nothing was lost.
func (h *hostWitnesses) knowsTheStart(w wire.Witness) bool {
	found := h.program.found
	return w.Incarnation != "" && w.Incarnation == found.ID && w.Counter >= found.Counter && h.isProven(w)
}

// isProven tells whether this control plane's key sealed the witness's proof.
func (h *hostWitnesses) isProven(w wire.Witness) bool {
	proof, err := h.program.key.Open(w.Proof, witnessPlace)
	return err == nil && proof.Reveal() == proofOf(w.Incarnation, w.Counter)
}

// awaitHosts delays the claims of jobs after a start, until a host reports the state that the process found, or all hosts had time
// to report. One host may be the only witness that the database went back.
func (p *ControlPlane) awaitHosts(ctx context.Context) error {
	i := p.Store.Known()
	p.found = record.Witness{ID: i.ID, Counter: i.Counter}
	hosts, err := p.services.Hosts.List(ctx, compute.HostFilter{Kind: compute.AgentHost}, record.Page{})
	if err != nil {
		return err
	}
	for _, h := range hosts {
		if !h.Revoked && p.authority != nil {
			p.Store.StandBy(compute.RenewEvery + time.Second)
			return nil
		}
	}
	return nil
}
