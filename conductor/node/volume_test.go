package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/conductor/conductortest"
	"salvor/driver"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/fixture"
	"salvor/test/must"
)

// volumeBoot is the bench's machine with an initiator of its own.
type volumeBoot struct{ *bench }

var _ driver.VolumeBoot = volumeBoot{}

func (b volumeBoot) CheckVolumes(_ context.Context, _ *metal.Node, v metal.VolumePlan) error {
	if v.Root.Mutual.Username != "" {
		return problem.Unsupportedf("the initiator cannot do mutual CHAP")
	}
	return nil
}

func (b volumeBoot) PlanVolumes(n *metal.Node, ports []*metal.Port, _ metal.VolumePlan, number int64) (*metal.BootPlan, error) {
	if n.Extra["initiator"] != nil {
		return nil, nil // the machine finds its volume without us
	}
	return &metal.BootPlan{Method: metal.BootIPXE, Path: "volumes", BootNumber: number, Persistent: true, Volumes: true, MACs: []string{ports[0].Address}}, nil
}

func (b volumeBoot) PrepareVolumes(ctx context.Context, n *metal.Node, v metal.VolumePlan) error {
	b.mu.Lock()
	b.device = rescue.Boot{Device: "pxe", Persistent: true}
	b.mu.Unlock()
	return b.RefreshVolumes(ctx, n, v)
}

func (b volumeBoot) RefreshVolumes(_ context.Context, _ *metal.Node, v metal.VolumePlan) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.volume = v.Root.Paths[0].IQN
	return nil
}

func (b volumeBoot) CleanUpVolumes(context.Context, *metal.Node) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.volume, b.device = "", rescue.Boot{}
	return nil
}

const benchTarget = "iqn.2026-01.org.salvor:v1"

// newVolumeBench has a root volume and the connector for it.
func newVolumeBench(t *testing.T, state metal.State) *bench {
	t.Helper()
	b := newBench(t, state)
	change(t, b, func(n *metal.Node) {
		n.Interfaces = map[string]string{"storage": "volumes", "boot": "volumes"}
		n.Properties = metal.Object{"capabilities": "iscsi_boot:true"}
	})
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		head := func(id string) record.Record { return record.Record{ID: id, CreatedAt: time.Now()} }
		if err := b.store.Connectors().Insert(tx, &metal.Connector{Record: head("6f3c1a52-9f0f-4d5e-8d8e-1f2f3c4d5e61"), NodeID: b.node, Type: "iqn", ConnectorID: "iqn.2026-01.org.salvor:m1"}); err != nil {
			return err
		}
		return b.store.Targets().Insert(tx, &metal.Target{
			Record: head("6f3c1a52-9f0f-4d5e-8d8e-1f2f3c4d5e62"), NodeID: b.node, VolumeType: "iscsi", VolumeID: "v1",
			Properties: metal.Object{"target_portal": "192.0.2.1:3260", "target_iqn": benchTarget, "target_lun": 1.0, "auth_username": "u", "auth_password": "volume secret"},
		})
	}))
	return b
}

func (b *bench) runs() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

// editTarget changes the root's properties as an operator would.
func (b *bench) editTarget(t *testing.T, key string, value any) {
	t.Helper()
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		all, err := b.store.Targets().List(context.Background(), tx, metal.TargetFilter{NodeID: b.node}, record.Page{Limit: 10})
		if err != nil {
			return err
		}
		all[0].Properties[key] = value
		return b.store.Targets().Save(tx, all[0])
	}))
}

// TestVolumeIsTheSystem deploys a node onto its volume, rescues it, puts it back, changes its target and takes it down.
func TestVolumeIsTheSystem(t *testing.T) {
	t.Parallel()
	b := newVolumeBench(t, metal.Available)
	b.run(t)
	ctx := context.Background()
	must.OK(t, b.ask(t, metal.Deploy))
	n := b.until(t, metal.Active)
	if n.Plan == nil || !n.Plan.Volumes || b.running != benchTarget {
		t.Fatalf("deployed: plan %+v, %s", n.Plan, b.picture(t))
	}
	if text, _ := json.Marshal(n); strings.Contains(string(text), "volume secret") {
		t.Error("the node's record holds the volume's secret")
	}
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	b.poke()
	if n = b.until(t, metal.Rescue); n.Plan != nil {
		t.Fatalf("rescued: %s", b.picture(t))
	}
	must.OK(t, b.ask(t, metal.Unrescue))
	if n = b.until(t, metal.Active); n.Plan == nil || !n.Plan.Volumes || b.running != benchTarget {
		t.Fatalf("put back: %s", b.picture(t))
	}
	b.editTarget(t, "target_iqn", benchTarget+"-2")
	must.OK(t, b.nodes.SetPower(ctx, b.node, metal.Reboot, 0, record.Asker{}))
	fixture.Poll(t, "the changed target boots", func() bool { return b.runs() == benchTarget+"-2" }, b.picture)
	b.until(t, metal.Active) // and the power job has ended
	must.OK(t, b.ask(t, metal.Delete))
	b.until(t, metal.Available)
	targets, err := b.store.Targets().List(ctx, nil, metal.TargetFilter{NodeID: b.node}, record.Page{Limit: 10})
	connectors, err2 := b.store.Connectors().List(ctx, nil, metal.ConnectorFilter{NodeID: b.node}, record.Page{Limit: 10})
	if err != nil || err2 != nil || len(targets) != 0 || len(connectors) != 1 || b.volume != "" {
		t.Errorf("taken down: %d targets, %d connectors, %v %v, %s", len(targets), len(connectors), err, err2, b.picture(t))
	}
}

// What cannot be booted is told while the machine is as it was.
func TestVolumesAreCheckedBeforeThePower(t *testing.T) {
	t.Parallel()
	b := newVolumeBench(t, metal.Available)
	b.run(t)
	b.editTarget(t, "target_portal", "no portal")
	if err := b.ask(t, metal.Deploy); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "names no host") {
		t.Errorf("at the door: %v", err)
	}
	v, err := b.nodes.Validate(context.Background(), b.node)
	if err != nil || v["storage"].OK || !strings.Contains(v["storage"].Reason, "names no host") {
		t.Errorf("validate: %+v, %v", v["storage"], err)
	}
	// What only the machine knows is asked before it is switched off.
	b.editTarget(t, "target_portal", "192.0.2.1:3260")
	b.editTarget(t, "auth_mutual_username", "m")
	b.editTarget(t, "auth_mutual_password", "p")
	must.OK(t, b.ask(t, metal.Deploy))
	if n := b.until(t, metal.DeployFailed); !strings.Contains(n.LastError, "mutual CHAP") || b.power != metal.PowerOn || b.running != "system" {
		t.Errorf("%q: %s", n.LastError, b.picture(t))
	}
}

// TestPowerOnNeedsBootableVolumes: a machine whose volumes cannot be booted is neither switched on nor restarted, and the node says why.
func TestPowerOnNeedsBootableVolumes(t *testing.T) {
	t.Parallel()
	for _, target := range []metal.PowerTarget{metal.TurnOn, metal.Reboot} {
		b := newVolumeBench(t, metal.Available)
		b.run(t)
		must.OK(t, b.ask(t, metal.Deploy))
		b.until(t, metal.Active)
		want := metal.PowerOn
		if target == metal.TurnOn {
			want = metal.PowerOff
			must.OK(t, b.nodes.SetPower(t.Context(), b.node, metal.TurnOff, 0, record.Asker{}))
			b.until(t, metal.Active)
		}
		b.mu.Lock()
		b.running = "former start" // until the machine starts anew
		b.mu.Unlock()
		b.editTarget(t, "target_portal", "no portal")
		must.OK(t, b.nodes.SetPower(t.Context(), b.node, target, 0, record.Asker{}))
		n := b.until(t, metal.Active)
		b.mu.Lock()
		power, running := b.power, b.running
		b.mu.Unlock()
		if power != want || running != "former start" || n.PowerState != want || !strings.Contains(n.LastError, "names no host") {
			t.Errorf("%s: power %s, recorded as %s, runs %q, last error %q; want %s, no new start, and an error about the portal that names no host", target, power, n.PowerState, running, n.LastError, want)
		}
	}
}

// Unrescue has every action on volumes that deploy has, in a list of half the length.
func TestSweepVolumes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   job.Kind
		from   metal.State
		verb   metal.Verb
		failed metal.State
	}{
		{"unrescue", metal.Rescue, metal.Unrescue, metal.UnrescueFailed},
		{"delete", metal.Active, metal.Delete, metal.Error},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				b := newVolumeBench(t, c.from)
				return b.world(c.kind, func(t *testing.T) { b.start(t, c.verb) }, func(t *testing.T) {
					n := b.noSecretLeft(t)
					if n.ProvisionState != c.failed && n.ProvisionState != metal.Active || n.LastError == "" {
						t.Errorf("state %s, error %q; want %s", n.ProvisionState, n.LastError, c.failed)
					}
				})
			})
		})
	}
}

// TestFormerVolumesAreForgotten: a node that is built again on its disk leaves nothing of its volume in its own initiator,
// whether its storage interface still knows volumes or not.
func TestFormerVolumesAreForgotten(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{"volumes", "bench"} {
		b := newVolumeBench(t, metal.Available)
		change(t, b, func(n *metal.Node) { n.Extra = metal.Object{"initiator": true} })
		b.run(t)
		must.OK(t, b.ask(t, metal.Deploy))
		if n := b.until(t, metal.Active); n.Plan != nil || b.runs() != benchTarget || n.InternalInfo[volumesMark] != true {
			t.Fatalf("on its volume: %v, %s", n.InternalInfo, b.picture(t))
		}
		must.OK(t, b.store.Do(context.Background(), b.con.dropTargets(context.Background(), b.node)))
		change(t, b, func(n *metal.Node) { n.Interfaces["storage"] = storage })
		must.OK(t, b.ask(t, metal.Rebuild))
		if n := b.until(t, metal.Active); b.runs() != "system" || b.volume != "" || len(n.InternalInfo) != 0 {
			t.Errorf("%s: on its disk: %v, %s", storage, n.InternalInfo, b.picture(t))
		}
	}
}

// TestTeardownDropsTheLesseesConnectors: the next tenant's volumes are not let in to under a name that the former one gave.
func TestTeardownDropsTheLesseesConnectors(t *testing.T) {
	t.Parallel()
	b := newVolumeBench(t, metal.Active)
	must.OK(t, b.store.Do(t.Context(), func(tx job.Tx) error {
		return b.store.Connectors().Insert(tx, &metal.Connector{Record: record.Record{ID: "6f3c1a52-9f0f-4d5e-8d8e-1f2f3c4d5e69"}, NodeID: b.node, Type: "iqn", ConnectorID: "iqn.2026-11.test:planted", Lessee: "p1"})
	}))
	b.run(t)
	must.OK(t, b.ask(t, metal.Delete))
	b.until(t, metal.Available)
	connectors, err := b.store.Connectors().List(t.Context(), nil, metal.ConnectorFilter{NodeID: b.node}, record.Page{Limit: 10})
	if err != nil || len(connectors) != 1 || connectors[0].Lessee != "" {
		t.Errorf("after the instance: %v, %v", connectors, err)
	}
}

// TestTemplatesOfADeploymentWithoutARamdisk: the steps of the chosen deploy templates run, or they refuse the deployment if nothing there has
// them.
func TestTemplatesOfADeploymentWithoutARamdisk(t *testing.T) {
	t.Parallel()
	b := newVolumeBench(t, metal.Available)
	change(t, b, func(n *metal.Node) {
		n.Traits, n.InstanceInfo = []string{"CUSTOM_T"}, metal.Object{"traits": []any{"CUSTOM_T"}}
	})
	template := func(steps ...metal.Step) {
		t.Helper()
		must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
			all, err := b.store.DeployTemplates().List(context.Background(), tx, metal.DeployTemplateFilter{}, record.Page{Limit: 10})
			for _, old := range all {
				err = b.store.DeployTemplates().Delete(tx, old)
			}
			if err != nil {
				return err
			}
			return b.store.DeployTemplates().Insert(tx, &metal.DeployTemplate{Record: record.Record{ID: "6f3c1a52-9f0f-4d5e-8d8e-1f2f3c4d5e63", CreatedAt: time.Now()}, Name: "CUSTOM_T", Steps: steps})
		}))
	}
	refused := func() string {
		t.Helper()
		n := must.Get(b.store.Node(context.Background(), nil, b.node))(t)
		reasons := must.Get(b.nodes.Check(context.Background(), n, metal.Operation{Kind: "deploy"}, b.con))(t)
		return fmt.Sprint(reasons)
	}
	template(metal.Step{Interface: "deploy", Step: "inject_files", Args: metal.Object{}, Priority: 90})
	if why := refused(); !strings.Contains(why, "deploy template CUSTOM_T: ") || strings.Contains(why, "disable_ramdisk") {
		t.Errorf("a step that the machine does not have: %s", why)
	}
	template(metal.Step{Interface: "power", Step: "hold", Args: metal.Object{}, Priority: 90})
	if why := refused(); strings.Contains(why, "CUSTOM_T") {
		t.Errorf("a step that every node has: %s", why)
	}
	b.run(t)
	b.start(t, metal.Deploy)
	b.pokes(t, metal.DeployHold)
}
