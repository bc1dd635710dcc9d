package metal

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestNetworkData: a client's network_data is held to OpenStack's schema.
func TestNetworkData(t *testing.T) {
	t.Parallel()
	const good = `{"links":[{"id":"a","type":"phy","ethernet_mac_address":"52:54:00:00:00:01","mtu":1500},{"id":"b","type":"vif","ethernet_mac_address":"52-54-00-00-00-02","mtu":null},
		{"id":"bond0","type":"bond","ethernet_mac_address":"52:54:00:00:00:01","bond_mode":"802.1ad","bond_links":["a","b"]},
		{"id":"v","type":"vlan","vlan_mac_address":"52:54:00:00:00:01","vlan_link":"bond0","vlan_id":7}],
		"networks":[{"id":"n","network_id":"u","link":"v","type":"ipv4","ip_address":"10.0.0.5","netmask":"255.255.255.0","gateway":"10.0.0.1",
			"routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"10.0.0.1"}]},
			{"id":"m","network_id":"u","link":"v","type":"ipv6","ip_address":"2001:db8::5/64"},{"id":"d","network_id":"u","link":"a","type":"ipv4_dhcp"}],
		"services":[{"type":"dns","address":"10.0.0.1"}]}`
	swap := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("%s is not in the example", from)
		}
		return strings.Replace(good, from, to, 1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"good":                    {good, ""},
		"empty":                   {`{}`, ""},
		"not the format":          {`{"foo":1,"links":"x"}`, "links must be a list"},
		"no services":             {swap(`"services"`, `"other"`), "services is missing"},
		"link of no kind":         {swap(`"type":"vif"`, `"type":"wifi"`), "wifi"},
		"link without its MAC":    {swap(`"ethernet_mac_address":"52-54-00-00-00-02",`, ``), "ethernet_mac_address is missing"},
		"MAC that is none":        {swap(`52-54-00-00-00-02`, `5254`), "no MAC address"},
		"two links of one id":     {swap(`"id":"b"`, `"id":"a"`), "given twice"},
		"bond of nobody":          {swap(`["a","b"]`, `["a","c"]`), "no physical link"},
		"bond mode":               {swap(`802.1ad`, `fast`), "bond_mode"},
		"VLAN on nothing":         {swap(`"vlan_link":"bond0"`, `"vlan_link":"x"`), "vlan_link"},
		"VLAN id":                 {swap(`"vlan_id":7`, `"vlan_id":5000`), "vlan_id"},
		"mtu":                     {swap(`1500`, `70000`), "mtu"},
		"network on no link":      {swap(`"link":"a"`, `"link":"x"`), "no link here"},
		"network of no kind":      {swap(`ipv4_dhcp`, `ipx`), "ipx"},
		"network without id":      {swap(`"id":"d","network_id":"u",`, ``), "id is missing"},
		"address of other family": {swap(`10.0.0.5`, `2001:db8::1`), "no ipv4 address"},
		"mask with a hole":        {swap(`255.255.255.0`, `255.0.255.0`), "no ipv4 mask"},
		"no mask":                 {swap(`"netmask":"255.255.255.0",`, ``), "mask"},
		"route to nowhere":        {swap(`"network":"0.0.0.0"`, `"network":"home"`), "routes[0]"},
		"service that is no DNS":  {swap(`"type":"dns"`, `"type":"ntp"`), "want type dns"},
	} {
		var o Object
		if err := json.Unmarshal([]byte(c.text), &o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := ParseNetworkData(o); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
