package node

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/networkdata"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

// strictNetwork lacks a network, and says so before anything is touched.
type strictNetwork struct {
	*bench
	lacks driver.Net
}

func (s strictNetwork) Validate(n *metal.Node, _ []*metal.Port, net driver.Net) error {
	if net == s.lacks {
		return problem.Invalidf("there is no %s network", net)
	}
	return nil
}

// badMedia is a BMC that changes the boot device and then fails to insert the medium.
type badMedia struct{ *bench }

func (m badMedia) PrepareRamdisk(ctx context.Context, n *metal.Node) error {
	if err := m.bench.PrepareRamdisk(ctx, n); err != nil {
		return err
	}
	return problem.Unsupportedf("the medium cannot be inserted")
}

// ramdiskOperation is an operation that boots a ramdisk, as it is asked for.
type ramdiskOperation struct {
	name          string
	from, failed  metal.State
	ask           func(t *testing.T, b *bench)
	net           driver.Net
	tenant, image bool
}

var ramdiskOperations = []ramdiskOperation{
	{"rescue", metal.Active, metal.RescueFailed, func(t *testing.T, b *bench) { b.start(t, metal.ToRescue) }, driver.Rescuing, true, false},
	{"rebuild", metal.Active, metal.DeployFailed, func(t *testing.T, b *bench) { b.start(t, metal.Rebuild) }, driver.Provisioning, true, true},
	{"clean", metal.Manageable, metal.CleanFailed, func(t *testing.T, b *bench) {
		b.withSteps(t, metal.Clean, `[{"interface":"deploy","step":"erase_devices"}]`)
	}, driver.CleaningNet, false, false},
	{"provide", metal.Manageable, metal.CleanFailed, func(t *testing.T, b *bench) { b.start(t, metal.Provide) }, driver.CleaningNet, false, true},
	{"inspect", metal.Manageable, metal.InspectFailed, func(t *testing.T, b *bench) { b.start(t, metal.Inspect) }, driver.Inspection, false, false},
	{"service", metal.Active, metal.ServiceFailed, func(t *testing.T, b *bench) {
		b.withSteps(t, metal.Service, `[{"interface":"deploy","step":"burnin"}]`)
	}, driver.CleaningNet, true, false},
}

// workingBench is a machine that is on and runs its own system.
func workingBench(t *testing.T, w ramdiskOperation) *bench {
	t.Helper()
	b := newBench(t, w.from)
	b.con.AutomatedClean = true
	b.agent = newFakeAgent()
	b.agent.image = w.image
	if !w.tenant {
		delete(b.networks, driver.Tenant)
	}
	change(t, b, func(n *metal.Node) {
		n.Interfaces = map[string]string{"inspect": "ramdisk"}
		n.InstanceInfo = metal.Object{"image_source": "http://images/one", "image_checksum": strings.Repeat("a", 64)}
	})
	return b
}

// asFound wants the machine as it was before the operation was asked for.
func (b *bench) asFound(t *testing.T, w ramdiskOperation) {
	t.Helper()
	n := b.until(t, w.failed)
	b.mu.Lock()
	defer b.mu.Unlock()
	want := "map[]"
	if w.tenant {
		want = "map[tenant:true]"
	}
	if b.power != metal.PowerOn || b.running != "system" || b.device != disk || b.media != "" || fmt.Sprint(b.networks) != want {
		t.Errorf("the machine is not as it was found: power %s runs %q device %v media %q networks %v", b.power, b.running, b.device, b.media, b.networks)
	}
	if n.PowerState != metal.PowerOn || n.Plan != nil || n.Maintenance || n.LastError == "" {
		t.Errorf("the record: power %s plan %v maintenance %v error %q", n.PowerState, n.Plan, n.Maintenance, n.LastError)
	}
}

// TestFailureBeforeTheRamdiskLeavesTheMachineAsItWas: a network that is refused, or a medium that is, after the machine was
// switched off: it runs its own system again, on its own network, by its own boot device.
func TestFailureBeforeTheRamdiskLeavesTheMachineAsItWas(t *testing.T) {
	t.Parallel()
	for _, w := range ramdiskOperations {
		for what, spoil := range map[string]func(b *bench){
			"network": func(b *bench) { b.refuses[w.net] = problem.Invalidf("the switch refuses the port") },
			"medium":  func(b *bench) { b.con.drivers["bench"].Boot["bench"] = badMedia{b} },
		} {
			t.Run(w.name+" "+what, func(t *testing.T) {
				t.Parallel()
				b := workingBench(t, w)
				spoil(b)
				booted := b.systemOn
				b.run(t)
				w.ask(t, b)
				b.asFound(t, w)
				if b.systemOn != booted+1 {
					t.Errorf("the system was booted %d times", b.systemOn-booted)
				}
			})
		}
	}
}

// TestMachineFoundOffStaysOff: nobody wanted it to be on.
func TestMachineFoundOffStaysOff(t *testing.T) {
	t.Parallel()
	b := workingBench(t, ramdiskOperations[0])
	b.power, b.running = metal.PowerOff, ""
	change(t, b, func(n *metal.Node) { n.PowerState = metal.PowerOff })
	b.refuses[driver.Rescuing] = problem.Invalidf("the switch refuses the port")
	b.run(t)
	b.start(t, metal.ToRescue)
	if n := b.until(t, metal.RescueFailed); b.power != metal.PowerOff || n.PowerState != metal.PowerOff {
		t.Errorf("power %s, believed %s", b.power, n.PowerState)
	}
}

// TestFirstActionChecks: what the door did not see fails before anything is touched.
// TestStrangeNetworkDataIsAWarning: what the agent will leave out of the network is told beforehand in the agent's words, and refuses no rescue.
func TestStrangeNetworkDataIsAWarning(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	change(t, b, func(n *metal.Node) {
		n.NetworkData = metal.Object{"links": []any{map[string]any{"id": "l0", "type": "phy"}},
			"networks": []any{map[string]any{"id": "n0", "type": "ipv4_dhcp", "link": "l0"}}}
	})
	n := b.stored(t)
	found := b.con.Preflight(t.Context(), n, nil, metal.Operation{Kind: "rescue"})
	told := fmt.Sprint(found.Warnings)
	for _, want := range []string{`link "l0": it has no ethernet_mac_address`, `network "n0": its link "l0" is left out`, networkdata.AllLeftOut} {
		if !strings.Contains(told, want) {
			t.Errorf("warnings %s, want %q", told, want)
		}
	}
	for _, r := range found.Reasons {
		if strings.Contains(r.Text, "l0") {
			t.Errorf("the rescue is refused: %s", r.Text)
		}
	}
}

func TestFirstActionChecks(t *testing.T) {
	t.Parallel()
	for _, w := range ramdiskOperations {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b := workingBench(t, w)
			b.con.drivers["bench"].Network["bench"] = strictNetwork{b, w.net}
			b.run(t)
			w.ask(t, b)
			b.asFound(t, w)
			n := b.until(t, w.failed)
			if b.systemOn != 0 || !strings.Contains(n.LastError, fmt.Sprintf("there is no %s network", w.net)) {
				t.Errorf("booted %d times, error %q", b.systemOn, n.LastError)
			}
		})
	}
}

// TestRescueAfterARestoredMachine: a rescue that failed before it booted anything leaves a session. The next rescue finds the
// machine in its own system, and leaves it so again.
func TestRescueAfterARestoredMachine(t *testing.T) {
	t.Parallel()
	w := ramdiskOperations[0]
	b := workingBench(t, w)
	b.refuses[driver.Rescuing] = problem.Invalidf("the switch refuses the port")
	b.run(t)
	for range 2 {
		w.ask(t, b)
		b.asFound(t, w)
	}
	b.mu.Lock()
	delete(b.refuses, driver.Rescuing)
	b.mu.Unlock()
	w.ask(t, b)
	b.until(t, metal.RescueWait)
	must.OK(t, b.ask(t, metal.Abort))
	if n := b.until(t, metal.RescueFailed); b.power != metal.PowerOff || n.Rescue == nil || n.Rescue.Saved != disk {
		t.Errorf("a ramdisk ran: power %s, session %+v", b.power, n.Rescue)
	}
}

// TestRescueEndsOnTheTenantNetwork: the rescuing network is left, and the tenant's is joined.
func TestRescueEndsOnTheTenantNetwork(t *testing.T) {
	t.Parallel()
	b := waiting(t)
	b.poke()
	b.until(t, metal.Rescue)
	if fmt.Sprint(b.networks) != "map[tenant:true]" || b.credential == "" {
		t.Errorf("networks %v, credential %v", b.networks, b.credential != "")
	}
}

// TestRescuePowersOffFirst: the machine is off before it leaves its tenant's network.
func TestRescuePowersOffFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	order := &orderly{bench: b}
	b.con.drivers["bench"].Network["bench"] = order
	b.run(t)
	b.start(t, metal.ToRescue)
	b.until(t, metal.RescueWait)
	if got := order.powerAt[driver.Tenant]; got != metal.PowerOff {
		t.Errorf("the tenant network was left while the power was %q", got)
	}
}

// orderly notes the power at which a network was left.
type orderly struct {
	*bench
	powerAt map[driver.Net]metal.Power
}

func (o *orderly) Detach(ctx context.Context, n *metal.Node, ports []*metal.Port, net driver.Net) error {
	o.mu.Lock()
	if o.powerAt == nil {
		o.powerAt = map[driver.Net]metal.Power{}
	}
	o.powerAt[net] = o.power
	o.mu.Unlock()
	return o.bench.Detach(ctx, n, ports, net)
}

// TestOneTimeOverrideIsNotTheOwnBoot: a boot device that was set for once before the rescue is not what the system boots by.
func TestOneTimeOverrideIsNotTheOwnBoot(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.device.Device, b.device.Persistent = "pxe", false
	b.run(t)
	b.start(t, metal.ToRescue)
	b.until(t, metal.RescueWait)
	b.poke()
	n := b.until(t, metal.Rescue)
	if n.Rescue == nil || !n.Rescue.SavedKnown || n.Rescue.Saved.Device != "" {
		t.Errorf("saved %+v", n.Rescue)
	}
	b.start(t, metal.Unrescue)
	if b.until(t, metal.Active); b.device.Device != "" || b.running != "system" {
		t.Errorf("boots by %+v, runs %q", b.device, b.running)
	}
}

// TestDoorAsksTheChecker: the API refuses with the reason, and nothing has changed.
func TestDoorAsksTheChecker(t *testing.T) {
	t.Parallel()
	for _, w := range ramdiskOperations {
		t.Run(w.name, func(t *testing.T) {
			b := workingBench(t, w)
			b.con.drivers["bench"].Network["bench"] = strictNetwork{b, w.net}
			b.nodes = metal.NewNodes(b.store, b.store, b.key, metal.NewDirectory(b.store, b.con.Now, 0, 0), metal.Options{Checker: b.con}, b.con.Now)
			verb := map[string]metal.Verb{"rescue": metal.ToRescue, "rebuild": metal.Rebuild, "clean": metal.Clean, "provide": metal.Provide, "inspect": metal.Inspect, "service": metal.Service}[w.name]
			args := metal.ProvisionArgs{ServiceSteps: []byte(`[{}]`)}
			err := b.nodes.Provision(t.Context(), b.node, verb, w.name, args, record.Asker{})
			n, _ := b.store.Node(t.Context(), nil, b.node)
			if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), fmt.Sprintf("there is no %s network", w.net)) || n.ProvisionState != w.from {
				t.Errorf("%s: %v", n.ProvisionState, err)
			}
			if open, _ := b.store.Unended(nil, job.Node(b.node)); len(open) != 0 {
				t.Errorf("%d jobs", len(open))
			}
		})
	}
}

// webBoot boots a kernel of a web server.
type webBoot struct{ *bench }

func (w webBoot) Plan(n *metal.Node, r driver.Ramdisk) (*metal.BootPlan, error) {
	plan, err := w.bench.Plan(n, r)
	plan.Kernel = "http://192.0.2.1/k"
	return plan, err
}

// TestWordsOfWebServers: who is no administrator reads the same of each failure, and a check does not wait for ever.
func TestWordsOfWebServers(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.drivers["bench"].Boot["bench"] = webBoot{b}
	told := map[string]bool{}
	for _, words := range []string{"the server answers 404 Not Found", "nothing listens there", "the server does not answer"} {
		b.con.WebFile = func(ctx context.Context, url string, _ Fetcher) error {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > webTimeout {
				t.Errorf("a question for %s is not bounded", url)
			}
			if url != "http://192.0.2.1/k" {
				return nil
			}
			return problem.Invalidf("%s", words)
		}
		text := metal.ReasonTexts(b.con.Preflight(context.Background(), b.stored(t), []*metal.Port{{Address: "52:54:00:00:00:01"}}, metal.Operation{Kind: "rescue"}).Reasons)
		if !strings.Contains(text, words) {
			t.Errorf("administrators read %q", text)
		}
		told[problem.Redact(text)] = true
	}
	if len(told) != 1 {
		t.Errorf("others read %v", told)
	}
}

// ofMethod boots by another method than the bench.
type ofMethod struct {
	*bench
	method metal.BootMethod
}

func (o ofMethod) Plan(n *metal.Node, r driver.Ramdisk) (*metal.BootPlan, error) {
	plan, err := o.bench.Plan(n, r)
	plan.Method, plan.SecureBoot = o.method, driver.SecureBoot(n)
	return plan, err
}

// TestSecureBootIsChecked: a boot that firmware would refuse is refused in words before the machine is touched.
func TestSecureBootIsChecked(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	var asked []string
	b.con.CheckPlan = func(_ context.Context, plan *metal.BootPlan, _ string) error {
		if !plan.SecureBoot {
			return nil
		}
		asked = append(asked, plan.Kernel)
		return problem.Invalidf("the kernel %s has no signature", plan.Kernel)
	}
	on := true
	reasons := func(method metal.BootMethod, secure *bool) string {
		b.con.drivers["bench"].Boot["bench"] = ofMethod{b, method}
		n := b.stored(t)
		n.SecureBoot = secure
		return metal.ReasonTexts(b.con.Preflight(t.Context(), n, []*metal.Port{{Address: "52:54:00:00:00:01"}}, metal.Operation{Kind: "rescue"}).Reasons)
	}
	for _, method := range []metal.BootMethod{metal.BootIPXE, metal.BootMedia, metal.BootHTTP} {
		if text := reasons(method, nil); text != "" || len(asked) != 0 {
			t.Errorf("%s without Secure Boot: %s, asked %q", method, text, asked)
		}
	}
	if text := reasons(metal.BootIPXE, &on); !strings.Contains(text, "iPXE is not signed: set boot_interface to redfish-virtual-media or http") || len(asked) != 0 {
		t.Errorf("iPXE: %s, asked %q", text, asked)
	}
	for _, method := range []metal.BootMethod{metal.BootMedia, metal.BootHTTP} {
		if text := reasons(method, &on); !strings.Contains(text, "would refuse the boot image: the kernel "+asked[len(asked)-1]+" has no signature") {
			t.Errorf("%s: %s", method, text)
		}
	}
}

// TestImagesByArchitecture: driver_info goes first, then the configured images for cpu_arch, then those of all others.
func TestImagesByArchitecture(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.con.RescueKernel, b.con.RescueRamdisk, b.con.DeployKernel, b.con.DeployRamdisk = "/rk", "/rr", "/dk", "/dr"
	b.con.RescueByArch = map[string]Images{"aarch64": {"/rk-arm", "/rr-arm"}}
	b.con.DeployByArch = map[string]Images{"aarch64": {"/dk-arm", "/dr-arm"}}
	for _, c := range []struct {
		arch, own  any
		rescue     string
		deployment string
	}{
		{nil, nil, "/rk /rr", "/dk /dr"}, {"x86_64", nil, "/rk /rr", "/dk /dr"}, {7.0, nil, "/rk /rr", "/dk /dr"},
		{"aarch64", nil, "/rk-arm /rr-arm", "/dk-arm /dr-arm"}, {"aarch64", "/own", "/own /own", "/own /own"},
	} {
		n := &metal.Node{Properties: metal.Object{"cpu_arch": c.arch}, DriverInfo: metal.Object{}}
		if c.own != nil {
			for _, key := range []string{"rescue_kernel", "rescue_ramdisk", "deploy_kernel", "deploy_ramdisk"} {
				n.DriverInfo[key] = c.own
			}
		}
		m := &managedNode{node: n}
		r, d := b.con.rescueRamdisk(m), b.con.deployRamdisk(m)
		if r.Kernel+" "+r.Image != c.rescue || d.Kernel+" "+d.Image != c.deployment {
			t.Errorf("%v, own %v: rescue %s %s, deploy %s %s", c.arch, c.own, r.Kernel, r.Image, d.Kernel, d.Image)
		}
	}
}

// TestKernelOfAnotherArchitecture: a kernel for another processor is refused before the machine is touched.
func TestKernelOfAnotherArchitecture(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	for _, c := range []struct {
		node any
		is   string
		bad  bool
	}{{"aarch64", "x86_64", true}, {"x86_64", "aarch64", true}, {"x86_64", "x86_64", false}, {"aarch64", "", false}, {"i686", "x86_64", false}, {nil, "aarch64", false}} {
		b.con.KernelArch = func(string) string { return c.is }
		n := b.stored(t)
		n.Properties = metal.Object{"cpu_arch": c.node}
		text := metal.ReasonTexts(b.con.Preflight(t.Context(), n, []*metal.Port{{Address: "52:54:00:00:00:01"}}, metal.Operation{Kind: "rescue"}).Reasons)
		if strings.Contains(text, "is for "+c.is+", but the node's cpu_arch is") != c.bad {
			t.Errorf("node %v, kernel %q: %s", c.node, c.is, text)
		}
	}
}
