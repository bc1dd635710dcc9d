package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/test/must"
	"salvor/wire/agent"
)

// benched makes a node whose ramdisks have an agent, and a conductor that works.
func benched(t *testing.T, state metal.State) *bench {
	t.Helper()
	b := newBench(t, state)
	b.agent = newFakeAgent()
	return b
}

// pokes looks in on the ramdisk until the node is in a state.
func (b *bench) pokes(t *testing.T, want metal.State) *metal.Node {
	t.Helper()
	return b.pokeUntil(t, want, b.poke)
}

func TestDeployTellsWhatTheAgentSaid(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Available)
	b.agent.image, b.agent.fails = true, "prepare_image"
	b.run(t)
	b.withSteps(t, metal.Deploy, "")
	n := b.pokes(t, metal.DeployFailed)
	for _, word := range []string{"Failed to deploy", "deploy.write_image", "expected aa, found bb", "ask for rebuild, active or deleted"} {
		if !strings.Contains(n.LastError, word) {
			t.Errorf("last_error %q lacks %q", n.LastError, word)
		}
	}
	if b.power != metal.PowerOff || n.Plan != nil {
		t.Errorf("the ramdisk is left: %s", b.picture(t))
	}
	b.agent.fails = ""
	b.withSteps(t, metal.Rebuild, "")
	b.pokes(t, metal.Active)
}

// TestAStepWithoutAConfigDrive: the argument is left out, for of an empty text the agent makes an empty partition.
func TestAStepWithoutAConfigDrive(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Available)
	b.agent.image, b.agent.steps, b.agent.noDrive = true, true, true
	b.run(t)
	b.withSteps(t, metal.Deploy, "")
	b.pokes(t, metal.Active)
	if !strings.HasSuffix(b.agent.given, `}1`) {
		t.Errorf("the agent was given %s, with a config drive that nobody gave", b.agent.given)
	}
}

// TestTheAgentsOwnStepWritesTheImage: an agent that has the step is given the image as the step's arguments, at our step's place.
func TestTheAgentsOwnStepWritesTheImage(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Available)
	b.agent.image, b.agent.steps = true, true
	b.run(t)
	b.withSteps(t, metal.Deploy, "")
	n := b.pokes(t, metal.Active)
	if want := `"id":"image"`; !strings.Contains(b.agent.given, want) || !strings.HasSuffix(b.agent.given, `"a drive"1`) || b.agent.did[agent.PrepareImage] != 0 {
		t.Errorf("the agent was given %s, and did %s", b.agent.given, b.agent.picture())
	}
	if b.power != metal.PowerOn || b.agent.did[agent.PowerOff] != 1 || n.LastError != "" {
		t.Errorf("an agent without sync must shut the machine down: %s", b.picture(t))
	}
}

// TestDeployFailsWhereTheAgentCannotSync: what is not on the disk is lost as soon as the machine is off.
func TestDeployFailsWhereTheAgentCannotSync(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Available)
	b.agent.image, b.agent.fails = true, agent.Sync
	b.run(t)
	b.withSteps(t, metal.Deploy, "")
	if n := b.pokes(t, metal.DeployFailed); !strings.Contains(n.LastError, "could not bring its writes to the disk") || !strings.Contains(n.LastError, "input/output error") {
		t.Errorf("last_error %q", n.LastError)
	}
}

func TestDeployIsAbortedAndDeletedWhileItWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verb metal.Verb
		want metal.State
	}{{metal.Abort, metal.DeployFailed}, {metal.Delete, metal.Available}} {
		b := benched(t, metal.Available)
		b.agent.image = true
		b.run(t)
		b.withSteps(t, metal.Deploy, "")
		b.until(t, metal.DeployWait)
		must.OK(t, b.ask(t, c.verb))
		n := b.ends(t)
		if n.ProvisionState != c.want || n.Plan != nil || b.power != metal.PowerOff || b.networks["provisioning"] {
			t.Errorf("%s: %s", c.verb, b.picture(t))
		}
		if c.verb == metal.Abort && !strings.Contains(n.LastError, "aborted") {
			t.Errorf("last_error %q", n.LastError)
		}
	}
}

// TestHold: a held cleaning goes on when it is asked to, with the steps after the hold, and ends where a cleaning by hand ends.
func TestHold(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	b.run(t)
	b.withSteps(t, metal.Clean, `[{"interface": "power", "step": "hold"}, {"interface": "power", "step": "wait", "args": {"seconds": 0.01}}, {"interface": "deploy", "step": "erase_devices_metadata"}]`)
	n := b.pokes(t, metal.CleanHold)
	if n.CleanStep["step"] != "hold" || n.TargetProvision != metal.Manageable {
		t.Errorf("held: step %v, target %s", n.CleanStep, n.TargetProvision)
	}
	for range 20 {
		b.poke() // heartbeats do not end a hold
	}
	if n, _ = b.store.Node(context.Background(), nil, b.node); n.ProvisionState != metal.CleanHold {
		t.Fatalf("the hold ended by itself: %s", n.ProvisionState)
	}
	must.OK(t, b.ask(t, metal.Unhold))
	n = b.pokes(t, metal.Manageable)
	if len(n.CleanStep) > 0 || n.LastError != "" || b.agent.did["clean.execute_clean_step:erase_devices_metadata"] != 1 {
		t.Errorf("after the hold: %s", b.picture(t))
	}
}

func TestStepsThatAreNotThereAreNamed(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	b.run(t)
	b.withSteps(t, metal.Clean, `[{"interface": "raid", "step": "delete_configuration"}]`)
	n := b.pokes(t, metal.CleanFailed)
	if !strings.Contains(n.LastError, "no step delete_configuration of the interface raid") || !strings.Contains(n.LastError, "deploy.erase_devices_metadata") {
		t.Errorf("last_error %q", n.LastError)
	}
}

// slow is a BIOS whose step takes two looks.
type slow struct {
	*bench
	runs int
}

func (s *slow) Steps(context.Context, *metal.Node) ([]driver.Step, error) {
	return []driver.Step{{Interface: "bios", Name: "apply", ArgsInfo: map[string]driver.ArgInfo{"secret": {}}}}, nil
}

func (s *slow) RunStep(_ context.Context, n *metal.Node, step metal.Step) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step.Step != "apply" {
		return false, problem.Invalidf("unknown step")
	}
	s.runs++
	n.InternalInfo = metal.Object{"bios": float64(s.runs)}
	s.gear.turbo = fmt.Sprint("run ", s.runs)
	return s.runs < 2, nil
}

// BIOSSettings gives what the runs have set.
func (s *slow) BIOSSettings(ctx context.Context, n *metal.Node) ([]metal.BIOSSetting, error) {
	return parts{s.bench}.BIOSSettings(ctx, n)
}

// TestStepOfAnInterface is done without a ramdisk, and asked after until it is done.
func TestStepOfAnInterface(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Active)
	bios := &slow{bench: b}
	hw := b.hardware()
	hw.Extras = map[string]map[string]any{"bios": {"bench": bios}}
	b.con = New(Config{Store: b.store, Nodes: b.nodes, Key: b.key, Drivers: []driver.HardwareType{hw}, Log: b.con.Log, Now: time.Now, Agents: b, StepPoll: time.Millisecond})
	b.run(t)
	args := metal.ProvisionArgs{ServiceSteps: json.RawMessage(`[{"interface": "bios", "step": "apply", "args": {"secret": 1}}]`), DisableRamdisk: true}
	must.OK(t, b.nodes.Provision(context.Background(), b.node, metal.Service, "service", args, record.Asker{}))
	n := b.ends(t)
	if n.ProvisionState != metal.Active || bios.runs != 2 || n.InternalInfo["bios"] != 2.0 || b.power != metal.PowerOn || len(n.ServiceStep) > 0 {
		t.Errorf("runs %d, %v: %s", bios.runs, n.InternalInfo, b.picture(t))
	}
	// A client that waits for its change, such as Metal3's HostFirmwareSettings, asks again and again until it sees it.
	if settings := must.Get(b.nodes.BIOSSettings(t.Context(), b.node))(t); len(settings) != 1 || *settings[0].Value != "run 2" {
		t.Errorf("the settings read %+v after the step", settings)
	}
}

// TestStepThatNoInterfaceHas fails in the first action: no ramdisk is booted to find it missing.
func TestStepThatNoInterfaceHas(t *testing.T) {
	t.Parallel()
	for _, w := range ramdiskOperations {
		if w.name != "rebuild" && w.name != "clean" && w.name != "service" {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b := workingBench(t, w)
			b.run(t)
			verb := map[string]metal.Verb{"rebuild": metal.Rebuild, "clean": metal.Clean, "service": metal.Service}[w.name]
			b.withSteps(t, verb, `[{"interface": "bios", "step": "no_such", "priority": 90}]`)
			b.asFound(t, w)
			if n := b.until(t, w.failed); b.systemOn != 0 || !strings.Contains(n.LastError, "there is no step no_such of the interface bios here") {
				t.Errorf("booted %d times, error %q", b.systemOn, n.LastError)
			}
		})
	}
}

// TestOrderOfSteps: what was asked for beats templates, which beat what interfaces say; priority 0 leaves a step out.
func TestOrderOfSteps(t *testing.T) {
	step := func(name string, priority int) metal.Step {
		return metal.Step{Interface: "deploy", Step: name, Priority: priority}
	}
	offered := []plannedStep{{Step: step("write_image", 80), By: byUs}, {Step: step("prepare_instance_boot", 60), By: byUs}, {Step: step("inject", 0), By: byAgent}, {Step: step("raid", 0), By: byAgent}}
	got, err := mergeDeploySteps(offered, []metal.Step{step("inject", 70), step("raid", 90)}, []metal.Step{step("raid", 0), step("prepare_instance_boot", 85)})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range got {
		names = append(names, s.Step.Step)
	}
	if want := "prepare_instance_boot write_image inject"; strings.Join(names, " ") != want {
		t.Errorf("order %v, want %s", names, want)
	}
	if _, err := mergeDeploySteps(offered, nil, []metal.Step{step("nothing", 1)}); !problem.Is(err, problem.Invalid) {
		t.Errorf("an unknown step: %v", err)
	}
}

// TestAutomatedCleaning: the disks of nodes whose deploy interface does not write them are left alone unless the node says so.
func TestAutomatedCleaning(t *testing.T) {
	t.Parallel()
	on, off := true, false
	for _, c := range []struct {
		image bool
		own   *bool
		want  int
	}{{true, nil, 1}, {false, nil, 0}, {false, &on, 1}, {true, &off, 0}} {
		b := benched(t, metal.Manageable)
		b.agent.image, b.con.AutomatedClean = c.image, true
		change(t, b, func(n *metal.Node) { n.AutomatedClean = c.own })
		b.run(t)
		b.withSteps(t, metal.Provide, "")
		b.pokes(t, metal.Available)
		if got := b.agent.did["clean.execute_clean_step:erase_devices_metadata"]; got != c.want || b.agent.did["clean.execute_clean_step:erase_devices"] != 0 {
			t.Errorf("image %v, own %v: erased %d times, want %d: %s", c.image, c.own, got, c.want, b.agent.picture())
		}
	}
}

// TestFindings: what the ramdisk found is on the node, in ports and in connectors; what was there is no error.
func TestFindings(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	b.agent.findings = true
	b.con.AddPorts = "all"
	change(t, b, func(n *metal.Node) {
		n.Interfaces = map[string]string{"inspect": "ramdisk"}
		n.Properties = metal.Object{"capabilities": "boot_mode:bios,iscsi_boot:true", "rack": "7"}
	})
	b.run(t)
	for range 2 { // the second finds all of it there
		b.withSteps(t, metal.Inspect, "")
		n := b.pokes(t, metal.Manageable)
		p := n.Properties
		if p["cpus"] != 4.0 || p["memory_mb"] != 2048.0 || p["local_gb"] != 9.0 || p["cpu_arch"] != "x86_64" || p["rack"] != "7" || p["capabilities"] != "iscsi_boot:true,boot_mode:uefi" {
			t.Errorf("properties %v", p)
		}
		if n.InspectionEnd.IsZero() || n.LastError != "" || b.power != metal.PowerOff || b.networks["inspection"] {
			t.Errorf("after an inspection: %s", b.picture(t))
		}
	}
	ctx := context.Background()
	ports, err := b.store.Ports(ctx, metal.PortFilter{NodeID: b.node}, record.Page{Limit: 10, SortKey: "address"})
	if err != nil || len(ports) != 2 || !ports[0].PXEEnabled || !ports[1].PXEEnabled || ports[0].InternalInfo[metal.FoundMark] != nil || ports[1].InternalInfo[metal.FoundMark] == nil {
		t.Errorf("ports %+v, %v: the one that booted is 07, and the operator's own keeps what the operator chose", ports, err)
	}
	connectors, err := b.store.Connectors().List(ctx, nil, metal.ConnectorFilter{NodeID: b.node}, record.Page{Limit: 10})
	if err != nil || len(connectors) != 3 {
		t.Errorf("connectors %v, %v", connectors, err)
	}
	for _, c := range connectors {
		want := map[string]string{"iqn": "iqn.2026-11.org:a", "wwnn": "20:00:00:25:b5:00:00:01", "wwpn": "20:00:00:25:b5:00:00:02"}[c.Type]
		if c.ConnectorID != want {
			t.Errorf("connector %s %s, want %s", c.Type, c.ConnectorID, want)
		}
	}
}

// TestARuleChoosesTheDriver: the node has the other hardware type when the ramdisk of its own one is put away. One that is not here, or lacks
// an interface of the node, fails the inspection.
func TestARuleChoosesTheDriver(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"other": "", "nonesuch": "does not have", "poor": "no inspect interface"} {
		b := benched(t, metal.Manageable)
		b.agent.findings = true
		poor := b.hardware()
		poor.Info.Name, poor.Info.Interfaces = "poor", map[string]metal.InterfaceSet{}
		other := b.hardware()
		other.Info.Name = "other"
		b.con.drivers["other"], b.con.drivers["poor"] = other, poor
		change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"inspect": "ramdisk"} })
		rule := &metal.InspectionRule{Actions: []any{map[string]any{"op": "set-attribute", "args": []any{"/driver", name}}}}
		rule.ID = "r1"
		must.OK(t, b.store.Do(t.Context(), func(tx job.Tx) error { return b.store.InspectionRules().Insert(tx, rule) }))
		b.run(t)
		b.withSteps(t, metal.Inspect, "")
		n := b.ends(t)
		if want == "" && (n.ProvisionState != metal.Manageable || n.Driver != "other" || b.media != "" || b.power != metal.PowerOff) {
			t.Errorf("%s: driver %s: %s", name, n.Driver, b.picture(t))
		}
		if want != "" && (n.ProvisionState != metal.InspectFailed || n.Driver != "bench" || !strings.Contains(n.LastError, want)) {
			t.Errorf("%s: driver %s, error %q: %s", name, n.Driver, n.LastError, b.picture(t))
		}
	}
}

// TestFindingsOfAStranger: a boot that carries no token has its findings from anybody who asks, so they make no port and let nobody in to volumes.
func TestFindingsOfAStranger(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	b.agent.findings, b.con.AddPorts, b.con.PasswordInLookup = true, "all", true
	change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"inspect": "ramdisk"} })
	b.run(t)
	b.withSteps(t, metal.Inspect, "")
	if n := b.pokes(t, metal.Manageable); n.Properties["cpus"] != 4.0 {
		t.Errorf("properties %v", n.Properties)
	}
	ports, err := b.store.Ports(t.Context(), metal.PortFilter{NodeID: b.node}, record.Page{Limit: 10})
	if err != nil || len(ports) != 1 || !ports[0].PXEEnabled {
		t.Errorf("ports %+v, %v", ports, err)
	}
	if connectors, err := b.store.Connectors().List(t.Context(), nil, metal.ConnectorFilter{NodeID: b.node}, record.Page{Limit: 10}); err != nil || len(connectors) > 0 {
		t.Errorf("connectors %v, %v", connectors, err)
	}
}

// TestFindingsAddNoSecondInitiator: a machine that has a name for storage does not get another one from its disk.
func TestFindingsAddNoSecondInitiator(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	b.agent.findings = true
	change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"inspect": "ramdisk"} })
	must.OK(t, b.store.Do(t.Context(), func(tx job.Tx) error {
		return b.store.Connectors().Insert(tx, &metal.Connector{Record: record.Record{ID: "6f3c1a52-9f0f-4d5e-8d8e-1f2f3c4d5e69"}, NodeID: b.node, Type: "iqn", ConnectorID: "iqn.2026-11.test:operator"})
	}))
	b.run(t)
	b.withSteps(t, metal.Inspect, "")
	b.pokes(t, metal.Manageable)
	names, err := b.store.Connectors().List(t.Context(), nil, metal.ConnectorFilter{NodeID: b.node, Type: "iqn"}, record.Page{Limit: 10})
	if err != nil || len(names) != 1 || names[0].ConnectorID != "iqn.2026-11.test:operator" {
		t.Errorf("names for storage %v, %v", names, err)
	}
}

// TestFoundPortsFollowTheirMachine: a port that an inspection made follows the next one, until an operator has chosen.
func TestFoundPortsFollowTheirMachine(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	b.agent.findings, b.con.AddPorts = true, "all"
	change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"inspect": "ramdisk"} })
	b.run(t)
	ports := metal.NewPorts(b.store, b.store, b.nodes)
	found := &metal.Port{NodeID: b.node, Address: "52:54:00:00:00:09", PXEEnabled: true, InternalInfo: metal.Object{metal.FoundMark: true}}
	must.OK(t, ports.Create(t.Context(), found, record.Asker{}))
	for _, chosen := range []bool{false, true} {
		if chosen {
			for _, on := range []bool{false, true} {
				must.Get(ports.Update(t.Context(), found.ID, record.Asker{}, func(p *metal.Port) error { p.PXEEnabled = on; return nil }))(t)
			}
		}
		b.agent.nic = "52:54:00:00:00:09"
		b.withSteps(t, metal.Inspect, "")
		b.pokes(t, metal.Manageable)
		if p, err := ports.Get(t.Context(), found.ID); err != nil || p.PXEEnabled != chosen {
			t.Errorf("chosen by an operator: %v; port %+v, %v", chosen, p, err)
		}
	}
}

// TestOursFindsTheCommand tells a command that was taken from one of the same name before it.
func TestOursFindsTheCommand(t *testing.T) {
	b := benched(t, metal.Active)
	b.agentUp = true
	ctx := context.Background()
	give := func() string {
		res := must.Get(b.Give(ctx, nil, driver.Agent{Token: secret.New("t")}, "clean.execute_clean_step", nil))(t)
		return res.ID
	}
	first := give()
	list, _ := b.List(ctx, nil, driver.Agent{})
	if _, taken, err := findAgentCommand(list, orderAfter+first, "clean.execute_clean_step"); taken || err != nil {
		t.Errorf("the one before is taken for ours: %v", err)
	}
	second := give()
	list, _ = b.List(ctx, nil, driver.Agent{})
	for _, note := range []string{orderAfter + first, orderID + second} {
		if res, taken, err := findAgentCommand(list, note, "clean.execute_clean_step"); !taken || err != nil || res.ID != second {
			t.Errorf("%q: found %q, %v, %v", note, res.ID, taken, err)
		}
	}
	if _, _, err := findAgentCommand(list[:1], orderID+second, "clean.execute_clean_step"); err == nil {
		t.Error("a command that the agent has forgotten is no loss")
	}
}

// TestOffInAWait: a machine that is found off while its ramdisk is awaited is booted into it again.
func TestOffInAWait(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Available)
	b.agent.image = true
	b.run(t)
	b.withSteps(t, metal.Deploy, "")
	b.until(t, metal.DeployWait)
	b.mu.Lock()
	b.power, b.running, b.agentUp, b.media = metal.PowerOff, "", false, "" // and what was inserted is gone
	b.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.con.RunPowerSync(ctx, PowerSync{Interval: 20 * time.Millisecond, Retries: 3, Force: true, Workers: 1, Groups: []string{""}})
	}()
	defer func() { cancel(); <-ended }()
	if n := b.pokes(t, metal.Active); b.running != "system" || n.Maintenance {
		t.Errorf("after all: %s", b.picture(t))
	}
}

// TestConfigDrives: the one of the request goes before the one of instance_info, and a system that is built again keeps its own.
func TestConfigDrives(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Available)
	b.agent.image = true
	change(t, b, func(n *metal.Node) { n.InstanceInfo = metal.Object{"configdrive": "http://drives/old"} })
	b.run(t)
	for _, c := range []struct {
		verb        metal.Verb
		drive, want string
	}{{metal.Deploy, "", `"http://drives/old"`}, {metal.Rebuild, `{"user_data": "x"}`, `{"user_data": "x"}`}, {metal.Rebuild, "", `{"user_data": "x"}`}} {
		if err := b.nodes.Provision(context.Background(), b.node, c.verb, string(c.verb), metal.ProvisionArgs{ConfigDrive: json.RawMessage(c.drive)}, record.Asker{}); err != nil {
			t.Fatal(err)
		}
		if n := b.ends(t); n.ProvisionState != metal.Active || b.agent.drive != c.want {
			t.Errorf("%s %q: %s, drive %q; want %q", c.verb, c.drive, n.ProvisionState, b.agent.drive, c.want)
		}
	}
}
