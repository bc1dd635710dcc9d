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

// TestJobsThatNoDecisionMoves: no job goes on that may start a second guest, even if the database is released as it is. No migration ends whose
// guest may have left its source, even if all operations end.
func TestJobsThatNoDecisionMoves(t *testing.T) {
	for name, c := range map[string]struct {
		kind      job.Kind
		action    string
		elsewhere bool
		ends      bool // even if the database is released as it is
		goesOn    bool // even if all operations end
	}{
		"start":                         {kind: JobPower, action: "power on"},
		"start, guest elsewhere":        {kind: JobPower, action: "power on", elsewhere: true, ends: true},
		"rescue":                        {kind: JobRescue, action: "power on"},
		"rescue, guest elsewhere":       {kind: JobRescue, action: "power on", elsewhere: true, ends: true},
		"attach, guest elsewhere":       {kind: JobAttach, action: "attach", elsewhere: true, ends: true},
		"migrate, not begun":            {kind: JobMigrate},
		"migrate, prepares":             {kind: JobMigrate, action: MigratePrepares},
		"migrate, leaves":               {kind: JobMigrate, action: LeaveSource, goesOn: true},
		"migrate, arrives":              {kind: JobMigrate, action: "arrive", elsewhere: true, goesOn: true},
		"move":                          {kind: JobMove, action: "prepare the disks"},
		"move, guest at the other side": {kind: JobMove, action: "prepare the disks", elsewhere: true},
	} {
		j := &job.Job{Kind: c.kind, Action: c.action, Subject: Subject("s")}
		if why := EndsAtRelease(j, HeldGuest{Elsewhere: c.elsewhere}); (why != "") != c.ends {
			t.Errorf("%s: ends although the database is released as it is, because of %q; want %t", name, why, c.ends)
		}
		if why := GoesOnAtRelease(j); (why != "") != c.goesOn {
			t.Errorf("%s: goes on although all operations end, because of %q; want %t", name, why, c.goesOn)
		}
	}
}
