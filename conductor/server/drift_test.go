package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/job/jobtest"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

// driftOperations are the operations of servers between whose host orders somebody else moves a disk.
var driftOperations = map[string]struct {
	state compute.VMState
	// before brings the server there; ask requests the operation.
	before, ask func(t *testing.T, l *migrationWorld)
	// ends: the server's disks are gone afterwards, with the consent of their owner.
	ends bool
	bent func(l *migrationWorld)
}{
	"stop":        {state: compute.Active, ask: asks(compute.Act{Action: compute.Stop})},
	"start":       {state: compute.Stopped, ask: asks(compute.Act{Action: compute.Start})},
	"reboot":      {state: compute.Active, ask: asks(compute.Act{Action: compute.Reboot})},
	"hard reboot": {state: compute.Active, ask: asks(compute.Act{Action: compute.RebootHard})},
	"pause":       {state: compute.Active, ask: asks(compute.Act{Action: compute.Pause})},
	"rescue": {state: compute.Active, ask: func(t *testing.T, l *migrationWorld) {
		startRescue(t, l.testHost, false)
	}},
	"unrescue": {state: compute.Active, before: func(t *testing.T, l *migrationWorld) {
		startRescue(t, l.testHost, false)
		l.finish(t)
	}, ask: asks(compute.Act{Action: compute.Unrescue})},
	"rebuild":      {state: compute.Active, ask: asks(compute.Act{Action: compute.Rebuild, Rebuild: &compute.RebuildArgs{}}), ends: true},
	"live move":    {state: compute.Active, ask: moves},
	"cold move":    {state: compute.Active, ask: moves, bent: func(l *migrationWorld) { l.mute(l.testHost, compute.MigrateBegin) }},
	"stopped move": {state: compute.Stopped, ask: moves},
	"delete":       {state: compute.Active, ask: asks(compute.Act{Action: compute.Delete}), ends: true},
}

func asks(a compute.Act) func(*testing.T, *migrationWorld) {
	return func(t *testing.T, l *migrationWorld) {
		a := a // each test has its own
		if a.Rebuild != nil {
			again := *a.Rebuild
			again.ImageID = l.image
			a.Rebuild, a.RebuildPassword = &again, secret.New("another")
		}
		l.act(t, a)
	}
}

func moves(t *testing.T, l *migrationWorld) {
	l.requestMigration(t, compute.MigrationRequest{})
}

// driftKinds are what another tool does to the disks of a guest: files by disk, and whether the tool takes that back later.
var driftKinds = map[string]struct {
	files map[string]hypervisor.DiskFile
}{
	"snapshot of the root disk": {files: map[string]hypervisor.DiskFile{"vda": {Path: "/pool/vda.overlay", Format: "qcow2"}}},
	"root disk pivoted":         {files: map[string]hypervisor.DiskFile{"vda": {Path: "/elsewhere/vda", Format: "raw"}}},
	"snapshot of the data disk": {files: map[string]hypervisor.DiskFile{"vdb": {Path: "/pool/vdb.overlay", Format: "qcow2"}}},
	"snapshot of all disks": {files: map[string]hypervisor.DiskFile{"vda": {Path: "/pool/vda.overlay", Format: "qcow2"},
		"vdb": {Path: "/pool/vdb.overlay", Format: "qcow2"}}},
}

// A disk that somebody else moves, between any two orders of any operation, is never left behind without a word: the guest goes on in the
// file that it used last, or the operation says that it does not.
func TestSweepDisksMovedByOthers(t *testing.T) {
	t.Parallel()
	combinations, chosen := 0, jobtest.Choose(t, 16, 4)
	for name, op := range driftOperations {
		dry := newDriftWorld(t, name, nil, -1)
		op.ask(t, dry.migrationWorld)
		dry.finish(t)
		for kind, change := range driftKinds {
			for at := range dry.orders + 1 {
				if combinations++; !chosen() {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, before order %d", name, kind, at), func(t *testing.T) {
					t.Parallel()
					w := newDriftWorld(t, name, change.files, at)
					op.ask(t, w.migrationWorld)
					w.finish(t)
					w.check(t, op.ends)
				})
			}
		}
	}
	t.Logf("%d combinations", combinations)
}

// driftWorld is a migrationWorld in which somebody else moves disks before an order.
type driftWorld struct {
	*migrationWorld
	files  map[string]hypervisor.DiskFile
	at     int
	orders int
	// change is what somebody else does before the order; move, unless a test says otherwise.
	change func()
	// changesMore: the change is more than a move of disks, and a fault of the server may be about the rest of the change.
	changesMore bool
	// used are the files that the guest used last, by disk, where that is not where its record says.
	used map[string]hypervisor.DiskFile
}

func newDriftWorld(t *testing.T, operation string, files map[string]hypervisor.DiskFile, at int) *driftWorld {
	t.Helper()
	op := driftOperations[operation]
	w := &driftWorld{migrationWorld: newMigrationWorld(t, moveOptions{hostOptions: hostOptions{state: op.state, access: rescue.ByChannel}}), files: files, at: -1}
	if op.bent != nil {
		op.bent(w.migrationWorld)
	}
	if op.before != nil {
		op.before(t, w.migrationWorld)
	}
	w.at, w.change = at, w.move
	for _, h := range w.testHosts() {
		refuse := h.refuse
		h.refuse = func(v compute.Verb, a *compute.Args) error {
			if w.orders == w.at {
				w.change()
			}
			w.orders++
			if refuse != nil {
				return refuse(v, a)
			}
			return nil
		}
	}
	return w
}

// move moves the disks where the guest has its data: where it runs, or is defined alone.
func (w *driftWorld) move() {
	var there []*testHost
	for _, h := range w.testHosts() {
		g, found := h.hv.State(w.server)
		switch {
		case found && g.Power == compute.PowerOn:
			there = []*testHost{h}
		case found && (len(there) == 0 || g.Power != compute.PowerPaused):
			there = append(there, h)
		}
	}
	if len(there) != 1 {
		return // the guest is gone, or held by its hypervisor amid a live move: nobody can move its disks
	}
	g, _ := there[0].hv.State(w.server)
	if g.Power == compute.PowerPaused && g.Runs != nil && len(there[0].did) > 0 && there[0].did[len(there[0].did)-1] == compute.MigratePerform {
		return
	}
	w.used = map[string]hypervisor.DiskFile{}
	for disk, file := range w.files {
		if _, has := g.Defined.Paths[disk]; has {
			there[0].hv.MoveDisk(w.server, disk, file)
			// What was moved before the operation holds writes, also of a guest that is off by now. What is moved while the guest is off holds none.
			if g.Power != compute.PowerOff || w.at == 0 {
				w.used[disk] = file
			}
		}
	}
}

func (w *driftWorld) check(t *testing.T, ends bool) {
	t.Helper()
	s, err := w.store.Servers().Get(context.Background(), nil, w.server)
	must.OK(t, err)
	if s.Task != compute.NoTask {
		t.Errorf("the server is left in task %s", s.Task)
	}
	var home *testHost
	for _, h := range w.testHosts() {
		if h.host.ID == s.HostID {
			home = h
		}
	}
	if s.State == compute.Deleted {
		return
	}
	if home == nil {
		t.Fatalf("the server is on no host:\n%s", w.whereabouts(t))
	}
	g, found := home.hv.State(w.server)
	if !found {
		t.Fatalf("host %s has no guest of the server:\n%s", home.host.Name, w.whereabouts(t))
	}
	failed := s.Fault != nil
	for disk, want := range w.used {
		uses := g.Defined.Paths[disk]
		if g.Runs != nil {
			uses = g.Runs.Paths[disk]
		}
		if uses != want && !(ends && !failed) {
			t.Errorf("disk %s is in %s, and what was written last is in %s; the server is %s, fault %+v:\n%s", disk, uses.Path, want.Path, s.State, s.Fault, w.whereabouts(t))
		}
		if failed && !w.changesMore && !strings.Contains(s.Fault.Message, "would be lost") {
			t.Errorf("the fault does not say what would be lost: %s", s.Fault.Message)
		}
	}
}
