package odd

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// NetworkBase is a good network_data.json, with the machine that it describes.
type NetworkBase struct {
	Name string
	Text string
	// Segments are the Ethernet networks around the machine, each with the MACs of the NICs that are plugged into it.
	Segments [][]string
	// Stacked tells that the data have bonds or VLANs, which not every kernel has.
	Stacked bool
}

// Document decodes the network_data.json into maps, lists and scalars that the caller may change.
func (b NetworkBase) Document() map[string]any {
	var doc map[string]any
	if err := json.Unmarshal([]byte(b.Text), &doc); err != nil {
		panic(fmt.Sprintf("odd: network data %s: %v", b.Name, err)) // a mistake in this package
	}
	return doc
}

// LineChange is one changed line of a document.
type LineChange struct {
	// Path leads to the value: names of members and positions in lists.
	Path []any
	Do   LineOperation
	// Value is the new value of Replace and Append.
	Value any
}

// LineOperation is what a LineChange does.
type LineOperation string

// The operations of a LineChange.
const (
	Replace LineOperation = "replace" // the value becomes another one
	Remove  LineOperation = "remove"  // the member or element is gone
	Append  LineOperation = "append"  // the list gets one more element
)

// String shows the change as one line, such as: replace networks[0].netmask: "255.0.255.0".
func (c LineChange) String() string {
	text := string(c.Do) + " " + pathText(c.Path)
	if c.Do == Remove {
		return text
	}
	value, _ := json.Marshal(c.Value)
	return text + ": " + string(value)
}

func pathText(path []any) string {
	var out strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&out, "[%d]", step)
		case string:
			if out.Len() > 0 {
				out.WriteByte('.')
			}
			out.WriteString(step)
		}
	}
	return out.String()
}

// Apply makes the change in a document and gives the changed document. A path that leads nowhere changes nothing.
func (c LineChange) Apply(doc any) any { return applyAt(doc, c.Path, c) }

func applyAt(at any, path []any, c LineChange) any {
	if len(path) == 0 {
		list, isList := at.([]any)
		switch {
		case c.Do == Append && isList:
			return append(slices.Clone(list), copyValue(c.Value))
		case c.Do == Replace:
			return copyValue(c.Value)
		}
		return at
	}
	last := len(path) == 1 && c.Do == Remove
	switch v := at.(type) {
	case map[string]any:
		name, _ := path[0].(string)
		if _, there := v[name]; !there && (last || len(path) > 1) {
			return at
		}
		if last {
			delete(v, name)
			return v
		}
		v[name] = applyAt(v[name], path[1:], c)
	case []any:
		i, isIndex := path[0].(int)
		if !isIndex || i >= len(v) {
			return at
		}
		if last {
			return slices.Delete(slices.Clone(v), i, i+1)
		}
		v[i] = applyAt(v[i], path[1:], c)
	}
	return at
}

// copyValue copies maps and lists, so that a change of the copy leaves the value alone.
func copyValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[name] = copyValue(member)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = copyValue(element)
		}
		return out
	}
	return v
}

// NetworkInput is a base with one to three changed lines.
type NetworkInput struct {
	Base    NetworkBase
	Changes []LineChange
}

// Document is the changed document.
func (in NetworkInput) Document() any {
	var doc any = in.Base.Document()
	for _, c := range in.Changes {
		doc = c.Apply(doc)
	}
	return doc
}

// String shows the base and the changed lines.
func (in NetworkInput) String() string {
	lines := make([]string, len(in.Changes))
	for i, c := range in.Changes {
		lines[i] = c.String()
	}
	return in.Base.Name + ": " + strings.Join(lines, "; ")
}

// NewNetworkInput gives the input of a number under a seed: the same two numbers give the same input.
func NewNetworkInput(bases []NetworkBase, seed, number uint64) NetworkInput {
	r := rand.New(rand.NewPCG(seed, number))
	in := NetworkInput{Base: bases[r.IntN(len(bases))]}
	for range 1 + r.IntN(3) {
		in.Changes = append(in.Changes, randomChange(r, in.Document()))
	}
	return in
}

// place is a value of a document.
type documentPlace struct {
	path  []any
	key   string // the name of the nearest member
	value any
}

// placesOf lists every value of a document, members in the order of their names.
func placesOf(at any, path []any, key string) (out []documentPlace) {
	if len(path) > 0 {
		out = append(out, documentPlace{slices.Clone(path), key, at})
	}
	switch v := at.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			out = append(out, placesOf(v[name], append(slices.Clone(path), name), name)...)
		}
	case []any:
		for i, element := range v {
			out = append(out, placesOf(element, append(slices.Clone(path), i), key)...)
		}
	}
	return out
}

// anything are values that belong nowhere.
var anything = []any{nil, "", " ", 0.0, -1.0, 7.0, 1.5, 1e18, true, []any{}, map[string]any{}, []any{nil}, []any{"x"}, "x\n\x1b[31my", strings.Repeat("long", 80), "null", "é"}

func randomChange(r *rand.Rand, doc any) LineChange {
	places := placesOf(doc, nil, "")
	if len(places) == 0 {
		return LineChange{Path: []any{"links"}, Do: Replace, Value: []any{}}
	}
	p := places[r.IntN(len(places))]
	pick := func(values []any) any { return values[r.IntN(len(values))] }
	list, isList := p.value.([]any)
	_, isObject := p.value.(map[string]any)
	chance := r.IntN(100)
	switch {
	case isList && len(list) > 0 && chance < 20: // an element twice
		return LineChange{Path: p.path, Do: Append, Value: list[r.IntN(len(list))]}
	case isList && chance < 40:
		return LineChange{Path: p.path, Do: Append, Value: pick(anything)}
	case isList && len(list) > 0 && chance < 60: // one value where a list belongs
		return LineChange{Path: p.path, Do: Replace, Value: list[0]}
	case isList && len(list) > 0 && chance < 75:
		return LineChange{Path: p.path, Do: Remove}
	case isList, isObject && chance < 50:
		return LineChange{Path: p.path, Do: Replace, Value: pick(anything)}
	case isObject, chance < 12:
		return LineChange{Path: p.path, Do: Remove}
	case chance < 22:
		return LineChange{Path: p.path, Do: Replace, Value: pick(anything)}
	case chance < 32: // the value of another line
		var others []any
		for _, o := range places {
			if o.key == p.key {
				others = append(others, o.value)
			}
		}
		return LineChange{Path: p.path, Do: Replace, Value: copyValue(pick(others))}
	case chance < 40:
		if v := respelled(r, p.value); v != nil {
			return LineChange{Path: p.path, Do: Replace, Value: v}
		}
	}
	if values := lineValues[p.key]; values != nil {
		return LineChange{Path: p.path, Do: Replace, Value: copyValue(pick(values))}
	}
	return LineChange{Path: p.path, Do: Replace, Value: pick(anything)}
}

// respelled writes a value in another way that somebody may take for the same; nil: there is none.
func respelled(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case float64:
		return fmt.Sprint(v)
	case string:
		return []any{strings.ToUpper(v), " " + v, v + " ", strings.ReplaceAll(v, ":", "-"), strings.ReplaceAll(v, ":", ""), v + "/24", []any{v}, "[" + v + "]"}[r.IntN(8)]
	}
	return nil
}

// lineValues are the values that a line of a name may get.
var lineValues = map[string][]any{
	"ethernet_mac_address": {"52:54:00:99:99:99", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "5254.00aa.0001", "80:00:02:08:fe:80:00:00:00:00:00:00:02:00:00:00:00:00:22:02", "eth0", "52:54:00:aa:00", nil},
	"vlan_mac_address":     {"52:54:00:99:99:98", "01:00:5e:00:00:01", "zz", nil},
	"type": {"phy", "vif", "bridge", "ovs", "tap", "physical", "PHY", "bond", "vlan", "vxlan", "hostdev_physical",
		"ipv4", "ipv6", "IPv4", "ipv4_dhcp", "ipv6_dhcp", "ipv6_slaac", "ipv6_dhcpv6-stateful", "ipv6_dhcpv6-stateless", "ipv4_ll", "dhcp", "static", "dns", "ntp", nil},
	"ip_address": {"198.51.100.77", "203.0.113.77", "192.168.77.7/24", "198.51.100.0", "198.51.100.255", "198.051.100.021", "198.51.100.256", "198.51.100", "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255",
		"169.254.3.4", "240.0.0.9", "198.51.100.1", "2001:db8:1::77", "2001:db8:9::7/64", "fe80::5", "::1", "::", "ff02::1", "::ffff:198.51.100.78", "2001:db8:1::5%eth0", "2001:db8:1::5/129", nil},
	"netmask": {"255.255.255.0", "255.255.0.0", "255.255.255.252", "255.255.255.254", "255.255.255.255", "255.0.255.0", "0.0.0.0", "0.0.0.255", "128.0.0.0", "24", "/24", 24.0, 32.0, 31.0, 30.0, 16.0, 0.0, 33.0, 64.0, 128.0, 129.0,
		"ffff:ffff:ffff:ffff::", "ffff::ffff", "0xffffff00", nil},
	"network": {"0.0.0.0", "::", "default", "any", "0.0.0.0/0", "::/0", "10.9.0.0", "10.9.0.0/16", "10.9.1.2/16", "10.9.0.0/33", "198.51.100.0/24", "192.0.2.0/25", "224.0.0.0/4", "127.0.0.0/8", "2001:db8:99::/48", "2001:db8:99::1/48", nil},
	"gateway": {"198.51.100.1", "198.51.100.2", "203.0.113.1", "0.0.0.0", "::", "172.16.0.1", "198.51.100.21", "198.51.100.255", "255.255.255.255", "127.0.0.1", "224.0.0.1", "router", "fe80::1", "2001:db8:1::2", "ff02::2", nil},
	"mtu":     {1500.0, 1400.0, "1400", 1280.0, 1279.0, 576.0, 575.0, 68.0, 9000.0, 65535.0, 65536.0, 99999.0, 0.0, -1.0, 1500.5, "jumbo", "1e3", nil},
	"id":      {"", "x", "net 0", "a/b", "'; reboot", nil, 7.0},
	"link":    {"gone", "", "0", nil},
	"address": {"192.0.2.53", "192.0.2.53, 192.0.2.54", "2001:db8::53", "::1", "0.0.0.0", "127.0.0.53", "resolver", "192.0.2.300", nil},
	// Of bonds and VLANs:
	"bond_links":            {"gone", "", nil},
	"bond_mode":             {"active-backup", "balance-rr", "balance-xor", "broadcast", "802.3ad", "802.1ad", "balance-tlb", "balance-alb", "4", 4.0, "7", "fast", nil},
	"bond_miimon":           {0.0, 100.0, "100", -1.0, 1e9, "often", nil},
	"bond_xmit_hash_policy": {"layer2", "layer3+4", "layer2+3", "encap3+4", "vlan+srcmac", "layer9", 1.0, nil},
	"vlan_link":             {"gone", "", nil},
	"vlan_id":               {1.0, 7.0, 8.0, "7", 4094.0, 4095.0, 0.0, -1.0, 1.5, "seven", nil},
}

// ShrinkNetwork makes a failing input smaller as long as it fails: first it drops changes, then values of the document, the largest first. It asks
// fails at most tries times.
func ShrinkNetwork(in NetworkInput, tries int, fails func(doc any) bool) (smaller NetworkInput, doc any) {
	for i := 0; i < len(in.Changes) && len(in.Changes) > 1; {
		fewer := NetworkInput{in.Base, slices.Delete(slices.Clone(in.Changes), i, i+1)}
		if tries--; tries >= 0 && fails(fewer.Document()) {
			in, i = fewer, 0
		} else {
			i++
		}
	}
	doc = in.Document()
	for dropped := true; dropped && tries > 0; {
		dropped = false
		for _, p := range placesOf(doc, nil, "") {
			without := LineChange{Path: p.path, Do: Remove}.Apply(copyValue(doc))
			if tries--; tries >= 0 && fails(without) {
				doc, dropped = without, true
				break
			}
		}
	}
	return in, doc
}
