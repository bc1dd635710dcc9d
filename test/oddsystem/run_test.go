//go:build causes

package oddsystem

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/agent/examine"
	"salvor/agent/sandbox"
	"salvor/diagnose"
	"salvor/diagnose/system"
	"salvor/lab/odd"
	"salvor/test/must"
)

// TestOddSystems changes each installed system in one way for each seed, asks its programs and then the rules, and writes the score into
// docs/causes.md. What the results file has already is not asked again; after a change of the rules only the rules are. SALVOR_ODD_DIR names the
// folder of systems and results, SALVOR_ODD_CHANGES says how many changes each system takes. SALVOR_ODD_ONLY=SYSTEM:SEED shows one change.
func TestOddSystems(t *testing.T) {
	changes := 700
	if n := os.Getenv("SALVOR_ODD_CHANGES"); n != "" {
		changes = must.Get(strconv.Atoi(n))(t)
	}
	r := newOddRun(t)
	if only := os.Getenv("SALVOR_ODD_ONLY"); only != "" {
		r.show(t, only)
		return
	}
	r.runAll(t, changes)
	r.keepTruths(t)
	results := r.results(changes)
	t.Log(Section(results))
	if len(chosen()) == len(installations) {
		must.OK(t, writeSection("../../docs/causes.md", Section(results)))
	}
}

// newOddRun prepares all systems, and asks about each of them without a change.
func newOddRun(t *testing.T) *oddRun {
	t.Helper()
	dir := must.Get(filepath.Abs("../../build/oddsystem"))(t)
	if named := os.Getenv("SALVOR_ODD_DIR"); named != "" {
		dir = must.Get(filepath.Abs(named))(t)
	}
	w := newWorld(t, dir)
	must.OK(t, os.WriteFile(filepath.Join(dir, "truth"), []byte(truthScript), 0o600))
	r := &oddRun{world: w, rules: programSum(t), runner: sandbox.New(slog.New(slog.DiscardHandler), askMemory), done: map[string]Result{}, files: map[string]fs.FS{}, programs: map[string]*touched{}, lookers: map[string]*touched{}, starts: map[string]*touched{}, containers: map[string]*touched{}}
	for _, i := range chosen() {
		r.files[i.name], r.files[i.other] = w.systemFS(t, i.name), w.systemFS(t, i.other)
	}
	r.readResults(t)
	for _, i := range chosen() {
		r.watch(t, i)
		clean := r.result(t, i, 0)
		if clean.Failed != "" || len(clean.Findings) > 0 {
			t.Errorf("%s without a change: findings %q, %s; want none", i.name, idsOf(clean.Findings), clean.Failed)
		}
		for rung, said := range clean.Truth {
			if said != "" {
				t.Logf("%s: without a change the rung %s fails, so nothing is known of that rung: %s", i.name, rung, said)
			}
		}
	}
	return r
}

// TestMain is also the first process in the sandbox of a program.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.Command {
		os.Exit(sandbox.RunInSystem(os.Stderr))
	}
	os.Exit(m.Run())
}

// askMemory is the memory of a program that the rules ask, in bytes; askTime bounds the program's time. The agent has the same bounds on a machine that
// does nothing else.
const (
	askMemory = 256 << 20
	askTime   = 30 * time.Second
)

// programAsker asks the programs of a system for the rules, as the agent does.
type programAsker struct {
	runner *sandbox.Runner
	place  string
}

// Ask implements diagnose.Asker.
func (p *programAsker) Ask(q diagnose.Question) diagnose.Answer {
	a := diagnose.Answer{Command: q.Command}
	var err error
	a.Output, a.Exit, err = p.runner.Run(context.Background(), sandbox.Order{Place: p.place, Command: q.Command, Folders: q.Folders, Limit: askTime})
	if err != nil {
		a.Exit, a.Trouble = -1, err.Error()
	}
	return a
}

// oddRun is one run over all systems.
type oddRun struct {
	*world
	rules string
	files map[string]fs.FS
	// runner runs programs of systems for the rules.
	runner *sandbox.Runner
	// programs, lookers, starts and containers have what the programs, the rules, a start of the machine, and a start in a container look at on each
	// unchanged system.
	programs, lookers, starts, containers map[string]*touched

	mu   sync.Mutex
	done map[string]Result
}

// cleanTruth is what the programs of the unchanged system say.
func (r *oddRun) cleanTruth(i installation) Truth {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[keyOf(i, 0)].Truth
}

func keyOf(i installation, seed uint64) string { return fmt.Sprint(i.name, " ", i.digest(), " ", seed) }

func (r *oddRun) resultsFile() string { return filepath.Join(r.dir, "results.jsonl") }

func (r *oddRun) readResults(t *testing.T) {
	r.readResultsOf(t, keptTruths)
	r.readResultsOf(t, r.resultsFile())
}

// keptTruths has what the programs of changed systems said on any machine on which this ran, so that a run asks them once and the rules each time.
const keptTruths = "testdata/truths.jsonl"

// keepTruths writes all truths that were asked for into keptTruths. A change at which nobody looks has the truth of the unchanged system.
func (r *oddRun) keepTruths(t *testing.T) {
	t.Helper()
	var kept []Result
	for _, one := range r.done {
		if len(one.Truth) > 0 && !one.Untouched && one.Failed == "" {
			kept = append(kept, Result{System: one.System, Disk: one.Disk, Seed: one.Seed, Change: one.Change, Names: one.Names, Truth: one.Truth, Container: one.Container})
		}
	}
	sortResults(kept)
	var out bytes.Buffer
	for i := range kept {
		out.Write(append(must.Get(json.Marshal(kept[i]))(t), '\n'))
	}
	must.OK(t, os.WriteFile(keptTruths, out.Bytes(), 0o644))
}

func (r *oddRun) readResultsOf(t *testing.T, file string) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	must.OK(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var one Result
		if json.Unmarshal(lines.Bytes(), &one) == nil { // a line that a killed run left half written is none
			r.done[fmt.Sprint(one.System, " ", one.Disk, " ", one.Seed)] = one
		}
	}
	must.OK(t, lines.Err())
}

// workersAtOnce is how many changes are judged at once.
const workersAtOnce = 12

// runAll has workers take the changes that are missing. Most of their time is spent in waiting for the programs of the systems.
func (r *oddRun) runAll(t *testing.T, changes int) {
	type task struct {
		i    installation
		seed uint64
	}
	tasks := make(chan task)
	var workers sync.WaitGroup
	for range workersAtOnce {
		workers.Go(func() {
			for k := range tasks {
				r.result(t, k.i, k.seed)
			}
		})
	}
	for seed := uint64(1); seed <= uint64(changes); seed++ {
		for _, i := range chosen() {
			tasks <- task{i, seed}
		}
	}
	close(tasks)
	workers.Wait()
}

// results are those of the first changes of each system, without the rungs that fail on the system without a change.
func (r *oddRun) results(changes int) []Result {
	var out []Result
	for _, i := range chosen() {
		clean := r.done[keyOf(i, 0)].Truth
		for seed := 1; seed <= changes; seed++ {
			if one, ok := r.done[keyOf(i, uint64(seed))]; ok && one.Rules == r.rules && one.Failed == "" {
				one.Truth = one.Truth.without(clean)
				out = append(out, one)
			}
		}
	}
	sortResults(out)
	return out
}

// result gives the result of a change, and makes what is missing of it.
func (r *oddRun) result(t *testing.T, i installation, seed uint64) Result {
	r.mu.Lock()
	one, ok := r.done[keyOf(i, seed)]
	r.mu.Unlock()
	if ok && one.Rules == r.rules && one.Failed == "" {
		return one
	}
	one.System, one.Disk, one.Seed, one.Rules, one.Failed = i.name, i.digest(), seed, r.rules, ""
	if err := r.judge(i, &one); err != nil {
		one.Failed = err.Error()
		t.Errorf("%s, seed %d, %s: %v", i.name, seed, one.Change, err)
	}
	if broken := one.Truth.without(r.cleanTruth(i)).Broken(); one.Untouched && (len(broken) > 0 || len(one.Findings) > 0) {
		t.Errorf("%s, seed %d, %s: nobody looks at the file, and %v broke, and the rules found %q", i.name, seed, one.Change, broken, idsOf(one.Findings))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done[keyOf(i, seed)] = one
	line := must.Get(json.Marshal(one))(t)
	f := must.Get(os.OpenFile(r.resultsFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))(t)
	defer f.Close()
	must.Get(f.Write(append([]byte{'\n'}, append(line, '\n')...)))(t)
	return one
}

// watch finds out what the programs and the rules look at on an unchanged system. What the programs look at is kept.
func (r *oddRun) watch(t *testing.T, i installation) {
	t.Helper()
	programs := r.kept(t, "touched-"+i.digest(), func() (*touched, error) { return r.touchedByPrograms(i, r.files[i.name]) })
	starts := r.kept(t, "seen-by-start-"+i.digest(), func() (*touched, error) { return r.touchedByBoot(i) })
	r.containers[i.name] = r.kept(t, "seen-by-container-"+i.digest(), func() (*touched, error) { return r.touchedByContainer(i) })
	lookers := newTouched()
	tree := diagnose.NewTree(recordingFS{r.files[i.name].(fs.ReadLinkFS), lookers})
	_, err := r.reportOf(i, tree, r.roots[i.name], false)
	must.OK(t, err)
	r.programs[i.name], r.lookers[i.name], r.starts[i.name] = programs, lookers, starts
	t.Logf("%s: the programs look at %d paths, the rules at %d, a start at %d, one in a container at %d", i.name, len(programs.Paths), len(lookers.Paths),
		len(starts.Paths), len(r.containers[i.name].Paths))
}

// kept reads what a former run found out, or finds it out and keeps it.
func (r *oddRun) kept(t *testing.T, name string, find func() (*touched, error)) *touched {
	t.Helper()
	file, out := filepath.Join(r.dir, name+".json"), newTouched()
	if text, err := os.ReadFile(file); err == nil {
		must.OK(t, json.Unmarshal(text, out))
		return out
	}
	out = must.Get(find())(t)
	must.OK(t, os.WriteFile(file, must.Get(json.Marshal(out))(t), 0o644))
	return out
}

// probeEvery is of how many untouched changes one is judged all the same: the answers must be those of the unchanged system.
const probeEvery = 20

// judge fills in all about the change of a seed.
func (r *oddRun) judge(i installation, one *Result) error {
	if err := r.draw(i, one); err != nil {
		return err
	}
	starts := one.Seed == 0 || bootSees(r.starts[i.name], one.Change)
	one.Untouched = !starts && !r.programs[i.name].by(one.Change) && !r.lookers[i.name].by(one.Change)
	if one.Untouched && one.Seed%probeEvery != 0 {
		one.Truth, one.Findings, one.Cause = r.cleanTruth(i), nil, ""
		return nil
	}
	change := func(place string) error { return r.change(i, place, one) }
	return r.withChange(i, change, func(o *overlay) error {
		return cmp.Or(r.diagnose(i, o, one), r.askPrograms(i, o, one, starts, change))
	})
}

// withChange makes a change in an overlay.
func (r *oddRun) withChange(i installation, change func(place string) error, do func(*overlay) error) (err error) {
	o, err := r.newOverlay(i)
	if o != nil {
		defer func() { err = errors.Join(err, o.remove()) }()
	}
	if err != nil {
		return err
	}
	if err := change(o.place); err != nil {
		return err
	}
	return do(o)
}

// askPrograms fills in what the programs of a changed system say, and what a start of the machine shows. It comes after the rules, because the
// programs write files.
func (r *oddRun) askPrograms(i installation, o *overlay, one *Result, starts bool, change func(place string) error) (err error) {
	truth := maps.Clone(one.Truth)
	if truth == nil {
		if truth, err = r.truthOf(i, o); err != nil {
			return err
		}
	}
	if _, asked := truth["boot"]; !asked && (starts || truth.without(r.cleanTruth(i)).Blocks()) {
		if err := r.startTruth(i, one, change, truth); err != nil {
			return err
		}
	}
	one.Truth = truth
	return nil
}

// startTruth fills in the rungs boot and reach. Where a start in a container sees the change and lets the owner in, the machine would too, and is
// started for some changes only, which show whether that is so. Everything else the machine decides.
func (r *oddRun) startTruth(i installation, one *Result, change func(place string) error, truth Truth) error {
	if one.Seed != 0 && r.containerSees(i, one.Change) {
		err := r.withChange(i, change, func(o *overlay) (err error) {
			said, err := r.startContainer(i, o.place)
			one.Container = cmp.Or(said, InContainer)
			return err
		})
		if err != nil {
			return err
		}
		if one.Container == InContainer && one.Seed%checkEvery != 0 {
			truth["boot"], truth["reach"] = "", ""
			return nil
		}
	}
	return r.bootTruth(i, change, truth)
}

// draw draws the change of a seed.
func (r *oddRun) draw(i installation, one *Result) (err error) {
	if one.Seed == 0 || one.Change.Kind != "" {
		return nil
	}
	if one.Change, err = odd.DrawSystemChange(r.files[i.name], r.files[i.other], one.Seed); err != nil {
		return err
	}
	one.Names = namesOf(r.files[i.name], one.Change.Path)
	return nil
}

// change makes the change below a root.
func (r *oddRun) change(i installation, place string, one *Result) error {
	if one.Seed == 0 {
		return nil
	}
	root, err := os.OpenRoot(place)
	if err != nil {
		return err
	}
	return errors.Join(one.Change.Apply(root, r.files[i.other]), root.Close())
}

// namesOf are the absolute paths of a file: its own, and those of links beside it.
func namesOf(files fs.FS, at string) []string {
	out := []string{"/" + at}
	if short, found := strings.CutPrefix(at, "usr/"); found {
		out = append(out, "/"+short)
	}
	entries, err := fs.ReadDir(files, path.Dir(at))
	if err != nil {
		return out
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			if target, err := fs.ReadLink(files, path.Join(path.Dir(at), e.Name())); err == nil && target == path.Base(at) {
				out = append(out, "/"+path.Join(path.Dir(at), e.Name()))
			}
		}
	}
	return out
}

// diagnose asks the rules, as the agent does of a system on a disk.
func (r *oddRun) diagnose(i installation, o *overlay, one *Result) error {
	tree, closer, err := examine.OpenTree(o.place)
	if err != nil {
		return err
	}
	defer closer.Close()
	report, err := r.reportOf(i, tree, o.place, true)
	if err != nil {
		return err
	}
	one.Findings, one.Cause = []diagnose.Finding{}, report.Verdict.Finding
	for _, f := range report.Findings {
		if f.Severity != diagnose.Info {
			f.Repair, f.ByHand = nil, ""
			one.Findings = append(one.Findings, f)
		}
	}
	return nil
}

// reportOf asks the rules about the files of a system, on a machine with one disk and one network interface. With asks, the rules ask the programs of
// the system too.
func (r *oddRun) reportOf(i installation, tree *diagnose.Tree, place string, asks bool) (report diagnose.Report, err error) {
	image, err := os.Open(filepath.Join(r.dir, i.image()))
	if err != nil {
		return report, err
	}
	defer image.Close()
	info, err := image.Stat()
	if err != nil {
		return report, err
	}
	size := info.Size()
	now := time.Now()
	s := &diagnose.System{
		Files: tree, Root: "/dev/sda1", RootDevice: "/dev/sda1", Release: examine.ReadRelease(tree.Lines("/etc/os-release")),
		Memory: 8 << 30, KernelArch: "amd64", Now: now, Clock: now,
		NICs: []diagnose.NIC{{MAC: "52:54:00:12:34:56", Driver: "virtio_net", Names: []string{"ens3", "enp0s3", "eth0"}, Carrier: true}},
		Devices: []diagnose.Device{
			{Path: "/dev/sda", Kind: diagnose.DiskDevice, Size: size, Serial: "QM00001", Table: "dos", Content: image, Drivers: []string{"virtio_blk", "virtio_pci"}},
			{Path: "/dev/sda1", Kind: diagnose.PartitionDevice, Parents: []string{"/dev/sda"}, Size: size - rootStart, FS: "ext4", UUID: "3a1d5d2e-6c0b-4ef1-9a4c-6b1a4b1c0001",
				PartUUID: "5c1a4f11-01", PartType: "0x83", PartNumber: 1, PartStart: rootStart, MountedAt: "/", Content: io.NewSectionReader(image, rootStart, size-rootStart), Space: spaceOf(place)},
		},
	}
	if asks {
		s.Asker = &programAsker{r.runner, place}
	}
	report.Findings, report.NotExamined = diagnose.Run(system.Rules(), s)
	report.Judge()
	return report, nil
}

func spaceOf(place string) *diagnose.Space {
	var st unix.Statfs_t
	if unix.Statfs(place, &st) != nil {
		return nil
	}
	return &diagnose.Space{Size: 3 << 30, Free: 1 << 30, Inodes: 196608, InodesFree: 150000}
}

// show prints all about one change, such as debian-12:7. It asks everything anew.
func (r *oddRun) show(t *testing.T, only string) {
	name, number, _ := strings.Cut(only, ":")
	for _, i := range chosen() {
		if i.name != name {
			continue
		}
		one := Result{System: i.name, Disk: i.digest(), Seed: must.Get(strconv.ParseUint(number, 10, 64))(t), Rules: r.rules}
		if err := r.judge(i, &one); err != nil {
			t.Errorf("%s: %v", only, err)
		}
		clean := r.done[keyOf(i, 0)].Truth
		t.Logf("%s: %s\nsaid by its programs: %v\nmark: %s; cause %q\nfindings: %s", only, one.Change, one.Truth, func() Mark { k := one; k.Truth = k.Truth.without(clean); return Judge(k) }(), one.Cause, must.Get(json.MarshalIndent(one.Findings, "", " "))(t))
	}
}

func idsOf(findings []diagnose.Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, f.ID)
	}
	return out
}

// programSum identifies this program, and with it the rules.
func programSum(t *testing.T) string {
	t.Helper()
	content := must.Get(os.ReadFile("/proc/self/exe"))(t)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:6])
}

// writeSection puts the section of this score into a page, in the place of the former one.
func writeSection(file, section string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(bytes.TrimRight(PutSection(page, section), "\n"), '\n'), 0o644)
}
