package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/conductor/conductortest"
	"salvor/conductor/node"
	"salvor/driver"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/metal"
	"salvor/record"
	"salvor/store"
	"salvor/test/must"
)

// machineWorld is a machine in memory whose BMC knows power alone, a node of it, and a real store.
type machineWorld struct {
	mu      sync.Mutex
	power   metal.Power
	broken  error              // what the BMC answers to every question of power
	reading func() metal.Power // what the BMC reads instead of the power that is

	store    *store.Store
	nodes    *metal.Nodes
	machines *node.Conductor
	con      *Conductor
	node     string
}

func (w *machineWorld) PowerState(context.Context, *metal.Node) (metal.Power, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading != nil && w.broken == nil {
		return w.reading(), nil
	}
	return w.power, w.broken
}

func (w *machineWorld) SetPower(_ context.Context, _ *metal.Node, want metal.Power) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.power = want
	}
	return w.broken
}

func (w *machineWorld) SoftOff(ctx context.Context, n *metal.Node) error {
	return w.SetPower(ctx, n, metal.PowerOff)
}

// newMachineWorld makes an active node on a fresh store, and what operates on it, by a clock.
func newMachineWorld(t *testing.T, now func() time.Time) *machineWorld {
	t.Helper()
	ctx := context.Background()
	st, key := conductortest.Store(t, allDefinitions())
	w := &machineWorld{power: metal.PowerOn, store: st}
	w.nodes = metal.NewNodes(st, st, key, metal.NewDirectory(st, time.Now, 0, 0), metal.Options{RestrictLookup: true}, time.Now)
	info := metal.DriverInfo{Name: "machine", Interfaces: map[string]metal.InterfaceSet{"power": {Default: "machine", Enabled: []metal.InterfaceInfo{{Name: "machine"}}}}}
	w.machines = node.New(node.Config{Store: st, Nodes: w.nodes, Key: key, Log: slog.New(slog.DiscardHandler), Now: now,
		Drivers: []driver.HardwareType{{Info: info, Power: map[string]driver.Power{"machine": w}}}})
	catalog := must.Get(json.Marshal(w.machines.Catalog()))(t)
	must.OK(t, st.Register(ctx, job.Conductor{ID: "api", Incarnation: "api", Hostname: "api", Groups: []string{""}, Description: catalog}))
	n := &metal.Node{ID: uuid.NewString(), Driver: "machine", ProvisionState: metal.Active, TargetProvision: metal.Active.Info().Target, PowerState: metal.PowerOn}
	must.OK(t, w.nodes.Create(ctx, n, record.Asker{}))
	w.node = n.ID
	return w
}

// definitions are those of both halves of this world.
func (w *machineWorld) definitions() []job.Definition {
	return append(w.machines.Definitions(), w.con.Definitions()...)
}

func (w *machineWorld) world(kind job.Kind, start, broken func(t *testing.T)) *jobtest.World {
	return &jobtest.World{
		Store: w.store, Definitions: w.definitions(), Conductor: job.Conductor{ID: "c", Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
		Kind: kind, Start: start, Broken: broken,
	}
}

// open lists the jobs of the node that have not ended.
func (w *machineWorld) open(t *testing.T) []job.Job {
	t.Helper()
	return conductortest.OpenJobs(t, w.store, job.Node(w.node))
}
