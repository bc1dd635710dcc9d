package compute

import (
	"testing"

	"salvor/job"
	"salvor/record"
)

// TestHeldGuests: a guest is compared with its record. A guest that runs elsewhere is held. A guest that runs at home is recorded as
// found. A report of a silent host has no effect.
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
		found  Power
	}{
		"as recorded":                         {PowerOn, []seen{{"home", 5}}, false, "", PowerOn},
		"off as recorded":                     {PowerOff, nil, false, "", PowerOn},
		"elsewhere":                           {PowerOn, []seen{{"away", 6}}, false, "hold", PowerOn},
		"in two places":                       {PowerOn, []seen{{"home", 5}, {"away", 6}}, false, "hold", PowerOn},
		"off and elsewhere":                   {PowerOff, []seen{{"away", 6}}, false, "hold", PowerOn},
		"recorded off, runs":                  {PowerOff, []seen{{"home", 5}}, false, "take on", PowerOn},
		"ahead at home":                       {PowerOn, []seen{{"home", 6}}, false, "take on", PowerOn},
		"no host reports it":                  {PowerOn, nil, false, "take off hold", PowerOn},
		"off, host silent":                    {PowerOff, nil, true, "hold unreadable", PowerOn},
		"home report with unknown power":      {PowerOn, []seen{{"home", 5}}, false, "hold", PowerUnknown},
		"off, home report with unknown power": {PowerOff, []seen{{"home", 5}}, false, "hold", PowerUnknown},
		"its host is not heard":               {PowerOn, []seen{{"home", 5}}, true, "hold unreadable", PowerOn},
	} {
		t.Run(name, func(t *testing.T) {
			h := &HeldGuests{Reports: map[string][]GuestReport{}, Hosts: map[string]*Host{}, Speaks: map[string]bool{"home": !c.silent, "away": true}}
			for _, id := range []string{"home", "away"} {
				h.Hosts[id] = &Host{Record: record.Record{ID: id}, Kind: AgentHost}
			}
			servers := []*Server{{Record: record.Record{ID: "s"}, HostID: "home", State: Active, Power: c.power, Wanted: c.power, Epoch: 5}}
			for _, g := range c.guests {
				if h.Speaks[g.host] {
					h.Reports["s"] = append(h.Reports["s"], GuestReport{HostID: g.host, ServerID: "s", Epoch: g.epoch, Power: c.found})
				}
			}
			got := ""
			for _, d := range h.Compare(servers) {
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

// TestWhatAHeldJobMayNotDo: if a guest runs elsewhere, no job continues that may start a second one. A move is not undone once the
// guest may have left. Each job keeps a choice, so that the database can be released.
func TestWhatAHeldJobMayNotDo(t *testing.T) {
	for name, c := range map[string]struct {
		kind      job.Kind
		action    string
		elsewhere bool
		want      string
	}{
		"start":                         {JobPower, "power on", false, "continue end drop"},
		"start, guest elsewhere":        {JobPower, "power on", true, "drop"},
		"rescue, guest elsewhere":       {JobRescue, "power on", true, "drop"},
		"rescue":                        {JobRescue, "power on", false, "continue end drop"},
		"attach, guest elsewhere":       {JobAttach, "attach", true, "drop"},
		"migrate, not begun":            {JobMigrate, "", false, "continue end"},
		"migrate, prepares":             {JobMigrate, MigratePrepares, false, "continue end"},
		"migrate, leaves":               {JobMigrate, LeaveSource, false, "continue"},
		"migrate, arrives":              {JobMigrate, "arrive", true, "continue"},
		"move":                          {JobMove, "prepare the disks", false, "continue end"},
		"move, guest at the other side": {JobMove, "prepare the disks", true, "continue"},
	} {
		j, got := &job.Job{Kind: c.kind, Action: c.action, Subject: Subject("s")}, ""
		g := HeldGuest{Elsewhere: c.elsewhere}
		if CannotContinue(j, g) == "" {
			got = join(got, "continue")
		}
		if CannotEnd(j, g) == "" {
			got = join(got, "end")
		}
		if CanDrop(j) {
			got = join(got, "drop")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
