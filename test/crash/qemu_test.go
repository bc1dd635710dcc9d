//go:build e2e

package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"salvor/client"
	"salvor/lab"
	"salvor/test/must"
	"salvor/test/program"
)

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) {
	if status, handled := lab.Hidden(os.Args[1:]); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// longest bounds each stage; an idle machine takes a tenth of it.
const longest = 3 * time.Minute

// road is one way into the ramdisk.
type road struct {
	name     string
	bmc      lab.BMCType
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
	state, images := t.TempDir(), ramdiskImages(t)
	for i, r := range []road{
		{"virtual media, BIOS", lab.Redfish, lab.BIOS, "redfish-virtual-media", 6 * time.Second, false, (*round).leaksNothing},
		{"iPXE", lab.IPMI, lab.BIOS, "ipxe", 8 * time.Second, false, nil},
		{"UEFI HTTP", lab.Redfish, lab.UEFI, "http", 16 * time.Second, true, nil},
	} {
		t.Run(r.name, func(t *testing.T) {
			start := time.Now()
			newRound(t, r, state, images, rand.New(rand.NewPCG(seed, uint64(i)))).run()
			t.Logf("%s: %.1f s in all", r.name, time.Since(start).Seconds())
		})
	}
}

// ramdiskImages is a folder with kernel and ramdisk: $SALVOR_RAMDISK, else built here.
func ramdiskImages(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("SALVOR_RAMDISK"); dir != "" {
		dir := must.Get(filepath.Abs(dir))(t)
		return dir
	}
	dir, start := t.TempDir(), time.Now()
	if out, err := exec.CommandContext(t.Context(), program.Path(t, "salvor"), "ramdisk", "build", "--out", dir).CombinedOutput(); err != nil {
		t.Fatalf("build the ramdisk: %v\n%s", err, out)
	}
	t.Logf("ramdisk built: %.1f s", time.Since(start).Seconds())
	return dir
}

// round is one machine in its lab, and the server that is killed.
type round struct {
	t        *testing.T
	road     road
	lab      *lab.Lab
	machine  lab.MachineStatus
	server   *program.Server
	pid      string // file with the server's pid inside of the lab
	random   *rand.Rand
	password string
	known    string // the rescue's host keys
	id       string
}

func newRound(t *testing.T, r road, state, images string, random *rand.Rand) *round {
	self := must.Get(os.Executable())(t)
	l := must.Get(lab.Up(t.Context(), lab.Spec{
		Name: "crash", BMC: r.bmc, Firmware: r.firmware, StateDir: state, Program: []string{self}, Leashed: true,
	}))(t)
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	status := must.Get(l.Status(t.Context()))(t)
	dir := t.TempDir()
	x := &round{
		t: t, road: r, lab: l, machine: status.Machines[0], pid: filepath.Join(dir, "pid"), random: random,
		password: fmt.Sprintf("rescue-%016x", random.Uint64()), known: filepath.Join(dir, "known_hosts"),
	}
	// The server runs in the lab's own process namespace: its pid is told from inside.
	prefix := l.Command(t.Context(), "sh", "-c", `echo $$ >"$0" && exec "$@"`, x.pid).Args
	x.server = program.Serve(t, fmt.Sprintf(`[ramdisk]
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
`, images), prefix...)
	return x
}

func (x *round) run() {
	x.enroll()
	start := time.Now()
	asked := x.ask(x.password, "rescue", "m1", "--rescue-password-file", "-", "--wait")
	x.killWithin(x.road.usual / 2)
	x.storeHides(x.password, x.machine.Password)
	if x.road.fragile {
		x.await("the ramdisk runs", func() bool { return strings.Contains(x.server.Log(), `saw="address given"`) })
	}
	x.killWithin(x.road.usual / 2)
	x.ended("rescue", asked)
	x.await("ssh prompt with the rescue password", func() bool { _, err := x.ssh("", "true"); return err == nil })
	x.t.Logf("rescued: %.1f s", time.Since(start).Seconds())
	if x.road.proofs != nil {
		x.road.proofs(x)
	}
	start = time.Now()
	asked = x.ask("", "unrescue", "m1", "--wait")
	x.killWithin(500 * time.Millisecond)
	x.ended("active", asked)
	// Its disk counts its boots: it was started this once and never in between.
	x.await("own system, booted once", func() bool {
		out, err := x.inside("", "curl", "-sS", "-m", "2", "http://"+x.machine.TenantAddress+"/")
		if strings.Contains(out, "boots=") && !strings.Contains(out, "marker="+x.machine.Marker+" boots=1 ") {
			x.t.Fatalf("its own system says %q", out)
		}
		return err == nil && strings.Contains(out, "boots=1 ")
	})
	x.t.Logf("unrescued: %.1f s", time.Since(start).Seconds())
}

// inside runs a program in the lab and returns what it printed.
func (x *round) inside(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), longest)
	defer cancel()
	return x.output(x.lab.Command(ctx, args[0], args[1:]...), stdin)
}

func (x *round) output(cmd *exec.Cmd, stdin string) (string, error) {
	var out, complaints bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaints
	cmd.Env = append(os.Environ(), "SALVOR_URL="+x.server.URL, "SSHPASS="+x.password)
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, complaints.String())
	}
	return out.String(), nil
}

// cli runs salvor's own client.
func (x *round) cli(args ...string) string {
	x.t.Helper()
	out, err := x.inside("", append([]string{program.Path(x.t, "salvor")}, args...)...)
	if err != nil {
		x.t.Fatalf("salvor %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(out)
}

func (x *round) enroll() {
	m, info := x.machine, []string{}
	add := func(pairs ...string) {
		for _, pair := range pairs {
			info = append(info, "--driver-info", pair)
		}
	}
	if x.road.bmc == lab.Redfish {
		add("redfish_address="+m.Address, "redfish_username="+m.User, "redfish_password="+m.Password)
	} else {
		add("ipmi_address="+m.Address, "ipmi_port="+strconv.Itoa(m.Port), "ipmi_username="+m.User, "ipmi_password="+m.Password)
	}
	x.cli(append([]string{"node", "create", "--driver", string(x.road.bmc), "--name", "m1", "--network-interface", "bridge",
		"--boot-interface", x.road.boot, "--property", "capabilities=boot_mode:" + string(x.road.firmware)}, info...)...)
	x.id = x.node().UUID
	x.cli("port", "create", "--node", x.id, m.MAC, "--local-link-connection", "port_id="+m.PortID,
		"--local-link-connection", "switch_id=52:54:00:00:00:01")
	x.cli("node", "manage", "m1", "--wait")
	x.cli("node", "adopt", "m1", "--wait")
}

func (x *round) node() client.Node {
	x.t.Helper()
	var n client.Node
	must.OK(x.t, json.Unmarshal([]byte(x.get("/v1/nodes/m1")), &n))
	return n
}

// get reads a path of the API.
func (x *round) get(path string) string {
	x.t.Helper()
	out, err := x.inside("", "curl", "-sS", "-f", "-H", "X-OpenStack-Ironic-API-Version: 1.82", x.server.URL+path)
	if err != nil {
		x.t.Fatalf("GET %s: %v", path, err)
	}
	return out
}

// ask gives a node a verb and has the client wait for its end, whatever happens to the server.
func (x *round) ask(stdin string, args ...string) <-chan error {
	done, started := make(chan error, 1), x.node().ProvisionState
	ctx, cancel := context.WithTimeout(x.t.Context(), longest)
	cmd := x.lab.Command(ctx, program.Path(x.t, "salvor"), append([]string{"node"}, args...)...)
	go func() {
		defer cancel()
		_, err := x.output(cmd, stdin)
		done <- err
	}()
	x.await("request taken", func() bool { return x.node().ProvisionState != started })
	return done
}

// killWithin kills the server at some instant from now on, and starts it again.
func (x *round) killWithin(span time.Duration) {
	x.t.Helper()
	instant := time.Duration(x.random.Int64N(int64(span)))
	time.Sleep(instant)
	must.Get(x.inside("", "sh", "-c", `kill -9 "$(cat "$0")"`, x.pid))(x.t)
	x.server.Kill()
	x.server.Start(x.t)
	n := x.node()
	x.t.Logf("killed after %.2f s more: %s", instant.Seconds(), n.ProvisionState)
}

// ended sees the client's wait out.
func (x *round) ended(want string, asked <-chan error) {
	x.t.Helper()
	if err := <-asked; err != nil {
		x.t.Fatalf("%v\n%s", err, x.picture())
	}
	if n := x.node(); n.ProvisionState != want || n.Reservation != "" || n.LastError != "" {
		x.t.Fatalf("state %s, lock %q, error %q", n.ProvisionState, n.Reservation, n.LastError)
	}
}

// picture is what helps to understand a failure.
func (x *round) picture() string {
	serial, _ := os.ReadFile(x.machine.SerialLog)
	return fmt.Sprintf("server:\n%s\nmachine:\n%s", tail(x.server.Log()), serial[max(0, len(serial)-2000):])
}

func (x *round) await(what string, is func() bool) {
	x.t.Helper()
	for end := time.Now().Add(longest); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("%s: not within %s\n%s", what, longest, x.picture())
		}
	}
}

// ssh runs a command in the rescued machine, over the tenant network.
func (x *round) ssh(stdin, command string) (string, error) {
	return x.inside(stdin, "sshpass", "-e", "ssh", "-F", "none", "-o", "ConnectTimeout=5", "-o", "LogLevel=ERROR", "-o", "PreferredAuthentications=password",
		"-o", "UserKnownHostsFile="+x.known, "-o", "StrictHostKeyChecking=accept-new", "rescue@"+x.machine.TenantAddress, command)
}
