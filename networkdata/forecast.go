package networkdata

import (
	"fmt"
	"net/netip"
	"slices"
)

// Forecast is what a machine with certain NICs will have of a Data.
type Forecast struct {
	// LeftOut continues Data.LeftOut with what needs a NIC that the machine does not have.
	LeftOut []string
	// Addresses are the fixed addresses that the machine will have.
	Addresses []netip.Addr
}

// AllLeftOut is the last sentence where the data name networks, none of which can be had.
const AllLeftOut = "no network of the data can be had, so DHCP is asked on every link"

// NoNIC says why a physical link is left out.
func NoNIC(mac string) string { return "no NIC has the MAC " + mac }

// NoMember says why a bond is left out.
const NoMember = "none of its members is there"

// NoParent says why a VLAN is left out.
func NoParent(id string) string { return fmt.Sprintf("the link %s below it is not there", quote(id)) }

// NoLink is the sentence about a network whose link is not there.
func NoLink(n Network) string {
	return fmt.Sprintf("%s: its link %s is not there", n.Name(), quote(n.Link))
}

// AsksForNetworks tells whether the data name networks, be they such as can be followed or not.
func (d *Data) AsksForNetworks() bool { return d.asked }

// Forecast tells what a machine will have, by the MACs of its NICs in lower case.
func (d *Data) Forecast(macs []string) Forecast {
	f := Forecast{LeftOut: slices.Clone(d.LeftOut)}
	there := map[string]bool{}
	for _, link := range d.Links {
		why := ""
		switch {
		case link.Kind == Physical && !slices.Contains(macs, link.MAC):
			why = NoNIC(link.MAC)
		case link.Kind == Bond && !slices.ContainsFunc(link.Members, func(id string) bool { return there[id] }):
			why = NoMember
		case link.Kind == VLAN && !there[link.Parent]:
			why = NoParent(link.Parent)
		}
		if there[link.ID] = why == ""; why != "" {
			f.LeftOut = append(f.LeftOut, fmt.Sprintf("link %s: %s", quote(link.ID), why))
		}
	}
	used := false
	for _, n := range d.Networks {
		switch {
		case !there[n.Link]:
			f.LeftOut = append(f.LeftOut, NoLink(n))
			continue
		case n.Method == Static:
			f.Addresses = append(f.Addresses, n.Address.Addr())
		}
		used = true
	}
	if !used && d.asked {
		f.LeftOut = append(f.LeftOut, AllLeftOut)
	}
	return f
}
