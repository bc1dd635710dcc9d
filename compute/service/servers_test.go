package service_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

func newID() string { return uuid.NewString() }

func TestAServerIsMadeAndUnmade(t *testing.T) {
	w := newWorld(t)
	net := &compute.Network{Name: "net", Bridge: "br0", CIDR: "10.1.0.0/29", Gateway: "10.1.0.1", First: "10.1.0.3", Last: "10.1.0.5", DNS: []string{"10.1.0.1"}, Shared: true}
	w.no(w.Networks.Create(w.ctx, net, admin.Asker))
	vol := &compute.Volume{Name: "data", Project: "alice", SizeGiB: 3, Portal: "10.0.0.1:3260", IQN: "iqn.2026-01.example:data", LUN: 1,
		CHAPUser: "u", CHAPPassword: secret.New("chap secret")}
	w.no(w.Volumes.Create(w.ctx, vol, alice.Asker))
	s := w.server(alice, compute.Active, func(c *compute.Creation) {
		c.Networks = []compute.NetworkRequest{{Network: net.ID}}
		c.Disks = []compute.DiskRequest{{VolumeID: vol.ID, BootIndex: -1}}
		c.Password = secret.New("first password")
	})
	if s.HostID != w.host.ID || s.OS != "debian" || s.OSFamily != "linux" || len(s.NICs) != 1 || s.NICs[0].Addresses[0] != "10.1.0.3" || len(s.Disks) != 2 || s.Disks[1].Name != "vdb" {
		t.Fatalf("%+v", s)
	}
	v := must.Get(w.Volumes.Get(w.ctx, vol.ID))(w.t)
	if v.Status != compute.VolumeInUse || v.ServerID != s.ID || v.Device != "vdb" {
		t.Fatalf("%+v", v)
	}
	b := must.Get(w.Servers.Blueprint(w.ctx, s, "$5$hash"))(w.t)
	if len(b.Spec.Disks) != 2 || b.Spec.Disks[0].Image.Digest != digest || b.Secret.CHAP[vol.ID] != "chap secret" || b.Spec.Disks[1].Portal == "" {
		t.Fatalf("%+v", b)
	}
	text := must.Get(json.Marshal(b.Spec))(w.t)
	if strings.Contains(string(text), "chap secret") || !strings.Contains(string(b.Secret.Drive["openstack/latest/network_data.json"]), `"netmask":"255.255.255.248"`) {
		t.Fatalf("%s\n%s", text, b.Secret.Drive["openstack/latest/network_data.json"])
	}
	h := must.Get(w.Hosts.Host(w.ctx, w.host.ID))(w.t)
	if h.UsedRAM != 512 || h.UsedDisk != 2 || h.UsedVCPUs != 1 {
		t.Fatalf("%+v", h)
	}
	w.act(s.ID, compute.Act{Action: compute.Delete}, alice)
	w.act(s.ID, compute.Act{Action: compute.Delete}, alice) // asked again
	w.endJobs(s.ID)
	w.tx(func(tx job.Tx) error { return w.Servers.Gone(w.ctx, tx, s.ID) })
	if _, err := w.Servers.Server(w.ctx, s.ID, alice); !problem.Is(err, problem.NotFound) {
		t.Fatal(err)
	}
	if gone, err := w.Servers.ByNum(w.ctx, s.Num, alice); err != nil || gone.State != compute.Deleted || gone.TerminatedAt.IsZero() {
		t.Fatal(gone, err)
	}
	if h, _ = w.Hosts.Host(w.ctx, w.host.ID); h.UsedRAM != 0 || h.UsedDisk != 0 || h.UsedVCPUs != 0 {
		t.Fatalf("%+v", h)
	}
	if v, _ = w.Volumes.Get(w.ctx, vol.ID); v.Status != compute.VolumeAvailable || v.ServerID != "" {
		t.Fatalf("%+v", v)
	}
	if left, _ := w.store.Addresses(w.ctx, nil, net.ID); len(left) != 0 {
		t.Fatal(left)
	}
}

func TestNobodySeesTheServersOfOthers(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice)
	if _, err := w.Servers.Server(w.ctx, s.ID, bob); !problem.Is(err, problem.NotFound) {
		t.Fatal(err)
	}
	if _, err := w.Servers.ByNum(w.ctx, s.Num, bob); !problem.Is(err, problem.NotFound) {
		t.Fatal(err)
	}
	if _, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Delete}, bob); !problem.Is(err, problem.NotFound) {
		t.Fatal(err)
	}
	must.Get(w.Servers.Server(w.ctx, s.ID, admin))(w.t)
}

func TestWhatCannotBeMadeIsRefused(t *testing.T) {
	w := newWorld(t)
	busy := &compute.Volume{Name: "busy", Project: "alice", SizeGiB: 3, Status: compute.VolumeInUse}
	w.no(w.Volumes.Create(w.ctx, busy, alice.Asker))
	raw := &compute.Image{Name: "queued", Visibility: "public", DiskFormat: "raw"}
	w.no(w.Images.Create(w.ctx, raw, admin.Asker))
	big := &compute.Image{Name: "big", Visibility: "public", Status: compute.ImageActive, DiskFormat: "raw", MinDisk: 50}
	w.no(w.Images.Create(w.ctx, big, admin.Asker))
	hidden := &compute.Image{Name: "hidden", Visibility: "private", Owner: "bob", Status: compute.ImageActive, DiskFormat: "raw"}
	w.no(w.Images.Create(w.ctx, hidden, bob.Asker))
	for name, change := range map[string]func(*compute.Creation){
		"no flavor":     func(c *compute.Creation) { c.Flavor = newID() },
		"no image":      func(c *compute.Creation) { c.Image = newID() },
		"queued image":  func(c *compute.Creation) { c.Image = raw.ID },
		"too big":       func(c *compute.Creation) { c.Image = big.ID },
		"not hers":      func(c *compute.Creation) { c.Image = hidden.ID },
		"no keypair":    func(c *compute.Creation) { c.KeyName = "k" },
		"no network":    func(c *compute.Creation) { c.Networks = []compute.NetworkRequest{{Network: "n"}} },
		"busy volume":   func(c *compute.Creation) { c.Disks = []compute.DiskRequest{{VolumeID: busy.ID, BootIndex: -1}} },
		"boots nothing": func(c *compute.Creation) { c.Image = "" },
		"no name":       func(c *compute.Creation) { c.Name = " " },
		"no base64":     func(c *compute.Creation) { c.UserData = secret.New("!") },
		"too many":      func(c *compute.Creation) { c.Count = 1000 },
		"two roots":     func(c *compute.Creation) { c.Disks = []compute.DiskRequest{{VolumeID: busy.ID, BootIndex: 0}} },
		"bad device": func(c *compute.Creation) {
			c.Disks = []compute.DiskRequest{{SizeGiB: 1, BootIndex: -1, Device: "../x"}}
		},
	} {
		c := compute.Creation{Name: "vm", Flavor: w.flavor.ID, Image: w.image.ID}
		change(&c)
		if _, err := w.Servers.Create(w.ctx, c, alice); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := w.Servers.List(w.ctx, compute.ServerFilter{}, record.Page{}); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	if _, err := w.Servers.Create(w.ctx, compute.Creation{Name: "vm", Flavor: w.flavor.ID, Image: w.image.ID, Host: "x"}, alice); !problem.Is(err, problem.Forbidden) {
		t.Error(err)
	}
}

func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	made := must.Get(w.Servers.Create(w.ctx, compute.Creation{Name: "vm", Flavor: "small", Image: w.image.ID, Count: 3}, alice))(w.t)
	if len(made) != 3 || made[2].Name != "vm-3" || made[0].Num == made[1].Num || len(w.jobs(made[1].ID)) != 1 {
		t.Fatalf("%+v", made)
	}
}

func TestABusyServerIsRefusedAndALockedOneToo(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.act(s.ID, compute.Act{Action: compute.Stop}, alice)
	var refused *compute.StateError
	_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Reboot}, alice)
	if !errors.As(err, &refused) || !refused.Busy || !refused.Allowed || refused.Server.Task != compute.Stopping || !problem.Is(err, problem.Conflict) {
		t.Fatal(err)
	}
	w.finish(s.ID, func(s *compute.Server) { s.Settle(compute.PowerOff) })
	w.act(s.ID, compute.Act{Action: compute.LockServer, Reason: "mine"}, alice)
	_, err = w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Start}, alice)
	if !errors.As(err, &refused) || !refused.Locked {
		t.Fatal(err)
	}
	w.act(s.ID, compute.Act{Action: compute.Start}, admin)
	w.finish(s.ID, func(s *compute.Server) { s.Settle(compute.PowerOn) })
	w.act(s.ID, compute.Act{Action: compute.UnlockServer}, alice)
	if s := w.act(s.ID, compute.Act{Action: compute.Stop}, alice); s.Locked || s.LockedReason != "" {
		t.Fatal(s)
	}
}

func TestALockOfAnAdministratorIsNotAMembersToTakeAway(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.act(s.ID, compute.Act{Action: compute.LockServer, Reason: "forensics"}, admin)
	w.act(s.ID, compute.Act{Action: compute.LockServer, Reason: "mine"}, alice)
	_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.UnlockServer}, alice)
	w.want(err, problem.Forbidden)
	if s = w.read(s.ID); !s.Locked || !s.LockedByAdmin || s.LockedReason != "forensics" {
		t.Fatalf("%+v", s)
	}
	w.act(s.ID, compute.Act{Action: compute.UnlockServer}, admin)
	w.act(s.ID, compute.Act{Action: compute.LockServer}, alice)
	if s = w.act(s.ID, compute.Act{Action: compute.UnlockServer}, alice); s.Locked || s.LockedByAdmin {
		t.Fatalf("%+v", s)
	}
}

func TestAServerWithoutAHostIsNotResetToActive(t *testing.T) {
	w := newWorld(t)
	s := w.create(alice)
	w.fail(s.ID)
	_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.ResetState, Reset: compute.Active}, admin)
	w.want(err, problem.Conflict)
	if s = w.read(s.ID); s.State != compute.Errored {
		t.Fatal(s.State)
	}
	w.act(s.ID, compute.Act{Action: compute.ResetState, Reset: compute.Errored}, admin)
	w.act(s.ID, compute.Act{Action: compute.Delete}, alice)
}

func TestADeletionIsNeverLost(t *testing.T) {
	for _, state := range []job.State{job.Ready, job.Running, job.Waiting} {
		w := newWorld(t)
		s := w.server(alice, compute.Active)
		w.act(s.ID, compute.Act{Action: compute.Stop}, alice)
		j := w.jobs(s.ID)[0]
		if state != job.Ready {
			j = w.run(j, state)
		}
		w.act(s.ID, compute.Act{Action: compute.Delete}, alice)
		if now := w.read(s.ID); now.Task != compute.Deleting {
			t.Fatal(now.Task)
		}
		w.no(w.Actions.Tend(w.ctx))
		if state != job.Waiting {
			if state == job.Ready {
				j = w.run(j, job.Running)
			}
			w.no(w.Actions.Tend(w.ctx)) // it runs: nothing can begin
			if open := w.jobs(s.ID); len(open) != 1 || open[0].Kind != compute.JobPower {
				t.Fatalf("%s: %+v", state, open)
			}
			j.State, j.EndedAt = job.Ended, w.now()
			w.tx(func(tx job.Tx) error {
				if err := w.store.Save(tx, &j, false); err != nil {
					return err
				}
				return w.Servers.Finish(w.ctx, tx, s.ID, func(s *compute.Server) { s.Settle(compute.PowerOff) })
			})
		}
		if open := w.jobs(s.ID); len(open) != 1 || open[0].Kind != compute.JobDelete {
			t.Fatalf("%s: %+v", state, open)
		}
	}
}

func TestUsersChangeWordsOnly(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	got, err := w.Servers.Update(w.ctx, s.ID, alice, func(s *compute.Server) error {
		s.Name, s.Tags, s.State, s.HostID, s.Locked = "new", []string{"a"}, compute.Errored, "", true
		s.Metadata = map[string]string{"k": "v"}
		return nil
	})
	w.no(err)
	if got.Name != "new" || got.State != compute.Active || got.HostID == "" || got.Locked || got.Metadata["k"] != "v" || len(got.Tags) != 1 {
		t.Fatalf("%+v", got)
	}
	_, err = w.Servers.Update(w.ctx, s.ID, alice, func(s *compute.Server) error { s.Tags = []string{"a/b"}; return nil })
	w.want(err, problem.Invalid)
}

func TestVolumesComeAndGo(t *testing.T) {
	w := newWorld(t)
	vol := w.volume()
	s := w.server(alice, compute.Active)
	w.act(s.ID, compute.Act{Action: compute.AttachVolume, VolumeID: vol.ID, Device: "/dev/vdc"}, alice)
	w.fail(s.ID)
	if s = w.read(s.ID); s.State != compute.Active || len(s.Disks) != 1 || s.Task != compute.NoTask {
		t.Fatalf("%+v", s)
	}
	w.act(s.ID, compute.Act{Action: compute.AttachVolume, VolumeID: vol.ID}, alice)
	w.endJobs(s.ID)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Attached(w.ctx, tx, s.ID, compute.VolumeArgs{VolumeID: vol.ID, Device: "vdb"})
	})
	if v, _ := w.Volumes.Get(w.ctx, vol.ID); v.Status != compute.VolumeInUse || v.AttachedAt.IsZero() {
		t.Fatalf("%+v", v)
	}
	_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.DetachVolume, VolumeID: newID()}, alice)
	w.want(err, problem.NotFound)
	w.act(s.ID, compute.Act{Action: compute.DetachVolume, VolumeID: vol.ID}, alice)
	w.fail(s.ID)
	if v, _ := w.Volumes.Get(w.ctx, vol.ID); v.Status != compute.VolumeInUse {
		t.Fatalf("%+v", v)
	}
	w.act(s.ID, compute.Act{Action: compute.DetachVolume, VolumeID: vol.ID}, alice)
	w.endJobs(s.ID)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Detached(w.ctx, tx, s.ID, compute.VolumeArgs{VolumeID: vol.ID})
	})
	if s = w.read(s.ID); len(s.Disks) != 1 || s.Task != compute.NoTask {
		t.Fatalf("%+v", s)
	}
}

// TestAVolumeThatAServerHasIsNotCalledFree: otherwise a second server could attach it and write to it. The printed remedy is accepted.
func TestAVolumeThatAServerHasIsNotCalledFree(t *testing.T) {
	w := newWorld(t)
	vol := w.volume()
	s := w.server(alice, compute.Active)
	w.act(s.ID, compute.Act{Action: compute.AttachVolume, VolumeID: vol.ID}, alice)
	w.endJobs(s.ID)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Attached(w.ctx, tx, s.ID, compute.VolumeArgs{VolumeID: vol.ID, Device: "vdb"})
	})
	reset := func(status compute.VolumeStatus, server string) error {
		_, err := w.Volumes.Update(w.ctx, vol.ID, admin.Asker, func(v *compute.Volume) error { v.Status, v.ServerID = status, server; return nil })
		return err
	}
	err := reset(compute.VolumeAvailable, "")
	if w.want(err, problem.Conflict); !strings.Contains(err.Error(), "openstack server remove volume "+s.ID) {
		t.Error(err)
	}
	w.no(reset(compute.VolumeError, s.ID))
	w.no(reset(compute.VolumeInUse, s.ID)) // the first half of the remedy
	w.act(s.ID, compute.Act{Action: compute.DetachVolume, VolumeID: vol.ID}, alice)
	w.endJobs(s.ID)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Detached(w.ctx, tx, s.ID, compute.VolumeArgs{VolumeID: vol.ID})
	})
	w.no(reset(compute.VolumeAvailable, ""))
}

// TestAResetVolumeIsGivenBack: a volume was called free while a server has it as a disk. What is printed for each state is accepted there, and
// an administrator who calls the volume in use gives it back to the one server that has it.
func TestAResetVolumeIsGivenBack(t *testing.T) {
	w := newWorld(t)
	vol := w.volume()
	s := w.server(alice, compute.Active)
	set := func(id string, boot int, state compute.VMState, task compute.Task) {
		w.tx(func(tx job.Tx) error {
			return w.Servers.Edit(w.ctx, tx, id, func(s *compute.Server) {
				s.State, s.Task = state, task
				s.Disks = []compute.Disk{{Name: "vdb", VolumeID: vol.ID, BootIndex: boot}}
			})
		})
	}
	status := func(status compute.VolumeStatus) error {
		_, err := w.Volumes.Update(w.ctx, vol.ID, admin.Asker, func(v *compute.Volume) error { v.Status = status; return nil })
		return err
	}
	for _, c := range []struct {
		boot   int
		state  compute.VMState
		task   compute.Task
		detach string
	}{
		{-1, compute.Active, compute.NoTask, "take it off the server: openstack server remove volume "},
		{-1, compute.Errored, compute.NoTask, "when that is active or stopped: openstack server remove volume "},
		{-1, compute.Active, compute.HardReboot, "when that is active or stopped: openstack server remove volume "},
		{0, compute.Active, compute.NoTask, ""},
	} {
		set(s.ID, c.boot, c.state, c.task)
		now, err := w.Servers.Server(w.ctx, s.ID, admin)
		w.no(err)
		_, err = w.Servers.Targets(w.ctx, now)
		w.want(err, problem.Conflict)
		if text := err.Error(); !strings.Contains(text, c.detach) || c.detach == "" && strings.Contains(text, "remove volume") || !strings.Contains(text, "openstack volume set --state in-use "+vol.ID) {
			t.Errorf("%+v: %s", c, text)
		}
	}
	twin := w.server(alice, compute.Active)
	set(twin.ID, -1, compute.Active, compute.NoTask)
	w.want(status(compute.VolumeInUse), problem.Conflict)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Edit(w.ctx, tx, twin.ID, func(s *compute.Server) { s.Disks = nil })
	})
	w.no(status(compute.VolumeInUse))
	v := must.Get(w.Volumes.Get(w.ctx, vol.ID))(w.t)
	now := must.Get(w.Servers.Server(w.ctx, s.ID, admin))(w.t)
	if targets, err := w.Servers.Targets(w.ctx, now); err != nil || len(targets) != 1 || v.ServerID != s.ID || v.Device != "vdb" {
		t.Errorf("targets %v, %v; volume %+v", targets, err, v)
	}
}

func TestRebuildTakesTheNewImage(t *testing.T) {
	w := newWorld(t)
	other := &compute.Image{Name: "other", Visibility: "public", Status: compute.ImageActive, DiskFormat: "qcow2", Digest: digest,
		Properties: map[string]string{"os_distro": "fedora", "os_type": "linux", "hw_firmware_type": "uefi"}}
	w.no(w.Images.Create(w.ctx, other, admin.Asker))
	s := w.server(alice, compute.Stopped)
	s = w.act(s.ID, compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: other.ID}, RebuildPassword: secret.New("new one")}, alice)
	if s.OS != "fedora" || s.Firmware != compute.UEFI || s.Disks[0].ImageID != other.ID || s.Task != compute.Rebuilding {
		t.Fatalf("%+v", s)
	}
	j := w.jobs(s.ID)[0]
	var args compute.RebuildArgs
	w.no(json.Unmarshal(j.Args, &args))
	if args.Power != compute.PowerOff || !strings.Contains(j.Secret.Reveal(), "$5$") || strings.Contains(string(j.Args), "new one") {
		t.Fatalf("%s %v", j.Args, j.Secret)
	}
}

func TestResetStateIsNoDeadEnd(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	w.act(s.ID, compute.Act{Action: compute.Rescue}, alice)
	w.run(w.jobs(s.ID)[0], job.Waiting)
	s = w.act(s.ID, compute.Act{Action: compute.ResetState, Reset: compute.Active}, admin)
	if s.Task != compute.NoTask || s.State != compute.Active || len(w.jobs(s.ID)) != 0 || s.Rescue.State != rescue.Failed {
		t.Fatalf("%+v", s)
	}
	s = w.act(s.ID, compute.Act{Action: compute.Unrescue}, alice)
	if s.Task != compute.Unrescuing {
		t.Fatal(s.Task)
	}
	_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.ResetState, Reset: compute.Active}, admin)
	w.want(err, problem.Conflict) // its job is ready: it locks
}

func TestTwoAtOnceHaveOneWinner(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	results := make(chan error, 8)
	for range cap(results) {
		go func() {
			_, err := w.Actions.Act(w.ctx, s.ID, compute.Act{Action: compute.Stop}, alice)
			results <- err
		}()
	}
	won := 0
	for range cap(results) {
		err := <-results
		var refused *compute.StateError
		switch {
		case err == nil:
			won++
		case !errors.As(err, &refused):
			t.Error(err)
		}
	}
	if won != 1 || len(w.jobs(s.ID)) != 1 {
		t.Errorf("%d won", won)
	}
}

func TestDeedsAndTimeGoOn(t *testing.T) {
	w := newWorld(t)
	s := w.server(alice, compute.Active)
	_, err := w.Leases.Renew(w.ctx, w.host.ID, "01", compute.Renewal{BootID: "boot-1", Did: []compute.LocalAction{{ServerID: s.ID, Text: "autostart\nturned off"}, {ServerID: newID(), Text: "x"}}})
	w.no(err)
	events, err := w.store.Events(w.ctx, compute.Subject(s.ID), 0, 100)
	w.no(err)
	found := false
	for _, e := range events {
		found = found || e.Text == "host: autostart turned off"
	}
	if !found {
		t.Errorf("%+v", events)
	}
	w.pass(time.Minute)
}

// A hypervisor places disks by letter: sdb of a server whose disks are vd... is vdb.
func TestADiskHasThePlaceOfItsLetter(t *testing.T) {
	w := newWorld(t)
	disk := func(device string) ([]*compute.Server, error) {
		return w.Servers.Create(w.ctx, compute.Creation{Name: "vm", Flavor: w.flavor.ID, Image: w.image.ID,
			Disks: []compute.DiskRequest{{SizeGiB: 1, BootIndex: -1, Device: device}}}, alice)
	}
	for device, want := range map[string]string{"/dev/sdc": "vdc", "hdb": "vdb", "vdz": "vdz", "": "vdb"} {
		made := must.Get(disk(device))(w.t)
		if got := made[0].Disks[1].Name; got != want {
			t.Errorf("%s is %s, want %s", device, got, want)
		}
	}
	for device, kind := range map[string]problem.Kind{"/dev/sda": problem.Conflict, "hda": problem.Conflict, "vdaa": problem.Invalid, "vd": problem.Invalid} {
		_, err := disk(device)
		w.want(err, kind)
	}
}
