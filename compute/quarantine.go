package compute

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Reasons why a disk is in quarantine.
const (
	QuarantineRebuild  = "rebuild"        // its owner had the server rebuilt
	QuarantineReimage  = "re-image"       // an evacuation made the server anew on the host that has an old disk of it
	QuarantineReturned = "host returned"  // its host was evacuated, and came back
	QuarantineRestored = "restore failed" // it was to be restored to a server, and that came to nothing
)

// QuarantinedDisk is a disk that its server gave up. It is kept for some days, and counts as used space.
type QuarantinedDisk struct {
	ID     string `json:"id"` // its time, server and disk
	Store  string `json:"store"`
	Marker string `json:"marker"`
	// ServerID and Disk are whose disk it was. Image is the digest of the image that it was made from.
	ServerID string    `json:"server_id"`
	Disk     string    `json:"disk"`
	Image    string    `json:"image,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Bytes    int64     `json:"bytes"`
	At       time.Time `json:"at"`
}

// SizeGiB is the size of the disk, rounded up.
func (d *QuarantinedDisk) SizeGiB() int { return int((d.Bytes + 1<<30 - 1) >> 30) }

// JobRestoreDisk moves a disk out of quarantine to a server.
const JobRestoreDisk job.Kind = "server restore disk"

// RestoreDiskArgs are the arguments of JobRestoreDisk. The server's row names the disk already.
type RestoreDiskArgs struct {
	Quarantine string `json:"quarantine"`
	Disk       string `json:"disk"` // its name in the guest
}

// How long a host has to answer a question about its quarantine, and how often it is looked whether it did.
const (
	quarantineWithin = 20 * time.Second
	quarantineLook   = 50 * time.Millisecond
)

// maxQuarantineID bounds the length of the id of a quarantined disk, in bytes.
const maxQuarantineID = 150

// Quarantine lists a page of the disks in quarantine of a host, oldest first. It asks the host. p.Marker is the id of a disk,
// which may be gone; the page has the next p.Limit disks. problem.Unavailable: the host does not answer.
func (s *Hosts) Quarantine(ctx context.Context, ident string, p record.Page) ([]QuarantinedDisk, error) {
	if len(p.Marker) > maxQuarantineID {
		return nil, problem.Invalidf("Invalid value for marker: %.40q; want the id of a disk in quarantine.", p.Marker)
	}
	return s.listQuarantine(ctx, ident, Args{After: p.Marker, Limit: p.Limit})
}

func (s *Hosts) listQuarantine(ctx context.Context, ident string, page Args) ([]QuarantinedDisk, error) {
	h, err := s.Host(ctx, ident)
	if err != nil {
		return nil, err
	}
	r, err := s.askQuarantine(ctx, h, ListQuarantine, page)
	return page.quarantinePage(r.Quarantine), err
}

// quarantinePage cuts the page out of a host's answer, because an agent of the former release ignores the page and answers with all disks.
func (a *Args) quarantinePage(all []QuarantinedDisk) []QuarantinedDisk {
	all = slices.DeleteFunc(all, func(d QuarantinedDisk) bool { return d.ID <= a.After || a.Quarantine != "" && d.ID != a.Quarantine })
	slices.SortFunc(all, func(x, y QuarantinedDisk) int { return cmp.Compare(x.ID, y.ID) })
	if a.Limit > 0 && len(all) > a.Limit {
		all = all[:a.Limit]
	}
	return all
}

// QuarantineEnds is when a disk is removed; zero: never.
func (s *Hosts) QuarantineEnds(d *QuarantinedDisk) time.Time {
	if s.opts.QuarantineDays == 0 {
		return time.Time{}
	}
	return d.At.AddDate(0, 0, s.opts.QuarantineDays)
}

// RemoveQuarantined removes a disk from the quarantine of a host; it cannot be had back.
func (s *Hosts) RemoveQuarantined(ctx context.Context, ident, id string, who Who) error {
	h, err := s.Host(ctx, ident)
	if err != nil {
		return err
	}
	if _, err := s.askQuarantine(ctx, h, RemoveQuarantined, Args{Quarantine: id}); err != nil {
		return err
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		return s.noteHost(tx, h.ID, who.Asker, "removed the quarantined disk "+id)
	})
}

// askQuarantine gives the host an order of its own and waits for the answer. Answered or given up, the order is dropped.
func (s *Hosts) askQuarantine(ctx context.Context, h *Host, verb Verb, a Args) (Result, error) {
	switch {
	case h.Kind != AgentHost:
		return Result{}, problem.Unsupportedf("host %s is of kind %s: salvor quarantines disks on hosts that run salvor host only", orID(h), h.Kind)
	case h.Fenced || h.ForcedDown || h.Revoked:
		return Result{}, problem.Conflictf("host %s is fenced, forced down or revoked: it gets no orders until it is readmitted; to find out what that needs, run: salvor why host:%[1]s", orID(h))
	}
	up, err := s.Up(ctx, h)
	if err == nil && !up {
		err = problem.Unavailablef("host %s is down: it cannot be asked for its quarantine", orID(h))
	}
	if err != nil {
		return Result{}, err
	}
	args, err := json.Marshal(a)
	if err != nil {
		return Result{}, err
	}
	id := uuid.NewString()
	order := Order{ID: id, HostID: h.ID, BootID: h.BootID, ServerID: h.ID, Verb: verb, Args: args, Within: int(quarantineWithin / time.Second), JobID: id, Action: string(verb)}
	if err := s.jobs.Do(ctx, func(tx job.Tx) error { _, err := s.store.InsertOrder(tx, &order); return err }); err != nil {
		return Result{}, err
	}
	r, err := s.awaitQuarantine(ctx, h, id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quarantineWithin)
	defer cancel()
	dropped := s.jobs.Do(ctx, func(tx job.Tx) error { return s.store.DropOrder(tx, id) })
	return r, errors.Join(err, dropped)
}

func (s *Hosts) awaitQuarantine(ctx context.Context, h *Host, id string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, quarantineWithin)
	defer cancel()
	look := time.NewTicker(quarantineLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return Result{}, problem.Unavailablef("host %s did not answer within %s; see whether it is up: salvor host show %[1]s", orID(h), quarantineWithin)
		case <-look.C:
		}
		o, err := s.store.Order(ctx, nil, id)
		switch {
		case err != nil && ctx.Err() == nil:
			return Result{}, err
		case err == nil && o.Result != nil && o.Result.ErrorKind != "":
			return Result{}, problem.New(problem.ParseKind(o.Result.ErrorKind), "host %s: %s", orID(h), o.Result.Error)
		case err == nil && o.Result != nil:
			return *o.Result, nil
		}
	}
}

// RestoreDisk gives a disk in quarantine of a host to a server that is stopped, as a further disk. The server's host sees the store of
// the disk: it is the same host, or shares that store.
func (s *Servers) RestoreDisk(ctx context.Context, hostIdent, id, serverIdent string, who Who) (*Server, *job.Job, error) {
	if id == "" || len(id) > maxQuarantineID {
		return nil, nil, problem.Invalidf("%.40q is no id of a disk in quarantine", id)
	}
	found, err := s.hosts.listQuarantine(ctx, hostIdent, Args{Quarantine: id})
	if err != nil {
		return nil, nil, err
	}
	if len(found) == 0 {
		return nil, nil, problem.NotFoundf("host %s has no disk %.150s in quarantine: see salvor host quarantine list %[1]s", truncateText(hostIdent), id)
	}
	var srv *Server
	var j *job.Job
	err = s.change(ctx, func(tx job.Tx) error {
		if srv, err = s.get(ctx, tx, serverIdent, who); err != nil {
			return err
		}
		j, err = s.beginRestore(ctx, tx, srv, &found[0], who)
		return err
	})
	return srv, j, err
}

// commandToStop says which command brings the server nearer to being stopped, and is accepted now.
func (s *Server) commandToStop() string {
	_, err := Allow(s, Stop, NovaSemantics, true)
	switch {
	case s.Task == NoTask && s.InSession():
		return "end its rescue first: salvor server unrescue " + s.ID
	case err == nil:
		return "stop it first: salvor server stop " + s.ID
	}
	return "to see what it waits for, run: salvor why server:" + s.ID
}

// beginRestore names the disk in the server's row and begins the job.
func (s *Servers) beginRestore(ctx context.Context, tx job.Tx, srv *Server, d *QuarantinedDisk, who Who) (*job.Job, error) {
	if srv.Foreign || srv.Metal() {
		return nil, problem.Unsupportedf("server %s: its disks are none of salvor's", srv.ID)
	}
	if srv.State != Stopped || srv.Task != NoTask || srv.Power == PowerOn || srv.InSession() || srv.HostID == "" {
		return nil, problem.Conflictf("server %s is %s: a disk is restored to a server that is stopped, not in rescue, and that nobody works on; %s", srv.ID, cmp.Or(string(srv.Task), string(srv.State)), srv.commandToStop())
	}
	if err := s.holdChange(ctx, tx, srv, who.Admin); err != nil {
		return nil, err
	}
	h, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil {
		return nil, err
	}
	store := h.storeOf(d.Marker)
	if store == nil {
		return nil, problem.Conflictf("server %s is on host %s, which does not see disk store %s; name a server of a host that does", srv.ID, orID(h), d.Store)
	}
	name, err := placeDisk(srv.Disks, "", diskPrefix(srv.ImageProperties))
	if err != nil {
		return nil, err
	}
	disk := Disk{Name: name, BootIndex: -1, Store: store.Name, SizeGiB: max(1, d.SizeGiB())}
	srv.Disks = append(slices.Clone(srv.Disks), disk)
	srv.Task = Attaching
	h.UsedDisk += disk.SizeGiB
	if err := s.saveHost(tx, h); err != nil {
		return nil, err
	}
	if err := s.save(tx, srv); err != nil {
		return nil, err
	}
	j, err := newJob(srv.ID, JobRestoreDisk, RestoreDiskArgs{Quarantine: d.ID, Disk: name}, nil, who.Asker)
	if err != nil {
		return nil, err
	}
	if err := s.jobs.Insert(tx, j); err != nil {
		return nil, err
	}
	if err := s.hosts.noteHost(tx, h.ID, who.Asker, "quarantined disk "+d.ID+" is restored to server "+srv.ID+" as "+name); err != nil {
		return nil, err
	}
	return j, s.note(tx, srv.ID, who.Asker, "request", "is given a disk from quarantine as "+name)
}

// DropRestored takes the disk of a restore that came to nothing out of the server's row, and gives its place back.
func (s *Servers) DropRestored(ctx context.Context, tx job.Tx, id string, a RestoreDiskArgs) error {
	srv, err := s.store.Servers().Get(ctx, tx, id)
	if err != nil {
		return ignoreNotFound(err)
	}
	if err := s.forgetRestored(ctx, tx, srv, a); err != nil {
		return err
	}
	return s.save(tx, srv)
}

func (s *Servers) forgetRestored(ctx context.Context, tx job.Tx, srv *Server, a RestoreDiskArgs) error {
	i := slices.IndexFunc(srv.Disks, func(d Disk) bool { return d.Name == a.Disk && d.VolumeID == "" })
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

// RestoreFirst is the first action of JobRestoreDisk: while it goes on, the disk may still be in quarantine.
const RestoreFirst = "move the disk out of quarantine"

// restoreGivenUp puts the row right where a restore was given up before the disk was known to be the server's.
func (s *Servers) restoreGivenUp(ctx context.Context, tx job.Tx, srv *Server, j *job.Job) error {
	if j.Kind != JobRestoreDisk || j.Action != "" && j.Action != RestoreFirst {
		return nil
	}
	var a RestoreDiskArgs
	if err := json.Unmarshal(j.Args, &a); err != nil {
		return fmt.Errorf("arguments of job %s: %w", j.ID, err)
	}
	return s.forgetRestored(ctx, tx, srv, a)
}
