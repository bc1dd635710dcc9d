//go:build e2e

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/boot/media"
	"salvor/boot/ramdisk"
	"salvor/problem"
	"salvor/test/must"
)

// e2eTimeout is many times what anything here takes on an idle machine.
const e2eTimeout = time.Minute

// e2eState is shared by the tests of a run, so that the tenant's boot half is made once.
func e2eState(t *testing.T) string {
	t.Helper()
	if shared == "" {
		dir := must.Get(os.MkdirTemp("", "salvor-lab-*"))(t)
		shared = dir
	}
	return shared
}

func up(t *testing.T, spec Spec) (*Lab, Status) {
	t.Helper()
	exe := must.Get(os.Executable())(t)
	spec.Program, spec.Leashed, spec.StateDir = []string{exe}, true, e2eState(t)
	start := time.Now()
	l := must.Get(Up(t.Context(), spec))(t)
	t.Logf("lab up: %.1f s", time.Since(start).Seconds())
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil && !problem.Is(err, problem.NotFound) {
			t.Error(err)
		}
	})
	s := must.Get(l.Status(t.Context()))(t)
	return l, s
}

// inside runs a program in the lab and returns what it printed.
func inside(t *testing.T, l *Lab, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), e2eTimeout)
	defer cancel()
	cmd := l.Command(ctx, args[0], args[1:]...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, complaints.String())
	}
	return out.String(), nil
}

func mustInside(t *testing.T, l *Lab, args ...string) string {
	t.Helper()
	out := must.Get(inside(t, l, args...))(t)
	return out
}

// await polls until what is right, and tells how long that took.
func await(t *testing.T, what string, right func() bool) {
	t.Helper()
	start := time.Now()
	for !right() {
		if time.Since(start) > e2eTimeout {
			t.Fatalf("%s: not within %s", what, e2eTimeout)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("%s: %.1f s", what, time.Since(start).Seconds())
}

// chassis speaks to the machine as its IPMI BMC would, whatever its BMC is.
func chassis(t *testing.T, l *Lab, args ...string) string {
	t.Helper()
	a := must.Get(l.ask(t.Context(), controlRequest{Op: opChassis, Machine: "m1", Args: append([]string{"0x20"}, args...)}))(t)
	return strings.TrimSpace(a.Output)
}

func serialSays(t *testing.T, m MachineStatus, text string) func() bool {
	return func() bool {
		log, err := os.ReadFile(m.SerialLog)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return bytes.Contains(log, []byte(text))
	}
}

// tenantSays asks the tenant system who it is, over the tenant network.
func tenantSays(t *testing.T, l *Lab, m MachineStatus, text string) func() bool {
	return func() bool {
		out, err := inside(t, l, "busybox", "wget", "-q", "-O", "-", "http://"+m.TenantAddress+"/")
		return err == nil && strings.Contains(out, text)
	}
}

// ssh logs in to the tenant system by password; its host key must be the one that the lab told.
func ssh(t *testing.T, l *Lab, m MachineStatus, password, command string) (string, error) {
	t.Helper()
	known := filepath.Join(t.TempDir(), "known_hosts")
	must.OK(t, os.WriteFile(known, []byte(m.TenantAddress+" "+m.HostKey+"\n"), 0o600))
	return inside(t, l, "sshpass", "-p", password, "ssh", "-F", "none", "-o", "UserKnownHostsFile="+known, "-o", "StrictHostKeyChecking=yes",
		"-o", "PreferredAuthentications=password", "-o", "ConnectTimeout=10", "root@"+m.TenantAddress, command)
}

// A tenant disk boots by either firmware; nobody knows its password; a mended shadow file opens it.
// firmwares are both for make soak; the demo and test/crash boot disk and medium by UEFI in any case.
func firmwares() []Firmware {
	if os.Getenv("SALVOR_SOAK") != "" {
		return []Firmware{BIOS, UEFI}
	}
	return []Firmware{BIOS}
}

func TestTenantDisk(t *testing.T) {
	for _, firmware := range firmwares() {
		t.Run(string(firmware), func(t *testing.T) {
			l, s := up(t, Spec{Firmware: firmware})
			m := s.Machines[0]
			chassis(t, l, "set", "power", "1")
			await(t, "power on to tenant system on its network", tenantSays(t, l, m, "marker="+m.Marker+" boots=1 "))
			var exit *exec.ExitError
			if _, err := ssh(t, l, m, "guess", "true"); !errors.As(err, &exit) || exit.ExitCode() != 5 {
				t.Fatalf("a guessed password: %v, want sshpass's status 5", err)
			}
			chassis(t, l, "set", "power", "0")
			mend(t, m, "a new one")
			chassis(t, l, "set", "power", "1")
			await(t, "second boot", tenantSays(t, l, m, "marker="+m.Marker+" boots=2 "))
			out, err := ssh(t, l, m, "a new one", "cat /etc/marker")
			if err != nil || strings.TrimSpace(out) != m.Marker {
				t.Fatalf("after mending: %q %v", out, err)
			}
			must.Get(ssh(t, l, m, "a new one", "reboot"))(t)
			await(t, "third boot, by the system's own reboot", tenantSays(t, l, m, "marker="+m.Marker+" boots=3 "))
			chassis(t, l, "set", "shutdown", "1")
			await(t, "shutdown by ACPI", func() bool { return chassis(t, l, "get", "power") == "power:0" })
		})
	}
}

// mend does to a disk that is not in use what a user would do in the rescue system.
func mend(t *testing.T, m MachineStatus, password string) {
	t.Helper()
	hash := must.Get(exec.Command("busybox", "mkpasswd", "-m", "sha512", password).Output())(t)
	shadow := filepath.Join(t.TempDir(), "shadow")
	must.OK(t, os.WriteFile(shadow, []byte("root:"+strings.TrimSpace(string(hash))+":19700:0:99999:7:::\n"), 0o600))
	commands := shadow + ".debugfs"
	must.OK(t, os.WriteFile(commands, []byte("rm /etc/shadow\nwrite "+shadow+" /etc/shadow\n"), 0o600))
	// The journal of a machine whose power was cut must be replayed before the file is touched.
	partition := fmt.Sprintf("%s?offset=%d", m.Disk, rootStart)
	if out, err := exec.Command("/usr/sbin/e2fsck", "-p", partition).CombinedOutput(); err != nil && !strings.Contains(string(out), "recovering journal") {
		t.Fatalf("e2fsck: %v: %s", err, out)
	}
	if out, err := exec.Command("/usr/sbin/debugfs", "-w", "-f", commands, partition).CombinedOutput(); err != nil {
		t.Fatalf("debugfs: %v: %s", err, out)
	}
}

// makeISO builds a CD that says so on the serial line, and nothing else.
func makeISO(t *testing.T, path string) {
	t.Helper()
	source := must.Get(ramdisk.Open(t.Context(), "", ramdisk.Cloud, nil))(t)
	defer source.Close()
	tree := ramdisk.NewTree()
	must.OK(t, source.AddBusybox(t.Context(), tree))
	tree.File("init", 0o755, []byte("#!/bin/busybox sh\necho CD IS UP > /dev/console\nwhile :; do /bin/busybox sleep 1000; done\n"))
	var initrd bytes.Buffer
	must.OK(t, tree.Initramfs(&initrd, ramdisk.LZ4))
	read := func(file string) media.Blob {
		content := must.Get(os.ReadFile(file))(t)
		return newBytesBlob(content)
	}
	iso := must.Get(media.ISO(media.Parts{Kernel: read(source.Kernel()), Initrd: newBytesBlob(initrd.Bytes()), Stub: read(efiStub), Name: "cd",
		Isolinux: read("/usr/lib/ISOLINUX/isolinux.bin"), Ldlinux: read("/usr/lib/syslinux/modules/bios/ldlinux.c32")}))(t)
	content := make([]byte, iso.Base().Size())
	must.Get(iso.Base().ReadAt(content, 0))(t)
	must.OK(t, os.WriteFile(path, content, 0o600))
}

// serve runs an HTTP server of a directory inside the lab and returns its base URL.
func serve(t *testing.T, l *Lab, dir string) string {
	t.Helper()
	const address = "10.75.0.1:8081"
	ctx, cancel := context.WithCancel(t.Context())
	cmd := l.Command(ctx, "busybox", "httpd", "-f", "-p", address, "-h", dir)
	must.OK(t, cmd.Start())
	t.Cleanup(func() { cancel(); cmd.Wait() })
	await(t, "HTTP server", func() bool {
		_, err := inside(t, l, "busybox", "wget", "-q", "-O", "/dev/null", "http://"+address+"/cd.iso")
		return err == nil
	})
	return "http://" + address
}

// An independent client drives the Redfish BMC of a real machine through what a rescue needs.
func TestSushy(t *testing.T) {
	dir := t.TempDir()
	makeISO(t, filepath.Join(dir, "cd.iso"))
	for _, firmware := range firmwares() {
		t.Run(string(firmware), func(t *testing.T) {
			l, s := up(t, Spec{Firmware: firmware})
			m := s.Machines[0]
			url := serve(t, l, dir) + "/cd.iso"
			client := func(stage string, more ...string) {
				t.Helper()
				start := time.Now()
				mustInside(t, l, append([]string{"/usr/bin/python3", "testdata/sushy_client.py", stage, m.Address, m.User, m.Password, m.SystemID}, more...)...)
				t.Logf("sushy %s: %.1f s", stage, time.Since(start).Seconds())
			}
			client("boot-cd", url)
			await(t, "virtual CD booted", serialSays(t, m, "CD IS UP"))
			client("back-to-disk")
			await(t, "disk booted", tenantSays(t, l, m, "marker="+m.Marker))
			client("shut-down")
			await(t, "shut down", func() bool { return chassis(t, l, "get", "power") == "power:0" })
		})
	}
}

// ipmitool drives the IPMI BMC of a real machine.
func TestIPMItool(t *testing.T) {
	l, s := up(t, Spec{BMC: IPMI})
	m := s.Machines[0]
	ipmi := func(args ...string) (string, error) {
		return inside(t, l, append([]string{"ipmitool", "-I", "lanplus", "-C", "3", "-N", "3", "-R", "2", "-H", m.Address, "-p", strconv.Itoa(m.Port), "-U", m.User, "-P", m.Password}, args...)...)
	}
	must := func(want string, args ...string) {
		t.Helper()
		start := time.Now()
		out, err := ipmi(args...)
		if err != nil || !strings.Contains(out, want) {
			t.Fatalf("ipmitool %v: %q %v, want %q", args, out, err, want)
		}
		t.Logf("ipmitool %s: %.2f s", strings.Join(args, " "), time.Since(start).Seconds())
	}
	must("is off", "power", "status")
	for _, c := range []struct{ device, want string }{{"pxe", "boot:pxe"}, {"cdrom", "boot:cdrom"}, {"disk", "boot:default"}, {"none", "boot:none"}, {"pxe", "boot:pxe"}} {
		must("Set Boot Device to "+c.device, "chassis", "bootdev", c.device)
		if got := chassis(t, l, "get", "boot"); got != c.want {
			t.Fatalf("after bootdev %s: %s, want %s", c.device, got, c.want)
		}
	}
	must("Up/On", "power", "on")
	must("is on", "power", "status")
	if got := chassis(t, l, "get", "boot"); got != "boot:none" {
		t.Fatalf("the boot device is not used up: %s", got)
	}
	must("Cycle", "power", "cycle")
	await(t, "cycle to tenant system", tenantSays(t, l, m, "marker="+m.Marker))
	must("Reset", "power", "reset")
	must("Soft", "power", "soft")
	must("Down/Off", "power", "off")
	await(t, "off", func() bool { return chassis(t, l, "get", "power") == "power:0" })

	for _, fault := range []string{"lie-power", "down", "none"} {
		if err := l.Fault(t.Context(), "m1", fault); err != nil {
			t.Fatal(err)
		}
		switch fault {
		case "lie-power":
			must("Up/On", "power", "on")
			must("is on", "power", "status")
			if s, err := l.Status(t.Context()); err != nil || s.Machines[0].Power != PowerOff {
				t.Fatalf("behind the lie: %+v %v", s.Machines, err)
			}
		case "down":
			if out, err := ipmi("power", "status"); err == nil {
				t.Fatalf("a dead BMC answers %q", out)
			}
		case "none":
			await(t, "BMC back", func() bool { out, err := ipmi("power", "status"); return err == nil && strings.Contains(out, "is off") })
		}
	}
	if err := l.Fault(t.Context(), "m1", "rubbish"); !problem.Is(err, problem.Unsupported) {
		t.Errorf("rubbish by IPMI: %v", err)
	}
}

// Whatever ends the lab's first process ends everything in it, and the next lab can start.
func TestDeathEndsAll(t *testing.T) {
	l, s := up(t, Spec{BMC: IPMI, Machines: 2, Disk: BlankDisk})
	chassis(t, l, "set", "power", "1")
	qemu := processesUnder(t, s.PID)
	if len(qemu) < 4 { // world, QEMU, two simulators
		t.Fatalf("processes %v", qemu)
	}
	must.OK(t, syscall.Kill(s.PID, syscall.SIGKILL))
	await(t, "all gone", func() bool {
		for _, pid := range qemu {
			if syscall.Kill(pid, 0) == nil {
				return false
			}
		}
		return true
	})
	if _, err := Attach(e2eState(t), ""); !problem.Is(err, problem.NotFound) {
		t.Errorf("attach to a dead lab: %v", err)
	}
	again, _ := up(t, Spec{Disk: BlankDisk})
	if _, err := Up(t.Context(), Spec{StateDir: e2eState(t), Disk: BlankDisk}); !problem.Is(err, problem.Conflict) {
		t.Errorf("a second lab of the same name: %v", err)
	}
	must.OK(t, again.Down(t.Context()))
}

// processesUnder lists the descendants of a process.
func processesUnder(t *testing.T, root int) []int {
	t.Helper()
	children := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", root)))(t)
	var all []int
	for _, file := range children {
		text, _ := os.ReadFile(file) // a thread may have ended
		for _, word := range strings.Fields(string(text)) {
			pid := must.Get(strconv.Atoi(word))(t)
			all = append(append(all, pid), processesUnder(t, pid)...)
		}
	}
	return all
}

// Programs run inside, with their status, their files and their signals; faults show on the wire.
func TestInside(t *testing.T) {
	l, s := up(t, Spec{Disk: BlankDisk})
	out := mustInside(t, l, "sh", "-c", "echo $$; ip -4 -o addr show dev br-prov")
	if !strings.Contains(out, "10.77.0.1/24") {
		t.Errorf("inside: %q", out)
	}
	read := func() error {
		_, err := inside(t, l, "busybox", "wget", "-q", "-O", "/dev/null", s.Machines[0].Address+"/redfish")
		return err
	}
	for _, fault := range []string{"down", "none", "503", "none"} {
		must.OK(t, l.Fault(t.Context(), "m1", fault))
		if err := read(); (err == nil) != (fault == "none") {
			t.Errorf("Redfish with fault %s: %v", fault, err)
		}
	}
	var exit *exec.ExitError
	if _, err := inside(t, l, "sh", "-c", "exit 7"); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("exit 7: %v", err)
	}
	if _, err := inside(t, l, "sh", "-c", "kill -9 $$"); !errors.As(err, &exit) || exit.ExitCode() != 137 {
		t.Errorf("kill -9: %v", err)
	}
	cmd := l.Command(t.Context(), "cat")
	cmd.Stdin = strings.NewReader("through the socket")
	if echo, err := cmd.Output(); err != nil || string(echo) != "through the socket" {
		t.Errorf("cat: %q %v", echo, err)
	}
	// The client's death ends the program, and a signal to the client reaches it.
	before := len(processesUnder(t, s.PID))
	for _, signal := range []os.Signal{os.Kill, syscall.SIGTERM} {
		cmd := l.Command(t.Context(), "sleep", "1000")
		must.OK(t, cmd.Start())
		await(t, "program runs", func() bool { return len(processesUnder(t, s.PID)) > before })
		cmd.Process.Signal(signal)
		cmd.Wait()
		await(t, "program ends", func() bool { return len(processesUnder(t, s.PID)) == before })
	}
}
