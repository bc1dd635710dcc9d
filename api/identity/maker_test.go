package identity_test

import (
	"testing"
	"time"

	"salvor/access"
	"salvor/record"
	"salvor/secret"
)

// TestTokensEndWithTheirMaker: a token that was made with another one ends no later than that one, and is revoked with it. One that has
// ended opens nothing.
func TestTokensEndWithTheirMaker(t *testing.T) {
	w, who := newWorld(t, nobody{}), record.Asker{User: "test"}
	parent, _, err := w.kept.Issue(t.Context(), "parent", access.Admin, "lab", time.Hour, who)
	if err != nil {
		t.Fatal(err)
	}
	children := map[string]secret.Value{}
	for name, life := range map[string]time.Duration{"longer": 24 * time.Hour, "endless": 0, "shorter": time.Minute} {
		child, text, err := w.kept.IssueUnder(t.Context(), parent.Principal(), name, access.Member, "lab", life, who)
		if err != nil {
			t.Fatal(err)
		}
		if child.ExpiresAt.IsZero() || child.ExpiresAt.After(parent.ExpiresAt) {
			t.Errorf("%s: it ends at %s, its maker's token at %s", name, child.ExpiresAt, parent.ExpiresAt)
		}
		if found, err := w.kept.ByText(t.Context(), text); err != nil || found == nil || found.ID != child.ID {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
		children[name] = text
	}
	w.now = w.now.Add(time.Minute)
	for name, text := range children {
		if found, err := w.kept.ByText(t.Context(), text); err != nil || (found == nil) != (name == "shorter") {
			t.Errorf("%s: found after a minute: %v, %v", name, found, err)
		}
	}
	if err := w.kept.Revoke(t.Context(), parent.ID, who); err != nil {
		t.Fatal(err)
	}
	for name, text := range children {
		if found, err := w.kept.ByText(t.Context(), text); err != nil || found != nil {
			t.Errorf("%s: after its maker's token was revoked: %v, %v", name, found, err)
		}
	}
}
