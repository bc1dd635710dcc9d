//go:build e2e

package lab

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/test/must"
)

// hostWorld is two VM hosts whose QEMUs take no locks.
type hostWorld struct {
	*testing.T
	lab *Lab
	dir string
}

func (w hostWorld) host(name string) HostStatus {
	w.Helper()
	h := must.Get(w.lab.Host(w.Context(), name))(w)
	return h
}

func (w hostWorld) do(name string, verb HostVerb) {
	w.Helper()
	start := time.Now()
	must.OK(w, w.lab.HostDo(w.Context(), name, verb))
	w.Logf("%s %s: %.2f s", verb, name, time.Since(start).Seconds())
}

// redfish asks a host's BMC and returns its power as it says it.
func (w hostWorld) redfish(name string) string {
	w.Helper()
	h := w.host(name)
	out, err := inside(w.T, w.lab, "curl", "-sS", "-m", "5", "-u", h.User+":"+h.Password, h.BMC+h.SystemID)
	if err != nil {
		return err.Error()
	}
	var system struct{ PowerState string }
	must.OK(w, json.Unmarshal([]byte(out), &system))
	return system.PowerState
}

func (w hostWorld) reset(name, kind string) {
	w.Helper()
	h := w.host(name)
	mustInside(w.T, w.lab, "curl", "-sSf", "-m", "20", "-u", h.User+":"+h.Password, "-H", "Content-Type: application/json",
		"-d", `{"ResetType": "`+kind+`"}`, h.BMC+h.SystemID+"/Actions/ComputerSystem.Reset")
}

func (w hostWorld) fault(name, fault string) {
	w.Helper()
	must.OK(w, w.lab.Fault(w.Context(), name, fault))
}

// ticks is what the host's service has written so far.
func (w hostWorld) ticks(name string) int {
	text, _ := os.ReadFile(w.host(name).ServiceLog)
	return strings.Count(string(text), "tick")
}

func (w hostWorld) runs(name string) bool {
	before := w.ticks(name)
	for range 10 {
		time.Sleep(50 * time.Millisecond)
		if w.ticks(name) > before {
			return true
		}
	}
	return false
}

// The BMC of a VM host ends all of it and starts it with another boot id; it can be cut off and frozen.
func TestHosts(t *testing.T) {
	l, s := up(t, Spec{Hosts: 2, NoDiskLocks: true})
	w := hostWorld{t, l, t.TempDir()}
	if _, err := inside(t, l, append(s.Hosts[0].Enter(), "sh", "-c", "test -w /dev/kvm")...); err == nil {
		t.Error("libvirt of a host that emulates can use a KVM")
	}
	if s.Hosts[0].Power != PowerOn || s.Hosts[0].BootID == s.Hosts[1].BootID || s.Shared == "" {
		t.Fatalf("hosts %+v", s.Hosts)
	}
	if err := l.HostService(t.Context(), "h1", []string{"sh", "-c", "cat /proc/sys/kernel/random/boot_id; while sleep 0.02; do echo tick; done"}, os.Environ()); err != nil {
		t.Fatal(err)
	}
	await(t, "service", func() bool { return w.runs("h1") })
	bridge := w.bridge()
	w.power()
	w.cables()
	w.freezes()
	w.locks(s.Shared)
	if now := w.bridge(); now != bridge {
		t.Errorf("the provisioning network's bridge was %s and is %s, which its neighbours do not know", bridge, now)
	}
}

// bridge is the link address of the lab's end of the provisioning network.
func (w hostWorld) bridge() string {
	w.Helper()
	_, after, _ := strings.Cut(mustInside(w.T, w.lab, "ip", "link", "show", "dev", provisionNet.Bridge), "link/ether ")
	address, _, _ := strings.Cut(after, " ")
	return address
}

func (w hostWorld) power() {
	before := w.host("h1")
	if got := w.redfish("h1"); got != "On" {
		w.Fatalf("power %q", got)
	}
	w.fault("h1", "lie-off")
	if got := w.redfish("h1"); got != "Off" {
		w.Errorf("it says %q", got)
	}
	w.fault("h1", "lie-power")
	w.reset("h1", "ForceOff")
	if got := w.redfish("h1"); got != "Off" || w.host("h1").BootID != before.BootID {
		w.Errorf("it says %q, and the host is %+v", got, w.host("h1"))
	}
	await(w.T, "the service, which runs on", func() bool { return w.runs("h1") })
	w.fault("h1", "down")
	if got := w.redfish("h1"); !strings.Contains(got, "exit status") {
		w.Errorf("a dead BMC says %q", got)
	}
	w.fault("h1", "none")
	w.reset("h1", "ForceOff")
	if h := w.host("h1"); w.redfish("h1") != "Off" || h.Power != PowerOff || w.runs("h1") {
		w.Errorf("after the power was cut: %+v", h)
	}
	w.reset("h1", "On")
	await(w.T, "libvirt of the next life", func() bool { _, err := os.Stat(before.Socket); return err == nil && w.runs("h1") })
	after := w.host("h1")
	if id := strings.TrimSpace(mustInside(w.T, w.lab, append(after.Enter(), "cat", "/proc/sys/kernel/random/boot_id")...)); id != after.BootID || id == before.BootID {
		w.Errorf("boot ids: before %s, after %s, inside %s", before.BootID, after.BootID, id)
	}
	w.reset("h1", "GracefulShutdown")
	await(w.T, "shutdown", func() bool { return w.host("h1").Power == PowerOff })
	w.do("h1", HostOn)
	await(w.T, "service", func() bool { return w.runs("h1") })
}

func (w hostWorld) cables() {
	reaches := func(address string) bool {
		h := w.host("h1")
		_, err := inside(w.T, w.lab, append(h.Enter(), "busybox", "ping", "-c", "1", "-W", "1", address)...)
		return err == nil
	}
	if !reaches("10.77.0.1") || !reaches("10.74.0.1") || !reaches(w.host("h2").Address) {
		w.Error("h1 does not reach the lab")
	}
	w.do("h1", HostCut)
	if reaches("10.77.0.1") || !reaches("10.74.0.1") || !w.host("h1").Cut {
		w.Error("a cut host reaches the lab, or not its storage")
	}
	w.do("h1", HostPlug)
	await(w.T, "network", func() bool { return reaches("10.77.0.1") })
}

func (w hostWorld) freezes() {
	boot := w.host("h1").BootID
	w.do("h1", HostFreeze)
	if w.runs("h1") || !w.host("h1").Frozen {
		w.Error("a frozen host runs")
	}
	w.do("h1", HostThaw)
	await(w.T, "the host, which goes on", func() bool { return w.runs("h1") })
	if w.host("h1").BootID != boot {
		w.Error("it has another boot id")
	}
	w.do("h1", HostFreeze)
	w.do("h1", HostOff)
	if h := w.host("h1"); h.Power != PowerOff || h.Frozen || w.runs("h1") {
		w.Errorf("a frozen host after its power was cut: %+v", h)
	}
	w.do("h1", HostOn)
	await(w.T, "service after the freeze", func() bool { return w.runs("h1") })
}

// locks proves that a second QEMU may open what the first writes to.
func (w hostWorld) locks(shared string) {
	disk := filepath.Join(shared, "disk.raw")
	must.OK(w, os.WriteFile(disk, make([]byte, 1<<20), 0o600))
	for i, name := range []string{"h1", "h2"} {
		pid := filepath.Join(w.dir, name)
		args := []string{emulator, "-S", "-nodefaults", "-display", "none", "-machine", "q35,accel=tcg", "-m", "16", "-daemonize", "-pidfile", pid,
			"-blockdev", `{"driver":"file","filename":"` + disk + `","node-name":"file"}`, "-blockdev", `{"driver":"raw","file":"file","node-name":"disk"}`,
			"-device", "virtio-blk-pci,drive=disk,write-cache=on"}
		if _, err := inside(w.T, w.lab, append(w.host(name).Enter(), args...)...); err != nil {
			w.Errorf("QEMU %d: %v", i, err)
		}
	}
	if _, err := inside(w.T, w.lab, append([]string{emulator, "-S", "-nodefaults", "-display", "none", "-machine", "none"},
		"-blockdev", `{"driver":"file","filename":"`+disk+`","node-name":"file"}`, "-device", "nonsense")...); err == nil {
		w.Error("the lab's own QEMU takes nonsense")
	}
	for _, name := range []string{"h1", "h2"} {
		w.do(name, HostOff) // and with them their QEMUs
	}
}
