package service

import (
	"cmp"
	"context"
	"slices"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
)

// restartPause is the pause before the next try when a start failed.
const restartPause = 10 * time.Second

// restart starts a crashed guest again by a job, as any start goes, and counts the try. Where its host is fenced or forced down, or
// something else works on the server, it starts nothing.
func (s *Observer) restart(ctx context.Context, tx job.Tx, srv *compute.Server, due time.Time, why string) error {
	host, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil || host.Fenced || host.ForcedDown {
		return cmp.Or(err, errBusy)
	}
	if err := s.reports.holdChange(ctx, tx, srv, true); err != nil {
		return orBusy(err)
	}
	j, err := compute.NewJob(srv.ID, compute.JobReconcile, compute.PowerArgs{Power: compute.PowerOn, Why: why, Crashed: true}, nil, record.Asker{})
	if err != nil {
		return err
	}
	j.Due = due
	if err := s.jobs.Insert(tx, j); err != nil {
		return err
	}
	words := ""
	if _, err := s.servers.edit(ctx, tx, srv.ID, func(srv *compute.Server) {
		srv.Task, srv.Power = compute.Reconciling, compute.PowerCrashed
		words = srv.CountRestart(s.now())
	}); err != nil {
		return err
	}
	return s.note(tx, srv.ID, record.Asker{}, "contact", why+": "+words)
}

// takeCrash takes in that a guest crashed which should run: it is started again, or had its tries.
func (s *Observer) takeCrash(ctx context.Context, tx job.Tx, srv *compute.Server) error {
	if srv.MayRestart(s.now()) {
		return s.restart(ctx, tx, srv, time.Time{}, "found "+string(compute.PowerCrashed))
	}
	_, err := s.servers.edit(ctx, tx, srv.ID, func(srv *compute.Server) { srv.EndRestarts(s.now(), "") })
	return err
}

// RestartLater starts a crashed guest again after a start of it failed, in the transaction that told so.
func (s *Observer) RestartLater(ctx context.Context, tx job.Tx, id, why string) error {
	srv, err := s.store.Servers().Get(ctx, tx, id)
	if err != nil || srv.Task != compute.NoTask || srv.Wanted != compute.PowerOn || !srv.IsSteady() {
		return ignoreNotFound(err)
	}
	open, err := s.jobs.Unended(tx, compute.Subject(id))
	if err != nil || slices.ContainsFunc(open, func(j job.Job) bool { return j.Class == job.Operation }) {
		return err
	}
	if err := s.restart(ctx, tx, srv, s.now().Add(restartPause), "the start failed ("+why+")"); err != errBusy {
		return err
	}
	return nil
}
