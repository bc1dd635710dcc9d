package compute

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sightings draws what is perceived of a fleet.
func sightings(t *rapid.T) FleetObservation {
	v := FleetObservation{Listening: time.Duration(rapid.Int64Range(0, 60).Draw(t, "listening")) * time.Second, Groups: map[string]*HostGroup{}}
	groups := []string{"", "a", "b"}
	for _, name := range groups[1:] {
		v.Groups[name] = &HostGroup{Name: name, Healing: rapid.Bool().Draw(t, "healing"),
			MaxHosts: rapid.IntRange(1, 3).Draw(t, "max hosts"), MaxShare: rapid.IntRange(1, 100).Draw(t, "max share")}
	}
	sense := rapid.SampledFrom([]Signal{Unknown, Lives, Dead})
	for i := range rapid.IntRange(0, 12).Draw(t, "hosts") {
		h := HostObservation{HostID: fmt.Sprintf("h%02d", i), Group: rapid.SampledFrom(groups).Draw(t, "group"),
			Silent: time.Duration(rapid.Int64Range(0, 30).Draw(t, "silent")) * time.Second, HadLease: rapid.IntRange(0, 9).Draw(t, "heard") > 0,
			Excluded: rapid.IntRange(0, 9).Draw(t, "aside") == 0, Servers: rapid.IntRange(0, 3).Draw(t, "servers"),
			Power: sense.Draw(t, "power"), Storage: sense.Draw(t, "storage"), Neighbours: rapid.IntRange(0, 3).Draw(t, "others"),
			Watchdog: rapid.SampledFrom([]string{"", "i6300esb"}).Draw(t, "watchdog")}
		h.NeighboursAnswered = rapid.IntRange(0, h.Neighbours).Draw(t, "answered")
		h.NeighboursReached = rapid.IntRange(0, h.NeighboursAnswered).Draw(t, "reached")
		if rapid.IntRange(0, 4).Draw(t, "tried") == 0 {
			h.TriedAgo = time.Minute
		}
		h.Silent = min(h.Silent, v.Listening) // silence is counted while it could be heard
		v.Hosts = append(v.Hosts, h)
	}
	return v
}

// TestJudge: whatever is perceived, the gates hold.
func TestJudge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := sightings(t)
		by := map[string]HostObservation{}
		living, silent, total := 0, map[string]int{}, map[string]int{}
		for _, h := range v.Hosts {
			by[h.HostID] = h
			if !h.HadLease || h.Excluded && h.Silent >= Suspect { // a fenced one that speaks counts
				continue
			}
			total[h.Group]++
			if h.Silent >= Suspect {
				silent[h.Group]++
			} else {
				living++
			}
		}
		healed := v.healed()
		for _, verdict := range Evaluate(v) {
			h := by[verdict.HostID]
			g := v.group(h.Group)
			if verdict.Why == "" {
				t.Errorf("%+v: no word of why", verdict)
			}
			if verdict.Heal {
				if healed[h.Group]++; healed[h.Group] > g.MaxHosts {
					t.Errorf("%d hosts of %q are healed, of at most %d", healed[h.Group], h.Group, g.MaxHosts)
				}
				if !verdict.Suspected || !g.Healing || h.TriedAgo != 0 || h.Servers == 0 {
					t.Errorf("healed: %+v, group %+v", h, g)
				}
			}
			if !verdict.Suspected {
				continue
			}
			other := h.Power == Dead || h.Storage == Dead || h.NeighboursAnswered > 0 && h.NeighboursReached == 0 || h.Watchdog != "" && h.Silent >= SelfFenceEvidence
			switch {
			case v.Listening < Suspect:
				t.Errorf("suspected after listening for %s", v.Listening)
			case h.Excluded || !h.HadLease || h.Silent < Suspect:
				t.Errorf("suspected by no lapse of its lease: %+v", h)
			case !other:
				t.Errorf("suspected by its lease alone: %+v", h)
			case living == 0:
				t.Error("suspected while everyone was silent")
			case silent[h.Group] > 1 && silent[h.Group]*100 >= g.MaxShare*total[h.Group]:
				t.Errorf("suspected while %d of %d were silent, at %d%%", silent[h.Group], total[h.Group], g.MaxShare)
			}
		}
	})
}

// TestJudgeWords: what is said of a host in each case.
func TestJudgeWords(t *testing.T) {
	t.Parallel()
	alive := HostObservation{HostID: "z", HadLease: true, Group: "a"}
	other := HostObservation{HostID: "y", HadLease: true, Group: "a"}
	for name, c := range map[string]struct {
		host   HostObservation
		change func(*FleetObservation)
		dead   bool
		heal   bool
		said   string
	}{
		"the lease alone":        {host: HostObservation{}, said: "nothing else speaks of its death"},
		"and the BMC":            {host: HostObservation{Power: Dead}, dead: true, heal: true, said: "its BMC says off"},
		"the BMC says on":        {host: HostObservation{Power: Lives}, said: "nothing else"},
		"and the storage":        {host: HostObservation{Storage: Dead}, dead: true, heal: true, said: "no guest of it is connected"},
		"and two neighbours":     {host: HostObservation{Neighbours: 3, NeighboursAnswered: 2}, dead: true, heal: true, said: "none of 2 neighbours"},
		"one neighbour of three": {host: HostObservation{Neighbours: 3, NeighboursAnswered: 1}, said: "nothing else"},
		"the only neighbour":     {host: HostObservation{Neighbours: 1, NeighboursAnswered: 1}, dead: true, heal: true, said: "none of 1 neighbours"},
		"a neighbour reaches it": {host: HostObservation{Neighbours: 2, NeighboursAnswered: 2, NeighboursReached: 1, Power: Dead}, said: "1 of 2 neighbours reach it"},
		"a watchdog":             {host: HostObservation{Silent: SelfFenceEvidence, Watchdog: "i6300esb"}, dead: true, heal: true, said: "i6300esb has reset it"},
		"a watchdog, too early":  {host: HostObservation{Silent: SelfFenceEvidence - 1, Watchdog: "i6300esb"}, said: "nothing else"},
		"no servers":             {host: HostObservation{Power: Dead, Servers: -1}, dead: true, said: "its BMC"},
		"no healing":             {host: HostObservation{Power: Dead}, change: func(v *FleetObservation) { v.Groups["a"].Healing = false }, dead: true, said: "its BMC"},
		"healed before":          {host: HostObservation{Power: Dead, TriedAgo: time.Minute}, dead: true, said: "its BMC"},
		"another was healed":     {host: HostObservation{Power: Dead}, change: func(v *FleetObservation) { v.Hosts[1].TriedAgo = time.Minute }, dead: true, said: "it is not healed: 1 of its group"},
		"half of them":           {host: HostObservation{Power: Dead}, change: func(v *FleetObservation) { v.Hosts[1].Silent = Suspect; v.Hosts = append(v.Hosts, alive) }, said: PartitionNote},
		"all of them":            {host: HostObservation{Power: Dead}, change: func(v *FleetObservation) { v.Hosts = v.Hosts[:1] }, said: "all 1 hosts fell silent"},
		"half of them, for long": {host: HostObservation{Power: Dead, Silent: ignoreAfter + Suspect}, change: func(v *FleetObservation) { v.Hosts[1].Silent = ignoreAfter; v.Hosts = append(v.Hosts, alive) }, said: PartitionNote},
		"all of them, for long":  {host: HostObservation{Power: Dead, Silent: ignoreAfter + Suspect}, change: func(v *FleetObservation) { v.Hosts = v.Hosts[:1] }, said: PartitionNote},
		"alone, for long":        {host: HostObservation{Power: Dead, Silent: ignoreAfter + Suspect}, dead: true, heal: true, said: "its BMC"},
		"one is gone for long":   {host: HostObservation{Power: Dead}, change: func(v *FleetObservation) { v.Hosts[1].Silent = ignoreAfter }, dead: true, heal: true, said: "its BMC"},
	} {
		h := c.host
		h.HostID, h.HadLease, h.Group, h.Silent, h.Servers = "x", true, "a", max(h.Silent, Suspect), h.Servers+1
		v := FleetObservation{Hosts: []HostObservation{h, other, alive}, Listening: time.Hour, Groups: map[string]*HostGroup{"a": {Name: "a", Healing: true, MaxHosts: 1, MaxShare: 50}}}
		if c.change != nil {
			c.change(&v)
		}
		var got Verdict
		for _, verdict := range Evaluate(v) {
			if verdict.HostID == "x" {
				got = verdict
			}
		}
		if got.Suspected != c.dead || got.Heal != c.heal || !strings.Contains(got.Why, c.said) {
			t.Errorf("%s: %+v, want dead %v, heal %v, %q", name, got, c.dead, c.heal, c.said)
		}
		v.Listening = Suspect - 1
		if Evaluate(v) != nil {
			t.Errorf("%s: judged right after a start", name)
		}
	}
}
