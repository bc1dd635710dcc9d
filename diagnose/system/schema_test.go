package system_test

import (
	"encoding/json"
	"testing"

	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/test/must"
	"salvor/test/reportschema"
)

// TestReportsHaveTheirSchema: the report of each damaged system is what the published schema says, whichever rules made its findings.
func TestReportsHaveTheirSchema(t *testing.T) {
	seen := map[string]bool{}
	for _, tc := range rules.DamagedSystems() {
		if seen[tc.ID] {
			continue
		}
		seen[tc.ID] = true
		s, _ := tc.Make(t)
		found, gaps := diagnose.Run(rules.Rules(), &s)
		var report diagnose.Report
		report.Add(&diagnose.Examination{Seconds: 1.5, NotExamined: gaps, Systems: []diagnose.ExaminedSystem{{Root: s.Root, Name: s.Release.Pretty, Findings: found}}})
		report.Judge()
		reportschema.Check(t, "Report", must.Get(json.Marshal(report))(t))
	}
	t.Logf("%d ids", len(seen))
}
