package networkdata

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

// fullData is in the words of Nova and of Ironic's documentation: a bond of two NICs
// with a VLAN on it, static addresses of both families, DHCP, and values whose types
// differ from writer to writer.
const fullData = `{
 "links": [
  {"id": "vlan7", "type": "vlan", "vlan_link": "bond0", "vlan_id": "101", "vlan_mac_address": "52:54:00:AA:00:07", "mtu": 1400},
  {"id": "bond0", "type": "bond", "bond_links": ["e0", "e1"], "bond_mode": "802.3ad", "bond_miimon": 50, "bond_xmit_hash_policy": "layer3+4", "ethernet_mac_address": "52:54:00:aa:00:01"},
  {"id": "e0", "type": "phy", "ethernet_mac_address": "52:54:00:aa:00:01", "mtu": null, "vif_id": "x"},
  {"id": "e1", "type": "physical", "ethernet_mac_address": "52:54:00:aa:00:02", "mtu": "9000"},
  {"id": "e2", "type": "ovs", "ethernet_mac_address": "52:54:00:aa:00:03"}
 ],
 "networks": [
  {"id": "n0", "type": "ipv4", "link": "vlan7", "ip_address": "10.78.0.5", "netmask": "255.255.255.0", "network_id": "u",
   "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.78.0.1"}, {"network": "192.0.2.0/24", "gateway": "10.78.0.2"}],
   "services": [{"type": "dns", "address": "10.78.0.3"}]},
  {"id": "n1", "type": "ipv6", "link": "vlan7", "ip_address": "2001:db8::5/64", "gateway": "2001:db8::1"},
  {"id": "n2", "type": "ipv6", "link": "bond0", "ip_address": "2001:db8:1::5", "netmask": "ffff:ffff:ffff::"},
  {"id": "n3", "type": "ipv4_dhcp", "link": "e2"},
  {"id": "n4", "type": "ipv6_slaac", "link": "e2"},
  {"id": "n5", "type": "ipv6_dhcpv6-stateless", "link": "e2"}
 ],
 "services": [{"type": "dns", "address": "8.8.8.8"}, {"type": "ntp", "address": "10.0.0.1"}, {"type": "dns", "address": "rubbish"}, {"type": "dns", "address": "8.8.8.8"}]
}`

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// TestTwoLinksOfOneNIC: the first link stands for both, also as the member of a bond and below a VLAN.
func TestTwoLinksOfOneNIC(t *testing.T) {
	t.Parallel()
	d := must.Get(Parse([]byte(`{"links": [
		{"id": "e0", "ethernet_mac_address": "52:54:00:aa:00:01"}, {"id": "again", "ethernet_mac_address": "5254.00AA.0001"},
		{"id": "bond0", "type": "bond", "bond_links": ["again"]}, {"id": "v7", "type": "vlan", "vlan_id": 7, "vlan_link": "again"}],
		"networks": [{"id": "n0", "type": "ipv4_dhcp", "link": "again"}]}`)))(t)
	bond, vlan := d.Link("bond0"), d.Link("v7")
	if bond == nil || !slices.Equal(bond.Members, []string{"e0"}) || vlan == nil || vlan.Parent != "bond0" || len(d.Networks) != 1 || d.Networks[0].Link != "bond0" {
		t.Errorf("bond %+v, VLAN %+v, networks %+v; want a bond of e0, with the VLAN and the network on the bond", bond, vlan, d.Networks)
	}
	if want := []string{`link "again": its MAC is that of the link "e0", which stands for both`}; !slices.Equal(d.LeftOut, want) {
		t.Errorf("left out: %q, want %q", d.LeftOut, want)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	d := must.Get(Parse([]byte(fullData)))(t)
	var order []string
	for _, link := range d.Links {
		order = append(order, link.ID)
	}
	if want := []string{"e0", "e1", "e2", "bond0", "vlan7"}; !slices.Equal(order, want) {
		t.Errorf("links in the order %v, want %v", order, want)
	}
	bond, vlan := d.Link("bond0"), d.Link("vlan7")
	if bond.Mode != "802.3ad" || bond.Miimon != 50 || bond.HashPolicy != "layer3+4" || len(bond.Members) != 2 {
		t.Errorf("bond %+v", bond)
	}
	if vlan.Tag != 101 || vlan.Parent != "bond0" || vlan.MTU != 1400 || vlan.MAC != "52:54:00:aa:00:07" {
		t.Errorf("vlan %+v", vlan)
	}
	if bond.MTU != 9000 || d.Link("e1").MTU != 0 || d.Link("e0").MTU != 0 {
		t.Errorf("mtu of the bond %d, of its members e1 %d and e0 %d; want 9000 for all by the bond", bond.MTU, d.Link("e1").MTU, d.Link("e0").MTU)
	}
	static := d.Networks[0]
	wantRoutes := []Route{{prefix("0.0.0.0/0"), addr("10.78.0.1"), 100}, {prefix("192.0.2.0/24"), addr("10.78.0.2"), 100}}
	if static.Address != prefix("10.78.0.5/24") || !slices.Equal(static.Routes, wantRoutes) {
		t.Errorf("static %+v", static)
	}
	if n := d.Networks[1]; n.Address.String() != "2001:db8::5/64" || n.Routes[0].To.String() != "::/0" || n.Routes[0].Metric <= 100 {
		t.Errorf("ipv6 %+v", n)
	}
	if n := d.Networks[2]; n.Address.Bits() != 48 {
		t.Errorf("ipv6 netmask %+v", n)
	}
	if d.Networks[3].Method != DHCP4 || d.Networks[4].Method != Router6 || d.Networks[5].Method != Info6 {
		t.Errorf("methods %+v", d.Networks[3:])
	}
	if want := []netip.Addr{addr("8.8.8.8"), addr("10.78.0.3")}; !slices.Equal(d.DNS, want) {
		t.Errorf("name servers %v, want %v", d.DNS, want)
	}
	if len(d.LeftOut) != 1 || !strings.Contains(d.LeftOut[0], "rubbish") {
		t.Errorf("left out: %q, want the name server alone", d.LeftOut)
	}
}

// TestOneThingCostsItselfOnly: whatever one line says that cannot be followed, the rest is there, and a sentence names what is not.
func TestOneThingCostsItselfOnly(t *testing.T) {
	t.Parallel()
	const (
		phy  = `{"id":"p1","type":"phy","ethernet_mac_address":"02:00:00:00:33:01"}`
		good = `{"id":"n0","type":"ipv4","link":"p1","ip_address":"198.51.100.33","netmask":"255.255.255.0","routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"198.51.100.1"}]}`
	)
	second := func(rest string) string {
		return fmt.Sprintf(`{"links":[%s],"networks":[%s,{"id":"n1","link":"p1",%s}]}`, phy, good, rest)
	}
	link := func(rest string) string {
		return fmt.Sprintf(`{"links":[{"id":"x",%s},%s],"networks":[%s,{"id":"n1","link":"x","type":"ipv4_dhcp"}]}`, rest, phy, good)
	}
	route := func(r string) string {
		return second(`"type":"ipv4","ip_address":"203.0.113.5/24","routes":[` + r + `,{"network":"192.0.2.0/24","gateway":"203.0.113.9"}]`)
	}
	// used is what of the strange thing is there nonetheless; named is a part of the sentence.
	for name, c := range map[string]struct{ text, used, named string }{
		"type not known":               {second(`"type":"ipv4_ll"`), "", "ipv4_ll"},
		"type a number":                {second(`"type":4`), "", `"4"`},
		"type a list":                  {second(`"type":[{}]`), "", "networks[1].type"},
		"no type, but an address":      {second(`"ip_address":"203.0.113.5/24"`), "203.0.113.5/24", ""},
		"network on no link":           {fmt.Sprintf(`{"links":[%s],"networks":[%s,{"id":"n1","type":"ipv4_dhcp","link":"px"}]}`, phy, good), "", "px"},
		"network without link":         {fmt.Sprintf(`{"links":[%s],"networks":[%s,{"id":"n1","type":"ipv4_dhcp","link":null}]}`, phy, good), "", "n1"},
		"a network is a number":        {fmt.Sprintf(`{"links":[%s],"networks":[7,%s]}`, phy, good), "", "networks[0]"},
		"mask with holes":              {second(`"type":"ipv4","ip_address":"203.0.113.5","netmask":"255.0.255.0"`), "203.0.113.5/32", "255.0.255.0"},
		"mask of zero":                 {second(`"type":"ipv4","ip_address":"203.0.113.5","netmask":"0.0.0.0"`), "203.0.113.5/32", "0.0.0.0"},
		"mask too long":                {second(`"type":"ipv4","ip_address":"203.0.113.5","netmask":"64"`), "203.0.113.5/32", "64"},
		"mask a number":                {second(`"type":"ipv4","ip_address":"203.0.113.5","netmask":24`), "203.0.113.5/24", ""},
		"mask with a slash":            {second(`"type":"ipv4","ip_address":"203.0.113.5","netmask":"/24"`), "203.0.113.5/24", ""},
		"no mask":                      {second(`"type":"ipv4","ip_address":"203.0.113.5"`), "203.0.113.5/32", "no netmask"},
		"address null":                 {second(`"type":"ipv4","ip_address":null`), "", "no address"},
		"address of the loopback":      {second(`"type":"ipv4","ip_address":"127.0.0.1/8"`), "", "127.0.0.1"},
		"address with a zone":          {second(`"type":"ipv6","ip_address":"2001:db8::1%eth0/64"`), "", "eth0"},
		"address in blanks":            {second(`"type":"ipv4","ip_address":" 203.0.113.5/24 "`), "203.0.113.5/24", ""},
		"gateway null":                 {second(`"type":"ipv4","ip_address":"203.0.113.5/24","gateway":null`), "203.0.113.5/24", ""},
		"gateway that is none":         {second(`"type":"ipv4","ip_address":"203.0.113.5/24","gateway":"router"`), "203.0.113.5/24", "router"},
		"gateway of the other family":  {second(`"type":"ipv4","ip_address":"203.0.113.5/24","gateway":"fe80::1"`), "203.0.113.5/24", "fe80::1"},
		"gateway is the machine":       {second(`"type":"ipv4","ip_address":"203.0.113.5/24","gateway":"203.0.113.5"`), "203.0.113.5/24", "own address"},
		"route without gateway":        {route(`{"network":"10.0.0.0/8","gateway":null}`), "192.0.2.0/24 via 203.0.113.9", "no gateway"},
		"route without mask":           {route(`{"network":"10.0.0.0","gateway":"203.0.113.9"}`), "192.0.2.0/24 via 203.0.113.9", "no netmask"},
		"route to default":             {route(`{"network":"default","gateway":"203.0.113.1"}`), "0.0.0.0/0 via 203.0.113.1", ""},
		"route on the link":            {route(`{"network":"10.0.0.0/8","gateway":"0.0.0.0"}`), "10.0.0.0/8 via invalid IP", ""},
		"route of the other family":    {route(`{"network":"::","netmask":"::","gateway":"::1"}`), "192.0.2.0/24 via 203.0.113.9", "other address family"},
		"a route is text":              {route(`"10.0.0.0/8"`), "192.0.2.0/24 via 203.0.113.9", "routes[0]"},
		"the same address twice":       {fmt.Sprintf(`{"links":[%s,{"id":"p2","ethernet_mac_address":"02:00:00:00:33:02"}],"networks":[%s,{"id":"n1","type":"ipv4","link":"p2","ip_address":"198.51.100.33/24"}]}`, phy, good), "", "same address"},
		"MAC of 20 octets":             {link(`"ethernet_mac_address":"80:00:02:08:fe:80:00:00:00:00:00:00:02:00:00:00:00:00:22:02"`), "", "no MAC address"},
		"MAC of zeros":                 {link(`"ethernet_mac_address":"00:00:00:00:00:00"`), "", "no MAC address"},
		"MAC null":                     {link(`"ethernet_mac_address":null`), "", "no ethernet_mac_address"},
		"MAC a number":                 {link(`"ethernet_mac_address":5`), "", "no MAC address"},
		"MAC without separators":       {link(`"ethernet_mac_address":"020000003302"`), "n1 on x", ""},
		"link without id":              {fmt.Sprintf(`{"links":[{"ethernet_mac_address":"02:00:00:00:33:02"},%s],"networks":[%s]}`, phy, good), "", "no id"},
		"link given twice":             {fmt.Sprintf(`{"links":[%s,%s],"networks":[%s]}`, phy, phy, good), "", "another link"},
		"a link is null":               {fmt.Sprintf(`{"links":[null,%s],"networks":[%s]}`, phy, good), "", ""},
		"mtu too large":                {link(`"ethernet_mac_address":"02:00:00:00:33:02","mtu":99999`), "n1 on x", "99999"},
		"mtu negative":                 {link(`"ethernet_mac_address":"02:00:00:00:33:02","mtu":-1`), "n1 on x", "-1"},
		"mtu a word":                   {link(`"ethernet_mac_address":"02:00:00:00:33:02","mtu":"jumbo"`), "n1 on x", "jumbo"},
		"mtu text":                     {link(`"ethernet_mac_address":"02:00:00:00:33:02","mtu":"1400"`), "n1 on x", ""},
		"bond of nothing":              {link(`"type":"bond","bond_links":[]`), "", "no member"},
		"bond of itself":               {link(`"type":"bond","bond_links":["x"]`), "", "no physical link"},
		"bond with a dead name":        {link(`"type":"bond","bond_links":["p1","gone"]`), "n1 on x", "gone"},
		"bond, its links a text":       {link(`"type":"bond","bond_links":"p1"`), "n1 on x", ""},
		"bond mode not known":          {link(`"type":"bond","bond_links":["p1"],"bond_mode":"fast"`), "n1 on x", "fast"},
		"bond mode of Ironic's schema": {link(`"type":"bond","bond_links":["p1"],"bond_mode":"802.1ad"`), "n1 on x", ""},
		"bond mode a number":           {link(`"type":"bond","bond_links":["p1"],"bond_mode":4`), "n1 on x", ""},
		"hash policy not known":        {link(`"type":"bond","bond_links":["p1"],"bond_xmit_hash_policy":"layer9"`), "n1 on x", "layer9"},
		"miimon a word":                {link(`"type":"bond","bond_links":["p1"],"bond_miimon":"often"`), "n1 on x", "often"},
		"bond with a strange MAC":      {link(`"type":"bond","bond_links":["p1"],"ethernet_mac_address":"zz"`), "n1 on x", "zz"},
		"VLAN on nothing":              {link(`"type":"vlan","vlan_link":"gone","vlan_id":5`), "", "gone"},
		"VLAN of itself":               {link(`"type":"vlan","vlan_link":"x","vlan_id":5`), "", "vlan_link"},
		"VLAN 4095":                    {link(`"type":"vlan","vlan_link":"p1","vlan_id":4095`), "", "4095"},
		"VLAN without id":              {link(`"type":"vlan","vlan_link":"p1"`), "", "vlan_id"},
		"name server that is a word":   {fmt.Sprintf(`{"links":[%s],"networks":[%s],"services":[{"type":"dns","address":"resolver"}]}`, phy, good), "", "resolver"},
		"name server null":             {fmt.Sprintf(`{"links":[%s],"networks":[%s],"services":[{"type":"dns","address":null}]}`, phy, good), "", "name server"},
		"a service is a number":        {fmt.Sprintf(`{"links":[%s],"networks":[%s],"services":[7]}`, phy, good), "", "services[0]"},
		"services null":                {fmt.Sprintf(`{"links":[%s],"networks":[%s],"services":null}`, phy, good), "", ""},
		"services a text":              {fmt.Sprintf(`{"links":[%s],"networks":[%s],"services":"none"}`, phy, good), "", ""},
	} {
		d, err := Parse([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if all := show(d); !strings.Contains(all, "198.51.100.33/24") || !strings.Contains(all, "0.0.0.0/0 via 198.51.100.1") || !strings.Contains(all, c.used) {
			t.Errorf("%s: want the good network and %q, got\n%s", name, c.used, all)
		}
		if told := strings.Join(d.LeftOut, "\n"); !strings.Contains(told, c.named) || (told != "") != (c.named != "") && name != "services a text" {
			t.Errorf("%s: left out %q, want %q in it", name, told, c.named)
		}
		if c.used == "" && c.named != "" && strings.Contains(c.text, `"n1"`) && slices.ContainsFunc(d.Networks, func(n Network) bool { return n.ID == "n1" }) {
			t.Errorf("%s: the network n1 is there", name)
		}
	}
}

func show(d *Data) string {
	var out strings.Builder
	for _, n := range d.Networks {
		fmt.Fprintln(&out, n.ID, "on", n.Link, n.Address)
		for _, r := range n.Routes {
			fmt.Fprintln(&out, r.To, "via", r.Via)
		}
	}
	return out.String()
}

// TestParseRefuses: without an object there is nothing to follow.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"links":`, `7`, `"x"`, `null`, strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100)} {
		if d, err := Parse([]byte(text)); !problem.Is(err, problem.Invalid) {
			t.Errorf("%.20s: %+v, %v; want Invalid", text, d, err)
		}
	}
}

// TestBounds: more than the bounds is cut and told, in a bounded number of sentences.
func TestBounds(t *testing.T) {
	t.Parallel()
	d := must.Get(Parse([]byte(`{"links":[` + strings.Repeat(`{"id":"a"},`, 400) + `{}],"networks":[` + strings.Repeat(`{"link":"x"},`, 400) + `{}]}`)))(t)
	told := strings.Join(d.LeftOut, "\n")
	if len(d.LeftOut) > maxLeftOut+1 || !strings.Contains(told, "only the first 256 of 401") || !strings.Contains(told, "more things") {
		t.Errorf("%d sentences:\n%s", len(d.LeftOut), told)
	}
}

// TestMetrics: routes to one destination have an order, which is that of the data; a default route on the link is the last.
func TestMetrics(t *testing.T) {
	t.Parallel()
	d := must.Get(Parse([]byte(`{"links":[{"id":"a","ethernet_mac_address":"02:00:00:00:00:01"}],"networks":[
		{"link":"a","type":"ipv4","ip_address":"10.0.0.5/24","routes":[{"network":"0.0.0.0/0","gateway":"0.0.0.0"},{"network":"0.0.0.0/0","gateway":"10.0.0.1"},{"network":"0.0.0.0/0","gateway":"10.0.0.2"}]},
		{"link":"a","type":"ipv4","ip_address":"10.0.1.5/24","gateway":"10.0.1.1"}]}`)))(t)
	seen := map[int]bool{}
	for _, n := range d.Networks {
		for _, r := range n.Routes {
			if seen[r.Metric] {
				t.Errorf("two routes with the metric %d: %+v", r.Metric, d.Networks)
			}
			seen[r.Metric] = true
			if (r.Metric > onLinkLater) == r.Via.IsValid() {
				t.Errorf("metric of %+v", r)
			}
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d routes, want 4", len(seen))
	}
}

// TestMTUOfIPv6: an mtu with which the kernel takes IPv6 off a link is not followed where an address needs IPv6.
func TestMTUOfIPv6(t *testing.T) {
	t.Parallel()
	const text = `{"links":[{"id":"a","ethernet_mac_address":"02:00:00:00:00:01","mtu":1000},{"id":"v","type":"vlan","vlan_link":"a","vlan_id":7},{"id":"b","ethernet_mac_address":"02:00:00:00:00:02","mtu":1000}],
		"networks":[{"link":"v","type":"ipv6_slaac"},{"link":"b","type":"ipv4_dhcp"}]}`
	d := must.Get(Parse([]byte(text)))(t)
	if d.Link("a").MTU != 0 || d.Link("b").MTU != 1000 || len(d.LeftOut) != 1 {
		t.Errorf("%+v, left out %q", d.Links, d.LeftOut)
	}
}

// TestMTUOfBond: the kernel gives the members of a bond its mtu, so what they wish for goes to the bond, or is named.
func TestMTUOfBond(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ bond, one, two, want, leftOut int }{{0, 0, 0, 0, 0}, {0, 9000, 9000, 9000, 0}, {0, 9000, 1400, 1400, 1}, {0, 0, 9000, 9000, 0}, {1500, 9000, 1500, 1500, 1}, {9000, 9000, 9000, 9000, 0}} {
		mtu := func(n int) string {
			if n == 0 {
				return "null"
			}
			return fmt.Sprint(n)
		}
		d := must.Get(Parse([]byte(fmt.Sprintf(`{"links":[{"id":"a","ethernet_mac_address":"02:00:00:00:00:01","mtu":%s},{"id":"b","ethernet_mac_address":"02:00:00:00:00:02","mtu":%s},
			{"id":"x","type":"bond","bond_links":["a","b"],"mtu":%s}]}`, mtu(c.one), mtu(c.two), mtu(c.bond)))))(t)
		if d.Link("x").MTU != c.want || d.Link("a").MTU != 0 || d.Link("b").MTU != 0 || len(d.LeftOut) != c.leftOut {
			t.Errorf("%+v: bond %d, members %d and %d, left out %q", c, d.Link("x").MTU, d.Link("a").MTU, d.Link("b").MTU, d.LeftOut)
		}
	}
}

// TestForecast: what needs a NIC that the machine does not have is named, and nothing else; a bond has the members that are there.
func TestForecast(t *testing.T) {
	t.Parallel()
	d := must.Get(Parse([]byte(fullData)))(t)
	for _, c := range []struct {
		macs      []string
		named     []string
		addresses int
	}{
		{[]string{"52:54:00:aa:00:01", "52:54:00:aa:00:02", "52:54:00:aa:00:03"}, nil, 3},
		{[]string{"52:54:00:aa:00:02", "52:54:00:aa:00:03"}, []string{`link "e0": no NIC has the MAC 52:54:00:aa:00:01`}, 3},
		{[]string{"52:54:00:aa:00:03"}, []string{`link "e0"`, `link "e1"`, `link "bond0": none of its members`, `link "vlan7": the link "bond0"`, `"n0" (10.78.0.5/24)`, `"n1"`, `"n2"`}, 0},
		{nil, []string{`link "e2"`, `network "n3": its link "e2"`, AllLeftOut}, 0},
	} {
		f := d.Forecast(c.macs)
		told := strings.Join(f.LeftOut, "\n")
		for _, text := range c.named {
			if !strings.Contains(told, text) {
				t.Errorf("with %q: left out\n%s\nwant %q", c.macs, told, text)
			}
		}
		if len(f.Addresses) != c.addresses || c.named == nil && len(f.LeftOut) != len(d.LeftOut) {
			t.Errorf("with %q: %+v", c.macs, f)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fullData))
	f.Add([]byte(`{"links":[{"id":"e0","ethernet_mac_address":"52:54:00:aa:00:01"}],"networks":[{"link":"e0","type":"ipv4","ip_address":"1.2.3.4/33"}]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text)
		if err != nil {
			if !problem.Is(err, problem.Invalid) {
				t.Errorf("%v is not Invalid", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, link := range d.Links {
			for _, under := range append(slices.Clone(link.Members), link.Parent) {
				if under != "" && !seen[under] {
					t.Errorf("link %q comes before %q, on which it stands", link.ID, under)
				}
			}
			if link.Kind == Physical && len(link.MAC) != 17 {
				t.Errorf("link %q has no MAC", link.ID)
			}
			seen[link.ID] = true
		}
		for _, n := range d.Networks {
			if !seen[n.Link] {
				t.Errorf("network on unknown link %q", n.Link)
			}
			if n.Method == Static && (!n.Address.IsValid() || n.Address.Bits() == 0) {
				t.Errorf("static network with the address %s", n.Address)
			}
			for _, route := range n.Routes {
				if route.To != route.To.Masked() || route.Via.IsValid() && route.Via.Is4() != n.Address.Addr().Is4() {
					t.Errorf("route %+v", route)
				}
			}
		}
		for _, text := range d.LeftOut {
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
				t.Errorf("%q is no line", text)
			}
		}
		if _, err := json.Marshal(d.LeftOut); err != nil {
			t.Error(err)
		}
	})
}

// TestUnknownTypeOfNetwork: an address can be set whatever its network is called, and what is not known is told.
func TestUnknownTypeOfNetwork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, address string
		method        Method
		set           bool // a network is left
		said          string
	}{
		{"static", "198.51.100.21/24", Static, true, `its type "static" is not known, so its address is set as it stands`},
		{"ipv6_odd", "2001:db8::5/64", Static, true, `its type "ipv6_odd" is not known, so its address is set as it stands`},
		{"ipv6_odd", "", Router6, true, `its type "ipv6_odd" is not known, so router advertisements are followed`},
		{"odd", "", Static, false, `its type "odd" is not known`},
	} {
		text := fmt.Sprintf(`{"links": [{"id": "e0", "type": "phy", "ethernet_mac_address": "52:54:00:aa:00:01"}],
			"networks": [{"id": "n0", "link": "e0", "type": %q, "ip_address": %q}]}`, c.kind, c.address)
		d := must.Get(Parse([]byte(text)))(t)
		set := len(d.Networks) == 1 && d.Networks[0].Method == c.method
		if set != c.set || !strings.Contains(strings.Join(d.LeftOut, "\n"), c.said) {
			t.Errorf("type %q, address %q: networks %+v and %q left out, want a network %t with method %d, and %q", c.kind, c.address, d.Networks, d.LeftOut, c.set, c.method, c.said)
		}
	}
}
