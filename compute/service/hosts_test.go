package service_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"salvor/compute"
	"salvor/compute/service"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

func TestAJoinTokenLetsOneHostInOnce(t *testing.T) {
	w := newWorld(t)
	row, token, err := w.JoinTokens.Issue(w.ctx, time.Minute, "rack 1", admin.Asker)
	w.no(err)
	if row.Digest == token.Reveal() || strings.Contains(fmt.Sprintf("%+v", row), token.Reveal()) {
		t.Fatal("the token is kept in clear")
	}
	var both sync.WaitGroup
	results := make([]error, 4)
	ids := []string{newID(), newID(), newID(), newID()}
	for i := range results {
		both.Go(func() {
			_, results[i] = w.Hosts.Join(w.ctx, token, ids[i], "h", compute.Certificate{Serial: "01"}, ids[i], record.Asker{})
		})
	}
	both.Wait()
	won := ""
	for i, err := range results {
		switch {
		case err == nil && won == "":
			won = ids[i]
		case err == nil:
			t.Fatal("two hosts joined with one token")
		case !problem.Is(err, problem.Forbidden):
			t.Fatal(err)
		}
	}
	_, err = w.Hosts.Join(w.ctx, token, won, "h", compute.Certificate{Serial: "02"}, won, record.Asker{}) // its first answer was lost
	w.no(err)
	_, err = w.Hosts.Join(w.ctx, token, won, "h", compute.Certificate{Serial: "02"}, "another key", record.Asker{}) // whoever read the token
	w.want(err, problem.Forbidden)
	w.pass(2 * time.Minute)
	for _, bad := range []secret.Value{token, {}, secret.New("x")} {
		_, err := w.Hosts.Join(w.ctx, bad, newID(), "h", compute.Certificate{Serial: "01"}, "key", record.Asker{})
		w.want(err, problem.Forbidden)
	}
}

// Whoever has a token is not yet whoever he says.
func TestAHostThatLivesIsJoinedByNobody(t *testing.T) {
	w := newWorld(t)
	_, token, err := w.JoinTokens.Issue(w.ctx, time.Hour, "", admin.Asker)
	w.no(err)
	_, err = w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1"})
	w.no(err)
	_, err = w.Hosts.Join(w.ctx, token, w.host.ID, "host-a", compute.Certificate{Serial: "02"}, w.host.ID, record.Asker{})
	w.want(err, problem.Conflict)
	w.pass(2 * compute.Suspect)
	_, err = w.Hosts.Join(w.ctx, token, w.host.ID, "host-a", compute.Certificate{Serial: "02"}, "another key", record.Asker{})
	w.want(err, problem.Forbidden)
	if !strings.Contains(err.Error(), "--host "+w.host.ID) {
		t.Error(err)
	}
	_, err = w.Hosts.Join(w.ctx, token, w.host.ID, "host-a", compute.Certificate{Serial: "02"}, w.host.ID, record.Asker{}) // it lost its certificate
	w.no(err)
	_, _, err = w.JoinTokens.IssueFor(w.ctx, time.Hour, "", "no-such-host", admin.Asker)
	w.want(err, problem.NotFound)
	_, token, err = w.JoinTokens.IssueFor(w.ctx, time.Hour, "", "host-a", admin.Asker)
	w.no(err)
	_, err = w.Hosts.Join(w.ctx, token, newID(), "host-b", compute.Certificate{Serial: "03"}, "key", record.Asker{})
	w.want(err, problem.Forbidden)
	_, err = w.Hosts.Join(w.ctx, token, w.host.ID, "host-a", compute.Certificate{Serial: "03"}, "another key", record.Asker{}) // it lost its disk
	w.no(err)
}

func TestARevokedHostIsShutOut(t *testing.T) {
	w := newWorld(t)
	yes, no, before := true, false, w.now()
	w.no(w.Leases.Allow(w.ctx, w.host.ID, "01", before))
	w.pass(time.Minute)
	_, err := w.Hosts.SetService(w.ctx, "host-a", compute.Service{Revoked: &yes}, admin.Asker)
	w.no(err)
	w.want(w.Leases.Allow(w.ctx, w.host.ID, "01", before), problem.Forbidden)
	_, err = w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1"})
	w.want(err, problem.Forbidden)
	w.want(w.Hosts.Certified(w.ctx, w.host.ID, compute.Certificate{Serial: "02"}, record.Asker{}), problem.Forbidden)
	_, token, err := w.JoinTokens.Issue(w.ctx, time.Hour, "", admin.Asker)
	w.no(err)
	_, err = w.Hosts.Join(w.ctx, token, w.host.ID, "host-a", compute.Certificate{Serial: "03"}, w.host.ID, record.Asker{})
	w.want(err, problem.Forbidden)
	_, err = w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{Revoked: &no}, admin.Asker)
	w.no(err)
	w.want(w.Leases.Allow(w.ctx, w.host.ID, "01", before), problem.Forbidden) // the certificate that was revoked
	_, err = w.Hosts.Join(w.ctx, token, w.host.ID, "host-a", compute.Certificate{Serial: "03"}, w.host.ID, record.Asker{})
	w.no(err)
	w.no(w.Leases.Allow(w.ctx, w.host.ID, "03", w.now()))
	w.want(w.Leases.Allow(w.ctx, w.host.ID, "01", before), problem.Forbidden)
	w.pass(time.Minute)
	w.no(w.Hosts.Certified(w.ctx, w.host.ID, compute.Certificate{Serial: "04"}, record.Asker{}))
	w.no(w.Leases.Allow(w.ctx, w.host.ID, "03", w.now())) // the answer with the next one was lost
	w.want(w.Leases.Allow(w.ctx, newID(), "01", before), problem.NotFound)
}

func TestAHostLivesWhileItRenews(t *testing.T) {
	w := newWorld(t)
	up := func() bool {
		lives := must.Get(w.Liveness.All(w.ctx))(w.t)
		return lives[w.host.ID].Up
	}
	if !up() {
		t.Fatal("down after its first renewal")
	}
	w.no(w.Leases.FlushLeases(w.ctx))
	if stored, err := w.store.Leases(w.ctx); err != nil || stored[w.host.ID].BootID != "boot-1" {
		t.Fatal(stored, err)
	}
	w.pass(compute.Suspect)
	if up() {
		t.Fatal("up though it is silent")
	}
	out := must.Get(w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1"}))(w.t)
	if out.Resend || !up() {
		t.Fatal(out)
	}
	yes := true
	must.Get(w.Hosts.SetService(w.ctx, w.host.ID, compute.Service{ForcedDown: &yes}, admin.Asker))(w.t)
	if up() {
		t.Fatal("up though it is forced down")
	}
}

func TestANewProcessAsksForEverythingAgain(t *testing.T) {
	w := newWorld(t)
	again := service.New(w.store, w.store, service.Options{}, w.now)
	out := must.Get(again.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1"}))(w.t)
	if !out.Resend {
		t.Fatal("nothing is asked for")
	}
}

func TestANewBootGetsTheOrdersAndItsGuestsAreStartedAgain(t *testing.T) {
	w := newWorld(t)
	s, off := w.server(alice, compute.Active), w.server(alice, compute.Stopped)
	guests := []compute.Guest{{ID: s.ID, Power: compute.PowerOn}, {ID: off.ID, Power: compute.PowerOff}}
	must.Get(w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1", Guests: guests, HasGuests: true}))(w.t)
	w.tx(func(tx job.Tx) error {
		_, err := w.store.InsertOrder(tx, &compute.Order{ID: newID(), HostID: w.host.ID, BootID: "boot-1", ServerID: s.ID, Verb: compute.Look, JobID: newID(), Action: "a", Args: []byte("{}")})
		return err
	})
	guests[0].Power = compute.PowerOff
	out := must.Get(w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-2", Guests: guests, HasGuests: true}))(w.t)
	if !out.Resend || !out.Servers[s.ID].Busy || out.Servers[s.ID].Power != compute.PowerOn || out.Servers[off.ID].Busy {
		t.Fatalf("%+v", out)
	}
	orders := must.Get(w.store.OpenOrders(w.ctx, w.host.ID))(w.t)
	if len(orders) != 1 || orders[0].BootID != "boot-2" {
		t.Fatalf("%+v", orders)
	}
	if jobs := w.jobs(s.ID); len(jobs) != 1 || jobs[0].Kind != compute.JobReconcile || !strings.Contains(string(jobs[0].Args), `"power":"on"`) {
		t.Fatalf("%+v", jobs)
	}
	if len(w.jobs(off.ID)) != 0 {
		t.Fatal("a stopped server is worked on")
	}
}

func TestWhatAHostSees(t *testing.T) {
	for name, c := range map[string]struct {
		is     compute.VMState
		seen   *compute.Guest
		state  compute.VMState
		wanted compute.Power
		mended compute.Power
		// settles: the guest's own deed is taken.
		settles bool
	}{
		"nothing new":           {compute.Active, &compute.Guest{Power: compute.PowerOn}, compute.Active, compute.PowerOn, "", false},
		"it powered itself off": {compute.Active, &compute.Guest{Power: compute.PowerOff}, compute.Stopped, compute.PowerOff, "", true},
		"it crashed":            {compute.Active, &compute.Guest{Power: compute.PowerCrashed}, compute.Active, compute.PowerOn, compute.PowerOn, true},
		"it was started":        {compute.Stopped, &compute.Guest{Power: compute.PowerOn}, compute.Stopped, compute.PowerOff, compute.PowerOff, false},
		"an I/O error":          {compute.Active, &compute.Guest{Power: compute.PowerPaused}, compute.Active, compute.PowerOn, "", false},
		"it is gone":            {compute.Active, nil, compute.Active, compute.PowerOn, compute.PowerOn, false},
		"of a later epoch":      {compute.Active, &compute.Guest{Power: compute.PowerOff, Epoch: 9}, compute.Active, compute.PowerOn, "", false},
		"in error":              {compute.Errored, &compute.Guest{Power: compute.PowerOn}, compute.Errored, compute.PowerUnknown, "", false},
	} {
		w := newWorld(t)
		s := w.server(alice, c.is)
		var guests []compute.Guest
		if c.seen != nil {
			c.seen.ID = s.ID
			guests = append(guests, *c.seen)
		}
		again, _ := w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1", Guests: guests, HasGuests: true})
		if again.Resend != c.settles {
			t.Errorf("%s: resend %v", name, again.Resend) // it may be older than the server's last change
		}
		if c.settles && !again.Servers[s.ID].Busy {
			t.Errorf("%s: the host may start it by itself", name)
		}
		w.pass(time.Minute)
		for range 3 { // looking again changes nothing
			must.Get(w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1", Guests: guests, HasGuests: true}))(w.t)
		}
		s = w.read(s.ID)
		if s.State != c.state || s.Wanted != c.wanted {
			t.Errorf("%s: %s, wanted %s", name, s.State, s.Wanted)
		}
		jobs := w.jobs(s.ID)
		if c.mended == "" && len(jobs) != 0 || c.mended != "" && (len(jobs) != 1 || jobs[0].Kind != compute.JobReconcile || !strings.Contains(string(jobs[0].Args), `"power":"`+string(c.mended)+`"`)) {
			t.Errorf("%s: %+v", name, jobs)
		}
	}
}

func TestARescueSystemThatEndsBeginsAnewByAJob(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.act(s.ID, compute.Act{Action: compute.Rescue}, alice)
	w.finish(s.ID, func(s *compute.Server) {
		session := *s.Rescue
		session.State = rescue.Ready
		s.Rescue, s.State, s.Power, s.Wanted = &session, compute.Rescued, compute.PowerOn, compute.PowerOn
	})
	seen := func(p compute.Power) compute.Renewed {
		out, err := w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1", HasGuests: true, Guests: []compute.Guest{{ID: s.ID, Power: p}}})
		w.no(err)
		if !out.Servers[s.ID].Busy {
			t.Errorf("%s: the host may start a rescue system that nobody would unlock", p)
		}
		return out
	}
	if out := seen(compute.PowerOff); !out.Resend || len(w.jobs(s.ID)) != 0 {
		t.Errorf("a word that may be older than the session is taken: %+v", out)
	}
	w.pass(time.Minute)
	seen(compute.PowerOn)
	seen(compute.PowerOff)
	seen(compute.PowerOff)
	jobs := w.jobs(s.ID)
	if len(jobs) != 1 || jobs[0].Kind != compute.JobReconcile || !strings.Contains(string(jobs[0].Args), `"power":"on"`) {
		t.Errorf("%+v", jobs)
	}
	if now := w.read(s.ID); now.State != compute.Rescued || now.Wanted != compute.PowerOn || now.Rescue.State != rescue.Ready {
		t.Errorf("%s, wanted %s, session %s", now.State, now.Wanted, now.Rescue.State)
	}
}

func TestAHostWithServersStays(t *testing.T) {
	w := newWorld(t)
	w.server(alice, compute.Active)
	w.want(w.Hosts.Remove(w.ctx, "host-a", "", admin.Asker), problem.Conflict)
	other := w.join("host-b")
	w.no(w.Hosts.Remove(w.ctx, other.ID, "", admin.Asker))
	w.join("twin")
	w.join("twin")
	_, err := w.Hosts.Host(w.ctx, "twin")
	w.want(err, problem.Conflict)
}

func TestWhyNoHostIsValid(t *testing.T) {
	hosts := []*compute.Host{
		{Name: "a", Disabled: true, DisabledReason: "repair"},
		{Name: "b", Inventory: compute.Inventory{VCPUs: 4, RAM: 1024}, UsedRAM: 512},
		{Name: "c", Inventory: compute.Inventory{VCPUs: 4, RAM: 4096, Disk: 100, Stores: []compute.DiskStore{{Name: "x"}}}},
		{Name: "d", ForcedDown: true}, {Name: "e", Kind: compute.GanetiHost, Inventory: compute.Inventory{VCPUs: 9, RAM: 9999}},
	}
	_, err := compute.Pick(hosts, func(*compute.Host) bool { return true }, compute.Needs{VCPUs: 1, RAM: 1024, Disk: 1, Bridges: []string{"br0"}})
	want := "No valid host was found: a: disabled (repair); b: 512 MiB of RAM free, 1024 needed; c: no bridge br0; d: forced down; e: a host of a cluster takes servers only if it, or its zone, is asked for"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := compute.Pick(nil, nil, compute.Needs{}); err == nil || !strings.Contains(err.Error(), "no hosts") {
		t.Error(err)
	}
}

// TestPickNeverOverfills: whatever hosts there are, the picked one has room, and if none is picked none has.
func TestPickNeverOverfills(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var hosts []*compute.Host
		for i := range rapid.IntRange(0, 8).Draw(t, "hosts") {
			hosts = append(hosts, &compute.Host{
				Num: int64(i), Name: fmt.Sprint("h", i), Disabled: rapid.Bool().Draw(t, "disabled"), UsedRAM: rapid.IntRange(0, 4096).Draw(t, "used"),
				Inventory: compute.Inventory{VCPUs: 4, RAM: rapid.IntRange(0, 4096).Draw(t, "ram")},
			})
		}
		n := compute.Needs{VCPUs: 1, RAM: rapid.IntRange(1, 4096).Draw(t, "need")}
		down := rapid.IntRange(0, 8).Draw(t, "down")
		up := func(h *compute.Host) bool { return h.Num != int64(down) }
		fits := func(h *compute.Host) bool { return up(h) && !h.Disabled && h.Inventory.RAM-h.UsedRAM >= n.RAM }
		best, err := compute.Pick(hosts, up, n)
		if best != nil && (err != nil || !fits(best)) {
			t.Fatalf("%+v %v", best, err)
		}
		for _, h := range hosts {
			if fits(h) && (best == nil || h.Inventory.RAM-h.UsedRAM > best.Inventory.RAM-best.UsedRAM) {
				t.Fatalf("%+v is better than %+v", h, best)
			}
		}
	})
}

func TestRecordsAreHeldToTheirRules(t *testing.T) {
	w := newWorld(t)
	for _, n := range []compute.Network{
		{Name: "n", Bridge: "br0", CIDR: "10.0.0.1/24"}, {Name: "n", Bridge: "a/b"}, {Name: "n", Bridge: "br0", CIDR: "10.0.0.0/31"},
		{Name: "n", Bridge: "br0", CIDR: "10.0.0.0/24", Gateway: "10.0.1.1"}, {Name: "n", Bridge: "br0", CIDR: "10.0.0.0/24", First: "10.0.0.9", Last: "10.0.0.8"},
		{Name: "n", Bridge: "br0", Gateway: "10.0.0.1"}, {Name: "", Bridge: "br0"}, {Name: "n", Bridge: "br0", DNS: []string{"x"}}, {Name: "n", Bridge: "br0", MTU: 5},
		{Name: "n", Bridge: "br0", CIDR: "10.0.0.0/24", Last: "10.0.0.255"},
	} {
		w.want(w.Networks.Create(w.ctx, &n, admin.Asker), problem.Invalid)
	}
	six := &compute.Network{Name: "six", Bridge: "br6", CIDR: "2001:db8::/64"}
	w.no(w.Networks.Create(w.ctx, six, admin.Asker))
	if six.First != "2001:db8::1" || six.Last != "2001:db8::ffff:ffff:ffff:fffe" {
		t.Errorf("%+v", six)
	}
	for _, v := range []compute.Volume{
		{Name: "v"}, {SizeGiB: 1, Portal: "x", IQN: "iqn.2026-01.e:x"}, {SizeGiB: 1, Portal: "10.0.0.1:3260", IQN: "x"}, {SizeGiB: 1, CHAPUser: "u"}, {SizeGiB: 1, LUN: -1},
		{SizeGiB: 1, Portal: "10.0.0.1:99999", IQN: "iqn.2026-01.e:x"},
	} {
		w.want(w.Volumes.Create(w.ctx, &v, admin.Asker), problem.Invalid)
	}
	for _, key := range []string{"", "ssh-rsa junk", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMvbhJHjjpMbMyIEXgJwUbV6+YbW8Yy0N9h2WbLrVdrb a\nssh-rsa b"} {
		w.want(w.Keypairs.Create(w.ctx, &compute.Keypair{Name: "k", PublicKey: key}, admin.Asker), problem.Invalid)
	}
	w.want(w.Flavors.Create(w.ctx, &compute.Flavor{Name: "f", RAM: 1}, admin.Asker), problem.Invalid)
	_, err := w.Images.Update(w.ctx, w.image.ID, admin.Asker, func(i *compute.Image) error { i.Status = compute.ImageSaving; return nil })
	w.want(err, problem.Conflict)
	_, err = w.Images.Update(w.ctx, w.image.ID, admin.Asker, func(i *compute.Image) error { i.Size++; return nil })
	w.want(err, problem.Forbidden)
	_, err = w.Images.Update(w.ctx, w.image.ID, admin.Asker, func(i *compute.Image) error { i.Protected = true; return nil })
	w.no(err)
	w.want(w.Images.Remove(w.ctx, w.image.ID, admin.Asker), problem.Forbidden)
	w.rescueImage("", func(i *rescue.Image) { i.Source.ImageUUID = w.image.ID })
	all, err := w.RescueImages.List(w.ctx, rescue.ImageFilter{}, record.Page{})
	w.no(err)
	if len(all) != 2 {
		t.Error(all)
	}
}

// TestMemorySavedToAFile: virsh save leaves a guest that is off and whose memory lies in a file. Nobody starts the guest by itself, which would give the memory
// up, not even after libvirt has forgotten the reason or the host has started again. virsh restore lets the server go on, and a start boots it anew.
func TestMemorySavedToAFile(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	tell := func(boot string, power compute.Power, reason compute.PauseReason) compute.Renewed {
		w.pass(time.Minute)
		g := compute.Guest{ID: s.ID, Power: power, Pause: compute.GuestPause{Reason: reason}}
		return must.Get(w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: boot, HasGuests: true, Guests: []compute.Guest{g}}))(t)
	}
	want := func(when string, state compute.VMState, power compute.Power, pause compute.PauseReason) {
		t.Helper()
		now := w.read(s.ID)
		if now.State != state || now.Power != power || now.Wanted != compute.PowerOn || now.Pause.Reason != pause || len(w.jobs(s.ID)) != 0 {
			t.Errorf("%s: state %s, power %s, wanted %s, pause %q, %d jobs; want %s, %s, on, %q and no job", when, now.State, now.Power, now.Wanted, now.Pause.Reason, len(w.jobs(s.ID)), state, power, pause)
		}
	}
	tell("boot-1", compute.PowerOn, "")
	if out := tell("boot-1", compute.PowerOff, compute.SavedToFile); !out.Servers[s.ID].Busy {
		t.Error("the host may start the guest by itself")
	}
	want("saved", compute.Stopped, compute.PowerOff, compute.SavedToFile)
	if out := tell("boot-1", compute.PowerOff, ""); !out.Servers[s.ID].Busy {
		t.Error("after a restart of libvirt the host may start the guest by itself")
	}
	want("libvirt was restarted", compute.Stopped, compute.PowerOff, compute.SavedToFile)
	tell("boot-2", compute.PowerOff, "")
	want("the host was started again", compute.Stopped, compute.PowerOff, compute.SavedToFile)
	why := compute.ServerSituation{Server: w.read(s.ID), Host: w.host, Life: compute.HostLiveness{Up: true}, Conductors: record.Conductors{Live: []string{"c"}}, Operator: true}.Why()
	if text := why.Text("server", s.Name, time.Now()); !strings.Contains(text, "saved to a file on its host (virsh save)") {
		t.Errorf("why says %s; want virsh save", text)
	}
	if n := why.Next; len(n) != 2 || n[0].Run != "virsh restore FILE" || !strings.HasPrefix(n[1].Run, "salvor server start") {
		t.Errorf("why names as next commands %+v; want virsh restore, then a start", n)
	}
	tell("boot-2", compute.PowerOn, "")
	want("restored", compute.Active, compute.PowerOn, "")
	tell("boot-2", compute.PowerOff, compute.SavedToFile)
	w.act(s.ID, compute.Act{Action: compute.Start}, alice)
}
