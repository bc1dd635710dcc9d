package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
	"salvor/wire/agent"
)

// endless is a BIOS that never takes its settings.
type endless struct{ *bench }

func (endless) Steps(context.Context, *metal.Node) ([]driver.Step, error) {
	return []driver.Step{{Interface: "bios", Name: "apply"}}, nil
}

func (endless) RunStep(_ context.Context, n *metal.Node, _ metal.Step) (bool, error) {
	n.InternalInfo = metal.Object{"asked": true}
	return true, nil
}

func (endless) ForgetStep(n *metal.Node) { markInternal(n, "asked", false) }

// TestStepWithoutEnd: a step that the hardware never ends does not lock the node for good.
func TestStepWithoutEnd(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Active)
	hw := b.hardware()
	hw.Extras = map[string]map[string]any{"bios": {"bench": endless{b}}}
	b.con = New(Config{
		Store: b.store, Nodes: b.nodes, Key: b.key, Drivers: []driver.HardwareType{hw}, Log: b.con.Log, Now: time.Now, Agents: b,
		StepPoll: time.Millisecond, ServiceTimeout: 50 * time.Millisecond,
	})
	b.run(t)
	args := metal.ProvisionArgs{ServiceSteps: json.RawMessage(`[{"interface": "bios", "step": "apply"}]`), DisableRamdisk: true}
	must.OK(t, b.nodes.Provision(context.Background(), b.node, metal.Service, "service", args, record.Asker{}))
	n := b.until(t, metal.ServiceFailed)
	if !strings.Contains(n.LastError, "bios.apply: it did not end within 50ms") || n.InternalInfo["asked"] != nil {
		t.Errorf("last_error %q, notes %v", n.LastError, n.InternalInfo)
	}
}

// lengthy is a step of three parts; each takes two looks of 30 ms.
type lengthy struct {
	endless
	looks *int
}

func (s lengthy) RunStep(context.Context, *metal.Node, metal.Step) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.looks++
	return *s.looks < 6, nil
}

func (s lengthy) StepPart(*metal.Node) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint("part ", *s.looks/2)
}

// TestEachPartOfAStepHasItsTime: three images that take 60 ms each do not share a time-out of 50 ms.
func TestEachPartOfAStepHasItsTime(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Active)
	looks, began := 0, time.Now()
	hw := b.hardware()
	hw.Extras = map[string]map[string]any{"bios": {"bench": lengthy{endless{b}, &looks}}}
	b.con = New(Config{
		Store: b.store, Nodes: b.nodes, Key: b.key, Drivers: []driver.HardwareType{hw}, Log: b.con.Log, Agents: b,
		StepPoll: time.Millisecond, ServiceTimeout: 50 * time.Millisecond,
		Now: func() time.Time {
			b.mu.Lock()
			defer b.mu.Unlock()
			return began.Add(time.Duration(looks) * 30 * time.Millisecond)
		},
	})
	b.run(t)
	args := metal.ProvisionArgs{ServiceSteps: json.RawMessage(`[{"interface": "bios", "step": "apply"}]`), DisableRamdisk: true}
	must.OK(t, b.nodes.Provision(context.Background(), b.node, metal.Service, "service", args, record.Asker{}))
	if n := b.ends(t); n.ProvisionState != metal.Active || looks != 6 {
		t.Errorf("%s after %d looks: %s", n.ProvisionState, looks, n.LastError)
	}
}

// restarting is a step that restarts a machine whose boot override for one start is used up.
type restarting struct{ endless }

func (restarting) Steps(context.Context, *metal.Node) ([]driver.Step, error) {
	return []driver.Step{{Interface: "bios", Name: "apply", Restarts: true}}, nil
}

func (s restarting) RunStep(ctx context.Context, n *metal.Node, _ metal.Step) (bool, error) {
	if n.InternalInfo["asked"] != nil {
		return false, nil
	}
	if err := s.SetPower(ctx, n, metal.PowerOff); err != nil {
		return false, err
	}
	s.mu.Lock()
	s.media = ""
	s.mu.Unlock()
	n.InternalInfo = metal.Object{"asked": true}
	if err := driver.BeforeStart(ctx); err != nil {
		return false, err
	}
	return true, s.SetPower(ctx, n, metal.PowerOn)
}

// TestAStepForgetsAFormerJob: the notes of a job that failed or was aborted do not stand for a step that another job asks for.
func TestAStepForgetsAFormerJob(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	asks := 0
	hw := b.hardware()
	hw.Extras = map[string]map[string]any{"bios": {"bench": counting{endless{b}, &asks}}}
	b.con = New(Config{Store: b.store, Nodes: b.nodes, Key: b.key, Drivers: []driver.HardwareType{hw}, Log: b.con.Log, Now: time.Now, Agents: b, StepPoll: time.Millisecond, CleanTimeout: timeout})
	change(t, b, func(n *metal.Node) { markInternal(n, "asked", true); markInternal(n, "foreign", true) })
	b.run(t)
	args := metal.ProvisionArgs{CleanSteps: json.RawMessage(`[{"interface": "bios", "step": "apply"}, {"interface": "bios", "step": "apply"}]`), DisableRamdisk: true}
	must.OK(t, b.nodes.Provision(context.Background(), b.node, metal.Clean, "clean", args, record.Asker{}))
	if n := b.until(t, metal.Manageable); asks != 2 || n.InternalInfo["foreign"] != true {
		t.Errorf("the machine was asked %d times, want once for each step; notes %v: %s", asks, n.InternalInfo, n.LastError)
	}
}

// counting is a step that counts how often it asks the machine.
type counting struct {
	endless
	asks *int
}

func (s counting) RunStep(_ context.Context, n *metal.Node, _ metal.Step) (bool, error) {
	if n.InternalInfo["asked"] != nil {
		return false, nil
	}
	*s.asks++
	markInternal(n, "asked", true)
	return true, nil
}

// TestAStepsRestartBootsTheRamdisk: the machine's own system does not start on the cleaning network, and the ramdisk is booted no third time.
func TestAStepsRestartBootsTheRamdisk(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	hw := b.hardware()
	hw.Extras = map[string]map[string]any{"bios": {"bench": restarting{endless{b}}}}
	b.con = New(Config{Store: b.store, Nodes: b.nodes, Key: b.key, Drivers: []driver.HardwareType{hw}, Log: b.con.Log, Now: time.Now, Agents: b, StepPoll: time.Millisecond, CleanTimeout: timeout})
	b.run(t)
	former := b.stored(t).BootNumber
	b.withSteps(t, metal.Clean, `[{"interface": "bios", "step": "apply"}, {"interface": "deploy", "step": "erase_devices"}]`)
	n := b.pokes(t, metal.Manageable)
	boots := n.BootNumber - former - 1 // its end makes the number worthless
	if b.systemOn != 0 || boots != 2 || n.InternalInfo["asked"] != true || b.agent.did["clean.execute_clean_step:erase_devices"] != 1 {
		t.Errorf("the system was booted %d times, the ramdisk %d times; notes %v: %s, %s", b.systemOn, boots, n.InternalInfo, n.LastError, b.agent.picture())
	}
}

// TestNoPowerOffInSteps: steps restart a machine that must not be switched off, and one that would switch it off is refused.
func TestNoPowerOffInSteps(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	change(t, b, func(n *metal.Node) { n.DisablePowerOff = true })
	b.run(t)
	b.withSteps(t, metal.Clean, `[{"interface": "deploy", "step": "restarting"}, {"interface": "power", "step": "reboot"}]`)
	if n := b.pokes(t, metal.Manageable); b.gear.restarts != 3 || b.agent.did["clean.execute_clean_step:restarting"] != 1 {
		t.Errorf("%d restarts, want one for the ramdisk and one for each step: %s, %s", b.gear.restarts, n.LastError, b.agent.picture())
	}
	b.withSteps(t, metal.Clean, `[{"interface": "power", "step": "power_off"}]`)
	if n := b.pokes(t, metal.CleanFailed); !strings.Contains(n.LastError, "disable_power_off") {
		t.Errorf("last_error %q", n.LastError)
	}
	if b.power != metal.PowerOn {
		t.Error("it was switched off")
	}
}

// TestNICOfAnother: a NIC whose address another node has does not spoil an inspection; adapters inside of machines often share one.
func TestNICOfAnother(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	b.agent.findings = true
	b.con.AddPorts = "all"
	change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"inspect": "ramdisk"} })
	ctx := context.Background()
	other := &metal.Node{ID: "00000000-0000-4000-8000-000000000001", Driver: "bench", ProvisionState: metal.Manageable}
	must.OK(t, b.nodes.Create(ctx, other, record.Asker{}))
	must.OK(t, metal.NewPorts(b.store, b.store, b.nodes).Create(ctx, &metal.Port{NodeID: other.ID, Address: "52:54:00:00:00:07"}, record.Asker{}))
	b.run(t)
	b.withSteps(t, metal.Inspect, "")
	if n := b.pokes(t, metal.Manageable); n.Properties["cpus"] != 4.0 {
		t.Errorf("found nothing: %s", b.picture(t))
	}
	ports, err := b.store.Ports(ctx, metal.PortFilter{NodeID: b.node}, record.Page{Limit: 10})
	if err != nil || len(ports) != 1 {
		t.Errorf("ports %v, %v", ports, err)
	}
}

// TestOrderLostInARestart: the agent that may have taken a command is gone, so the command is not given again.
func TestOrderLostInARestart(t *testing.T) {
	fresh := []agent.Result{{ID: "new", Name: "get_clean_steps"}}
	for _, list := range [][]agent.Result{nil, fresh} {
		if _, taken, err := findAgentCommand(list, orderAfter+"old", "clean.execute_clean_step"); taken || err == nil {
			t.Errorf("%v: taken %v, %v", list, taken, err)
		}
	}
	if _, taken, err := findAgentCommand(nil, orderAfter, "clean.execute_clean_step"); taken || err != nil {
		t.Errorf("the first command of an agent: taken %v, %v", taken, err)
	}
}
