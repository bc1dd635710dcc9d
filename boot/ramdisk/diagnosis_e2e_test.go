//go:build e2e

package ramdisk

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/boot/media"
	"salvor/diagnose"
	"salvor/test/debian"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

// diagnosisMemory is the least that the profile is documented for, in MiB.
const diagnosisMemory = "512"

// TestDiagnosis examines disks after a power cut by the real ramdisk: it sees what only the journals hold, and no byte of a disk changes.
func TestDiagnosis(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, build(dir, Options{Arch: AMD64, Profile: Diagnose}))
	out := filepath.Join(dir, "out")
	disks := makeDisks(t, out, "")
	c := newController(t, out, openImageIn(t, out, FileISO))
	var answer []byte
	c.before = func(send func(string, any) json.RawMessage) {
		answer = send(wire.Examine, wire.ExamineParams{Now: time.Now(), LUKSKeys: [][]byte{[]byte("not this one"), []byte("sesame")}})
	}
	m := newMachine(t)
	began := time.Now()
	m.start(t, debian.Program(t, "qemu-system-x86_64", "qemu-system-x86"), slices.Concat([]string{"-machine", "q35,accel=tcg", "-cpu", "max", "-m", diagnosisMemory, "-device", "virtio-net-pci,netdev=n0,romfile=", "-netdev", m.network(c)},
		drives(disks), []string{"-kernel", filepath.Join(out, FileKernel), "-initrd", filepath.Join(out, FileInitramfs), "-append", c.params}))
	m.waitLong(t, c, "ssh started on 10.0.2.15", repairLimit)
	t.Logf("examined and rescued %.1f s after power on", time.Since(began).Seconds())
	if bytes.Contains(answer, []byte(base64.StdEncoding.EncodeToString([]byte("sesame")))) {
		t.Error("the result of the command shows the key")
	}
	var result wire.Result
	must.OK(t, json.Unmarshal(answer, &result))
	checkExamination(t, result.Outcome, []string{"Plain ext4", "In LUKS", "LVM on RAID1", "Btrfs"}, 0)

	// The machine is in rescue now: its agent serves by the token of the rescue, and looks again.
	began = time.Now()
	answer = c.duringRescue(t, wire.Examine, wire.ExamineParams{Now: time.Now(), LUKSKeys: [][]byte{[]byte("sesame")}})
	t.Logf("examined during the rescue in %.1f s", time.Since(began).Seconds())
	must.OK(t, json.Unmarshal(answer, &result))
	checkExamination(t, result.Outcome, []string{"Plain ext4", "In LUKS", "LVM on RAID1", "Btrfs"}, 0)
	if _, err := c.session(wire.FinalizeRescue, map[string]any{"rescue_password": sesameHash, "hashed": true}); err == nil {
		t.Error("the agent is finalized twice")
	}

	if os.Getenv("SALVOR_SOAK") != "" {
		examineAfterKill(t, m)
	}
	for _, d := range disks {
		if got := diskSum(t, d.file); got != d.sum {
			t.Errorf("%s: an examination changed it", d.file)
		}
	}
	if text := c.lastFailure(); text != "" {
		t.Errorf("the control plane saw: %s", text)
	}
}

// examineAfterKill kills an examination once all is mounted. The next one, as a person starts it, takes down what lies about.
func examineAfterKill(t *testing.T, m *machine) {
	t.Helper()
	const kill = `salvor-agent examine >/dev/null 2>&1 & agent=$!
until grep -q "/run/salvor/examine/mount-.*btrfs" /proc/mounts; do kill -0 $agent || exit 3; usleep 10000; done
kill -9 $agent; grep -c /run/salvor/examine/ /proc/mounts
salvor-agent examine 2>/run/log || cat /run/log
grep -c /run/salvor/examine /proc/mounts; ls /sys/block | grep -c -E '^(dm|md)'; cat /sys/block/vda/ro /sys/block/vda/vda1/ro`
	text, err := m.ssh("sesame", kill)
	left, rest, _ := strings.Cut(text, "\n")
	at := strings.LastIndex(rest, "}\n")
	if err != nil || at < 0 || left == "0" || rest[at+2:] != "0\n0\n0\n0\n" {
		t.Fatalf("%v: %s", err, text)
	}
	checkExamination(t, []byte(rest[:at+1]), []string{"Plain ext4", "LVM on RAID1", "Btrfs"}, 1)
}

// checkExamination wants all disks untouched, the systems of those names, and that many gaps.
func checkExamination(t *testing.T, raw []byte, names []string, gaps int) {
	t.Helper()
	var e diagnose.Examination
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	t.Logf("the examination took %.1f s", e.Seconds)
	if len(e.Disks) != 3 || len(e.NotExamined) != gaps || len(e.Systems) != len(names) {
		t.Errorf("%d disks, %d systems, gaps %+v", len(e.Disks), len(e.Systems), e.NotExamined)
	}
	for _, d := range e.Disks {
		if d.Written != 0 || d.Changed == 0 {
			t.Errorf("disk %+v", d)
		}
	}
	for i, s := range e.Systems {
		if !slices.Contains(names, s.Name) {
			t.Errorf("system %d is %q", i, s.Name)
		}
		var ids []string
		for _, f := range s.Findings {
			ids = append(ids, f.ID)
		}
		t.Logf("%s on %s: %q", s.Name, s.Root, ids)
		if got, want := slices.Contains(ids, "fstab-device-missing"), s.Name == "Plain ext4"; got != want {
			t.Errorf("%s: fstab-device-missing is found: %v", s.Name, got)
		}
		if !slices.Contains(ids, "array-degraded") {
			t.Errorf("%s: the degraded array is not found", s.Name)
		}
	}
}

// madeDisk is a raw disk with the sum of its content.
type madeDisk struct{ file, sum string }

func drives(disks []madeDisk) []string {
	var args []string
	for i, d := range disks {
		id := "disk" + string(rune('a'+i))
		args = append(args, "-drive", "if=none,format=raw,id="+id+",file="+d.file, "-device", "virtio-blk-pci,drive="+id+",serial="+id)
	}
	return args
}

// makeDisks boots the ramdisk once with another first process, which makes file systems and cuts its own power. It reads words on its kernel's
// command line.
func makeDisks(t *testing.T, out, words string) []madeDisk {
	t.Helper()
	dir := t.TempDir()
	var disks []madeDisk
	for _, d := range []struct{ name, table string }{
		{"plain", "label: gpt\nsize=48MiB,type=linux\nsize=40MiB,type=linux\n"}, {"raid", "label: gpt\nsize=80MiB,type=raid\n"}, {"btrfs", ""},
	} {
		file := filepath.Join(dir, d.name)
		must.OK(t, os.WriteFile(file, nil, 0o600))
		must.OK(t, os.Truncate(file, 112<<20))
		if d.table != "" {
			cmd := exec.Command(debian.Program(t, "sfdisk", "fdisk"), "-q", file)
			cmd.Stdin = strings.NewReader(d.table)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("sfdisk: %v: %s", err, text)
			}
		}
		disks = append(disks, madeDisk{file: file})
	}
	tree := &Tree{entries: map[string]media.Entry{}}
	must.OK(t, tree.Copy("init", "testdata/make-disks", 0o755))
	for program, pkg := range map[string]string{"mkfs.btrfs": "btrfs-progs", "mke2fs": "e2fsprogs"} {
		must.OK(t, tree.Copy("usr/sbin/"+program, filepath.Join(unpackCached(t, pkg), "sbin", program), 0o755))
	}
	var initrd bytes.Buffer
	initrd.Write(must.Get(os.ReadFile(filepath.Join(out, FileInitramfs)))(t))
	initrd.Write(make([]byte, -initrd.Len()&511)) // the kernel wants the next archive aligned
	must.OK(t, tree.Archive(&initrd))
	file := filepath.Join(dir, "initrd")
	must.OK(t, os.WriteFile(file, initrd.Bytes(), 0o600))
	m := newMachine(t)
	began := time.Now()
	m.start(t, debian.Program(t, "qemu-system-x86_64", "qemu-system-x86"), append([]string{"-machine", "q35,accel=tcg", "-cpu", "max", "-m", "512",
		"-kernel", filepath.Join(out, FileKernel), "-initrd", file, "-append", "console=ttyS0 quiet panic=-1 " + words}, drives(disks)...))
	select {
	case <-m.exited:
	case <-time.After(bootLimit):
	}
	if !strings.Contains(m.console(), "the disks are made") {
		t.Fatalf("the disks are not made; console:\n%s", m.console())
	}
	t.Logf("the disks are made %.1f s after power on", time.Since(began).Seconds())
	for i := range disks {
		disks[i].sum = diskSum(t, disks[i].file)
	}
	return disks
}

// unpackCached unpacks the newest package of that name that the build of a ramdisk has brought into the cache.
func unpackCached(t *testing.T, pkg string) string {
	t.Helper()
	base := must.Get(os.UserCacheDir())(t)
	files := must.Get(filepath.Glob(filepath.Join(base, "salvor/packages", pkg+"_*_"+string(AMD64)+".deb")))(t)
	if len(files) == 0 {
		t.Fatalf("the build left no package %s in the cache", pkg)
	}
	slices.SortFunc(files, func(a, b string) int {
		return must.Get(os.Stat(a))(t).ModTime().Compare(must.Get(os.Stat(b))(t).ModTime())
	})
	dir := t.TempDir()
	if text, err := exec.Command("dpkg-deb", "-x", files[len(files)-1], dir).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v: %s", err, text)
	}
	return dir
}

func diskSum(t *testing.T, file string) string {
	t.Helper()
	f := must.Get(os.Open(file))(t)
	defer f.Close()
	h := sha256.New()
	must.Get(io.Copy(h, f))(t)
	return hex.EncodeToString(h.Sum(nil))
}
