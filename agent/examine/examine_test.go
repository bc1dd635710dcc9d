package examine

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"salvor/diagnose"
)

// TestTimeForRules: what comes before the rules leaves them three of ten parts of the time.
func TestTimeForRules(t *testing.T) {
	whole, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	stages, cancelStages := stageTime(whole)
	defer cancelStages()
	if end, ok := stages.Deadline(); !ok || time.Until(end) > 7*time.Minute || time.Until(end) < 6*time.Minute {
		t.Errorf("the stages end at %v", end)
	}
	unbounded, cancelUnbounded := stageTime(t.Context())
	defer cancelUnbounded()
	if _, ok := unbounded.Deadline(); ok {
		t.Error("an examination without a limit has one")
	}
}

// TestTimeIsOver: nothing is mounted and no rule is asked then, and one gap says it.
func TestTimeIsOver(t *testing.T) {
	asked := 0
	rule := diagnose.Rule{IDs: []string{"a"}, Look: func(*diagnose.System) []diagnose.Finding {
		asked++
		return []diagnose.Finding{{ID: "a"}}
	}}
	d := &device{Device: diagnose.Device{Path: "/dev/sda1", FS: "ext4"}, node: "/dev/loop1p1", at: "/nowhere"}
	x := &examinationRun{Request: Request{Log: slog.New(slog.DiscardHandler), Rules: []diagnose.Rule{rule, rule}}, devices: []*device{d}}
	ctx, cancel := context.WithCancel(t.Context())
	if findings, _ := diagnose.Run(x.boundRules(ctx), &diagnose.System{}); len(findings) != 2 || asked != 2 || len(x.gaps) != 0 {
		t.Errorf("within the time: %+v %v", findings, x.gaps)
	}
	cancel()
	findings, _ := diagnose.Run(x.boundRules(ctx), &diagnose.System{})
	x.mountAll(ctx)
	systems := x.systems(ctx, diagnose.System{})
	if err := x.mountAt(ctx, d, t.TempDir(), ""); err == nil {
		t.Error("a file system is mounted after the time is over")
	}
	if len(findings) != 0 || asked != 2 || len(systems) != 1 || systems[0].Files != nil || x.mounts != 0 || x.places != 0 {
		t.Errorf("after the time: %+v, %d systems, %d mounts", findings, len(systems), x.mounts)
	}
	if len(x.gaps) != 1 || x.gaps[0].What != "the machine" {
		t.Errorf("gaps %+v", x.gaps)
	}
}
