package host

import (
	"os"
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor/fake"
)

// A running server goes from one agent to the other by orders alone; its disk lies in a store that both see.
func TestLiveMigrationByOrders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pool := t.TempDir()
	var agents [2]*Agent
	var runs [2]*fake.Hypervisor
	for i := range agents {
		c := w.config(nil)
		runs[i] = fake.New()
		c.Hypervisor, c.Stores = runs[i], []Store{{Name: "pool", Dir: pool, Shared: true}}
		agents[i], _ = w.start(c)
		await(t, "a lease", func() bool { held, _ := agents[i].Leased(); return held })
	}
	from, to := agents[0], agents[1]
	server := uuid.NewString()
	spec := specFor(server, compute.SpecDisk{Name: "vda", Store: "pool", SizeGiB: 1, File: server + "-vda"})
	there := *spec
	there.Epoch++
	w.done(orderFor(from, server, compute.Prepare, compute.Args{Spec: spec}, nil))
	w.done(orderFor(from, server, compute.Define, compute.Args{Spec: spec}, nil))
	w.done(orderFor(from, server, compute.SetPower, compute.Args{Power: compute.PowerOn}, nil))

	w.done(orderFor(to, server, compute.Prepare, compute.Args{Spec: spec, Found: true}, nil))
	begun := w.done(orderFor(from, server, compute.MigrateBegin, compute.Args{}, nil))
	listens := w.done(orderFor(to, server, compute.MigratePrepare, compute.Args{Spec: spec, Cookie: begun.Cookie}, nil))
	if listens.Peer == "" || len(begun.Cookie) == 0 {
		t.Errorf("begun %d bytes, listens at %q", len(begun.Cookie), listens.Peer)
	}
	sent := w.done(orderFor(from, server, compute.MigratePerform, compute.Args{Cookie: listens.Cookie, Peer: listens.Peer}, nil))
	w.done(orderFor(to, server, compute.MigrateFinish, compute.Args{Spec: &there, Cookie: sent.Cookie}, nil))
	end := orderFor(from, server, compute.MigrateConfirm, compute.Args{}, nil)
	end.Epoch = there.Epoch
	w.done(end)
	remove := orderFor(from, server, compute.Remove, compute.Args{KeepDisks: true}, nil)
	remove.Epoch = there.Epoch
	w.done(remove)

	g, _ := runs[1].State(server)
	if g.Power != compute.PowerOn || g.Starts != 1 || g.Defined.Epoch != there.Epoch {
		t.Errorf("at the destination: %+v", g)
	}
	if _, there := runs[0].State(server); there {
		t.Error("it is at the source still")
	}
	if _, err := os.Stat(g.Defined.Paths["vda"].Path); err != nil {
		t.Errorf("its disk: %v", err)
	}
	// What is late does nothing any more.
	late := orderFor(from, server, compute.SetPower, compute.Args{Power: compute.PowerOn}, nil)
	if r := w.send(late); r.ErrorKind == "" {
		t.Errorf("an order of the former epoch was carried out: %+v", r)
	}
}
