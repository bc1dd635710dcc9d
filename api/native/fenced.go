package native

import (
	"context"
	"net/http"
	"slices"

	"salvor/api"
	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// fencingStatus is what hosts show of their fences: the open receipt, and what it waits for.
type fencingStatus struct {
	receipt         *compute.Receipt
	plan            string // that is running
	open, uncleaned int    // moves away from the host
}

type fencesByHost map[string]*fencingStatus

func (f fencesByHost) of(host string) *fencingStatus {
	if f[host] == nil {
		f[host] = &fencingStatus{}
	}
	return f[host]
}

// fences reads those of all hosts.
func (s *server) fences(c *api.Call) (fencesByHost, error) {
	ctx, out := c.R.Context(), fencesByHost{}
	receipts, err := s.Services.Fences.List(ctx, compute.ReceiptFilter{Open: true}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, r := range receipts {
		out.of(r.HostID).receipt = r
	}
	plans, err := s.Services.Plans.List(ctx, compute.PlanFilter{State: compute.PlanRunning}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, p := range plans {
		out.of(p.HostID).plan = p.ID
	}
	for _, which := range []struct {
		filter compute.MoveFilter
		count  func(*fencingStatus) *int
	}{
		{compute.MoveFilter{Open: true}, func(f *fencingStatus) *int { return &f.open }},
		{compute.MoveFilter{Uncleaned: true}, func(f *fencingStatus) *int { return &f.uncleaned }},
	} {
		moves, err := s.Services.Moves.List(ctx, which.filter, record.Page{})
		if err != nil {
			return nil, err
		}
		for _, m := range moves {
			*which.count(out.of(m.SourceID))++
		}
	}
	return out, nil
}

// view is null of a host that is not fenced.
func (f *fencingStatus) view() any {
	if f.receipt == nil {
		return nil
	}
	evidence := make([]string, len(f.receipt.Proofs))
	for i, p := range f.receipt.Proofs {
		evidence[i] = string(p.Evidence)
	}
	return map[string]any{
		"receipt": f.receipt.ID, "since": timeOrNull(f.receipt.CreatedAt), "by": f.receipt.By, "words": f.receipt.Words, "how": evidence,
		"proofs": f.receipt.Proofs, "waits_for": compute.AwaitedOf(f.plan, f.open, f.uncleaned),
	}
}

// showHost shows a host, and why its newest fence came to nothing.
func (s *server) showHost(c *api.Call) error {
	h, err := s.Services.Hosts.Host(c.R.Context(), c.Arg("ident"))
	if err != nil {
		return err
	}
	views, err := s.viewHosts(c, []*compute.Host{h})
	if err != nil {
		return err
	}
	newest, err := s.newestFence(c.R.Context(), h)
	if err != nil {
		return err
	}
	views[0]["fence_problem"] = newest.Problem
	if h.Fenced { // a later fence succeeded
		receipt, err := s.openReceipt(c.R.Context(), h.ID)
		if err != nil {
			return err
		}
		if receipt != nil && newest.CreatedAt.Before(receipt.CreatedAt) {
			views[0]["fence_problem"] = ""
		}
	}
	against, err := s.Services.Fences.Contradictions(c.R.Context(), h)
	if err != nil {
		return err
	}
	views[0]["contradictions"] = append([]compute.Contradiction{}, against...)
	return c.JSON(http.StatusOK, views[0])
}

// newestFence finds the job of a host's newest fence by its timeline; a zero job: there was none, or it is too long ago to be kept.
func (s *server) newestFence(ctx context.Context, h *compute.Host) (job.Job, error) {
	events, err := s.Jobs.Latest(ctx, compute.HostSubject(h.ID), maxHistory)
	if err != nil {
		return job.Job{}, err
	}
	last := "" // the events of a job mostly follow each other: each job is read once
	for _, e := range slices.Backward(events) {
		if e.JobID == "" || e.JobID == last {
			continue
		}
		last = e.JobID
		j, err := s.Jobs.Job(ctx, nil, e.JobID)
		switch {
		case problem.Is(err, problem.NotFound):
		case err != nil || j.Kind == compute.JobFence:
			return j, err
		}
	}
	return job.Job{}, nil
}
