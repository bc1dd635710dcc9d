package problem

import (
	"errors"
	"fmt"
	"testing"
)

func TestKinds(t *testing.T) {
	base := errors.New("connection refused")
	err := Unavailablef("power on node n1: %w", base)
	if !errors.Is(err, base) || KindOf(err) != Unavailable || err.Error() != "power on node n1: connection refused" {
		t.Errorf("%v is %s", err, KindOf(err))
	}
	if outer := fmt.Errorf("rescue: %w", err); KindOf(outer) != Unavailable {
		t.Errorf("wrapping lost the kind: %s", KindOf(outer))
	}
	if outer := Conflictf("locked: %w", err); KindOf(outer) != Conflict {
		t.Errorf("the outermost kind counts: %s", KindOf(outer))
	}
	if KindOf(base) != Internal || Is(nil, Internal) {
		t.Error("an error without a kind is internal, no error is none")
	}
	for k := Internal; k <= Unavailable; k++ {
		if ParseKind(k.String()) != k {
			t.Errorf("%s does not read back", k)
		}
	}
	if ParseKind("nonesuch") != Internal || Kind(99).String() != "unknown" {
		t.Error("unknown words are internal")
	}
}

// TestSeveralWrapped: each of several errors that a format wraps is found.
func TestSeveralWrapped(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	err := Invalidf("%w and %w", one, two)
	if !errors.Is(err, one) || !errors.Is(err, two) || err.Error() != "one and two" {
		t.Errorf("%v", err)
	}
}
