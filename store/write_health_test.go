package store

import (
	"errors"
	"testing"
	"time"

	"salvor/problem"
)

// TestASmallChangeDoesNotHideAFullDisk: a change that passes between refused ones does not end a time of failures; one that passes
// failureMemory after the newest failure does.
func TestASmallChangeDoesNotHideAFullDisk(t *testing.T) {
	began := time.Unix(1e9, 0)
	at := began
	now := func() time.Time { return at }
	s := &storeCore{}
	fail := func() bool {
		return s.health.markUnhealthy(now, errors.New("13"), problem.Unavailablef("the disk is full"))
	}
	if !fail() {
		t.Error("the first failure begins nothing")
	}
	for range 3 {
		at = at.Add(failureMemory - 1)
		if s.health.markHealthy(now) {
			t.Error("a small change ended it")
		}
		if since, why := s.WriteFailure(); why == "" || !since.Equal(began) {
			t.Errorf("after a small change: %q since %s, want a reason since %s", why, since, began)
		}
		if fail() {
			t.Error("a later failure began it anew")
		}
	}
	at = at.Add(failureMemory)
	if !s.health.markHealthy(now) {
		t.Error("a success did not end it")
	}
	if _, why := s.WriteFailure(); why != "" {
		t.Errorf("it says still: %s", why)
	}
}
