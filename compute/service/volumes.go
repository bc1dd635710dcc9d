package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// volume reads one that who may see.
func (c *serviceCore) volume(ctx context.Context, tx job.Tx, id string, who compute.Who) (*compute.Volume, error) {
	v, err := c.store.Volumes().Get(ctx, tx, id)
	if problem.Is(err, problem.NotFound) || err == nil && !who.Sees(v.Project) {
		return nil, problem.NotFoundf("volume %s could not be found", compute.TruncateText(id))
	}
	return v, err
}

// reserve takes an available volume for a server.
func (c *serviceCore) reserve(tx job.Tx, v *compute.Volume, status compute.VolumeStatus, serverID, device string) error {
	if v.Status != compute.VolumeAvailable {
		return problem.Conflictf("volume %s is %s, not available", v.ID, v.Status)
	}
	v.Status, v.ServerID, v.Device = status, serverID, device
	return c.store.Volumes().Save(tx, v)
}

// release gives a volume back.
func (c *serviceCore) release(tx job.Tx, v *compute.Volume, status compute.VolumeStatus) error {
	v.Status, v.ServerID, v.Device, v.AttachedAt = status, "", "", time.Time{}
	return c.store.Volumes().Save(tx, v)
}

// takeVolumes marks the volumes of a server as in use.
func (s *Servers) takeVolumes(ctx context.Context, tx job.Tx, srv *compute.Server) error {
	for _, d := range srv.Disks {
		if d.VolumeID == "" {
			continue
		}
		if err := s.setVolume(ctx, tx, srv.ID, d.VolumeID, compute.VolumeInUse); err != nil {
			return err
		}
	}
	return nil
}

// giveBackVolumes gives volumes of a server back. They are available if all guests of it are off. Else they are in error, so that nobody gets them
// before an operator has looked, and the server's history tells why.
func (s *Servers) giveBackVolumes(ctx context.Context, tx job.Tx, id string, off bool, volumes ...string) error {
	status := compute.VolumeAvailable
	if !off {
		status = compute.VolumeError
	}
	for _, v := range volumes {
		if err := s.setVolume(ctx, tx, id, v, status); err != nil {
			return err
		}
	}
	if off || len(volumes) == 0 {
		return nil
	}
	text := "its volumes are in error: a guest of it may still write to them. Once all guests are off: openstack volume set --state available VOLUME"
	return s.note(tx, id, record.Asker{}, "contact", text)
}

// setVolume writes the status of a volume of this server; one that is gone or another's is left alone.
func (s *Servers) setVolume(ctx context.Context, tx job.Tx, serverID, id string, status compute.VolumeStatus) error {
	v, err := s.store.Volumes().Get(ctx, tx, id)
	if err != nil || v.ServerID != serverID || v.Status == status && status != compute.VolumeError { // one that an operator reset to error keeps its server
		return ignoreNotFound(err)
	}
	if status == compute.VolumeAvailable || status == compute.VolumeError {
		return s.release(tx, v, status)
	}
	v.Status = status
	if status == compute.VolumeInUse {
		v.AttachedAt = s.now()
	}
	return s.store.Volumes().Save(tx, v)
}

func (s *Actions) prepareAttach(ctx context.Context, tx job.Tx, st *pendingAct) error {
	srv := st.server
	v, err := s.volume(ctx, tx, st.VolumeID, st.who)
	if err != nil {
		return err
	}
	name, err := compute.PlaceDisk(srv.Disks, st.Device, compute.DiskPrefix(srv.ImageProperties))
	if err != nil {
		return err
	}
	if srv.Foreign {
		return problem.Unsupportedf("server %s was adopted: its disks are its cluster's affair", srv.ID)
	}
	if err := s.reserve(tx, v, compute.VolumeAttaching, srv.ID, name); err != nil {
		return err
	}
	srv.Disks = append(slices.Clone(srv.Disks), compute.Disk{Name: name, BootIndex: -1, VolumeID: v.ID, SizeGiB: v.SizeGiB, DeleteOnTermination: st.DeleteOnTermination})
	st.args = compute.VolumeArgs{VolumeID: v.ID, Device: name}
	return nil
}

func (s *Actions) prepareDetach(ctx context.Context, tx job.Tx, st *pendingAct) error {
	i := slices.IndexFunc(st.server.Disks, func(d compute.Disk) bool { return d.VolumeID != "" && d.VolumeID == st.VolumeID })
	if i < 0 {
		return problem.NotFoundf("server %s has no volume %s", st.server.ID, compute.TruncateText(st.VolumeID))
	}
	d := st.server.Disks[i]
	if d.BootIndex == 0 {
		return problem.Invalidf("volume %s is the disk that server %s boots from: it cannot be detached", d.VolumeID, st.server.ID)
	}
	v, err := s.volume(ctx, tx, d.VolumeID, st.who)
	if err != nil {
		return err
	}
	st.args = compute.VolumeArgs{VolumeID: v.ID, Device: d.Name}
	if v.ServerID != st.server.ID {
		return nil // an operator has reset the record: the volume is free or another server's, and stays so
	}
	if v.Status != compute.VolumeInUse {
		return problem.Conflictf("volume %s is %s, not in use", v.ID, v.Status)
	}
	v.Status = compute.VolumeDetaching
	return s.store.Volumes().Save(tx, v)
}

// Attached ends JobAttach well.
func (s *Servers) Attached(ctx context.Context, tx job.Tx, id string, a compute.VolumeArgs) error {
	if err := s.setVolume(ctx, tx, id, a.VolumeID, compute.VolumeInUse); err != nil {
		return err
	}
	return s.Finish(ctx, tx, id, func(*compute.Server) {})
}

// Detached ends JobDetach well, or an attachment that came to nothing. The volume is in error while another host reports a guest of the
// server that is not proven off.
func (s *Servers) Detached(ctx context.Context, tx job.Tx, id string, a compute.VolumeArgs) error {
	off, err := s.reports.isOffElsewhere(ctx, tx, id)
	if err != nil {
		return err
	}
	if err := s.giveBackVolumes(ctx, tx, id, off, a.VolumeID); err != nil {
		return err
	}
	return s.Finish(ctx, tx, id, func(srv *compute.Server) { srv.DropVolume(a.VolumeID) })
}

// volumeFailed puts the rows back where attaching or detaching failed.
func (s *Servers) volumeFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.Kind != compute.JobAttach && j.Kind != compute.JobDetach {
		return nil
	}
	var a compute.VolumeArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return fmt.Errorf("arguments of job %s: %w", j.ID, err)
	}
	if j.Kind == compute.JobDetach {
		return s.setVolume(ctx, tx, j.Subject.ID, a.VolumeID, compute.VolumeInUse)
	}
	if err := s.setVolume(ctx, tx, j.Subject.ID, a.VolumeID, compute.VolumeAvailable); err != nil {
		return err
	}
	_, err := s.edit(ctx, tx, j.Subject.ID, func(srv *compute.Server) { srv.DropVolume(a.VolumeID) })
	return err
}

// volumesReset puts the volumes of a job right that was given up for a reset. Nobody knows whether the host has taken the volume that
// it was told to attach: that one is given to nobody before an operator has looked.
func (s *Servers) volumesReset(ctx context.Context, tx job.Tx, srv *compute.Server, j *job.Job) error {
	if compute.PlainKind(j.Kind) == compute.JobCreate {
		return s.takeVolumes(ctx, tx, srv)
	}
	if j.Kind == compute.JobRestoreDisk {
		return s.restoreGivenUp(ctx, tx, srv, j)
	}
	if j.Kind != compute.JobAttach && j.Kind != compute.JobDetach {
		return nil
	}
	var a compute.VolumeArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return fmt.Errorf("arguments of job %s: %w", j.ID, err)
	}
	if j.Kind == compute.JobDetach {
		return s.setVolume(ctx, tx, srv.ID, a.VolumeID, compute.VolumeInUse)
	}
	srv.DropVolume(a.VolumeID)
	return s.setVolume(ctx, tx, srv.ID, a.VolumeID, compute.VolumeError)
}
