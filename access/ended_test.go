package access_test

import (
	"testing"
	"time"

	"salvor/access"
	"salvor/record"
	"salvor/store/storetest"
)

// TestAnEndedTokenOpensNothing though its row is still there.
func TestAnEndedTokenOpensNothing(t *testing.T) {
	s, _ := storetest.SQLite(t)
	at := time.Now()
	tokens := access.NewTokens(s, func() time.Time { return at })
	_, text, err := tokens.Issue(t.Context(), "ci", access.Member, "lab", time.Minute, record.Asker{User: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	for _, open := range []bool{true, false} {
		if found, err := tokens.ByText(t.Context(), text); err != nil || (found != nil) != open {
			t.Errorf("at %s it is found: %v, %v; want %v", at, found != nil, err, open)
		}
		at = at.Add(time.Minute)
	}
}
