package machine

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"salvor/diagnose"
)

// maxNetworkFindings bounds the findings about one network_data.
const maxNetworkFindings = 20

// networkLinks is what is read of a network_data.json.
type networkLinks struct {
	Links []struct {
		ID   string `json:"id"`
		Type string `json:"type"`
		MAC  string `json:"ethernet_mac_address"`
	} `json:"links"`
	Networks []struct {
		ID      string `json:"id"`
		Link    string `json:"link"`
		Address string `json:"ip_address"`
		Netmask string `json:"netmask"`
		Gateway string `json:"gateway"`
		Routes  []struct {
			Network string `json:"network"`
			Netmask string `json:"netmask"`
			Gateway string `json:"gateway"`
		} `json:"routes"`
	} `json:"networks"`
}

// networkData checks the network_data that the node's own system was given: each part by itself, and its links against the ports.
func (s *State) networkData() []diagnose.Finding {
	var data networkLinks
	if len(s.NetworkData) == 0 || json.Unmarshal(s.NetworkData, &data) != nil {
		return nil
	}
	out := slices.Concat(s.unknownMACs(&data), unknownLinks(&data), unreachableGateways(&data))
	return out[:min(len(out), maxNetworkFindings)]
}

// unknownMACs finds links for NICs which the machine does not have: its own system then configures none of them.
func (s *State) unknownMACs(data *networkLinks) []diagnose.Finding {
	if len(s.Ports) == 0 {
		return nil
	}
	var out []diagnose.Finding
	for _, l := range data.Links {
		if l.MAC == "" || l.Type == "vlan" || l.Type == "bond" || slices.ContainsFunc(s.Ports, func(p string) bool { return strings.EqualFold(p, l.MAC) }) {
			continue
		}
		out = append(out, networkFinding("network-data-unknown-mac", 0.6,
			fmt.Sprintf("The node's network_data has a link for the MAC address %s, which none of the node's ports has.", diagnose.Excerpt(l.MAC)),
			"Correct network_data or the ports of the node; where a NIC was replaced, both.",
			"link "+l.ID+": "+l.MAC, "ports: "+strings.Join(s.Ports, ", ")))
	}
	return out
}

func networkFinding(id string, confidence float64, title, hand string, evidence ...string) diagnose.Finding {
	f := diagnose.Finding{ID: id, Stage: diagnose.Network, Severity: diagnose.Degrades, Confidence: confidence, Title: title, ByHand: hand}
	for _, text := range evidence {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: diagnose.FromRecord, Text: diagnose.Excerpt(text)})
	}
	return f
}

// unknownLinks finds networks on links that network_data does not have.
func unknownLinks(data *networkLinks) []diagnose.Finding {
	var out []diagnose.Finding
	known := map[string]bool{}
	for _, l := range data.Links {
		known[l.ID] = true
	}
	for _, n := range data.Networks {
		if n.Link != "" && !known[n.Link] {
			out = append(out, networkFinding("network-data-unknown-link", 0.9,
				fmt.Sprintf("The network %s of the node's network_data is on the link %s, which it does not have.", diagnose.Excerpt(n.ID), diagnose.Excerpt(n.Link)),
				"Correct network_data, then have the system read its config drive again.", "network "+n.ID+": link "+n.Link))
		}
	}
	return out
}

// unreachableGateways finds gateways of a default route outside of the network that they are of. IPv6 has link-local ones, which are right.
func unreachableGateways(data *networkLinks) []diagnose.Finding {
	var out []diagnose.Finding
	for _, n := range data.Networks {
		subnet, ok := subnetOf(n.Address, n.Netmask)
		if !ok {
			continue
		}
		gateways := []string{n.Gateway}
		for _, r := range n.Routes {
			if r.Network == "0.0.0.0" || r.Network == "::" {
				gateways = append(gateways, r.Gateway)
			}
		}
		for _, text := range gateways {
			gateway, err := netip.ParseAddr(text)
			// A host route is how providers reach a gateway outside of a network of one address.
			if err != nil || gateway.IsLinkLocalUnicast() || gateway.Is4() != subnet.Addr().Is4() || subnet.Contains(gateway) || subnet.IsSingleIP() {
				continue
			}
			out = append(out, networkFinding("network-data-gateway-outside", 0.8,
				fmt.Sprintf("The gateway %s of the node's network_data is not in its network %s.", gateway, subnet),
				"Correct the gateway or the netmask in network_data.", fmt.Sprintf("network %s: %s, gateway %s", n.ID, subnet, gateway)))
		}
	}
	return out
}

// subnetOf reads an address with its netmask: 192.0.2.7 and 255.255.255.0, or 192.0.2.7/24.
func subnetOf(address, mask string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(address); err == nil {
		return p.Masked(), true
	}
	a, err := netip.ParseAddr(address)
	m, errMask := netip.ParseAddr(mask)
	if err != nil || errMask != nil || a.Is4() != m.Is4() {
		return netip.Prefix{}, false
	}
	bits, ended := 0, false
	for _, b := range m.AsSlice() {
		for at := 7; at >= 0; at-- {
			isSet := b>>at&1 == 1
			if isSet && ended {
				return netip.Prefix{}, false
			}
			ended = !isSet
			if isSet {
				bits++
			}
		}
	}
	return netip.PrefixFrom(a, bits).Masked(), true
}
