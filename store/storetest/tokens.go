package storetest

import (
	"time"

	"salvor/access"
	"salvor/job"
	"salvor/record"
	"salvor/test/must"
)

func sampleToken(i int) *access.Token {
	t := fillRecord[access.Token](i)
	t.UsedAt = time.Time{} // kept apart
	return t
}

func testTokens(b *testEnv) {
	t := b.s.Tokens()
	tableCase[access.Token, access.TokenFilter]{t, "Token", sampleToken, (*access.Token).Head, func(t *access.Token) string { return t.Name }, []string{"name"}}.test(b)
	taken := sampleToken(1)
	taken.ID = "x"
	refusedBoth(b, t, taken, sampleToken(8), func(t *access.Token) { t.Name = taken.Name }, "A token with name "+taken.Name+" already exists.")
	checkListCounts(b, t, map[string]listCase[access.TokenFilter]{
		"name": {access.TokenFilter{Name: taken.Name}, 1}, "digest": {access.TokenFilter{Digest: taken.Digest}, 1}, "project": {access.TokenFilter{Project: taken.Project}, 1},
		"none": {access.TokenFilter{Digest: "of nothing"}, 0},
	})
}

// testTokenUse: several processes note the use of one token, the latest moment stands, and a save of the token takes nothing back.
func testTokenUse(b *testEnv) {
	one, two := sampleToken(1), sampleToken(2)
	one.ID, two.ID = "one", "two"
	b.do(func(tx job.Tx) error {
		if err := b.s.Tokens().Insert(tx, one); err != nil {
			return err
		}
		return b.s.Tokens().Insert(tx, two)
	})
	used := func(ident string) time.Time {
		b.Helper()
		got := must.Get(b.s.Tokens().Get(b.ctx, nil, ident))(b)
		return got.UsedAt
	}
	stores := bothStores(b)
	b.ok(stores[0].UseTokens(b.ctx, map[string]time.Time{"one": beginning.Add(time.Minute), "gone": beginning}))
	b.ok(stores[1].UseTokens(b.ctx, map[string]time.Time{"one": beginning, "two": beginning}))
	b.do(func(tx job.Tx) error { return b.s.Tokens().Save(tx, one) })
	if a, c := used("one"), used(two.Name); !a.Equal(beginning.Add(time.Minute)) || !c.Equal(beginning) {
		b.Errorf("used at %s and %s", a, c)
	}
	all := must.Get(b.s.Tokens().List(b.ctx, nil, access.TokenFilter{}, record.Page{}))(b)
	if len(all) != 2 || !all[0].UsedAt.Equal(beginning.Add(time.Minute)) || !all[1].UsedAt.Equal(beginning) {
		b.Errorf("list: %+v", all)
	}
	b.do(func(tx job.Tx) error { return b.s.Tokens().Delete(tx, one) })
}

// testEndedTokens: what one process ended is ended for all, until it would have ended by itself.
func testEndedTokens(b *testEnv) {
	stores := bothStores(b)
	ended := func(id string) bool {
		b.Helper()
		is := must.Get(stores[1].SignedEnded(b.ctx, id))(b)
		return is
	}
	b.ok(stores[0].EndSigned(b.ctx, "old", time.Now().Add(-time.Second)))
	if ended("new") {
		b.Error("ended before anybody said so")
	}
	for range 2 {
		b.ok(stores[0].EndSigned(b.ctx, "new", time.Now().Add(time.Hour)))
	}
	if !ended("new") || ended("old") {
		b.Errorf("new ended: %v, old remembered: %v", ended("new"), ended("old"))
	}
}
