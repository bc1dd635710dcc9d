package service

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// young is for how long after a change of a server a host's word on it may be older than the change.
const young = 3 * compute.RenewEvery

// openObservations are the servers on which a look has come to no end: the host must not act on them by its own word. True: it should look
// again soon, for the server has changed so lately that what was seen may be older.
type openObservations map[string]bool

func (o openObservations) again() bool {
	for _, soon := range o {
		if soon {
			return true
		}
	}
	return false
}

// Observer records what hypervisors and machines report of servers.
type Observer struct {
	*serviceCore
	reports *GuestReports
	servers *Servers
}

// observe takes in what a host with an agent sees on it: all guests. What differs from what should be is mended by jobs.
// first: it is the first look after the host's start, whose guests are off because the host was. The servers of pending have not had theirs; unlooked are
// those that have not had theirs now.
func (s *Observer) observe(ctx context.Context, hostID string, guests []compute.Guest, first bool, pending []string) (left openObservations, unlooked []string, err error) {
	host, err := s.store.Hosts().Get(ctx, nil, hostID)
	if err != nil {
		return nil, nil, err
	}
	here, err := s.store.Servers().List(ctx, nil, compute.ServerFilter{HostID: hostID}, pageOf(0))
	if err != nil {
		return nil, nil, err
	}
	left = openObservations{}
	byID := make(map[string]*compute.Guest, len(guests))
	for i := range guests {
		byID[guests[i].ID] = &guests[i]
	}
	for _, srv := range here {
		g, changedAt := byID[srv.ID], srv.UpdatedAt
		if srv, err = s.noteDrift(ctx, srv, g); err != nil {
			return nil, nil, err
		}
		first := first || slices.Contains(pending, srv.ID)
		v := srv.CompareGuest(g, host.Kind, first, s.now())
		if v == (compute.GuestVerdict{}) {
			if first && srv.Task != compute.NoTask && srv.IsSteady() {
				unlooked = append(unlooked, srv.ID)
			}
			continue
		}
		if (v.SettleState || v.Restart || v.Pause.Reason != "") && host.Kind == compute.AgentHost && s.now().Sub(changedAt) < young {
			left[srv.ID] = true
			continue
		}
		err := s.mend(ctx, srv, g, host.Kind, first)
		if errors.Is(err, errBusy) {
			if left[srv.ID] = false; first {
				unlooked = append(unlooked, srv.ID)
			}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return left, unlooked, nil
}

// noteDrift keeps what a host tells that somebody else changed of a guest, and says so on the server's timeline; it keeps, too, whether the host has
// copied the guest's state beside its disk. What is told again costs nothing. noteDrift returns the server as it is stored then: the rest of the look must not
// take its own note for work of somebody else.
func (s *Observer) noteDrift(ctx context.Context, seen *compute.Server, g *compute.Guest) (*compute.Server, error) {
	if g == nil || g.Epoch != seen.Epoch || g.Power == compute.PowerUnknown || g.DriftUnknown {
		return seen, nil
	}
	drift := compute.BoundDrift(g.Drift)
	if slices.Equal(drift, seen.Drift) && g.StateCopied == seen.StateCopied {
		return seen, nil
	}
	noted := seen
	err := s.change(ctx, func(tx job.Tx) error {
		srv, err := s.store.Servers().Get(ctx, tx, seen.ID)
		if err != nil || srv.HostID != seen.HostID || srv.Epoch != seen.Epoch || slices.Equal(drift, srv.Drift) && g.StateCopied == srv.StateCopied {
			return err
		}
		before, unchanged := srv.Drift, srv.Version == seen.Version
		if srv, err = s.servers.edit(ctx, tx, srv.ID, func(srv *compute.Server) { srv.Drift, srv.StateCopied = drift, g.StateCopied }); err != nil {
			return err
		}
		for _, text := range compute.DescribeDriftChange(before, drift) {
			if err := s.note(tx, srv.ID, record.Asker{}, "contact", text); err != nil {
				return err
			}
		}
		if noted = seen; unchanged {
			noted = srv
		}
		return nil
	})
	if err != nil {
		return seen, ignoreNotFound(err)
	}
	return noted, nil
}

// errBusy ends a look at a server on which somebody works by now.
var errBusy = errors.New("busy")

// orBusy turns the refusal of holdChange into errBusy, so the next observation tries again.
func orBusy(err error) error {
	if problem.Is(err, problem.Conflict) {
		return errBusy
	}
	return err
}

// mend looks again in a transaction and does what the verdict says; errBusy: somebody works on the server, and nothing was done.
func (s *Observer) mend(ctx context.Context, seen *compute.Server, g *compute.Guest, kind compute.HostKind, first bool) error {
	err := s.change(ctx, func(tx job.Tx) error {
		open, err := s.jobs.Unended(tx, compute.Subject(seen.ID))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(open, func(j job.Job) bool { return j.Class != job.Background }) {
			return errBusy
		}
		srv, err := s.store.Servers().Get(ctx, tx, seen.ID)
		if err != nil {
			return err
		}
		v := srv.CompareGuest(g, kind, first, s.now())
		if v == (compute.GuestVerdict{}) || srv.Version != seen.Version {
			return errBusy // what was seen may be older than what was done since
		}
		if v.Crashed {
			return s.takeCrash(ctx, tx, srv)
		}
		if v.SetPower != "" {
			if host, err := s.store.Hosts().Get(ctx, tx, srv.HostID); err != nil || host.Fenced || host.ForcedDown {
				return cmp.Or(err, errBusy) // nothing is begun there any more
			}
			if v.SetPower == compute.PowerOn {
				if err := s.reports.holdChange(ctx, tx, srv, true); err != nil {
					return orBusy(err)
				}
			}
			j, err := compute.NewJob(srv.ID, compute.JobReconcile, compute.PowerArgs{Power: v.SetPower, Why: v.Reason}, nil, record.Asker{})
			if err != nil {
				return err
			}
			if err := s.jobs.Insert(tx, j); err != nil {
				return err
			}
		}
		return s.take(ctx, tx, srv.ID, v)
	})
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// take writes what a verdict says of the row.
func (s *Observer) take(ctx context.Context, tx job.Tx, id string, v compute.GuestVerdict) error {
	if _, err := s.servers.edit(ctx, tx, id, func(srv *compute.Server) {
		srv.Power = v.Power
		if v.SetPower != "" {
			srv.Task = compute.Reconciling
		}
		if v.Resume {
			srv.CountResume(s.now())
		}
		if v.Pause.Reason != "" {
			srv.StandStill(v.Power, v.Pause)
		}
		if v.SettleState {
			srv.Settle(v.Power)
			if srv.Wanted = v.Power; v.Power == compute.PowerCrashed {
				srv.Wanted = compute.PowerOff
			}
		}
	}); err != nil {
		return err
	}
	if v.Reason == "" {
		return nil
	}
	return s.note(tx, id, record.Asker{}, "contact", "found "+string(v.Power)+": "+v.Reason)
}
