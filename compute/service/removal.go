package service

import (
	"context"
	"fmt"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Remove deletes a host without servers. While a move, a clean-up or a fence of it is open, or a guest that it told is not proven off,
// it is problem.Conflict, which lists them. With lost, an operator's reason, such a host is hidden and its row stays as a tombstone: if
// it speaks again it is told to start nothing and to clean up. A host that speaks is not lost, and neither is one whose guests are not
// proven off.
func (s *Hosts) Remove(ctx context.Context, ident, lost string, who record.Asker) error {
	h, err := s.Host(ctx, ident)
	if err != nil {
		return err
	}
	if err := compute.CheckLost(lost); err != nil {
		return err
	}
	err = s.change(ctx, func(tx job.Tx) error {
		now, err := s.store.Hosts().Get(ctx, tx, h.ID)
		if err != nil {
			return err
		}
		if err := s.empty(ctx, tx, now); err != nil {
			return err
		}
		open, err := s.openOf(ctx, tx, now)
		switch {
		case err != nil:
			return err
		case lost != "":
			return s.hide(ctx, tx, now, lost, who)
		case len(open) > 0:
			return problem.Conflictf("host %s cannot be removed: %s. Wait for their end, or, if it is lost for good, run: salvor host remove %s --lost REASON",
				compute.OrID(now), compute.AbbreviateList(open), h.ID)
		}
		if err := s.store.Hosts().Delete(tx, now); err != nil {
			return err
		}
		return s.noteHost(tx, h.ID, who, "removed")
	})
	if err == nil {
		s.cache.drop(h.ID)
	}
	return err
}

// empty refuses a host that has servers.
func (c *serviceCore) empty(ctx context.Context, tx job.Tx, h *compute.Host) error {
	here, err := c.store.Servers().List(ctx, tx, compute.ServerFilter{HostID: h.ID}, pageOf(1))
	if err == nil && len(here) > 0 {
		err = problem.Conflictf("host %s has servers, %s among them: delete or move them first", h.ID, here[0].ID)
	}
	return err
}

// openOf lists in words what of a host is open: moves, clean-ups, its fence, and guests that are not proven off.
func (c *serviceCore) openOf(ctx context.Context, tx job.Tx, h *compute.Host) (open []string, err error) {
	for _, which := range []struct {
		filter compute.MoveFilter
		words  string
	}{
		{compute.MoveFilter{HostID: h.ID, Open: true}, "move %s of server %s goes on"},
		{compute.MoveFilter{SourceID: h.ID, Uncleaned: true}, "it has not cleaned up after move %s of server %s"},
	} {
		moves, err := c.store.Moves().List(ctx, tx, which.filter, record.Page{})
		if err != nil {
			return nil, err
		}
		for _, m := range moves {
			open = append(open, fmt.Sprintf(which.words, m.ID, m.ServerID))
		}
	}
	receipts, err := c.store.Receipts().List(ctx, tx, compute.ReceiptFilter{HostID: h.ID, Open: true}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, r := range receipts {
		open = append(open, fmt.Sprintf("fence %d is not over (receipt %s)", r.Epoch, r.ID))
	}
	guests, err := c.store.GuestReports(ctx, tx, compute.GuestReportFilter{HostID: h.ID})
	for _, g := range guests {
		open = append(open, "guest "+g.ServerID+" was not off when it told its guests last")
	}
	return open, err
}

// hide makes a tombstone of a host that is lost.
func (s *Hosts) hide(ctx context.Context, tx job.Tx, h *compute.Host, reason string, who record.Asker) error {
	live, err := s.liveness.snapshot(ctx, tx)
	if err != nil {
		return err
	}
	silent, _, heard := s.liveness.Silence(h.ID)
	if live.isUp(h) && h.Kind != compute.GanetiHost || heard && silent < compute.Suspect {
		return problem.Conflictf("host %s is not lost: it speaks; end its guests with: salvor host set %s --forced-down", compute.OrID(h), h.ID)
	}
	reports, err := s.store.GuestReports(ctx, tx, compute.GuestReportFilter{HostID: h.ID})
	if err != nil {
		return err
	}
	running, _, err := s.reports.runsThere(ctx, tx, reports)
	if err != nil {
		return err
	}
	if running != "" {
		return problem.Conflictf("host %s is not removed as lost: %s. Prove first that it is off: salvor fence %s", compute.OrID(h), running, h.ID)
	}
	h.Lost, h.LostReason, h.LostBy, h.LostAt = true, reason, who.User, s.now()
	h.NodeID = "" // another host may be that machine by now
	if err := s.saveHost(tx, h); err != nil {
		return err
	}
	return s.noteHost(tx, h.ID, who, "removed as lost: "+reason)
}

// RemoveCluster deletes a cluster whose nodes have no servers. Of its nodes those stay as tombstones of which something is open, if it
// is lost; else that is problem.Conflict.
func (s *Hosts) RemoveCluster(ctx context.Context, clusters *Clusters, ident, lost string, who record.Asker) error {
	if err := compute.CheckLost(lost); err != nil || lost == "" {
		if err == nil {
			err = clusters.Remove(ctx, ident, who)
		}
		return err
	}
	cl, err := clusters.Get(ctx, ident)
	if err != nil {
		return err
	}
	err = s.change(ctx, func(tx job.Tx) error {
		nodes, err := s.store.Hosts().List(ctx, tx, compute.HostFilter{ClusterID: cl.ID}, record.Page{})
		if err != nil {
			return err
		}
		for _, h := range nodes {
			if err := s.empty(ctx, tx, h); err != nil {
				return err
			}
			open, err := s.openOf(ctx, tx, h)
			if err == nil && len(open) > 0 {
				err = s.hide(ctx, tx, h, lost, who)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return clusters.Remove(ctx, cl.ID, who)
}
