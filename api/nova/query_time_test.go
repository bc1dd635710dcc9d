package nova

import (
	"testing"
	"time"
)

// TestQueryTimes: a time of a query may have any form of ISO 8601 that Nova takes.
func TestQueryTimes(t *testing.T) {
	t.Parallel()
	minute, second := time.Date(2026, 11, 28, 9, 30, 0, 0, time.UTC), time.Date(2026, 11, 28, 9, 30, 5, 0, time.UTC)
	for word, want := range map[string]time.Time{
		"2026": time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), "2026-11": time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		"2026-11-28": time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC), "20261128": time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC),
		"2026-11-28T09": minute.Add(-30 * time.Minute), "2026-11-28T09:30": minute, "2026-11-28T09:30Z": minute, "20261128T0930": minute, "2026-11-28T11:30+02:00": minute,
		"2026-11-28T09:30:05": second, "2026-11-28T09:30:05Z": second, "2026-11-28 09:30:05": second, "2026-11-28 09:30:05Z": second, "20261128T093005Z": second,
		"20261128T093005": second, "20261128T113005+0200": second, "2026-11-28T11:30:05+02": second, "2026-11-28T11:30:05+0200": second, "2026-11-28T07:30:05-02:00": second,
		"2026-11-28T11:30:05 02:00": second, "2026-11-28 11:30:05+02:00": second,
		"2026-11-28T09:30:05.250Z": second.Add(250 * time.Millisecond), "2026-11-28T09:30:05,250": second.Add(250 * time.Millisecond), "20261128T093005.25": second.Add(250 * time.Millisecond),
		"2026-11-28T11:30:05.000000+02:00": second,
	} {
		if got, ok := parseQueryTime(word); !ok || !got.Equal(want) {
			t.Errorf("%q is %s, %v; want %s", word, got, ok, want)
		}
	}
	for _, word := range []string{"", "0", "yesterday", "2026-13-01", "2026-11-28T25:00", "2026-11-28T09:30:05+", "2026-11-28T", "28.11.2026"} {
		if got, ok := parseQueryTime(word); ok {
			t.Errorf("%q is taken for %s", word, got)
		}
	}
}
