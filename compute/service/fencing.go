package service

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// maxWords bounds the words of an attestation.
const maxWords = 1000

// A drain gives way to a fence: its plan is cancelled, and its end is asked for so often.
const (
	yieldEvery = 50 * time.Millisecond
	yieldTries = 100
)

// Fence begins the fence of a host and returns its job. With words it is also attested by who asks, should nothing prove it. A drain
// is cancelled for it; Conflict while another operation on the host goes on.
func (s *Fences) Fence(ctx context.Context, ident string, a compute.FenceArgs, who compute.Who) (jobID string, err error) {
	h, err := s.host(ctx, ident)
	if err != nil {
		return "", err
	}
	a.Words = strings.TrimSpace(a.Words)
	switch {
	case len(a.Words) > maxWords || strings.ContainsAny(a.Words, "\x00\n\r"):
		return "", problem.Invalidf("fence host %s: the words of an attestation are one line of at most %d characters", h.Name, maxWords)
	case h.Kind == compute.IronicHost:
		return "", problem.Unsupportedf("host %s is an endpoint of the Bare Metal API: each of its servers is its own host, there is nothing to fence", h.Name)
	}
	if a.Words == "" && len(a.Disputes) > 0 {
		return "", problem.Invalidf("fence host %s: disputes are of an attestation; say how you know that it is off", h.Name)
	}
	if a.Words != "" {
		if err := s.attestable(ctx, h, a.Disputes); err != nil {
			return "", err
		}
	}
	for range yieldTries {
		err = s.change(ctx, func(tx job.Tx) error {
			jobID, err = s.insertFence(ctx, tx, h, a, who)
			return err
		})
		if err != nil || jobID != "" {
			return jobID, err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(yieldEvery):
		}
	}
	return "", problem.Conflictf("host %s: its drain is cancelled, and has not ended yet; ask again", h.Name)
}

// insertFence inserts the job of a fence and gives its id; empty: a drain was cancelled, and ends first.
func (s *Fences) insertFence(ctx context.Context, tx job.Tx, h *compute.Host, a compute.FenceArgs, who compute.Who) (string, error) {
	open, err := s.jobs.Unended(tx, compute.HostSubject(h.ID))
	if err != nil {
		return "", err
	}
	for i := range open {
		switch j := &open[i]; {
		case j.Class != job.Operation:
		case j.Kind == compute.JobDrain:
			return "", s.cancelDrain(ctx, tx, j, who)
		default:
			return "", problem.Conflictf("host %s: a %s is going on (job %s); wait for its end, or cancel its plan", h.Name, j.Kind, j.ID)
		}
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	j := &job.Job{Kind: compute.JobFence, Class: job.Operation, Subject: compute.HostSubject(h.ID), Args: raw, RequestID: who.RequestID, User: who.User}
	if err := s.jobs.Insert(tx, j); err != nil {
		return "", err
	}
	return j.ID, s.noteHost(tx, h.ID, who.Asker, "asked to be fenced")
}

// cancelDrain has a drain begin no more moves, and end: those that go on end by themselves, or yield to an evacuation.
func (s *Fences) cancelDrain(ctx context.Context, tx job.Tx, j *job.Job, who compute.Who) error {
	var a compute.EvacuateArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return fmt.Errorf("arguments of job %s: %w", j.ID, err)
	}
	p, err := s.store.Plans().Get(ctx, tx, a.PlanID)
	if err != nil || p.State != compute.PlanRunning {
		return ignoreNotFound(err)
	}
	return s.cancelled(tx, p, who, ": the host is to be fenced")
}

// Heal plans what becomes of the servers of a fenced host whose group heals, and gives the job that does it, with what must be written
// when that is inserted; nil: there is nothing to move.
func (s *Plans) Heal(ctx context.Context, hostID string, who compute.Who) (*job.Job, func(job.Tx) error, error) {
	p, err := s.Draft(ctx, compute.PlanRequest{Host: hostID}, who)
	if err != nil || len(p.Items) == 0 {
		return nil, nil, err
	}
	j, err := p.NewJob(who)
	return j, func(tx job.Tx) error {
		now, err := s.store.Plans().Get(context.WithoutCancel(ctx), tx, p.ID)
		if err != nil {
			return err
		}
		now.State, now.Missing = compute.PlanRunning, ""
		return s.begun(tx, now, who)
	}, err
}
