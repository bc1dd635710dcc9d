package ganeti

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

// Host is one node of a cluster. A guest that Ganeti moved to another node is still found.
type Host struct {
	*Client
	Node string
}

var (
	_ hypervisor.Hypervisor = Host{}
	_ hypervisor.Finder     = Host{}
	_ hypervisor.Cluster    = (*Client)(nil)
)

// Inventory tells what the node has.
func (h Host) Inventory(ctx context.Context) (compute.Inventory, error) {
	var n node
	err := h.get(ctx, maxOne, &n, nil, "nodes", h.Node)
	if problem.Is(err, problem.NotFound) {
		return compute.Inventory{}, problem.NotFoundf("the cluster of %s has no node %s", h.base.Host, sanitizeForeignText(h.Node))
	}
	if err != nil {
		return compute.Inventory{}, err
	}
	version, err := h.version(ctx)
	if err != nil {
		return compute.Inventory{}, err
	}
	return n.inventory(version), nil
}

// Guests lists the instances whose primary node this is.
func (h Host) Guests(ctx context.Context) ([]compute.Guest, error) {
	all, err := h.instances(ctx)
	if err != nil {
		return nil, err
	}
	out := []compute.Guest{}
	for _, in := range all {
		if in.Node == h.Node {
			out = append(out, in.guest())
		}
	}
	return out, nil
}

// Guest tells of the server's instance, on whichever node Ganeti runs it.
func (h Host) Guest(ctx context.Context, id string) (*compute.Guest, error) {
	in, err := h.ours(ctx, id)
	if err != nil {
		return nil, err
	}
	g := in.guest()
	return &g, nil
}

// Define makes the instance boot what d says at its next start, and creates it where it is not there. Its disks and
// interfaces are Ganeti's: of an instance that is there they stay as they are.
func (h Host) Define(ctx context.Context, d hypervisor.Domain) error {
	in, err := h.ours(ctx, d.ServerID)
	if problem.Is(err, problem.NotFound) && !d.Adopted {
		in, err = h.create(ctx, d)
	}
	if err != nil {
		return err
	}
	if in.epoch() != d.Epoch {
		if err := h.raise(ctx, in, d.Epoch); err != nil {
			return err
		}
	}
	changes, err := in.changes(d)
	if err != nil {
		return err
	}
	body := map[string]any{}
	if len(changes) > 0 {
		body["hvparams"] = changes
	}
	if size := in.resize(d); size != nil {
		body["beparams"] = size
	}
	if len(body) == 0 {
		return nil
	}
	if err := h.do(ctx, http.MethodPut, body, nil, "instances", in.Name, "modify"); err != nil {
		return problem.New(problem.KindOf(err), "set how instance %s boots: %w", in.Name, err)
	}
	if in, err = h.instance(ctx, in.Name); err != nil {
		return err
	}
	if left, _ := in.changes(d); len(left) > 0 {
		return problem.Conflictf("set how instance %s boots: Ganeti says that it did, but %s is not so: someone else may have changed it",
			in.Name, strings.Join(slices.Sorted(maps.Keys(left)), ", "))
	}
	return nil
}

// raise marks the instance with an epoch: the new mark first, so that one is always there.
func (h Host) raise(ctx context.Context, in *instance, epoch int64) error {
	fresh := tagEpoch + strconv.FormatInt(epoch, 10)
	err := h.tag(ctx, http.MethodPut, in.Name, fresh)
	old := slices.DeleteFunc(in.marks(), func(t string) bool { return !strings.HasPrefix(t, tagEpoch) || t == fresh })
	if err == nil && len(old) > 0 {
		err = h.tag(ctx, http.MethodDelete, in.Name, old...)
	}
	if err != nil {
		return problem.New(problem.KindOf(err), "mark instance %s: %w", in.Name, err)
	}
	return nil
}

// resize is the size that an instance of our own making must get; nil: it has it.
func (in *instance) resize(d hypervisor.Domain) map[string]int {
	if !in.made() || d.RAM == in.memory() && d.VCPUs == in.BEParams.VCPUs {
		return nil
	}
	return map[string]int{"minmem": d.RAM, "maxmem": d.RAM, "vcpus": d.VCPUs}
}

// SetPower brings the instance to on or off.
func (h Host) SetPower(ctx context.Context, id string, p hypervisor.Power) (bool, error) {
	if p.State != compute.PowerOn && p.State != compute.PowerOff {
		return false, problem.Unsupportedf("server %s: Ganeti cannot bring an instance to %q", id, p.State)
	}
	in, err := h.ours(ctx, id)
	if err != nil {
		return false, err
	}
	soft := false
	if p.State == compute.PowerOff || p.Restart {
		if soft, err = h.shutdown(ctx, in, p); err != nil || p.State == compute.PowerOff {
			return soft, err
		}
	}
	return soft, h.startup(ctx, in.Name)
}

// shutdown also makes Ganeti's own wish "down": else its watcher would start a guest again that ended by itself.
func (h Host) shutdown(ctx context.Context, in *instance, p hypervisor.Power) (soft bool, err error) {
	if !in.Running && in.AdminState != "up" {
		return p.Soft, nil
	}
	within := 0
	if p.Soft {
		within = max(int(p.Within/time.Second), 1)
	}
	start := time.Now()
	if err := h.do(ctx, http.MethodPut, map[string]int{"timeout": within}, nil, "instances", in.Name, "shutdown"); err != nil {
		return false, problem.New(problem.KindOf(err), "shut instance %s down: %w", in.Name, err)
	}
	now, err := h.instance(ctx, in.Name)
	if err != nil {
		return false, err
	}
	if now.Running {
		return false, problem.Conflictf("shut instance %s down: Ganeti says that it did, but it runs", in.Name)
	}
	// Ganeti does not tell whether it had to force the guest; the time that it took does.
	return p.Soft && time.Since(start) < p.Within, nil
}

func (h Host) startup(ctx context.Context, name string) error {
	in, err := h.instance(ctx, name)
	if err != nil || in.Running {
		return err
	}
	if err := h.do(ctx, http.MethodPut, nil, nil, "instances", name, "startup"); err != nil {
		return problem.New(problem.KindOf(err), "start instance %s: %w", name, err)
	}
	if in, err = h.instance(ctx, name); err != nil {
		return err
	}
	if !in.Running {
		return problem.Conflictf("start instance %s: Ganeti says that it did, but it is %s", name, sanitizeForeignText(in.Status))
	}
	return nil
}

// Remove removes an instance that was created here. One that was adopted is only let go: it stays as it is, without our mark.
func (h Host) Remove(ctx context.Context, id string) error {
	in, err := h.ours(ctx, id)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !in.made() {
		err = h.tag(ctx, http.MethodDelete, in.Name, in.marks()...)
	} else if _, err = h.shutdown(ctx, in, hypervisor.Power{State: compute.PowerOff}); err == nil {
		// Else Ganeti asks the guest's system first, for two minutes.
		err = h.do(ctx, http.MethodDelete, nil, nil, "instances", in.Name)
	}
	if err == nil || problem.Is(err, problem.NotFound) {
		return nil
	}
	return problem.New(problem.KindOf(err), "remove instance %s: %w", in.Name, err)
}

// node is what is read of a node. A node that does not answer has no totals.
type node struct {
	Name      string   `json:"name"`
	Address   string   `json:"pip"`
	Offline   bool     `json:"offline"`
	Drained   bool     `json:"drained"`
	Runs      *bool    `json:"vm_capable"`
	VCPUs     *float64 `json:"ctotal"`
	Memory    *float64 `json:"mtotal"` // MiB
	Free      *float64 `json:"mfree"`  // MiB
	DiskTotal *float64 `json:"dtotal"` // MiB
}

func (n *node) inventory(version int) compute.Inventory {
	return compute.Inventory{
		HypervisorType: "ganeti", HypervisorVersion: version, Address: n.Address,
		Firmware: []compute.Firmware{compute.BIOS},
		VCPUs:    truncateToInt(n.VCPUs), RAM: truncateToInt(n.Memory), Disk: truncateToInt(n.DiskTotal) / 1024,
	}
}

func truncateToInt(f *float64) int {
	if f == nil || !(*f > 0) {
		return 0
	}
	return int(min(*f, 1e15))
}

// version is "3.0.2" as 3000002.
func (c *Client) version(ctx context.Context) (int, error) {
	var info struct {
		Version string `json:"software_version"`
	}
	if err := c.get(ctx, maxOne, &info, nil, "info"); err != nil {
		return 0, err
	}
	out := 0
	for _, part := range strings.SplitN(info.Version, ".", 3) {
		n, _ := strconv.Atoi(strings.TrimRight(part, "~abcdefghijklmnopqrstuvwxyz"))
		out = out*1000 + min(max(n, 0), 999)
	}
	return out, nil
}

// Hosts lists the nodes that run guests.
func (c *Client) Hosts(ctx context.Context) ([]hypervisor.ClusterHost, error) {
	version, err := c.version(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []node
	if err := c.get(ctx, maxBulk, &nodes, url.Values{"bulk": {"1"}}, "nodes"); err != nil {
		return nil, err
	}
	var out []hypervisor.ClusterHost
	for _, n := range nodes {
		if n.Name != "" && (n.Runs == nil || *n.Runs) {
			out = append(out, hypervisor.ClusterHost{Name: n.Name, Inventory: n.inventory(version), Offline: n.Offline, Drained: n.Drained})
		}
	}
	return out, nil
}

// Guests lists all instances of the cluster.
func (c *Client) Guests(ctx context.Context) ([]hypervisor.ClusterGuest, error) {
	all, err := c.instances(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]hypervisor.ClusterGuest, len(all))
	for i, in := range all {
		out[i] = in.inCluster()
	}
	return out, nil
}

// maxJobs bounds how many jobs are read at once.
const maxJobs = 200

// Jobs reads the jobs above after, and those in also.
func (c *Client) Jobs(ctx context.Context, after int64, also []int64) ([]hypervisor.ClusterJob, bool, error) {
	var list []struct {
		ID jobID `json:"id"`
	}
	if err := c.get(ctx, maxBulk, &list, nil, "jobs"); err != nil {
		return nil, false, err
	}
	var ids []int64
	for _, j := range list {
		if int64(j.ID) > after && !slices.Contains(also, int64(j.ID)) {
			ids = append(ids, int64(j.ID))
		}
	}
	slices.Sort(ids)
	if after < 0 && len(ids) > 1 {
		ids = ids[len(ids)-1:]
	}
	more := len(ids) > maxJobs
	ids = append(slices.Clone(also), ids[:min(len(ids), maxJobs)]...)
	slices.Sort(ids)
	out := make([]hypervisor.ClusterJob, 0, len(ids))
	for _, id := range ids {
		d, err := c.job(ctx, jobID(id))
		if err != nil {
			return nil, false, err
		}
		out = append(out, d.clusterJob())
	}
	return out, more, nil
}

func (d *jobDocument) clusterJob() hypervisor.ClusterJob {
	j := hypervisor.ClusterJob{ID: int64(d.ID), Summary: d.summaryText(), Ended: d.ended(), Gone: d.gone()}
	for _, op := range d.Ops {
		if op.Instance != "" && !slices.Contains(j.Guests, op.Instance) {
			j.Guests = append(j.Guests, op.Instance)
		}
	}
	if err := d.failure(); err != nil {
		j.Failure = err.Error()
	}
	return j
}
