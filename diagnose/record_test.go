package diagnose_test

import (
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/problem"
)

// TestConfirm: a person's statement becomes the proof of a diagnosis that has ended and found nothing that may keep the machine from its work.
func TestConfirm(t *testing.T) {
	t.Parallel()
	finding := func(severity diagnose.Severity, confidence float64) []diagnose.Finding {
		return []diagnose.Finding{{ID: "x", Stage: diagnose.Target, Severity: severity, Confidence: confidence}}
	}
	const words = "I logged in"
	for _, tc := range []struct {
		name    string
		state   diagnose.State
		report  diagnose.Report
		words   string
		refused problem.Kind
		why     string
	}{
		{name: "nothing found", state: diagnose.Finished, words: words},
		{name: "a failed diagnosis that found nothing", state: diagnose.Failed, words: words},
		{name: "a finding that harms nothing", state: diagnose.Finished, report: diagnose.Report{Findings: finding(diagnose.Info, 1)}, words: words},
		{name: "a finding that degrades", state: diagnose.Finished, report: diagnose.Report{Findings: finding(diagnose.Degrades, 1)}, words: words},
		{name: "a cause", state: diagnose.Finished, report: diagnose.Report{Findings: finding(diagnose.BlocksBoot, 0.9)}, words: words, refused: problem.Conflict, why: "salvor diagnose rack1-7"},
		{name: "a suspicion", state: diagnose.Finished, report: diagnose.Report{Findings: finding(diagnose.BlocksAccess, 0.2)}, words: words, refused: problem.Conflict, why: "found x, which may keep it from its work"},
		{name: "a proof", state: diagnose.Finished, report: diagnose.Report{Proof: &diagnose.Proof{Kind: diagnose.ProofLogin, Text: "a login"}}, words: words, refused: problem.Conflict, why: "says already that it works"},
		{name: "under way", state: diagnose.Running, words: words, refused: problem.Conflict, why: "salvor diagnosis show rack1-7"},
		{name: "no words", state: diagnose.Finished, words: " \n", refused: problem.Invalid, why: "how you know"},
		{name: "too many words", state: diagnose.Finished, words: strings.Repeat("x", diagnose.MaxWords+1), refused: problem.Invalid, why: "at most 300"},
		{name: "as many words as are taken", state: diagnose.Finished, words: strings.Repeat("ok ", diagnose.MaxWords/3-1) + "yes"},
	} {
		r := diagnose.Record{ID: "d1", State: tc.state, Report: tc.report}
		if tc.state != diagnose.Running {
			r.Report.Judge()
		}
		before := r.Report.Verdict.Outcome
		err := r.Confirm("node", "rack1-7", diagnose.Confirmation{By: "ann", Words: tc.words, At: "1970-01-01 00:16:40 UTC"})
		if tc.why != "" {
			if !problem.Is(err, tc.refused) || !strings.Contains(err.Error(), tc.why) || r.Report.Verdict.Outcome != before {
				t.Errorf("%s: Confirm gives %v and the verdict %s, want %v with %q and the verdict %s", tc.name, err, r.Report.Verdict.Outcome, tc.refused, tc.why, before)
			}
			continue
		}
		v := r.Report.Verdict
		if err != nil || v.Outcome != diagnose.Works || v.Proof == nil || v.Proof.Kind != diagnose.ProofPerson || v.Proof.Text != "ann confirmed it at 1970-01-01 00:16:40 UTC: "+tc.words || len(v.Ladder) == 0 {
			t.Errorf("%s: Confirm gives %v and the verdict %+v with proof %+v, want works by ann", tc.name, err, v, v.Proof)
		}
	}
}

// TestHostileConfirmation: the words of a person hold no control characters and no secret when they are stored.
func TestHostileConfirmation(t *testing.T) {
	t.Parallel()
	r := diagnose.Record{State: diagnose.Finished}
	r.Report.Judge()
	if err := r.Confirm("node", "rack1-7", diagnose.Confirmation{By: "ann\x1b[2J", Words: "password=hunter2\x1b]0;title\x07\nworks"}); err != nil {
		t.Fatal(err)
	}
	if text := r.Report.Proof.Text; strings.Contains(text, "hunter2") || strings.ContainsAny(text, "\x1b\x07\n") {
		t.Errorf("the proof is %q, want neither hunter2 nor a control character", text)
	}
}
