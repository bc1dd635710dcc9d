package oddsystem

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/lab/odd"
	"salvor/test/must"
)

func TestJudge(t *testing.T) {
	finding := func(id, at string, stage diagnose.Stage, severity diagnose.Severity) diagnose.Finding {
		return diagnose.Finding{ID: id, Stage: stage, Severity: severity, Confidence: 0.9, Evidence: []diagnose.Evidence{{Kind: diagnose.FromFile, Path: at}}}
	}
	const config = "/etc/ssh/sshd_config"
	named := finding("sshd-config-invalid", config, diagnose.SSHD, diagnose.BlocksAccess)
	elsewhere := finding("fstab-device-missing", "/etc/fstab", diagnose.Target, diagnose.BlocksBoot)
	harm := finding("sudoers-invalid", config, diagnose.Login, diagnose.Degrades)
	kernel := finding("kernel-changed", "/boot/vmlinuz", diagnose.Kernel, diagnose.BlocksBoot)
	whole := Truth{"target": "", "sshd": "", "ssh": "", "sudoers": ""}
	down := Truth{"init": "", "target": "", "sshd": "it does not start", "ssh": "no"}
	harmed := Truth{"target": "", "sshd": "", "ssh": "", "sudoers": "a parse error"}
	for _, c := range []struct {
		name  string
		truth Truth
		cause string
		found []diagnose.Finding
		want  Mark
	}{
		{"the cause", down, named.ID, []diagnose.Finding{named}, Right},
		{"another cause", down, elsewhere.ID, []diagnose.Finding{elsewhere, named}, Wrong},
		{"the cause at another rung", down, harm.ID, []diagnose.Finding{finding(harm.ID, config, diagnose.Init, diagnose.BlocksBoot)}, Wrong},
		{"nothing", down, "", nil, Nothing},
		{"what harms only, where the owner does not come in", down, "", []diagnose.Finding{harm}, Nothing},
		{"what harms only", harmed, "", []diagnose.Finding{harm}, Right},
		{"nothing of what harms only", harmed, "", nil, Nothing},
		{"a cause at a rung that nobody was asked about", down, kernel.ID, []diagnose.Finding{kernel}, NoTruth},
		{"nothing broke, nothing found", whole, "", nil, Quiet},
		{"nothing broke, something found", whole, named.ID, []diagnose.Finding{named}, Noise},
		{"nothing broke, something found that nobody was asked about", whole, kernel.ID, []diagnose.Finding{kernel}, NoTruth},
	} {
		r := Result{Names: []string{config}, Truth: c.truth, Cause: c.cause, Findings: c.found}
		if got := Judge(r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

const (
	blindResults = "testdata/blind_results.jsonl"
	blindPage    = "../../docs/blind-faults.md"
)

// readBlind reads the list of faults, and the results by their names.
func readBlind(t *testing.T) (faults []BlindFault, done map[string]BlindResult) {
	t.Helper()
	for line := range strings.Lines(string(must.Get(os.ReadFile("testdata/blind.jsonl"))(t))) {
		var f BlindFault
		must.OK(t, json.Unmarshal([]byte(line), &f))
		faults = append(faults, f)
	}
	done = map[string]BlindResult{}
	for line := range strings.Lines(string(must.Get(os.ReadFile(blindResults))(t))) {
		var one BlindResult
		must.OK(t, json.Unmarshal([]byte(line), &one))
		done[one.Fault.Name] = one
	}
	return faults, done
}

// TestBlindPage: the page has each change of the list as it was judged.
func TestBlindPage(t *testing.T) {
	faults, done := readBlind(t)
	var results []BlindResult
	for _, f := range faults {
		one, found := done[f.Name]
		if !found {
			t.Errorf("%s has no result: make odd asks for it", f.Name)
		}
		one.Fault, one.System = f, f.System
		results = append(results, one)
	}
	if page := string(must.Get(os.ReadFile(blindPage))(t)); !strings.HasSuffix(page, "\n\n"+BlindSection(results)) {
		t.Errorf("the section %q of %s is not that of the results; want\n%s", BlindTitle, blindPage, BlindSection(results))
	}
}

// TestJudgeBlind: a start decides whether the owner is out, and without one the author of the list.
func TestJudgeBlind(t *testing.T) {
	fault := BlindFault{Stages: []diagnose.Stage{diagnose.SSHD}, Names: []string{"RevokedKeys"}}
	named := diagnose.Finding{ID: "ssh-login-impossible", Stage: diagnose.SSHD, Severity: diagnose.BlocksAccess, Title: "RevokedKeys names a file that does not exist."}
	other := diagnose.Finding{ID: "fstab-device-missing", Stage: diagnose.Target, Severity: diagnose.BlocksBoot, Title: "A device is missing."}
	out, in := Truth{"boot": "", "reach": "refused"}, Truth{"boot": "", "reach": ""}
	for _, c := range []struct {
		name  string
		fault BlindFault
		truth Truth
		cause string
		found []diagnose.Finding
		want  Mark
	}{
		{"named, not started", fault, nil, named.ID, []diagnose.Finding{named}, Right},
		{"another cause", fault, out, other.ID, []diagnose.Finding{other, named}, Wrong},
		{"no cause", fault, out, "", []diagnose.Finding{named}, Nothing},
		{"the owner comes in all the same", fault, in, named.ID, []diagnose.Finding{named}, Noise},
		{"the owner comes in, and nothing is found", fault, in, "", nil, Quiet},
		{"a near miss, not started", BlindFault{}, nil, other.ID, []diagnose.Finding{other}, Noise},
		{"a near miss that keeps the owner out", BlindFault{Stages: nil, Names: fault.Names}, out, named.ID, []diagnose.Finding{named}, Right},
	} {
		r := BlindResult{Fault: c.fault, Result: Result{Truth: c.truth, Cause: c.cause, Findings: c.found}}
		if got := JudgeBlind(r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTruthWithout(t *testing.T) {
	got := Truth{"ssh": "refused", "sudo": "no", "sshd": ""}.without(Truth{"sudo": "no", "ssh": ""})
	if len(got) != 2 || got["ssh"] != "refused" {
		t.Errorf("the truth is %v, want ssh and sshd without sudo, which fails without a change", got)
	}
}

// TestSection: the section takes its place in the page, and is replaced there.
func TestSection(t *testing.T) {
	page := []byte("# Page\n\n## Score\n\nx\n\n## By layout\n\ny\n")
	results := []Result{{System: "debian-12", Change: odd.SystemChange{Kind: odd.RemoveFile}, Truth: Truth{"ssh": ""}}}
	first := PutSection(page, Section(results))
	again := PutSection(first, Section(append(results, results...)))
	for _, want := range []string{"| debian-12 | 2 | 0 | - | - | - | 2 | 0 (0.0 %) | 0 |", "## By layout\n\ny\n", "## Score\n\nx\n"} {
		if !strings.Contains(string(again), want) {
			t.Errorf("the page lacks %q:\n%s", want, again)
		}
	}
	if got := SectionOf(again); got != Section(append(results, results...)) {
		t.Errorf("the section of the page is\n%s", got)
	}
	if n := strings.Count(string(again), SectionTitle); n != 1 {
		t.Errorf("the page has %d such sections, want 1", n)
	}
}
