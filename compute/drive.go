package compute

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"salvor/rescue"
)

// Paths on a config drive, as cloud-init reads them.
const (
	driveMeta    = "openstack/latest/meta_data.json"
	driveUser    = "openstack/latest/user_data"
	driveNetwork = "openstack/latest/network_data.json"
	driveVendor  = "openstack/latest/vendor_data.json"
)

// ConfigDrive makes the files of a server's config drive. What it says of the network holds for life.
func ConfigDrive(srv *Server, networks map[string]*Network, hash string) (map[string][]byte, error) {
	files, err := driveFiles(srv, networks, srv.ID, []string{srv.PublicKey})
	if err != nil {
		return nil, err
	}
	if !srv.UserData.Empty() {
		data, err := base64.StdEncoding.DecodeString(srv.UserData.Reveal())
		if err != nil {
			return nil, fmt.Errorf("user data of server %s: %w", srv.ID, err)
		}
		files[driveUser] = data
	}
	if hash != "" {
		vendor, err := json.Marshal(map[string]string{"cloud-init": cloudConfig(rescue.Credential{}, hash)})
		if err != nil {
			return nil, err
		}
		files[driveVendor] = vendor
	}
	return files, nil
}

// RescueDrive makes the files of a rescue system's config drive: an instance of its own, or cloud-init would not look at it again.
func RescueDrive(srv *Server, networks map[string]*Network, c rescue.Credential) (map[string][]byte, error) {
	id := fmt.Sprintf("%s-rescue-%d", srv.ID, srv.Rescue.StartedAt.UnixMicro())
	files, err := driveFiles(srv, networks, id, c.Keys)
	if err != nil {
		return nil, err
	}
	files[driveUser] = []byte(cloudConfig(c, c.Hash.Reveal()))
	return files, nil
}

// cloudConfig is cloud-init's document that lets root in with a password, by its hash, and by keys.
func cloudConfig(c rescue.Credential, hash string) string {
	var b strings.Builder
	b.WriteString("#cloud-config\ndisable_root: false\n")
	if hash != "" {
		// JSON strings are YAML strings.
		fmt.Fprintf(&b, "ssh_pwauth: true\npassword: %s\nchpasswd:\n  expire: false\n  users:\n  - {name: root, password: %s}\n", quoteJSON(hash), quoteJSON(hash))
	}
	if len(c.Keys) > 0 {
		b.WriteString("ssh_authorized_keys:\n")
		for _, k := range c.Keys {
			fmt.Fprintf(&b, "- %s\n", quoteJSON(k))
		}
	}
	return b.String()
}

func quoteJSON(s string) string {
	b, _ := json.Marshal(s) // a string has always a form
	return string(b)
}

func driveFiles(srv *Server, networks map[string]*Network, instance string, keys []string) (map[string][]byte, error) {
	meta := map[string]any{
		"uuid": instance, "name": srv.Name, "hostname": sanitizeHostname(srv.Name), "launch_index": 0, "availability_zone": srv.Zone,
		"meta": srv.Metadata, "project_id": srv.Project,
	}
	public := map[string]string{}
	for i, k := range keys {
		if k = strings.TrimSpace(k); k != "" {
			public[fmt.Sprintf("key-%d", i)] = k
		}
	}
	if len(public) > 0 {
		meta["public_keys"] = public
	}
	files := map[string][]byte{}
	for name, v := range map[string]any{driveMeta: meta, driveNetwork: networkData(srv, networks)} {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		files[name] = b
	}
	return files, nil
}

// sanitizeHostname makes a name that a system takes of one that users wrote.
func sanitizeHostname(name string) string {
	out := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == ' ', r == '_':
			return '-'
		}
		return -1
	}, name)
	out = strings.Trim(out[:min(len(out), 63)], "-.")
	if out == "" {
		return "server"
	}
	return out
}

// networkData tells a guest its links, addresses and routes.
func networkData(srv *Server, networks map[string]*Network) map[string]any {
	links, nets, services := []any{}, []any{}, []any{}
	seen := map[string]bool{}
	for i, nic := range srv.NICs {
		link := fmt.Sprintf("tap%d", i)
		n := networks[nic.NetworkID]
		l := map[string]any{"id": link, "type": "phy", "ethernet_mac_address": nic.MAC, "vif_id": nic.ID}
		if n != nil && n.MTU > 0 {
			l["mtu"] = n.MTU
		}
		links = append(links, l)
		if n == nil || n.CIDR == "" {
			nets = append(nets, map[string]any{"id": fmt.Sprintf("network%d", i), "type": "ipv4_dhcp", "link": link, "network_id": nic.NetworkID})
			continue
		}
		for _, address := range nic.Addresses {
			nets = append(nets, buildNetworkEntry(n, link, address, len(nets), i == 0))
		}
		for _, dns := range n.DNS {
			if !seen[dns] {
				seen[dns] = true
				services = append(services, map[string]any{"type": "dns", "address": dns})
			}
		}
	}
	return map[string]any{"links": links, "networks": nets, "services": services}
}

// buildNetworkEntry tells of one address; only the first interface has the default route.
func buildNetworkEntry(n *Network, link, address string, index int, first bool) map[string]any {
	kind, everything, mask := "ipv4", "0.0.0.0", ""
	if p, err := netip.ParsePrefix(n.CIDR); err == nil {
		mask = formatNetmask(p)
		if p.Addr().Is6() {
			kind, everything = "ipv6", "::"
		}
	}
	routes := []any{}
	if n.Gateway != "" && first {
		routes = append(routes, map[string]any{"network": everything, "netmask": everything, "gateway": n.Gateway})
	}
	return map[string]any{"id": fmt.Sprintf("network%d", index), "type": kind, "link": link, "ip_address": address,
		"netmask": mask, "network_id": n.ID, "routes": routes}
}

// formatNetmask writes the length of a prefix as an address.
func formatNetmask(p netip.Prefix) string {
	b := p.Addr().AsSlice()
	for i := range b {
		b[i] = ^byte(0xff >> min(8, max(0, p.Bits()-8*i)))
	}
	a, _ := netip.AddrFromSlice(b) // 4 or 16 bytes, as they came
	return a.String()
}
