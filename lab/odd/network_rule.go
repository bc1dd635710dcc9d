package odd

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The rule of this file says what a machine can have of a network_data.json. It shares no code with the reader of the agent, and it is strict: what it
// takes for plain, every reader of the format understands, so the machine must have it. All else the machine may have, or the agent must name.

// ClaimKind is what a NetworkClaim is about.
type ClaimKind int

// The kinds of claims.
const (
	ClaimNothing ClaimKind = iota // the machine cannot have it, so the agent must name it
	ClaimAddress                  // ssh answers on a fixed address
	ClaimLease                    // ssh answers on an address by DHCP
	ClaimRoute                    // there is a route
	ClaimDNS                      // there is a name server
	ClaimMTU                      // a link has an mtu
	ClaimLink                     // a bond or VLAN is there
)

// LinkPlace is where a link is in the machine, and in the world around the machine.
type LinkPlace struct {
	Stack   string // nic, bond or vlan
	NICs    []int  // the NICs of the machine that the link uses, counted over all segments
	Segment int    // the Ethernet network that the link is plugged into; below 0: not known
	Tag     int    // of a VLAN
	Mode    string // of a bond; empty: any
}

// NetworkClaim is one thing that a document asks for.
type NetworkClaim struct {
	What string
	Kind ClaimKind
	// Must tells that the machine can have it.
	Must bool
	// Names are texts one of which the agent must say where the machine does not have it.
	Names []string
	On    LinkPlace
	// Address is that of ClaimAddress, and for ClaimRoute the address that the route belongs to.
	Address netip.Addr
	// Dial tells that a connection must come up, because no other line of the document can lead the answers elsewhere. It comes from Far, or, if that is not
	// valid, from a neighbour of the address.
	Dial bool
	Far  netip.Addr
	To   netip.Prefix
	Via  netip.Addr // not valid: the route is on the link
	DNS  netip.Addr
	MTU  int
	// Of is the position of the claim on which this one depends; below 0: none.
	Of int
	// Late tells that the data alone do not show that the machine cannot have it: only the network does.
	Late bool
}

// ruleLink is a link as the rule reads it.
type ruleLink struct {
	id    string
	names []string
	must  bool
	lost  bool // the machine surely does not have it
	place LinkPlace
	obj   map[string]any
}

// ruleNetwork is a network with a fixed address.
type ruleNetwork struct {
	prefix netip.Prefix
	place  LinkPlace
	claim  int
}

type networkRule struct {
	segments [][]string
	links    []ruleLink
	statics  []ruleNetwork
	routes   []int // positions of the claims
	claims   []NetworkClaim
}

// NetworkClaims lists what a document asks for, for a machine with the NICs of the segments.
func NetworkClaims(doc any, segments [][]string) []NetworkClaim {
	r := &networkRule{segments: segments}
	top, isObject := doc.(map[string]any)
	if !isObject {
		return nil
	}
	r.readLinks(listOf(top["links"]))
	for i, n := range listOf(top["networks"]) {
		r.readNetwork(i, n)
	}
	r.readServers(top)
	r.judgeConflicts()
	return r.claims
}

func (r *networkRule) add(c NetworkClaim) int {
	r.claims = append(r.claims, c)
	return len(r.claims) - 1
}

func (r *networkRule) nothing(what string, names ...string) {
	r.add(NetworkClaim{What: what, Kind: ClaimNothing, Names: names, Of: -1})
}

// rawListOf takes one value for a list of one, and no value for none.
func rawListOf(v any) []any {
	if list, isList := v.([]any); isList {
		return list
	}
	if isUntold(v) {
		return nil
	}
	return []any{v}
}

// listOf is rawListOf, where an element that says that there is none is nil.
func listOf(v any) []any {
	out := slices.Clone(rawListOf(v))
	for i, element := range out {
		if isUntold(element) {
			out[i] = nil
		}
	}
	return out
}

// isUntold tells whether a value says that there is none.
func isUntold(v any) bool {
	word, isText := v.(string)
	return v == nil || isText && slices.Contains([]string{"", "null", "none", "n/a"}, strings.ToLower(strings.TrimSpace(word)))
}

// isUntoldText tells whether an element of a list of texts says that there is none. Every word but N/A may be meant.
func isUntoldText(v any) bool {
	word, _ := wordOf(v)
	return v == nil || strings.EqualFold(strings.TrimSpace(word), "n/a")
}

// unwrap takes a list of one for its element.
func unwrap(v any) any {
	if list, isList := v.([]any); isList && len(list) == 1 {
		if _, nested := list[0].([]any); !nested {
			return list[0]
		}
	}
	return v
}

func objectOf(v any) (map[string]any, bool) {
	o, isObject := unwrap(v).(map[string]any)
	return o, isObject
}

// wordOf is a text or number as text. isText tells whether it is a text.
func wordOf(v any) (word string, isText bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), false
	case bool:
		return strconv.FormatBool(v), false
	case []any:
		if only := unwrap(v); len(v) == 1 && !isComposite(only) {
			word, _ := wordOf(only)
			return word, false
		}
	}
	return "", v == nil
}

// quoted is how a sentence of the agent shows a word, without the quotes.
func quoted(word string) string {
	return strings.Trim(fmt.Sprintf("%.60q", word), `"`)
}

// hexMAC is a MAC without separators whose first byte is not that of a group.
var hexMAC = regexp.MustCompile(`^[0-9a-f][02468ace][0-9a-f]{10}$`)

var plainMAC = regexp.MustCompile(`^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$`)

// readLinks reads NICs, then bonds, then VLANs, because each stands on those before.
func (r *networkRule) readLinks(given []any) {
	ids, macs := map[string]int{}, map[string]int{}
	for _, g := range given {
		if l, isObject := objectOf(g); isObject {
			id, _ := wordOf(l["id"])
			ids[id]++
			if kind, _ := wordOf(l["type"]); kind != "bond" && kind != "vlan" {
				macs[bareMAC(l["ethernet_mac_address"])]++
			}
		}
	}
	for _, stack := range []string{"nic", "bond", "vlan"} {
		for i, g := range given {
			l, isObject := objectOf(g)
			if !isObject {
				if g != nil && stack == "nic" {
					r.nothing(fmt.Sprintf("links[%d] is no object", i), fmt.Sprintf("links[%d]", i), "links:", `"links"`)
				}
				continue
			}
			kind, kindIsText := wordOf(l["type"])
			is := strings.ToLower(strings.TrimSpace(kind))
			if is != "bond" && is != "vlan" {
				is = "nic"
			}
			if is != stack {
				continue
			}
			id, idIsText := wordOf(l["id"])
			link := ruleLink{id: id, obj: l, place: LinkPlace{Stack: stack, Segment: -1}, names: []string{quoted(id), fmt.Sprintf("links[%d]", i), "links:"}}
			link.must = idIsText && id != "" && ids[id] == 1 && kindIsText && (stack == "nic" || kind == stack)
			switch stack {
			case "nic":
				r.readNIC(&link, macs)
			case "bond":
				r.readBond(&link)
			case "vlan":
				r.readVLAN(&link)
			}
			r.links = append(r.links, link)
		}
	}
	for _, link := range r.links {
		r.claimLink(link)
		r.claimMTU(link)
	}
}

// bareMAC is the digits of a MAC, in lower case.
func bareMAC(v any) string {
	word, _ := wordOf(v)
	return strings.ToLower(strings.NewReplacer(":", "", "-", "", ".", "", " ", "").Replace(word))
}

func (r *networkRule) readNIC(link *ruleLink, macs map[string]int) {
	word, _ := wordOf(link.obj["ethernet_mac_address"])
	bare := bareMAC(link.obj["ethernet_mac_address"])
	link.must = link.must && plainMAC.MatchString(word) && macs[bare] == 1
	link.names = append(link.names, quoted(strings.ToLower(word)))
	link.lost = true
	number := 0
	for s, segment := range r.segments {
		for _, mac := range segment {
			if strings.ReplaceAll(mac, ":", "") == bare {
				link.place.Segment, link.place.NICs, link.lost = s, []int{number}, false
			}
			number++
		}
	}
}

func (r *networkRule) link(id string) *ruleLink {
	i := slices.IndexFunc(r.links, func(l ruleLink) bool { return l.id == id })
	if i < 0 || id == "" {
		return nil
	}
	return &r.links[i]
}

func (r *networkRule) readBond(link *ruleLink) {
	seen := map[string]bool{}
	var names []string
	for _, g := range rawListOf(link.obj["bond_links"]) {
		if isUntoldText(g) {
			continue
		}
		id, isText := wordOf(g)
		member := r.link(id)
		names = append(names, quoted(id))
		link.must = link.must && isText
		switch {
		case member == nil || member.place.Stack != "nic":
			r.nothing(fmt.Sprintf("bond %s: member %s", link.id, id), append(slices.Clone(link.names), quoted(id))...)
			continue
		case seen[id]:
			continue
		case !member.must && !member.lost, r.bondOf(id) != nil:
			link.must = false
		}
		seen[id] = true
		if member.lost {
			continue
		}
		segment := member.place.Segment
		if len(link.place.NICs) > 0 && link.place.Segment != segment {
			link.must, segment = false, -1 // members on different networks: nobody knows which of them the bond will use
		}
		link.place.NICs = append(link.place.NICs, member.place.NICs...)
		link.place.Segment = segment
	}
	link.lost = len(link.place.NICs) == 0
	link.names = append(link.names, names...)
	mode, _ := wordOf(link.obj["bond_mode"])
	_, err := strconv.Atoi(mode)
	switch known := []string{"active-backup", "balance-rr", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}; {
	case slices.Contains(known, mode):
		link.place.Mode = mode
	case strings.TrimSpace(mode) != "" && err != nil && mode != "802.1ad" && !slices.Contains(known, strings.ToLower(strings.TrimSpace(mode))) && !link.lost:
		r.lacks(link, "mode", quoted(mode), "bond_mode")
	}
	policy, _ := wordOf(link.obj["bond_xmit_hash_policy"])
	policy = strings.ToLower(strings.TrimSpace(policy))
	known := strings.Fields("0 1 2 3 4 5 layer2 layer3+4 layer2+3 encap2+3 encap3+4 vlan+srcmac n/a")
	if !link.lost && (policy != "" && !slices.Contains(known, policy) || isComposite(link.obj["bond_xmit_hash_policy"])) {
		r.lacks(link, "hash policy", "bond_xmit_hash_policy")
	}
	if v := link.obj["bond_miimon"]; !link.lost && !isUntold(v) {
		word, _ := wordOf(v)
		if n, err := strconv.ParseFloat(strings.TrimSpace(word), 64); err != nil || n != float64(int(n)) || n < 0 || n > 60000 {
			r.lacks(link, "miimon", "bond_miimon")
		}
	}
	r.claimMAC(link, "ethernet_mac_address")
}

// lacks has an option of a bond named that the bond cannot have. A bond without an id is not made, so that its own name is enough.
func (r *networkRule) lacks(link *ruleLink, option string, names ...string) {
	if link.id == "" {
		names = append(names, link.names...)
	}
	r.nothing(fmt.Sprintf("%s of bond %q", option, link.id), names...)
}

// claimMAC has the MAC of a bond or a VLAN named that no device can have.
func (r *networkRule) claimMAC(link *ruleLink, keys ...string) {
	for _, key := range keys {
		v := link.obj[key]
		if word, _ := wordOf(v); isUntoldText(v) || word == "" && !isComposite(v) {
			continue
		}
		if bare := bareMAC(v); !link.lost && (!hexMAC.MatchString(bare) || bare == "000000000000") {
			r.nothing(fmt.Sprintf("MAC of %s %q", link.place.Stack, link.id), append(slices.Clone(link.names), "MAC", "mac_address")...)
		}
		return
	}
}

// bondOf is the bond that has the link as a member; nil: none.
func (r *networkRule) bondOf(id string) *ruleLink {
	for i := range r.links {
		for _, g := range listOf(r.links[i].obj["bond_links"]) {
			if word, _ := wordOf(g); r.links[i].place.Stack == "bond" && word == id {
				return &r.links[i]
			}
		}
	}
	return nil
}

func (r *networkRule) readVLAN(link *ruleLink) {
	below, isText := wordOf(link.obj["vlan_link"])
	word, _ := wordOf(link.obj["vlan_id"])
	parent := r.link(below)
	link.names = append(link.names, quoted(below))
	tag, err := strconv.Atoi(strings.TrimSpace(word))
	switch {
	case parent == nil || parent.place.Stack == "vlan":
		link.must, link.lost = false, true
		return
	case parent.lost:
		link.must, link.lost = false, true
		link.names = append(link.names, parent.names...)
		return
	case err != nil || tag < 1 || tag > 4094:
		link.must, link.lost = false, true
	}
	link.place.NICs, link.place.Segment, link.place.Tag = parent.place.NICs, parent.place.Segment, tag
	link.must = link.must && isText && parent.must && r.bondOf(below) == nil
	r.claimMAC(link, "vlan_mac_address", "ethernet_mac_address")
	for i := range r.links {
		if o := &r.links[i]; o.place.Stack == "vlan" && o.place.Tag == tag && o.place.Segment == parent.place.Segment {
			o.must, link.must = false, false
		}
	}
}

func (r *networkRule) claimLink(link ruleLink) {
	what := fmt.Sprintf("%s %q", link.place.Stack, link.id)
	switch {
	case link.lost:
		r.nothing(what, link.names...)
	case link.place.Stack != "nic":
		r.add(NetworkClaim{What: what, Kind: ClaimLink, Must: link.must, Names: link.names, On: link.place, Of: -1})
	case link.id == "":
		r.nothing(what, link.names...) // no network can be on it
	case !link.must:
		r.add(NetworkClaim{What: what, Kind: ClaimLink, Names: link.names, On: link.place, Of: -1})
	}
}

// readMTU reads an mtu; 0: it is none. plain tells whether every reader understands it.
func readMTU(v any) (mtu int, plain bool) {
	word, _ := wordOf(v)
	f, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
	if err != nil || f != float64(int(f)) || f < 1 || f > 1e6 {
		return 0, false
	}
	return int(f), word == strconv.Itoa(int(f))
}

func mtuOf(v any) int {
	mtu, _ := readMTU(v)
	return mtu
}

func (r *networkRule) claimMTU(link ruleLink) {
	v := link.obj["mtu"]
	word, _ := wordOf(v)
	if isUntold(v) || isUntold(word) && !isComposite(v) || link.lost || !link.must {
		return
	}
	mtu, plain := readMTU(v)
	must := plain && mtu >= 1280 && mtu <= 9000
	for _, o := range r.links {
		if o.id == link.id {
			continue
		}
		below, _ := wordOf(o.obj["vlan_link"])
		above, _ := wordOf(link.obj["vlan_link"])
		isMember := slices.ContainsFunc(listOf(link.obj["bond_links"]), func(g any) bool { word, _ := wordOf(g); return word == o.id })
		other := o.obj["mtu"]
		switch {
		case o.place.Stack == "vlan" && below == link.id && other != nil && mtuOf(other) != mtu, // two lines wish for one mtu
			link.place.Stack == "vlan" && above == o.id && other != nil && mtuOf(other) < mtu,
			isMember && other != nil && mtuOf(other) != mtu:
			must = false
		}
	}
	if r.bondOf(link.id) != nil || r.bondOfParent(link) {
		must = false
	}
	r.add(NetworkClaim{What: fmt.Sprintf("mtu %v of %q", v, link.id), Kind: ClaimMTU, Must: must, Names: []string{": mtu", "].mtu"}, On: link.place, MTU: mtu, Of: -1})
}

// bondOfParent tells whether a VLAN stands on a member of a bond, or on a bond whose members wish for an mtu.
func (r *networkRule) bondOfParent(link ruleLink) bool {
	below, _ := wordOf(link.obj["vlan_link"])
	parent := r.link(below)
	return link.place.Stack == "vlan" && (r.bondOf(below) != nil || parent != nil && slices.ContainsFunc(listOf(parent.obj["bond_links"]), func(g any) bool {
		id, _ := wordOf(g)
		member := r.link(id)
		return member != nil && member.obj["mtu"] != nil && mtuOf(member.obj["mtu"]) < mtuOf(link.obj["mtu"])
	}))
}

func isComposite(v any) bool {
	switch unwrap(v).(type) {
	case []any, map[string]any:
		return true
	}
	return false
}
