package ganeti

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

// Tags are our marks on instances: which server it is, and of which epoch; made says that the instance was created here, and
// may be removed with its disks.
const (
	tagServer = "salvor:"
	tagEpoch  = "salvor-epoch:"
	tagMade   = "salvor-made"
)

// instance is what is read of an instance; what a cluster gets wrong elsewhere in it does not matter.
type instance struct {
	Name         string                     `json:"name"`
	UUID         string                     `json:"uuid"`
	Node         string                     `json:"pnode"`
	Secondaries  []string                   `json:"snodes"`
	AdminState   string                     `json:"admin_state"`
	Running      bool                       `json:"oper_state"`
	Status       string                     `json:"status"`
	System       string                     `json:"os"`
	DiskTemplate string                     `json:"disk_template"`
	HVParams     map[string]json.RawMessage `json:"hvparams"`
	Custom       map[string]json.RawMessage `json:"custom_hvparams"`
	BEParams     struct {
		Memory    int `json:"memory"`
		MaxMemory int `json:"maxmem"`
		VCPUs     int `json:"vcpus"`
	} `json:"beparams"`
	OperRAM   *float64  `json:"oper_ram"` // MiB, of the running guest
	Tags      []string  `json:"tags"`
	DiskSizes []float64 `json:"disk.sizes"`
	MACs      []string  `json:"nic.macs"`
	IPs       []*string `json:"nic.ips"`
	Links     []*string `json:"nic.links"`
	Bridges   []*string `json:"nic.bridges"`
	NICs      []string  `json:"nic.uuids"`
}

// server is the UUID of the server that the instance is marked as; empty: it is none of ours.
func (in *instance) server() string {
	owners := in.owners()
	if len(owners) == 0 {
		return ""
	}
	return owners[0]
}

func (in *instance) owners() []string {
	var out []string
	for _, t := range in.Tags {
		if id, ok := strings.CutPrefix(t, tagServer); ok {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// epoch that the instance is marked with; 0: none.
func (in *instance) epoch() int64 {
	for _, t := range in.Tags {
		if n, ok := strings.CutPrefix(t, tagEpoch); ok {
			epoch, _ := strconv.ParseInt(n, 10, 64)
			return epoch
		}
	}
	return 0
}

// marks are all tags of ours on the instance.
func (in *instance) marks() []string {
	return slices.DeleteFunc(slices.Clone(in.Tags), func(t string) bool {
		return t != tagMade && !strings.HasPrefix(t, tagServer) && !strings.HasPrefix(t, tagEpoch)
	})
}

// made tells whether the instance was created for a server of ours.
func (in *instance) made() bool { return slices.Contains(in.Tags, tagMade) }

// power is what the status means; a guest that ended by itself is off.
func (in *instance) power() compute.Power {
	switch {
	case in.Running:
		return compute.PowerOn
	case in.Status == "ERROR_nodedown" || in.Status == "ERROR_nodeoffline":
		return compute.PowerUnknown
	}
	return compute.PowerOff
}

func (in *instance) guest() compute.Guest {
	g := compute.Guest{
		ID: in.UUID, Name: in.Name, Power: in.power(), Rescue: in.bootsCD(),
		VCPUs: in.BEParams.VCPUs, RAM: in.memory(), Settings: in.settings(), NICs: in.interfaces(),
	}
	if in.Running && truncateToInt(in.OperRAM) > 0 {
		g.RAM = truncateToInt(in.OperRAM)
	}
	if id := in.server(); id != "" {
		g.ID, g.Ours, g.Epoch = id, true, in.epoch()
	}
	g.InRescue = g.Rescue != "" && in.Running
	return g
}

// memory is what the next start gives it, in MiB.
func (in *instance) memory() int {
	if in.BEParams.MaxMemory > 0 {
		return in.BEParams.MaxMemory
	}
	return in.BEParams.Memory
}

func (in *instance) interfaces() []compute.NIC {
	var out []compute.NIC
	for i, mac := range in.MACs {
		n := compute.NIC{MAC: mac, Bridge: stringAt(in.Bridges, i)}
		if n.Bridge == "" {
			n.Bridge = stringAt(in.Links, i)
		}
		if i < len(in.NICs) {
			n.ID = in.NICs[i]
		}
		if ip := stringAt(in.IPs, i); ip != "" {
			n.Addresses = []string{ip}
		}
		out = append(out, n)
	}
	return out
}

func stringAt(list []*string, i int) string {
	if i < len(list) && list[i] != nil {
		return *list[i]
	}
	return ""
}

func (in *instance) inCluster() hypervisor.ClusterGuest {
	g := hypervisor.ClusterGuest{Guest: in.guest(), Host: in.Node, System: in.System}
	if in.Status == "ERROR_wrongnode" {
		g.Trouble = "it runs on a node that is not its own: Ganeti's watcher ends it there"
	}
	for _, size := range in.DiskSizes {
		g.Disks = append(g.Disks, int(size))
	}
	return g
}

// nameCache remembers which instance a server is, so that one instance is read and not all. It is only a hint: the tag is looked at.
type nameCache struct {
	mu    sync.Mutex
	names map[string]string
}

func (n *nameCache) get(id string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[id]
}

func (n *nameCache) replace(all []*instance) {
	names := make(map[string]string, len(all))
	for _, in := range all {
		if id := in.server(); id != "" {
			names[id] = in.Name
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names = names
}

// maxInstances bounds how many instances of a cluster are read.
const maxInstances = 20_000

// instanceList is the instances of a cluster, decoded one after the other: an instance needs more memory than its shortest text, {}.
type instanceList []*instance

// UnmarshalJSON is json.Unmarshaler's.
func (l *instanceList) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	from := json.NewDecoder(bytes.NewReader(text))
	if open, err := from.Token(); err != nil || open != json.Delim('[') {
		return problem.Invalidf("it is no list of instances")
	}
	for from.More() {
		if len(*l) == maxInstances {
			return problem.Invalidf("it has more than %d instances", maxInstances)
		}
		var in *instance
		if err := from.Decode(&in); err != nil {
			return err
		}
		*l = append(*l, in)
	}
	return nil
}

// instances reads all by one call.
func (c *Client) instances(ctx context.Context) ([]*instance, error) {
	var list instanceList
	if err := c.get(ctx, maxBulk, &list, url.Values{"bulk": {"1"}}, "instances"); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc([]*instance(list), func(in *instance) bool { return in == nil || in.Name == "" })
	c.names.replace(all)
	return all, nil
}

// instance reads one by its name; problem.NotFound if there is none.
func (c *Client) instance(ctx context.Context, name string) (*instance, error) {
	in := &instance{}
	err := c.get(ctx, maxOne, in, nil, "instances", name)
	if problem.Is(err, problem.NotFound) {
		return nil, problem.NotFoundf("the cluster of %s has no instance %s", c.base.Host, sanitizeForeignText(name))
	}
	if err != nil {
		return nil, err
	}
	return in, nil
}

// ours finds the instance that is marked as a server, or has this UUID itself; problem.NotFound if there is none.
func (c *Client) ours(ctx context.Context, id string) (*instance, error) {
	if name := c.names.get(id); name != "" {
		if in, err := c.instance(ctx, name); err == nil && in.server() == id || err != nil && !problem.Is(err, problem.NotFound) {
			return in, err
		}
	}
	all, err := c.instances(ctx)
	if err != nil {
		return nil, err
	}
	for _, in := range all {
		if in.server() == id {
			return in, nil
		}
	}
	return nil, problem.NotFoundf("the cluster of %s has no instance of server %s", c.base.Host, id)
}

// tag adds or takes away tags of an instance.
func (c *Client) tag(ctx context.Context, method, name string, tags ...string) error {
	return c.do(ctx, method, nil, url.Values{"tag": tags}, "instances", name, "tags")
}

// Adopt marks the instance of this name as the server, and tells it as it is then. Of two that adopt it at the same time one
// wins at most: tags have no compare-and-swap, so each looks again at what it did.
func (c *Client) Adopt(ctx context.Context, name, serverID string) (*hypervisor.ClusterGuest, error) {
	in, err := c.instance(ctx, name)
	if err != nil {
		return nil, err
	}
	if owner := in.server(); owner != "" && owner != serverID {
		return nil, problem.Conflictf("adopt instance %s: it is server %s already", in.Name, owner)
	}
	if in.server() == "" {
		if err := c.tag(ctx, http.MethodPut, in.Name, tagServer+serverID, tagEpoch+"1"); err != nil {
			return nil, problem.New(problem.KindOf(err), "mark instance %s: %w", in.Name, err)
		}
		if in, err = c.instance(ctx, in.Name); err != nil {
			return nil, err
		}
	}
	if owners := in.owners(); len(owners) != 1 || owners[0] != serverID {
		if err := c.tag(ctx, http.MethodDelete, in.Name, tagServer+serverID); err != nil { // the epoch is the other one's too
			return nil, err
		}
		return nil, problem.Conflictf("adopt instance %s: it is being adopted by someone else", in.Name)
	}
	g := in.inCluster()
	return &g, nil
}

// Release takes the mark of the server off the instance.
func (c *Client) Release(ctx context.Context, name, serverID string) error {
	in, err := c.instance(ctx, name)
	if err == nil && in.server() == serverID {
		err = c.tag(ctx, http.MethodDelete, in.Name, in.marks()...)
	}
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}
