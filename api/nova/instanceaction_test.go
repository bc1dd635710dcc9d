package nova

import (
	"testing"

	"salvor/job"
)

// TestFailedInstanceActions: the last word about an action counts. What was undone after a failure is no such word.
func TestFailedInstanceActions(t *testing.T) {
	t.Parallel()
	failure, done := job.Event{Severity: "error", Text: "power off: failed: no"}, job.Event{Severity: "info", Text: "power off"}
	undone, stuck := job.Event{Severity: "info", Text: "undo define"}, job.Event{Severity: "error", Text: "undo define: failed: no"}
	for name, c := range map[string]struct {
		work []job.Event
		want bool
	}{
		"nothing yet":               {nil, false},
		"done":                      {[]job.Event{done, done}, false},
		"failed":                    {[]job.Event{done, failure}, true},
		"failed, and undone":        {[]job.Event{done, failure, undone, undone}, true},
		"failed, the undo too":      {[]job.Event{done, failure, undone, stuck}, true},
		"failed, then went well":    {[]job.Event{failure, done}, false},
		"went well, failed, undone": {[]job.Event{failure, done, failure, undone}, true},
	} {
		if got := (&instanceAction{work: c.work}).failed(); got != c.want {
			t.Errorf("%s: failed is %v, want %v", name, got, c.want)
		}
	}
}
