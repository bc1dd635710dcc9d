package access

import (
	"testing"

	"salvor/problem"
)

func TestAllow(t *testing.T) {
	for _, tt := range []struct {
		role Role
		need Need
		ok   bool
	}{
		{Nobody, Open, true}, {Nobody, Read, false}, {Nobody, Write, false},
		{Reader, Open, true}, {Reader, Read, true}, {Reader, Write, false},
		{Admin, Open, true}, {Admin, Read, true}, {Admin, Write, true},
		{"owner", Read, false},
	} {
		err := Principal{User: "ann", Role: tt.role}.Allow(tt.need, "GET /v1/nodes")
		if (err == nil) != tt.ok || err != nil && !problem.Is(err, problem.Forbidden) {
			t.Errorf("role %q, need %d: %v", tt.role, tt.need, err)
		}
	}
}
