//go:build e2e

package causes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/diagnose"
	"salvor/test/must"
	"salvor/test/program"
)

// sampled are faults of the corpus that can be put on a plain ext4 without a machine, and whether TestSample has them repaired.
var sampled = []struct {
	fault  string
	mended bool
}{
	{"fstab-names-a-disk-that-is-gone", true}, {"initramfs-cut-off", false}, {"sshd-config-with-an-unknown-option", false}, {"grub-config-empty", true},
	{"root-argument-names-another-file-system", false}, {"host-keys-missing", true}, {"network-interface-of-another-name", false}, {"account-expired", false},
	{"kernel-cut-off", false}, {"init-missing", false}, {"sshd-masked", false}, {"passwd-line-broken", false},
}

// TestSample is what CI has of TestCauses: the real ramdisk examines twelve faults of a Debian 12, and no byte of a disk changes. Three are
// repaired, undone byte for byte, repaired again, and the system boots to a login over ssh.
func TestSample(t *testing.T) {
	c := newSample(t)
	defer c.stopWorkers()
	lap := newLap(t)
	base := c.debianDisk(t)
	lap("the Debian is installed")
	examined := 0
	for _, s := range sampled {
		t.Run(s.fault, func(t *testing.T) {
			examined++
			c.tryOnSample(t, base, faultNamed(s.fault), s.mended)
		})
	}
	if examined == 0 {
		t.Error("no fault was examined")
	}
}

// TestMendedFaults repairs each of MendedFaults as TestSample does. SALVOR_ONLY is a regular expression of names.
func TestMendedFaults(t *testing.T) {
	if os.Getenv("SALVOR_SOAK") == "" {
		t.Skip("it takes half an hour: SALVOR_SOAK=1")
	}
	only := regexp.MustCompile(os.Getenv("SALVOR_ONLY"))
	c := newSample(t)
	defer c.stopWorkers()
	base := c.debianDisk(t)
	proven := 0
	for _, f := range MendedFaults() {
		if only.MatchString(f.Name) && t.Run(f.Name, func(t *testing.T) { c.tryOnSample(t, base, f, true) }) {
			proven++
		}
	}
	t.Logf("%d repairs are proven", proven)
}

// tryOnSample puts a fault on a copy of a raw disk and has the ramdisk examine the copy. Where the fault is to be mended, the ramdisk repairs the
// copy and undoes the repair byte for byte. Repaired once more, the system boots to a login over ssh.
func (c *corpus) tryOnSample(t *testing.T, base string, f Fault, mended bool) {
	t.Helper()
	l := Layouts()[0]
	k := Case{Name: f.Name, Kind: Single, Layout: l, Faults: []Fault{f}}
	dir := must.Get(os.MkdirTemp(c.dir, "case-"))(t)
	defer os.RemoveAll(dir)
	c.spoil(t, k, base, dir)
	lap := newLap(t)
	before := fileSum(t, disk(dir, 0))
	answer, _ := c.look(t, l, Hardware{}, "examiner-1", diskFiles(dir, l, 0), "", "")
	if fileSum(t, disk(dir, 0)) != before {
		t.Error("the examination changed the disk")
	}
	var report diagnose.Report
	report.Add(answer)
	report.Judge()
	var r Result
	r.take(report)
	lap(fmt.Sprintf("examined in %.1f s: %s, findings %q", r.Seconds, r.Cause, r.Named))
	if mark := JudgeResult(k, r); mark != Right {
		t.Errorf("%s: %s %s; findings %q, gaps %q", mark, r.Outcome, r.Cause, r.Named, r.Gaps)
	}
	if !mended {
		return
	}
	findings := repairable(report.Findings, k.Faults[0].IDs)
	if len(findings) == 0 {
		t.Fatal("the report proposes no repair")
	}
	if err := c.mend(t, l, Hardware{}, "examiner-1", dir, findings, ""); err != nil {
		t.Error(err)
	}
	lap("repaired, undone, repaired and booted")
}

// newSample is a corpus with a ramdisk and keys. The caller stops its workers.
func newSample(t *testing.T) *corpus {
	t.Helper()
	c := newCorpus(t, t.TempDir(), "examiner-1")
	c.makeKeys(t)
	lap := newLap(t)
	run(t, program.Path(t, "salvor"), "ramdisk", "build", "--profile", "diagnose", "--out", filepath.Join(c.dir, "ramdisk-diagnose"))
	lap("the ramdisk is built")
	return c
}

// newLap gives a function that logs the time since it was called last.
func newLap(t *testing.T) func(what string) {
	began := time.Now()
	return func(what string) {
		t.Logf("%s: %.1f s", what, time.Since(began).Seconds())
		began = time.Now()
	}
}

// debianDisk gives a raw disk with an installed Debian 12, with the address, the keys and the name that all systems of the corpus have.
func (c *corpus) debianDisk(t *testing.T) string {
	t.Helper()
	image := filepath.Join(c.dir, "debian.img")
	archive := must.Get(filepath.Abs("../../build/debian-12.tar"))(t)
	must.OK(t, os.MkdirAll(filepath.Dir(archive), 0o755))
	run(t, "../debian-disk.sh", image, archive, "10.0.2.15/24", filepath.Join(c.dir, "login_key.pub"))
	c.onDisk(t, image, `
printf 'auto lo\niface lo inet loopback\n\nauto enp0s5\niface enp0s5 inet static\n\taddress 10.0.2.15/24\n\tgateway 10.0.2.2\n' >$R/etc/network/interfaces
echo web >$R/etc/hostname
rm $R/etc/ssh/ssh_host_*
install -m 600 host_key $R/etc/ssh/ssh_host_ed25519_key
install -m 644 host_key.pub $R/etc/ssh/ssh_host_ed25519_key.pub`)
	return image
}

// spoil puts a case on a copy of a raw disk, and lays the disk of the case over it.
func (c *corpus) spoil(t *testing.T, k Case, base, dir string) {
	t.Helper()
	raw := filepath.Join(dir, "raw")
	run(t, "cp", "--sparse=always", base, raw)
	c.onDisk(t, raw, k.Faults[0].Script)
	run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", raw, disk(dir, 0))
}

// onDisk runs a script with the system of a raw disk mounted, where nothing else sees the mount.
func (c *corpus) onDisk(t *testing.T, image, script string) {
	t.Helper()
	library := strings.Replace(scriptLibrary, ". /causes/variables", "", 1)
	// The scripts are those of a machine of its own, and use fixed names below /tmp.
	text := Layouts()[0].Variables() + library + `
mkdir -p scratch
mount -t tmpfs tmpfs scratch
mkdir scratch/system
mount -o loop,offset=$((4096 * 512)) "$1" scratch/system
mount --move scratch /tmp
R=/tmp/system
` + script + `
umount $R`
	cmd := exec.Command("unshare", "--mount", "sh", "-e", "-c", text, "sh", image)
	cmd.Dir = c.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestManyFiles: ten million files on a root file system, a million of them each where rules list folders, neither stop an examination nor exhaust its
// machine. SALVOR_FILES sets their number.
func TestManyFiles(t *testing.T) {
	if os.Getenv("SALVOR_SOAK") == "" {
		t.Skip("it takes ten minutes and 6 GB: SALVOR_SOAK=1")
	}
	files := 10_000_000
	if text := os.Getenv("SALVOR_FILES"); text != "" {
		files = must.Get(strconv.Atoi(text))(t)
	}
	c := newSample(t)
	defer c.stopWorkers()
	dir := must.Get(os.MkdirTemp(c.dir, "case-"))(t)
	raw := filepath.Join(dir, "raw")
	must.OK(t, os.WriteFile(raw, nil, 0o600))
	must.OK(t, os.Truncate(raw, int64(files)*700+(1<<30)))
	run(t, "mke2fs", "-q", "-t", "ext4", "-N", fmt.Sprint(files+100_000), raw)
	lap := newLap(t)
	place := filepath.Join(dir, "root")
	must.OK(t, os.Mkdir(place, 0o700))
	run(t, "mount", "-o", "loop", raw, place)
	mounted := true
	defer func() {
		if mounted {
			run(t, "umount", place)
		}
	}()
	folders := []string{"boot", "boot/grub", "etc", "etc/ssh/sshd_config.d", "etc/systemd/system", "etc/network/interfaces.d", "etc/modprobe.d", "usr/lib/modules", "var/log", "home"}
	for _, folder := range folders {
		must.OK(t, os.MkdirAll(filepath.Join(place, folder), 0o755))
		for i := range files / len(folders) {
			must.OK(t, unix.Mknod(filepath.Join(place, folder, fmt.Sprintf("%d.conf", i)), unix.S_IFREG|0o644, 0))
		}
	}
	must.OK(t, os.WriteFile(filepath.Join(place, "etc/os-release"), []byte("PRETTY_NAME=Many\nID=debian\n"), 0o644))
	must.OK(t, os.WriteFile(filepath.Join(place, "etc/passwd"), []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644))
	run(t, "umount", place)
	mounted = false
	lap(fmt.Sprintf("%d files are made", files))
	run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", raw, disk(dir, 0))
	answer, answered := c.look(t, Layouts()[0], Hardware{}, "examiner-1", diskFiles(dir, Layouts()[0], 0), "", "")
	t.Logf("answered after %.1f s; gaps %+v", answered, answer.NotExamined)
	if len(answer.Systems) != 1 || answer.Systems[0].Name != "Many" {
		t.Errorf("systems %+v", answer.Systems)
	}
	first := c.workers["examiner-1"]
	_, again := c.look(t, Layouts()[0], Hardware{}, "examiner-1", diskFiles(dir, Layouts()[0], 0), "", "")
	t.Logf("the second look took %.0f s", again)
	if c.workers["examiner-1"] != first || !first.runs() {
		t.Error("the machine did not outlive the first look")
	}
}
