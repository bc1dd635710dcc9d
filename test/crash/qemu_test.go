//go:build e2e

package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"salvor/lab"
	"salvor/lab/personality"
	labmachine "salvor/test/machine"
	"salvor/test/must"
)

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) { labmachine.Main(m) }

// road is one way into the ramdisk.
type road struct {
	name     string
	bmc      lab.BMCType
	like     personality.Name // whose BMC it is like; empty: the lab's own
	firmware lab.Firmware
	boot     string
	// usual is how long a rescue by this road takes where nothing else runs.
	usual time.Duration
	// fragile: firmware that had its downloads cut a few times boots the disk, and then only
	// rescue_callback_timeout ends the rescue; so the second kill waits until the ramdisk asks for an address.
	fragile bool
	// proofs come while the machine is rescued.
	proofs func(*round)
}

// TestKilledWithMachines rescues a real machine by each road while the server is killed at
// any two instants, and unrescues it with one more. SALVOR_SEED repeats a run's instants.
func TestKilledWithMachines(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SALVOR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SALVOR_SEED=%d", seed)
	state, images := t.TempDir(), labmachine.Ramdisk(t)
	for i, r := range []road{
		{"virtual media, BIOS", lab.Redfish, personality.SupermicroX12, lab.BIOS, "redfish-virtual-media", 6 * time.Second, false, (*round).leaksNothing},
		{"iPXE", lab.IPMI, personality.VirtualBMC, lab.BIOS, "ipxe", 8 * time.Second, false, nil},
		{"UEFI HTTP", lab.Redfish, "", lab.UEFI, "http", 16 * time.Second, true, nil},
	} {
		t.Run(r.name, func(t *testing.T) {
			start := time.Now()
			newRound(t, r, state, images, rand.New(rand.NewPCG(seed, uint64(i)))).run()
			t.Logf("%s: %.1f s in all", r.name, time.Since(start).Seconds())
		})
	}
}

// round is one machine in its lab, and the server that is killed.
type round struct {
	*labmachine.World
	road     road
	pid      string // file with the server's pid inside of the lab
	random   *rand.Rand
	password string
	known    string // the rescue's host keys
	id       string
}

func newRound(t *testing.T, r road, state, images string, random *rand.Rand) *round {
	dir := t.TempDir()
	x := &round{
		World: labmachine.Up(t, lab.Spec{Name: "crash", BMC: r.bmc, Like: r.like, Firmware: r.firmware, StateDir: state}), road: r, pid: filepath.Join(dir, "pid"), random: random,
		password: fmt.Sprintf("rescue-%016x", random.Uint64()), known: filepath.Join(dir, "known_hosts"),
	}
	// The server runs in the lab's own process namespace: its pid is told from inside.
	x.Serve(fmt.Sprintf(`[ramdisk]
listen = 10.79.0.1:6386
[bridge]
provisioning_network = br-prov
cleaning_network = br-clean
rescuing_network = br-rescue
tenant_network = br-tenant
[netboot]
interfaces = br-rescue:authoritative:10.79.0.100-10.79.0.199/24
[conductor]
rescue_kernel = %[1]s/kernel
rescue_ramdisk = %[1]s/initramfs
`, images), "sh", "-c", `echo $$ >"$0" && exec "$@"`, x.pid)
	return x
}

func (x *round) run() {
	x.enroll()
	start := time.Now()
	asked := x.ask(x.password, "rescue", "m1", "--rescue-password-file", "-", "--wait")
	x.killWithin(x.road.usual / 2)
	x.storeHides(x.password, x.Machine.Password)
	if x.road.fragile {
		x.Await("the ramdisk runs", func() bool { return strings.Contains(x.Server.Log(), `saw="address given"`) })
	}
	x.killWithin(x.road.usual / 2)
	x.ended("rescue", asked)
	x.Await("ssh prompt with the rescue password", func() bool { _, err := x.shell("", "true"); return err == nil })
	x.Logf("rescued: %.1f s", time.Since(start).Seconds())
	if x.road.proofs != nil {
		x.road.proofs(x)
	}
	start = time.Now()
	asked = x.ask("", "unrescue", "m1", "--wait")
	x.killWithin(500 * time.Millisecond)
	x.ended("active", asked)
	// Its disk counts its boots: it was started this once and never in between.
	x.Await("own system, booted once", func() bool {
		out, err := x.Page(x.Machine.TenantAddress)
		if strings.Contains(out, "boots=") && !strings.Contains(out, "marker="+x.Machine.Marker+" boots=1 ") {
			x.Fatalf("its own system says %q", out)
		}
		return err == nil && strings.Contains(out, "boots=1 ")
	})
	x.Logf("unrescued: %.1f s", time.Since(start).Seconds())
}

func (x *round) enroll() {
	x.Enroll(map[string]any{"boot_interface": x.road.boot, "properties": map[string]any{"capabilities": "boot_mode:" + string(x.road.firmware)}})
	x.id = x.Node().UUID
	x.CLI("node", "manage", "m1", "--wait")
	x.CLI("node", "adopt", "m1", "--wait")
}

// ask gives a node a verb and has the client wait for its end, whatever happens to the server.
func (x *round) ask(stdin string, args ...string) <-chan error {
	done, started := make(chan error, 1), x.Node().ProvisionState
	go func() {
		_, err := x.TryCLI(stdin, append([]string{"node"}, args...)...)
		done <- err
	}()
	x.Await("request taken", func() bool { return x.Node().ProvisionState != started })
	return done
}

// killWithin kills the server at some instant from now on, and starts it again.
func (x *round) killWithin(span time.Duration) {
	x.Helper()
	instant := time.Duration(x.random.Int64N(int64(span)))
	time.Sleep(instant)
	must.Get(x.Inside("", "sh", "-c", `kill -9 "$(cat "$0")"`, x.pid))(x)
	x.Server.Kill()
	x.Server.Start(x)
	n := x.Node()
	x.Logf("killed after %.2f s more: %s", instant.Seconds(), n.ProvisionState)
}

// ended sees the client's wait out.
func (x *round) ended(want string, asked <-chan error) {
	x.Helper()
	if err := <-asked; err != nil {
		x.Fatal(err)
	}
	if n := x.Node(); n.ProvisionState != want || n.Reservation != "" || n.LastError != "" {
		x.Fatalf("state %s, lock %q, error %q", n.ProvisionState, n.Reservation, n.LastError)
	}
}

// shell runs a command in the rescued machine, over the tenant network.
func (x *round) shell(stdin, command string) (string, error) {
	return x.SSH(stdin, "rescue@"+x.Machine.TenantAddress, x.password, x.known, command)
}
