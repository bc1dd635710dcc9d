package service

import (
	"context"
	"slices"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// planInputs reads what plans are drafted from.
type planInputs struct {
	*serviceCore
	liveness *Liveness
	reports  *GuestReports
}

// readPlanInput reads what a plan for a host is drafted from, in a few queries.
func (s *planInputs) readPlanInput(ctx context.Context, host *compute.Host, w *compute.PlanRequest) (*compute.PlanInput, error) {
	o := &compute.PlanInput{Source: host, All: w.ReimageAll, Drain: w.Drain, DiscardVariables: w.DiscardVariables, Consent: map[string]bool{}, Up: map[string]bool{}, Moving: map[string]*compute.Move{}, Images: map[string]*compute.Image{}}
	for _, id := range w.Consent {
		o.Consent[id] = true
	}
	group, err := s.Group(ctx, nil, host)
	if err != nil {
		return nil, err
	}
	o.Policy, o.Variables = group.Reimage, group.Variables
	if o.Servers, err = s.planned(ctx, host, w.Servers); err != nil {
		return nil, err
	}
	if o.Hosts, err = s.store.Hosts().List(ctx, nil, compute.HostFilter{}, record.Page{}); err != nil {
		return nil, err
	}
	live, err := s.liveness.snapshot(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, h := range o.Hosts {
		o.Up[h.ID] = live.isUp(h)
	}
	moves, err := s.store.Moves().List(ctx, nil, compute.MoveFilter{HostID: host.ID, Open: true}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, m := range moves {
		o.Moving[m.ServerID] = m
	}
	if o.Elsewhere, err = s.reports.elsewhere(ctx, host); err != nil {
		return nil, err
	}
	if err := s.readImages(ctx, o); err != nil || w.Dest == "" {
		return o, err
	}
	dest, err := s.host(ctx, w.Dest)
	if err != nil {
		return nil, err
	}
	o.Dest = dest.ID
	return o, nil
}

// planned lists a host's servers; named ones must be among them.
func (s *planInputs) planned(ctx context.Context, host *compute.Host, named []string) ([]*compute.Server, error) {
	all, err := s.store.Servers().List(ctx, nil, compute.ServerFilter{HostID: host.ID}, record.Page{})
	if err != nil || len(named) == 0 {
		return all, err
	}
	for _, id := range named {
		if !slices.ContainsFunc(all, func(s *compute.Server) bool { return s.ID == id }) {
			return nil, problem.Invalidf("server %s is not on host %s", compute.TruncateText(id), compute.OrID(host))
		}
	}
	return slices.DeleteFunc(all, func(s *compute.Server) bool { return !slices.Contains(named, s.ID) }), nil
}

// readImages reads those that the servers' root disks were made from; what is not active is as good as gone.
func (s *planInputs) readImages(ctx context.Context, o *compute.PlanInput) error {
	var ids []string
	for _, srv := range o.Servers {
		for _, d := range srv.Disks {
			if d.ImageID != "" && !slices.Contains(ids, d.ImageID) {
				ids = append(ids, d.ImageID)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	images, err := s.store.Images().List(ctx, nil, compute.ImageFilter{IDs: ids}, record.Page{})
	if err != nil {
		return err
	}
	for _, i := range images {
		if i.Status == compute.ImageActive {
			o.Images[i.ID] = i
		}
	}
	return nil
}
