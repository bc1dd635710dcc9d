package config

import (
	"testing"
	"time"
)

func TestKeyIsOver(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]bool{"20261128": true, "20261129": false, "20261130": false, "202611291159Z": true, "202611291201Z": false, "20261129115959Z": true, "202611291201z": false, "20261130UTC": false, "202611291159utc": true, "2026": true, "": true} {
		if got := isOver(text, now); got != want {
			t.Errorf("%q at %s: %v, want %v", text, now.Format(time.RFC3339), got, want)
		}
	}
}
