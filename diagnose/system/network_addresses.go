package system

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"salvor/diagnose"
)

// networkData is the part of OpenStack's network_data.json that is compared.
type networkData struct {
	Links []struct {
		ID  string `json:"id"`
		MAC string `json:"ethernet_mac_address"`
	} `json:"links"`
	Networks []struct {
		Link    string `json:"link"`
		Type    string `json:"type"`
		Address string `json:"ip_address"`
		Netmask string `json:"netmask"`
		Routes  []struct {
			Network string `json:"network"`
			Netmask string `json:"netmask"`
			Gateway string `json:"gateway"`
		} `json:"routes"`
	} `json:"networks"`
}

// WantedNetwork is a static network that network_data gives to an interface. MAC is in lower case with colons.
type WantedNetwork struct {
	MAC      string
	Prefix   netip.Prefix
	Gateways []netip.Addr
}

// wantedNetworks reads the static networks of network_data.json.
func wantedNetworks(text json.RawMessage) []WantedNetwork {
	var data networkData
	if len(text) == 0 || len(text) > maxYAML || json.Unmarshal(text, &data) != nil {
		return nil
	}
	var out []WantedNetwork
	for _, network := range data.Networks[:min(len(data.Networks), 256)] {
		prefix, ok := parsePrefix(network.Address, network.Netmask)
		if !ok || strings.Contains(network.Type, "dhcp") {
			continue
		}
		w := WantedNetwork{Prefix: prefix}
		for _, link := range data.Links {
			if link.ID == network.Link {
				w.MAC = normalMAC(link.MAC)
			}
		}
		for _, r := range network.Routes {
			if a, err := netip.ParseAddr(r.Gateway); err == nil && (r.Network == "0.0.0.0" || r.Network == "::") {
				w.Gateways = append(w.Gateways, a)
			}
		}
		out = append(out, w)
	}
	return out
}

func findAddresses(s *diagnose.System, n *network, c coverage) []diagnose.Finding {
	wanted := wantedNetworks(s.NetworkData)
	var networks []netip.Prefix
	for _, m := range n.managers {
		for _, l := range m.links {
			networks = append(networks, l.addresses...)
		}
	}
	var out []diagnose.Finding
	for _, m := range n.managers {
		if !m.enabled || m.partial {
			continue
		}
		for i := range m.links {
			l := &m.links[i]
			if f := unreachableGateway(&m, l, networks, wanted); f != nil {
				out = append(out, *f)
			} else if f := differingAddress(&m, l, c, wanted); f != nil {
				out = append(out, *f)
			}
		}
	}
	return out
}

// unreachableGateway is a finding where a static address has a gateway outside of all networks of the machine.
func unreachableGateway(m *networkManager, l *networkLink, networks []netip.Prefix, wanted []WantedNetwork) *diagnose.Finding {
	if !l.active || l.dhcp || len(l.addresses) == 0 {
		return nil
	}
	for _, g := range l.gateways {
		if g.onLink || g.address.IsLinkLocalUnicast() || slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Masked().Contains(g.address) }) {
			continue
		}
		if slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == g.address.Is4() && p.IsSingleIP() }) {
			continue // hosters route to single addresses
		}
		line := g.line
		if line == 0 {
			line = l.line
		}
		f := &diagnose.Finding{
			ID: "network-gateway-unreachable", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.7,
			Title:    fmt.Sprintf("The gateway %s in %s lies in no network of %s.", g.address, place(l.file, line), firstText(l.name, l.mac)),
			Evidence: []diagnose.Evidence{fileEvidence(l.file, line, "the gateway is "+g.address.String())},
			ByHand:   "Write a gateway that lies in the network of the interface's address.",
		}
		for _, p := range l.addresses[:min(len(l.addresses), 4)] {
			f.Evidence = append(f.Evidence, fileEvidence(l.file, l.line, "the interface has the address "+p.String()))
		}
		for _, w := range wanted {
			for _, gateway := range w.Gateways {
				if gateway.Is4() == g.address.Is4() && gateway != g.address && slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return p.Masked().Contains(gateway) }) {
					f.Confidence = 0.95
					f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: diagnose.FromRecord, Text: "network_data says that the gateway is " + gateway.String()})
					f.Repair = repairFiles("Write the gateway "+gateway.String()+" of network_data.", l.file)
				}
			}
		}
		return f
	}
	return nil
}

// differingAddress is a finding where the system has a static address in another network than network_data gives to the interface.
func differingAddress(m *networkManager, l *networkLink, c coverage, wanted []WantedNetwork) *diagnose.Finding {
	if !l.active || l.dhcp || len(l.addresses) == 0 || l.unclear {
		return nil
	}
	for mac, names := range c.names {
		if l.virtual || !l.matches(mac, names) {
			continue
		}
		var mine []WantedNetwork
		for _, w := range wanted {
			if w.MAC == mac {
				mine = append(mine, w)
			}
		}
		for _, w := range mine {
			same := slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return p.Addr() == w.Prefix.Addr() })
			family := slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == w.Prefix.Addr().Is4() })
			if same || !family {
				return nil
			}
		}
		if len(mine) == 0 {
			return nil
		}
		w := mine[0]
		f := &diagnose.Finding{
			ID: "network-address-differs", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.85,
			Title: fmt.Sprintf("The file %s gives %s the address %s, and network_data says %s.", place(l.file, l.line), firstText(l.name, l.mac), l.addresses[0], w.Prefix),
			Evidence: []diagnose.Evidence{
				fileEvidence(l.file, l.line, "the address is "+l.addresses[0].String()),
				{Kind: diagnose.FromRecord, Text: "network_data gives " + w.Prefix.String() + " to the interface " + mac},
			},
			Repair: repairFiles("Write the address "+w.Prefix.String()+" and the gateway of network_data.", l.file),
			ByHand: "Write the address of network_data, or change the port if the other one is meant.",
		}
		if slices.ContainsFunc(l.addresses, func(p netip.Prefix) bool { return w.Prefix.Masked().Contains(p.Addr()) }) {
			f.Severity, f.Confidence = diagnose.Info, 0.6 // the machine can be reached, by another address
		}
		return f
	}
	return nil
}
