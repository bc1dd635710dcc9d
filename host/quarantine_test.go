package host

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/problem"
	"salvor/test/must"
	wire "salvor/wire/host"
)

// stopped has the guest of the lost server off.
func (l *lost) stopped() {
	l.g.set(compute.Guest{ID: l.id, Ours: true, Epoch: 1, Power: compute.PowerOff})
}

// quarantineOf lists what is in quarantine.
func (l *lost) quarantineOf(t *testing.T) []compute.QuarantinedDisk {
	t.Helper()
	r, err := l.do(t.Context(), orderTask{order: &compute.Order{ID: uuid.NewString(), ServerID: l.ID(), Verb: compute.ListQuarantine, Args: []byte(`{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	return r.Quarantine
}

// write puts a mark into the server's own disk.
func (l *lost) write(t *testing.T, text string) {
	t.Helper()
	f := must.Get(os.OpenFile(l.own, os.O_WRONLY, 0))(t)
	must.Get(f.WriteString(text))(t)
	must.OK(t, f.Close())
}

// TestReturnedHostKeepsTheDiskInQuarantine: what a host gives up is renamed as it is, dated by the control plane's clock, listed, and
// counted as used. The disk of a server that was deleted is erased.
func TestReturnedHostKeepsTheDiskInQuarantine(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	l.write(t, "precious")
	at := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	l.lease.lastResponse.Now = at
	l.lease.from, _ = l.Alive()
	must.OK(t, l.clean(t.Context(), l.id, l.cleanRequest(compute.CleanDisk, 2)))
	all := l.quarantineOf(t)
	if len(all) != 1 || fileExists(l.own) || fileExists(l.own+".json") {
		t.Fatalf("in quarantine %+v, disk %v", all, fileExists(l.own))
	}
	d := all[0]
	if d.ServerID != l.id || d.Disk != "vda" || d.Reason != compute.QuarantineReturned || d.Bytes != 1<<30 || d.At.Sub(at).Abs() > time.Minute || d.Store != "local" {
		t.Errorf("%+v", d)
	}
	if got := head(t, l.stores[0].quarantinePath(d.ID), 8); string(got) != "precious" {
		t.Errorf("the disk holds %q", got)
	}
	if s := l.stores[0].describe(t.Context()); s.Quarantined != 1 || s.QuarantinedGiB != 1 {
		t.Errorf("the inventory tells %+v", s)
	}
	if !l.Agent.observed.restocked.Load() {
		t.Error("the inventory is not read again soon")
	}
	t.Run("deleted", func(t *testing.T) {
		l := loseServer(t, newWorld(t), newGuests())
		c := l.cleanRequest(compute.CleanDisk, 2)
		c.Erase = true
		if err := l.clean(t.Context(), l.id, c); err != nil || len(l.quarantineOf(t)) != 0 || fileExists(l.own) {
			t.Errorf("%v, in quarantine %v", err, l.quarantineOf(t))
		}
	})
}

// TestQuarantineKilledAtEachPoint: whatever was done when the agent died, the disk is there once, and the next try ends it.
func TestQuarantineKilledAtEachPoint(t *testing.T) {
	w := newWorld(t)
	name := "20310506T070809.000000Z_"
	for what, half := range map[string]func(t *testing.T, l *lost, dir string){
		"nothing": func(*testing.T, *lost, string) {},
		"record written": func(t *testing.T, l *lost, dir string) {
			put(t, filepath.Join(dir, name+l.id+"_vda.json"), mustEncodeJSON(quarantineRecord{Reason: compute.QuarantineRebuild}))
		},
		"record half written": func(t *testing.T, l *lost, dir string) {
			put(t, filepath.Join(dir, name+l.id+"_vda.json.new"), []byte("{"))
		},
		"renamed, proof left": func(t *testing.T, l *lost, dir string) {
			put(t, filepath.Join(dir, name+l.id+"_vda.json"), mustEncodeJSON(quarantineRecord{Reason: compute.QuarantineRebuild}))
			must.OK(t, os.Rename(l.own, filepath.Join(dir, name+l.id+"_vda")))
		},
		"renamed, no record": func(t *testing.T, l *lost, dir string) {
			must.OK(t, os.Rename(l.own, filepath.Join(dir, name+l.id+"_vda")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := loseServer(t, w, newGuests())
			l.stopped()
			l.write(t, "precious")
			dir := filepath.Join(l.config.Stores[0].Dir, quarantineDir)
			must.OK(t, os.Mkdir(dir, 0o700))
			half(t, l, dir)
			for range 2 {
				must.OK(t, l.carryOut(t, compute.Discard, compute.Args{Spec: l.spec}))
			}
			all := l.quarantineOf(t)
			if len(all) != 1 || all[0].ServerID != l.id || fileExists(l.own) || fileExists(l.own+".json") {
				t.Fatalf("in quarantine %+v, disk %v, proof %v", all, fileExists(l.own), fileExists(l.own+".json"))
			}
			if got := head(t, l.stores[0].quarantinePath(all[0].ID), 8); string(got) != "precious" {
				t.Errorf("the disk holds %q", got)
			}
		})
	}
}

// TestQuarantineTakesNoNameThatIsTaken: two disks of one moment are both kept.
func TestQuarantineTakesNoNameThatIsTaken(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	s, d, at := l.stores[0], l.spec.Disks[0], time.Unix(1e9, 0)
	for range 2 {
		put(t, l.own, []byte("disk"))
		put(t, l.own+".json", mustEncodeJSON(diskProof{Server: l.id, Disk: "vda"}))
		must.OK(t, s.quarantine(l.own, l.id, d, compute.QuarantineRebuild, at))
	}
	if all := l.quarantineOf(t); len(all) != 2 {
		t.Errorf("%+v", all)
	}
}

// A store that is not mounted hides what is in quarantine in it, and no more.
func TestQuarantineOfTheStoresThatAreThere(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	l.stopped()
	must.OK(t, l.carryOut(t, compute.Discard, compute.Args{Spec: l.spec}))
	list := func() (compute.Result, error) {
		return l.do(t.Context(), orderTask{order: &compute.Order{ID: uuid.NewString(), ServerID: l.ID(), Verb: compute.ListQuarantine, Args: []byte(`{}`)}})
	}
	for i, s := range []*diskStore{l.stores[1], l.stores[0]} {
		must.OK(t, os.Remove(filepath.Join(s.Dir, markerFile)))
		r, err := list()
		if i == 0 && (err != nil || len(r.Quarantine) != 1) {
			t.Errorf("one store is away: %+v %v", r, err)
		}
		if i == 1 && err == nil {
			t.Errorf("no store is there: %+v", r)
		}
	}
}

// TestRestoreFromQuarantine: the disk comes back as a disk of the server that is named, once, and only while that is off.
func TestRestoreFromQuarantine(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	l.stopped()
	l.write(t, "precious")
	must.OK(t, l.carryOut(t, compute.Discard, compute.Args{Spec: l.spec}))
	id := l.quarantineOf(t)[0].ID
	if err := os.RemoveAll(filepath.Dir(l.own)); err != nil { // a server that has no other disk in this store
		t.Fatal(err)
	}
	to := compute.SpecDisk{Name: "vde", BootIndex: -1, SizeGiB: 1}
	restore := compute.Args{Quarantine: id, Disk: &to}
	for what, c := range map[string]struct {
		args compute.Args
		kind problem.Kind
	}{
		"no such disk":  {compute.Args{Quarantine: strings.Replace(id, "vda", "vdz", 1), Disk: &to}, problem.NotFound},
		"outside":       {compute.Args{Quarantine: "../" + markerFile, Disk: &to}, problem.Invalid},
		"no disk":       {compute.Args{Quarantine: id}, problem.Invalid},
		"another store": {compute.Args{Quarantine: id, Disk: &compute.SpecDisk{Name: "vde", Store: "nfs", File: l.id + "-vde"}}, problem.Conflict},
	} {
		if err := l.carryOut(t, compute.RestoreDisk, c.args); !problem.Is(err, c.kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	l.g.set(compute.Guest{ID: l.id, Ours: true, Epoch: 1, Power: compute.PowerOn})
	if err := l.carryOut(t, compute.RestoreDisk, restore); !problem.Is(err, problem.Conflict) {
		t.Errorf("to a server that runs: %v", err)
	}
	l.stopped()
	for range 2 { // as often as it is asked
		must.OK(t, l.carryOut(t, compute.RestoreDisk, restore))
	}
	path, _ := l.stores.place(l.id, to)
	if got := head(t, path, 8); string(got) != "precious" || len(l.quarantineOf(t)) != 0 {
		t.Errorf("the disk holds %q, in quarantine %v", got, l.quarantineOf(t))
	}
	if there, err := hasFinishedDisk(path, l.id, to); err != nil || !there {
		t.Errorf("it is not proven: %v", err)
	}
	other := restore
	other.Quarantine = strings.Replace(id, "vda", "vdb", 1)
	if err := l.carryOut(t, compute.RestoreDisk, other); !problem.Is(err, problem.Conflict) {
		t.Errorf("onto a disk that is there: %v", err)
	}
}

// TestQuarantineEnds after the days that the control plane says, and by no clock that is wrong.
func TestQuarantineEnds(t *testing.T) {
	w := newWorld(t)
	const days = 14
	for what, c := range map[string]struct {
		age  time.Duration // of the disk
		term wire.Renewed
		away bool
		gone bool
	}{
		"old enough":                  {age: 15 * 24 * time.Hour, term: wire.Renewed{QuarantineDays: days, Now: time.Now()}, gone: true},
		"too young":                   {age: 13 * 24 * time.Hour, term: wire.Renewed{QuarantineDays: days, Now: time.Now()}},
		"no end":                      {age: 900 * 24 * time.Hour, term: wire.Renewed{Now: time.Now()}},
		"the host is held":            {age: 15 * 24 * time.Hour, term: wire.Renewed{QuarantineDays: days, Now: time.Now(), Hold: true}},
		"the control plane is away":   {age: 15 * 24 * time.Hour, term: wire.Renewed{QuarantineDays: days, Now: time.Now()}, away: true},
		"the control plane runs fast": {age: time.Hour, term: wire.Renewed{QuarantineDays: days, Now: time.Now().AddDate(9, 0, 0)}},
		"the control plane runs slow": {age: 15 * 24 * time.Hour, term: wire.Renewed{QuarantineDays: days, Now: time.Now().AddDate(-9, 0, 0)}},
	} {
		t.Run(what, func(t *testing.T) {
			l := loseServer(t, w, newGuests())
			must.OK(t, l.stores[0].quarantine(l.own, l.id, l.spec.Disks[0], compute.QuarantineRebuild, time.Now().Add(-c.age)))
			l.lease.lastResponse, l.lease.held = c.term, !c.away
			l.lease.from, _ = l.Alive()
			l.expireQuarantine(t.Context())
			if all := l.quarantineOf(t); c.gone != (len(all) == 0) {
				t.Errorf("in quarantine: %+v", all)
			}
		})
	}
}

// TestRemoveFromQuarantine: an operator removes one disk; the owner's delete removes those that the owner had replaced, and no other.
func TestRemoveFromQuarantine(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	for _, reason := range []string{compute.QuarantineRebuild, compute.QuarantineReturned, compute.QuarantineReimage} {
		put(t, l.own, []byte("disk"))
		put(t, l.own+".json", mustEncodeJSON(diskProof{Server: l.id, Disk: "vda"}))
		must.OK(t, l.stores[0].quarantine(l.own, l.id, l.spec.Disks[0], reason, time.Now()))
	}
	must.OK(t, l.carryOut(t, compute.RemoveQuarantined, compute.Args{Quarantine: l.quarantineOf(t)[2].ID}))
	must.OK(t, l.carryOut(t, compute.Remove, compute.Args{Spec: l.spec}))
	if all := l.quarantineOf(t); len(all) != 1 || all[0].Reason != compute.QuarantineReturned {
		t.Errorf("%+v", all)
	}
	if err := l.carryOut(t, compute.RemoveQuarantined, compute.Args{Quarantine: "../../" + markerFile}); !problem.Is(err, problem.Invalid) {
		t.Error(err)
	}
}

// TestStagedDisk: the next root disk is whole before the present one gives way, and takes its place without another copy.
func TestStagedDisk(t *testing.T) {
	w := newWorld(t)
	l := loseServer(t, w, newGuests())
	must.OK(t, l.join(t.Context()))
	l.stopped()
	l.write(t, "precious")
	image := func(content string) *compute.SpecImage {
		b := bytes.Repeat([]byte(content), 512)
		return &compute.SpecImage{ID: uuid.NewString(), Digest: w.images.add(b), Size: int64(len(b)), Format: rawFormat}
	}
	stage := func(img *compute.SpecImage, args compute.Args) error {
		spec := *l.spec
		spec.Disks = append([]compute.SpecDisk(nil), l.spec.Disks...)
		spec.Disks[0].Image = img
		args.Spec = &spec
		return l.carryOut(t, compute.Stage, args)
	}
	missing := image("gone")
	missing.Digest = "sha256:" + strings.Repeat("0", 64)
	if err := stage(missing, compute.Args{}); err == nil || string(head(t, l.own, 8)) != "precious" {
		t.Errorf("an image that is not to be had: %v", err)
	}
	first, second := image("old!"), image("new!")
	for _, img := range []*compute.SpecImage{first, second, second} {
		must.OK(t, stage(img, compute.Args{}))
	}
	if got := string(head(t, l.own, 8)) + " " + string(head(t, l.own+stagedEnd, 4)); got != "precious new!" {
		t.Errorf("%q", got)
	}
	must.OK(t, l.carryOut(t, compute.Discard, compute.Args{Spec: l.spec}))
	opens := w.images.opens
	d := l.spec.Disks[0]
	d.Image = second
	for range 2 {
		must.OK(t, l.makeDisk(t.Context(), &compute.Order{ID: uuid.NewString(), ServerID: l.id}, l.id, d))
	}
	if left, _ := filepath.Glob(l.own + stagedEnd + "*"); string(head(t, l.own, 4)) != "new!" || len(left) != 0 || w.images.opens != opens || len(l.quarantineOf(t)) != 1 {
		t.Errorf("%q, left %v, in quarantine %v", head(t, l.own, 4), left, l.quarantineOf(t))
	}
	for _, args := range []compute.Args{{}, {Cancel: true}, {Erase: true}} { // cancelled, or without room for two
		if err := stage(first, args); err != nil || fileExists(l.own+stagedEnd) != (!args.Cancel && !args.Erase) {
			t.Errorf("%+v: %v", args, err)
		}
	}
}

// TestAStagedDiskOfAnotherImageIsNotUsed: a rebuild that was given up left the staged disk. The new disk is made from the present image.
func TestAStagedDiskOfAnotherImageIsNotUsed(t *testing.T) {
	w := newWorld(t)
	l := loseServer(t, w, newGuests())
	must.OK(t, l.join(t.Context()))
	l.stopped()
	image := func(content string) *compute.SpecImage {
		b := bytes.Repeat([]byte(content), 512)
		return &compute.SpecImage{ID: uuid.NewString(), Digest: w.images.add(b), Size: int64(len(b)), Format: rawFormat}
	}
	former := *l.spec
	former.Disks = append([]compute.SpecDisk(nil), l.spec.Disks...)
	former.Disks[0].Image = image("old!")
	must.OK(t, l.carryOut(t, compute.Stage, compute.Args{Spec: &former}))
	must.OK(t, l.carryOut(t, compute.Discard, compute.Args{Spec: l.spec}))
	d := l.spec.Disks[0]
	d.Image = image("new!")
	must.OK(t, l.makeDisk(t.Context(), &compute.Order{ID: uuid.NewString(), ServerID: l.id}, l.id, d))
	if got := string(head(t, l.own, 4)); got != "new!" || fileExists(l.own+stagedEnd) {
		t.Errorf("the disk holds %q, the staged one is there: %v", got, fileExists(l.own+stagedEnd))
	}
}

// TestQuarantineHasPages: page after page, all disks of all stores are listed, oldest first, however many they are.
func TestQuarantineHasPages(t *testing.T) {
	l := loseServer(t, newWorld(t), newGuests())
	for _, s := range l.stores {
		s.within = time.Minute // a store that a busy machine reads too slowly is left out of a page
	}
	const many = maxQuarantineList + 3
	at := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	var want []string
	for i := range many {
		id := at.Add(time.Duration(i)*time.Second).Format(quarantineTime) + "_" + l.id + "_vda"
		want = append(want, id)
		put(t, l.stores[i%2].quarantinePath(id), nil)
	}
	ask := func(a compute.Args) []compute.QuarantinedDisk {
		t.Helper()
		r, err := l.do(t.Context(), orderTask{order: &compute.Order{ID: uuid.NewString(), ServerID: l.ID(), Verb: compute.ListQuarantine, Args: mustEncodeJSON(a)}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Quarantine
	}
	var got []string
	for after, pages := "", 0; pages < 10; pages++ {
		page := ask(compute.Args{After: after, Limit: 1001})
		if len(page) == 0 {
			break
		}
		if len(page) > 1001 {
			t.Fatalf("a page of %d disks", len(page))
		}
		for _, d := range page {
			got = append(got, d.ID)
		}
		after = page[len(page)-1].ID
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d disks, want %d in their order", len(got), len(want))
	}
	if n := len(ask(compute.Args{})); n != maxQuarantineList {
		t.Errorf("an answer without a page holds %d disks", n)
	}
	for id, n := range map[string]int{want[many-1]: 1, want[many-1] + "x": 0} {
		if one := ask(compute.Args{Quarantine: id}); len(one) != n || n == 1 && one[0].ID != id {
			t.Errorf("disk %s alone: %+v", id, one)
		}
	}
}
