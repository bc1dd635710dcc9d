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

// TestRank: only an unbound admin has rights beyond its project. A role in the system sees everything, and only admin changes
// records that belong to all.
func TestRank(t *testing.T) {
	bound := mine
	bound.Bound = true
	for _, tt := range []struct {
		who          Principal
		reads, works Rank
	}{
		{scoped(mine, asAdmin...), Oversight, Oversight},
		{scoped(bound, asAdmin...), Worker, Worker},
		{scoped(bound, "admin"), Worker, Worker},
		{scoped(bound, asMember...), Worker, Worker},
		{scoped(mine, asReader...), Observer, Observer},
		{scoped(mine), Stranger, Stranger},
		{scoped(system, asAdmin...), Oversight, Oversight},
		{scoped(system, asMember...), Oversight, Worker},
		{scoped(system, asReader...), Oversight, Observer},
		{scoped(system), Stranger, Stranger},
		{Principal{Role: Admin}, Oversight, Oversight},
		{Principal{Role: Reader}, Oversight, Observer},
		{Principal{}, Stranger, Stranger},
	} {
		if reads, works := tt.who.Rank(true), tt.who.Rank(false); reads != tt.reads || works != tt.works {
			t.Errorf("%s in %+v: reads as %d and works as %d, want %d and %d", tt.who.Role, tt.who.Scope, reads, works, tt.reads, tt.works)
		}
	}
}
