package service_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/test/must"
)

// volume makes a volume that alice owns.
func (w *world) volume() *compute.Volume {
	w.t.Helper()
	vol := &compute.Volume{Name: "v", Project: "alice", SizeGiB: 1, Portal: "10.0.0.1:3260", IQN: "iqn.2026-01.example:v"}
	w.no(w.Volumes.Create(w.ctx, vol, alice.Asker))
	return vol
}

// attached makes a volume that a server of alice's has.
func (w *world) attached(s *compute.Server) *compute.Volume {
	w.t.Helper()
	vol := w.volume()
	w.act(s.ID, compute.Act{Action: compute.AttachVolume, VolumeID: vol.ID}, alice)
	w.endJobs(s.ID)
	w.tx(func(tx job.Tx) error {
		return w.Servers.Attached(w.ctx, tx, s.ID, compute.VolumeArgs{VolumeID: vol.ID, Device: "vdb"})
	})
	return vol
}

// TestAVolumeOfADeletedServerIsFreeOnceNobodyWrites: the volume of a deleted server is available only if all guests of the server are off. While
// one may still write to it, its status is error, and no other server gets it.
func TestAVolumeOfADeletedServerIsFreeOnceNobodyWrites(t *testing.T) {
	removed := func(w *world, s *compute.Server) {
		w.tx(func(tx job.Tx) error { return w.Servers.Gone(w.ctx, tx, s.ID) })
	}
	left := func(w *world, s *compute.Server) {
		w.tx(func(tx job.Tx) error { return w.Servers.GoneWithout(w.ctx, tx, s.ID) })
	}
	fenced := func(w *world) {
		must.Get(w.fence(w.host, compute.PowerCut))(w.t)
	}
	for name, c := range map[string]struct {
		before func(w *world, s *compute.Server)
		end    func(w *world, s *compute.Server)
		want   compute.VolumeStatus
	}{
		"its host removed it":                     {func(*world, *compute.Server) {}, removed, compute.VolumeAvailable},
		"its host is gone and not fenced":         {func(*world, *compute.Server) {}, left, compute.VolumeError},
		"its host is fenced":                      {func(w *world, _ *compute.Server) { fenced(w) }, left, compute.VolumeAvailable},
		"its host was fenced in the lost history": {func(w *world, _ *compute.Server) { fenced(w); w.release() }, left, compute.VolumeError},
		"another host reports a guest": {func(w *world, s *compute.Server) {
			w.renew(w.join("host-b"), "boot-1", guests(runs(s, s.Epoch)))
		}, removed, compute.VolumeError},
		"another host reports a guest, its host is fenced": {func(w *world, s *compute.Server) {
			w.renew(w.join("host-b"), "boot-1", guests(runs(s, s.Epoch)))
			fenced(w)
		}, left, compute.VolumeError},
		"the boot that was fenced speaks again": {func(w *world, s *compute.Server) {
			must.Get(w.fence(w.host, compute.StorageRevoked, compute.Attested))(w.t)
			w.pass(time.Minute)
			w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
		}, left, compute.VolumeError},
		"an operator reset the volume to error": {func(w *world, s *compute.Server) {
			_, err := w.Volumes.Update(w.ctx, w.read(s.ID).Disks[1].VolumeID, admin.Asker, func(v *compute.Volume) error { v.Status = compute.VolumeError; return nil })
			w.no(err)
		}, left, compute.VolumeError},
		"it was detached while another host reports a guest": {func(w *world, s *compute.Server) {
			vol := w.read(s.ID).Disks[1].VolumeID
			w.act(s.ID, compute.Act{Action: compute.DetachVolume, VolumeID: vol}, alice)
			w.endJobs(s.ID)
			w.renew(w.join("host-b"), "boot-1", guests(runs(s, s.Epoch)))
			w.tx(func(tx job.Tx) error { return w.Servers.Detached(w.ctx, tx, s.ID, compute.VolumeArgs{VolumeID: vol}) })
		}, removed, compute.VolumeError},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.server(alice, compute.Active)
			vol := w.attached(s)
			w.renew(w.host, "boot-1", guests(runs(s, s.Epoch)))
			w.pass(time.Minute)
			c.before(w, s)
			c.end(w, s)
			v := must.Get(w.Volumes.Get(w.ctx, vol.ID))(w.t)
			if v.Status != c.want || v.ServerID != "" || v.Device != "" {
				t.Errorf("volume %s of %q at %q, want %s of nobody", v.Status, v.ServerID, v.Device, c.want)
			}
			if told := strings.Contains(w.timeline(s.ID), "its volumes are in error"); told != (c.want == compute.VolumeError) {
				t.Errorf("told %t:\n%s", told, w.timeline(s.ID))
			}
		})
	}
}
