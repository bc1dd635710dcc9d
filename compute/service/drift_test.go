package service_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// What a host tells that somebody else changed is kept, told once on the timeline, refuses moves and rebuilds with the file and the command,
// and ends when the host tells no more of it.
func TestDriftIsToldAndRefuses(t *testing.T) {
	w := newWorld(t)
	s := w.server(admin, compute.Active)
	guest := compute.Guest{ID: s.ID, Name: s.GuestName, Ours: true, Epoch: s.Epoch, Power: compute.PowerOn}
	tell := func(drift ...compute.Drift) *compute.Server {
		guest.Drift = drift
		w.pass(compute.RenewEvery)
		w.renew(w.host, "boot-1", guests(guest))
		return must.Get(w.store.Servers().Get(w.ctx, nil, s.ID))(t)
	}
	disk := compute.Drift{Part: "disk vda", Text: "lies in /pool/vda.ov", Disk: true, Remedy: "virsh blockcommit g vda --active --pivot --wait"}
	screen := compute.Drift{Part: "graphics vnc", Text: "was added"}
	rebuild := compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{ImageID: w.image.ID}}

	first := tell(disk, screen)
	if again := tell(disk, screen); !slices.Equal(again.Drift, []compute.Drift{disk, screen}) || again.Version != first.Version {
		t.Fatalf("drift %+v, version %d then %d; want both drifts, and nothing written the second time", again.Drift, first.Version, again.Version)
	}
	if life := must.Get(w.Liveness.Of(w.ctx, []*compute.Host{w.host}))(t)[w.host.ID]; life.Servers != 1 || life.Drifted != 1 {
		t.Errorf("the host has %d servers, %d of them changed; want 1 and 1", life.Servers, life.Drifted)
	}
	for what, ask := range map[string]func() error{
		"rebuild":   func() error { _, err := w.Actions.Act(w.ctx, s.ID, rebuild, admin); return err },
		"migration": func() error { _, err := w.Moves.Migrate(w.ctx, s.ID, compute.MigrationRequest{}, admin); return err },
	} {
		if err := ask(); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "/pool/vda.ov") || !strings.Contains(err.Error(), disk.Remedy) {
			t.Errorf("%s: %v, want a Conflict that names the file and the command", what, err)
		}
	}
	owner := compute.Who{Project: s.Project, Asker: record.Asker{User: s.User}}
	if _, err := w.Actions.Act(w.ctx, s.ID, rebuild, owner); !problem.Is(err, problem.Conflict) || strings.Contains(err.Error(), "/pool") {
		t.Errorf("a rebuild by the owner: %v, want a Conflict that names no file of the host", err)
	}

	if after := tell(screen); after.Drift == nil || len(after.Drift) != 1 {
		t.Errorf("after the merge: drift %+v, want that of the screen alone", after.Drift)
	}
	must.Get(w.Actions.Act(w.ctx, s.ID, rebuild, admin))(t)
	var texts []string
	for _, e := range must.Get(w.store.Events(w.ctx, compute.Subject(s.ID), 0, 100))(t) {
		if strings.Contains(e.Text, "someone other") || strings.Contains(e.Text, "again") {
			texts = append(texts, e.Text)
		}
	}
	want := []string{"changed by someone other than salvor: disk vda lies in /pool/vda.ov", "changed by someone other than salvor: graphics vnc was added",
		"as salvor wrote it again: disk vda"}
	if !slices.Equal(texts, want) {
		t.Errorf("the timeline says %q, want %q", texts, want)
	}
}

// A look that tells of drift for the first time judges the power too. So a server is started whose host has started again, and which somebody changed just before.
func TestDriftHidesNoPower(t *testing.T) {
	w := newWorld(t)
	s := w.server(admin, compute.Active)
	guest := compute.Guest{ID: s.ID, Name: s.GuestName, Ours: true, Epoch: s.Epoch, Power: compute.PowerOn}
	w.pass(compute.RenewEvery)
	w.renew(w.host, "boot-1", guests(guest))
	w.pass(time.Hour)
	guest.Power, guest.Drift = compute.PowerOff, []compute.Drift{{Part: "disk vda", Text: "lies in /pool/vda.ov", Disk: true}}
	w.renew(w.host, "boot-2", guests(guest))
	if now := must.Get(w.store.Servers().Get(w.ctx, nil, s.ID))(t); now.Wanted != compute.PowerOn || now.Task != compute.Reconciling || len(now.Drift) != 1 {
		t.Errorf("state %s, wanted %s, task %q, drift %+v; want a server that is being started, with its drift", now.State, now.Wanted, now.Task, now.Drift)
	}
}

// A host may tell much: what is kept is bounded.
func TestDriftIsBounded(t *testing.T) {
	many := make([]compute.Drift, 1000)
	for i := range many {
		many[i] = compute.Drift{Part: strings.Repeat("p", 1<<16), Text: strings.Repeat("t", 1<<16), Remedy: strings.Repeat("r", 1<<16)}
	}
	size := 0
	for _, d := range compute.BoundDrift(many) {
		size += len(d.Part) + len(d.Text) + len(d.Remedy)
	}
	if size > 128<<10 {
		t.Errorf("%d bytes are kept of one server, want 128 KiB at most", size)
	}
}
