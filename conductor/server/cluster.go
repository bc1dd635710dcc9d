package server

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Clusters finds what drives a cluster.
type Clusters interface {
	Cluster(row *compute.Cluster) (hypervisor.Cluster, error)
}

const (
	watchEvery       = 2 * time.Second
	watchBound       = 2 * time.Minute // of one turn
	unreachableEvery = 5 * time.Second // a cluster that does not answer is asked this often
	openJobsMemo     = "open jobs"
	turnOfWatch      = "its next look at the cluster"
)

// clusterDefinitions are what is done with clusters. The watch never ends by itself, so no deadline is laid over it.
func (c clusterOperations) clusterDefinitions() []job.Definition {
	return []job.Definition{
		{
			Kind: compute.JobWatch, Version: 1, Class: job.Operation,
			Actions: []job.Action{{Name: "watch", Do: c.watchCluster, NoUndo: "what was seen stays seen", Deadline: 4 * watchBound}},
		},
		{
			Kind: compute.JobClusterAdopt, Version: 1, Class: job.Background,
			Actions: []job.Action{{Name: "adopt", Do: c.adoptInstance, NoUndo: "it takes its own mark back"}},
		},
		{
			Kind: compute.JobClusterReconcile, Version: 1, Class: job.Background,
			Actions: []job.Action{{Name: "compare", Do: c.reconcileCluster, NoUndo: "the cluster is the truth"}},
		},
	}
}

// cluster reads a cluster and finds what drives it.
func (c clusterOperations) cluster(ctx context.Context, id string) (*compute.Cluster, hypervisor.Cluster, error) {
	row, err := c.Store.Clusters().Get(ctx, nil, id)
	if err != nil {
		return nil, nil, err
	}
	if row.Kind == compute.IronicCluster {
		return row, nil, nil // whose nodes BareMetal drives
	}
	if c.Clusters == nil {
		return row, nil, problem.Unsupportedf("cluster %s: this conductor drives no clusters", row.Name)
	}
	if err := c.Permission.Refusal(); err != nil {
		return row, nil, err
	}
	cl, err := c.Clusters.Cluster(row)
	return row, cl, err
}

// watchCluster is one turn: jobs first, so that what an ended job did is in what is read after it.
func (c clusterOperations) watchCluster(ctx context.Context, r *job.Run) job.Outcome {
	r.Deadline = 0 // each rest has its own
	bounded, cancel := context.WithTimeout(ctx, watchBound)
	defer cancel()
	row, cl, err := c.cluster(bounded, r.Subject.ID)
	if row == nil {
		if problem.Is(err, problem.NotFound) {
			return job.Done()
		}
		return job.Rest(turnOfWatch, unreachableEvery)
	}
	var now clusterObservation
	if err == nil {
		now, err = c.lookAtCluster(bounded, r, row, cl)
	}
	if ctx.Err() != nil || c.Permission.Refusal() != nil {
		return job.Rest(turnOfWatch, watchEvery) // we were stopped: that says nothing about the cluster
	}
	trouble, every := "", watchEvery
	if err != nil {
		now, trouble, every = clusterObservation{followedJob: row.FollowedJob}, err.Error(), unreachableEvery
	}
	for name, text := range now.notes {
		if r.Memo[name] != text {
			r.Note(name, text)
		}
	}
	if row.FollowedJob == now.followedJob && row.Problem == trouble && len(now.events) == 0 {
		return job.Rest(turnOfWatch, every)
	}
	return job.Rest(turnOfWatch, every, c.noteTurn(ctx, row, now, trouble))
}

// clusterObservation is what a look at a cluster found. It is written together with the end of the look: whoever has to look again has told nothing.
type clusterObservation struct {
	followedJob int64             // the cluster was followed up to this job
	notes       map[string]string // for the next look
	events      []job.Event       // of servers
}

// noteTurn writes what a turn changed of the cluster's record. The record itself may have been changed meanwhile.
func (c clusterOperations) noteTurn(ctx context.Context, old *compute.Cluster, now clusterObservation, trouble string) func(job.Tx) error {
	return func(tx job.Tx) error {
		for _, e := range now.events {
			if err := c.Store.Append(tx, e); err != nil {
				return err
			}
		}
		row, err := c.Store.Clusters().Get(ctx, tx, old.ID)
		if problem.Is(err, problem.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if row.FollowedJob == now.followedJob && row.Problem == trouble {
			return nil
		}
		changed := (row.Problem == "") != (trouble == "")
		row.FollowedJob, row.Problem = now.followedJob, trouble
		if err := c.Store.Clusters().Save(tx, row); err != nil || !changed {
			return err
		}
		e := job.Event{Subject: compute.ClusterSubject(row.ID), At: c.Now(), Type: "contact", Text: "the cluster answers", Severity: "info"}
		if trouble != "" {
			e.Text, e.Severity = "the cluster cannot be watched: "+trouble, "error"
		}
		return c.Store.Append(tx, e)
	}
}

// lookAtCluster takes in everything that the cluster tells.
func (c clusterOperations) lookAtCluster(ctx context.Context, r *job.Run, row *compute.Cluster, cl hypervisor.Cluster) (clusterObservation, error) {
	if row.Kind == compute.IronicCluster {
		return clusterObservation{followedJob: row.FollowedJob}, c.bareMetal().lookAtEndpoint(ctx, row)
	}
	jobs, open, lastJob, err := c.newJobs(ctx, r, row, cl)
	if err != nil {
		return clusterObservation{}, err
	}
	view, err := c.readCluster(ctx, row, cl)
	if err != nil {
		return clusterObservation{}, err
	}
	if err := c.follow(ctx, row, view); err != nil {
		return clusterObservation{}, err
	}
	raw, err := json.Marshal(open)
	if err != nil {
		return clusterObservation{}, err
	}
	trouble, troubled := c.newTrouble(r.Memo[troubleMemo], view)
	return clusterObservation{followedJob: lastJob, notes: map[string]string{openJobsMemo: string(raw), troubleMemo: troubled}, events: append(c.jobEvents(jobs, view), trouble...)}, nil
}

// newJobs reads the jobs that ended since the last turn, and tells which are still open. The first turn of a watch begins at the newest.
func (c clusterOperations) newJobs(ctx context.Context, r *job.Run, row *compute.Cluster, cl hypervisor.Cluster) (ended []hypervisor.ClusterJob, open []int64, lastJob int64, err error) {
	var also []int64
	if known := r.Memo[openJobsMemo]; known != "" {
		_ = json.Unmarshal([]byte(known), &also) // our own writing
	}
	after := row.FollowedJob
	if after == 0 {
		after = -1
	}
	jobs, _, err := cl.Jobs(ctx, after, also)
	if err != nil {
		return nil, nil, 0, err
	}
	open, lastJob = []int64{}, row.FollowedJob
	for _, j := range jobs {
		lastJob = max(lastJob, j.ID)
		switch {
		case j.Ended && after >= 0:
			ended = append(ended, j)
		case !j.Ended && !j.Gone:
			open = append(open, j.ID)
		}
	}
	return ended, open, lastJob, nil
}

// clusterView is a cluster as it was seen in one turn.
type clusterView struct {
	hosts   []hypervisor.ClusterHost
	guests  []hypervisor.ClusterGuest
	servers map[string]*compute.Server // from before the guests were read, by id
}

func (c clusterOperations) readCluster(ctx context.Context, row *compute.Cluster, cl hypervisor.Cluster) (*clusterView, error) {
	v := &clusterView{}
	var err error
	if v.servers, err = c.Compute.Reconciler.ServersOfCluster(ctx, row.ID); err != nil {
		return nil, err
	}
	if v.hosts, err = cl.Hosts(ctx); err != nil {
		return nil, err
	}
	v.guests, err = cl.Guests(ctx)
	return v, err
}

func (v *clusterView) ours() []compute.Guest {
	var out []compute.Guest
	for _, g := range v.guests {
		if g.Ours {
			out = append(out, g.Guest)
		}
	}
	return out
}

// follow takes in the nodes, where the cluster runs its guests, and how they are: each is compared with what was read before, and
// only what differs is written.
func (c clusterOperations) follow(ctx context.Context, row *compute.Cluster, v *clusterView) error {
	nodes := make(map[string]compute.Inventory, len(v.hosts))
	for _, h := range v.hosts {
		nodes[h.Name] = h.Inventory
	}
	ids, err := c.Compute.Hosts.Follow(ctx, row.ID, nodes)
	if err != nil {
		return err
	}
	there := map[string][]compute.Guest{}
	for _, g := range v.guests {
		there[ids[g.Host]] = append(there[ids[g.Host]], g.Guest)
	}
	if err := c.Compute.GuestReports.TakeClusterGuests(ctx, slices.Collect(maps.Values(ids)), there); err != nil {
		return err
	}
	for _, g := range v.guests {
		if id := ids[g.Host]; g.Ours && id != "" {
			if err := c.Compute.Reconciler.RecordClusterMove(ctx, g.ID, id, v.servers); err != nil {
				return err
			}
		}
	}
	if err := c.Compute.Reconciler.ObserveCluster(ctx, v.ours(), v.servers); err != nil {
		return err
	}
	_, err = c.Compute.Reconciler.SyncRescue(ctx, v.ours(), v.servers, true)
	return err
}

// jobEvents tells ended jobs to the servers that they worked on, whoever asked for them.
func (c clusterOperations) jobEvents(jobs []hypervisor.ClusterJob, v *clusterView) (events []job.Event) {
	servers := map[string]string{}
	for _, g := range v.guests {
		if g.Ours {
			servers[g.Name] = g.ID
		}
	}
	for _, j := range jobs {
		for _, name := range j.Guests {
			id := servers[name]
			if id == "" {
				continue
			}
			e := job.Event{Subject: compute.Subject(id), At: c.Now(), Type: "contact", Severity: "info", Text: "Ganeti did " + j.Summary}
			if j.Failure != "" {
				e.Severity, e.Text = "error", j.Failure
			}
			events = append(events, e)
		}
	}
	return events
}

// adoptInstance makes a server of an instance that exists. The server's id comes from the job, so that a second run finds its own mark.
func (c clusterOperations) adoptInstance(ctx context.Context, r *job.Run) job.Outcome {
	a, err := parseJobArgs[compute.ClusterAdoptArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	row, cl, err := c.cluster(ctx, r.Subject.ID)
	if err != nil {
		return job.Fail(err)
	}
	id := r.ID
	if srv, err := c.Store.Servers().Get(ctx, nil, id); err == nil {
		return job.Answer(compute.Adopted{ServerID: srv.ID})
	}
	g, err := cl.Adopt(ctx, a.Instance, id)
	if err != nil {
		return job.Fail(err)
	}
	if err = c.adoptGuest(ctx, r, row, cl, a, g); err != nil {
		if undo := cl.Release(context.WithoutCancel(ctx), a.Instance, id); undo != nil {
			r.Log.Warn("take the mark off an instance that was not adopted", "instance", a.Instance, "error", undo)
		}
		return job.Fail(err)
	}
	return job.Answer(compute.Adopted{ServerID: id})
}

func (c clusterOperations) adoptGuest(ctx context.Context, r *job.Run, row *compute.Cluster, cl hypervisor.Cluster, a compute.ClusterAdoptArgs, g *hypervisor.ClusterGuest) error {
	hosts, err := cl.Hosts(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(hosts, func(h hypervisor.ClusterHost) bool { return h.Name == g.Host })
	if at < 0 {
		return problem.Conflictf("adopt instance %s: it is on node %q, which runs no guests", a.Instance, g.Host)
	}
	host, err := c.Compute.Hosts.Ensure(ctx, row.ID, g.Host, hosts[at].Inventory)
	if err != nil {
		return err
	}
	adoption := compute.Adoption{HostID: host.ID, Guest: g.Guest, Name: a.Name, OS: a.OS, OSFamily: a.OSFamily, Project: a.Project, User: a.User, DisksMiB: g.Disks}
	if adoption.Name == "" {
		adoption.Name, _, _ = strings.Cut(g.Name, ".")
	}
	if adoption.OS == "" {
		adoption.OS, _, _ = strings.Cut(g.System, "+") // without its variant
	}
	if adoption.OSFamily == "" {
		adoption.OSFamily = systemFamily(adoption.OS)
	}
	_, err = c.Compute.Reconciler.Adopt(ctx, adoption, compute.Who{Asker: record.Asker{RequestID: r.RequestID, User: r.User}, Admin: true})
	return err
}

// families of systems, by how the names of OS definitions begin.
var families = []struct{ prefix, family string }{
	{"win", "windows"}, {"debian", "linux"}, {"debootstrap", "linux"}, {"ubuntu", "linux"}, {"fedora", "linux"}, {"centos", "linux"},
	{"rhel", "linux"}, {"rocky", "linux"}, {"alma", "linux"}, {"opensuse", "linux"}, {"sles", "linux"}, {"arch", "linux"},
	{"alpine", "linux"}, {"gentoo", "linux"}, {"freebsd", "freebsd"}, {"openbsd", "openbsd"}, {"netbsd", "netbsd"},
}

// systemFamily is the family of a system; empty: not known.
func systemFamily(system string) string {
	for _, f := range families {
		if strings.HasPrefix(strings.ToLower(system), f.prefix) {
			return f.family
		}
	}
	return ""
}

// reconcileCluster compares the sessions of the cluster's servers with what it tells, and mends them if that was asked for.
func (c clusterOperations) reconcileCluster(ctx context.Context, r *job.Run) job.Outcome {
	a, err := parseJobArgs[compute.ReconcileArgs](r)
	if err != nil {
		return job.Fail(err)
	}
	row, cl, err := c.cluster(ctx, r.Subject.ID)
	if err != nil {
		return job.Fail(err)
	}
	v, err := c.readCluster(ctx, row, cl)
	if err != nil {
		return job.Fail(err)
	}
	found, err := c.Compute.Reconciler.SyncRescue(ctx, v.ours(), v.servers, a.Fix)
	if err != nil {
		return job.Fail(err)
	}
	return job.Answer(found)
}
