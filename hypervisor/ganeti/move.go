package ganeti

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"salvor/hypervisor"
	"salvor/problem"
)

// This file moves instances between the nodes of a cluster. Ganeti detects no failure and fences nothing: it trusts the flag
// "offline" of a node, and starts the instances of one elsewhere. Whoever sets it has proven it.

var _ hypervisor.Mover = Host{}

// Roles of a node, as RAPI writes them.
const (
	roleOffline = "offline"
	roleRegular = "regular"
)

// shared are the disk templates whose disks any node reaches; diskless instances have none to miss.
var shared = []string{"sharedfile", "blockdev", "rbd", "ext", "gluster", "diskless"}

// mirrored is the one whose disks one other node has.
const mirrored = "drbd"

// SetOffline marks a node as dead, or takes that back. A master node cannot be marked: the cluster needs another master first, which
// only its own tools can make.
func (h Host) SetOffline(ctx context.Context, host string, offline bool) error {
	now, err := h.role(ctx, host)
	if err != nil || (now == roleOffline) == offline {
		return err
	}
	role, query := roleRegular, url.Values(nil)
	if offline {
		role, query = roleOffline, url.Values{"force": {"1"}}
	}
	if err := h.do(ctx, http.MethodPut, role, query, "nodes", host, "role"); err != nil {
		return problem.New(problem.KindOf(err), "make node %s %s: %w", sanitizeForeignText(host), role, err)
	}
	if now, err = h.role(ctx, host); err == nil && (now == roleOffline) != offline {
		err = problem.Conflictf("make node %s %s: Ganeti says that it did, but it is not so", sanitizeForeignText(host), role)
	}
	return err
}

// Reaches tells whether the node's daemon answers: Ganeti asks it at each reading what it has, and knows nothing of that if it is silent.
// Ganeti waits a minute for a daemon that takes its question and gives no answer; so long a silence is no sign of life.
func (h Host) Reaches(ctx context.Context, host string) (answers, offline bool, err error) {
	now, err := h.role(ctx, host)
	if err != nil || now == roleOffline {
		return false, err == nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, min(wordWithin, h.conf.Timeout))
	defer cancel()
	n, err := h.node(bounded, host)
	switch {
	case ctx.Err() != nil && err == nil:
		// An answer that comes as the caller stops may be the end of the question, and no sign of the node.
		return false, false, problem.Unavailablef("ask the cluster for node %s: %w", sanitizeForeignText(host), ctx.Err())
	case bounded.Err() != nil && ctx.Err() == nil:
		return false, false, nil // RAPI itself has just answered
	case err != nil:
		return false, false, err
	}
	return !n.Offline && (n.Memory != nil || n.Free != nil || n.VCPUs != nil || n.DiskTotal != nil), n.Offline, nil
}

// wordWithin is how long a living node may take to tell what it has. Ganeti gives up after 5 s where it finds nobody to connect to.
const wordWithin = 8 * time.Second

// role is what the cluster takes a node for; the node itself is not asked, so a dead one delays nothing.
func (c *Client) role(ctx context.Context, name string) (role string, err error) {
	err = c.ofNode(ctx, name, &role, "role")
	return role, err
}

func (c *Client) node(ctx context.Context, name string) (*node, error) {
	n := &node{}
	return n, c.ofNode(ctx, name, n)
}

// ofNode reads a node, or what lies below it.
func (c *Client) ofNode(ctx context.Context, name string, into any, below ...string) error {
	err := c.get(ctx, maxOne, into, nil, append([]string{"nodes", name}, below...)...)
	if problem.Is(err, problem.NotFound) {
		err = problem.NotFoundf("the cluster of %s has no node %s", c.base.Host, sanitizeForeignText(name))
	}
	return err
}

// Failover makes another node the instance's, and starts it there if Ganeti's own wish is that it runs. An instance that has left this
// node already is told where it is. Conflict: this node is not offline, or no other one has the disks.
func (h Host) Failover(ctx context.Context, id, to string) (string, error) {
	in, err := h.ours(ctx, id)
	if err != nil || in.Node != h.Node {
		return in.at(), err
	}
	n, err := h.node(ctx, h.Node)
	if err != nil {
		return "", err
	}
	if !n.Offline {
		return "", problem.Conflictf("fail instance %s over: its node %s is not offline", in.Name, h.Node)
	}
	return h.moved(ctx, in, to, "failover", map[string]any{})
}

// at is the node of an instance that may not have been read.
func (in *instance) at() string {
	if in == nil {
		return ""
	}
	return in.Node
}

// Migrate moves an instance of a living node: live if it runs and that is wished, else by shutting it down and starting it elsewhere.
func (h Host) Migrate(ctx context.Context, id, to string, live bool) (string, error) {
	in, err := h.ours(ctx, id)
	if err != nil || in.Node != h.Node {
		return in.at(), err
	}
	if live && in.Running {
		return h.moved(ctx, in, to, "migrate", map[string]any{"mode": "live"})
	}
	return h.moved(ctx, in, to, "failover", map[string]any{})
}

// moved has Ganeti move the instance and tells where it is then; nothing is taken from the job alone.
func (h Host) moved(ctx context.Context, in *instance, to, verb string, body map[string]any) (string, error) {
	to, err := h.target(ctx, in, to)
	if err != nil {
		return "", err
	}
	if in.DiskTemplate != mirrored { // else there is one target only, and naming it is an error
		body["target_node"] = to
	}
	if err := h.do(ctx, http.MethodPut, body, nil, "instances", in.Name, verb); err != nil {
		return "", problem.New(problem.KindOf(err), "%s of instance %s: %w", verb, in.Name, err)
	}
	now, err := h.instance(ctx, in.Name)
	if err != nil {
		return "", err
	}
	if now.Node == h.Node {
		return "", problem.Conflictf("%s of instance %s: Ganeti says that it did, but it is on node %s still", verb, in.Name, h.Node)
	}
	return now.Node, nil
}

// target is the node to which an instance can go: its secondary, or, where its disks are shared, the one that is wished, else the one
// with the most memory.
func (h Host) target(ctx context.Context, in *instance, to string) (string, error) {
	switch {
	case in.DiskTemplate == mirrored && len(in.Secondaries) != 1:
		return "", problem.Conflictf("instance %s has no secondary node: it cannot be moved", in.Name)
	case in.DiskTemplate == mirrored && to != "" && to != in.Secondaries[0]:
		return "", problem.Conflictf("instance %s can go to its secondary node %s only, not to %s", in.Name, in.Secondaries[0], sanitizeForeignText(to))
	case in.DiskTemplate == mirrored:
		return in.Secondaries[0], nil
	case !slices.Contains(shared, in.DiskTemplate):
		return "", problem.Conflictf("instance %s has its disks (%s) on node %s alone: it cannot be moved", in.Name, sanitizeForeignText(in.DiskTemplate), in.Node)
	case to != "":
		return to, nil
	}
	var nodes []*node
	if err := h.get(ctx, maxBulk, &nodes, url.Values{"bulk": {"1"}}, "nodes"); err != nil {
		return "", err
	}
	var best *node
	for _, n := range nodes {
		if n == nil || n.Name == h.Node || n.Offline || n.Drained || n.Runs != nil && !*n.Runs {
			continue
		}
		if best == nil || truncateToInt(n.Free) > truncateToInt(best.Free) || truncateToInt(n.Free) == truncateToInt(best.Free) && strings.Compare(n.Name, best.Name) < 0 {
			best = n
		}
	}
	if best == nil {
		return "", problem.Conflictf("instance %s: the cluster has no other node that takes instances", in.Name)
	}
	return best.Name, nil
}

// RenewMirrors gives the instances that had their second disk on this node, which is offline, another secondary node, chosen by the
// cluster's allocator.
func (h Host) RenewMirrors(ctx context.Context) (bool, error) {
	all, err := h.instances(ctx)
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(all, func(in *instance) bool { return slices.Contains(in.Secondaries, h.Node) }) {
		return false, nil
	}
	var info struct {
		Allocator string `json:"default_iallocator"`
	}
	if err := h.get(ctx, maxOne, &info, nil, "info"); err != nil {
		return true, err
	}
	body := map[string]any{"mode": "secondary-only"}
	if info.Allocator != "" {
		body["iallocator"] = info.Allocator
	}
	id, err := h.submit(ctx, http.MethodPost, body, nil, "nodes", h.Node, "evacuate")
	if err == nil {
		err = h.awaitAll(ctx, id)
	}
	if err != nil {
		return true, problem.New(problem.KindOf(err), "give the instances of node %s other secondary nodes: %w", h.Node, err)
	}
	return true, nil
}

// awaitAll waits for a job whose work is done by others, which its result names.
func (c *Client) awaitAll(ctx context.Context, id jobID) error {
	if err := c.await(ctx, id); err != nil {
		return err
	}
	d, err := c.job(ctx, id)
	if err != nil || d.gone() {
		return err
	}
	var errs []error
	for _, raw := range d.Result {
		var result struct {
			Jobs [][]json.RawMessage `json:"jobs"`
		}
		if json.Unmarshal(raw, &result) != nil {
			continue
		}
		for _, j := range result.Jobs { // whether it was submitted, and its number or why not
			var next jobID
			if len(j) != 2 || string(j[0]) != "true" || next.UnmarshalJSON(j[1]) != nil {
				errs = append(errs, problem.Conflictf("Ganeti could not submit a job: %s", sanitizeForeignText(string(raw))))
				continue
			}
			errs = append(errs, c.await(ctx, next))
		}
	}
	return errors.Join(errs...)
}
