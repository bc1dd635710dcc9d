package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
)

// lateMedia is badMedia whose first clean-up is refused.
type lateMedia struct {
	badMedia
	refused *bool
}

func (m lateMedia) CleanUpRamdisk(ctx context.Context, n *metal.Node) error {
	m.mu.Lock()
	first := !*m.refused
	*m.refused = true
	m.mu.Unlock()
	if first {
		return refusal
	}
	return m.bench.CleanUpRamdisk(ctx, n)
}

// TestRestoredMachineHoldsNoRamdisk: the last undo cleans up what an earlier one could not, and the next operation does not do it again.
func TestRestoredMachineHoldsNoRamdisk(t *testing.T) {
	t.Parallel()
	for _, w := range ramdiskOperations {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b := workingBench(t, w)
			b.con.drivers["bench"].Boot["bench"] = lateMedia{badMedia{b}, new(bool)}
			b.run(t)
			w.ask(t, b)
			n := b.until(t, w.failed)
			if n.HoldsRamdisk() || n.Plan != nil {
				t.Errorf("plan %+v, internal %v", n.Plan, n.InternalInfo)
			}
			if b.running != "system" || b.media != "" {
				t.Errorf("not put back: %s", b.picture(t))
			}
		})
	}
}

// stuckNetwork refuses to leave a network, the first times.
type stuckNetwork struct {
	*bench
	net   driver.Net
	times *int
}

func (s stuckNetwork) Detach(ctx context.Context, n *metal.Node, ports []*metal.Port, net driver.Net) error {
	s.mu.Lock()
	refuse := net == s.net && *s.times > 0 && s.running == ""
	if refuse {
		*s.times--
	}
	s.mu.Unlock()
	if refuse {
		return problem.Invalidf("the switch refuses to let go")
	}
	return s.bench.Detach(ctx, n, ports, net)
}

// TestTheSystemStartsOnNoNetworkOfTheRamdisk: a machine that cannot leave the network of its ramdisk stays off; one that can at last runs on.
func TestTheSystemStartsOnNoNetworkOfTheRamdisk(t *testing.T) {
	t.Parallel()
	for _, w := range ramdiskOperations {
		for _, times := range []int{1, 10} {
			t.Run(fmt.Sprint(w.name, times), func(t *testing.T) {
				t.Parallel()
				b := workingBench(t, w)
				b.con.drivers["bench"].Boot["bench"] = badMedia{b}
				b.con.drivers["bench"].Network["bench"] = stuckNetwork{b, w.net, &times}
				b.run(t)
				w.ask(t, b)
				n := b.until(t, w.failed)
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.running != "" && (b.networks[w.net] || b.networks[driver.Tenant] != w.tenant) || (times == 0) != (b.running == "system") || !n.Maintenance {
					t.Errorf("runs %q on %v, maintenance %t", b.running, b.networks, n.Maintenance)
				}
			})
		}
	}
}

// badVolumes is an initiator that takes no volume.
type badVolumes struct{ volumeBoot }

func (badVolumes) PrepareVolumes(context.Context, *metal.Node, metal.VolumePlan) error {
	return refusal
}

// TestAHalfBuiltSystemIsNotStarted: a rebuild without a ramdisk that fails after it took the former system apart leaves the machine off.
func TestAHalfBuiltSystemIsNotStarted(t *testing.T) {
	t.Parallel()
	plan := func(own metal.BootPlan) func(*metal.Node) {
		own.Method, own.Path, own.BootNumber, own.Persistent = metal.BootIPXE, "own", 3, true
		return func(n *metal.Node) { n.BootNumber, n.Plan = 3, &own }
	}
	noTenant := func(b *bench) { b.refuses[driver.Tenant] = refusal }
	for name, c := range map[string]struct {
		volumes bool
		was     func(*metal.Node)
		spoil   func(b *bench)
	}{
		"former plan of volumes": {true, plan(metal.BootPlan{Volumes: true}), noTenant},
		"former plan":            {false, plan(metal.BootPlan{}), noTenant},
		"former volumes":         {false, func(n *metal.Node) { markVolumes(n, true); n.Interfaces = map[string]string{"boot": "volumes"} }, noTenant},
		"new plan":               {true, func(*metal.Node) {}, func(b *bench) { b.con.drivers["bench"].Boot["volumes"] = badVolumes{volumeBoot{b}} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, metal.Active)
			if c.volumes {
				b = newVolumeBench(t, metal.Active)
			}
			change(t, b, c.was)
			c.spoil(b)
			b.run(t)
			b.start(t, metal.Rebuild)
			if n := b.until(t, metal.DeployFailed); b.power != metal.PowerOff || n.PowerState != metal.PowerOff {
				t.Errorf("%s", b.picture(t))
			}
		})
	}
}

// TestARebuildOfTheFormerReleaseKeepsItsRamdiskIsolated: its job notes nothing of the boot, and the machine could not be switched off.
func TestARebuildOfTheFormerReleaseKeepsItsRamdiskIsolated(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.DeployWait)
	b.running, b.media, b.networks = "ramdisk", "left", map[driver.Net]bool{driver.Provisioning: true}
	change(t, b, func(n *metal.Node) {
		n.BootNumber, n.Plan = 3, &metal.BootPlan{Method: metal.BootMedia, Path: "left", BootNumber: 3}
	})
	j := &job.Job{Kind: "deploy", Version: 1, Class: job.Operation, Subject: job.Node(b.node), Args: []byte(`{"rebuild": true}`), Action: "await the ramdisk", Memo: map[string]string{ramdiskMemo: byRamdisk}}
	must.OK(t, b.store.Do(t.Context(), func(tx job.Tx) error { return b.store.Insert(tx, j) }))
	b.refuse(refusal)
	b.run(t)
	for end := time.Now().Add(time.Minute); b.open(t)[0].State != job.Waiting && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	must.OK(t, b.ask(t, metal.Abort))
	b.isolated(t, b.until(t, metal.DeployFailed), `"start the ramdisk" could not be taken back`)
}

// TestCleaningAfterARamdiskThatStayed: the mark of a void boot is gone when the machine is switched off, and it was not found in its own system.
func TestCleaningAfterARamdiskThatStayed(t *testing.T) {
	t.Parallel()
	for _, w := range ramdiskOperations[2:4] {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			b := workingBench(t, w)
			b.running, b.media = "ramdisk", "left"
			change(t, b, func(n *metal.Node) {
				n.BootNumber, n.Plan = 3, &metal.BootPlan{Method: metal.BootMedia, Path: "left", BootNumber: 3}
				n.VoidRamdisk()
			})
			b.refuses[w.net] = refusal
			b.run(t)
			w.ask(t, b)
			if n := b.until(t, w.failed); b.power != metal.PowerOff || n.PowerState != metal.PowerOff {
				t.Errorf("%s", b.picture(t))
			}
		})
	}
}

// TestAbortedServiceGivesTheMachineBack as it was found: on in its own system and on its network, or off. An abort of the failed state
// leaves it so.
func TestAbortedServiceGivesTheMachineBack(t *testing.T) {
	t.Parallel()
	for _, found := range []metal.Power{metal.PowerOn, metal.PowerOff} {
		b := benched(t, metal.Active)
		b.power, b.running, b.systemOn = found, map[metal.Power]string{metal.PowerOn: "system"}[found], 0
		b.device = rescue.Boot{Device: "disk", Persistent: true}
		change(t, b, func(n *metal.Node) { n.PowerState = found })
		b.run(t)
		b.withSteps(t, metal.Service, `[{"interface": "deploy", "step": "burnin"}]`)
		b.until(t, metal.ServiceWait)
		must.OK(t, b.ask(t, metal.Abort))
		n := b.ends(t)
		for _, state := range []metal.State{metal.ServiceFailed, metal.Active} {
			if n.ProvisionState != state || b.power != found || n.PowerState != found || b.running == "ramdisk" || (b.running == "system") != (found == metal.PowerOn) {
				t.Errorf("found %s, now %s: %s", found, n.PowerState, b.picture(t))
			}
			if found == metal.PowerOn && b.device.Device != "disk" || b.media != "" || n.Plan != nil || !b.networks[driver.Tenant] || b.networks[driver.CleaningNet] {
				t.Errorf("found %s, boots %+v: %s", found, b.device, b.picture(t))
			}
			if state == metal.ServiceFailed {
				must.OK(t, b.ask(t, metal.Abort))
				n = b.ends(t)
			}
		}
	}
}

// fullDrive takes the medium of the machine's own system and no other.
type fullDrive struct{ badMedia }

func (m fullDrive) PrepareRamdisk(ctx context.Context, n *metal.Node) error {
	if n.Plan.Persistent {
		return m.bench.PrepareRamdisk(ctx, n)
	}
	return m.badMedia.PrepareRamdisk(ctx, n)
}

// TestAFailedOperationGivesTheLiveISOBack to a machine whose system it is: at once if nothing of ours was booted, else with unrescue.
func TestAFailedOperationGivesTheLiveISOBack(t *testing.T) {
	t.Parallel()
	const iso = "http://images/live.iso"
	refuse := func(net driver.Net) func(b *bench) {
		return func(b *bench) { b.refuses[net] = problem.Invalidf("the switch refuses the port") }
	}
	full := func(b *bench) { b.con.drivers["bench"].Boot["bench"] = fullDrive{badMedia{b}} }
	rescuing, serving := ramdiskOperations[0], ramdiskOperations[5]
	for name, c := range map[string]struct {
		operation ramdiskOperation
		spoil     func(b *bench)
		waits     metal.State // is aborted there
	}{
		"rescue network":  {rescuing, refuse(driver.Rescuing), ""},
		"rescue medium":   {rescuing, full, ""},
		"rescue aborted":  {rescuing, func(*bench) {}, metal.RescueWait},
		"service network": {serving, refuse(driver.CleaningNet), ""},
		"service medium":  {serving, full, ""},
		"service aborted": {serving, func(*bench) {}, metal.ServiceWait},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := workingBench(t, c.operation)
			b.ramdiskSystem, b.media, b.running = true, "own", "ramdisk"
			change(t, b, func(n *metal.Node) {
				n.InstanceInfo = metal.Object{"boot_iso": iso}
				n.BootNumber, n.Plan = 3, &metal.BootPlan{Method: metal.BootMedia, Path: "own", ISO: iso, BootNumber: 3, Persistent: true}
			})
			c.spoil(b)
			b.run(t)
			c.operation.ask(t, b)
			if c.waits != "" {
				b.until(t, c.waits)
				must.OK(t, b.ask(t, metal.Abort))
			}
			n := b.until(t, c.operation.failed)
			if c.waits == metal.RescueWait {
				must.OK(t, b.ask(t, metal.Unrescue))
				n = b.until(t, metal.Active)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if n.Maintenance || n.Plan == nil || !n.Plan.Persistent || n.Plan.ISO != iso || b.media != n.Plan.Path || b.running != "ramdisk" || b.systemOn != 0 || n.HoldsRamdisk() || !b.networks[driver.Tenant] {
				t.Errorf("maintenance %t, plan %+v, medium %q, runs %q on %v: %s", n.Maintenance, n.Plan, b.media, b.running, b.networks, n.LastError)
			}
		})
	}
}

// TestAFailedRescuePlansTheVolumesAgain of a machine that boots from them.
func TestAFailedRescuePlansTheVolumesAgain(t *testing.T) {
	t.Parallel()
	b := newVolumeBench(t, metal.Active)
	b.con.drivers["bench"].Boot["volumes"] = fullVolumes{volumeBoot{b}}
	b.volume, b.running = "", "system"
	b.run(t)
	must.OK(t, b.ask(t, metal.ToRescue))
	if n := b.until(t, metal.RescueFailed); b.volume == "" || b.running != b.volume || b.media != "" || n.Maintenance {
		t.Errorf("not put back: %s", b.picture(t))
	}
}

// fullVolumes boots volumes and takes no medium.
type fullVolumes struct{ volumeBoot }

func (m fullVolumes) PrepareRamdisk(ctx context.Context, n *metal.Node) error {
	return badMedia{m.bench}.PrepareRamdisk(ctx, n)
}
