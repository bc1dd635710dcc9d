//go:build e2e

package host

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/boot/ramdisk"
	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/test/must"
)

// The watchdog's own code runs in a machine that has one, and nowhere else: QEMU's i6300esb, by the kernel's own driver. In that
// machine there are a control plane, an agent as a process of its own, and a server: a process that beats.
const (
	roleVar       = "SALVOR_WATCHDOG_TEST"
	controlPlane  = "control plane"
	agentRole     = "agent"
	theServer     = "5ac08c4c-6f19-4d3c-b9d4-3a94d26dd9d0"
	serverPID     = "/run/server.pid"
	theWatchdog   = "/dev/watchdog"
	theSoftOne    = "/dev/watchdog1"
	machineMemory = "768"
)

const watchdogInit = `#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mkdir -p /tmp /run
ip link set lo up
modprobe i6300esb; modprobe softdog
SALVOR_WATCHDOG_TEST="control plane" /host.test -test.run '^TestMachineThatFallsSilent$' -test.v 2>&1
echo "the test ends with status $?"
poweroff -f
`

// processes is a hypervisor whose only guest is the process that beats.
type processes struct{ *guests }

func (p processes) pid() int {
	text, _ := os.ReadFile(serverPID)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(stat), ") Z ") {
		return 0
	}
	return pid
}

func (p processes) Guests(context.Context) ([]compute.Guest, error) {
	g := compute.Guest{ID: theServer, Name: "server", Ours: true, Epoch: 1, Power: compute.PowerOff}
	if p.pid() != 0 {
		g.Power = compute.PowerOn
	}
	return []compute.Guest{g}, nil
}

func (p processes) SetPower(_ context.Context, id string, w hypervisor.Power) (bool, error) {
	if pid := p.pid(); id == theServer && w.State == compute.PowerOff && pid != 0 {
		return false, syscall.Kill(pid, syscall.SIGKILL)
	}
	return false, problem.Unsupportedf("only ends")
}

// TestMachineThatFallsSilent is what runs inside.
func TestMachineThatFallsSilent(t *testing.T) {
	switch os.Getenv(roleVar) {
	case agentRole:
		runAgent(t)
	case controlPlane:
		runControlPlane(t)
	}
}

func runAgent(t *testing.T) {
	a := must.Get(Open(Config{
		StateDir: "/run/agent", Controller: os.Getenv("CONTROLLER"), Token: secret.New(os.Getenv("TOKEN")), Name: "vm", Hypervisor: processes{newGuests()},
		Watchdog: HardwareWatchdog(theWatchdog),
	}))(t)
	t.Fatal(a.Run(t.Context()))
}

// runPretendServer starts a shell loop that stands for a server's guest.
func runPretendServer(t *testing.T) {
	t.Helper()
	server := exec.Command("sh", "-c", "while :; do sleep 1; done")
	must.OK(t, server.Start())
	go func() { _ = server.Wait() }()
	must.OK(t, os.WriteFile(serverPID, []byte(strconv.Itoa(server.Process.Pid)), 0o600))
}

func runControlPlane(t *testing.T) {
	if identity, err := HardwareWatchdog(theSoftOne).Arm(watchdogTimeout); !problem.Is(err, problem.Unsupported) || identity != softWatchdog {
		t.Fatalf("the kernel's own watchdog: %q, %v", identity, err)
	}
	w := newWorld(t)
	must.OK(t, w.services.HostGroups.Create(t.Context(), &compute.HostGroup{Name: "ha", SelfFence: true}, record.Asker{}))
	agent := exec.Command(os.Args[0], "-test.run", "^TestMachineThatFallsSilent$")
	agent.Env = append(os.Environ(), roleVar+"="+agentRole, "CONTROLLER="+w.url, "TOKEN="+w.token().Reveal())
	agent.Stdout, agent.Stderr = os.Stdout, os.Stderr
	must.OK(t, agent.Start())
	var id string
	await(t, "the host", func() bool {
		hosts, err := w.services.Hosts.List(t.Context(), compute.HostFilter{}, record.Page{})
		if err != nil || len(hosts) == 0 {
			return false
		}
		id = hosts[0].ID
		return true
	})
	group := "ha"
	must.Get(w.services.Hosts.SetService(t.Context(), id, compute.Service{Group: &group}, record.Asker{}))(t)
	runPretendServer(t)
	here := processes{}
	silent := func() (time.Duration, string) {
		since, watchdog, _ := w.services.Liveness.Silence(id)
		return since, watchdog
	}
	await(t, "an armed watchdog", func() bool { _, watchdog := silent(); return watchdog != "" })
	_, watchdog := silent()
	fmt.Printf("TOLD watchdog %q\n", watchdog)

	// The control plane goes away: the agent ends the server. It comes back: the machine goes on.
	w.away.Store("away", true)
	for here.pid() != 0 {
		time.Sleep(10 * time.Millisecond)
	}
	since, _ := silent()
	w.away.Delete("away")
	fmt.Printf("TOLD ended after %d ms\n", since.Milliseconds())
	// The agent is frozen, once the watchdog was petted anew: nobody ends the server, but the machine is reset. Before its lease is
	// renewed the agent ends every server that it finds, the new one too.
	for end := time.Now().Add(3 * petEvery); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		await(t, "the lease again", func() bool { now, _ := silent(); return now < compute.RenewEvery })
	}
	runPretendServer(t)
	now, _ := silent()
	must.OK(t, agent.Process.Signal(syscall.SIGSTOP))
	fmt.Printf("TOLD frozen after %d ms\n", now.Milliseconds())
	for range 600 {
		now, _ = silent()
		fmt.Printf("TOLD silent %d ms, server %v\n", now.Milliseconds(), here.pid() != 0)
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the machine goes on")
}

// TestWatchdogResetsTheMachine: silence ends the server at 8 s; an agent that is frozen has the machine reset by 12 s.
func TestWatchdogResetsTheMachine(t *testing.T) {
	for tool, of := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "go": "golang"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing: install %s", tool, of)
		}
	}
	dir := t.TempDir()
	kernel := watchdogMachine(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// The machine's time is the count of its instructions: whatever else this computer does, its seconds have room for the same work.
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-name", "watchdog-"+uuid.NewString()[:8], "-machine", "q35,accel=tcg", "-cpu", "max", "-m", machineMemory, "-icount", "shift=1,sleep=off",
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-device", "i6300esb", "-action", "watchdog=poweroff",
		"-kernel", kernel, "-initrd", filepath.Join(dir, "initrd"), "-append", "console=ttyS0 quiet panic=-1 rdinit=/test-init")
	console, err := qemu.CombinedOutput()
	if err != nil {
		t.Fatalf("qemu: %v: %s", err, console)
	}
	text := string(console)
	if strings.Contains(text, "the test ends") || !strings.Contains(text, `TOLD watchdog "i6300ESB timer"`) {
		t.Fatalf("console:\n%s", text)
	}
	told := func(pattern string) (ms int) {
		all := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
		if len(all) == 0 {
			t.Fatalf("nothing is told of %q:\n%s", pattern, text)
		}
		ms, _ = strconv.Atoi(all[len(all)-1][1])
		return ms
	}
	ended, frozen, reset := told(`TOLD ended after (\d+) ms`), told(`TOLD frozen after (\d+) ms`), told(`TOLD silent (\d+) ms, server true`)
	t.Logf("the server was ended after %d ms of silence; the agent was frozen after %d ms, and the machine was reset at %d ms", ended, frozen, reset)
	if at := time.Duration(ended) * time.Millisecond; at < compute.SelfFenceKill-time.Second || at > compute.SelfFenceWatchdog {
		t.Errorf("the server was ended after %s", at)
	}
	if at := time.Duration(reset) * time.Millisecond; at < watchdogTimeout-2*time.Second || at > compute.SelfFenceWatchdog || strings.Contains(text, "server false") {
		t.Errorf("with its agent frozen the machine went on for %s:\n%s", at, text)
	}
}

// watchdogMachine builds the machine's initramfs and gives its kernel, of which the cloud flavour has no such watchdog.
func watchdogMachine(t *testing.T, dir string) (kernel string) {
	t.Helper()
	program := staticTest(t, dir)
	source := must.Get(ramdisk.Open(t.Context(), "", ramdisk.Generic, nil))(t)
	t.Cleanup(func() { _ = source.Close() })
	tree := ramdisk.NewTree()
	must.OK(t, source.AddBusybox(t.Context(), tree))
	must.OK(t, source.AddModules(tree, []string{"i6300esb", "softdog"}))
	must.OK(t, tree.Copy("host.test", program, 0o755))
	tree.File("test-init", 0o755, []byte(watchdogInit))
	f := must.Get(os.Create(filepath.Join(dir, "initrd")))(t)
	defer f.Close()
	must.OK(t, tree.Archive(f))
	return source.Kernel()
}

// staticTest is this test program, or one that needs no libraries.
func staticTest(t *testing.T, dir string) string {
	t.Helper()
	if f, err := elf.Open(os.Args[0]); err == nil {
		defer f.Close()
		if f.Section(".interp") == nil {
			return os.Args[0]
		}
	}
	program := filepath.Join(dir, "host.test")
	build := exec.Command("go", "test", "-c", "-tags", "e2e", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v: %s", build.Args, err, out)
	}
	return program
}
