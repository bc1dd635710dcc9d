package service

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// evidences are the words that a group may require.
var evidences = []compute.Evidence{compute.PowerCut, compute.StorageRevoked, compute.SelfFenced, compute.Acknowledged, compute.Attested}

// maxGroupName bounds a group's name, maxParallel the servers that are moved at a time.
const (
	maxGroupName = 100
	maxParallel  = 500
)

func newHostGroups(c *serviceCore) *HostGroups {
	s := record.NewCollection("host group", c.store.HostGroups(), c.jobs, c.now)
	s.Check = checkHostGroup
	s.Admit = c.admitHostGroup
	return s
}

// checkHostGroup holds a group to its bounds; what is left out is as in DefaultHostGroup.
func checkHostGroup(g *compute.HostGroup) error {
	g.Name = strings.TrimSpace(g.Name)
	if g.Name == "" || len(g.Name) > maxGroupName || strings.ContainsAny(g.Name, "\x00\n\r\t/") || record.IsUUID(g.Name) {
		return problem.Invalidf("a host group's name is a line of 1 to %d characters without a slash, and no UUID", maxGroupName)
	}
	usual := compute.DefaultHostGroup()
	if g.Reimage == "" {
		g.Reimage = usual.Reimage
	}
	if g.Variables == "" {
		g.Variables = usual.Variables
	}
	if g.MaxHosts == 0 {
		g.MaxHosts = usual.MaxHosts
	}
	if g.MaxShare == 0 {
		g.MaxShare = usual.MaxShare
	}
	if g.Parallel == 0 {
		g.Parallel = usual.Parallel
	}
	for i, e := range g.Require {
		if !slices.Contains(evidences, e) || slices.Contains(g.Require[:i], e) {
			return problem.Invalidf("host group %s: require %.50q: want some of %s, each once", g.Name, e, wordsOf(evidences))
		}
	}
	switch {
	case !slices.Contains([]compute.ReimagePolicy{compute.ReimageAsk, compute.ReimageNever, compute.ReimageAlways}, g.Reimage):
		return problem.Invalidf("host group %s: reimage %.50q: want %s, %s or %s", g.Name, g.Reimage, compute.ReimageAsk, compute.ReimageNever, compute.ReimageAlways)
	case !slices.Contains([]compute.VariablesPolicy{compute.VariablesAsk, compute.VariablesDiscard}, g.Variables):
		return problem.Invalidf("host group %s: variables %.50q: want %s or %s", g.Name, g.Variables, compute.VariablesAsk, compute.VariablesDiscard)
	case g.MaxShare < 1 || g.MaxShare > 100:
		return problem.Invalidf("host group %s: max_share is 1 to 100 percent", g.Name)
	case g.MaxHosts < 1 || g.MaxHosts > most:
		return problem.Invalidf("host group %s: max_hosts is no less than 1", g.Name)
	case g.Parallel < 1 || g.Parallel > maxParallel:
		return problem.Invalidf("host group %s: parallel is 1 to %d", g.Name, maxParallel)
	}
	return nil
}

func wordsOf(all []compute.Evidence) string {
	out := make([]string, len(all))
	for i, e := range all {
		out[i] = string(e)
	}
	return strings.Join(out, ", ")
}

// admitHostGroup keeps the name of a group that hosts follow: they name it.
func (c *serviceCore) admitHostGroup(ctx context.Context, tx job.Tx, ch record.Change[compute.HostGroup]) error {
	if ch.Old == nil || ch.New != nil && ch.New.Name == ch.Old.Name {
		return nil
	}
	in, err := c.store.Hosts().List(ctx, tx, compute.HostFilter{Group: ch.Old.Name}, pageOf(1))
	if err != nil {
		return err
	}
	if len(in) > 0 {
		return problem.Conflictf("host group %s is in use: host %s is in it", ch.Old.Name, compute.OrID(in[0]))
	}
	return nil
}

// Group reads the group that a host follows.
func (s *serviceCore) Group(ctx context.Context, tx job.Tx, h *compute.Host) (*compute.HostGroup, error) {
	if h.Group == "" {
		return compute.DefaultHostGroup(), nil
	}
	return s.store.HostGroups().Get(ctx, tx, h.Group)
}

// follow links a host with its node and its group.
func (s *Hosts) follow(ctx context.Context, tx job.Tx, h *compute.Host, v compute.Service, said *[]string) error {
	if v.NodeID != nil && *v.NodeID != h.NodeID {
		id := strings.ToLower(*v.NodeID)
		if id != "" && !record.IsUUID(id) {
			return problem.Invalidf("host %s: %.100q is no UUID of a node", compute.OrID(h), *v.NodeID)
		}
		if id != "" {
			others, err := s.store.Hosts().List(ctx, tx, compute.HostFilter{NodeID: id}, pageOf(1))
			if err != nil {
				return err
			}
			if len(others) > 0 && others[0].ID != h.ID {
				return problem.Conflictf("node %s is host %s already; unlink that one first", id, compute.OrID(others[0]))
			}
		}
		h.NodeID = id
		*said = append(*said, "is node "+compute.OrNone(id))
	}
	if v.Group == nil || *v.Group == h.Group {
		return nil
	}
	if *v.Group != "" {
		g, err := s.store.HostGroups().Get(ctx, tx, *v.Group)
		if problem.Is(err, problem.NotFound) {
			return problem.Invalidf("host %s: there is no host group %.100s; create it first", compute.OrID(h), *v.Group)
		}
		if err != nil {
			return err
		}
		// Of this and of the group's removal one comes first: both write its row.
		if err := s.store.HostGroups().Save(tx, g); err != nil {
			return conflictToChanged(err)
		}
		h.Group = g.Name
	} else {
		h.Group = ""
	}
	*said = append(*said, "in host group "+compute.OrNone(h.Group))
	return nil
}

// forceDown keeps who says that a host is down. It is taken back only when nothing of what was moved away is left to clean up there.
func (s *Hosts) forceDown(ctx context.Context, tx job.Tx, h *compute.Host, down *bool, who record.Asker) error {
	switch {
	case down == nil || *down == h.ForcedDown:
		return nil
	case *down:
		if h.ForcedDownBy = who.User; h.ForcedDownBy == "" {
			h.ForcedDownBy = "an operator"
		}
		return nil
	}
	for _, f := range []compute.MoveFilter{{SourceID: h.ID, Kind: compute.Evacuation, Uncleaned: true}, {SourceID: h.ID, Kind: compute.Evacuation, Open: true}} {
		left, err := s.store.Moves().List(ctx, tx, f, pageOf(1))
		switch {
		case err != nil:
			return err
		case len(left) > 0 && f.Open:
			return problem.Invalidf("Unable to force up host %s while server %s is being evacuated from it: wait for the end of its move, or cancel it.", compute.OrID(h), left[0].ServerID)
		case len(left) > 0:
			return problem.Invalidf("Unable to force up host %s as `done` evacuation migration records remain associated with the host. "+
				"Ensure the compute service has been restarted, allowing these records to move to `completed` before retrying this request.", compute.OrID(h))
		}
	}
	h.ForcedDownBy, h.Unseen = "", true // what it stopped for us is started again
	if !h.Fenced || h.Kind == compute.AgentHost {
		return nil // one with an agent is admitted by its next renewal
	}
	up := *h
	up.ForcedDown = false
	if why, err := s.fences.blockedReason(ctx, tx, &up); err != nil || why != "" {
		return cmp.Or(err, problem.Invalidf("Unable to force up host %s: %s", compute.OrID(h), why))
	}
	receipt, err := s.Receipt(ctx, tx, h.ID)
	if err != nil {
		return err
	}
	receipt.Closed, h.Fenced = "admitted", false
	return s.fences.saveClosed(tx, receipt)
}
