package node

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/must"
)

// TestHeldWithoutAJob: an operation that fails while it is held leaves its hold.
func TestHeldWithoutAJob(t *testing.T) {
	t.Parallel()
	for hold, want := range map[metal.State]metal.State{metal.CleanHold: metal.CleanFailed, metal.DeployHold: metal.DeployFailed, metal.ServiceHold: metal.ServiceFailed} {
		b := newBench(t, hold)
		err := b.store.Do(context.Background(), func(tx job.Tx) error {
			return b.con.failed(context.Background(), tx, &job.Job{Kind: "clean", Subject: job.Node(b.node), Problem: "a conductor died of it"})
		})
		n, err2 := b.store.Node(context.Background(), nil, b.node)
		if err != nil || err2 != nil || n.ProvisionState != want || !strings.Contains(n.LastError, "died of it") {
			t.Errorf("%s: %v, %v, %+v", hold, err, err2, n)
		}
	}
}

// TestServiceFromAHold: another service takes over from one that is held, and gives the machine back as the first found it.
func TestServiceFromAHold(t *testing.T) {
	t.Parallel()
	const hold = `[{"interface": "power", "step": "hold"}]`
	for _, c := range []struct {
		steps string
		alone bool // no ramdisk is asked for
		did   int
	}{{`[{"interface": "deploy", "step": "burnin"}]`, false, 1}, {"", true, 0}} {
		b := benched(t, metal.Active)
		b.run(t)
		b.withSteps(t, metal.Service, hold)
		b.pokes(t, metal.ServiceHold)
		args := metal.ProvisionArgs{ServiceSteps: json.RawMessage(c.steps), DisableRamdisk: c.alone}
		must.OK(t, b.nodes.Provision(context.Background(), b.node, metal.Service, "service", args, record.Asker{}))
		n := b.pokes(t, metal.Active)
		if b.device != (rescue.Boot{Device: "disk", Persistent: true}) || b.running != "system" || n.Plan != nil || b.networks["cleaning"] || !b.networks["tenant"] {
			t.Errorf("given back: %s", b.picture(t))
		}
		if got := b.agent.did["service.execute_service_step:burnin"]; got != c.did || len(b.open(t)) != 0 || len(n.ServiceStep) > 0 || n.LastError != "" {
			t.Errorf("did %d: %s", got, b.picture(t))
		}
	}
	// One that fails at once takes the first one's ramdisk away all the same.
	b := benched(t, metal.Active)
	b.run(t)
	b.withSteps(t, metal.Service, hold)
	b.pokes(t, metal.ServiceHold)
	b.mu.Lock()
	b.refuses["cleaning"] = problem.Invalidf("no such network")
	b.mu.Unlock()
	b.withSteps(t, metal.Service, hold)
	n := b.pokes(t, metal.ServiceFailed)
	for len(b.open(t)) > 0 {
		time.Sleep(time.Millisecond)
	}
	if b.running == "ramdisk" || n.Plan != nil || b.networks["cleaning"] || !b.networks["tenant"] {
		t.Errorf("failed: %s", b.picture(t))
	}
}

// TestServiceAfterARamdiskThatStayed: its boot is not taken for the system's.
func TestServiceAfterARamdiskThatStayed(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.ServiceFailed)
	b.device, b.media = rescue.Boot{Device: "cdrom", Persistent: true}, "earlier"
	change(t, b, func(n *metal.Node) { n.BootNumber, n.Plan = 1, &metal.BootPlan{Path: "earlier", BootNumber: 1} })
	b.run(t)
	b.withSteps(t, metal.Service, "")
	if n := b.pokes(t, metal.Active); b.device.Device != "" || b.running != "system" || n.Plan != nil {
		t.Errorf("given back: %s", b.picture(t))
	}
}

// TestWaitsAreNotLocked: a wait step leaves the node free to be aborted; one without seconds ends with the ramdisk's next word.
func TestWaitsAreNotLocked(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.Manageable)
	b.run(t)
	b.withSteps(t, metal.Clean, `[{"interface": "power", "step": "hold"}, {"interface": "power", "step": "wait"}, {"interface": "power", "step": "wait", "args": {"seconds": 3600}}]`)
	b.pokes(t, metal.CleanHold)
	must.OK(t, b.ask(t, metal.Unhold))
	step := func(number string, poked bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			n := b.until(t, metal.CleanWait)
			if n.CleanStep["number"] == number && n.Reservation == "" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("step %v, want %s: %s", n.CleanStep, number, b.picture(t))
			}
			if poked {
				b.poke()
			}
		}
	}
	step("2 of 3", false)
	step("3 of 3", true)
	for range 5 {
		b.poke()
	}
	step("3 of 3", false)
	must.OK(t, b.ask(t, metal.Abort))
	if n := b.ends(t); n.ProvisionState != metal.CleanFailed || b.running == "ramdisk" {
		t.Errorf("aborted: %s", b.picture(t))
	}
}

// bootsOnce is a BMC with an override for the next boot only.
type bootsOnce struct{ *bench }

func (bootsOnce) BootDevice(context.Context, *metal.Node) (rescue.Boot, error) {
	return rescue.Boot{Device: "pxe", Mode: "uefi"}, nil
}

// TestServiceGivesNoOneTimeOverrideBack, not even where the boot is noted late because an earlier ramdisk had stayed.
func TestServiceGivesNoOneTimeOverrideBack(t *testing.T) {
	t.Parallel()
	b := benched(t, metal.ServiceFailed)
	b.con.drivers["bench"].Management["bench"] = bootsOnce{b}
	change(t, b, func(n *metal.Node) { n.BootNumber, n.Plan = 1, &metal.BootPlan{Path: "earlier", BootNumber: 1} })
	b.run(t)
	b.withSteps(t, metal.Service, "")
	if b.pokes(t, metal.Active); b.device != (rescue.Boot{Mode: "uefi"}) {
		t.Errorf("boots by %+v", b.device)
	}
}
