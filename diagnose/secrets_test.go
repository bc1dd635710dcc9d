package diagnose_test

import (
	"os"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/test/must"
)

// canaries are secrets of several forms: a pattern must find them by their place, and not by how they look.
var canaries = []string{"hunter2", "Xk9vQz7w", "48213907", "Qm/7+zR"}

// linesOf reads a corpus.
func linesOf(t *testing.T, file string) [][]string {
	t.Helper()
	var out [][]string
	for line := range strings.Lines(string(must.Get(os.ReadFile("testdata/" + file))(t))) {
		if line = strings.TrimRight(line, "\n"); line != "" && !strings.HasPrefix(line, "# ") {
			out = append(out, strings.Split(line, "\t"))
		}
	}
	return out
}

// TestSecretsOfThePatient: no form in which a report shows a line of the patient's files or the output of its programs has the secret of the line.
func TestSecretsOfThePatient(t *testing.T) {
	t.Parallel()
	lines := linesOf(t, "secrets.txt")
	if len(lines) < 100 {
		t.Fatalf("the corpus has %d lines, want at least 100", len(lines))
	}
	for _, f := range lines {
		for _, canary := range canaries {
			if strings.Contains(f[1], "{T}") { // a token, of letters and digits
				canary = strings.NewReplacer("/", "", "+", "").Replace(canary)
			}
			line := strings.NewReplacer("{S}", canary, "{T}", canary).Replace(f[1])
			forms := map[string]string{"line": diagnose.Line(f[0], line), "evidence": evidenceText(f[0], line)}
			if f[0] == "" {
				forms = map[string]string{"excerpt": diagnose.Excerpt(line), "sentence": diagnose.Sentence(line), "sentence with an end": diagnose.Sentence("The checker says: " + line + ".")}
			}
			for form, shown := range forms {
				if strings.Contains(shown, canary) {
					t.Errorf("%s %s: the %s shows the secret: %s", f[0], line, form, shown)
				}
				if again := diagnose.Line(f[0], shown); again != shown {
					t.Errorf("%s %s: the %s changes when it is masked again: %s, then %s", f[0], line, form, shown, again)
				}
			}
		}
	}
}

// TestFactsOfThePatient: what is no secret stays readable.
func TestFactsOfThePatient(t *testing.T) {
	t.Parallel()
	for _, f := range linesOf(t, "harmless.txt") {
		shown := diagnose.Line(f[0], f[1])
		if f[0] == "" {
			shown = diagnose.Sentence(f[1])
		}
		if !strings.Contains(shown, f[2]) {
			t.Errorf("%s %s: want %q to stay readable, got %s", f[0], f[1], f[2], shown)
		}
	}
}

// evidenceText is a line as a report shows it.
func evidenceText(path, line string) string {
	x := diagnose.Examination{Systems: []diagnose.ExaminedSystem{{Findings: []diagnose.Finding{{ID: "x", Stage: diagnose.Target, Severity: diagnose.BlocksBoot, Evidence: []diagnose.Evidence{{Kind: diagnose.FromFile, Path: path, Line: 1, Text: line}}}}}}}
	return x.Sanitize().Systems[0].Findings[0].Evidence[0].Text
}
