package nova

import (
	"net/http"
	"net/netip"
	"slices"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// networkRoutes are the old endpoints to networks; clients use them where there is no network service.
func (s *apiServer) networkRoutes() []versionedRoute {
	return []versionedRoute{
		{method: "GET", path: "/os-networks", need: reader, do: handlerOf(networkCall.listNetworks)},
		{method: "GET", path: "/os-networks/{network}", need: reader, do: handlerOf(networkCall.getNetwork)},
		{method: "GET", path: "/os-tenant-networks", need: reader, do: handlerOf(networkCall.listTenantNetworks)},
		{method: "GET", path: "/os-tenant-networks/{network}", need: reader, do: handlerOf(networkCall.getTenantNetwork)},
	}
}

// network finds a network by UUID or name among those that who asks may use.
func (c *novaCall) network(ident string) (*compute.Network, error) {
	gone := problem.NotFoundf("Network %s could not be found.", truncateText(ident))
	if ident == "" || len(ident) > maxIdent {
		return nil, gone
	}
	n, err := c.s.Services.Networks.Get(c.R.Context(), ident)
	switch {
	case problem.Is(err, problem.NotFound):
		return nil, gone
	case err != nil:
		return nil, err
	case !c.admin && !n.Shared && n.Project != c.requester.Project:
		return nil, gone
	}
	return n, nil
}

// networks lists those that who asks may use, held to the label and the id of the query.
func (c networkCall) networks() ([]*compute.Network, error) {
	f := compute.NetworkFilter{Project: c.requester.Project, Name: c.Query.Get("label")}
	if c.admin {
		f.Project = ""
	}
	all, err := c.s.Services.Networks.List(c.R.Context(), f, record.Page{})
	if id := c.Query.Get("id"); id != "" {
		all = slices.DeleteFunc(all, func(n *compute.Network) bool { return n.ID != id })
	}
	return all, err
}

// networkFields are those of the old network service; what no network of ours has is null.
var networkFields = []string{
	"bridge_interface", "broadcast", "cidr_v6", "deleted", "deleted_at", "dhcp_server", "dhcp_start", "gateway_v6", "host", "injected",
	"multi_host", "netmask_v6", "priority", "rxtx_base", "vlan", "vpn_private_address", "vpn_public_address", "vpn_public_port", "enable_dhcp", "share_address",
}

func networkView(n *compute.Network) jsonObject {
	o := jsonObject{}
	for _, name := range networkFields {
		o[name] = nil
	}
	o["id"], o["label"], o["project_id"], o["bridge"] = n.ID, n.Name, orNil(n.Project), n.Bridge
	o["cidr"], o["gateway"], o["netmask"] = orNil(n.CIDR), orNil(n.Gateway), nil
	if p, err := netip.ParsePrefix(n.CIDR); err == nil && p.Addr().Is6() {
		o["cidr"], o["gateway"], o["cidr_v6"], o["gateway_v6"] = nil, nil, n.CIDR, orNil(n.Gateway)
	} else if err == nil {
		o["netmask"] = formatNetmask(p.Bits())
	}
	for i, name := range []string{"dns1", "dns2"} {
		if o[name] = nil; i < len(n.DNS) {
			o[name] = n.DNS[i]
		}
	}
	o["mtu"] = nil
	if n.MTU != 0 {
		o["mtu"] = n.MTU
	}
	o["created_at"], o["updated_at"] = timeOrNil(n.CreatedAt), timeOrNil(n.UpdatedAt)
	return o
}

// formatNetmask writes the length of an IPv4 prefix as a mask.
func formatNetmask(bits int) string {
	m := ^uint32(0) << (32 - bits)
	return netip.AddrFrom4([4]byte{byte(m >> 24), byte(m >> 16), byte(m >> 8), byte(m)}).String()
}

func tenantNetworkView(n *compute.Network) jsonObject {
	return jsonObject{"id": n.ID, "label": n.Name, "cidr": orNil(n.CIDR)}
}

func (c networkCall) listNetworks() error       { return c.networkList(networkView) }
func (c networkCall) listTenantNetworks() error { return c.networkList(tenantNetworkView) }
func (c networkCall) getNetwork() error         { return c.oneNetwork(networkView) }
func (c networkCall) getTenantNetwork() error   { return c.oneNetwork(tenantNetworkView) }

func (c networkCall) networkList(view func(*compute.Network) jsonObject) error {
	all, err := c.networks()
	if err != nil {
		return err
	}
	out := []jsonObject{}
	for _, n := range all {
		out = append(out, view(n))
	}
	return c.json(http.StatusOK, jsonObject{"networks": out})
}

func (c networkCall) oneNetwork(view func(*compute.Network) jsonObject) error {
	n, err := c.network(c.Arg("network"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, jsonObject{"network": view(n)})
}
