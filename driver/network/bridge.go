package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// VIFKey is the key of a port's extra that names the tenant's network of this port.
const VIFKey = "vif_port_id"

// Bridges names the Linux bridge of each network. No other bridge is ever touched.
type Bridges map[driver.Net]string

// Warning says where a machine in rescue shares a network with machines that are
// being set up; empty if it does not.
func (b Bridges) Warning() string {
	var with []string
	for _, net := range []driver.Net{driver.Provisioning, driver.CleaningNet} {
		if b[driver.Rescuing] != "" && b[net] == b[driver.Rescuing] {
			with = append(with, string(net))
		}
	}
	if len(with) == 0 {
		return ""
	}
	return fmt.Sprintf("rescuing and %s are one network (%s): a ramdisk that is being rescued, with a tenant's disk and perhaps his programs, shares it with machines that are being set up", strings.Join(with, " and "), b[driver.Rescuing])
}

// Bridge moves a machine by putting its link, the one that a port's
// local_link_connection.port_id names, on the bridge of a network.
type Bridge struct {
	bridges Bridges
	tenants []string // bridges that a port's extra may choose instead of the tenant's
}

var _ driver.Network = (*Bridge)(nil)

// NewBridge makes a Bridge that touches only these bridges. tenants are more bridges
// that tenants may be on; a port chooses one in its extra.
func NewBridge(bridges Bridges, tenants ...string) (*Bridge, error) {
	for net, name := range bridges {
		if name != "" && !linkName(name) {
			return nil, problem.Invalidf("[bridge]%s_network: %q is no name of a Linux bridge", net, driver.Sanitize(name))
		}
	}
	for _, name := range tenants {
		if !linkName(name) {
			return nil, problem.Invalidf("a tenants' bridge: %q is no name of a Linux bridge", driver.Sanitize(name))
		}
	}
	return &Bridge{bridges: maps.Clone(bridges), tenants: tenants}, nil
}

// linkName holds to what the kernel takes as a link's name, and to what no shell or path misreads.
func linkName(name string) bool {
	if name == "" || len(name) > 15 || name[0] == '.' || name[0] == '-' {
		return false
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.@", r)) {
			return false
		}
	}
	return true
}

// bridge is the name of the bridge that a port is on in a network.
func (b *Bridge) bridge(p *metal.Port, net driver.Net) (string, error) {
	name := b.bridges[net]
	if _, text := p.Extra[VIFKey].(string); net == driver.Tenant && p.Extra[VIFKey] != nil && !text {
		return "", problem.Invalidf("port %s: extra.%s must be a string", p.Address, VIFKey)
	}
	if vif := p.VIF(); net == driver.Tenant && vif != "" {
		if vif != name && !slices.Contains(b.tenants, vif) {
			return "", problem.Invalidf("port %s: its VIF, or extra.%s, names %q, which is no bridge for tenants", p.Address, VIFKey, driver.Sanitize(vif))
		}
		name = vif
	}
	if name == "" {
		return "", problem.Invalidf("there is no %s network: set [bridge]%s_network", net, net)
	}
	return name, nil
}

func linkNameOfPort(p *metal.Port) (string, error) {
	name, ok := p.LocalLink["port_id"].(string)
	if !ok || name == "" {
		return "", problem.Invalidf("port %s: its local_link_connection has no port_id to name its link on this host", p.Address)
	}
	if !linkName(name) {
		return "", problem.Invalidf("port %s: local_link_connection.port_id is no name of a link", p.Address)
	}
	return name, nil
}

// Validate tells what is missing for the network.
func (b *Bridge) Validate(n *metal.Node, ports []*metal.Port, net driver.Net) error {
	if len(ports) == 0 {
		return problem.Invalidf("network of node %s: bridge: it has no port", n.ID)
	}
	for _, p := range ports {
		if _, err := linkNameOfPort(p); err != nil {
			return problem.Invalidf("network of node %s: bridge: %w", n.ID, err)
		}
		if _, err := b.bridge(p, net); err != nil {
			return problem.Invalidf("network of node %s: bridge: %w", n.ID, err)
		}
	}
	return nil
}

// Moves tells whether any port changes its bridge.
func (b *Bridge) Moves(_ *metal.Node, ports []*metal.Port, from, to driver.Net) bool {
	return slices.ContainsFunc(ports, func(p *metal.Port) bool {
		was, err1 := b.bridge(p, from)
		is, err2 := b.bridge(p, to)
		return err1 == nil && err2 == nil && was != is
	})
}

// Attach puts each port's link on the network's bridge.
func (b *Bridge) Attach(ctx context.Context, n *metal.Node, ports []*metal.Port, net driver.Net) error {
	return b.each(ctx, n, ports, net, "attach to", b.attach)
}

// Detach takes each port's link off the network's bridge, if it is on it.
func (b *Bridge) Detach(ctx context.Context, n *metal.Node, ports []*metal.Port, net driver.Net) error {
	return b.each(ctx, n, ports, net, "detach from", b.detach)
}

func (b *Bridge) each(ctx context.Context, n *metal.Node, ports []*metal.Port, net driver.Net, op string, fn func(link, bridge string) error) error {
	if err := b.Validate(n, ports, net); err != nil {
		return err
	}
	for _, p := range ports {
		if err := driver.CheckLease(ctx); err != nil {
			return problem.Unavailablef("%s %s network, node %s: %w", op, net, n.ID, err)
		}
		// Validate has read both.
		name, _ := linkNameOfPort(p)
		bridge, _ := b.bridge(p, net)
		if err := fn(name, bridge); err != nil {
			return problem.New(problem.KindOf(err), "%s %s network, node %s: link %s, bridge %s: %w", op, net, n.ID, name, bridge, err)
		}
	}
	return nil
}

var _ driver.NetworkReader = (*Bridge)(nil)

// Networks reads the bridges that the ports' links are on. A link that does not exist is on none.
func (b *Bridge) Networks(ctx context.Context, n *metal.Node, ports []*metal.Port) ([]driver.Net, error) {
	if err := driver.CheckLease(ctx); err != nil {
		return nil, err
	}
	on := make([]string, len(ports))
	for i, p := range ports {
		name, err := linkNameOfPort(p)
		if err == nil {
			on[i], err = masterOf(name)
		}
		if err != nil {
			return nil, problem.New(problem.KindOf(err), "read the network of node %s: bridge: %w", n.ID, err)
		}
	}
	return driver.NetsWhere(func(net driver.Net) (bool, error) {
		for i, p := range ports {
			if bridge, err := b.bridge(p, net); err == nil && bridge == on[i] {
				return true, nil
			}
		}
		return false, nil
	})
}

// masterOf names the bridge that a link is on; empty: the link is on none, or does not exist.
func masterOf(name string) (string, error) {
	port, err := findLink(name)
	if isLinkNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", classifyNetlinkError(err)
	}
	if port.Attrs().MasterIndex == 0 {
		return "", nil
	}
	master, err := netlink.LinkByIndex(port.Attrs().MasterIndex)
	if isLinkNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", classifyNetlinkError(err)
	}
	return master.Attrs().Name, nil
}

func (b *Bridge) attach(name, bridge string) error {
	master, err := findLink(bridge)
	if isLinkNotFound(err) {
		return problem.Invalidf("there is no such bridge on this host")
	}
	if err != nil {
		return classifyNetlinkError(err)
	}
	if master.Type() != "bridge" {
		return problem.Invalidf("%s is a %s, not a bridge", bridge, master.Type())
	}
	port, err := findLink(name)
	if isLinkNotFound(err) {
		return problem.Unavailablef("there is no such link on this host now")
	}
	if err != nil {
		return classifyNetlinkError(err)
	}
	if port.Attrs().MasterIndex != master.Attrs().Index {
		if err := b.free(port); err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(port, master); err != nil {
			return classifyNetlinkError(err)
		}
	}
	if err := netlink.LinkSetUp(port); err != nil {
		return classifyNetlinkError(err)
	}
	now, err := findLink(name)
	if err != nil {
		return classifyNetlinkError(err)
	}
	if now.Attrs().MasterIndex != master.Attrs().Index {
		return problem.Unavailablef("the link was put on the bridge, but is not on it")
	}
	return nil
}

// free makes sure that a link is a machine's, for its name came from a record: a NIC
// that the host itself lives by, and a link on a bridge of somebody else's, are not.
func (b *Bridge) free(port netlink.Link) error {
	if kind := port.Type(); kind == "bridge" || port.Attrs().Name == "lo" {
		return problem.Invalidf("the link is the host's own (%s)", kind)
	}
	addresses, err := netlink.AddrList(port, netlink.FAMILY_ALL)
	if err != nil {
		return classifyNetlinkError(err)
	}
	for _, a := range addresses {
		if a.Scope != unix.RT_SCOPE_LINK {
			return problem.Invalidf("the host itself has an address on the link, so it is no machine's")
		}
	}
	if port.Attrs().MasterIndex == 0 {
		return nil
	}
	master, err := netlink.LinkByIndex(port.Attrs().MasterIndex)
	if isLinkNotFound(err) {
		return nil
	}
	if err != nil {
		return classifyNetlinkError(err)
	}
	if !b.knows(master.Attrs().Name) {
		return problem.Conflictf("the link is on %s, which is not ours to take it from", master.Attrs().Name)
	}
	return nil
}

func (b *Bridge) knows(bridge string) bool {
	if slices.Contains(b.tenants, bridge) {
		return true
	}
	for _, name := range b.bridges {
		if name == bridge {
			return true
		}
	}
	return false
}

func (b *Bridge) detach(name, bridge string) error {
	port, err := findLink(name)
	if isLinkNotFound(err) {
		return nil
	}
	if err != nil {
		return classifyNetlinkError(err)
	}
	master, err := findLink(bridge)
	if isLinkNotFound(err) {
		return nil
	}
	if err != nil {
		return classifyNetlinkError(err)
	}
	if port.Attrs().MasterIndex != master.Attrs().Index {
		return nil
	}
	if err := netlink.LinkSetNoMaster(port); err != nil {
		return classifyNetlinkError(err)
	}
	return nil
}

// findLink reads a link anew.
func findLink(name string) (netlink.Link, error) { return netlink.LinkByName(name) }

func isLinkNotFound(err error) bool {
	var none netlink.LinkNotFoundError
	return errors.As(err, &none)
}

func classifyNetlinkError(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM) {
		return problem.Invalidf("salvor may not change links here; it needs CAP_NET_ADMIN: %w", err)
	}
	return problem.Unavailablef("netlink: %w", err)
}
