package problem

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestPublic: whatever is wrapped around a hidden error, and however many there are, clients see none of its text.
func TestPublic(t *testing.T) {
	secret := errors.New("user=bob host=10.0.0.7")
	h := Hide("it does not answer", secret)
	for name, err := range map[string]error{
		"alone":    h,
		"wrapped":  fmt.Errorf("beat of conductor c: %w", Unavailablef("database: %w", h)),
		"joined":   errors.Join(h, fmt.Errorf("again: %w", Hide("it is full", secret))),
		"reworded": &Error{Kind: Unavailable, text: "could not do it: host=10.0.0.7", err: h},
		"marked":   Unconfirmed(Unavailablef("%w", h)),
	} {
		got := Public(err)
		if strings.Contains(got, "bob") || strings.Contains(got, "10.0.0.7") || !strings.Contains(got, "it does not answer") {
			t.Errorf("%s: clients see %q", name, got)
		}
		if !IsHidden(err) || !errors.Is(err, secret) {
			t.Errorf("%s: the log does not have it: %v", name, err)
		}
	}
	if got := Public(fmt.Errorf("beat of c: %w", Unavailablef("%w", h))); got != "beat of c: it does not answer" {
		t.Errorf("%q", got)
	}
	if plain := Conflictf("locked"); IsHidden(plain) || Public(plain) != "locked" || IsUnconfirmed(plain) {
		t.Error("an error that hides nothing")
	}
}
