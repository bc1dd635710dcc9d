package compute

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// volume reads one that who may see.
func (c *serviceCore) volume(ctx context.Context, tx job.Tx, id string, who Who) (*Volume, error) {
	v, err := c.store.Volumes().Get(ctx, tx, id)
	if problem.Is(err, problem.NotFound) || err == nil && !who.sees(v.Project) {
		return nil, problem.NotFoundf("volume %s could not be found", truncateText(id))
	}
	return v, err
}

// reserve takes an available volume for a server.
func (c *serviceCore) reserve(tx job.Tx, v *Volume, status VolumeStatus, serverID, device string) error {
	if v.Status != VolumeAvailable {
		return problem.Conflictf("volume %s is %s, not available", v.ID, v.Status)
	}
	v.Status, v.ServerID, v.Device = status, serverID, device
	return c.store.Volumes().Save(tx, v)
}

// release gives a volume back.
func (c *serviceCore) release(tx job.Tx, v *Volume, status VolumeStatus) error {
	v.Status, v.ServerID, v.Device, v.AttachedAt = status, "", "", time.Time{}
	return c.store.Volumes().Save(tx, v)
}

// takeVolumes marks the volumes of a server as in use.
func (s *Servers) takeVolumes(ctx context.Context, tx job.Tx, srv *Server) error {
	for _, d := range srv.Disks {
		if d.VolumeID == "" {
			continue
		}
		if err := s.setVolume(ctx, tx, srv.ID, d.VolumeID, VolumeInUse); err != nil {
			return err
		}
	}
	return nil
}

// giveBackVolumes gives volumes of a server back. They are available if all guests of it are off. Else they are in error, so that nobody gets them
// before an operator has looked, and the server's history tells why.
func (s *Servers) giveBackVolumes(ctx context.Context, tx job.Tx, id string, off bool, volumes ...string) error {
	status := VolumeAvailable
	if !off {
		status = VolumeError
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
func (s *Servers) setVolume(ctx context.Context, tx job.Tx, serverID, id string, status VolumeStatus) error {
	v, err := s.store.Volumes().Get(ctx, tx, id)
	if err != nil || v.ServerID != serverID || v.Status == status && status != VolumeError { // one that an operator reset to error keeps its server
		return ignoreNotFound(err)
	}
	if status == VolumeAvailable || status == VolumeError {
		return s.release(tx, v, status)
	}
	v.Status = status
	if status == VolumeInUse {
		v.AttachedAt = s.now()
	}
	return s.store.Volumes().Save(tx, v)
}

// diskPrefix is how a guest names the disks of a bus.
func diskPrefix(properties map[string]string) string {
	switch properties["hw_disk_bus"] {
	case "scsi", "sata", "usb":
		return "sd"
	case "ide":
		return "hd"
	}
	return "vd"
}

// freeName is the first name in the row of disks that nobody has.
func freeName(disks []Disk, prefix string) string {
	for i := range 26 * 27 {
		name := prefix + diskLetters(i)
		if !isDiskNameTaken(disks, name) {
			return name
		}
	}
	return ""
}

// isDiskNameTaken tells whether a disk has the place that a name tells: hypervisors place disks by their letters, whatever bus the name is of.
func isDiskNameTaken(disks []Disk, name string) bool {
	place := func(s string) string { return s[min(2, len(s)):] }
	return slices.ContainsFunc(disks, func(d Disk) bool { return place(d.Name) == place(name) })
}

func diskLetters(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return string(rune('a'+i/26-1)) + string(rune('a'+i%26))
}

var deviceName = regexp.MustCompile(`^[vsh]d[a-z]$`)

func trimDevice(s string) string { return strings.TrimPrefix(s, "/dev/") }

// maxDisks bounds the disks of a server: a guest's bus has no more places.
const maxDisks = 26

func (s *Servers) prepareAttach(ctx context.Context, tx job.Tx, st *pendingAct) error {
	srv := st.server
	v, err := s.volume(ctx, tx, st.VolumeID, st.who)
	if err != nil {
		return err
	}
	name, err := placeDisk(srv.Disks, st.Device, diskPrefix(srv.ImageProperties))
	if err != nil {
		return err
	}
	if srv.Foreign {
		return problem.Unsupportedf("server %s was adopted: its disks are its cluster's affair", srv.ID)
	}
	if err := s.reserve(tx, v, VolumeAttaching, srv.ID, name); err != nil {
		return err
	}
	srv.Disks = append(slices.Clone(srv.Disks), Disk{Name: name, BootIndex: -1, VolumeID: v.ID, SizeGiB: v.SizeGiB, DeleteOnTermination: st.DeleteOnTermination})
	st.args = VolumeArgs{VolumeID: v.ID, Device: name}
	return nil
}

// placeDisk finds the name of a further disk: that of the wanted place (with or without /dev/) on the server's bus, or the first
// that is free.
func placeDisk(disks []Disk, wanted, prefix string) (string, error) {
	if len(disks) >= maxDisks {
		return "", problem.Conflictf("a server has at most %d disks", maxDisks)
	}
	if wanted == "" {
		return freeName(disks, prefix), nil
	}
	name := trimDevice(wanted)
	if !deviceName.MatchString(name) {
		return "", problem.Invalidf("device %.50q: want a name from /dev/%sa to /dev/%sz", wanted, prefix, prefix)
	}
	name = prefix + name[2:]
	if isDiskNameTaken(disks, name) {
		return "", problem.Conflictf("device %s is taken", name)
	}
	return name, nil
}

func (s *Servers) prepareDetach(ctx context.Context, tx job.Tx, st *pendingAct) error {
	i := slices.IndexFunc(st.server.Disks, func(d Disk) bool { return d.VolumeID != "" && d.VolumeID == st.VolumeID })
	if i < 0 {
		return problem.NotFoundf("server %s has no volume %s", st.server.ID, truncateText(st.VolumeID))
	}
	d := st.server.Disks[i]
	if d.BootIndex == 0 {
		return problem.Invalidf("volume %s is the disk that server %s boots from: it cannot be detached", d.VolumeID, st.server.ID)
	}
	v, err := s.volume(ctx, tx, d.VolumeID, st.who)
	if err != nil {
		return err
	}
	st.args = VolumeArgs{VolumeID: v.ID, Device: d.Name}
	if v.ServerID != st.server.ID {
		return nil // an operator has reset the record: the volume is free or another server's, and stays so
	}
	if v.Status != VolumeInUse {
		return problem.Conflictf("volume %s is %s, not in use", v.ID, v.Status)
	}
	v.Status = VolumeDetaching
	return s.store.Volumes().Save(tx, v)
}

// Attached ends JobAttach well.
func (s *Servers) Attached(ctx context.Context, tx job.Tx, id string, a VolumeArgs) error {
	if err := s.setVolume(ctx, tx, id, a.VolumeID, VolumeInUse); err != nil {
		return err
	}
	return s.Finish(ctx, tx, id, func(*Server) {})
}

// Detached ends JobDetach well, or an attachment that came to nothing. The volume is in error while another host reports a guest of the
// server that is not proven off.
func (s *Servers) Detached(ctx context.Context, tx job.Tx, id string, a VolumeArgs) error {
	off, err := s.isOffElsewhere(ctx, tx, id)
	if err != nil {
		return err
	}
	if err := s.giveBackVolumes(ctx, tx, id, off, a.VolumeID); err != nil {
		return err
	}
	return s.Finish(ctx, tx, id, func(srv *Server) { srv.dropVolume(a.VolumeID) })
}

func (s *Server) dropVolume(id string) {
	s.Disks = slices.DeleteFunc(slices.Clone(s.Disks), func(d Disk) bool { return d.VolumeID == id })
}

// volumeFailed puts the rows back where attaching or detaching failed.
func (s *Servers) volumeFailed(ctx context.Context, tx job.Tx, j *job.Job) error {
	if j.Kind != JobAttach && j.Kind != JobDetach {
		return nil
	}
	var a VolumeArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return fmt.Errorf("arguments of job %s: %w", j.ID, err)
	}
	if j.Kind == JobDetach {
		return s.setVolume(ctx, tx, j.Subject.ID, a.VolumeID, VolumeInUse)
	}
	if err := s.setVolume(ctx, tx, j.Subject.ID, a.VolumeID, VolumeAvailable); err != nil {
		return err
	}
	_, err := s.edit(ctx, tx, j.Subject.ID, func(srv *Server) { srv.dropVolume(a.VolumeID) })
	return err
}

// volumesReset puts the volumes of a job right that was given up for a reset. Nobody knows whether the host has taken the volume that
// it was told to attach: that one is given to nobody before an operator has looked.
func (s *Servers) volumesReset(ctx context.Context, tx job.Tx, srv *Server, j *job.Job) error {
	if plainKind(j.Kind) == JobCreate {
		return s.takeVolumes(ctx, tx, srv)
	}
	if j.Kind == JobRestoreDisk {
		return s.restoreGivenUp(ctx, tx, srv, j)
	}
	if j.Kind != JobAttach && j.Kind != JobDetach {
		return nil
	}
	var a VolumeArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return fmt.Errorf("arguments of job %s: %w", j.ID, err)
	}
	if j.Kind == JobDetach {
		return s.setVolume(ctx, tx, srv.ID, a.VolumeID, VolumeInUse)
	}
	srv.dropVolume(a.VolumeID)
	return s.setVolume(ctx, tx, srv.ID, a.VolumeID, VolumeError)
}
