package compute

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"salvor/record"
)

// anOutlook makes one up: hosts with stores that they share or do not, servers with all kinds of disks, and words of destinations.
func anOutlook(r *rand.Rand) *PlanInput {
	o := &PlanInput{Up: map[string]bool{}, Images: map[string]*Image{"image": {Name: "debian"}}, Moving: map[string]*Move{}, Consent: map[string]bool{},
		Policy: []ReimagePolicy{ReimageAsk, ReimageNever, ReimageAlways}[r.IntN(3)], Sights: map[string]map[string]DiskSight{}}
	for i := range 2 + r.IntN(6) {
		h := &Host{Record: record.Record{ID: fmt.Sprint("host-", i)}, Num: int64(i), Name: fmt.Sprint("vm", i), Kind: AgentHost,
			Inventory: Inventory{VCPUs: 1 + r.IntN(2), RAM: 1024 * (1 + r.IntN(8)), Disk: 10 * (1 + r.IntN(5)), Bridges: []string{"br0", "br1"}[:1+r.IntN(2)]}}
		h.UsedRAM = r.IntN(2048)
		h.Inventory.Stores = append(h.Inventory.Stores, DiskStore{Name: "local", Marker: "local-" + h.ID})
		if r.IntN(3) > 0 {
			h.Inventory.Stores = append(h.Inventory.Stores, DiskStore{Name: fmt.Sprint("shared", r.IntN(2)), Marker: "shared"})
		}
		if r.IntN(12) == 0 { // it cannot be read
			h.Inventory.Stores[len(h.Inventory.Stores)-1].Marker = ""
		}
		o.Hosts, o.Up[h.ID] = append(o.Hosts, h), r.IntN(5) > 0
	}
	o.Source = o.Hosts[0]
	o.Up[o.Source.ID] = false
	for i := range r.IntN(30) {
		s := &Server{Record: record.Record{ID: fmt.Sprint("server-", i)}, Num: int64(i), HostID: o.Source.ID, State: Active, Flavor: Flavor{VCPUs: 1 + r.IntN(3), RAM: 256 * (1 + r.IntN(6))}}
		s.Metadata = map[string]string{PriorityKey: []string{"", "3", "-1", "much"}[r.IntN(4)]}
		s.NICs = []NIC{{Bridge: []string{"br0", "br1"}[r.IntN(2)]}}
		switch store := o.Source.Inventory.Stores[r.IntN(len(o.Source.Inventory.Stores))].Name; r.IntN(3) {
		case 0:
			s.Disks = []Disk{{Name: "vda", VolumeID: "volume"}}
		default:
			s.Disks = []Disk{{Name: "vda", Store: store, SizeGiB: 1 + r.IntN(4), ImageID: []string{"image", "gone"}[r.IntN(2)]}}
		}
		if r.IntN(8) == 0 {
			s.Task = Deleting
		}
		if r.IntN(8) == 0 {
			s.Drift = []Drift{{Part: "disk vda", Text: "lies elsewhere", Disk: r.IntN(2) == 0}}
		}
		o.Consent[s.ID] = r.IntN(2) == 0
		for _, h := range o.Hosts {
			if r.IntN(4) == 0 {
				if o.Sights[h.ID] == nil {
					o.Sights[h.ID] = map[string]DiskSight{}
				}
				o.Sights[h.ID][s.ID] = DiskSight{Sight: []Sight{SightSame, SightAbsent, SightUnknown, SightGuest, SightMissing}[r.IntN(5)]}
			}
		}
		o.Servers = append(o.Servers, s)
	}
	return o
}

// TestDraftHolds: whatever the world is like, a plan names each server once, gives no host more than it has, keeps no disk where it is
// not seen, re-images none whose disk another host may see, and is the same each time that it is made.
func TestDraftHolds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 5))
		o := anOutlook(r)
		items := DraftPlan(o)
		again := *o
		again.Servers, again.Hosts = slices.Clone(o.Servers), slices.Clone(o.Hosts)
		r.Shuffle(len(again.Servers), func(i, j int) { again.Servers[i], again.Servers[j] = again.Servers[j], again.Servers[i] })
		r.Shuffle(len(again.Hosts), func(i, j int) { again.Hosts[i], again.Hosts[j] = again.Hosts[j], again.Hosts[i] })
		if !reflect.DeepEqual(items, DraftPlan(&again)) {
			t.Fatalf("seed %d: the same world gave two plans", seed)
		}
		if err := holds(o, items); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestOneMoreFailure: nothing is said where nothing is moved, and nothing good where a server stays.
func TestOneMoreFailure(t *testing.T) {
	t.Parallel()
	room := Inventory{VCPUs: 8, RAM: 4096, Disk: 100}
	a, b, c := &Host{Record: record.Record{ID: "a"}}, &Host{Record: record.Record{ID: "b"}, Kind: AgentHost, Inventory: room}, &Host{Record: record.Record{ID: "c"}, Kind: AgentHost, Inventory: room}
	o := &PlanInput{Source: a, Hosts: []*Host{a, b, c}, Up: map[string]bool{"b": true, "c": true},
		Servers: []*Server{{Record: record.Record{ID: "x"}, Flavor: Flavor{VCPUs: 1, RAM: 512}}, {Record: record.Record{ID: "y"}, Flavor: Flavor{VCPUs: 1, RAM: 512}}}}
	goes, stays := PlanItem{ServerID: "x", Disposition: KeepDisk, DestID: "b"}, PlanItem{ServerID: "y", Disposition: Cannot}
	for _, want := range []struct {
		items []PlanItem
		ok    bool
		why   string
	}{{nil, false, ""}, {[]PlanItem{stays}, false, ""}, {[]PlanItem{goes, stays}, false, "1 of the 2 servers stay even now"}, {[]PlanItem{goes}, true, ""}} {
		if ok, why := SurvivesNextFailure(o, want.items, b, nil); ok != want.ok || why != want.why {
			t.Errorf("%+v: %v %q, want %v %q", want.items, ok, why, want.ok, want.why)
		}
	}
}

func holds(o *PlanInput, items []PlanItem) error {
	seen := map[string]bool{}
	last, passed := 0, false
	for i := range items {
		item := &items[i]
		s := o.Servers[slices.IndexFunc(o.Servers, func(s *Server) bool { return s.ID == item.ServerID })]
		if seen[s.ID] || item.Why == "" {
			return fmt.Errorf("server %s comes twice, or without a reason: %+v", s.ID, item)
		}
		seen[s.ID] = true
		if passed && item.Priority > last {
			return fmt.Errorf("priority %d comes after %d", item.Priority, last)
		}
		last, passed = item.Priority, true
		if (item.DestID == "") != (item.Disposition == Cannot) {
			return fmt.Errorf("destination and disposition of %+v", item)
		}
		if err := fair(o, s, item); err != nil {
			return err
		}
	}
	if len(seen) != len(o.Servers) {
		return fmt.Errorf("%d of %d servers", len(seen), len(o.Servers))
	}
	for _, h := range newDraftWithItems(o, items).hosts {
		if i := slices.IndexFunc(items, func(i PlanItem) bool { return i.DestID == h.ID }); i >= 0 && (h.UsedRAM > h.Inventory.RAM || h.UsedVCPUs > h.Inventory.VCPUs*vcpuRatio || h.UsedDisk > h.Inventory.Disk) {
			return fmt.Errorf("host %s is given more than it has: %+v", h.ID, h)
		}
	}
	return nil
}

// fair judges one item by the rules of disks.
func fair(o *PlanInput, s *Server, item *PlanItem) error {
	if item.DestID == "" {
		return nil
	}
	if dataElsewhere(s.Drift) != nil {
		return fmt.Errorf("server %s is moved, and its disk lies elsewhere: %+v", s.ID, item)
	}
	dest := o.Hosts[slices.IndexFunc(o.Hosts, func(h *Host) bool { return h.ID == item.DestID })]
	sight := o.Sights[dest.ID][s.ID].Sight
	marker := ""
	if s.Disks[0].VolumeID == "" {
		marker = markerOf(s.Disks[0], o.Source)
	}
	shared := slices.ContainsFunc(o.Hosts, func(h *Host) bool { return h.ID != o.Source.ID && h.StoreOf(marker) != nil })
	notProven := marker == "" || slices.ContainsFunc(o.Hosts, func(h *Host) bool {
		return h.ID != o.Source.ID && slices.ContainsFunc(h.Inventory.Stores, func(d DiskStore) bool { return d.Marker == "" })
	})
	switch {
	case dest.ID == o.Source.ID || !o.Up[dest.ID] || !slices.Contains(dest.Inventory.Bridges, s.NICs[0].Bridge):
		return fmt.Errorf("server %s goes to host %s, which is none", s.ID, dest.ID)
	case sight == SightGuest || sight == SightUnknown || sight == SightMissing && marker != "" || sight == SightAbsent && item.Disposition == KeepDisk:
		return fmt.Errorf("server %s goes to host %s, which said %s", s.ID, dest.ID, sight)
	case item.Disposition == KeepDisk && dest.StoreOf(marker) == nil:
		return fmt.Errorf("server %s keeps a disk that host %s does not see", s.ID, dest.ID)
	case item.Disposition == Reimage && (shared || o.Policy == ReimageNever || s.Disks[0].ImageID != "image"):
		return fmt.Errorf("server %s is re-imaged without need, right or image", s.ID)
	case item.Disposition == Reimage && notProven:
		return fmt.Errorf("server %s is re-imaged, though someone may see its disk", s.ID)
	case item.Disposition == Reimage && item.Consented != (o.Policy == ReimageAlways || o.Consent[s.ID]):
		return fmt.Errorf("consent of %+v", item)
	case item.Disposition == Reattach && marker != "":
		return fmt.Errorf("server %s has more than volumes", s.ID)
	case s.Task == Deleting:
		return fmt.Errorf("server %s is being deleted", s.ID)
	}
	return nil
}

// A server that is stopped, paused, suspended or in error has data to lose like one that runs; only one that is being built has none.
func TestReimagingNeedsConsentInEveryState(t *testing.T) {
	for state, need := range map[VMState]bool{Active: true, Stopped: true, Paused: true, Suspended: true, Errored: true, Rescued: true, Building: false} {
		local := func(id string) *Host {
			return &Host{Record: record.Record{ID: id}, Name: id, Kind: AgentHost, Inventory: Inventory{VCPUs: 4, RAM: 4096, Disk: 100,
				Stores: []DiskStore{{Name: "local", Marker: "of " + id, SizeGiB: 100, FreeGiB: 100}}}}
		}
		source, other := local("a"), local("b")
		s := &Server{Record: record.Record{ID: "s"}, HostID: source.ID, State: state, LaunchedAt: time.Unix(1, 0), Flavor: Flavor{VCPUs: 1, RAM: 256},
			Disks: []Disk{{Name: "vda", Store: "local", SizeGiB: 1, ImageID: "image"}}}
		o := &PlanInput{Source: source, Servers: []*Server{s}, Hosts: []*Host{source, other}, Up: map[string]bool{"b": true},
			Images: map[string]*Image{"image": {Name: "debian"}}, Policy: ReimageAsk}
		item := DraftPlan(o)[0]
		if item.Disposition != Reimage || item.NeedsConsent != need || item.Consented == need {
			t.Errorf("%s: %+v", state, item)
		}
		o.Consent = map[string]bool{"s": true}
		if item = DraftPlan(o)[0]; !item.Consented {
			t.Errorf("%s, named: %+v", state, item)
		}
	}
}
