package compute

import (
	"testing"

	"salvor/record"
)

// TestHeldGuests: a guest is compared with its record. What runs elsewhere is held, what runs at home is taken as it is, and of a host that
// was not heard nothing is believed.
func TestHeldGuests(t *testing.T) {
	type seen struct {
		host  string
		epoch int64
	}
	for name, c := range map[string]struct {
		power  Power
		guests []seen
		silent bool
		want   string
	}{
		"as recorded":           {PowerOn, []seen{{"home", 5}}, false, ""},
		"off as recorded":       {PowerOff, nil, false, ""},
		"elsewhere":             {PowerOn, []seen{{"away", 6}}, false, "hold"},
		"in two places":         {PowerOn, []seen{{"home", 5}, {"away", 6}}, false, "hold"},
		"off and elsewhere":     {PowerOff, []seen{{"away", 6}}, false, "hold"},
		"recorded off, runs":    {PowerOff, []seen{{"home", 5}}, false, "take on"},
		"ahead at home":         {PowerOn, []seen{{"home", 6}}, false, "take on"},
		"no host reports it":    {PowerOn, nil, false, "take off hold"},
		"its host is not heard": {PowerOn, []seen{{"home", 5}}, true, "hold unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &HeldGuests{Hosts: map[string]*Host{}, Speaks: map[string]bool{"home": !c.silent, "away": true}}
			for _, id := range []string{"home", "away"} {
				h.Hosts[id] = &Host{Record: record.Record{ID: id}, Kind: AgentHost}
			}
			h.Servers = []*Server{{Record: record.Record{ID: "s"}, HostID: "home", State: Active, Power: c.power, Wanted: c.power, Epoch: 5}}
			for _, g := range c.guests {
				h.Reports = append(h.Reports, GuestReport{HostID: g.host, ServerID: "s", Epoch: g.epoch, Power: PowerOn})
			}
			got := ""
			for _, d := range h.Compare() {
				if d.Take == PowerOn {
					got += "take on"
				}
				if d.Take == PowerOff {
					got += "take off"
				}
				if d.Hold {
					got = join(got, "hold")
				}
				if d.Unreadable != "" {
					got = join(got, "unreadable")
				}
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + " " + b
}
