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
	"salvor/secret"
	"salvor/store"
)

// machineWorld is a machine in memory whose BMC knows power alone, a node of it, and a real store.
type machineWorld struct {
	mu      sync.Mutex
	power   metal.Power
	broken  error              // what the BMC answers to every question of power
	reading func() metal.Power // what the BMC reads instead of the power that is

	store    *store.Store
	nodes    *metal.Nodes
	key      *secret.Key
	machines *node.Conductor
	con      *Conductor
	node     string
}

func (b *machineWorld) PowerState(context.Context, *metal.Node) (metal.Power, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading != nil && b.broken == nil {
		return b.reading(), nil
	}
	return b.power, b.broken
}

func (b *machineWorld) SetPower(_ context.Context, _ *metal.Node, want metal.Power) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil {
		b.power = want
	}
	return b.broken
}

func (b *machineWorld) SoftOff(ctx context.Context, n *metal.Node) error {
	return b.SetPower(ctx, n, metal.PowerOff)
}

// newMachineWorld makes an active node on a fresh store, and what operates on it, by a clock.
func newMachineWorld(t *testing.T, now func() time.Time) *machineWorld {
	t.Helper()
	ctx := context.Background()
	st, key := conductortest.Store(t, allDefinitions())
	b := &machineWorld{power: metal.PowerOn, store: st, key: key}
	b.nodes = metal.NewNodes(st, st, key, metal.NewDirectory(st, time.Now, 0, 0), metal.Options{RestrictLookup: true}, time.Now)
	info := metal.DriverInfo{Name: "bench", Interfaces: map[string]metal.InterfaceSet{"power": {Default: "bench", Enabled: []metal.InterfaceInfo{{Name: "bench"}}}}}
	b.machines = node.New(node.Config{Store: st, Nodes: b.nodes, Key: key, Log: slog.New(slog.DiscardHandler), Now: now,
		Drivers: []driver.HardwareType{{Info: info, Power: map[string]driver.Power{"bench": b}}}})
	catalog, err := json.Marshal(b.machines.Catalog())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Register(ctx, job.Conductor{ID: "api", Incarnation: "api", Hostname: "api", Groups: []string{""}, Description: catalog}); err != nil {
		t.Fatal(err)
	}
	n := &metal.Node{ID: uuid.NewString(), Driver: "bench", ProvisionState: metal.Active, TargetProvision: metal.Active.Info().Target, PowerState: metal.PowerOn}
	if err := b.nodes.Create(ctx, n, record.Asker{}); err != nil {
		t.Fatal(err)
	}
	b.node = n.ID
	return b
}

// definitions are those of both halves of this world.
func (b *machineWorld) definitions() []job.Definition {
	return append(b.machines.Definitions(), b.con.Definitions()...)
}

func (b *machineWorld) world(kind job.Kind, start, broken func(t *testing.T)) *jobtest.World {
	return &jobtest.World{
		Store: b.store, Definitions: b.definitions(), Conductor: job.Conductor{ID: "c", Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
		Kind: kind, Start: start, Broken: broken,
	}
}

// open lists the jobs of the node that have not ended.
func (b *machineWorld) open(t *testing.T) []job.Job {
	t.Helper()
	var open []job.Job
	err := b.store.Do(context.Background(), func(tx job.Tx) (err error) {
		open, err = b.store.Unended(tx, job.Node(b.node))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return open
}
