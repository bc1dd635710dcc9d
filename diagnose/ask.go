package diagnose

import (
	"fmt"
	"strings"
)

// maxFindings of one rule: a file with a million wrong lines is one fact, not a million.
const maxFindings = 20

// askRule runs one rule. Its findings leave with texts that are safe to show.
func askRule(rule Rule, s *System) (found []Finding, gap *Gap) {
	defer func() {
		if p := recover(); p != nil {
			found, gap = nil, &Gap{What: "the rule for " + strings.Join(rule.IDs, ", "), Why: "it failed: " + Excerpt(fmt.Sprint(p))}
		}
	}()
	found = rule.Look(s)
	if len(found) > maxFindings {
		gap = &Gap{What: fmt.Sprintf("%d more findings of the rule for %s", len(found)-maxFindings, rule.IDs[0]), Why: "a report lists the first 20 of a rule"}
		found = found[:maxFindings]
	}
	for i := range found {
		found[i] = sanitizeFinding(found[i])
	}
	return found, gap
}
