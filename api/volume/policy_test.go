package volume_test

import (
	"log/slog"
	"testing"

	"salvor/access"
	"salvor/api/volume"
)

// TestPolicyFile: a policy file denies by Cinder's names, whether the project is in the path or not, and by any request to the same end.
func TestPolicyFile(t *testing.T) {
	policy := access.Policy{Rules: &access.Rules{}}
	warnings, err := policy.Rules.Read(`"volume:delete": "role:keeper"`+"\n"+`"volume:extend": "!"`+"\n"+`"volume:get": "@"`+"\n", volume.HasRule)
	if err != nil || len(warnings) > 0 || volume.HasRule("volume:fly") {
		t.Fatal(warnings, err)
	}
	w := newWorld(t, func(c *volume.Config) { c.Policy, c.Log = policy, slog.New(slog.DiscardHandler) })
	id := w.create("p1", 1, "")
	for _, tt := range []struct {
		who, method, path, body string
		want                    int
	}{
		{"p1", "DELETE", "/v3/volumes/" + id, "", 403}, {"p1", "DELETE", "/v3/p1/volumes/" + id, "", 403}, {"p1", "POST", "/v3/volumes/" + id + "/action", `{"os-force_delete":{}}`, 403},
		{"p1", "POST", "/v3/volumes/" + id + "/action", `{"os-extend":{"new_size":9}}`, 403}, {"p1", "GET", "/v3/volumes/" + id, "", 200},
		{"p2", "GET", "/v3/volumes/" + id, "", 404}, {"admin", "DELETE", "/v3/volumes/" + id, "", 202},
	} {
		if a := w.ask(tt.who, tt.method, tt.path, tt.body); a.Status != tt.want {
			t.Errorf("%s: %s, want %d", tt.who, a, tt.want)
		}
	}
}
