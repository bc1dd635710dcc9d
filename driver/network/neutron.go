package network

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// TenantVIFKey is the key of a port's internal_info that names the tenant's Neutron
// port, as attaching a VIF writes it; VIFKey in extra is the older place.
const TenantVIFKey = "tenant_vif_port_id"

// owner marks the Neutron ports that a network interface makes for a machine.
const owner = "baremetal:none"

// Networks are the Neutron networks, by UUID or name, that machines are on while they
// are worked on. driver_info's cleaning_network and its like stand over them.
type Networks struct {
	Of             map[driver.Net]string
	SecurityGroups map[driver.Net][]string
}

// Key is the key of driver_info that names a network of its own for the node.
func Key(net driver.Net) string { return string(net) + "_network" }

// Neutron binds a machine's ports to networks of OpenStack Networking: to a network of
// the operator's while the machine is cleaned, deployed, inspected or rescued, to the
// tenant's ports while it is used. What it has made is found again by network and
// node, so nothing is kept here.
type Neutron struct {
	cloud    *Cloud
	networks Networks
	// flat machines stay on the tenants' network when they are deployed or rescued: only the binding comes and goes.
	flat bool
}

var _ driver.Network = (*Neutron)(nil)

// NewNeutron makes the interface that moves machines between networks.
func NewNeutron(c *Cloud, n Networks) *Neutron { return &Neutron{cloud: c, networks: n} }

// NewFlat makes the interface of machines whose NICs are all on one flat network: only
// cleaning and inspection have a network of their own.
func NewFlat(c *Cloud, n Networks) *Neutron { return &Neutron{cloud: c, networks: n, flat: true} }

// ours tells whether being on a network means a Neutron port of our own making.
func (d *Neutron) ours(net driver.Net) bool {
	if net == driver.Tenant {
		return false
	}
	return !d.flat || net == driver.CleaningNet || net == driver.Inspection
}

// network is what the node or the configuration calls a network; empty: nobody named one.
func (d *Neutron) network(n *metal.Node, net driver.Net) string {
	if own := strings.TrimSpace(n.Info(Key(net))); own != "" {
		return own
	}
	return d.networks.Of[net]
}

// Validate tells what is missing for the network, without asking Neutron.
func (d *Neutron) Validate(n *metal.Node, ports []*metal.Port, net driver.Net) error {
	if !d.ours(net) {
		return nil
	}
	if d.network(n, net) == "" {
		return problem.Invalidf("network of node %s: there is no %s network: set driver_info/%s or [neutron]%s", n.ID, net, Key(net), Key(net))
	}
	if len(pxeEnabledPorts(ports)) == 0 {
		return problem.Invalidf("network of node %s: no port with pxe_enabled, so nothing can be put on the %s network", n.ID, net)
	}
	return nil
}

// Moves tells whether the machine changes networks: a tenant's network is nobody's but his.
func (d *Neutron) Moves(n *metal.Node, ports []*metal.Port, from, to driver.Net) bool {
	if d.ours(from) != d.ours(to) {
		return true
	}
	return d.ours(from) && d.network(n, from) != d.network(n, to)
}

// Attach makes the ports of the network, or binds those of the tenant.
func (d *Neutron) Attach(ctx context.Context, n *metal.Node, on []*metal.Port, net driver.Net) error {
	if err := d.Validate(n, on, net); err != nil {
		return err
	}
	var err error
	if d.ours(net) {
		err = d.join(ctx, n, on, net)
	} else {
		err = d.bindTenant(ctx, n, on, net)
	}
	return networkError(err, "attach to", net, n)
}

// Detach removes the ports of the network, or unbinds those of the tenant.
func (d *Neutron) Detach(ctx context.Context, n *metal.Node, on []*metal.Port, net driver.Net) error {
	var err error
	switch {
	case !d.ours(net):
		err = d.unbindTenant(ctx, n, on)
	case d.network(n, net) == "": // nothing can be on a network that nobody named
	default:
		err = d.leave(ctx, n, net)
	}
	return networkError(err, "detach from", net, n)
}

var _ driver.NetworkReader = (*Neutron)(nil)

// Networks reads the Neutron ports that are bound to the machine: those that salvor created, and the tenant's.
func (d *Neutron) Networks(ctx context.Context, n *metal.Node, on []*metal.Port) ([]driver.Net, error) {
	there, err := d.cloud.list(ctx, ports.ListOpts{DeviceID: n.ID, DeviceOwner: owner})
	if err != nil {
		return nil, problem.New(problem.KindOf(err), "read the network of node %s: %w", n.ID, err)
	}
	found, err := driver.NetsWhere(func(net driver.Net) (bool, error) {
		if !d.ours(net) {
			if net != driver.Tenant {
				return false, nil
			}
			return d.bindsTenant(ctx, n, on)
		}
		if len(there) == 0 || d.network(n, net) == "" {
			return false, nil
		}
		id, err := d.cloud.network(ctx, d.network(n, net))
		if errors.Is(err, errNoNetwork) {
			return false, nil
		}
		return slices.ContainsFunc(there, func(v vif) bool { return v.NetworkID == id && v.HostID == n.ID }), err
	})
	if err != nil {
		return nil, problem.New(problem.KindOf(err), "read the network of node %s: %w", n.ID, err)
	}
	return found, nil
}

// bindsTenant tells whether a tenant's port is bound to the machine.
func (d *Neutron) bindsTenant(ctx context.Context, n *metal.Node, on []*metal.Port) (bool, error) {
	for _, err := range d.boundVIFs(ctx, n, on) {
		return err == nil, err
	}
	return false, nil
}

// boundVIFs reads the tenants' ports of the machine one by one, and yields the id of each that is bound to it. A VIF that has gone to another
// machine, or that is gone, is left out.
func (d *Neutron) boundVIFs(ctx context.Context, n *metal.Node, on []*metal.Port) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, p := range on {
			id := tenantVIF(p)
			if id == "" {
				continue
			}
			v, err := d.cloud.get(ctx, id)
			if problem.Is(err, problem.NotFound) || err == nil && v.HostID != n.ID {
				continue
			}
			if !yield(id, err) {
				return
			}
		}
	}
}

func networkError(err error, op string, net driver.Net, n *metal.Node) error {
	if err == nil {
		return nil
	}
	return problem.New(problem.KindOf(err), "%s %s network, node %s: %w", op, net, n.ID, err)
}

// pxeEnabledPorts are the ports that a ramdisk may boot from.
func pxeEnabledPorts(all []*metal.Port) []*metal.Port {
	var out []*metal.Port
	for _, p := range all {
		if p.PXEEnabled {
			out = append(out, p)
		}
	}
	return out
}

// join has each bootable NIC on the network by a Neutron port of ours.
func (d *Neutron) join(ctx context.Context, n *metal.Node, on []*metal.Port, net driver.Net) error {
	network, err := d.cloud.network(ctx, d.network(n, net))
	if err != nil {
		return err
	}
	there, err := d.cloud.list(ctx, ports.ListOpts{NetworkID: network, DeviceID: n.ID, DeviceOwner: owner})
	if err != nil {
		return err
	}
	byMAC := map[string]vif{}
	for _, v := range there {
		byMAC[strings.ToLower(v.MACAddress)] = v
	}
	for _, p := range pxeEnabledPorts(on) {
		v, ok := byMAC[p.Address]
		if !ok {
			if v, err = d.cloud.create(ctx, n, p, network, d.networks.SecurityGroups[net]); err != nil {
				return err
			}
		}
		if v.HostID != n.ID {
			if v, err = d.cloud.bind(ctx, v, n, p); err != nil {
				return err
			}
		}
		if err := v.bound(p); err != nil {
			return err
		}
	}
	return nil
}

// leave removes every port of ours from the network.
func (d *Neutron) leave(ctx context.Context, n *metal.Node, net driver.Net) error {
	network, err := d.cloud.network(ctx, d.network(n, net))
	if errors.Is(err, errNoNetwork) {
		return nil // Neutron deletes none that a port is on
	}
	if err != nil {
		return err
	}
	there, err := d.cloud.list(ctx, ports.ListOpts{NetworkID: network, DeviceID: n.ID, DeviceOwner: owner})
	if err != nil {
		return err
	}
	for _, v := range there {
		if err := d.cloud.remove(ctx, v.ID); err != nil {
			return err
		}
	}
	return nil
}

// tenantVIF is the Neutron port that a tenant attached to a NIC; empty: none.
func tenantVIF(p *metal.Port) string {
	for _, from := range []metal.Object{p.InternalInfo, p.Extra} {
		for _, key := range []string{TenantVIFKey, VIFKey} {
			if id, ok := from[key].(string); ok && id != "" {
				return id
			}
		}
	}
	return ""
}

func (d *Neutron) bindTenant(ctx context.Context, n *metal.Node, on []*metal.Port, net driver.Net) error {
	bound := 0
	for _, p := range on {
		id := tenantVIF(p)
		if id == "" {
			continue
		}
		bound++
		v, err := d.cloud.get(ctx, id)
		if err != nil {
			return err
		}
		// Whoever may attach a VIF names any port of the cloud: one in use elsewhere is not taken from there.
		if v.HostID != "" && v.HostID != n.ID {
			return problem.Conflictf("Neutron port %s is bound to another host; detach it there first", id)
		}
		if v.HostID != n.ID || strings.ToLower(v.MACAddress) != p.Address {
			if v, err = d.cloud.bind(ctx, v, n, p); err != nil {
				return err
			}
		}
		if err := v.bound(p); err != nil {
			return err
		}
	}
	if bound == 0 && net == driver.Tenant && !d.flat {
		return problem.Invalidf("no Neutron port is attached to any of its ports: attach one as a VIF (PUT /v1/nodes/%s/vifs)", n.ID)
	}
	return nil
}

// unbindTenant frees what is bound to this node; a VIF that has gone to another machine stays there.
func (d *Neutron) unbindTenant(ctx context.Context, n *metal.Node, on []*metal.Port) error {
	for id, err := range d.boundVIFs(ctx, n, on) {
		if err == nil {
			err = d.cloud.unbind(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bound refuses a port that no switch took.
func (v vif) bound(p *metal.Port) error {
	if v.VIFType != "binding_failed" {
		return nil
	}
	return problem.Unavailablef("Neutron could not bind port %s for the NIC %s: %s", v.ID, p.Address, explainBindingFailure(p))
}

func explainBindingFailure(p *metal.Port) string {
	if p.LocalLink["port_id"] == nil || p.LocalLink["port_id"] == "" {
		return "the port's local_link_connection names no switch port"
	}
	return fmt.Sprintf("no mechanism driver took switch port %.100v; see the log of neutron-server", p.LocalLink["port_id"])
}
