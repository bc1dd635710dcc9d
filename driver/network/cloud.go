package network

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"salvor/driver"
	"salvor/metal"
	"salvor/openstack"
	"salvor/problem"
	"salvor/record"
)

// Cloud asks Neutron.
type Cloud struct {
	neutron *openstack.Client

	mu    sync.Mutex
	names map[string]string // networks already found, by what they are called
}

// NewCloud makes what asks Neutron; nothing is asked yet.
func NewCloud(neutron *openstack.Client) *Cloud {
	return &Cloud{neutron: neutron, names: map[string]string{}}
}

// service gives the client, logged in.
func (c *Cloud) service(ctx context.Context) (*gophercloud.ServiceClient, error) {
	if err := driver.CheckLease(ctx); err != nil {
		return nil, err
	}
	return c.neutron.Service(ctx)
}

// vif is a Neutron port with its binding.
type vif struct {
	ports.Port
	portsbinding.PortsBindingExt
}

var errNoNetwork = errors.New("Neutron has no network")

// network gives the UUID of a network that is called by its UUID or name.
func (c *Cloud) network(ctx context.Context, ident string) (string, error) {
	c.mu.Lock()
	id, ok := c.names[ident]
	c.mu.Unlock()
	if ok {
		return id, nil
	}
	client, err := c.service(ctx)
	if err != nil {
		return "", err
	}
	opts := networks.ListOpts{Name: ident}
	if record.IsUUID(ident) {
		opts = networks.ListOpts{ID: ident}
	}
	pages, err := networks.List(client, opts).AllPages(ctx)
	if err != nil {
		return "", c.neutron.Classify(err, "look for network "+ident)
	}
	found, err := networks.ExtractNetworks(pages)
	switch {
	case err != nil:
		return "", c.neutron.Classify(err, "look for network "+ident)
	case len(found) == 0:
		return "", problem.Invalidf("%w %q that salvor's user may see", errNoNetwork, ident)
	case len(found) > 1:
		return "", problem.Invalidf("Neutron has %d networks called %q: name one by its UUID", len(found), ident)
	}
	c.mu.Lock()
	if record.IsUUID(ident) { // a name may come to mean another network
		c.names[ident] = found[0].ID
	}
	c.mu.Unlock()
	return found[0].ID, nil
}

func (c *Cloud) list(ctx context.Context, opts ports.ListOpts) ([]vif, error) {
	client, err := c.service(ctx)
	if err != nil {
		return nil, err
	}
	pages, err := ports.List(client, opts).AllPages(ctx)
	if err != nil {
		return nil, c.neutron.Classify(err, "list the node's ports")
	}
	var out []vif
	err = ports.ExtractPortsInto(pages, &out)
	return out, c.neutron.Classify(err, "list the node's ports")
}

func (c *Cloud) get(ctx context.Context, id string) (vif, error) {
	client, err := c.service(ctx)
	if err != nil {
		return vif{}, err
	}
	var v vif
	err = ports.Get(ctx, client, id).ExtractInto(&v)
	return v, c.neutron.Classify(err, "read port "+id)
}

// create makes a port for a NIC, bound to it.
func (c *Cloud) create(ctx context.Context, n *metal.Node, p *metal.Port, network string, groups []string) (vif, error) {
	client, err := c.service(ctx)
	if err != nil {
		return vif{}, err
	}
	up := true
	opts := ports.CreateOpts{NetworkID: network, AdminStateUp: &up, MACAddress: p.Address, DeviceID: n.ID, DeviceOwner: owner}
	if c.neutron.Anonymous() {
		opts.ProjectID = c.neutron.ProjectName() // which only a login would tell
	}
	if len(groups) > 0 {
		opts.SecurityGroups = &groups
	}
	var v vif
	err = ports.Create(ctx, client, portsbinding.CreateOptsExt{CreateOptsBuilder: opts, HostID: n.ID, VNICType: "baremetal", Profile: buildBindingProfile(p)}).ExtractInto(&v)
	return v, c.neutron.Classify(err, "create a port for the NIC "+p.Address)
}

// bind gives a port to a NIC. One that is bound elsewhere is freed first, for a bound port keeps its MAC.
func (c *Cloud) bind(ctx context.Context, v vif, n *metal.Node, p *metal.Port) (vif, error) {
	if v.HostID != "" && strings.ToLower(v.MACAddress) != p.Address {
		if err := c.unbind(ctx, v.ID); err != nil {
			return v, err
		}
	}
	client, err := c.service(ctx)
	if err != nil {
		return v, err
	}
	opts := ports.UpdateOpts{}
	if strings.ToLower(v.MACAddress) != p.Address {
		opts.MACAddress = &p.Address
	}
	host := n.ID
	var out vif
	err = ports.Update(ctx, client, v.ID, portsbinding.UpdateOptsExt{UpdateOptsBuilder: opts, HostID: &host, VNICType: "baremetal", Profile: buildBindingProfile(p)}).ExtractInto(&out)
	return out, c.neutron.Classify(err, "bind port "+v.ID)
}

func (c *Cloud) unbind(ctx context.Context, id string) error {
	client, err := c.service(ctx)
	if err != nil {
		return err
	}
	nobody := ""
	err = ports.Update(ctx, client, id, portsbinding.UpdateOptsExt{UpdateOptsBuilder: ports.UpdateOpts{}, HostID: &nobody, Profile: map[string]any{}}).Err
	return c.neutron.Classify(err, "unbind port "+id)
}

func (c *Cloud) remove(ctx context.Context, id string) error {
	client, err := c.service(ctx)
	if err != nil {
		return err
	}
	err = ports.Delete(ctx, client, id).ExtractErr()
	if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return nil
	}
	return c.neutron.Classify(err, "delete port "+id)
}

// buildBindingProfile tells the switch's driver where the NIC is plugged in.
func buildBindingProfile(p *metal.Port) map[string]any {
	links := []any{}
	if len(p.LocalLink) > 0 {
		links = append(links, p.LocalLink)
	}
	out := map[string]any{"local_link_information": links}
	if p.PhysicalNetwork != "" {
		out["physical_network"] = p.PhysicalNetwork
	}
	return out
}
