//go:build e2e

package libvirt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/hypervisor/hypervisortest"
	"salvor/lab"
	"salvor/rescue"
	"salvor/test/machine"
	"salvor/test/must"
)

// ticking is a tenant system that counts on its console and on its disk, each time with the id of its boot.
const ticking = `n=0
boot=$(cat /proc/sys/kernel/random/boot_id)
while :; do
	n=$((n + 1))
	echo "TICK $boot $n" >> /var/lib/ticks && sync && echo "TICK $boot $n" > /dev/console
	sleep 1
done
`

// pier is two hosts of one lab with one disk store: a directory that both see.
type pier struct {
	lab    *lab.Lab
	dir    string
	bridge string
	system string // a disk that ticks
	sides  [2]*Hypervisor
	at     [2]lab.HostStatus
	count  int
}

func newPier(t *testing.T) *pier {
	t.Helper()
	w := machine.Up(t, lab.Spec{Hosts: 2})
	p, dir := &pier{lab: w.Lab, dir: w.Dir}, w.Dir
	var err error
	for i, name := range []string{"h1", "h2"} {
		if p.at[i], err = w.Lab.Host(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		nvram := filepath.Join(dir, "nvram-"+name)
		must.OK(t, os.Mkdir(nvram, 0o700))
		if p.sides[i], err = New(Options{URI: "qemu:///system?socket=" + p.at[i].Socket, NVRAM: nvram}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.sides[i].Close)
	}
	t.Cleanup(func() {
		for _, at := range p.at {
			if text, _ := os.ReadFile(filepath.Join(at.Dir, "host.log")); t.Failed() {
				t.Logf("%s:\n%s", at.Name, text[max(0, len(text)-6000):])
			}
		}
	})
	p.bridge = p.at[0].Bridge
	p.tick(t)
	return p
}

// tick makes the disk that ticks: the tenant's, with one program more.
func (p *pier) tick(t *testing.T) {
	t.Helper()
	p.system = filepath.Join(p.dir, "ticking.img")
	must.Get(lab.MakeImage(t.Context(), p.dir, p.system))(t)
	for name, text := range map[string]string{
		"tick": ticking, "inittab": "::sysinit:/etc/rc\n::once:/bin/sh /etc/tick\n::respawn:/bin/busybox acpid -f -l /dev/null\n",
		"changes": "rm /etc/inittab\nwrite inittab /etc/inittab\nwrite tick /etc/tick\n",
	} {
		must.OK(t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
	}
	change := exec.CommandContext(t.Context(), "/usr/sbin/debugfs", "-w", "-f", "changes", fmt.Sprintf("%s?offset=%d", p.system, 65<<20))
	change.Dir = p.dir
	if out, err := change.CombinedOutput(); err != nil {
		t.Fatalf("debugfs (package e2fsprogs): %v: %s", err, out)
	}
}

func (p *pier) domain(t *testing.T) hypervisor.Domain {
	t.Helper()
	p.count++
	id := uuid.NewString()
	disk := filepath.Join(p.dir, id+".img")
	copyFile(t, disk, p.system)
	return hypervisor.Domain{
		Spec: compute.Spec{
			ServerID: id, Name: "moved", GuestName: fmt.Sprintf("salvor-%d", p.count), Epoch: 1, VCPUs: 1, RAM: 128, Firmware: compute.BIOS,
			Disks: []compute.SpecDisk{{Name: "vda"}}, NICs: []compute.NIC{{MAC: fmt.Sprintf("fa:16:3e:00:01:%02x", p.count), Bridge: p.bridge}},
		},
		Paths:       map[string]hypervisor.DiskFile{"vda": {Path: disk, Format: "raw"}},
		ConsolePath: filepath.Join(p.dir, id+"-1.log"), ChannelPath: filepath.Join(p.dir, id+"-1.sock"),
	}
}

// there is the same server on the second host, whose files of its own have other names.
func (p *pier) there(t *testing.T, d hypervisor.Domain) hypervisor.Domain {
	d.Epoch++
	d.ConsolePath, d.ChannelPath = filepath.Join(p.dir, d.ServerID+"-2.log"), filepath.Join(p.dir, d.ServerID+"-2.sock")
	return d
}

var tickLine = regexp.MustCompile(`TICK ([0-9a-f-]{36}) (\d+)\r?\n`)

// ticks are the boots that a console shows, and the last count of the last.
func ticks(console string) (boots []string, last int) {
	log, _ := os.ReadFile(console)
	for _, m := range tickLine.FindAllStringSubmatch(string(log), -1) {
		if len(boots) == 0 || boots[len(boots)-1] != m[1] {
			boots = append(boots, m[1])
		}
		last, _ = strconv.Atoi(m[2])
	}
	return boots, last
}

// beyond waits until the guest counts on behind what its consoles show, and proves that all of it is one boot.
func (p *pier) beyond(t *testing.T, d hypervisor.Domain, more int) {
	t.Helper()
	first, second := filepath.Join(p.dir, d.ServerID+"-1.log"), filepath.Join(p.dir, d.ServerID+"-2.log")
	_, a := ticks(first)
	_, b := ticks(second)
	want, start := max(a, b)+more, time.Now()
	for time.Since(start) < e2eTimeout {
		boots, count := ticks(d.ConsolePath)
		if count >= want {
			all, _ := ticks(first)
			if len(boots) != 1 || len(all) != 1 || boots[0] != all[0] {
				t.Fatalf("it was begun anew: boots %v, before %v", boots, all)
			}
			t.Logf("tick %d after %.1f s", count, time.Since(start).Seconds())
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	log, _ := os.ReadFile(d.ConsolePath)
	t.Fatalf("it does not count on behind %d: %s", want, log)
}

// A guest that runs goes from one libvirt daemon to another and counts on: from its own disk, and booted by a rescue's, which hands over to the same system here.
func TestRealMigration(t *testing.T) {
	p := newPier(t)
	pair := hypervisortest.Pair{
		From: p.sides[0], To: p.sides[1], Domain: p.domain, There: p.there, Listen: p.at[1].Address,
		Up:    func(t *testing.T, d hypervisor.Domain) { p.beyond(t, d, 1) },
		Lives: func(t *testing.T, d hypervisor.Domain) { p.beyond(t, d, 2) },
	}
	hypervisortest.Migrate(t, pair)
	t.Run("in rescue", func(t *testing.T) {
		rescued := pair
		rescued.Domain = func(t *testing.T) hypervisor.Domain {
			d := p.domain(t)
			d.Spec.Rescue = &compute.SpecRescue{Source: rescue.Source{Name: "disk", Kind: rescue.Disk}}
			d.RescueImage = filepath.Join(p.dir, d.ServerID+"-rescue.img")
			copyFile(t, d.RescueImage, p.system)
			return d
		}
		rescued.Through = true
		hypervisortest.Migrate(t, rescued)
	})
}
