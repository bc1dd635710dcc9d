package metal

import (
	"context"
	"encoding/json"
	"slices"

	"salvor/diagnose"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// JobDiagnose is the kind of the jobs that diagnose machines.
const JobDiagnose job.Kind = "diagnose"

// Diagnoses is the document with the newest diagnoses of a node. It holds texts of its disks, so it is sealed, and ends with the tenancy.
const Diagnoses DocumentKind = "diagnoses"

// Diagnosis is a diagnosis of a node, with what was asked for.
type Diagnosis struct {
	diagnose.Record
	Args DiagnoseArgs `json:"args"`
}

// DiagnoseArgs are what may come with the request of a diagnosis.
type DiagnoseArgs struct {
	// Reboot allows to restart a machine that is on into the rescue ramdisk.
	Reboot bool `json:"reboot,omitempty"`
	// KeepRescue leaves the machine in rescue when its disks have been examined.
	KeepRescue bool `json:"keep_rescue,omitempty"`
	// OnlyRead: no program of the systems on the disks runs. Otherwise their own checkers do, such as sshd -t, in a sandbox.
	OnlyRead bool `json:"only_read,omitempty"`
	// Console are the findings in the text of a console that came with the request. The text itself is not stored.
	Console []diagnose.Finding `json:"-"`
	// LUKSKeys open encrypted disks. They lie sealed in the row of the job until the agent has them.
	LUKSKeys []diagnose.LUKSKey `json:"-"`
}

// Diagnose begins a diagnosis of a node. Conflict: one is under way already.
func (s *Nodes) Diagnose(ctx context.Context, ident string, args DiagnoseArgs, asker record.Asker) (Diagnosis, error) {
	n, err := s.store.Node(ctx, nil, ident)
	if err != nil {
		return Diagnosis{}, err
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return Diagnosis{}, err
	}
	keys, err := diagnose.PackLUKSKeys(args.LUKSKeys)
	if err != nil {
		return Diagnosis{}, err
	}
	args.LUKSKeys = nil
	var begun Diagnosis
	err = s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, n.ID)
		if err != nil {
			return err
		}
		all, err := s.Diagnoses(ctx, tx, n.ID)
		if err != nil {
			return err
		}
		if len(all) > 0 && all[0].State == diagnose.Running {
			open, err := job.IsOpen(s.jobs, tx, job.Node(n.ID), all[0].ID)
			switch {
			case err != nil:
				return err
			case open:
				return problem.Conflictf("node %s is being diagnosed since %s; to see how far that is: salvor diagnosis show %[1]s", n.ID, record.Moment(all[0].RequestedAt))
			}
			all[0].Fail(s.now(), job.GoneProblem)
		}
		j := &job.Job{Kind: JobDiagnose, Class: job.Background, Subject: job.Node(n.ID), Group: n.ConductorGroup, Args: raw, Secret: keys, RequestID: asker.RequestID, User: asker.User}
		if err := s.jobs.Insert(tx, j); err != nil {
			return err
		}
		begun = Diagnosis{diagnose.Record{ID: j.ID, RequestedAt: s.now(), RequestedBy: asker.User, State: diagnose.Running, Report: diagnose.Report{Findings: args.Console}}, args}
		if err := saveDiagnoses(s, tx, n, append([]Diagnosis{begun}, all...)); err != nil {
			return err
		}
		return s.note(tx, n.ID, asker, "request", "asked to diagnose")
	})
	return begun, err
}

// Diagnoses are the kept diagnoses of a node, newest first.
func (s *Nodes) Diagnoses(ctx context.Context, tx job.Tx, nodeID string) ([]Diagnosis, error) {
	return readList[Diagnosis](ctx, s.store, tx, nodeID, Diagnoses)
}

// EditDiagnosis changes a diagnosis inside a job's transaction. One that is no longer kept is not changed.
func (s *Nodes) EditDiagnosis(ctx context.Context, tx job.Tx, nodeID, id string, change func(*Diagnosis)) error {
	n, err := s.store.Node(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	all, err := s.Diagnoses(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].ID == id {
			change(&all[i])
			return saveDiagnoses(s, tx, n, all)
		}
	}
	return nil
}

// ConfirmDiagnosis takes the statement of a user that the node works as the proof of a diagnosis, the newest one for the id "newest". Conflict: the diagnosis
// does not admit that, or the node does not run its own system.
func (s *Nodes) ConfirmDiagnosis(ctx context.Context, ident, id, words string, asker record.Asker) (Diagnosis, error) {
	var confirmed Diagnosis
	err := s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, ident)
		if err != nil {
			return err
		}
		all, err := s.Diagnoses(ctx, tx, n.ID)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(d Diagnosis) bool { return id == "newest" || d.ID == id })
		switch {
		case i < 0:
			return problem.NotFoundf("Node %s has no diagnosis %s.", ident, id)
		case n.ProvisionState.Info().InRescue:
			return problem.Conflictf("node %s is in rescue, so nobody can say that its own system works; boot that first: salvor node unrescue %[1]s", n.ID)
		case n.PowerState == PowerOff:
			return problem.Conflictf("node %s is off, so nobody can say that it works; switch it on first: salvor node power on %[1]s", n.ID)
		}
		if err := all[i].Confirm("node", n.ID, diagnose.Confirmation{By: asker.User, Words: words, At: record.Moment(s.now())}); err != nil {
			return err
		}
		confirmed = all[i]
		if err := saveDiagnoses(s, tx, n, all); err != nil {
			return err
		}
		return s.note(tx, n.ID, asker, "request", confirmed.ConfirmedEvent())
	})
	return confirmed, err
}

// saveDiagnoses keeps the newest ones.
func saveDiagnoses(s *Nodes, tx job.Tx, n *Node, all []Diagnosis) error {
	return saveList(s, tx, n, Diagnoses, all[:min(len(all), diagnose.MaxRecords)])
}
