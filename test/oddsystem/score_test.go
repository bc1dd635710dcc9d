package oddsystem

import (
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/lab/odd"
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
