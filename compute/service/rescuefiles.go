package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/rescue"
)

// findFilesEvery is how often it is looked whether hosts answered.
const findFilesEvery = 50 * time.Millisecond

// localFiles are the files of an image that must lie on each host.
func localFiles(img *rescue.Image) []string {
	if img.Source.LocationType != rescue.LocationFile || img.Source.Location == "" {
		return nil
	}
	files := []string{img.Source.Location}
	if img.Source.Kind == rescue.Kernel && img.Source.Ramdisk != "" {
		files = append(files, img.Source.Ramdisk)
	}
	return files
}

// Search looks for the files of an image that is to be added or changed on all hosts that answer. If none has them, that is Conflict,
// unless force is set. Nothing is written.
func (s *RescueImages) Search(ctx context.Context, img rescue.Image, force bool) (*compute.FileSearch, error) {
	img.Name = cmp.Or(img.Name, "new")
	if err := checkRescueImage(&img); err != nil {
		return nil, err
	}
	files := localFiles(&img)
	found, err := s.findFiles(ctx, files)
	if err != nil {
		return nil, err
	}
	if err := found.Refusal(files); err != nil && !force {
		return nil, err
	}
	return found, nil
}

// findFiles asks the hosts that live whether they have the files of an image. Nodes of Ganeti clusters cannot be asked.
func (s *RescueImages) findFiles(ctx context.Context, files []string) (*compute.FileSearch, error) {
	out := &compute.FileSearch{}
	if len(files) == 0 || s.opts.FindFilesWithin <= 0 {
		return out, nil
	}
	hosts, err := s.store.Hosts().List(ctx, nil, compute.HostFilter{}, record.Page{})
	if err != nil {
		return nil, err
	}
	live, err := s.liveness.snapshot(ctx, nil)
	if err != nil {
		return nil, err
	}
	args, err := json.Marshal(compute.Args{Files: files})
	if err != nil {
		return nil, err
	}
	names, orders := map[string]string{}, []*compute.Order{}
	for _, h := range hosts {
		switch {
		case h.Kind == compute.GanetiHost:
			out.Unknown = append(out.Unknown, compute.OrID(h))
		case h.Kind == compute.AgentHost && live.isUp(h):
			id := uuid.NewString()
			names[h.ID] = compute.OrID(h)
			orders = append(orders, &compute.Order{ID: id, HostID: h.ID, BootID: h.BootID, ServerID: h.ID, Verb: compute.FindFiles, Args: args,
				Within: int(s.opts.FindFilesWithin/time.Second) + 1, JobID: id, Action: string(compute.FindFiles)})
		}
	}
	if len(orders) == 0 {
		return out, nil
	}
	return out, s.askFiles(ctx, out, orders, names)
}

// askFiles sends the orders, waits for their results, and drops them.
func (s *RescueImages) askFiles(ctx context.Context, out *compute.FileSearch, orders []*compute.Order, names map[string]string) error {
	err := s.jobs.Do(ctx, func(tx job.Tx) error {
		for _, o := range orders {
			if _, err := s.store.InsertOrder(tx, o); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = s.awaitFiles(ctx, out, orders, names)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.FindFilesWithin)
	defer cancel()
	dropped := s.jobs.Do(ctx, func(tx job.Tx) error {
		for _, o := range orders {
			if err := s.store.DropOrder(tx, o.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, dropped)
}

func (s *RescueImages) awaitFiles(ctx context.Context, out *compute.FileSearch, open []*compute.Order, names map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.FindFilesWithin)
	defer cancel()
	tick := time.NewTicker(findFilesEvery)
	defer tick.Stop()
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			for _, o := range open {
				out.Unknown = append(out.Unknown, names[o.HostID])
			}
			return nil
		case <-tick.C:
		}
		var left []*compute.Order
		for _, o := range open {
			now, err := s.store.Order(ctx, nil, o.ID)
			switch {
			case err != nil && ctx.Err() == nil:
				return err
			case err != nil || now.Result == nil:
				left = append(left, o)
			case now.Result.ErrorKind != "":
				out.Unknown = append(out.Unknown, names[o.HostID])
			case len(now.Result.Missing) > 0:
				out.Missing = append(out.Missing, names[o.HostID])
			default:
				out.Found = append(out.Found, names[o.HostID])
			}
		}
		open = left
	}
	for _, list := range [][]string{out.Found, out.Missing, out.Unknown} {
		slices.Sort(list)
	}
	return nil
}
