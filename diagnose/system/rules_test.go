package system

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"salvor/diagnose"
)

// ruleCase damages a healthy system, and names the finding that the rules have to make of it.
type ruleCase struct {
	name, layout string
	id           string
	// severity of the finding; nearMiss where the system only looks damaged, and no finding may have this id above info.
	severity diagnose.Severity
	change   func(*testing.T, *installed)
}

const nearMiss diagnose.Severity = ""

// ruleCases are those of all files: each adds its own when the package is initialized.
var ruleCases []ruleCase

// titleForm: a title is a sentence, and begins with a word that is no name of a file or of a program.
var titleForm = regexp.MustCompile(`(?s)^[A-Z].*[^.:; ]\.$`)

// findingsOf asks all rules about a system, and checks what holds for every finding.
func findingsOf(t *testing.T, in *installed) []diagnose.Finding {
	t.Helper()
	listed := map[string]bool{}
	for _, rule := range Rules() {
		for _, id := range rule.IDs {
			listed[id] = true
		}
	}
	found, gaps := diagnose.Run(Rules(), in.system())
	failOnBrokenRules(t, gaps)
	for _, f := range found {
		switch {
		case !listed[f.ID]:
			t.Errorf("no rule lists the id %s", f.ID)
		case len(f.Evidence) == 0 || f.Title == "" || f.Confidence <= 0 || f.Confidence > 1:
			t.Errorf("%s has no evidence, title or confidence: %+v", f.ID, f)
		case !titleForm.MatchString(f.Title):
			t.Errorf("the title of %s is no sentence: %q", f.ID, f.Title)
		case !slices.Contains(diagnose.Stages(), f.Stage):
			t.Errorf("%s is at the unknown stage %q", f.ID, f.Stage)
		case f.Repair != nil && (f.Repair.Summary == "" || f.Repair.Consent == "" || len(f.Repair.Writes) == 0):
			t.Errorf("%s has a repair that does not say what it writes: %+v", f.ID, f.Repair)
		case f.Severity != diagnose.Info && f.Repair == nil && f.ByHand == "":
			t.Errorf("%s says neither what salvor nor what a person can do", f.ID)
		}
	}
	return found
}

// failOnBrokenRules fails the test for a rule that failed or took too long. Other gaps say what a case left unread on purpose.
func failOnBrokenRules(t *testing.T, gaps []diagnose.Gap) {
	t.Helper()
	for _, gap := range gaps {
		if strings.HasPrefix(gap.What, "the rule for ") || strings.Contains(gap.What, "more findings") {
			t.Errorf("%s: %s", gap.What, gap.Why)
		}
	}
}

func isHarmless(f diagnose.Finding) bool { return f.Severity == diagnose.Info }

func TestHealthySystems(t *testing.T) {
	for name, layout := range layouts {
		t.Run(name, func(t *testing.T) {
			for _, f := range findingsOf(t, layout()) {
				if !isHarmless(f) {
					t.Errorf("%s (%s): %s; %+v", f.ID, f.Severity, f.Title, f.Evidence)
				}
			}
		})
	}
}

func TestRuleCases(t *testing.T) {
	for _, tc := range ruleCases {
		if tc.change == nil { // TestAccessCases runs it
			continue
		}
		t.Run(tc.id+"/"+tc.name, func(t *testing.T) {
			in := separateLayout(tc.layout)
			tc.change(t, in)
			found := findingsOf(t, in)
			at := slices.IndexFunc(found, func(f diagnose.Finding) bool { return f.ID == tc.id })
			if tc.severity != nearMiss {
				if at < 0 {
					t.Fatalf("found only %+v", found)
				}
				if found[at].Severity != tc.severity {
					t.Errorf("severity %s, want %s", found[at].Severity, tc.severity)
				}
				if _, verdict := diagnose.Judge(found); isBlocking(tc.severity) && verdict.Finding != tc.id {
					t.Errorf("the verdict names %s; found %+v", verdict.Finding, found)
				}
				return
			}
			for _, f := range found {
				if f.ID == tc.id && !isHarmless(f) {
					t.Errorf("%s: %s", f.Severity, f.Title)
				}
			}
		})
	}
}

// TestEachIDHasCases: every id is made by some case, and there is a case in which it must not be made.
func TestEachIDHasCases(t *testing.T) {
	made, missed := map[string]bool{}, map[string]bool{}
	for _, tc := range ruleCases {
		if tc.severity == nearMiss {
			missed[tc.id] = true
		} else {
			made[tc.id] = true
		}
	}
	seen := map[string]bool{}
	for _, rule := range Rules() {
		for _, id := range rule.IDs {
			if seen[id] {
				t.Errorf("%s: two rules list it", id)
			}
			seen[id] = true
			if !made[id] {
				t.Errorf("%s: no case makes it", id)
			}
			if !missed[id] {
				t.Errorf("%s: no case comes near it", id)
			}
		}
	}
	for _, tc := range ruleCases {
		if !seen[tc.id] {
			t.Errorf("%s/%s: no rule lists the id", tc.id, tc.name)
		}
	}
}
