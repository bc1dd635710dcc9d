package serve

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/config"
)

// TestOneFailingThingFillsNoLog: whatever fails again and again in the same words is told some times in each interval,
// by whichever logger, with how often it was not; other words and plain lines are written all.
func TestOneFailingThingFillsNoLog(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	cfg := &config.Config{}
	log := newLogAt(cfg, &out, func() time.Time { return now })
	full := errors.New("commit: database or disk is full")
	for i := range 1000 {
		now = now.Add(20 * time.Millisecond) // 20 s in all
		log.With("job", fmt.Sprint(i)).Error("write the outcome of an action", "error", full)
		log.Error("claim jobs", "error", full)
		log.Info("request", "error", full)
	}
	log.Warn("claim jobs", "error", errors.New("another reason"))
	log.Warn("no error is named")
	now = now.Add(alikeFor)
	log.Error("claim jobs", "error", full)
	for words, want := range map[string]int{
		"write the outcome of an action": 2 * mostAlike, `"claim jobs" error="commit`: 2*mostAlike + 1, `"claim jobs" error="another`: 1, "msg=request": 1000, "no error is named": 1,
	} {
		if n := strings.Count(out.String(), words); n != want {
			t.Errorf("%q is in %d lines, want %d", words, n, want)
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "left_out=497") {
		t.Errorf("the last line does not tell how many are missing: %s", last)
	}
}

// TestManyFailingThings: what is remembered of them has a bound.
func TestManyFailingThings(t *testing.T) {
	h := newSparing(nil, time.Now)
	for i := range 5 * maxAlike {
		if _, write := h.count(fmt.Sprint(i)); !write {
			t.Fatalf("the first of its kind is left out: %d", i)
		}
	}
	if n := len(h.alike); n > maxAlike {
		t.Errorf("%d are remembered", n)
	}
}
