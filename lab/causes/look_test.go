//go:build causes || e2e

package causes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/test/debian"
	"salvor/test/must"
)

// Limits of one machine under TCG on a busy computer.
const (
	buildLimit = 30 * time.Minute
	seedLimit  = 15 * time.Minute
	bootLimit  = 15 * time.Minute
)

// corpus is what all cases share.
type corpus struct {
	dir, qemu string
	// ramdisk is the sum of the initramfs that examines.
	ramdisk string

	mu      sync.Mutex
	images  map[string]*image
	workers map[string]*worker
	// starting has for each kind of worker what is held while one is found or started.
	starting map[string]*sync.Mutex
}

// newCorpus keeps its files in a folder, and has machines of these kinds. The caller stops them.
func newCorpus(t *testing.T, dir string, kinds ...string) *corpus {
	t.Helper()
	c := &corpus{dir: dir, qemu: debian.Program(t, "qemu-system-x86_64", "qemu-system-x86"), images: map[string]*image{}, workers: map[string]*worker{}, starting: map[string]*sync.Mutex{}}
	for _, kind := range kinds {
		c.starting[kind] = &sync.Mutex{}
	}
	return c
}

// image is an installed system that once booted to its proof.
type image struct {
	make  sync.Once
	dir   string
	ready bool
}

func (c *corpus) imageDir(l Layout) string {
	return filepath.Join(c.dir, "images", l.Name+"-"+l.Digest())
}

func disk(dir string, n int) string { return filepath.Join(dir, fmt.Sprintf("disk%d.qcow2", n)) }

// overlay puts overlays over the disks of an image into a folder.
func overlay(t *testing.T, l Layout, from, to string) {
	t.Helper()
	for n := range l.Disks {
		run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", disk(from, n), disk(to, n))
	}
	if l.UEFI {
		must.OK(t, copyFile(filepath.Join(from, "vars.fd"), filepath.Join(to, "vars.fd")))
	}
}

func diskFiles(dir string, l Layout, without int) []string {
	var out []string
	for n := range l.Disks {
		if n+1 != without {
			out = append(out, disk(dir, n))
		}
	}
	return out
}

// makeKeys makes the key of all systems' hosts, and that of the person who logs in.
func (c *corpus) makeKeys(t *testing.T) {
	t.Helper()
	for _, name := range []string{"host_key", "login_key"} {
		if _, err := os.Stat(filepath.Join(c.dir, name)); err != nil {
			run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", filepath.Join(c.dir, name))
		}
	}
}

// hostKey is that of the systems of the corpus, as their disks have it.
func (c *corpus) hostKey(t *testing.T) string {
	t.Helper()
	words := strings.Fields(string(must.Get(os.ReadFile(filepath.Join(c.dir, "host_key.pub")))(t)))
	return words[0] + " " + words[1]
}

// proveBoot boots the system itself, logs in by ssh with one of its host keys and root's key, and cuts the power.
func (c *corpus) proveBoot(t *testing.T, l Layout, dir string, hostKeys ...string) {
	t.Helper()
	port := freePort(t)
	var args []string
	if l.UEFI {
		args = uefi(filepath.Join(dir, "vars.fd"))
	}
	// The guest's clock counts instructions. By a clock on the wall, systemd gives a disk up after 90 s that a busy computer did not let it look for.
	args = append(args, "-icount", "shift=2", "-m", "1024", "-netdev", fmt.Sprintf("user,id=n0,hostfwd=tcp:127.0.0.1:%d-:22", port))
	m := c.start(t, "proof-"+l.Name, append(append(args, "-device", "virtio-net-pci,netdev=n0,romfile=,addr=5"), drives(dir, l)...))
	defer m.stop()
	if l.Stack == "luks" {
		if err := m.await(bootLimit, "unlock disk", ""); err != nil {
			t.Fatalf("the boot to the question for the key: %v\n%s", err, m.tail())
		}
		time.Sleep(time.Second) // the question is printed before the answer is read
		must.Get(io.WriteString(m.keyboard, "sesame\n"))(t)
	}
	known := filepath.Join(dir, "known_hosts")
	lines := ""
	for _, key := range hostKeys {
		lines += fmt.Sprintf("[127.0.0.1]:%d %s\n", port, key)
	}
	must.OK(t, os.WriteFile(known, []byte(lines), 0o600))
	defer os.Remove(known)
	var last []byte
	for until := time.Now().Add(bootLimit); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out, err := exec.CommandContext(ctx, "ssh", "-F", "none", "-p", fmt.Sprint(port), "-i", filepath.Join(c.dir, "login_key"), "-o", "BatchMode=yes",
			"-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+known, "-o", "ConnectTimeout=50", "root@127.0.0.1", "echo work >/var/log/work; sync; echo more >>/var/log/work; hostname").CombinedOutput()
		cancel()
		if err == nil && strings.TrimSpace(string(out)) == "web" {
			break
		}
		last = out
		if strings.Contains(m.console.String(), "You are in emergency mode") {
			t.Fatalf("the boot ends in emergency mode\n%s", m.tail())
		}
		select {
		case <-m.exited:
			t.Fatalf("the machine ended before a login; %s\n%s", last, m.tail())
		case <-time.After(2 * time.Second):
		}
		if time.Now().After(until) {
			t.Fatalf("no login within %v: %s\n%s", bootLimit, last, m.tail())
		}
	}
}

// look attaches disks to the machine that examines. badSector is as for attach. It returns the seconds from the command to the answer too.
func (c *corpus) look(t *testing.T, l Layout, h Hardware, lane string, files []string, badSector, network string) (*diagnose.Examination, float64) {
	t.Helper()
	w := c.worker(t, lane, l, h, c.startExaminer)
	defer w.mu.Unlock()
	w.attach(t, files, badSector)
	began := time.Now()
	answer, err := w.agent.examine(len(files), network)
	if err != nil {
		w.stop()
		t.Fatalf("the examination: %v\n%s", err, w.tail())
	}
	answered := time.Since(began).Seconds()
	w.detach(t)
	return answer, answered
}

func fileSum(t *testing.T, file string) string {
	t.Helper()
	f := must.Get(os.Open(file))(t)
	defer f.Close()
	h := sha256.New()
	must.Get(io.Copy(h, f))(t)
	return hex.EncodeToString(h.Sum(nil))
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
