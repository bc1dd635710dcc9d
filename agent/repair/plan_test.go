package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"salvor/agent/examine"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
	mends "salvor/repair/system"
	"salvor/test/must"
)

func examinationOf(root string, findings ...diagnose.Finding) diagnose.Examination {
	return diagnose.Examination{Systems: []diagnose.ExaminedSystem{{Root: root, Findings: findings}}}
}

func found(id string, s diagnose.Severity) diagnose.Finding {
	return diagnose.Finding{ID: id, Severity: s}
}

func newPlanner(before, after diagnose.Examination) *planner {
	mend := func(id string, c diagnose.Consent) repair.Mend { return repair.Mend{Finding: id, Consent: c} }
	return &planner{
		Request: Request{
			Request: examine.Request{Log: slog.New(slog.DiscardHandler)}, Consents: []diagnose.Consent{diagnose.ConsentFiles, diagnose.ConsentSettings},
			Refusals: mends.Refusals, RestoreRefusal: mends.RestoreRefusal,
			Mends: []repair.Mend{mend("b", diagnose.ConsentFiles), mend("a", diagnose.ConsentFiles), mend("order", diagnose.ConsentSettings), mend("loader", diagnose.ConsentBoot), mend("lossy", diagnose.ConsentData)},
		},
		plan: &repair.Plan{Before: before, After: after}, done: map[[2]string]bool{},
	}
}

// TestTasks: mends come in the order of their table, and what is asked for and not done has a reason.
func TestTasks(t *testing.T) {
	t.Parallel()
	all := []diagnose.Finding{found("a", diagnose.BlocksBoot), found("b", diagnose.Degrades), found("order", diagnose.BlocksBoot), found("loader", diagnose.BlocksBoot), found("lossy", diagnose.BlocksBoot), found("odd", diagnose.BlocksBoot)}
	for name, c := range map[string]struct {
		more   []diagnose.Finding
		wanted []string
		tasks  []string
		left   []string
	}{
		"everything": {nil, nil, []string{"b", "a", "order"}, nil},
		"some":       {nil, []string{"a", "loader", "lossy", "odd", "none"}, []string{"a"}, []string{"loader", "lossy", "odd", "none"}},
	} {
		before := examinationOf("/dev/sda1", append(slices.Clone(all), c.more...)...)
		p := newPlanner(before, before)
		p.Findings = c.wanted
		var tasks, left []string
		for _, task := range p.tasks(&before) {
			tasks = append(tasks, task.finding.ID)
		}
		for _, n := range p.plan.NotMended {
			left = append(left, n.Finding)
		}
		if !slices.Equal(tasks, c.tasks) || !slices.Equal(left, c.left) {
			t.Errorf("%s: tasks %q, left %q", name, tasks, left)
		}
	}
}

// TestTasksBehindAGap: a finding that is not found where something could not be examined may be there.
func TestTasksBehindAGap(t *testing.T) {
	t.Parallel()
	before := withGaps(examinationOf("/dev/sda1"), "/dev/vg0/root")
	p := newPlanner(before, before)
	p.Findings = []string{"a"}
	p.tasks(&before)
	before.Disks = []diagnose.ExaminedDisk{{}}
	p.tasks(&before)
	const none, some = "no such finding; none of its disks was found; not examined: ", "no such finding; not examined: /dev/vg0/root: "
	if left := p.plan.NotMended; len(left) != 2 || !strings.Contains(left[0].Why, none) || !strings.Contains(left[1].Why, some) {
		t.Errorf("%+v", left)
	}
}

// TestRefusedTasks: the state of a system refuses repairs and restores by the rule of the mends, for its own root.
func TestRefusedTasks(t *testing.T) {
	t.Parallel()
	const one, other = "/dev/sda1", "/dev/sdb1"
	mended := []diagnose.Finding{found("fstab-device-missing", diagnose.BlocksBoot), found("clock-wrong", diagnose.Degrades)}
	for name, c := range map[string]struct {
		more     diagnose.Finding
		failing  bool
		tasks    []string
		restores int
	}{
		"healthy":                  {tasks: []string{one + " fstab-device-missing", one + " clock-wrong", other + " fstab-device-missing"}, restores: 2},
		"a suspended system":       {more: found("hibernation-image", diagnose.Info), tasks: []string{one + " clock-wrong", other + " fstab-device-missing"}, restores: 1},
		"a failing disk":           {more: found("disk-failing", diagnose.Degrades), tasks: []string{other + " fstab-device-missing"}, restores: 1},
		"a disk without a finding": {failing: true},
	} {
		before := examinationOf(one, mended...)
		if c.more.ID != "" {
			before = examinationOf(one, append(slices.Clone(mended), c.more)...)
		}
		before.Systems = append(before.Systems, examinationOf(other, mended[0]).Systems...)
		p := newPlanner(before, before)
		p.Restore = []RestoreFile{{Root: one, Path: "/a"}, {Root: other, Path: "/b"}}
		editors := map[string]*systemEditor{}
		for _, root := range []string{one, other} {
			editors[root] = &systemEditor{mounted: &examine.MountedSystem{System: &diagnose.System{Root: root, Disks: []diagnose.DiskHealth{{Failing: c.failing}}}}}
		}
		var got []string
		for _, task := range p.allowedTasks([]task{{root: one, finding: mended[0]}, {root: one, finding: mended[1]}, {root: other, finding: mended[0]}}, editors) {
			got = append(got, task.root+" "+task.finding.ID)
		}
		if restores := p.allowedRestores(editors); !slices.Equal(got, c.tasks) || len(restores) != c.restores {
			t.Errorf("%s: tasks %q, %d files", name, got, len(restores))
		}
		for _, n := range p.plan.NotMended {
			if n.Why == "" {
				t.Errorf("%s: %q is left out without a reason", name, n.Finding)
			}
		}
	}
}

// withGaps is an examination that left out some devices.
func withGaps(x diagnose.Examination, devices ...string) diagnose.Examination {
	for i, d := range devices {
		x.NotExamined = append(x.NotExamined, diagnose.Gap{What: d, Why: "it cannot be read through /dev/loop" + strconv.Itoa(i)})
	}
	return x
}

// TestJudgeOfTables: a repair of a partition table shows systems, with findings and gaps that nobody saw before. Its own finding has to be gone.
func TestJudgeOfTables(t *testing.T) {
	t.Parallel()
	const table = "gpt-primary-damaged"
	before := examinationOf("", found(table, diagnose.BlocksBoot))
	for name, c := range map[string]struct {
		after  diagnose.Examination
		mended []string
		fails  bool
	}{
		"a system with findings": {examinationOf("/dev/sda1", found("fstab-device-missing", diagnose.BlocksBoot)), []string{table}, false},
		"a container":            {withGaps(examinationOf("/dev/sda1"), "/dev/sda2"), []string{table}, false},
		"another disk":           {withGaps(examinationOf("/dev/sda1"), "/dev/sdb2"), nil, true},
		"still damaged":          {examinationOf("/dev/sda1", found(table, diagnose.BlocksBoot)), nil, false},
	} {
		p := newPlanner(before, c.after)
		p.plan.Blocks = []repair.BlockChange{{Device: "/dev/sda"}}
		p.done[[2]string{"", table}] = true
		if err := p.judge(); (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		} else if err == nil && !slices.Equal(p.plan.Mended, c.mended) {
			t.Errorf("%s: mended %q", name, p.plan.Mended)
		}
	}
}

// TestPlanWithoutChanges: a mend that changed nothing has mended nothing, and the plan says so.
func TestPlanWithoutChanges(t *testing.T) {
	t.Parallel()
	before := examinationOf("/dev/sda1", found("a", diagnose.BlocksBoot))
	p := newPlanner(before, before)
	p.done[[2]string{"/dev/sda1", "a"}] = true
	must.OK(t, p.judge())
	if len(p.plan.Mended) != 0 || len(p.plan.NotMended) != 1 || p.plan.NotMended[0].Finding != "a" {
		t.Errorf("mended %q, not mended %+v", p.plan.Mended, p.plan.NotMended)
	}
}

// TestFilesOfUndo: an undo by files names each file that it cannot put back, and puts the others back.
func TestFilesOfUndo(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	plan := &repair.Plan{}
	large := strings.Repeat("x", maxKept)
	for name, content := range map[string]string{"a": "short", "b": large + "x", "c": large, "d": large, "e": "after the full ones", "f": "made"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, "etc", name), []byte(content), 0o644))
		must.OK(t, e.Write("/etc/"+name, []byte("new")))
	}
	e.files["/etc/f"].MadeBy = "/sbin/program"
	must.OK(t, e.finish(plan))
	slices.SortFunc(plan.Files, func(a, b repair.FileChange) int { return strings.Compare(a.Path, b.Path) })
	p := newPlanner(examinationOf("/dev/vda1"), examinationOf("/dev/vda1"))
	var kept []string
	for _, f := range keptFiles([]*systemEditor{e}, plan) {
		r := RestoreFile{Root: f.Root, Path: f.Path, Content: f.Content, LeftOut: f.LeftOut}
		if f.LeftOut == "" {
			kept = append(kept, f.Path)
			r.Before, _ = f.Before.(*repair.FileState)
			r.After, _ = f.After.(*repair.FileState)
		} else if f.Content != nil || f.Before != nil || f.After != nil {
			t.Errorf("%s is left out and has %+v", f.Path, f)
		}
		p.Restore = append(p.Restore, r)
	}
	if want := []string{"/etc/a", "/etc/c", "/etc/e"}; !slices.Equal(kept, want) {
		t.Errorf("kept %q", kept)
	}
	must.OK(t, p.restoreAll(map[string]*systemEditor{"/dev/vda1": e}))
	var left []string
	for _, n := range p.plan.NotMended {
		left = append(left, n.Finding)
		if n.Why == "" {
			t.Errorf("%s: no reason", n.Finding)
		}
	}
	slices.Sort(left)
	if want := []string{"/etc/b", "/etc/d", "/etc/f"}; !slices.Equal(left, want) {
		t.Errorf("not restored: %q", left)
	}
	for name, want := range map[string]string{"a": "short", "b": "new", "d": "new", "e": "after the full ones", "f": "new"} {
		if got := must.Get(os.ReadFile(filepath.Join(dir, "etc", name)))(t); string(got) != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if list := keptFiles([]*systemEditor{e}, &repair.Plan{Files: plan.Files[1:2]}); len(list) != 0 {
		t.Errorf("nothing can be put back, and the list has %+v", list)
	}
}

// TestConsentOfFinish: the initramfs and the menu need the consent to a boot, also in a file that another mend changed before.
func TestConsentOfFinish(t *testing.T) {
	t.Parallel()
	e, _ := newTestEditor(t)
	p := newPlanner(examinationOf("/dev/vda1"), examinationOf("/dev/vda1"))
	p.Finish = func(_ context.Context, made repair.Editor, _ []diagnose.Finding) error {
		return errors.Join(made.Write("/etc/initramfs", []byte("new")), made.Write("/etc/grub.cfg", []byte("menu")))
	}
	e.finding, e.consent = "a", diagnose.ConsentFiles
	must.OK(t, e.Write("/etc/grub.cfg", []byte("edited")))
	must.OK(t, e.Write("/etc/other", []byte("edited")))
	p.done[[2]string{"/dev/vda1", "a"}] = true
	must.OK(t, p.finishAll(t.Context(), map[string]*systemEditor{"/dev/vda1": e}, []task{{root: "/dev/vda1", finding: found("a", diagnose.BlocksBoot)}}))
	changes := planOf(t, e)
	for place, want := range map[string]diagnose.Consent{"/etc/initramfs": diagnose.ConsentBoot, "/etc/grub.cfg": diagnose.ConsentBoot, "/etc/other": diagnose.ConsentFiles} {
		if got := changes[place].Consent; got != want {
			t.Errorf("%s: %q", place, got)
		}
	}
	if !slices.Contains(p.plan.Consents, diagnose.ConsentBoot) {
		t.Errorf("consents %q", p.plan.Consents)
	}
}

// TestJudge: what is still found is not mended, and a new finding fails the plan.
func TestJudge(t *testing.T) {
	t.Parallel()
	before := withGaps(examinationOf("/dev/sda1", found("a", diagnose.BlocksBoot), found("b", diagnose.Degrades)), "/dev/sdb")
	before.Systems[0].RootDevice = "/dev/mapper/luks-1"
	for name, c := range map[string]struct {
		after  diagnose.Examination
		mended []string
		left   int
		fails  bool
	}{
		"gone":               {examinationOf("/dev/sda1"), []string{"a", "b"}, 0, false},
		"still there":        {examinationOf("/dev/sda1", found("b", diagnose.Degrades)), []string{"a"}, 1, false},
		"milder":             {examinationOf("/dev/sda1", found("a", diagnose.Info)), []string{"a", "b"}, 0, false},
		"new":                {examinationOf("/dev/sda1", found("c", diagnose.Degrades)), nil, 0, true},
		"new info":           {examinationOf("/dev/sda1", found("c", diagnose.Info)), []string{"a", "b"}, 0, false},
		"another name":       {diagnose.Examination{Systems: []diagnose.ExaminedSystem{{Root: "/dev/mapper/crypt", RootDevice: "/dev/mapper/luks-1"}}}, []string{"a", "b"}, 0, false},
		"another system":     {examinationOf("/dev/sda2", found("a", diagnose.BlocksBoot)), nil, 0, true},
		"system is gone":     {diagnose.Examination{}, nil, 0, true},
		"one more, one gone": {diagnose.Examination{Systems: []diagnose.ExaminedSystem{{Root: "/dev/sda2"}, {Root: "/dev/sda3"}}}, nil, 0, true},
		"less examined":      {withGaps(examinationOf("/dev/sda1"), "/dev/sdb", "/dev/sdc"), nil, 0, true},
		"twice less":         {withGaps(examinationOf("/dev/sda1"), "/dev/sdb", "/dev/sdb"), nil, 0, true},
		"same gaps":          {withGaps(examinationOf("/dev/sda1"), "/dev/sdb"), []string{"a", "b"}, 0, false},
	} {
		p := newPlanner(before, c.after)
		for _, id := range []string{"a", "b"} {
			p.done[[2]string{"/dev/sda1", id}] = true
		}
		err := p.judge()
		if (err != nil) != c.fails || err != nil && !problem.Is(err, problem.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
		slices.Sort(p.plan.Mended)
		if err == nil && (!slices.Equal(p.plan.Mended, c.mended) || len(p.plan.NotMended) != c.left) {
			t.Errorf("%s: mended %q, left %+v", name, p.plan.Mended, p.plan.NotMended)
		}
	}
}

// newFirmware is a root with the EFI variables of two boot entries and the order 0002, 0001.
func newFirmware(t *testing.T) (root string, variable func(name string) string) {
	t.Helper()
	root = t.TempDir()
	folder := filepath.Join(root, "sys/firmware/efi/efivars")
	must.OK(t, os.MkdirAll(folder, 0o755))
	const vendor = "-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	set := func(name, content string) {
		must.OK(t, os.WriteFile(filepath.Join(folder, name+vendor), []byte("\x07\x00\x00\x00"+content), 0o644))
	}
	set("Boot0001", "one")
	set("Boot0002", "two")
	set("BootOrder", "\x02\x00\x01\x00")
	return root, func(name string) string {
		b := must.Get(os.ReadFile(filepath.Join(folder, name+vendor)))(t)
		return string(b[4:])
	}
}

// TestSettings: a boot order is set by the numbers of its text. What is no setting of the firmware is refused by its own fault and changes nothing.
func TestSettings(t *testing.T) {
	t.Parallel()
	root, variable := newFirmware(t)
	got := must.Get(applySettings(root, []repair.Setting{{Kind: repair.BootDevice, After: "disk"}, {Kind: repair.BootOrder, Before: "0002,0001", After: "0001,0002"}}, time.Now()))(t)
	if !slices.Equal(got, []string{"boot-order: done"}) || variable("BootOrder") != "\x01\x00\x02\x00" {
		t.Errorf("%q, order %q", got, variable("BootOrder"))
	}
	for name, c := range map[string]struct {
		setting repair.Setting
		want    problem.Kind
	}{
		"no order":         {repair.Setting{Kind: repair.BootOrder, After: "x"}, problem.Invalid},
		"missing entry":    {repair.Setting{Kind: repair.BootOrder, After: "0003"}, problem.Invalid},
		"short entry":      {repair.Setting{Kind: repair.BootEntry, After: "0001,Debian"}, problem.Invalid},
		"no number":        {repair.Setting{Kind: repair.BootEntry, After: `zz,Debian,1,\a`}, problem.Invalid},
		"relative loader":  {repair.Setting{Kind: repair.BootEntry, After: `0004,Debian,1,a`}, problem.Invalid},
		"no partition":     {repair.Setting{Kind: repair.BootEntry, After: `0004,Debian,7d1f0c9e-53a5-4b8e-9d43-1f2c0a9e6b11,\a`}, problem.NotFound},
		"another setting":  {repair.Setting{Kind: "other"}, problem.Unsupported},
		"the boot device":  {repair.Setting{Kind: repair.BootDevice, After: "disk"}, problem.Unsupported},
		"no UEFI to speak": {repair.Setting{Kind: repair.BootOrder, After: "0001"}, problem.Unsupported},
	} {
		at := root
		if name == "no UEFI to speak" {
			at = t.TempDir()
		}
		if err := applySetting(at, c.setting, time.Now()); !problem.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if variable("BootOrder") != "\x01\x00\x02\x00" {
		t.Errorf("order %q", variable("BootOrder"))
	}
}

// TestSettingsThatFail are an error, and the boot order is as before.
func TestSettingsThatFail(t *testing.T) {
	t.Parallel()
	root, variable := newFirmware(t)
	settings := []repair.Setting{{Kind: repair.BootOrder, Before: "0002,0001", After: "0001,0002"}, {Kind: repair.BootOrder, After: "0007"}}
	done, err := applySettings(root, settings, time.Now())
	if done != nil || !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "boot-order") {
		t.Errorf("%q, %v", done, err)
	}
	if variable("BootOrder") != "\x02\x00\x01\x00" {
		t.Errorf("order %q", variable("BootOrder"))
	}
}

// TestTasksOfOneRoot: of several systems with something to mend, none is repaired unless one is chosen.
func TestTasksOfOneRoot(t *testing.T) {
	t.Parallel()
	before := examinationOf("/dev/sda1", found("a", diagnose.BlocksBoot))
	before.Systems = append(before.Systems, examinationOf("/dev/sdb1", found("a", diagnose.BlocksBoot), found("b", diagnose.Degrades)).Systems...)
	for root, want := range map[string][]string{"": nil, "/dev/sda1": {"/dev/sda1 a"}, "/dev/sdb1": {"/dev/sdb1 b", "/dev/sdb1 a"}, "/dev/sdc1": nil} {
		p := newPlanner(before, before)
		p.Root = root
		var got []string
		for _, task := range p.tasks(&before) {
			got = append(got, task.root+" "+task.finding.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("--root %q: tasks %q, want %q", root, got, want)
		}
		if root == "" && (len(p.plan.NotMended) != 2 || !strings.Contains(p.plan.NotMended[0].Why, "/dev/sda1 and /dev/sdb1")) {
			t.Errorf("without a root: %+v", p.plan.NotMended)
		}
	}
}

// TestUnknownRoot: a root that no system has is refused with those that are there, and a finding of another system is told as such.
func TestUnknownRoot(t *testing.T) {
	t.Parallel()
	before := examinationOf("/dev/sda1", found("b", diagnose.Degrades))
	before.Systems = append(before.Systems, examinationOf("/dev/sdb1", found("a", diagnose.BlocksBoot)).Systems...)
	p := newPlanner(before, before)
	p.Root = "/dev/sdc1"
	if err := p.checkRoot(&before); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "/dev/sdc1") || !strings.Contains(err.Error(), "/dev/sda1 and /dev/sdb1") {
		t.Errorf("--root /dev/sdc1: want a refusal that names the roots /dev/sda1 and /dev/sdb1, got %v", err)
	}
	p.Root, p.Findings = "/dev/sda1", []string{"a"}
	if err := p.checkRoot(&before); err != nil {
		t.Errorf("--root /dev/sda1: want no refusal, got %v", err)
	}
	p.tasks(&before)
	if left := p.plan.NotMended; len(left) != 1 || !strings.Contains(left[0].Why, "the system on /dev/sda1 has no such finding; the system on /dev/sdb1 has it") {
		t.Errorf("--root /dev/sda1, finding a: want a reason that names both systems, got %+v", left)
	}
}

// TestRefusedByFlag: a file that root may not write costs its own finding only, and the reason names the flag.
func TestRefusedByFlag(t *testing.T) {
	t.Parallel()
	err := refusedByFlag(&os.PathError{Op: "write", Path: "/etc/ssh/sshd_config", Err: syscall.EPERM})
	if !problem.Is(err, problem.Unsupported) || !strings.Contains(err.Error(), "chattr -ia") || !strings.Contains(err.Error(), "/etc/ssh/sshd_config") {
		t.Errorf("%v", err)
	}
	for _, other := range []error{nil, syscall.EIO, problem.Conflictf("x")} {
		if got := refusedByFlag(other); got != other {
			t.Errorf("%v became %v", other, got)
		}
	}
}

// TestFinishRefusedByFlag: an initramfs or a menu that root may not write fails the plan in words that name the flag, the file and the finding.
func TestFinishRefusedByFlag(t *testing.T) {
	t.Parallel()
	e, _ := newTestEditor(t)
	p := newPlanner(examinationOf("/dev/vda1"), examinationOf("/dev/vda1"))
	p.Finish = func(context.Context, repair.Editor, []diagnose.Finding) error {
		return fmt.Errorf("write the menu: %w", &os.PathError{Op: "rename", Path: "/boot/grub/grub.cfg", Err: syscall.EPERM})
	}
	p.done[[2]string{"/dev/vda1", "a"}] = true
	err := p.finishAll(t.Context(), map[string]*systemEditor{"/dev/vda1": e}, []task{{root: "/dev/vda1", finding: found("a", diagnose.BlocksBoot)}})
	for _, want := range []string{"the repair is not offered, and nothing was written", "the repair of a on /dev/vda1", "/boot/grub/grub.cfg", "chattr -ia"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an immutable menu: want %q in the error, got %v", want, err)
		}
	}
}

// TestSlowSecondLook: where the second look ran out of time, the plan does not say that a system is lost.
func TestSlowSecondLook(t *testing.T) {
	t.Parallel()
	late := diagnose.Rule{IDs: []string{"x"}, Files: true, Look: func(s *diagnose.System) []diagnose.Finding {
		for {
			s.Files.Exists("/x")
		}
	}}
	_, overrun := diagnose.Run([]diagnose.Rule{late}, &diagnose.System{Files: diagnose.NewTree(fstest.MapFS{}), RuleTime: time.Nanosecond})
	for name, gaps := range map[string][]diagnose.Gap{"the whole look": {{What: "the machine", Why: examine.OutOfTime}}, "one rule": overrun} {
		after := examinationOf("/dev/sda2")
		if name != "one rule" {
			after.Systems = nil
		}
		after.NotExamined = gaps
		p := newPlanner(examinationOf("/dev/sda2"), after)
		if err := p.judge(); err == nil || !strings.Contains(err.Error(), "too slow") || strings.Contains(err.Error(), "not found any more") {
			t.Errorf("%s took too long: want a plan that is refused as too slow, got %v", name, err)
		}
	}
}
