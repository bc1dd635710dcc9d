package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// How long a host has to answer a question about its quarantine, and how often it is looked whether it did.
const (
	quarantineWithin = 20 * time.Second
	quarantineLook   = 50 * time.Millisecond
)

// maxQuarantineID bounds the length of the id of a quarantined disk, in bytes.
const maxQuarantineID = 150

// Quarantine is the service of disks that hosts keep for a while before they remove them.
type Quarantine struct {
	*serviceCore
	liveness *Liveness
	reports  *GuestReports
	servers  *Servers
}

// List lists a page of the disks in quarantine of a host, oldest first. It asks the host. p.Marker is the id of a disk,
// which may be gone; the page has the next p.Limit disks. problem.Unavailable: the host does not answer.
func (s *Quarantine) List(ctx context.Context, ident string, p record.Page) ([]compute.QuarantinedDisk, error) {
	if len(p.Marker) > maxQuarantineID {
		return nil, problem.Invalidf("Invalid value for marker: %.40q; want the id of a disk in quarantine.", p.Marker)
	}
	return s.list(ctx, ident, compute.Args{After: p.Marker, Limit: p.Limit})
}

func (s *Quarantine) list(ctx context.Context, ident string, page compute.Args) ([]compute.QuarantinedDisk, error) {
	h, err := s.host(ctx, ident)
	if err != nil {
		return nil, err
	}
	r, err := s.askQuarantine(ctx, h, compute.ListQuarantine, page)
	return page.QuarantinePage(r.Quarantine), err
}

// Ends is when a disk is removed; zero: never.
func (s *Quarantine) Ends(d *compute.QuarantinedDisk) time.Time {
	if s.opts.QuarantineDays == 0 {
		return time.Time{}
	}
	return d.At.AddDate(0, 0, s.opts.QuarantineDays)
}

// Remove removes a disk from the quarantine of a host; it cannot be had back.
func (s *Quarantine) Remove(ctx context.Context, ident, id string, who compute.Who) error {
	h, err := s.host(ctx, ident)
	if err != nil {
		return err
	}
	if _, err := s.askQuarantine(ctx, h, compute.RemoveQuarantined, compute.Args{Quarantine: id}); err != nil {
		return err
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		return s.noteHost(tx, h.ID, who.Asker, "removed the quarantined disk "+id)
	})
}

// askQuarantine gives the host an order of its own and waits for the answer. Answered or given up, the order is dropped.
func (s *Quarantine) askQuarantine(ctx context.Context, h *compute.Host, verb compute.Verb, a compute.Args) (compute.Result, error) {
	switch {
	case h.Kind != compute.AgentHost:
		return compute.Result{}, problem.Unsupportedf("host %s is of kind %s: salvor quarantines disks on hosts that run salvor host only", compute.OrID(h), h.Kind)
	case h.Fenced || h.ForcedDown || h.Revoked:
		return compute.Result{}, problem.Conflictf("host %s is fenced, forced down or revoked: it gets no orders until it is readmitted; to find out what that needs, run: salvor why host:%[1]s", compute.OrID(h))
	}
	up, err := s.liveness.Up(ctx, h)
	if err == nil && !up {
		err = problem.Unavailablef("host %s is down: it cannot be asked for its quarantine", compute.OrID(h))
	}
	if err != nil {
		return compute.Result{}, err
	}
	args, err := json.Marshal(a)
	if err != nil {
		return compute.Result{}, err
	}
	id := uuid.NewString()
	order := compute.Order{ID: id, HostID: h.ID, BootID: h.BootID, ServerID: h.ID, Verb: verb, Args: args, Within: int(quarantineWithin / time.Second), JobID: id, Action: string(verb)}
	if err := s.jobs.Do(ctx, func(tx job.Tx) error { _, err := s.store.InsertOrder(tx, &order); return err }); err != nil {
		return compute.Result{}, err
	}
	r, err := s.awaitQuarantine(ctx, h, id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quarantineWithin)
	defer cancel()
	dropped := s.jobs.Do(ctx, func(tx job.Tx) error { return s.store.DropOrder(tx, id) })
	return r, errors.Join(err, dropped)
}

func (s *Quarantine) awaitQuarantine(ctx context.Context, h *compute.Host, id string) (compute.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, quarantineWithin)
	defer cancel()
	look := time.NewTicker(quarantineLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return compute.Result{}, problem.Unavailablef("host %s did not answer within %s; see whether it is up: salvor host show %[1]s", compute.OrID(h), quarantineWithin)
		case <-look.C:
		}
		o, err := s.store.Order(ctx, nil, id)
		switch {
		case err != nil && ctx.Err() == nil:
			return compute.Result{}, err
		case err == nil && o.Result != nil && o.Result.ErrorKind != "":
			return compute.Result{}, problem.New(problem.ParseKind(o.Result.ErrorKind), "host %s: %s", compute.OrID(h), o.Result.Error)
		case err == nil && o.Result != nil:
			return *o.Result, nil
		}
	}
}

// RestoreDisk gives a disk in quarantine of a host to a server that is stopped, as a further disk. The server's host sees the store of
// the disk: it is the same host, or shares that store. The disk was of a server of the same project, unless toOther allows any.
func (s *Quarantine) RestoreDisk(ctx context.Context, hostIdent, id, serverIdent string, toOther bool, who compute.Who) (*compute.Server, *job.Job, error) {
	if id == "" || len(id) > maxQuarantineID {
		return nil, nil, problem.Invalidf("%.40q is no id of a disk in quarantine", id)
	}
	found, err := s.list(ctx, hostIdent, compute.Args{Quarantine: id})
	if err != nil {
		return nil, nil, err
	}
	if len(found) == 0 {
		return nil, nil, problem.NotFoundf("host %s has no disk %.150s in quarantine: see salvor host quarantine list %[1]s", compute.TruncateText(hostIdent), id)
	}
	var srv *compute.Server
	var j *job.Job
	err = s.change(ctx, func(tx job.Tx) error {
		if srv, err = s.server(ctx, tx, serverIdent, who); err != nil {
			return err
		}
		if !toOther {
			if err := s.checkProject(ctx, tx, srv, &found[0]); err != nil {
				return err
			}
		}
		j, err = s.beginRestore(ctx, tx, srv, &found[0], who)
		return err
	})
	return srv, j, err
}

// checkProject refuses a disk that was of another project's server, or of a server that is not known any more: the members of the server's project
// would read what the disk holds.
func (s *Quarantine) checkProject(ctx context.Context, tx job.Tx, srv *compute.Server, d *compute.QuarantinedDisk) error {
	const remedy = "the members of that project could read what the disk holds; to restore the disk all the same, add --other-project (other_project in the API)"
	former, err := s.store.Servers().Get(ctx, tx, d.ServerID)
	switch {
	case problem.Is(err, problem.NotFound):
		return problem.Conflictf("disk %.150s was of server %.40q, which is gone, and nobody knows whether that server was of the same project as server %s, which is of project %q: %s", d.ID, d.ServerID, srv.ID, srv.Project, remedy)
	case err != nil:
		return err
	case former.Project != srv.Project:
		return problem.Conflictf("disk %.150s was of server %s of project %q, and server %s is of project %q: %s", d.ID, former.ID, former.Project, srv.ID, srv.Project, remedy)
	}
	return nil
}

// beginRestore names the disk in the server's row and begins the job.
func (s *Quarantine) beginRestore(ctx context.Context, tx job.Tx, srv *compute.Server, d *compute.QuarantinedDisk, who compute.Who) (*job.Job, error) {
	if srv.Foreign || srv.Metal() {
		return nil, problem.Unsupportedf("server %s: its disks are none of salvor's", srv.ID)
	}
	if srv.State != compute.Stopped || srv.Task != compute.NoTask || srv.Power == compute.PowerOn || srv.InSession() || srv.HostID == "" {
		return nil, problem.Conflictf("server %s is %s: a disk is restored to a server that is stopped, not in rescue, and that nobody works on; %s", srv.ID, cmp.Or(string(srv.Task), string(srv.State)), srv.CommandToStop())
	}
	if err := s.reports.holdChange(ctx, tx, srv, who.Admin); err != nil {
		return nil, err
	}
	h, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil {
		return nil, err
	}
	store := h.StoreOf(d.Marker)
	if store == nil {
		return nil, problem.Conflictf("server %s is on host %s, which does not see disk store %s; name a server of a host that does", srv.ID, compute.OrID(h), d.Store)
	}
	name, err := compute.PlaceDisk(srv.Disks, "", compute.DiskPrefix(srv.ImageProperties))
	if err != nil {
		return nil, err
	}
	disk := compute.Disk{Name: name, BootIndex: -1, Store: store.Name, SizeGiB: max(1, d.SizeGiB())}
	srv.Disks = append(slices.Clone(srv.Disks), disk)
	srv.Task = compute.Attaching
	h.UsedDisk += disk.SizeGiB
	if err := s.saveHost(tx, h); err != nil {
		return nil, err
	}
	if err := s.save(tx, srv); err != nil {
		return nil, err
	}
	j, err := compute.NewJob(srv.ID, compute.JobRestoreDisk, compute.RestoreDiskArgs{Quarantine: d.ID, Disk: name}, nil, who.Asker)
	if err != nil {
		return nil, err
	}
	if err := s.jobs.Insert(tx, j); err != nil {
		return nil, err
	}
	if err := s.noteHost(tx, h.ID, who.Asker, "quarantined disk "+d.ID+" is restored to server "+srv.ID+" as "+name); err != nil {
		return nil, err
	}
	return j, s.note(tx, srv.ID, who.Asker, "request", "is given a disk from quarantine as "+name)
}

// DropRestored takes the disk of a restore that came to nothing out of the server's row, and gives its place back.
func (s *Quarantine) DropRestored(ctx context.Context, tx job.Tx, id string, a compute.RestoreDiskArgs) error {
	srv, err := s.store.Servers().Get(ctx, tx, id)
	if err != nil {
		return ignoreNotFound(err)
	}
	if err := s.servers.forgetRestored(ctx, tx, srv, a); err != nil {
		return err
	}
	return s.save(tx, srv)
}

func (s *Servers) forgetRestored(ctx context.Context, tx job.Tx, srv *compute.Server, a compute.RestoreDiskArgs) error {
	i := slices.IndexFunc(srv.Disks, func(d compute.Disk) bool { return d.Name == a.Disk && d.VolumeID == "" })
	if i < 0 {
		return nil
	}
	size := srv.Disks[i].SizeGiB
	srv.Disks = slices.Delete(slices.Clone(srv.Disks), i, i+1)
	h, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil {
		return ignoreNotFound(err)
	}
	h.UsedDisk = max(0, h.UsedDisk-size)
	return s.saveHost(tx, h)
}

// restoreGivenUp puts the row right where a restore was given up before the disk was known to be the server's.
func (s *Servers) restoreGivenUp(ctx context.Context, tx job.Tx, srv *compute.Server, j *job.Job) error {
	if j.Kind != compute.JobRestoreDisk || j.Action != "" && j.Action != compute.RestoreFirst {
		return nil
	}
	var a compute.RestoreDiskArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return fmt.Errorf("arguments of job %s: %w", j.ID, err)
	}
	return s.forgetRestored(ctx, tx, srv, a)
}
