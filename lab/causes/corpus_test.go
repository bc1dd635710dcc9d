package causes

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/diagnose/system"
	"salvor/test/must"
)

// TestCorpus: the corpus has what its score needs, and names findings that the rules have.
func TestCorpus(t *testing.T) {
	known := map[string]bool{}
	for _, rule := range system.Rules() {
		for _, id := range rule.IDs {
			known[id] = true
		}
	}
	for _, f := range Faults() {
		if len(f.IDs) == 0 || f.Cause < 1 || f.Cause > 58 || f.Script != "" && f.Offline != "" || f.Script+f.Offline == "" && f.Hardware == (Hardware{}) || (f.Effect != Blocks && f.Effect != Harms) {
			t.Errorf("%s is not whole", f.Name)
		}
		for _, id := range f.IDs {
			if !known[id] {
				t.Errorf("%s: no rule finds %s", f.Name, id)
			}
		}
	}
	for cause := 1; cause <= 58; cause++ {
		played := slices.ContainsFunc(Faults(), func(f Fault) bool { return f.Cause == cause })
		if why := UnplayedCauses()[cause]; played == (why != "") {
			t.Errorf("cause %d: played %v, and the reason why it is not: %q", cause, played, why)
		}
	}
	count, names, layouts := map[Kind]int{}, map[string]bool{}, map[string]int{}
	for _, c := range Cases() {
		count[c.Kind]++
		layouts[c.Layout.Name]++
		if names[c.Name] {
			t.Errorf("two cases are named %s", c.Name)
		}
		names[c.Name] = true
		if slices.ContainsFunc(c.Faults, func(f Fault) bool { return f.On != nil && !f.On(c.Layout) }) {
			t.Errorf("%s is on a layout that its fault does not fit", c.Name)
		}
	}
	for kind, least := range map[Kind]int{Single: 45, Double: 10, NearMiss: 10, Healthy: 20} {
		if count[kind] < least {
			t.Errorf("%d cases of %s, want %d", count[kind], kind, least)
		}
	}
	for _, l := range Layouts() {
		if layouts[l.Name] < 10 {
			t.Errorf("%d cases on %s", layouts[l.Name], l.Name)
		}
	}
}

// TestTasks: a shell can read each script, on each layout that it fits.
func TestTasks(t *testing.T) {
	dir, files := t.TempDir(), []string{}
	for _, l := range Layouts() {
		for _, c := range CasesOn(l) {
			file := filepath.Join(dir, c.Name)
			must.OK(t, os.WriteFile(file, []byte(c.Task()), 0o600))
			files = append(files, file)
		}
	}
	out, err := exec.Command("sh", append([]string{"-c", `for task; do sh -n "$task" || echo "$task"; done`, "sh"}, files...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDigest: what changes on the disks of a case changes its digest, so that an old result is not counted.
func TestDigest(t *testing.T) {
	a := Case{Name: "a", Layout: Layouts()[0], Faults: []Fault{{Script: "rm x"}}}
	for name, change := range map[string]func(*Case){
		"the script":  func(c *Case) { c.Faults = []Fault{{Script: "rm y"}} },
		"the cut":     func(c *Case) { c.Cut = true },
		"the layout":  func(c *Case) { c.Layout = Layouts()[1] },
		"the use":     func(c *Case) { c.InUse = true },
		"the clock":   func(c *Case) { c.Faults = []Fault{{Script: "rm x", Hardware: Hardware{Clock: time.Unix(1, 0)}}} },
		"the network": func(c *Case) { c.Faults = []Fault{{Script: "rm x", Network: knownNetwork}} },
		"the sector":  func(c *Case) { c.Faults = []Fault{{Script: "rm x", Hardware: Hardware{BadSector: true}}} },
	} {
		b := a
		change(&b)
		if a.Digest() == b.Digest() {
			t.Errorf("%s changes no digest", name)
		}
	}
}

func TestJudgeResult(t *testing.T) {
	fstab := Fault{Effect: Blocks, IDs: []string{"fstab-device-missing", "fstab-kernel-name"}}
	full := Fault{Effect: Harms, IDs: []string{"disk-full"}}
	sshd := Fault{Effect: Blocks, IDs: []string{"sshd-config-invalid"}}
	finding := func(id string, stage diagnose.Stage, severity diagnose.Severity) diagnose.Finding {
		return diagnose.Finding{ID: id, Stage: stage, Severity: severity, Confidence: 0.9}
	}
	blocked := finding("fstab-kernel-name", diagnose.Target, diagnose.BlocksBoot)
	refused := finding("sshd-config-invalid", diagnose.SSHD, diagnose.BlocksAccess)
	degraded := finding("disk-full", diagnose.Target, diagnose.Degrades)
	for _, tc := range []struct {
		name   string
		faults []Fault
		found  []diagnose.Finding
		want   Mark
	}{
		{"the cause under another id", []Fault{fstab}, []diagnose.Finding{blocked}, Right},
		{"another cause first", []Fault{sshd}, []diagnose.Finding{blocked, refused}, Wrong},
		{"nothing", []Fault{fstab}, nil, Unnamed},
		{"two, both named", []Fault{sshd, fstab}, []diagnose.Finding{blocked, refused}, Right},
		{"two, one named", []Fault{sshd, fstab}, []diagnose.Finding{refused}, Unnamed},
		{"what only harms is no cause and is named", []Fault{full}, []diagnose.Finding{degraded}, Right},
		{"what only harms is not named", []Fault{full}, nil, Unnamed},
		{"what only harms, beside a cause that is none", []Fault{full}, []diagnose.Finding{degraded, blocked}, Wrong},
		{"what only harms is no cause beside one that blocks", []Fault{full, fstab}, []diagnose.Finding{degraded, blocked}, Right},
		{"healthy", nil, []diagnose.Finding{finding("serial-console-unused", diagnose.Loader, diagnose.Info)}, Right},
		{"healthy, with a finding", nil, []diagnose.Finding{degraded}, Noise},
		{"healthy, with a cause", nil, []diagnose.Finding{blocked}, Wrong},
	} {
		var r Result
		report := diagnose.Report{Findings: tc.found}
		report.Judge()
		r.take(report)
		if got := JudgeResult(Case{Faults: tc.faults}, r); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestDocument: the page counts a case once, and not at all where its disks have changed since.
func TestDocument(t *testing.T) {
	cases := Cases()
	results := map[string]Result{
		cases[0].Name: {Case: cases[0].Name, Disks: cases[0].Digest(), Outcome: string(diagnose.CauseFound), Cause: cases[0].Faults[0].IDs[0], Named: cases[0].Faults[0].IDs[:1], Seconds: 2},
		cases[1].Name: {Case: cases[1].Name, Disks: "others", Outcome: string(diagnose.NothingFound)},
		cases[2].Name: {Case: cases[2].Name, Disks: cases[2].Digest(), Outcome: string(diagnose.NothingFound), Changed: true},
	}
	text := Document(cases, results, time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC))
	for _, want := range []string{"Written 2026-11-26. Examined: 2 of ", " | 2 | 1 (50 %) | 0 (0 %) | 1 | 0 | 90 % right", "changed: 1.", "| " + bareName(cases[0]) + " |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text[:2000])
		}
	}
	if strings.Contains(text, "| "+bareName(cases[1])+" |") {
		t.Error("the page counts a result of other disks")
	}
}
