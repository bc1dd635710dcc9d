package service

import (
	"context"
	"slices"

	"salvor/compute"
	"salvor/diagnose"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// Diagnoses say why servers do not boot.
type Diagnoses struct{ *serviceCore }

// Begin asks for a diagnosis of a server. The keys, at most diagnose.MaxLUKSKeys, open its encrypted disks. They lie sealed in the rows of the job
// and of the host's order until the host has answered. Conflict: a diagnosis is under way already.
func (s *Diagnoses) Begin(ctx context.Context, id string, args compute.DiagnoseArgs, keys []diagnose.LUKSKey, who compute.Who) (diagnose.Record, error) {
	packed, err := diagnose.PackLUKSKeys(keys)
	if err != nil {
		return diagnose.Record{}, err
	}
	var begun diagnose.Record
	err = s.change(ctx, func(tx job.Tx) error {
		srv, err := s.server(ctx, tx, id, who)
		if err != nil {
			return err
		}
		all, err := s.store.ServerDiagnoses(ctx, tx, srv.ID)
		if err != nil {
			return err
		}
		if len(all) > 0 && all[0].State == diagnose.Running {
			open, err := job.IsOpen(s.jobs, tx, compute.Subject(srv.ID), all[0].ID)
			switch {
			case err != nil:
				return err
			case open:
				return problem.Conflictf("server %s is being diagnosed since %s; to see how far that is: salvor diagnosis show %[1]s", srv.ID, record.Moment(all[0].RequestedAt))
			}
			all[0].Fail(s.now().UTC(), job.GoneProblem)
		}
		j, err := compute.NewJob(srv.ID, compute.JobDiagnose, args, nil, who.Asker)
		if err != nil {
			return err
		}
		j.Class, j.Secret = job.Background, packed
		if err := s.jobs.Insert(tx, j); err != nil {
			return err
		}
		begun = diagnose.Record{ID: j.ID, RequestedAt: s.now().UTC(), RequestedBy: who.User, State: diagnose.Running, Step: "the host examines the disks"}
		if err := s.write(tx, srv, append([]diagnose.Record{begun}, all...)); err != nil {
			return err
		}
		return s.note(tx, srv.ID, who.Asker, "request", "asked to diagnose")
	})
	return begun, err
}

// Confirm takes the statement of a user that the server works as the proof of a diagnosis, the newest one for the id "newest". Conflict: the diagnosis does not
// admit that, or the server does not run its own system.
func (s *Diagnoses) Confirm(ctx context.Context, server, id, words string, who compute.Who) (diagnose.Record, error) {
	var confirmed diagnose.Record
	err := s.change(ctx, func(tx job.Tx) error {
		srv, err := s.server(ctx, tx, server, who)
		if err != nil {
			return err
		}
		all, err := s.store.ServerDiagnoses(ctx, tx, srv.ID)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(d diagnose.Record) bool { return id == "newest" || d.ID == id })
		switch {
		case i < 0:
			return problem.NotFoundf("Server %s has no diagnosis %s.", srv.ID, id)
		case srv.InSession():
			return problem.Conflictf("server %s is in rescue, so nobody can say that its own system works; boot that first: salvor server unrescue %[1]s", srv.ID)
		case srv.Power != compute.PowerOn:
			return problem.Conflictf("server %s is %s, so nobody can say that it works; start it first: salvor server start %[1]s", srv.ID, compute.OrNone(string(srv.Power)))
		}
		if err := all[i].Confirm("server", srv.ID, diagnose.Confirmation{By: who.User, Words: words, At: record.Moment(s.now())}); err != nil {
			return err
		}
		confirmed = all[i]
		if err := s.write(tx, srv, all); err != nil {
			return err
		}
		return s.note(tx, srv.ID, who.Asker, "request", confirmed.ConfirmedEvent())
	})
	return confirmed, err
}

// List gives the kept diagnoses of a server, newest first.
func (s *Diagnoses) List(ctx context.Context, id string) ([]diagnose.Record, error) {
	return s.store.ServerDiagnoses(ctx, nil, id)
}

// Edit changes a diagnosis inside a job's transaction. One that is no longer kept is not changed.
func (s *Diagnoses) Edit(ctx context.Context, tx job.Tx, serverID, id string, change func(*diagnose.Record)) error {
	srv, err := s.store.Servers().Get(ctx, tx, serverID)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil || srv.State == compute.Deleted {
		return err
	}
	all, err := s.store.ServerDiagnoses(ctx, tx, serverID)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].ID == id {
			change(&all[i])
			return s.write(tx, srv, all)
		}
	}
	return nil
}

// write saves the row of the server too, so that of two transactions that change its diagnoses one begins again.
func (s *Diagnoses) write(tx job.Tx, srv *compute.Server, all []diagnose.Record) error {
	if err := s.store.Servers().Save(tx, srv); err != nil {
		return conflictToChanged(err)
	}
	return s.store.SaveServerDiagnoses(tx, srv.ID, all[:min(len(all), diagnose.MaxRecords)])
}

// Examiner is salvor's own rescue ramdisk, as a helper guest boots it. Conflict: this control plane offers none.
func (s *RescueImages) Examiner(ctx context.Context) (*compute.SpecRescue, error) {
	img, err := s.store.RescueImages().Get(ctx, nil, builtInID)
	if problem.Is(err, problem.NotFound) || err == nil && (img.Deleted() || img.Source.RamdiskDigest == "") {
		return nil, problem.Conflictf("there is no ramdisk that examines disks: build one with salvor ramdisk build --profile diagnose, and name it by [conductor]rescue_kernel and rescue_ramdisk")
	}
	if err != nil {
		return nil, err
	}
	src := img.Source
	return &compute.SpecRescue{
		Source:       rescue.Source{Name: img.Name, Kind: rescue.Kernel, Access: rescue.ByChannel, Append: compute.ExaminerParams(src.Append)},
		Image:        &compute.SpecImage{ID: src.Digest, Digest: src.Digest, Format: compute.RescueFormat(src.Kind)},
		RamdiskImage: &compute.SpecImage{ID: src.RamdiskDigest, Digest: src.RamdiskDigest, Format: "ari"},
	}, nil
}
