package job

import (
	"errors"
	"testing"
)

// TestPermission: a held database refuses before a lost lease does, and neither without a cause.
func TestPermission(t *testing.T) {
	t.Parallel()
	held, lost := errors.New("held"), errors.New("lost")
	say := func(err error) func() error { return func() error { return err } }
	for name, c := range map[string]struct {
		p                   *Permission
		refusal, lost, held error
	}{
		"none":     {},
		"empty":    {p: &Permission{}},
		"all well": {p: &Permission{Alive: say(nil), Held: say(nil)}},
		"held":     {p: &Permission{Alive: say(nil), Held: say(held)}, refusal: held, held: held},
		"lost":     {p: &Permission{Alive: say(lost), Held: say(nil)}, refusal: lost, lost: lost},
		"both":     {p: &Permission{Alive: say(lost), Held: say(held)}, refusal: held, lost: lost, held: held},
	} {
		if got := c.p.Refusal(); got != c.refusal {
			t.Errorf("%s: refused by %v, want %v", name, got, c.refusal)
		}
		if c.p.Lost() != c.lost || c.p.HeldReason() != c.held {
			t.Errorf("%s: lost %v, held %v", name, c.p.Lost(), c.p.HeldReason())
		}
	}
}
