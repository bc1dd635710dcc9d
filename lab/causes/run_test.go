//go:build causes

package causes

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/boot/media"
	"salvor/diagnose"
	"salvor/test/must"
	"salvor/test/oddsystem"
	"salvor/test/program"
)

// TestCauses examines each case that the results file does not have yet, and writes docs/causes.md. SALVOR_CAUSES names the folder of images, seeded
// disks and results; SALVOR_CAUSES_ONLY is a regular expression of names of cases. SALVOR_CAUSES_LAYOUT has all cases that fit this layout run on it.
// SALVOR_CAUSES_MACHINES=1 has one machine examine, not two. SALVOR_CAUSES_REPAIR=no repairs nothing.
func TestCauses(t *testing.T) {
	dir := must.Get(filepath.Abs("../../build/causes"))(t)
	if named := os.Getenv("SALVOR_CAUSES"); named != "" {
		dir = must.Get(filepath.Abs(named))(t)
	}
	c := newCorpus(t, dir, "builder", "installer", "examiner-1", "examiner-2")
	must.OK(t, os.MkdirAll(dir, 0o755))
	c.prepare(t)
	only := regexp.MustCompile(os.Getenv("SALVOR_CAUSES_ONLY"))
	done := must.Get(readResults(c.resultsFile()))(t)
	cases := Cases()
	for _, l := range Layouts() {
		if l.Name == os.Getenv("SALVOR_CAUSES_LAYOUT") {
			cases = CasesOn(l)
		}
	}
	// A system that is well shows whether its layout works at all.
	order := []Kind{Healthy, NearMiss, Single, Double}
	slices.SortStableFunc(cases, func(a, b Case) int { return slices.Index(order, a.Kind) - slices.Index(order, b.Kind) })
	cases = slices.DeleteFunc(cases, func(k Case) bool {
		r, ok := done[k.Name]
		return !only.MatchString(k.Name) || ok && r.Disks == k.Digest() && r.Ramdisk == c.ramdisk && (r.Repair != "" || !wantsRepair(k))
	})
	for _, l := range Layouts() {
		t.Run(l.Name, func(t *testing.T) {
			here := slices.DeleteFunc(slices.Clone(cases), func(k Case) bool { return k.Layout.Name != l.Name })
			c.runLayout(t, here)
		})
	}
	done = must.Get(readResults(keptResults))(t)
	here := must.Get(readResults(c.resultsFile()))(t)
	counted := countedCases(here)
	mergeResults(done, here, counted)
	must.OK(t, writeResults(keptResults, counted, done))
	const page = "../../docs/causes.md"
	// The score of changes that nobody chose is of another run and stays.
	odd := oddsystem.SectionOf(must.Get(os.ReadFile(page))(t))
	must.OK(t, os.WriteFile(page, oddsystem.PutSection([]byte(Document(counted, done, time.Now())), odd), 0o644))
}

// runLayout makes the disks of all cases of a layout, and then has machines examine them. No two machines make disks at once.
func (c *corpus) runLayout(t *testing.T, cases []Case) {
	defer c.stopWorkers()
	for _, kind := range []string{"", "builder", "installer"} {
		for _, k := range cases {
			if taskKind(k) == kind {
				t.Run("seed/"+k.Name, func(t *testing.T) { c.seed(t, k) })
			}
		}
		c.stopWorkers()
	}
	lanes := make(chan string, 2)
	lanes <- "examiner-1"
	if os.Getenv("SALVOR_CAUSES_MACHINES") != "1" {
		lanes <- "examiner-2"
	}
	t.Run("examine", func(t *testing.T) {
		for _, k := range cases {
			t.Run(k.Name, func(t *testing.T) {
				t.Parallel()
				if _, err := os.Stat(c.seededDir(k)); err != nil {
					t.Skip("its disks were not made")
				}
				lane := <-lanes
				defer func() { lanes <- lane }()
				r := c.examine(t, k, lane)
				if wantsRepair(k) {
					r.Repair = c.tryRepair(t, k, r, lane)
				}
				must.OK(t, c.record(r))
				t.Logf("%s: %s %s; findings %q, gaps %q, %.0f s; repair %q", JudgeResult(k, r), r.Outcome, r.Cause, r.Named, r.Gaps, r.Seconds, r.Repair)
			})
		}
	})
}

// wantsRepair says whether a repair is tried on a case.
func wantsRepair(k Case) bool {
	return k.Kind == Single && k.Hardware() == (Hardware{}) && os.Getenv("SALVOR_CAUSES_REPAIR") != "no"
}

// tryRepair repairs what the report proposes for the fault of a case. It says how that ended.
func (c *corpus) tryRepair(t *testing.T, k Case, r Result, lane string) string {
	t.Helper()
	findings := repairable(r.Report.Findings, k.Faults[0].IDs)
	if len(findings) == 0 {
		return NotProposed
	}
	if err := c.mend(t, k.Layout, k.Hardware(), lane, c.seededDir(k), findings, k.Network()); err != nil {
		return strings.Join(strings.Fields(strings.ReplaceAll(fmt.Sprintf("%.1000s", err), "|", "/")), " ")
	}
	return Proven
}

// countedCases are the corpus, and what else was examined.
func countedCases(done map[string]Result) []Case {
	out, listed := Cases(), map[string]bool{}
	for _, k := range out {
		listed[k.Name] = true
	}
	for _, l := range Layouts() {
		for _, k := range CasesOn(l) {
			if _, ok := done[k.Name]; ok && !listed[k.Name] {
				out = append(out, k)
			}
		}
	}
	return out
}

func (c *corpus) resultsFile() string { return filepath.Join(c.dir, "results.jsonl") }

// record appends one result. A line that a killed run left half written is ignored by readResults.
func (c *corpus) record(r Result) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(c.resultsFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append([]byte{'\n'}, append(line, '\n')...))
	return errors.Join(err, f.Sync(), f.Close())
}

// keptResults are the newest results of all cases, without their reports, from all machines on which this ran.
const keptResults = "testdata/results.jsonl"

// mergeResults adds the newer ones of further results, if their disks are still made in the same way.
func mergeResults(results, more map[string]Result, cases []Case) {
	for _, c := range cases {
		r, ok := more[c.Name]
		old := results[c.Name]
		if !ok || r.Disks != c.Digest() || old.Disks == r.Disks && old.When.After(r.When) {
			continue
		}
		if r.Repair == "" && old.Disks == r.Disks {
			r.Repair = old.Repair
		}
		results[c.Name] = r
	}
}

// writeResults keeps the results of those cases whose disks are still made in the same way.
func writeResults(file string, cases []Case, results map[string]Result) error {
	var out bytes.Buffer
	for _, c := range cases {
		r, ok := results[c.Name]
		if !ok || r.Disks != c.Digest() {
			continue
		}
		r.Report = diagnose.Report{}
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		out.Write(append(line, '\n'))
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// readResults gives the newest result of each case.
func readResults(file string) (map[string]Result, error) {
	out := map[string]Result{}
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var r Result
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Case != "" {
			if old := out[r.Case]; r.Repair == "" && old.Disks == r.Disks {
				r.Repair = old.Repair // of a run that repaired
			}
			out[r.Case] = r
		}
	}
	return out, lines.Err()
}

// prepare builds the ramdisk that examines, anew, the one that builds disks, once, and the keys of all systems.
func (c *corpus) prepare(t *testing.T) {
	t.Helper()
	// What a killed run left.
	for _, pattern := range []string{"image-*", "proof-*", "seed-*", "initrd-*", "mend-*"} {
		for _, path := range must.Get(filepath.Glob(filepath.Join(c.dir, pattern)))(t) {
			must.OK(t, os.RemoveAll(path))
		}
	}
	for profile, once := range map[string]bool{"diagnose": false, "full": true} {
		out := filepath.Join(c.dir, "ramdisk-"+profile)
		if _, err := os.Stat(filepath.Join(out, "manifest.json")); err == nil && (once || os.Getenv("SALVOR_CAUSES_RAMDISK") == "as-it-is") {
			continue
		}
		run(t, program.Path(t, "salvor"), "ramdisk", "build", "--profile", profile, "--out", out)
	}
	c.ramdisk = fileSum(t, filepath.Join(c.dir, "ramdisk-diagnose/initramfs"))[:12]
	c.makeKeys(t)
}

// system gives the folder of the layout's image. What an interrupted run left is made again.
func (c *corpus) system(t *testing.T, l Layout) string {
	t.Helper()
	c.mu.Lock()
	i := c.images[l.Name]
	if i == nil {
		i = &image{dir: c.imageDir(l)}
		c.images[l.Name] = i
	}
	c.mu.Unlock()
	i.make.Do(func() {
		if _, err := os.Stat(i.dir); err != nil {
			c.install(t, l, i.dir)
		}
		i.ready = true
	})
	if !i.ready {
		t.Fatalf("the image %s could not be made; the first case of this layout says why", l.Name)
	}
	return i.dir
}

// install makes an image, and proves it by a boot to a login over ssh with the host key of its disk.
func (c *corpus) install(t *testing.T, l Layout, to string) {
	t.Helper()
	work := must.Get(os.MkdirTemp(c.dir, "image-"))(t)
	t.Cleanup(func() { os.RemoveAll(work) })
	for n := range l.Disks {
		run(t, "qemu-img", "create", "-q", "-f", "qcow2", disk(work, n), "2G")
	}
	if l.UEFI {
		must.OK(t, copyFile(emptyVariables, filepath.Join(work, "vars.fd")))
	}
	archive := c.archive(t, l)
	began := time.Now()
	c.inGuest(t, guestTask{layout: l, kind: "installer", dir: work, name: "install", limit: buildLimit, more: []string{archive}})
	c.stopWorkers()
	t.Logf("%s: installed in %.0f s", l.Name, time.Since(began).Seconds())
	proof := must.Get(os.MkdirTemp(c.dir, "proof-"))(t)
	t.Cleanup(func() { os.RemoveAll(proof) })
	overlay(t, l, work, proof)
	began = time.Now()
	c.proveBoot(t, l, proof, c.hostKey(t))
	t.Logf("%s: booted to a login by ssh in %.0f s", l.Name, time.Since(began).Seconds())
	must.OK(t, os.MkdirAll(filepath.Dir(to), 0o755))
	must.OK(t, os.Rename(work, to))
}

// archive gives the files of an installed Debian with the layout's packages.
func (c *corpus) archive(t *testing.T, l Layout) string {
	t.Helper()
	packages := append([]string{"linux-image-cloud-amd64", "grub-pc-bin", "grub-efi-amd64-bin", "grub2-common", "openssh-server", "lvm2", "mdadm", "cryptsetup",
		"xfsprogs", "btrfs-progs", "e2fsprogs", "dosfstools", "ifupdown", "iproute2", "isc-dhcp-client", "kmod", "udev", "fdisk", "sudo", "nftables", "zstd",
		"login", "passwd", "procps"}, l.Packages()...)
	volumes, lines := l.Volumes()
	sum := sha256.Sum256([]byte(l.Suite + " " + strings.Join(packages, " ") + lines))
	name := filepath.Join(c.dir, l.Suite+"-"+hex.EncodeToString(sum[:6]))
	file, unfinished := name+".tar", name+".new.tar"
	if _, err := os.Stat(file); err == nil {
		return file
	}
	args := []string{"--quiet", "--variant=apt", "--include=" + strings.Join(packages, ","), "--aptopt=Apt::Install-Recommends false"}
	for _, left := range []string{"doc", "man", "locale"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+left+"/*")
	}
	if l.Images == "dracut" {
		args = append(args, `--customize-hook=for v in $(ls "$1/usr/lib/modules"); do chroot "$1" dracut --quiet --force --no-hostonly --kver "$v" "/boot/initrd.img-$v"; done`)
	}
	if volumes != "" {
		// A machine under TCG takes half an hour for this.
		args = append(args, fmt.Sprintf(`--customize-hook=mkdir -p "$(dirname "$1%s")" && printf '%s\n' >"$1%s" && chroot "$1" update-initramfs -u -k all`, volumes, lines, volumes))
	}
	run(t, "mmdebstrap", append(args, l.Suite, unfinished)...)
	must.OK(t, os.Rename(unfinished, file))
	return file
}

func (c *corpus) seededDir(k Case) string {
	return filepath.Join(c.dir, "seeded", k.Name+"-"+k.Digest())
}

// seed makes the disks of a case. They stay for a later run.
func (c *corpus) seed(t *testing.T, k Case) {
	t.Helper()
	to := c.seededDir(k)
	if _, err := os.Stat(to); err == nil {
		return
	}
	from := c.system(t, k.Layout)
	work := must.Get(os.MkdirTemp(c.dir, "seed-"))(t)
	t.Cleanup(func() { os.RemoveAll(work) })
	overlay(t, k.Layout, from, work)
	switch kind := taskKind(k); {
	case k.InUse:
		c.proveBoot(t, k.Layout, work, c.hostKey(t))
	case kind != "":
		shown := c.inGuest(t, guestTask{layout: k.Layout, kind: kind, dir: work, name: k.Digest(), limit: seedLimit, cut: k.endsByCut()})
		if k.Hardware().BadSector {
			found := regexp.MustCompile(`causes: unreadable ([0-9]+)`).FindAllStringSubmatch(shown, -1)
			if found == nil {
				t.Fatalf("the task of %s names no sector:\n%s", k.Name, shown)
			}
			must.OK(t, os.WriteFile(badSectorFile(work), []byte(found[len(found)-1][1]), 0o644))
		}
	}
	must.OK(t, os.MkdirAll(filepath.Dir(to), 0o755))
	must.OK(t, os.Rename(work, to))
}

// taskKind is the kind of machine that makes the disks of a case. "": none, or the system itself.
func taskKind(k Case) string {
	switch task := k.Task(); {
	case k.InUse || !k.changesDisks():
		return ""
	case slices.ContainsFunc([]string{"debugfs", "mkswap", "inside", "thin"}, func(tool string) bool { return strings.Contains(task, tool) }):
		return "installer" // the other one lacks these tools
	}
	return "builder"
}

// guestTask is one task for a machine that makes disks.
type guestTask struct {
	layout    Layout
	kind      string // of the machine
	dir, name string // of the disks, and of the task
	limit     time.Duration
	// cut: the disks are left as the end of the task leaves them, with what is mounted then.
	cut  bool
	more []string // files of further disks
}

// inGuest runs a task with the disks of a folder attached, and gives what the console showed of it.
func (c *corpus) inGuest(t *testing.T, task guestTask) string {
	t.Helper()
	w := c.worker(t, task.kind, task.layout, Hardware{}, c.startBuilder)
	defer w.mu.Unlock()
	files := diskFiles(task.dir, task.layout, 0)
	before := len(w.console.String())
	order := func(limit time.Duration, action, answer, failure string) {
		must.Get(io.WriteString(w.keyboard, strings.TrimSpace(task.name+" "+action)+"\n"))(t)
		if err := w.await(limit, "causes: "+task.name+" "+answer, failure); err != nil {
			w.stop()
			t.Fatalf("the task %s in the guest: %v\n%s", task.name, err, w.tail())
		}
	}
	for n, file := range append(slices.Clone(files), task.more...) {
		w.attach(t, []string{file}, "")
		all := fmt.Sprint("disks", n+1)
		order(seedLimit, all, all, "")
	}
	order(task.limit, "", "done", "causes: "+task.name+" failed")
	shown := w.console.String()[before:]
	if task.cut {
		// What is on the disks of a machine that stands still is what a power cut would leave. QEMU writes its own caches out when it stops.
		must.OK(t, w.monitor.run("stop", nil))
		for _, file := range files {
			must.OK(t, copyFile(file, file+".cut"))
		}
		must.OK(t, w.monitor.run("cont", nil))
	}
	order(seedLimit, "release", "released", "")
	w.detach(t)
	order(seedLimit, "gone", "gone", "")
	if task.cut {
		for _, file := range files {
			must.OK(t, os.Rename(file+".cut", file))
		}
	}
	return shown
}

// startBuilder boots a machine that runs tasks: those of all cases of the layout, and the installation.
func (c *corpus) startBuilder(t *testing.T, kind string, l Layout, _ Hardware) *worker {
	t.Helper()
	entries := []media.Entry{{Path: "causes", Mode: os.ModeDir | 0o755}, {Path: "causes/tasks", Mode: os.ModeDir | 0o755}}
	add := func(path string, mode os.FileMode, content []byte) {
		entries = append(entries, media.Entry{Path: path, Mode: mode, Data: io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content)))})
	}
	add("init", 0o755, must.Get(os.ReadFile("testdata/guest-init"))(t))
	add("causes/library", 0o644, []byte(scriptLibrary))
	add("causes/variables", 0o644, []byte(l.Variables()))
	add("causes/tasks/install", 0o644, []byte(installScript))
	added := map[string]bool{}
	for _, k := range append(Cases(), CasesOn(l)...) {
		if k.Layout.Name == l.Name && !added[k.Digest()] {
			added[k.Digest()] = true
			add("causes/tasks/"+k.Digest(), 0o644, []byte(k.Task()))
		}
	}
	for to, from := range map[string]string{"host_key": "host_key", "host_key.pub": "host_key.pub", "authorized_keys": "login_key.pub"} {
		add("causes/"+to, 0o600, must.Get(os.ReadFile(filepath.Join(c.dir, from)))(t))
	}
	var initrd bytes.Buffer
	// The small ramdisk boots faster, and most tasks need no other tools.
	ramdisk := map[string]string{"builder": filepath.Join(c.dir, "ramdisk-diagnose"), "installer": filepath.Join(c.dir, "ramdisk-full")}[kind]
	initrd.Write(must.Get(os.ReadFile(filepath.Join(ramdisk, "initramfs")))(t))
	initrd.Write(make([]byte, -initrd.Len()&511)) // the kernel wants the next archive aligned
	must.OK(t, media.WriteCPIO(&initrd, entries))
	file := must.Get(os.CreateTemp(c.dir, "initrd-"))(t)
	defer os.Remove(file.Name())
	must.Get(file.Write(initrd.Bytes()))(t)
	must.OK(t, file.Close())
	w := c.startWorker(t, kind, []string{"-m", "1536", "-kernel", filepath.Join(ramdisk, "kernel"), "-initrd", file.Name(), "-append", "console=ttyS0 quiet panic=-1"})
	if err := w.await(bootLimit, "causes: ready", ""); err != nil {
		w.stop()
		t.Fatalf("the machine that makes disks: %v\n%s", err, w.tail())
	}
	return w
}

func badSectorFile(dir string) string { return filepath.Join(dir, "bad-sector") }

// examine has the real ramdisk look at the disks of a case.
func (c *corpus) examine(t *testing.T, k Case, lane string) Result {
	t.Helper()
	dir := c.seededDir(k)
	r := Result{Case: k.Name, Disks: k.Digest(), Ramdisk: c.ramdisk, When: time.Now().UTC().Truncate(time.Second)}
	before := c.sums(t, k, dir)
	bad := ""
	if k.Hardware().BadSector {
		bad = string(must.Get(os.ReadFile(badSectorFile(dir)))(t))
	}
	answer, answered := c.look(t, k.Layout, k.Hardware(), lane, diskFiles(dir, k.Layout, k.Hardware().Without), bad, k.Network())
	r.Answered = answered
	r.Changed = c.sums(t, k, dir) != before
	var report diagnose.Report
	report.Add(answer)
	report.Judge()
	r.take(report)
	for _, d := range answer.Disks {
		r.Written += d.Written
	}
	return r
}

// sums of the case's disks and of those below them.
func (c *corpus) sums(t *testing.T, k Case, dir string) string {
	t.Helper()
	var out []string
	for n := range k.Layout.Disks {
		out = append(out, fileSum(t, disk(dir, n)), fileSum(t, disk(c.imageDir(k.Layout), n)))
	}
	return strings.Join(out, " ")
}
