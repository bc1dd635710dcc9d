package networkdata

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bounds of an mtu. leastMTU6 is what IPv6 needs: the kernel takes it off a link whose mtu is smaller.
const (
	leastMTU  = 576
	leastMTU6 = 1280
	mostMTU   = 65535
)

const (
	// defaultMiimon lets the kernel look for dead members, which it does not by itself; milliseconds.
	defaultMiimon = 100
	mostMiimon    = 60000
	// defaultMode works without the switch's help.
	defaultMode = "active-backup"
	mostTag     = 4094
)

// addLinks reads the links by kind: first those that others stand on.
func (d *Data) addLinks(given []element[dataLink]) {
	for _, kind := range []Kind{Physical, Bond, VLAN} {
		for _, e := range given {
			i, g := e.index, e.value
			if kindOf(g.Type) != kind {
				continue
			}
			name := fmt.Sprintf("link %s", quote(g.ID))
			why := ""
			switch {
			case g.ID == "":
				name, why = fmt.Sprintf("links[%d]", i), "it has no id, so no network can be on it"
			case d.Link(g.ID) != nil:
				name, why = fmt.Sprintf("links[%d]", i), fmt.Sprintf("there is another link with the id %s", quote(g.ID))
			}
			if why == "" {
				var link Link
				if link, why = d.readLink(g, kind); why == "" {
					if other := d.onNIC(link); other != nil {
						d.sameNIC[g.ID] = other.ID
						d.leaveOut("%s: its MAC is that of the link %s, which stands for both", name, quote(other.ID))
						continue
					}
					d.Links = append(d.Links, link)
					continue
				}
				d.lost[g.ID] = why
			}
			d.leaveOut("%s: %s", name, why)
		}
	}
}

// onNIC is the link that has the NIC of a physical link already; nil without one.
func (d *Data) onNIC(link Link) *Link {
	i := slices.IndexFunc(d.Links, func(l Link) bool { return l.Kind == Physical && link.Kind == Physical && l.MAC == link.MAC })
	if i < 0 {
		return nil
	}
	return &d.Links[i]
}

// standsFor is the link that stands for the one with an id: another one on the same NIC, or itself.
func (d *Data) standsFor(id string) string {
	return cmp.Or(d.sameNIC[id], id)
}

// kindOf gives the kind of a type. Every word but bond and vlan (phy, vif, tap, ovs, bridge, ...) is a port of the machine, named after how the cloud
// plugs it.
func kindOf(word string) Kind {
	switch strings.ToLower(strings.TrimSpace(word)) {
	case "bond":
		return Bond
	case "vlan":
		return VLAN
	}
	return Physical
}

// readLink reads one link. why is the reason why it is left out; empty: it is not.
func (d *Data) readLink(g dataLink, kind Kind) (link Link, why string) {
	link = Link{ID: g.ID, Kind: kind}
	text := g.MAC
	if kind == VLAN && g.VLANMAC != "" {
		text = g.VLANMAC
	}
	mac, ok := parseMAC(text)
	switch {
	case ok:
		link.MAC = mac
	case kind != Physical && text != "":
		d.leaveOut("link %s: %s is no MAC address, so the kernel chooses one", quote(g.ID), quote(text))
	case kind == Physical && text == "":
		return link, "it has no ethernet_mac_address"
	case kind == Physical:
		return link, quote(text) + " is no MAC address of an Ethernet NIC"
	}
	if link.MTU, ok = parseNumber(g.MTU, leastMTU, mostMTU); !ok {
		d.leaveOut("link %s: mtu %s is not within %d to %d", quote(g.ID), quote(g.MTU), leastMTU, mostMTU)
	}
	switch kind {
	case Bond:
		return link, d.readBond(&link, g)
	case VLAN:
		return link, d.readVLAN(&link, g)
	}
	return link, ""
}

// parseMAC reads the MAC of an Ethernet NIC, with any separators or none.
func parseMAC(text string) (string, bool) {
	mac, err := hex.DecodeString(strings.NewReplacer(":", "", "-", "", ".", "").Replace(strings.TrimSpace(text)))
	if err != nil || len(mac) != 6 || mac[0]&1 == 1 || bytes.Equal(mac, make([]byte, 6)) {
		return "", false
	}
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]), true
}

// bondModes are the kernel's, by number.
var bondModes = []string{"balance-rr", defaultMode, "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}

// hashPolicies are the kernel's, by number.
var hashPolicies = []string{"layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"}

func (d *Data) readBond(link *Link, g dataLink) (why string) {
	var lacks []string
	for _, id := range g.BondLinks {
		id = d.standsFor(id)
		reason := ""
		switch member := d.Link(id); {
		case slices.Contains(link.Members, id):
			continue
		case d.lost[id] != "":
			reason = "that link is left out"
		case member == nil || member.Kind != Physical:
			reason = "it is no physical link"
		case d.BondOf(id) != nil:
			reason = "it is a member of the bond " + quote(d.BondOf(id).ID)
		}
		if reason != "" {
			lacks = append(lacks, fmt.Sprintf("bond_links %s: %s", quote(id), reason))
			continue
		}
		link.Members = append(link.Members, id)
	}
	if len(link.Members) == 0 {
		return strings.Join(append([]string{"the bond has no member"}, lacks...), "; ")
	}
	for _, text := range lacks {
		d.leaveOut("link %s: %s", quote(g.ID), text)
	}
	mode := strings.ToLower(strings.TrimSpace(g.BondMode))
	if mode == "802.1ad" { // the spelling of Ironic's schema
		mode = "802.3ad"
	}
	if link.Mode = kernelName(bondModes, mode); link.Mode == "" {
		link.Mode = defaultMode
		if mode != "" {
			d.leaveOut("link %s: bond_mode %s is not known; %s is used", quote(g.ID), quote(g.BondMode), defaultMode)
		}
	}
	policy := strings.ToLower(strings.TrimSpace(g.BondHash))
	if link.HashPolicy = kernelName(hashPolicies, policy); link.HashPolicy == "" && policy != "" {
		d.leaveOut("link %s: bond_xmit_hash_policy %s is not known; the kernel's default is used", quote(g.ID), quote(g.BondHash))
	}
	var ok bool
	if link.Miimon, ok = parseNumber(g.BondMiimon, 0, mostMiimon); !ok {
		d.leaveOut("link %s: bond_miimon %s is not within 0 to %d; %d is used", quote(g.ID), quote(g.BondMiimon), mostMiimon, defaultMiimon)
	}
	if link.Miimon == 0 {
		link.Miimon = defaultMiimon
	}
	return ""
}

// kernelName finds a word among the kernel's names, or its number; empty: it is neither.
func kernelName(names []string, word string) string {
	for i, name := range names {
		if word == name || word == strconv.Itoa(i) {
			return name
		}
	}
	return ""
}

func (d *Data) readVLAN(link *Link, g dataLink) (why string) {
	g.VLANLink = d.standsFor(g.VLANLink)
	parent := d.Link(g.VLANLink)
	tag, ok := parseNumber(g.VLANID, 1, mostTag)
	switch {
	case d.lost[g.VLANLink] != "":
		return fmt.Sprintf("its vlan_link %s is left out", quote(g.VLANLink))
	case parent == nil || parent.Kind == VLAN:
		return fmt.Sprintf("its vlan_link %s is no physical link or bond", quote(g.VLANLink))
	case !ok || tag == 0:
		return fmt.Sprintf("its vlan_id %s is not within 1 to %d", quote(g.VLANID), mostTag)
	}
	link.Parent, link.Tag = g.VLANLink, tag
	if bond := d.BondOf(g.VLANLink); bond != nil {
		link.Parent = bond.ID // a member carries no VLAN of its own
	}
	if i := slices.IndexFunc(d.Links, func(l Link) bool { return l.Kind == VLAN && l.Parent == link.Parent && l.Tag == tag }); i >= 0 {
		return fmt.Sprintf("link %s has the vlan_id %d on the same link", quote(d.Links[i].ID), tag)
	}
	return ""
}

// parseNumber reads a whole number within bounds; 0 for no text. False: it is none, or out of bounds.
func parseNumber(text string, low, high int) (int, bool) {
	text = strings.TrimSpace(text)
	if text == "" || strings.EqualFold(text, "null") || strings.EqualFold(text, "none") {
		return 0, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || f < float64(low) || f > float64(high) {
		return 0, false
	}
	return int(f), true
}
