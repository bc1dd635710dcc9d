package system

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
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
	if len(text) == 0 || len(text) > config.MaxYAML || json.Unmarshal(text, &data) != nil {
		return nil
	}
	var out []WantedNetwork
	for _, network := range data.Networks[:min(len(data.Networks), 256)] {
		prefix, ok := config.ParsePrefix(network.Address, network.Netmask)
		if !ok || strings.Contains(network.Type, "dhcp") {
			continue
		}
		w := WantedNetwork{Prefix: prefix}
		for _, link := range data.Links {
			if link.ID == network.Link {
				w.MAC = config.NormalMAC(link.MAC)
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

func findAddresses(s *diagnose.System, n *config.Network, c coverage) []diagnose.Finding {
	wanted := wantedNetworks(s.NetworkData)
	var networks []netip.Prefix
	for _, m := range n.Managers {
		for _, l := range m.Links {
			networks = append(networks, l.Addresses...)
		}
	}
	var out []diagnose.Finding
	for _, m := range n.Managers {
		if !m.Enabled || m.Partial {
			continue
		}
		for i := range m.Links {
			l := &m.Links[i]
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
func unreachableGateway(m *config.NetworkManager, l *config.NetworkLink, networks []netip.Prefix, wanted []WantedNetwork) *diagnose.Finding {
	if !l.Active || l.DHCP || len(l.Addresses) == 0 {
		return nil
	}
	for _, g := range l.Gateways {
		if slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == g.Address }) {
			line := config.FirstNumber(g.Line, l.Line)
			return &diagnose.Finding{
				ID: "network-gateway-unreachable", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.8,
				Title:    fmt.Sprintf("The gateway %s in %s is the address of %s itself.", g.Address, place(l.File, line), config.FirstText(l.Name, l.MAC)),
				Evidence: []diagnose.Evidence{config.FileEvidence(l.File, line, "the gateway is "+g.Address.String())},
				ByHand:   "Write the address of the router in the place of the machine's own.",
			}
		}
		if g.OnLink || g.Address.IsLinkLocalUnicast() || slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Masked().Contains(g.Address) }) {
			continue
		}
		if slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == g.Address.Is4() && p.IsSingleIP() }) {
			continue // hosters route to single addresses
		}
		line := config.FirstNumber(g.Line, l.Line)
		f := &diagnose.Finding{
			ID: "network-gateway-unreachable", Stage: diagnose.Network, Severity: diagnose.BlocksAccess, Confidence: 0.7,
			Title:    fmt.Sprintf("The gateway %s in %s lies in no network of %s.", g.Address, place(l.File, line), config.FirstText(l.Name, l.MAC)),
			Evidence: []diagnose.Evidence{config.FileEvidence(l.File, line, "the gateway is "+g.Address.String())},
			ByHand:   "Write a gateway that lies in the network of the interface's address.",
		}
		for _, p := range l.Addresses[:min(len(l.Addresses), 4)] {
			f.Evidence = append(f.Evidence, config.FileEvidence(l.File, l.Line, "the interface has the address "+p.String()))
		}
		for _, w := range wanted {
			for _, gateway := range w.Gateways {
				if gateway.Is4() == g.Address.Is4() && gateway != g.Address && slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Masked().Contains(gateway) }) {
					f.Confidence = 0.95
					f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: diagnose.FromRecord, Text: "network_data says that the gateway is " + gateway.String()})
					f.Repair = repairFiles("Write the gateway "+gateway.String()+" of network_data.", l.File)
				}
			}
		}
		return f
	}
	return nil
}

// differingAddress is a finding where the system has a static address in another network than network_data gives to the interface.
func differingAddress(m *config.NetworkManager, l *config.NetworkLink, c coverage, wanted []WantedNetwork) *diagnose.Finding {
	if !l.Active || l.DHCP || len(l.Addresses) == 0 || l.Unclear {
		return nil
	}
	for mac, names := range c.names {
		if l.Virtual || !l.Matches(mac, names) {
			continue
		}
		var mine []WantedNetwork
		for _, w := range wanted {
			if w.MAC == mac {
				mine = append(mine, w)
			}
		}
		for _, w := range mine {
			same := slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == w.Prefix.Addr() })
			family := slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == w.Prefix.Addr().Is4() })
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
			Title: fmt.Sprintf("The file %s gives %s the address %s, and network_data says %s.", place(l.File, l.Line), config.FirstText(l.Name, l.MAC), l.Addresses[0], w.Prefix),
			Evidence: []diagnose.Evidence{
				config.FileEvidence(l.File, l.Line, "the address is "+l.Addresses[0].String()),
				{Kind: diagnose.FromRecord, Text: "network_data gives " + w.Prefix.String() + " to the interface " + mac},
			},
			Repair: mayLose(repairFiles("Write the address "+w.Prefix.String()+" and the gateway of network_data.", l.File),
				fmt.Sprintf("The machine no longer answers at %s. If someone moved it on purpose, another machine may have %s now.", l.Addresses[0].Addr(), w.Prefix.Addr())),
			ByHand: "Write the address of network_data, or change the port if the other one is meant.",
		}
		if slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return w.Prefix.Masked().Contains(p.Addr()) }) {
			f.Severity, f.Confidence = diagnose.Info, 0.6 // the machine can be reached, by another address
		}
		return f
	}
	return nil
}
