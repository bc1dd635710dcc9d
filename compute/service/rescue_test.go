package service_test

import (
	"encoding/json"
	"slices"
	"strings"
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

func TestARescueAndTheWayBack(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	var told secret.Value
	s = w.act(s.ID, compute.Act{Action: compute.Rescue, Password: &told, Rescue: rescue.Request{Expires: time.Hour}}, alice)
	if told.Empty() || len(told.Reveal()) != 12 || s.Task != compute.Rescuing || s.State != compute.Active || s.Wanted != compute.PowerOn {
		t.Fatalf("%+v", s)
	}
	session := s.Rescue
	if session.State != rescue.Preparing || session.Saved.Power != "on" || session.Source.Kind != rescue.Kernel || session.Source.ImageID == 0 || !session.ExpiresAt.Equal(w.now().Add(time.Hour)) {
		t.Fatalf("%+v", session)
	}
	j := w.jobs(s.ID)[0]
	if strings.Contains(string(j.Args), told.Reveal()) || j.Kind != compute.JobRescue || !strings.Contains(string(j.Args), `"boot":true`) {
		t.Fatalf("%s", j.Args)
	}
	b := must.Get(w.Servers.Blueprint(w.ctx, w.read(s.ID), ""))(w.t)
	if b.Spec.Rescue == nil || b.Spec.Rescue.Image.Digest != digest || !strings.HasPrefix(b.Secret.Hash, "$5$") || len(b.Spec.Disks) != 1 {
		t.Fatalf("%+v", b)
	}
	w.finish(s.ID, func(s *compute.Server) {
		s.State, s.Rescue.State, s.Power, s.LaunchedAt = compute.Rescued, rescue.Ready, compute.PowerOn, w.now()
	})
	if use, _ := w.RescueImages.Use(w.ctx); use[session.Source.ImageID] != 1 {
		t.Fatal(use)
	}
	s = w.act(s.ID, compute.Act{Action: compute.Unrescue, Restore: true}, alice)
	var args compute.UnrescueArgs
	w.no(json.Unmarshal(w.jobs(s.ID)[0].Args, &args))
	if args.Power != compute.PowerOn || s.Rescue.State != rescue.Leaving {
		t.Fatalf("%+v %+v", args, s.Rescue)
	}
	w.fail(s.ID)
	if s = w.read(s.ID); s.State != compute.Errored || s.Rescue.State != rescue.Failed || s.Fault == nil || s.Task != compute.NoTask {
		t.Fatalf("%+v", s)
	}
	w.act(s.ID, compute.Act{Action: compute.Unrescue}, alice) // it may be asked again
	w.finish(s.ID, func(s *compute.Server) { s.State, s.Rescue.State = compute.Active, rescue.Closed })
	if s = w.read(s.ID); s.Rescue != nil {
		t.Fatalf("%+v", s.Rescue)
	}
	if use, _ := w.RescueImages.Use(w.ctx); len(use) != 0 {
		t.Fatal(use)
	}
}

func TestARescueOfAStoppedServerInTheOtherManner(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Rescue, MustBeOff: true}, alice)
	w.want(err, problem.Conflict)
	w.act(s.ID, compute.Act{Action: compute.Stop, MustBeOff: true}, alice)
	w.finish(s.ID, func(s *compute.Server) { s.Settle(compute.PowerOff) })
	s = w.act(s.ID, compute.Act{Action: compute.Rescue, MustBeOff: true}, alice)
	if s.Wanted != compute.PowerOff || s.Rescue.Saved.Power != "off" || !s.Rescue.Credential.Hash.Empty() {
		t.Fatalf("%+v", s)
	}
	w.finish(s.ID, func(s *compute.Server) { s.State, s.Rescue.State = compute.Rescued, rescue.Prepared })
	_, err = w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Start}, alice)
	w.want(err, problem.Conflict) // in Nova's manner
	w.act(s.ID, compute.Act{Action: compute.Start, MustBeOff: true}, alice)
	w.finish(s.ID, func(s *compute.Server) { s.Settle(compute.PowerOn) })
	if s = w.read(s.ID); s.State != compute.Rescued || s.Rescue.State != rescue.Booting {
		t.Fatalf("%+v", s)
	}
	_, err = w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Unrescue, MustBeOff: true}, alice)
	w.want(err, problem.Conflict)
	w.act(s.ID, compute.Act{Action: compute.Unrescue}, alice) // either face may close what the other opened
}

// The server's own key opens its rescue system, whatever else is named.
func TestARescueTakesTheServersOwnKey(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Stopped)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) { s.PublicKey = "ssh-ed25519 own" })
	})
	s = w.act(s.ID, compute.Act{Action: compute.Rescue, MustBeOff: true, Rescue: rescue.Request{Keys: []string{"ssh-ed25519 guest"}}}, alice)
	if got := strings.Join(s.Rescue.Credential.Keys, ","); got != "ssh-ed25519 guest,ssh-ed25519 own" {
		t.Fatal(got)
	}
}

// A rescue system that waits for a credential that nobody has helps nobody.
func TestARescueThatNobodyCouldEnterIsRefused(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Stopped)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) { s.PublicKey = "" })
	})
	_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Rescue, MustBeOff: true}, alice)
	w.want(err, problem.Invalid)
	if s = w.read(s.ID); s.InSession() || s.Task != compute.NoTask {
		t.Fatalf("%+v", s)
	}
	w.act(s.ID, compute.Act{Action: compute.Rescue, MustBeOff: true, Rescue: rescue.Request{Keys: []string{"ssh-ed25519 guest"}}}, alice)
}

func TestNoPasswordForAnImageThatTakesNone(t *testing.T) {
	w := newWorld(t)
	img := w.rescueImage("plain.iso")
	s := w.server(alice, compute.Active)
	told := secret.Value{}
	s = w.act(s.ID, compute.Act{Action: compute.Rescue, Password: &told, Rescue: rescue.Request{Image: img.Num, Password: secret.New("asked for")}}, alice)
	if !told.Empty() || !s.Rescue.Credential.Hash.Empty() || s.Rescue.Source.Location != "plain.iso" {
		t.Fatalf("%+v", s.Rescue)
	}
}

func TestAnImageOfTheImageAPI(t *testing.T) {
	w := newWorld(t)
	img := &compute.Image{Name: "rescue", Visibility: "public", Status: compute.ImageActive, DiskFormat: "qcow2", Digest: digest,
		Properties: map[string]string{"hw_rescue_device": "cdrom", "hw_rescue_bus": "sata"}}
	w.no(w.Images.Create(w.ctx, img, admin.Asker))
	s := w.server(alice, compute.Stopped)
	told := secret.Value{}
	s = w.act(s.ID, compute.Act{Action: compute.Rescue, Password: &told, Rescue: rescue.Request{ImageUUID: img.ID, Password: secret.New("asked for")}}, alice)
	if told.Reveal() != "asked for" || s.Rescue.Source.Access != rescue.ByConfigDrive || s.Rescue.Source.Bus != "sata" {
		t.Fatalf("%+v", s.Rescue.Source)
	}
	b := must.Get(w.Servers.Blueprint(w.ctx, s, ""))(w.t)
	if doc := string(b.Secret.RescueDrive["openstack/latest/user_data"]); !strings.Contains(doc, "$5$") || strings.Contains(doc, "asked for") {
		t.Fatal(doc)
	}
	w.want(w.Images.Remove(w.ctx, img.ID, admin.Asker), problem.Conflict)
}

// TestARescueImageThatPointsAtAnImage is what the image says it is.
func TestARescueImageThatPointsAtAnImage(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		format, says string
		kind         rescue.Kind
		access       rescue.Access
	}{{"iso", "", rescue.ISO, rescue.NoAccess}, {"qcow2", "", rescue.Disk, rescue.ByConfigDrive}, {"raw", "none", rescue.Disk, rescue.NoAccess}, {"iso", "channel", rescue.ISO, rescue.ByChannel}} {
		img := &compute.Image{Name: "r", Visibility: "public", Status: compute.ImageActive, DiskFormat: c.format, Digest: digest,
			Properties: map[string]string{"hw_rescue_device": "disk", "hw_rescue_bus": "scsi"}}
		if c.says != "" {
			img.Properties[compute.AccessProperty] = c.says
		}
		w.no(w.Images.Create(w.ctx, img, admin.Asker))
		row := &rescue.Image{Source: rescue.Source{ImageUUID: img.ID}}
		w.no(w.RescueImages.Create(w.ctx, row, admin.Asker))
		s := w.server(alice, compute.Stopped)
		s = w.act(s.ID, compute.Act{Action: compute.Rescue, Rescue: rescue.Request{Image: row.Num}}, alice)
		src := s.Rescue.Source
		if row.Source.Kind != c.kind || src.Kind != c.kind || src.Access != c.access || src.Bus != "scsi" || src.Device != "disk" || src.Digest != digest {
			t.Errorf("%s %s: %+v", c.format, c.says, src)
		}
		said := &rescue.Image{Source: rescue.Source{ImageUUID: img.ID, Kind: rescue.Kernel}}
		w.want(w.RescueImages.Create(w.ctx, said, admin.Asker), problem.Invalid)
		w.tx(func(tx job.Tx) error { return w.Servers.Gone(w.ctx, tx, s.ID) }) // its place is for the next one
	}
}

// TestARescueImageTurnsToOtherBytes: a location and an image replace each other, and what was said of the former goes with it.
func TestARescueImageTurnsToOtherBytes(t *testing.T) {
	w := newWorld(t)
	img := &compute.Image{Name: "r", Visibility: "public", Status: compute.ImageActive, DiskFormat: "qcow2", Digest: digest}
	w.no(w.Images.Create(w.ctx, img, admin.Asker))
	row := w.rescueImage("k", func(i *rescue.Image) {
		i.Name, i.Source.Kind, i.Source.Ramdisk, i.Source.Digest, i.Source.Access = "n", rescue.Kernel, "r", digest, rescue.ByChannel
	})
	turn := func(change func(*rescue.Source)) (*rescue.Image, error) {
		return w.RescueImages.Update(w.ctx, row.ID, admin.Asker, func(i *rescue.Image) error { change(&i.Source); return nil })
	}
	got, err := turn(func(s *rescue.Source) { s.ImageUUID = img.ID })
	if want := (rescue.Source{ImageUUID: img.ID, Kind: rescue.Disk, Access: rescue.ByConfigDrive}); err != nil || got.Source != want || got.Name != "n" {
		t.Fatalf("%+v %v", got, err)
	}
	if got, err = turn(func(s *rescue.Source) { s.Access = rescue.NoAccess }); err != nil || got.Source.ImageUUID != img.ID || got.Source.Access != rescue.NoAccess {
		t.Fatalf("%+v %v", got, err)
	}
	_, err = turn(func(s *rescue.Source) { s.Location, s.ImageUUID = "x.iso", newID() })
	w.want(err, problem.Invalid)
	_, err = turn(func(s *rescue.Source) { s.ImageUUID = "" })
	w.want(err, problem.Invalid)
	got, err = turn(func(s *rescue.Source) { s.Location, s.Kind = "x.raw", rescue.Disk })
	if want := (rescue.Source{Location: "x.raw", LocationType: rescue.LocationFile, Kind: rescue.Disk, Access: rescue.NoAccess}); err != nil || got.Source != want {
		t.Fatalf("%+v %v", got, err)
	}
}

func TestPasswordsHaveASymbolOfEachGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(3, 40).Draw(t, "length")
		p := must.Get(service.NewPassword(length))(t)
		s := p.Reveal()
		if len(s) != length || !strings.ContainsAny(s, "23456789") || strings.ToUpper(s) == s || strings.ToLower(s) == s {
			t.Fatal("a group is missing")
		}
	})
}

func TestSessionsExpire(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Stopped)
	w.act(s.ID, compute.Act{Action: compute.Rescue, Rescue: rescue.Request{Expires: time.Minute}}, alice)
	w.pass(2 * time.Minute)
	w.no(w.Actions.ExpireSessions(w.ctx)) // its rescue goes on: nothing happens
	w.finish(s.ID, func(s *compute.Server) {
		s.State, s.Rescue.State, s.Power = compute.Rescued, rescue.Ready, compute.PowerOn
	})
	w.no(w.Actions.ExpireSessions(w.ctx))
	w.no(w.Actions.ExpireSessions(w.ctx))
	jobs := w.jobs(s.ID)
	if len(jobs) != 1 || jobs[0].Kind != compute.JobUnrescue || !strings.Contains(string(jobs[0].Args), `"power":"off"`) || !strings.Contains(string(jobs[0].Args), `"expired":true`) {
		t.Fatalf("%+v", jobs)
	}
	if s = w.read(s.ID); s.Task != compute.Unrescuing || s.Rescue.State != rescue.Leaving {
		t.Fatalf("%+v", s)
	}
}

// A session that could not be ended is tried again, though not all the time; and it holds up no other.
func TestAnExpiryThatFailedComesAgain(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.act(s.ID, compute.Act{Action: compute.Rescue, Rescue: rescue.Request{Expires: time.Second}}, alice)
	w.finish(s.ID, func(s *compute.Server) {
		s.State, s.Rescue.State, s.Power = compute.Rescued, rescue.Ready, compute.PowerOn
	})
	w.pass(2 * time.Second)
	for try := range 2 {
		w.no(w.Actions.ExpireSessions(w.ctx))
		if jobs := w.jobs(s.ID); len(jobs) != 1 || jobs[0].Kind != compute.JobUnrescue {
			t.Fatalf("try %d: %+v", try, jobs)
		}
		w.fail(s.ID)
		w.pass(30 * time.Second)
		if try == 1 {
			return
		}
		w.no(w.Actions.ExpireSessions(w.ctx))
		if jobs := w.jobs(s.ID); len(jobs) != 0 {
			t.Fatalf("tried again at once: %+v", jobs)
		}
		w.pass(time.Minute)
	}
}

func TestARescueThatFailedMayBeAskedAgainAndKeepsWhatWasSaved(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.act(s.ID, compute.Act{Action: compute.Rescue}, alice)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Edit(w.ctx, tx, s.ID, func(s *compute.Server) {
			s.Rescue.SavedKnown, s.Rescue.SavedSettings, s.Power = true, map[string]string{"boot_order": "network"}, compute.PowerOff
		})
	})
	w.fail(s.ID)
	s = w.act(s.ID, compute.Act{Action: compute.Rescue}, alice)
	if s.Rescue.SavedSettings["boot_order"] != "network" || s.Rescue.Saved.Power != "on" || s.Rescue.State != rescue.Preparing {
		t.Fatalf("%+v", s.Rescue)
	}
}

func TestRescueImagesAreHeldToTheirRules(t *testing.T) {
	w := newWorld(t)
	a := w.rescueImage("dir/./a.iso")
	if a.Source.Location != "dir/a.iso" || a.Source.LocationType != rescue.LocationFile || !strings.HasPrefix(a.Name, "rescue-image-") {
		t.Fatalf("%+v", a)
	}
	web := w.rescueImage("http://img.example/x.iso")
	if web.Source.LocationType != rescue.LocationHTTP {
		t.Fatalf("%+v", web)
	}
	for location, kind := range map[string]problem.Kind{
		"/etc/passwd": problem.Invalid, "../x": problem.Invalid, "a/../../x": problem.Invalid, "a/..": problem.Invalid, ".": problem.Invalid,
		"": problem.Invalid, "dir//a.iso": problem.Conflict, `a\..\b`: problem.Invalid, "http://gone.example/x.iso": problem.Invalid,
		"http://": problem.Invalid, "http://u:p@h/x": problem.Invalid, "a\nb": problem.Invalid, "http://img.example/x.iso": problem.Conflict,
	} {
		err := w.RescueImages.Create(w.ctx, &rescue.Image{Name: "n", Source: rescue.Source{Location: location}}, admin.Asker)
		if !problem.Is(err, kind) {
			t.Errorf("%q: %v", location, err)
		}
	}
	w.no(w.RescueImages.Remove(w.ctx, a.ID, false, admin.Asker))
}

func TestTheDefaultMovesAndIsOne(t *testing.T) {
	w := newWorld(t)
	a := w.rescueImage("a.iso", func(i *rescue.Image) { i.Default = true })
	list, err := w.RescueImages.List(w.ctx, rescue.ImageFilter{Default: true}, record.Page{})
	w.no(err)
	if len(list) != 1 || list[0].ID != a.ID {
		t.Fatalf("%+v", list)
	}
	w.want(w.RescueImages.Remove(w.ctx, a.ID, true, admin.Asker), problem.Conflict)
	_, err = w.RescueImages.Update(w.ctx, "1", admin.Asker, func(i *rescue.Image) error { i.Default = true; return nil })
	w.no(err)
	_, err = w.RescueImages.Update(w.ctx, "1", admin.Asker, func(i *rescue.Image) error { i.Default = false; return nil })
	w.want(err, problem.Conflict)
	w.no(w.RescueImages.Remove(w.ctx, a.ID, false, admin.Asker))
	w.want(w.RescueImages.Remove(w.ctx, a.ID, false, admin.Asker), problem.NotFound)
	w.rescueImage("a.iso") // its place is free again
	w.no(w.RescueImages.EnsureBuiltIn(w.ctx, compute.BuiltIn{KernelDigest: strings.Replace(digest, "0", "f", 1), RamdiskDigest: digest}))
	img, err := w.RescueImages.Get(w.ctx, "1")
	w.no(err)
	if !img.Default || img.Source.Digest == digest || img.Source.Access != rescue.ByChannel {
		t.Fatalf("%+v", img)
	}
}

func TestTheRuleOfChoice(t *testing.T) {
	w := newWorld(t)
	target := func(system, family string) func(*rescue.Image) {
		return func(i *rescue.Image) { i.TargetOS, i.TargetOSFamily = system, family }
	}
	family := w.rescueImage("family.iso", target("ubuntu", "Linux"))
	second := w.rescueImage("second.iso", target("Debian", "LINUX"))
	third := w.rescueImage("third.iso", target("debian", "linux"))
	chosen := func(s *compute.Server, req rescue.Request) (src *rescue.Source, err error) {
		err = w.store.Do(w.ctx, func(tx job.Tx) error {
			src, err = w.RescueImages.Select(w.ctx, tx, req, s, compute.Who{})
			return err
		})
		return src, err
	}
	debian, fedora, windows := &compute.Server{OS: "debian", OSFamily: "linux"}, &compute.Server{OS: "fedora", OSFamily: "linux"}, &compute.Server{OS: "w", OSFamily: "windows"}
	for s, want := range map[*compute.Server]int64{debian: second.Num, fedora: family.Num, windows: 1, {}: 1} {
		if src, err := chosen(s, rescue.Request{}); err != nil || src.ImageID != want {
			t.Errorf("%s: %+v %v, want %d", s.OS, src, err, want)
		}
	}
	if src, err := chosen(windows, rescue.Request{Image: third.Num}); err != nil || src.ImageID != third.Num {
		t.Error(src, err)
	}
	if src, err := chosen(windows, rescue.Request{ImageUUID: third.ID}); err != nil || src.ImageID != third.Num {
		t.Error(src, err)
	}
	for _, req := range []rescue.Request{{Image: 99}, {Image: -1}, {ImageUUID: newID()}, {ImageUUID: "x"}} {
		if _, err := chosen(windows, req); !problem.Is(err, problem.NotFound) {
			t.Error(err)
		}
	}
	img := &compute.Image{Name: "bobs", Owner: "bob", Visibility: "private", Status: compute.ImageActive, DiskFormat: "iso", Digest: digest}
	w.no(w.Images.Create(w.ctx, img, admin.Asker))
	debian.Project = "alice"
	for who, seen := range map[*compute.Who]bool{&alice: false, &bob: true, &admin: true} {
		err := w.store.Do(w.ctx, func(tx job.Tx) error {
			_, err := w.RescueImages.Select(w.ctx, tx, rescue.Request{ImageUUID: img.ID}, debian, *who)
			return err
		})
		if (err == nil) != seen || err != nil && !problem.Is(err, problem.NotFound) {
			t.Errorf("%s: a rescue by the private image of bob: %v", who.Asker.User, err)
		}
	}
	w.no(w.RescueImages.Remove(w.ctx, second.ID, false, admin.Asker))
	if src, err := chosen(debian, rescue.Request{}); err != nil || src.ImageID != third.Num {
		t.Error(src, err)
	}
}

// TestOwnersEndTheirRescueSoonerAlone: a user who is no administrator may request an end before the configured one, and never a
// later one.
func TestOwnersEndTheirRescueSoonerAlone(t *testing.T) {
	w := newWorld(t)
	services := service.New(w.store, w.store, service.Options{HashAlgorithm: rescue.SHA256, RescueImagePath: "/srv/rescue", RescueTimeout: time.Hour}, w.now)
	s := w.server(alice, compute.Active)
	late := compute.Act{Action: compute.Rescue, Rescue: rescue.Request{Expires: 2 * time.Hour}}
	if _, err := services.Actions.Act(w.ctx, s.ID, late, alice); !problem.Is(err, problem.Forbidden) || !strings.Contains(err.Error(), "1h0m0s") {
		t.Errorf("an end after the configured one: %v", err)
	}
	if got := w.read(s.ID); got.Task != compute.NoTask {
		t.Errorf("the refused rescue left %s", got.Task)
	}
	soon := compute.Act{Action: compute.Rescue, Rescue: rescue.Request{Expires: time.Minute, Keys: []string{"ssh-ed25519 AAAA k"}}}
	got, err := services.Actions.Act(w.ctx, s.ID, soon, alice)
	if err != nil || !got.Rescue.ExpiresAt.Equal(w.now().Add(time.Minute)) || !slices.Contains(got.Rescue.Credential.Keys, "ssh-ed25519 AAAA k") {
		t.Errorf("an end before it: %+v, %v", got, err)
	}
}
