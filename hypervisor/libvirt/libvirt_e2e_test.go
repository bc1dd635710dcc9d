//go:build e2e

package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/hypervisor/hypervisortest"
	"salvor/lab"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/machine"
	"salvor/test/must"
)

const e2eTimeout = 2 * time.Minute

// e2eWorld is one VM host of a lab and files for guests on it.
type e2eWorld struct {
	*Hypervisor
	lab    *lab.Lab
	host   lab.HostStatus
	dir    string
	tenant lab.Volume
	count  atomic.Int32
}

func newYard(t *testing.T) *e2eWorld {
	t.Helper()
	w := machine.Up(t, lab.Spec{Hosts: 1})
	y, dir := &e2eWorld{lab: w.Lab, dir: w.Dir}, w.Dir
	var err error
	if y.host, err = w.Lab.Host(t.Context(), "h1"); err != nil {
		t.Fatal(err)
	}
	if y.tenant, err = lab.MakeImage(t.Context(), dir, filepath.Join(dir, "tenant.img")); err != nil {
		t.Fatal(err)
	}
	// libvirt writes variables under its own /var/lib, which is the host's.
	if y.Hypervisor, err = New(Options{URI: "qemu:///system?socket=" + y.host.Socket, NVRAM: filepath.Join(dir, "nvram")}); err != nil {
		t.Fatal(err)
	}
	must.OK(t, os.Mkdir(filepath.Join(dir, "nvram"), 0o700))
	t.Cleanup(y.Close)
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(y.host.Dir, "host.log"))
			t.Logf("the host:\n%s", text[max(0, len(text)-6000):])
		}
	})
	return y
}

// domain is a server of one disk, blank or with a copy of the tenant system.
func (y *e2eWorld) domain(t *testing.T, listens bool) hypervisor.Domain {
	t.Helper()
	n := y.count.Add(1)
	id := uuid.NewString()
	disk := filepath.Join(y.dir, id+".img")
	if listens {
		copyFile(t, disk, y.tenant.Path)
	} else if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return hypervisor.Domain{
		Spec: compute.Spec{
			ServerID: id, Name: "the <user>'s & name", GuestName: fmt.Sprintf("salvor-%d", n), Epoch: 1, VCPUs: 1, RAM: 256, Firmware: compute.BIOS,
			Disks: []compute.SpecDisk{{Name: "vda"}},
			NICs:  []compute.NIC{{MAC: fmt.Sprintf("fa:16:3e:00:00:%02x", n), Bridge: y.host.Bridge}},
		},
		Paths:       map[string]hypervisor.DiskFile{"vda": {Path: disk, Format: "raw"}},
		ConsolePath: filepath.Join(y.dir, id+".log"), ChannelPath: filepath.Join(y.dir, id+".sock"),
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	in := must.Get(os.Open(from))(t)
	defer in.Close()
	out := must.Get(os.Create(to))(t)
	defer out.Close()
	must.Get(io.Copy(out, in))(t)
}

// says waits until a guest's console shows a text behind the place where it was before.
func says(t *testing.T, d hypervisor.Domain, text string) {
	t.Helper()
	start := time.Now()
	for {
		log, err := os.ReadFile(d.ConsolePath)
		if err == nil && bytes.Contains(log, []byte(text)) {
			t.Logf("%q on the console after %.1f s", text, time.Since(start).Seconds())
			return
		}
		if time.Since(start) > e2eTimeout {
			t.Fatalf("no %q on the console: %v\n%s", text, err, log)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// One host serves all parts: what it needs to begin costs more than most of them.
func TestRealDaemon(t *testing.T) {
	y := newYard(t)
	t.Run("state travels", y.stateTravels)
	t.Run("edits by others", y.editsByOthers)
	t.Run("contract", y.contract)
	t.Run("rescue boots", y.rescueBoots)
	t.Run("volumes", y.volumes)
}

func (y *e2eWorld) contract(t *testing.T) {
	hypervisortest.Run(t, hypervisortest.Subject{
		Hypervisor: y.Hypervisor, Domain: y.domain,
		Up: func(t *testing.T, d hypervisor.Domain) { says(t, d, "TENANT up") },
		Rescue: func(t *testing.T, d hypervisor.Domain) hypervisor.Domain {
			d.Spec.Rescue = &compute.SpecRescue{Source: rescue.Source{Name: "blank", Kind: rescue.ISO}}
			d.RescueImage = filepath.Join(y.dir, "rescue.iso")
			must.OK(t, os.WriteFile(d.RescueImage, make([]byte, 1<<20), 0o600))
			return d
		},
		Plug: func(t *testing.T, d hypervisor.Domain) (hypervisor.Domain, string) {
			file := filepath.Join(y.dir, d.ServerID+"-b.img")
			must.OK(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
			d.Disks = append(d.Disks[:1:1], compute.SpecDisk{Name: "vdb", BootIndex: -1})
			d.Paths = map[string]hypervisor.DiskFile{"vda": d.Paths["vda"], "vdb": {Path: file, Format: "raw"}}
			return d, "vdb"
		},
		Powers: []compute.Power{compute.PowerPaused, compute.PowerSaved},
		Break: func(t *testing.T) func() {
			y.killLibvirt(t, true)
			return func() { y.killLibvirt(t, false) }
		},
		Soft: 20 * time.Second, IgnoredSoftOff: time.Second,
	})
}

func (y *e2eWorld) killLibvirt(t *testing.T, hold bool) {
	t.Helper()
	must.OK(t, y.lab.KillLibvirt(t.Context(), y.host.Name, hold))
}

// Each kind of rescue by each firmware: its system boots, and the server's own first disk is the first disk in it.
// The tenant's boot partition asks for the second partition of /dev/vda, wherever it was booted from.
func (y *e2eWorld) rescueBoots(t *testing.T) {
	for _, name := range []string{"vmlinuz", "initrd"} {
		copyOut := exec.CommandContext(t.Context(), "mcopy", "-n", "-i", y.tenant.Path+"@@1M", "::/"+name, filepath.Join(y.dir, name))
		if out, err := copyOut.CombinedOutput(); err != nil {
			t.Fatalf("mcopy (package mtools): %v: %s", err, out)
		}
	}
	for _, firmware := range []compute.Firmware{compute.BIOS, compute.UEFI} {
		t.Run(string(firmware), func(t *testing.T) {
			d := y.domain(t, true)
			d.Firmware = firmware
			if firmware == compute.UEFI { // by BIOS it has booted in other parts
				y.boot(t, d)
				says(t, d, "TENANT up")
			}
			vars := nvramPath(y.opts.NVRAM, d.ServerID, false)
			own, _ := os.ReadFile(vars)

			kernel := d
			kernel.Spec.Rescue = &compute.SpecRescue{Source: rescue.Source{Name: "kernel", Kind: rescue.Kernel, Append: "console=ttyS0 salvor.test=rescue"}}
			kernel.RescueImage, kernel.RescueRamdisk = filepath.Join(y.dir, "vmlinuz"), filepath.Join(y.dir, "initrd")
			y.boot(t, kernel)
			says(t, d, "salvor.test=rescue")
			says(t, d, map[compute.Firmware]string{compute.BIOS: "boots=1 ", compute.UEFI: "boots=2 "}[firmware])

			disk := d
			disk.Spec.Rescue = &compute.SpecRescue{Source: rescue.Source{Name: "disk", Kind: rescue.Disk}}
			disk.RescueImage = filepath.Join(y.dir, d.ServerID+"-rescue.img")
			copyFile(t, disk.RescueImage, y.tenant.Path)
			wreck(t, d.Paths["vda"].Path)
			y.boot(t, disk)
			says(t, d, "TENANT no root file system on /dev/vda2")
			if now, _ := os.ReadFile(vars); !bytes.Equal(own, now) {
				t.Error("a rescue has changed the server's own UEFI variables")
			}
			must.OK(t, y.Define(t.Context(), d))
			if _, err := os.Stat(nvramPath(y.opts.NVRAM, d.ServerID, true)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the variables of a rescue that has ended: %v", err)
			}
			must.OK(t, y.Remove(t.Context(), d.ServerID))
			if _, err := os.Stat(vars); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the variables of a server that was removed: %v", err)
			}
		})
	}
}

// boot defines a guest and starts it anew.
func (y *e2eWorld) boot(t *testing.T, d hypervisor.Domain) {
	t.Helper()
	must.OK(t, y.Define(t.Context(), d))
	must.Get(y.SetPower(t.Context(), d.ServerID, hypervisor.Power{State: compute.PowerOn, Restart: true}))(t)
}

// wreck leaves of a tenant disk the table of its partitions: nothing boots from it, and its system's partition holds none.
func wreck(t *testing.T, path string) {
	t.Helper()
	f := must.Get(os.OpenFile(path, os.O_WRONLY, 0))(t)
	defer f.Close()
	for offset, size := range map[int64]int{0: 440, 1 << 20: 1 << 20, 65 << 20: 64 << 10} {
		must.Get(f.WriteAt(make([]byte, size), offset))(t)
	}
}

// A server on a volume: QEMU logs in to it by itself with a password that no definition holds, also after a daemon
// that has forgotten it, and a second volume comes and goes while it runs.
func (y *e2eWorld) volumes(t *testing.T) {
	const user, password, portal = "someone", "a secret of 16 c", "10.77.0.1:3260"
	storage := y.lab.Command(context.WithoutCancel(t.Context()), "tgtd", "-f", "-C", "77", "--iscsi", "portal="+portal)
	storage.Env = append(os.Environ(), "TGT_IPC_SOCKET="+filepath.Join(y.dir, "tgt"))
	if err := storage.Start(); err != nil {
		t.Fatalf("tgtd (package tgt): %v", err)
	}
	t.Cleanup(func() {
		_ = storage.Process.Kill()
		_ = storage.Wait()
	})
	tgt := func(args ...string) error {
		cmd := y.lab.Command(t.Context(), "tgtadm", append([]string{"-C", "77", "--lld", "iscsi"}, args...)...)
		cmd.Env = storage.Env
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("tgtadm %v: %w: %s", args, err, out)
		}
		return nil
	}
	for start := time.Now(); tgt("--mode", "target", "--op", "show") != nil; time.Sleep(50 * time.Millisecond) {
		if time.Since(start) > e2eTimeout {
			t.Fatal("tgtd does not answer")
		}
	}
	second := filepath.Join(y.dir, "second.img")
	must.OK(t, os.WriteFile(second, make([]byte, 1<<20), 0o600))
	root := filepath.Join(y.dir, "root.img")
	copyFile(t, root, y.tenant.Path)
	const iqn = "iqn.2026-11.org.salvor:lab"
	for _, step := range [][]string{
		{"--mode", "target", "--op", "new", "--tid", "1", "--targetname", iqn},
		{"--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "--backing-store", root},
		{"--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "2", "--backing-store", second},
		{"--mode", "target", "--op", "bind", "--tid", "1", "--initiator-address", "ALL"},
		{"--mode", "account", "--op", "new", "--user", user, "--password", password},
		{"--mode", "account", "--op", "bind", "--tid", "1", "--user", user},
	} {
		must.OK(t, tgt(step...))
	}
	d := y.domain(t, false)
	volume := func(name string, lun, boot int) compute.SpecDisk {
		return compute.SpecDisk{Name: name, BootIndex: boot, VolumeID: uuid.NewString(), Portal: portal, IQN: iqn, LUN: lun, CHAPUser: user}
	}
	d.Disks = []compute.SpecDisk{volume("vda", 1, 0)}
	d.CHAP = map[string]secret.Value{d.Disks[0].VolumeID: secret.New(password)}
	y.boot(t, d)
	says(t, d, "boots=1 ")

	more := d
	more.Disks = append(d.Disks[:1:1], volume("vdb", 2, -1))
	more.CHAP = map[string]secret.Value{more.Disks[1].VolumeID: secret.New(password)}
	for _, on := range []bool{true, false} {
		must.OK(t, y.Plug(t.Context(), more, "vdb", on))
	}

	y.killLibvirt(t, false)
	restart := hypervisor.Power{State: compute.PowerOn, Restart: true}
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, err := y.SetPower(t.Context(), d.ServerID, restart)
		if err == nil {
			break
		}
		if !problem.Is(err, problem.Unavailable) || time.Since(start) > e2eTimeout {
			t.Fatal(err)
		}
	}
	says(t, d, "boots=2 ")
	definitions, err := filepath.Glob(filepath.Join(y.host.Dir, "etc", "*", "*"))
	if err != nil || len(definitions) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	for _, file := range definitions {
		if text, _ := os.ReadFile(file); bytes.Contains(text, []byte(password)) {
			t.Errorf("the password is in %s", file)
		}
	}
	must.OK(t, y.Remove(t.Context(), d.ServerID))
}
