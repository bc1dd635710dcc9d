package service_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

// The defects that the reference implementation of rescue for virtual machines has, as far as they are matters of this room.
// Those of a cluster's wire and of its watch are proven in hypervisor/ganeti and in conductor.

// 1. The operating system and its family were swapped at creation, so that no image was ever chosen by them.
func TestDefect1SystemAndFamilyAreNotSwapped(t *testing.T) {
	for name, properties := range map[string]map[string]string{
		"Cyclades": {"OS": "debian", "OSFAMILY": "linux"}, "Image API": {"os_distro": "debian", "os_type": "linux"},
		"both": {"OS": "debian", "OSFAMILY": "linux", "os_distro": "x", "os_type": "y"},
	} {
		w := newWorld(t)
		right := w.rescueImage("right.iso", func(i *rescue.Image) { i.TargetOS, i.TargetOSFamily = "Debian", "Linux" })
		w.rescueImage("wrong.iso", func(i *rescue.Image) { i.TargetOS, i.TargetOSFamily = "linux", "debian" })
		img := &compute.Image{Name: "i", Visibility: "public", Status: compute.ImageActive, DiskFormat: "raw", Properties: properties}
		w.no(w.Images.Create(w.ctx, img, admin.Asker))
		s := w.server(alice, compute.Stopped, func(c *compute.Creation) { c.Image = img.ID })
		if s = w.act(s.ID, compute.Act{Action: compute.Rescue}, alice); s.OS != "debian" || s.OSFamily != "linux" || s.Rescue.Source.ImageID != right.Num {
			t.Errorf("%s: %q %q %+v", name, s.OS, s.OSFamily, s.Rescue.Source)
		}
	}
}

// 2. A removed image was still taken when it was named, and as the default.
func TestDefect2RemovedImagesAreNotTaken(t *testing.T) {
	w := newWorld(t)
	gone := w.rescueImage("gone.iso", func(i *rescue.Image) { i.Default = true })
	other := w.rescueImage("other.iso", func(i *rescue.Image) { i.Default = true })
	w.no(w.RescueImages.Remove(w.ctx, gone.ID, false, admin.Asker))
	s := w.server(alice, compute.Stopped)
	for _, req := range []rescue.Request{{Image: gone.Num}, {ImageUUID: gone.ID}} {
		_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Rescue, Rescue: req}, alice)
		w.want(err, problem.NotFound)
	}
	if s = w.act(s.ID, compute.Act{Action: compute.Rescue}, alice); s.Rescue.Source.ImageID != other.Num {
		t.Errorf("%+v", s.Rescue.Source)
	}
}

// 3. An image that was named by text ended in an internal error (the face's side of it is tested in api/cyclades).
func TestDefect3AnyReferenceHasAClearAnswer(t *testing.T) {
	w := newWorld(t)
	for _, ident := range []string{"", "x", "99", "-1", "1.5", "1e3", "99999999999999999999", newID(), strings.Repeat("9", 5000)} {
		if _, err := w.RescueImages.Get(w.ctx, ident); !problem.Is(err, problem.NotFound) || len(err.Error()) > 200 {
			t.Errorf("%.30q: %v", ident, err)
		}
	}
}

// 4. The check for another default counted removed rows.
func TestDefect4ARemovedImageIsNoDefault(t *testing.T) {
	w := newWorld(t)
	first := w.rescueImage("first.iso", func(i *rescue.Image) { i.Default = true })
	w.rescueImage("second.iso", func(i *rescue.Image) { i.Default = true })
	w.no(w.RescueImages.Remove(w.ctx, first.ID, false, admin.Asker))
	third := w.rescueImage("third.iso", func(i *rescue.Image) { i.Default = true })
	list := must.Get(w.RescueImages.List(w.ctx, rescue.ImageFilter{Default: true, Deleted: true}, record.Page{}))(w.t)
	if len(list) != 1 || list[0].ID != third.ID {
		t.Errorf("%+v", list)
	}
}

// 5. An image was in use for as long as the last action of a server was a rescue, though it had failed.
func TestDefect5InUseIsAnOpenSession(t *testing.T) {
	w := newWorld(t)
	img := w.rescueImage("x.iso")
	s := w.server(alice, compute.Stopped)
	w.act(s.ID, compute.Act{Action: compute.Rescue, Rescue: rescue.Request{Image: img.Num}}, alice)
	w.want(w.RescueImages.Remove(w.ctx, img.ID, false, admin.Asker), problem.Conflict)
	_, err := w.RescueImages.Update(w.ctx, img.ID, admin.Asker, func(i *rescue.Image) error { i.Source.Location = "y.iso"; return nil })
	w.want(err, problem.Conflict)
	_, err = w.RescueImages.Update(w.ctx, img.ID, admin.Asker, func(i *rescue.Image) error { i.Name = "words may change"; return nil })
	w.no(err)
	// It failed, and everything was put back.
	j := w.endJobs(s.ID)
	j.SetCause(problem.Unavailablef("no answer"))
	w.tx(func(tx job.Tx) error {
		return w.Servers.Fail(w.ctx, tx, &j, func(s *compute.Server) { s.State, s.Rescue.State = compute.Stopped, rescue.Closed })
	})
	w.no(w.RescueImages.Remove(w.ctx, img.ID, false, admin.Asker))
}

// 6. Two rows with one location made the look-up by location fail.
func TestDefect6ALocationIsOnce(t *testing.T) {
	w := newWorld(t)
	w.rescueImage("a/x.iso")
	for _, same := range []string{"a/x.iso", "a//x.iso", "./a/x.iso", "a/./x.iso"} {
		err := w.RescueImages.Create(w.ctx, &rescue.Image{Source: rescue.Source{Location: same}}, admin.Asker)
		w.want(err, problem.Conflict)
	}
}

// 7. A location could leave the directory.
func TestDefect7NoLocationLeavesTheDirectory(t *testing.T) {
	w := newWorld(t)
	for _, location := range []string{"/etc/shadow", "../x", "a/../../x", "a/..", "..", "/", "./../x", `..\x`} {
		err := w.RescueImages.Create(w.ctx, &rescue.Image{Source: rescue.Source{Location: location}}, admin.Asker)
		w.want(err, problem.Invalid)
		if at, err := compute.ResolvePath("/srv/rescue", location); err == nil {
			t.Errorf("%q resolves to %s", location, at)
		}
	}
	if at, err := compute.ResolvePath("/srv/rescue", "a/x.iso"); err != nil || at != "/srv/rescue/a/x.iso" {
		t.Error(at, err)
	}
}

// 8. What a server booted from by itself was not kept: it came back with a fixed boot order.
func TestDefect8WhatWasSavedIsKeptThroughEverything(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Stopped)
	w.act(s.ID, compute.Act{Action: compute.Rescue, MustBeOff: true}, alice)
	w.finish(s.ID, func(s *compute.Server) {
		s.State, s.Rescue.State, s.Rescue.SavedKnown = compute.Rescued, rescue.Prepared, true
		s.Rescue.SavedSettings = map[string]string{"boot_order": "network"}
	})
	for _, action := range []compute.Action{compute.Start, compute.Reboot, compute.Stop} {
		w.act(s.ID, compute.Act{Action: action, MustBeOff: true}, alice)
		power := compute.PowerOn
		if action == compute.Stop {
			power = compute.PowerOff
		}
		w.finish(s.ID, func(s *compute.Server) { s.Settle(power) })
	}
	s = w.act(s.ID, compute.Act{Action: compute.Unrescue, MustBeOff: true}, alice)
	if s.Rescue.SavedSettings["boot_order"] != "network" || s.Rescue.Saved.Power != "off" || s.Wanted != compute.PowerOff {
		t.Errorf("%+v", s.Rescue)
	}
}

// 10. Whatever CD an operator booted was taken for a rescue (the watch itself is proven in conductor/server).
func TestDefect10AForeignCDIsNoRescue(t *testing.T) {
	w := newWorld(t)
	w.rescueImage("ours.iso")
	s := w.server(alice, compute.Stopped)
	seen := map[string]*compute.Server{s.ID: s}
	for _, cd := range []string{"/srv/rescue/theirs.iso", "/srv/rescue-too/ours.iso", "/srv/ours.iso", "http://x/ours.iso"} {
		must.Get(w.Reconciler.SyncRescue(w.ctx, []compute.Guest{{ID: s.ID, Ours: true, Power: compute.PowerOff, Rescue: cd}}, seen, true))(w.t)
		if s = w.read(s.ID); s.State != compute.Stopped || s.InSession() {
			t.Errorf("%s: %+v", cd, s)
		}
	}
	must.Get(w.Reconciler.SyncRescue(w.ctx, []compute.Guest{{ID: s.ID, Ours: true, Power: compute.PowerOff, Rescue: "/srv/rescue/ours.iso"}}, seen, true))(w.t)
	if s = w.read(s.ID); s.State != compute.Rescued || s.Rescue.Source.Location != "ours.iso" {
		t.Errorf("%+v", s)
	}
}

// 11. There was no credential, no end and no audit.
func TestDefect11ARescueHasACredentialAnEndAndATrace(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	told := secret.Value{}
	s = w.act(s.ID, compute.Act{Action: compute.Rescue, Password: &told, Rescue: rescue.Request{Expires: time.Hour, Keys: []string{"ssh-ed25519 AAAA k"}}}, alice)
	if told.Empty() || s.Rescue.Credential.Hash.Empty() || len(s.Rescue.Credential.Keys) != 2 || s.Rescue.ExpiresAt.IsZero() {
		t.Errorf("%+v", s.Rescue)
	}
	events := must.Get(w.store.Events(w.ctx, compute.Subject(s.ID), 0, 100))(w.t)
	traced := false
	for _, e := range events {
		traced = traced || e.Text == "asked to rescue" && e.User == "alice"
		if strings.Contains(e.Text, told.Reveal()) {
			t.Error("the password is on the timeline")
		}
	}
	if !traced {
		t.Errorf("%+v", events)
	}
}

// 12. A file had to lie on every node beforehand: what has a digest is fetched by it.
func TestDefect12WhatHasADigestIsFetched(t *testing.T) {
	w := newWorld(t)
	img := w.rescueImage("x.iso", func(i *rescue.Image) { i.Source.Digest = digest })
	s := w.server(alice, compute.Stopped)
	s = w.act(s.ID, compute.Act{Action: compute.Rescue, Rescue: rescue.Request{Image: img.Num}}, alice)
	b := must.Get(w.Servers.Blueprint(w.ctx, s, ""))(w.t)
	if b.Spec.Rescue == nil || b.Spec.Rescue.Image == nil || b.Spec.Rescue.Image.Digest != digest {
		t.Errorf("%+v", b.Spec.Rescue)
	}
}

// TestARescueAndARemovalHaveOneWinner: never is an image gone that a session begins with.
func TestARescueAndARemovalHaveOneWinner(t *testing.T) {
	w := newWorld(t)
	for range 6 {
		img := w.rescueImage("x.iso")
		s := w.server(alice, compute.Stopped)
		var rescued, removed error
		var both sync.WaitGroup
		both.Go(func() {
			_, rescued = w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Rescue, Rescue: rescue.Request{Image: img.Num}}, alice)
		})
		both.Go(func() { removed = w.RescueImages.Remove(w.ctx, img.ID, false, admin.Asker) })
		both.Wait()
		if (rescued == nil) == (removed == nil) {
			t.Fatalf("rescue: %v, remove: %v", rescued, removed)
		}
		if removed != nil {
			w.no(w.RescueImages.Remove(w.ctx, img.ID, true, admin.Asker))
		}
		if use, err := w.RescueImages.Use(w.ctx); err != nil || rescued == nil && use[img.Num] != 1 {
			t.Fatal(use, err)
		}
	}
}
