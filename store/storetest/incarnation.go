package storetest

import (
	"salvor/record"
	"salvor/test/must"
)

// testIncarnation: the id of a database stays, its counter only rises, and the first cause of a hold stays.
func testIncarnation(b *testEnv) {
	first, err := b.s.Incarnation(b.ctx)
	if err != nil || len(first.ID) != 32 || first.Counter != 1 || first.Held != nil {
		b.Fatalf("a new database: %+v, %v", first, err)
	}
	other := b.other()
	raised, err := other.Raise(b.ctx)
	if err != nil || raised.ID != first.ID || raised.Counter != 2 {
		b.Fatalf("raised: %+v, %v", raised, err)
	}
	if former, err := b.s.FormerIncarnations(b.ctx); err != nil || len(former) != 0 {
		b.Errorf("a new database had incarnations before: %v, %v", former, err)
	}
	for _, reason := range []string{"the first", "the second"} {
		must.OK(b, other.HoldDatabase(b.ctx, record.HeldWentBack, reason))
	}
	held, err := b.s.Incarnation(b.ctx)
	if err != nil || held.Held == nil || held.Held.Code != record.HeldWentBack || held.Held.Detail != "the first" || held.Held.Since.IsZero() {
		b.Fatalf("held: %+v, %v", held.Held, err)
	}
	if raised, err = b.s.Raise(b.ctx); err != nil || raised.Counter != 3 || raised.Held == nil {
		b.Errorf("raised while it is held: %+v, %v", raised, err)
	}
}
