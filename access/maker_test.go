package access_test

import (
	"fmt"
	"testing"
	"time"

	"salvor/access"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/store/storetest"
	"salvor/test/must"
)

// TestATokenEndsWithItsMaker: a token lasts no longer than the token of its maker, whatever the request says. It is revoked with
// that token, over generations. Tokens of other makers stay.
func TestATokenEndsWithItsMaker(t *testing.T) {
	s, _ := storetest.SQLite(t)
	at := time.Now().Truncate(time.Second)
	tokens := access.NewTokens(s, func() time.Time { return at })
	who := record.Asker{User: "ann"}
	texts := map[string]secret.Value{}
	issue := func(maker access.Principal, name string, ttl time.Duration) *access.Token {
		t.Helper()
		made, text, err := tokens.IssueUnder(t.Context(), maker, name, access.Admin, "lab", ttl, who)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = text
		return made
	}
	parent := issue(access.Principal{}, "parent", time.Minute)
	for ttl, want := range map[time.Duration]time.Duration{0: time.Minute, time.Hour: time.Minute, time.Second: time.Second} {
		if made := issue(parent.Principal(), fmt.Sprint("child-", ttl), ttl); !made.ExpiresAt.Equal(at.Add(want)) {
			t.Errorf("a child of %s ends at %s, want %s", ttl, made.ExpiresAt, at.Add(want))
		}
	}
	child, err := tokens.ByText(t.Context(), texts["child-0s"])
	if err != nil || child == nil {
		t.Fatal(child, err)
	}
	if made := issue(child.Principal(), "grandchild", 0); !made.ExpiresAt.Equal(parent.ExpiresAt) {
		t.Errorf("a grandchild ends at %s", made.ExpiresAt)
	}
	issue(access.Principal{}, "other", 0)
	must.OK(t, tokens.Revoke(t.Context(), parent.ID, who))
	for name, text := range texts {
		if left, err := tokens.ByText(t.Context(), text); err != nil || (left != nil) != (name == "other") {
			t.Errorf("%s after the revocation: %v, %v", name, left != nil, err)
		}
	}
}

// TestManyChildrenAreRevoked: more than one page of them.
func TestManyChildrenAreRevoked(t *testing.T) {
	s, _ := storetest.SQLite(t)
	tokens := access.NewTokens(s, time.Now)
	who := record.Asker{User: "ann"}
	parent, _, err := tokens.Issue(t.Context(), "parent", access.Admin, "lab", time.Hour, who)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1010 {
		if _, _, err := tokens.IssueUnder(t.Context(), parent.Principal(), fmt.Sprint("child-", i), access.Reader, "lab", 0, who); err != nil {
			t.Fatal(err)
		}
	}
	if err := tokens.Revoke(t.Context(), parent.ID, who); err != nil {
		t.Error(err)
	}
	left, err := tokens.List(t.Context(), access.TokenFilter{}, record.Page{Limit: 1000})
	if err != nil || len(left) > 0 {
		t.Errorf("%d tokens are left, %v", len(left), err)
	}
	if _, err := tokens.Get(t.Context(), parent.ID); !problem.Is(err, problem.NotFound) {
		t.Errorf("the parent: %v", err)
	}
}
