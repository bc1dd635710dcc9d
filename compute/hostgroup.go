package compute

import (
	"context"
	"slices"
	"strings"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// evidences are the words that a group may require.
var evidences = []Evidence{PowerCut, StorageRevoked, SelfFenced, Acknowledged, Attested}

// maxGroupName bounds a group's name, maxParallel the servers that are moved at a time.
const (
	maxGroupName = 100
	maxParallel  = 500
)

func newHostGroups(c *core) *HostGroups {
	s := record.NewCollection("host group", c.store.HostGroups(), c.jobs, c.now)
	s.Clone = func(g *HostGroup) *HostGroup {
		out := *g
		out.Require = slices.Clone(g.Require)
		return &out
	}
	s.Check = checkHostGroup
	s.Admit = c.admitHostGroup
	return s
}

// checkHostGroup holds a group to its bounds; what is left out is as in DefaultHostGroup.
func checkHostGroup(g *HostGroup) error {
	g.Name = strings.TrimSpace(g.Name)
	if g.Name == "" || len(g.Name) > maxGroupName || strings.ContainsAny(g.Name, "\x00\n\r\t/") || record.IsUUID(g.Name) {
		return problem.Invalidf("a host group's name is a line of 1 to %d characters without a slash, and no UUID", maxGroupName)
	}
	usual := DefaultHostGroup()
	if g.Reimage == "" {
		g.Reimage = usual.Reimage
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
	case !slices.Contains([]ReimagePolicy{ReimageAsk, ReimageNever, ReimageAlways}, g.Reimage):
		return problem.Invalidf("host group %s: reimage %.50q: want %s, %s or %s", g.Name, g.Reimage, ReimageAsk, ReimageNever, ReimageAlways)
	case g.MaxShare < 1 || g.MaxShare > 100:
		return problem.Invalidf("host group %s: max_share is 1 to 100 percent", g.Name)
	case g.MaxHosts < 1 || g.MaxHosts > most:
		return problem.Invalidf("host group %s: max_hosts is no less than 1", g.Name)
	case g.Parallel < 1 || g.Parallel > maxParallel:
		return problem.Invalidf("host group %s: parallel is 1 to %d", g.Name, maxParallel)
	}
	return nil
}

func wordsOf(all []Evidence) string {
	out := make([]string, len(all))
	for i, e := range all {
		out[i] = string(e)
	}
	return strings.Join(out, ", ")
}

// admitHostGroup keeps the name of a group that hosts follow: they name it.
func (c *core) admitHostGroup(ctx context.Context, tx job.Tx, ch record.Change[HostGroup]) error {
	if ch.Old == nil || ch.New != nil && ch.New.Name == ch.Old.Name {
		return nil
	}
	in, err := c.store.Hosts().List(ctx, tx, HostFilter{Group: ch.Old.Name}, pageOf(1))
	if err != nil {
		return err
	}
	if len(in) > 0 {
		return problem.Conflictf("host group %s is in use: host %s is in it", ch.Old.Name, orID(in[0]))
	}
	return nil
}

// Group reads the group that a host follows.
func (s *Hosts) Group(ctx context.Context, tx job.Tx, h *Host) (*HostGroup, error) {
	if h.Group == "" {
		return DefaultHostGroup(), nil
	}
	return s.store.HostGroups().Get(ctx, tx, h.Group)
}
