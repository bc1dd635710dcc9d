package identity_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/api/identity"
	"salvor/record"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
)

// issue makes a token of the API.
func (w *world) issue(name string, role access.Role, project string) string {
	w.t.Helper()
	_, text, err := w.apiTokens.Issue(w.t.Context(), name, role, project, time.Hour, record.Asker{User: "test"})
	if err != nil {
		w.t.Fatal(err)
	}
	return text.Reveal()
}

// TestTokensOfTheAPIAreTakenAsTheyAre: each way in which a client of Keystone can hold one issues the token itself, for what it is for.
func TestTokensOfTheAPIAreTakenAsTheyAre(t *testing.T) {
	w := newWorld(t, fixture.Nobody())
	member, admin := w.issue("ci", access.Member, "lab"), w.issue("root", access.Admin, "")
	credential := func(name, text string) string {
		return `{"auth":{"identity":{"methods":["application_credential"],"application_credential":{"id":"` + name + `","secret":"` + text + `"}}}}`
	}
	byToken := func(text, scope string) string {
		return `{"auth":{"identity":{"methods":["token"],"token":{"id":"` + text + `"}}` + scope + `}}`
	}
	inAdmin := `,"scope":{"project":{"name":"admin","domain":{"id":"default"}}}`
	for _, tt := range []struct {
		name, body, text string
		status           int
		project, roles   string
	}{
		{"password", password("ci", member, inLab), member, 201, "lab", "member reader"},
		{"token", byToken(member, ""), member, 201, "lab", "member reader"},
		{"credential", credential("ci", member), member, 201, "lab", "member reader"},
		{"credential by the user's id", credential(identity.UserID("ci"), member), member, 201, "lab", "member reader"},
		{"admin", byToken(admin, ""), admin, 201, "", "admin manager member reader"},
		{"admin in a project", byToken(admin, inAdmin), admin, 201, "admin", "admin manager member reader"},
		{"another's name", password("root", member, inLab), "", 401, "", ""},
		{"another project", byToken(member, inAdmin), "", 401, "", ""},
		{"the system", byToken(member, `,"scope":{"system":{"all":true}}`), "", 401, "", ""},
		{"admin elsewhere", byToken(admin, inLab), "", 401, "", ""},
		{"changed", byToken(member[:len(member)-1]+"_", ""), "", 401, "", ""},
		{"no token", credential("ci", "x"), "", 401, "", ""},
	} {
		resp, out := w.ask("POST", "/identity/v3/auth/tokens", tt.body)
		got, _ := out["token"].(map[string]any)
		project, _ := got["project"].(map[string]any)
		name, _ := project["name"].(string)
		var roles []string
		all, _ := got["roles"].([]any)
		for _, r := range all {
			roles = append(roles, r.(map[string]any)["name"].(string))
		}
		if resp.Status != tt.status || resp.Header.Get("X-Subject-Token") != tt.text || name != tt.project || strings.Join(roles, " ") != tt.roles {
			t.Errorf("%s: %d, project %q, roles %v, the token itself: %v; want %+v", tt.name, resp.Status, name, roles, resp.Header.Get("X-Subject-Token") == tt.text, tt)
		}
	}
	if resp, out := w.ask("GET", "/identity/v3/auth/tokens", "", "X-Auth-Token", member, "X-Subject-Token", admin); resp.Status != 200 || out["token"] == nil {
		t.Errorf("validate: %d", resp.Status)
	}
	if resp, _ := w.ask("DELETE", "/identity/v3/auth/tokens", "", "X-Auth-Token", admin, "X-Subject-Token", member); resp.Status != 403 {
		t.Errorf("revoke by Keystone's door: %d", resp.Status)
	}
	p, err := w.who(member)
	if err != nil || p.User != "ci" || p.Role != access.Scoped || p.Scope.Project != access.ProjectID("lab") || !p.Scope.Bound {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestRevocationIsHeardOf: what another process revoked or ended is good here no longer than a second.
func TestRevocationIsHeardOf(t *testing.T) {
	w := newWorld(t, api.NoAuth{})
	apiTokens := w.issue("ci", access.Member, "lab")
	signed, _ := w.login(password("ann", "x", inLab))
	for _, text := range []string{apiTokens, signed} {
		must.Get(w.who(text))(t)
	}
	must.OK(t, w.apiTokens.Remove(t.Context(), "ci", record.Asker{}))
	other := identity.NewTokens(w.key, api.NoAuth{}, nil, w.apiTokens, func() time.Time { return w.now })
	elsewhere := &world{t: t, tokens: other, now: w.now}
	elsewhere.serve()
	if resp, _ := elsewhere.ask("DELETE", "/identity/v3/auth/tokens", "", "X-Auth-Token", signed, "X-Subject-Token", signed); resp.Status != 204 {
		t.Fatalf("revoke: %d", resp.Status)
	}
	w.now = w.now.Add(api.TokenMemory)
	w.refused(apiTokens, "revoked elsewhere")
	w.refused(signed, "ended elsewhere")
}

// TestTokensOfAnybodyEndWithTheStrategy: what anybody was issued opens nothing once a token is asked for.
func TestTokensOfAnybodyEndWithTheStrategy(t *testing.T) {
	w := newWorld(t, api.NoAuth{})
	resp, _ := w.ask("POST", "/identity/v3/auth/tokens", `{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":"eve","password":"x","domain":{"id":"default"}}}}}}`)
	text := resp.Header.Get("X-Subject-Token")
	if _, err := w.who(text); err != nil || text == "" {
		t.Fatalf("%q: %v", text, err)
	}
	now := func() time.Time { return w.now }
	apiTokens := api.NewTokenAuth(w.apiTokens, now, slog.New(slog.DiscardHandler))
	w.tokens = identity.NewTokens(w.key, apiTokens, apiTokens, w.apiTokens, now)
	w.refused(text, "after the strategy was changed to token")
}

// TestLocalToken: whoever reads the key is let in for a minute, where there is no user yet; and nobody with another key.
func TestLocalToken(t *testing.T) {
	w := newWorld(t, fixture.Nobody())
	text := must.Get(identity.LocalToken(w.key, w.now))(t)
	p, err := w.who(text.Reveal())
	if err != nil || p.Role != access.Admin || p.User != identity.LocalUser || !p.Scope.System {
		t.Errorf("%+v, %v", p, err)
	}
	w.now = w.now.Add(time.Minute)
	w.refused(text.Reveal(), "after a minute")
	other, err := secret.NewKey(secret.GenerateKey())
	if err != nil {
		t.Fatal(err)
	}
	if text, err = identity.LocalToken(other, w.now); err != nil {
		t.Fatal(err)
	}
	w.refused(text.Reveal(), "of another key")
}

// change has a new key sign, as of now. It returns what has the old one sign again, as whoever stole it can, for as long as f runs.
func (w *world) change() (stolen func(f func())) {
	w.t.Helper()
	old := w.key.ID()
	next := must.Get(w.key.Add(secret.GenerateKey()))(w.t)
	w.key.Use(next)
	w.key.End(old, w.now)
	return func(f func()) {
		w.key.Use(old)
		f()
		w.key.Use(next)
	}
}

// TestEndedKeySigns: while a key is known that signs no more, what it signs opens nothing that needs the key alone, and the rest no
// longer than what was signed with it while it was good.
func TestEndedKeySigns(t *testing.T) {
	w := newWorld(t, api.NoAuth{})
	before, _ := w.login(password("ann", "x", inLab))
	stolen := w.change()
	var local secret.Value
	var late string
	stolen(func() {
		var err error
		if local, err = identity.LocalToken(w.key, w.now); err != nil {
			t.Fatal(err)
		}
	})
	w.refused(local.Reveal(), "of the key's reader, by the old key")
	w.now = w.now.Add(identity.Lifetime - time.Second)
	stolen(func() { late, _ = w.login(password("ann", "x", inLab)) })
	for _, text := range []string{before, late} {
		if _, err := w.who(text); err != nil {
			t.Errorf("within the life of what the key signed: %v", err)
		}
	}
	w.now = w.now.Add(time.Second)
	w.refused(late, "of the old key, longer than its tokens live")
	again, _ := w.login(password("ann", "x", inLab))
	if _, err := w.who(again); err != nil {
		t.Error(err)
	}
}

// TestKeyAloneMakesNoUser: where users have tokens of the API, nothing is signed for them, and so nothing signed is believed.
func TestKeyAloneMakesNoUser(t *testing.T) {
	w := newWorld(t, fixture.Nobody())
	said := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"id":"1","user":"root","system":true,"issued":%q,"expires":%q}`,
		w.now.Format(time.RFC3339), w.now.Add(time.Hour).Format(time.RFC3339)))
	w.refused("salvor."+said+"."+w.key.Token("identity token 1", "root", "", said).Reveal(), "made with the key alone")
}
