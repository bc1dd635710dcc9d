package service

import (
	"context"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
)

// prepareRebuild takes the new image into the row; the job makes the root disk anew.
func (s *Actions) prepareRebuild(ctx context.Context, tx job.Tx, st *pendingAct) error {
	srv, a := st.server, st.Act.Rebuild
	if a == nil {
		return problem.Invalidf("rebuild server %s: no image is named", srv.ID)
	}
	i := slices.IndexFunc(srv.Disks, func(d compute.Disk) bool { return d.BootIndex == 0 })
	if srv.Foreign || i < 0 || srv.Disks[i].VolumeID != "" {
		return problem.Invalidf("server %s boots from no disk that salvor made: it cannot be rebuilt", srv.ID)
	}
	img, err := s.servers.image(ctx, tx, a.ImageID, st.who)
	if err != nil {
		return err
	}
	if err := compute.CheckFlavorForImage(img, &srv.Flavor); err != nil {
		return err
	}
	if err := s.roomForRebuild(ctx, tx, srv, &srv.Disks[i], img, a.Discard); err != nil {
		return err
	}
	former := &compute.FormerSystem{State: srv.State, ImageID: srv.ImageID, DiskImageID: srv.Disks[i].ImageID, Properties: srv.ImageProperties}
	srv.ApplyImage(img)
	srv.Disks = slices.Clone(srv.Disks)
	srv.Disks[i].ImageID = img.ID
	if err := s.rebuildWords(ctx, tx, st, a); err != nil {
		return err
	}
	args := *a
	args.Power, args.Former = compute.PowerOn, former
	if srv.State == compute.Stopped {
		args.Power = compute.PowerOff
	}
	srv.Wanted = args.Power
	st.args = args
	if !st.RebuildPassword.Empty() {
		hash, err := rescue.HashPassword(st.RebuildPassword, s.opts.HashAlgorithm)
		if err != nil {
			return err
		}
		st.secret = compute.JobSecret{Hash: hash.Reveal()}
	}
	return nil
}

// roomForRebuild refuses a rebuild for whose new root disk there is no room beside the old one, which goes into quarantine.
func (s *Actions) roomForRebuild(ctx context.Context, tx job.Tx, srv *compute.Server, root *compute.Disk, img *compute.Image, discard bool) error {
	if discard || srv.HostID == "" {
		return nil
	}
	h, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil || h.Kind != compute.AgentHost {
		return ignoreNotFound(err)
	}
	free, need := h.FreeDisk(), root.SizeGiB
	store := h.StoreNamed(root.Store)
	if n := compute.NeedsOf(srv, ""); store != nil && n.NeedsStoreUse(h) {
		used, err := s.storeUse(ctx, tx, h)
		if err != nil {
			return err
		}
		free = min(free, store.RoomIn(used))
	}
	if store != nil && store.SizeGiB > 0 && free >= need {
		free, need = store.FreeGiB, int(img.Size/compute.GiB) // of what is really there; disks are sparse
	}
	if free >= need {
		return nil
	}
	return problem.Conflictf("server %s cannot be rebuilt: its new root disk needs %d GiB beside the old one, which goes into quarantine, and its host has %d GiB free. "+
		"Nothing was changed. Free room on the host (administrators: salvor host quarantine list HOST), or ask again with --discard (salvor:discard in the API), which erases the old disk", srv.ID, need, max(0, free))
}

// rebuildWords takes in what a rebuild may change beside the image.
func (s *Actions) rebuildWords(ctx context.Context, tx job.Tx, st *pendingAct, a *compute.RebuildArgs) error {
	srv := st.server
	if a.Name != "" {
		srv.Name = strings.TrimSpace(a.Name)
	}
	if a.Description != nil {
		srv.Description = *a.Description
	}
	if a.Metadata != nil {
		srv.Metadata = a.Metadata
	}
	if a.UserData != nil {
		c := compute.Creation{UserData: *a.UserData}
		if err := c.Check(st.who); err != nil {
			return err
		}
		srv.UserData = *a.UserData
	}
	if a.KeyName != nil {
		srv.KeyName, srv.PublicKey = *a.KeyName, ""
		if *a.KeyName != "" {
			keys, err := s.store.Keypairs().List(ctx, tx, compute.KeypairFilter{User: srv.User, Name: *a.KeyName}, record.Page{})
			if err != nil {
				return err
			}
			if len(keys) == 0 {
				return problem.Invalidf("Invalid key_name provided.")
			}
			srv.PublicKey = keys[0].PublicKey
		}
	}
	return checkWords(srv)
}

// Gone ends a server that its host has removed: it is Deleted; its place, addresses and volumes are given back. While another host
// reports a guest of it that is not proven off, the volumes are in error.
func (s *Servers) Gone(ctx context.Context, tx job.Tx, id string) error {
	off, err := s.reports.isOffElsewhere(ctx, tx, id)
	if err != nil {
		return err
	}
	return s.gone(ctx, tx, id, off)
}

// gone ends a server. off: all guests of it are off (see giveBackVolumes).
func (s *Servers) gone(ctx context.Context, tx job.Tx, id string, off bool) error {
	var was compute.Server
	_, err := s.edit(ctx, tx, id, func(srv *compute.Server) {
		was = *srv
		srv.State, srv.Task, srv.Power, srv.Wanted = compute.Deleted, compute.NoTask, compute.PowerOff, compute.PowerOff
		srv.TerminatedAt = s.now().Truncate(time.Microsecond)
		srv.Rescue, srv.UserData = nil, secret.Value{}
	})
	if err != nil || was.State == compute.Deleted {
		return err
	}
	if err := s.store.SaveServerDiagnoses(tx, id, nil); err != nil {
		return err
	}
	var volumes []string
	for _, d := range was.Disks {
		if d.VolumeID != "" {
			volumes = append(volumes, d.VolumeID)
		}
	}
	if err := s.giveBackVolumes(ctx, tx, id, off, volumes...); err != nil {
		return err
	}
	if err := s.store.FreeAddresses(tx, id); err != nil {
		return err
	}
	return s.unreserve(ctx, tx, &was)
}
