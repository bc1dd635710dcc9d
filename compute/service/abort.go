package service

import (
	"context"
	"fmt"
	"strings"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// Causes of aborts. The second one is for a job that was being undone, which keeps its first cause.
const (
	abortedByRequest = "aborted by request"
	undoneNoFurther  = "taking it back was aborted by request"
)

// Abort makes all open jobs of a server fail within seconds, for example while its host is silent: its operation, and a diagnosis. The host may have
// carried out orders that it has not answered. Abort treats none of them as undone, and its end makes them void.
func (s *Actions) Abort(ctx context.Context, id string, who compute.Who) (*compute.Server, error) {
	var out *compute.Server
	err := s.change(ctx, func(tx job.Tx) error {
		srv, err := s.server(ctx, tx, id, who)
		if err != nil {
			return err
		}
		out = srv
		if srv.Metal() {
			return problem.Unsupportedf("server %s is a machine: abort what its node does, at the Bare Metal service that has it", srv.ID)
		}
		open, err := s.jobs.Unended(tx, compute.Subject(srv.ID))
		if err != nil {
			return err
		}
		var kinds []string
		for _, j := range open {
			if err := s.abortable(ctx, tx, &j); err != nil {
				return err
			}
			cause := abortedByRequest
			if j.State == job.Undoing {
				cause = undoneNoFurther
			}
			if err := s.jobs.Abort(tx, j, cause); err != nil {
				return err
			}
			kinds = append(kinds, string(j.Kind))
		}
		if len(kinds) == 0 {
			return problem.Conflictf("server %s: nothing is going on that could be aborted", srv.ID)
		}
		return s.jobs.Append(tx, job.Event{Subject: compute.Subject(srv.ID), Type: "request", Severity: "info", User: who.User, RequestID: who.RequestID,
			Text: "asked to abort its " + strings.Join(kinds, " and its ")})
	})
	return out, err
}

// abortable refuses the abort of a job during an action in which the guest may run at either of two hosts.
func (s *Actions) abortable(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.Kind != compute.JobMigrate || j.Action != compute.LeaveSource {
		return nil
	}
	m, err := s.moves.moveOf(ctx, tx, j)
	if err != nil {
		return err
	}
	h, err := s.store.Hosts().Get(ctx, tx, m.SourceID)
	if err != nil {
		return err
	}
	return problem.Conflictf("server %s: its guest may be at either host while it leaves %s; wait for that host, or prove it off with: %s",
		j.Subject.ID, h.Name, fmt.Sprintf("salvor fence %s --wait", compute.OrID(h)))
}
