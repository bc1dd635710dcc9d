package compute

import (
	"testing"
	"time"
)

// TestConsoleSinceStart: only what a server wrote since its host last started it counts, and a log without a mark has no such part.
func TestConsoleSinceStart(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	mark, former := ConsoleStartLine(at), ConsoleStartLine(at.Add(-time.Hour))
	for _, tc := range []struct {
		name, log, since string
		found            bool
	}{
		{"no log", "", "", false},
		{"no mark", "web1 login: ", "", false},
		{"a mark behind a prompt", "rescue login: " + mark + "web1 login: ", "web1 login: ", true},
		{"a mark at the begin of a log that was cut", mark[1:] + "web1 login: ", "web1 login: ", true},
		{"the newest of two starts", former + "rescue login: " + mark, "", true},
		{"a mark within a line", "web1 says " + mark[1:] + "web1 login: ", "", false},
		{"a mark without a time", "\n" + consoleStart + "noon\nweb1 login: ", "web1 login: ", false},
	} {
		since, got, found := ConsoleSinceStart(tc.log)
		if since != tc.since || found != tc.found || found && !got.Equal(at) {
			t.Errorf("%s: ConsoleSinceStart(%q) is %q, %s, %v; want %q, %s, %v", tc.name, tc.log, since, got, found, tc.since, at, tc.found)
		}
	}
}
