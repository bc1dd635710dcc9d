package system_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/problem"
	"salvor/repair"
	"salvor/repair/repairtest"
	mends "salvor/repair/system"
)

// TestNoSilentHarm makes systems in which a careless repair would destroy data or let somebody in, and plans every repair that is offered for them. A
// plan changes only what the situation names, and an owner reads beside its digest what it may lose.
func TestNoSilentHarm(t *testing.T) {
	situations := rules.Situations()
	if len(situations) < 27 {
		t.Fatalf("want at least 27 situations, got %d", len(situations))
	}
	for _, s := range situations {
		t.Run(s.Name, func(t *testing.T) {
			system, files := s.Make(t)
			checkSituation(t, s, system, files)
		})
	}
	t.Logf("%d situations", len(situations))
}

func checkSituation(t *testing.T, s rules.Situation, system diagnose.System, files fstest.MapFS) {
	t.Helper()
	found := examine(t, repairtest.New(system, files))
	for _, id := range s.Finds {
		if !slices.ContainsFunc(found, func(f diagnose.Finding) bool { return f.ID == id }) {
			t.Errorf("want the finding %s, so that the situation is the one that is meant; got %s", id, idsOf(found))
		}
	}
	var offered []diagnose.Finding
	refused := mends.Refusals(found, &system)
	for _, f := range mends.Order(found) {
		isRefused := slices.ContainsFunc(refused, func(n repair.NotMended) bool { return n.Finding == f.ID })
		if f.Repair != nil && f.Repair.Consent != diagnose.ConsentData && !isRefused {
			offered = append(offered, f)
		}
	}
	lost := map[string]string{}
	for _, f := range offered {
		same := slices.DeleteFunc(slices.Clone(offered), func(other diagnose.Finding) bool { return other.ID != f.ID })
		plan := planOf(t, s, system, files, found, same)
		for _, loss := range plan.Losses() {
			lost[loss.Finding] += loss.Text + "\n"
			if shown := diagnose.Sentence(f.Repair.Loses); shown != f.Repair.Loses {
				t.Errorf("%s: want that a report shows %q whole, got %q", f.ID, f.Repair.Loses, shown)
			}
		}
	}
	planOf(t, s, system, files, found, offered) // as without ids
	for id, words := range s.Loses {
		if !strings.Contains(lost[id], words) {
			t.Errorf("want that the plan of %s may lose %q, got %q; offered %s; %s", id, words, lost[id], idsOf(offered), s.Why)
		}
	}
	for id, text := range lost {
		if s.Loses[id] == "" {
			t.Errorf("want no loss with %s, got %q", id, text)
		}
	}
}

func idsOf(findings []diagnose.Finding) string {
	var ids []string
	for _, f := range findings {
		if !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	return strings.Join(ids, ", ")
}

// planOf mends findings of a system and checks what that changes. A mend that refuses is put back, as an agent does.
func planOf(t *testing.T, s rules.Situation, system diagnose.System, files fstest.MapFS, before, findings []diagnose.Finding) *repair.Plan {
	t.Helper()
	e := repairtest.New(system, files)
	e.Programs = fakePrograms
	var mended []diagnose.Finding
	for _, f := range findings {
		tried := repairtest.New(system, e.Snapshot())
		tried.Programs, tried.Runs, tried.Settings, tried.Blocks = e.Programs, slices.Clone(e.Runs), slices.Clone(e.Settings), slices.Clone(e.Blocks)
		switch err := doMend(t, tried, f); {
		case err == nil:
			e, mended = tried, append(mended, f)
		case !problem.Is(err, problem.Unsupported):
			t.Fatalf("%s: %v", f.ID, err)
		}
	}
	if err := mends.Finish(t.Context(), e, mended); err != nil && !problem.Is(err, problem.Unsupported) {
		t.Fatal(err)
	}
	plan := &repair.Plan{Before: diagnose.Examination{Systems: []diagnose.ExaminedSystem{{Root: system.Root, Findings: before}}}}
	ids := strings.Split(idsOf(mended), ", ")
	after := e.Snapshot()
	var changes, written []string
	for _, name := range differentFiles(files, after) {
		plan.Files = append(plan.Files, repair.FileChange{Root: system.Root, Path: "/" + name, Findings: ids})
		if after[name] == nil {
			changes = append(changes, "removes /"+name)
			continue
		}
		changes = append(changes, "/"+name)
		written = append(written, addedLines(files[name], after[name])...)
		checkKept(t, s, name, files[name], after[name])
	}
	for _, p := range e.Runs {
		changes = append(changes, "runs "+p.Command[0])
		written = append(written, strings.Join(p.Command, " "))
	}
	for _, b := range e.Blocks {
		changes = append(changes, "blocks of "+b)
		plan.Blocks = append(plan.Blocks, repair.BlockChange{Device: b, Findings: ids})
	}
	for _, set := range e.Settings {
		changes = append(changes, "setting "+string(set.Kind))
		written = append(written, set.After)
	}
	plan.Settings, plan.Mended = e.Settings, ids
	for _, change := range changes {
		if !slices.Contains(s.Touches, change) {
			t.Errorf("the plan of %s: want a change of %q only, got %q; %s", idsOf(mended), s.Touches, change, s.Why)
		}
	}
	for _, text := range s.Never {
		if slices.ContainsFunc(written, func(line string) bool { return strings.Contains(line, text) }) {
			t.Errorf("the plan of %s: want that nothing writes %q, got %q; %s", idsOf(mended), text, written, s.Why)
		}
	}
	return plan
}

func doMend(t *testing.T, e *repairtest.Editor, f diagnose.Finding) error {
	t.Helper()
	for _, m := range mends.Mends() {
		if m.Finding == f.ID {
			return m.Do(t.Context(), e, f)
		}
	}
	return fmt.Errorf("no mend for %s", f.ID)
}

func addedLines(before, after *fstest.MapFile) []string {
	old := map[string]bool{}
	if before != nil {
		for line := range strings.SplitSeq(string(before.Data), "\n") {
			old[line] = true
		}
	}
	return slices.DeleteFunc(strings.Split(string(after.Data), "\n"), func(line string) bool { return old[line] })
}

// checkKept: a text that is edited keeps its lines, apart from those that a finding is about. Nobody but a program of the system writes a file anew.
func checkKept(t *testing.T, s rules.Situation, name string, before, after *fstest.MapFile) {
	t.Helper()
	if before == nil || slices.ContainsFunc(s.Touches, func(c string) bool { return strings.HasPrefix(c, "runs ") }) {
		return
	}
	if lost := len(addedLines(after, before)); lost > 3 {
		t.Errorf("/%s: want that at most 3 lines change, got %d; %s", name, lost, s.Why)
	}
}
