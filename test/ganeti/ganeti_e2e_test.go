//go:build e2e

package ganeti

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/hypervisor/ganeti"
	"salvor/rescue"
	"salvor/test/must"
)

// TestRescueOnGaneti is one cluster's day: each part goes on where the one before it ended.
func TestRescueOnGaneti(t *testing.T) {
	w := newWorld(t)
	w.join()
	id := w.adopt(web)
	before := w.custom(web)
	if before["boot_order"] != "network" {
		t.Fatalf("the instance begins with %v", before)
	}
	s := w.server(id)
	if !s.Foreign || s.State != compute.Stopped || s.GuestName != web || s.Flavor.VCPUs != 1 || s.Flavor.RAM != 512 || len(s.NICs) != 1 || len(s.Disks) != 1 || s.OS != "debian" {
		t.Fatalf("adopted as %+v", s)
	}
	for _, part := range []struct {
		name string
		run  func(*world, string, map[string]any)
	}{
		{"rescue and back", rescueAndBack}, {"wrong path", wrongPath}, {"foreign changes", foreignChanges},
		{"reconcile", reconcile}, {"RAPI away", rapiAway}, {"create and delete", createAndDelete}, {"let go", letGo},
		{"evacuate", evacuate},
	} {
		t.Run(part.name, func(t *testing.T) {
			start := time.Now()
			inner := *w
			inner.T = t
			part.run(&inner, id, maps.Clone(before))
			t.Logf("%.1f s", time.Since(start).Seconds())
		})
		if t.Failed() {
			t.Fatal(w.timeline(compute.Subject(id)))
		}
	}
}

func inSession(state rescue.State, power compute.Power) func(*compute.Server) bool {
	return func(s *compute.Server) bool {
		return s.Task == compute.NoTask && s.State == compute.Rescued && s.Rescue != nil && s.Rescue.State == state && s.Power == power
	}
}

func outOfSession(s *compute.Server) bool {
	return s.Task == compute.NoTask && s.State == compute.Stopped && s.Rescue == nil && s.Power == compute.PowerOff
}

// rescueAndBack is the specification's own story: only settings change, the start boots the image, and what was set comes back.
func rescueAndBack(w *world, id string, before map[string]any) {
	w.act(id, compute.Act{Action: compute.Rescue, MustBeOff: true, Rescue: rescue.Request{Image: w.image.Num}})
	w.until(id, "prepare the rescue", inSession(rescue.Prepared, compute.PowerOff))
	if now := w.custom(web); now["boot_order"] != "cdrom" || now["cdrom_image_path"] != w.at("c/isos/rescue.iso") {
		w.Errorf("in rescue: %v", now)
	}
	if w.use(w.image) != 1 {
		w.Error("the image is not in use")
	}
	w.act(id, compute.Act{Action: compute.Start, MustBeOff: true})
	w.until(id, "start", func(s *compute.Server) bool { return s.Task == compute.NoTask && s.Power == compute.PowerOn })
	w.console(0, "salvor: [")
	w.act(id, compute.Act{Action: compute.Stop, MustBeOff: true})
	w.until(id, "stop", inSession(rescue.Prepared, compute.PowerOff))
	w.act(id, compute.Act{Action: compute.Unrescue, MustBeOff: true})
	w.until(id, "unrescue", outOfSession)
	w.wantCustom(before)
	if w.use(w.image) != 0 {
		w.Error("the image is still in use")
	}
}

// wrongPath: what Ganeti refuses is told in its words; nothing is held, and the server is off as before.
func wrongPath(w *world, id string, before map[string]any) {
	img := w.addImage("nowhere.iso")
	w.act(id, compute.Act{Action: compute.Rescue, MustBeOff: true, Rescue: rescue.Request{Image: img.Num}})
	s := w.until(id, "refuse the image", func(s *compute.Server) bool { return s.Task == compute.NoTask })
	if !outOfSession(s) || s.Fault == nil || !strings.Contains(s.Fault.Message, "not found or not a file or URL") {
		w.Errorf("it ended as %s", picture(s))
	}
	w.wantCustom(before)
	if w.use(img) != 0 {
		w.Error("the image is still in use")
	}
}

// foreignChanges: gnt-instance, beside us, in both directions.
func foreignChanges(w *world, id string, before map[string]any) {
	w.run("gnt-instance", "modify", "-H", "boot_order=cdrom,cdrom_image_path="+w.at("c/isos/rescue.iso"), web)
	w.until(id, "see a rescue", inSession(rescue.Prepared, compute.PowerOff))
	if w.use(w.image) != 1 {
		w.Error("the image is not in use")
	}
	w.run("gnt-instance", "modify", "-H", "boot_order=network,cdrom_image_path=default", web)
	w.until(id, "see its end", outOfSession)
	if w.use(w.image) != 0 {
		w.Error("the image is still in use")
	}
	// A CD of somebody's own is no rescue.
	w.run("cp", w.at("c/isos/rescue.iso"), w.at("c/install.iso"))
	w.run("gnt-instance", "modify", "-H", "boot_order=cdrom,cdrom_image_path="+w.at("c/install.iso"), web)
	w.until(id, "hear of the job", func(*compute.Server) bool {
		return strings.Count(w.timeline(compute.Subject(id)), "INSTANCE_SET_PARAMS") >= 5
	})
	if s := w.server(id); !outOfSession(s) {
		w.Errorf("a CD of someone's own made it %s", picture(s))
	}
	w.run("gnt-instance", "modify", "-H", "boot_order=network,cdrom_image_path=default", web)
	w.wantCustom(before)
	w.run("gnt-instance", "startup", web)
	w.until(id, "see that it was started", func(s *compute.Server) bool { return s.State == compute.Active && s.Power == compute.PowerOn })
	w.run("gnt-instance", "shutdown", "--timeout=0", web)
	w.until(id, "see that it was shut down", outOfSession)
}

// reconcile mends what the watcher could not, in both directions.
func reconcile(w *world, id string, before map[string]any) {
	mend := func(fix bool) []compute.Unsynced {
		ids, err := w.services.Reconciler.AskReconcile(w.Context(), "", fix, admin)
		if err != nil || len(ids) != 1 {
			w.Fatalf("%v %v", ids, err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		defer cancel()
		var found []compute.Unsynced
		must.OK(w, w.services.Reconciler.Answer(ctx, ids[0], &found))
		return found
	}
	w.run("gnt-instance", "modify", "-H", "boot_order=cdrom,cdrom_image_path="+w.at("c/isos/rescue.iso"), web)
	mend(true)
	w.until(id, "mend into a rescue", inSession(rescue.Prepared, compute.PowerOff))
	if found := mend(true); len(found) != 0 {
		w.Errorf("mended, and found again: %+v", found)
	}
	w.run("gnt-instance", "modify", "-H", "boot_order=network,cdrom_image_path=default", web)
	mend(true)
	w.until(id, "mend out of a rescue", outOfSession)
	w.wantCustom(before)
}

// rapiAway: nothing is lost while the cluster does not answer, and it is named.
func rapiAway(w *world, id string, before map[string]any) {
	w.run("/usr/lib/ganeti/daemon-util", "stop", "ganeti-rapi")
	w.act(id, compute.Act{Action: compute.Rescue, MustBeOff: true, Rescue: rescue.Request{Image: w.image.Num}})
	problem := func(named bool) {
		w.Helper()
		w.until(id, "name the cluster's problem", func(*compute.Server) bool {
			row := must.Get(w.store.Clusters().Get(w.Context(), nil, w.cluster.ID))(w)
			return (row.Problem != "") == named
		})
	}
	problem(true)
	if s := w.server(id); s.Task != compute.Rescuing || s.Rescue == nil {
		w.Errorf("while RAPI is away it is %s", picture(s))
	}
	w.run("/usr/lib/ganeti/daemon-util", "start", "ganeti-rapi")
	problem(false)
	w.until(id, "rescue when RAPI is back", inSession(rescue.Prepared, compute.PowerOff))
	w.act(id, compute.Act{Action: compute.Unrescue, MustBeOff: true})
	w.until(id, "unrescue", outOfSession)
	w.wantCustom(before)
}

// createAndDelete: an instance of our own making, with its size and its marks, and nothing left of it in the end.
func createAndDelete(w *world, _ string, _ map[string]any) {
	client := must.Get(ganeti.New(ganeti.Config{URL: w.cluster.URL, User: w.cluster.User, Password: w.cluster.Password, CA: w.cluster.CA}))(w)
	h := ganeti.Host{Client: client, Node: node}
	id := uuid.NewString()
	d := hypervisor.Domain{Spec: compute.Spec{
		ServerID: id, GuestName: "salvor-" + id, Epoch: 1, VCPUs: 1, RAM: 256, Machine: map[string]string{ganeti.PropertySystem: "noop+default"},
		Disks: []compute.SpecDisk{{Name: "vda", SizeGiB: 1}}, NICs: []compute.NIC{{Bridge: "gnt0", MAC: "aa:00:00:00:00:07"}},
	}}
	guest := func(power compute.Power, ram int) {
		w.Helper()
		all, err := h.Guests(w.Context())
		at := slices.IndexFunc(all, func(g compute.Guest) bool { return g.ID == id })
		if err != nil || at < 0 || !all[at].Ours || all[at].Epoch != d.Epoch || all[at].Power != power || all[at].RAM != ram || all[at].NICs[0].MAC != d.NICs[0].MAC {
			w.Fatalf("%+v %v", all, err)
		}
	}
	define := func() {
		w.Helper()
		must.OK(w, h.Define(w.Context(), d))
	}
	define()
	define()
	guest(compute.PowerOff, 256)
	d.Epoch, d.RAM = 2, 384
	define()
	guest(compute.PowerOff, 384)
	must.Get(h.SetPower(w.Context(), id, hypervisor.Power{State: compute.PowerOn}))(w)
	guest(compute.PowerOn, 384)
	for range 2 {
		must.OK(w, h.Remove(w.Context(), id))
	}
	if list := w.run("gnt-instance", "list", "--no-headers", "-o", "name"); strings.TrimSpace(list) != web {
		w.Errorf("left: %s", list)
	}
}

// letGo: the deletion of an adopted server leaves its instance as it is.
func letGo(w *world, id string, before map[string]any) {
	w.act(id, compute.Act{Action: compute.Delete})
	w.until(id, "delete", func(s *compute.Server) bool { return s.State == compute.Deleted })
	w.wantCustom(before)
	if tags := w.run("gnt-instance", "list-tags", web); strings.Contains(tags, "salvor") {
		w.Errorf("it still is marked: %s", tags)
	}
}
