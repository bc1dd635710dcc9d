package service

import (
	"context"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

const (
	// probeCount hosts look at one host.
	probeCount = 3
	// observationTTL is how long a neighbour's word counts.
	observationTTL = 10 * time.Second
)

// probeResults is what this process remembers of silent hosts from one look to the next.
type probeResults struct {
	sources compute.HealthSources // nil: there are none
	// asked are the hosts that each living one is to look at, seen what they told, by the host and by who looked.
	asked map[string][]compute.Neighbour
	seen  map[string]map[string]probeResult
	// why is what is thought of silent hosts, suspected those that are called dead.
	why       map[string]string
	suspected map[string]bool
	// massFailure is what the log was told of one.
	massFailure string
}

type probeResult struct {
	reached bool
	at      time.Time
}

// SetSenses names further ways of perceiving hosts.
func (s *Liveness) SetSenses(by compute.HealthSources) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	s.cache.probes.sources = by
}

// healthSources are further ways of perceiving hosts than their leases; nil: there are none.
func (c *hostCache) healthSources() compute.HealthSources {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.probes.sources
}

// lookFor lists what a living host is asked to look at.
func (c *hostCache) lookFor(hostID string) []compute.Neighbour {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.probes.asked[hostID]
}

// recordProbe takes a neighbour's word, of hosts that it was asked about.
func (c *hostCache) recordProbe(hostID string, seen []compute.Neighbour, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.probes
	for _, n := range seen {
		if !slices.ContainsFunc(l.asked[hostID], func(a compute.Neighbour) bool { return a.HostID == n.HostID && a.Address == n.Address }) {
			continue
		}
		if l.seen[n.HostID] == nil {
			if l.seen == nil {
				l.seen = map[string]map[string]probeResult{}
			}
			l.seen[n.HostID] = map[string]probeResult{}
		}
		l.seen[n.HostID][hostID] = probeResult{n.Reached, now}
	}
}

// verdictFor is what is thought of a silent host, empty: it is none; suspected: it is called dead.
func (c *hostCache) verdictFor(hostID string) (why string, suspected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.probes.why[hostID], c.probes.suspected[hostID]
}

// failureDetector suspects silent hosts, and begins the fences of those whose group heals.
type failureDetector struct {
	*serviceCore
	cache    *hostCache
	liveness *Liveness
	fences   *Fences
}

// tend judges who is silent, and begins the fence of those whose group heals.
func (s *failureDetector) tend(ctx context.Context) error {
	hosts, err := s.store.Hosts().List(ctx, nil, compute.HostFilter{Kind: compute.AgentHost}, record.Page{})
	if err != nil {
		return err
	}
	view, byID, err := s.view(ctx, hosts)
	if err != nil {
		return err
	}
	s.cache.askNeighbours(view, byID)
	verdicts := compute.Evaluate(view)
	begun, massFailure := s.cache.takeVerdicts(verdicts)
	for _, v := range begun {
		if err := s.suspect(ctx, v); err != nil {
			return err
		}
	}
	for _, v := range verdicts {
		if v.Heal {
			if err := s.heal(ctx, byID[v.HostID], v.Why); err != nil {
				return err
			}
		}
	}
	if massFailure != "" {
		return problem.Unavailablef("nobody is suspected: %s", massFailure)
	}
	return nil
}

// view perceives all hosts now. Only of those that are silent more is asked than whether they are.
func (s *failureDetector) view(ctx context.Context, hosts []*compute.Host) (compute.FleetObservation, map[string]*compute.Host, error) {
	v, byID := compute.FleetObservation{Listening: s.liveness.Listening()}, make(map[string]*compute.Host, len(hosts))
	silent := false
	for _, h := range hosts {
		byID[h.ID] = h
		g := compute.HostObservation{HostID: h.ID, Name: h.Name, Group: h.Group, Excluded: h.Fenced || h.ForcedDown || h.Revoked}
		g.Silent, g.Watchdog, g.HadLease = s.liveness.Silence(h.ID)
		g.ForcedDown = h.ForcedDown && !h.Fenced && !h.Revoked
		silent = silent || g.IsProbed()
		v.Hosts = append(v.Hosts, g)
	}
	if !silent {
		return v, byID, nil
	}
	groups, err := s.store.HostGroups().List(ctx, nil, compute.HostGroupFilter{}, record.Page{})
	if err != nil {
		return v, nil, err
	}
	v.Groups = make(map[string]*compute.HostGroup, len(groups))
	for _, g := range groups {
		v.Groups[g.Name] = g
	}
	fenced, err := s.store.Receipts().List(ctx, nil, compute.ReceiptFilter{Open: true}, record.Page{})
	if err != nil {
		return v, nil, err
	}
	tried := healAttemptAges(fenced, groups, s.now())
	for i := range v.Hosts {
		g := &v.Hosts[i]
		g.TriedAgo = tried[g.HostID]
		if g.IsProbed() {
			if err := s.collectSignals(ctx, g, byID[g.HostID]); err != nil {
				return v, nil, err
			}
		}
	}
	return v, byID, nil
}

// collectSignals asks all ways but the lease about one host.
func (s *failureDetector) collectSignals(ctx context.Context, g *compute.HostObservation, h *compute.Host) error {
	there, err := s.On(ctx, h.ID)
	if err != nil {
		return err
	}
	g.Servers = len(there)
	s.cache.countNeighbours(g, s.now())
	by := s.cache.healthSources()
	if by == nil {
		return nil
	}
	if h.NodeID != "" {
		g.Power = by.Power(h.NodeID)
	}
	running := slices.DeleteFunc(slices.Clone(there), func(srv *compute.Server) bool {
		some, _ := srv.HasVolumes()
		return !some || srv.Power != compute.PowerOn
	})
	if len(running) > 0 {
		if some, known := by.Connected(compute.Initiators(h, running)); known {
			g.Storage = map[bool]compute.Signal{true: compute.Lives, false: compute.Dead}[some]
		}
	}
	return nil
}

// countNeighbours counts the neighbours that are to look at a host, and what they told of it since it is silent.
func (c *hostCache) countNeighbours(g *compute.HostObservation, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for neighbour, what := range c.probes.asked {
		if !slices.ContainsFunc(what, func(n compute.Neighbour) bool { return n.HostID == g.HostID }) {
			continue
		}
		g.Neighbours++
		if saw, ok := c.probes.seen[g.HostID][neighbour]; ok && now.Sub(saw.at) < min(observationTTL, g.Silent) {
			g.NeighboursAnswered++
			if saw.reached {
				g.NeighboursReached++
			}
		}
	}
}

// askNeighbours chooses who looks at the silent hosts: living ones, of the same group before others.
func (c *hostCache) askNeighbours(v compute.FleetObservation, byID map[string]*compute.Host) {
	near, living := map[string][]string{}, []string{}
	for _, o := range v.Hosts {
		if !o.Excluded && o.HadLease && o.Silent < compute.ProbeAfter {
			near[o.Group], living = append(near[o.Group], o.HostID), append(living, o.HostID)
		}
	}
	asked, silent := map[string][]compute.Neighbour{}, map[string]bool{}
	for _, g := range v.Hosts {
		address := byID[g.HostID].Inventory.Address
		if !g.IsProbed() || address == "" {
			continue
		}
		silent[g.HostID] = true
		by := slices.Clone(near[g.Group][:min(len(near[g.Group]), probeCount)])
		for _, id := range living[:min(len(living), probeCount)] {
			if len(by) < probeCount && !slices.Contains(by, id) {
				by = append(by, id)
			}
		}
		for _, id := range by {
			asked[id] = append(asked[id], compute.Neighbour{HostID: g.HostID, Address: address})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probes.asked = asked
	for id := range c.probes.seen {
		if !silent[id] {
			delete(c.probes.seen, id)
		}
	}
}

// takeVerdicts remembers what is thought of silent hosts, and gives those that are suspected from now on. It tells of a mass failure once.
func (c *hostCache) takeVerdicts(verdicts []compute.Verdict) (begun []compute.Verdict, massFailure string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.probes
	why, suspected := map[string]string{}, map[string]bool{}
	for _, v := range verdicts {
		why[v.HostID], suspected[v.HostID] = v.Why, v.Suspected
		if v.Suspected && !l.suspected[v.HostID] {
			begun = append(begun, v)
		}
		if strings.Contains(v.Why, compute.PartitionNote) {
			massFailure = v.Why
		}
	}
	l.why, l.suspected = why, suspected
	if (massFailure != "") == (l.massFailure != "") {
		return begun, ""
	}
	l.massFailure = massFailure
	return begun, massFailure
}

// healAttemptAges tells how long ago hosts were healed, or fenced by anybody and not admitted since, within HealCycle.
func healAttemptAges(open []*compute.Receipt, groups []*compute.HostGroup, now time.Time) map[string]time.Duration {
	out := map[string]time.Duration{}
	keep := func(id string, at time.Time) {
		if ago := max(now.Sub(at), 1); ago < compute.HealCycle && (out[id] == 0 || ago < out[id]) {
			out[id] = ago
		}
	}
	for _, r := range open {
		keep(r.HostID, r.CreatedAt)
	}
	for _, g := range groups {
		for _, d := range g.Healed {
			keep(d.HostID, d.At)
		}
	}
	return out
}

// suspect writes on the host's timeline that it is called dead.
func (s *failureDetector) suspect(ctx context.Context, v compute.Verdict) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		return s.jobs.Append(tx, job.Event{Subject: compute.HostSubject(v.HostID), Type: "contact", Text: "suspected to be dead: " + v.Why, Severity: "error"})
	})
}

// heal begins the fence of a host, which is evacuated after it, if its group's gate is open still.
func (s *failureDetector) heal(ctx context.Context, h *compute.Host, why string) error {
	err := s.change(ctx, func(tx job.Tx) error {
		began, err := s.fences.insertFence(ctx, tx, h, compute.FenceArgs{Heal: true, Why: why}, compute.Who{Admin: true})
		if err != nil || began == "" { // a drain ends first
			return err
		}
		return s.countHealing(ctx, tx, h)
	})
	if problem.Is(err, problem.Conflict) {
		return nil // somebody works on it already, or another control plane was first
	}
	return err
}

// countHealing counts the healing of a host in the row of its group, where every control plane does, and after every start. Conflict:
// the host was healed within HealCycle, or as many as may be were.
func (s *failureDetector) countHealing(ctx context.Context, tx job.Tx, h *compute.Host) error {
	g, err := s.store.HostGroups().Get(ctx, tx, h.Group)
	if err != nil {
		return err
	}
	now := s.now()
	g.Healed = slices.DeleteFunc(g.Healed, func(d compute.Healing) bool { return now.Sub(d.At) >= compute.HealCycle })
	if len(g.Healed) >= g.MaxHosts || slices.ContainsFunc(g.Healed, func(d compute.Healing) bool { return d.HostID == h.ID }) {
		return problem.Conflictf("host %s is not healed now: %d of its group were within %s", compute.OrID(h), len(g.Healed), compute.HealCycle)
	}
	g.Healed = append(g.Healed, compute.Healing{HostID: h.ID, At: now})
	return conflictToChanged(s.store.HostGroups().Save(tx, g))
}
