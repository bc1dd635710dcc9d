package identity_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"salvor/access"
	"salvor/api"
	"salvor/api/identity"
	"salvor/secret"
	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
)

// world is an identity service on a clock of the test's own.
type world struct {
	t         *testing.T
	tokens    *identity.Tokens
	apiTokens *access.Tokens
	key       *secret.Key
	url       string
	now       time.Time
	log       strings.Builder
}

// newTokens makes tokens on a database of their own.
func newTokens(t testing.TB, below api.Authenticator, now func() time.Time) (*identity.Tokens, *access.Tokens, *secret.Key) {
	s, _ := storetest.SQLite(t)
	key := must.Get(secret.NewKey(secret.GenerateKey()))(t)
	apiTokens := access.NewTokens(s, now)
	return identity.NewTokens(key, below, api.NewTokenAuth(apiTokens, now, slog.New(slog.DiscardHandler)), apiTokens, now), apiTokens, key
}

func newWorld(t *testing.T, below api.Authenticator) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return w.now }
	w.tokens, w.apiTokens, w.key = newTokens(t, below, clock)
	w.serve()
	return w
}

// serve answers by the tokens of the world.
func (w *world) serve() {
	log := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	server := httptest.NewServer(identity.New(identity.Config{Tokens: w.tokens, Auth: w.tokens, Now: func() time.Time { return w.now }, Log: log}))
	w.t.Cleanup(server.Close)
	w.url = server.URL
}

// ask sends a request and gives the answer with its decoded body.
func (w *world) ask(method, path, body string, header ...string) (fixture.Answer, map[string]any) {
	w.t.Helper()
	a := fixture.Send(w.t, method, w.url+path, body, header...)
	return a, a.ObjectIfAny(w.t)
}

func password(user, word, scope string) string {
	return `{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":"` + user + `","domain":{"id":"default"},"password":"` + word + `"}}}` + scope + `}}`
}

const inLab = `,"scope":{"project":{"name":"lab","domain":{"name":"Default"}}}`

// login asks for a token and wants it.
func (w *world) login(body string) (string, map[string]any) {
	w.t.Helper()
	resp, out := w.ask("POST", "/identity/v3/auth/tokens", body)
	if resp.Status != http.StatusCreated {
		w.t.Fatalf("a token: %d %v", resp.Status, out)
	}
	return resp.Header.Get("X-Subject-Token"), out["token"].(map[string]any)
}

// who tells for whom a token is taken.
func (w *world) who(token string) (access.Principal, error) {
	r := httptest.NewRequest("GET", "/v1/nodes", nil)
	r.Header.Set("X-Auth-Token", token)
	return w.tokens.Authenticate(r)
}

func (w *world) refused(token, why string) {
	w.t.Helper()
	if p, err := w.who(token); api.Status(err) != http.StatusUnauthorized {
		w.t.Errorf("%s: the token is taken for %+v, %v", why, p, err)
	}
}

func TestWhoHasNoTokenWorksInTheProjectOfOneThatNamesNone(t *testing.T) {
	w := newWorld(t, api.NoAuth{})
	bare := httptest.NewRequest("GET", "/", nil)
	p, err := w.tokens.AtHome().Authenticate(bare)
	if err != nil || p.Role != access.Admin || p.Scope.Project != access.ProjectID("admin") || p.Scope.ProjectName != "admin" {
		t.Errorf("without a token: %+v, %v", p, err)
	}
	if p, err = w.tokens.Authenticate(bare); err != nil || p.Scope.Project != "" {
		t.Errorf("Ironic's callers have no project: %+v, %v", p, err)
	}
	for scope, want := range map[string]string{inLab: access.ProjectID("lab"), ``: access.ProjectID("admin"), `, "scope": "unscoped"`: ""} {
		token, _ := w.login(password("ann", "x", scope))
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Auth-Token", token)
		if p, err = w.tokens.AtHome().Authenticate(r); err != nil || p.Scope.Project != want {
			t.Errorf("scope %q: %+v, %v", scope, p, err)
		}
	}
}

func TestNoAuthTakesEverybodyIntoTheProjectThatIsNamed(t *testing.T) {
	w := newWorld(t, api.NoAuth{})
	token, body := w.login(password("ann", "x", inLab))
	p, err := w.who(token)
	if err != nil || p.User != "ann" || p.Role != access.Admin || p.Scope.ProjectName != "lab" || p.Scope.Project != access.ProjectID("lab") {
		t.Fatalf("%+v, %v", p, err)
	}
	if project := body["project"].(map[string]any); project["id"] != p.Scope.Project || project["name"] != "lab" {
		t.Errorf("project %v", project)
	}
	urls := map[string]string{}
	for _, entry := range body["catalog"].([]any) {
		e := entry.(map[string]any)
		urls[e["type"].(string)] = e["endpoints"].([]any)[0].(map[string]any)["url"].(string)
	}
	for kind, path := range map[string]string{
		"baremetal": "/", "compute": "/compute/v2.1", "image": "/image", "identity": "/identity", "salvor": "/salvor/v1",
		"volumev3": "/volume/v3/" + p.Scope.Project, "block-storage": "/volume/v3/" + p.Scope.Project,
	} {
		if urls[kind] != w.url+path {
			t.Errorf("endpoint of %s is %s, want %s", kind, urls[kind], w.url+path)
		}
	}
	if again, _ := w.login(password("bob", "", inLab)); again == token {
		t.Error("two users have one token")
	}
	if _, err := w.who("notused"); err != nil {
		t.Errorf("without a token of ours everybody is let in: %v", err)
	}
	if strings.Contains(w.log.String(), token) {
		t.Error("the log holds a token")
	}
}

func TestScopes(t *testing.T) {
	w := newWorld(t, api.NoAuth{})
	const id = "0123456789abcdef0123456789abcdef"
	for _, tt := range []struct {
		name, scope, project, field string
		status                      int
	}{
		{"none named", ``, access.ProjectID("admin"), "catalog", 201},
		{"unscoped", `,"scope":"unscoped"`, "", "", 201},
		{"unscoped as an object", `,"scope":{"unscoped":{}}`, "", "", 201},
		{"a project by id", `,"scope":{"project":{"id":"` + id + `"}}`, id, "catalog", 201},
		{"the system", `,"scope":{"system":{"all":true}}`, "", "system", 201},
		{"a domain", `,"scope":{"domain":{"id":"default"}}`, "", "", 401},
		{"a project of another domain", `,"scope":{"project":{"name":"lab","domain":{"name":"other"}}}`, "", "", 401},
		{"nothing", `,"scope":{}`, "", "", 400},
		{"another word", `,"scope":"all"`, "", "", 400},
		{"a project that cannot be", `,"scope":{"project":{"name":"a:b"}}`, "", "", 400},
	} {
		resp, out := w.ask("POST", "/identity/v3/auth/tokens", password("ann", "x", tt.scope))
		if resp.Status != tt.status {
			t.Errorf("%s: %d %v", tt.name, resp.Status, out)
			continue
		}
		if tt.status != http.StatusCreated {
			continue
		}
		p, err := w.who(resp.Header.Get("X-Subject-Token"))
		if err != nil || p.Scope.Project != tt.project {
			t.Errorf("%s: %+v, %v", tt.name, p, err)
		}
		if _, have := out["token"].(map[string]any)[tt.field]; have != (tt.field != "") {
			t.Errorf("%s: %s is missing in %v", tt.name, tt.field, out)
		}
	}
}

func TestTokensEnd(t *testing.T) {
	w := newWorld(t, api.NoAuth{})
	token, _ := w.login(password("ann", "x", inLab))
	short, _ := w.login(`{"auth":{"identity":{"methods":["token"],"token":{"id":"` + token + `"}},"scope":{"project":{"name":"other"}}}}`)
	if p, err := w.who(short); err != nil || p.Scope.ProjectName != "other" || p.User != "ann" {
		t.Fatalf("scoped anew: %+v, %v", p, err)
	}
	for why, bad := range map[string]string{
		"cut": token[:len(token)-1], "longer": token + "A", "changed": strings.Replace(token, ".ey", ".eX", 1), "empty": "salvor.", "marks alone": "salvor..",
		"huge": "salvor." + strings.Repeat("a", 8192) + ".x",
	} {
		w.refused(bad, why)
	}
	other := newWorld(t, api.NoAuth{})
	other.refused(token, "of another key")

	if resp, out := w.ask("GET", "/identity/v3/auth/tokens", "", "X-Auth-Token", token, "X-Subject-Token", short); resp.Status != 200 || out["token"] == nil {
		t.Errorf("validate: %d", resp.Status)
	}
	if resp, _ := w.ask("HEAD", "/identity/v3/auth/tokens", "", "X-Auth-Token", token, "X-Subject-Token", short); resp.Status != 200 {
		t.Errorf("check: %d", resp.Status)
	}
	if resp, _ := w.ask("DELETE", "/identity/v3/auth/tokens", "", "X-Auth-Token", token, "X-Subject-Token", short); resp.Status != 204 {
		t.Errorf("revoke: %d", resp.Status)
	}
	w.refused(short, "revoked")
	if resp, _ := w.ask("GET", "/identity/v3/auth/tokens", "", "X-Auth-Token", token, "X-Subject-Token", short); resp.Status != 404 {
		t.Errorf("validate one that was revoked: %d", resp.Status)
	}
	w.now = w.now.Add(identity.Lifetime / 2)
	late, _ := w.login(`{"auth":{"identity":{"methods":["token"],"token":{"id":"` + token + `"}}}}`)
	w.now = w.now.Add(identity.Lifetime / 2)
	w.refused(token, "after its time")
	w.refused(late, "made from another after the other's time")
}

func TestPasswordsOfTheFileAreAsked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "htpasswd")
	write := func(word string) {
		hash := must.Get(bcrypt.GenerateFromPassword([]byte(word), bcrypt.MinCost))(t)
		must.OK(t, os.WriteFile(file, append([]byte("ann:"), hash...), 0o600))
	}
	write("first")
	basic := must.Get(api.NewHTTPBasic(file))(t)
	w := newWorld(t, basic)
	for _, body := range []string{password("ann", "wrong", inLab), password("eve", "first", inLab), password("ann", "", inLab)} {
		if resp, _ := w.ask("POST", "/identity/v3/auth/tokens", body); resp.Status != http.StatusUnauthorized {
			t.Errorf("%s: %d", body, resp.Status)
		}
	}
	token, _ := w.login(password("ann", "first", inLab))
	if p, err := w.who(token); err != nil || p.User != "ann" {
		t.Fatalf("%+v, %v", p, err)
	}
	w.refused("notused", "without a token of ours and without a password")
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth("ann", "first")
	if _, err := w.tokens.Authenticate(r); err != nil {
		t.Errorf("HTTP basic as ever: %v", err)
	}
	write("second and longer")
	deadline := time.Now().Add(10 * time.Second)
	for { // the file is looked at again once in a while
		if _, err := w.who(token); api.Status(err) == http.StatusUnauthorized {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a token outlives its user's password")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if strings.Contains(w.log.String(), "second") || strings.Contains(w.log.String(), token) {
		t.Error("the log holds a secret")
	}
}

func TestBadRequestsForTokens(t *testing.T) {
	w := newWorld(t, api.NoAuth{})
	for body, status := range map[string]int{
		``: 400, `{}`: 400, `[]`: 400, `{"auth":{}}`: 400, `{"auth":{"identity":{"methods":[]}}}`: 400, `{"auth":7}`: 400,
		`{"auth":{"identity":{"methods":["application_credential"],"application_credential":{"id":"a","secret":"b"}}}}`: 401,
		`{"auth":{"identity":{"methods":["password"]}}}`:                                                                400,
		`{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":""}}}}}`:                                400,
		`{"auth":{"identity":{"methods":["token"]}}}`:                                                                   400,
		`{"auth":{"identity":{"methods":["token"],"token":{"id":"x"}}}}`:                                                401,
		`{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":"a","domain":{"name":"x"}}}}}}`:         401,
		strings.Repeat(`{"auth":`, 60) + strings.Repeat("}", 60):                                                        400,
	} {
		resp, out := w.ask("POST", "/identity/v3/auth/tokens", body)
		if resp.Status != status {
			t.Errorf("%.100s: %d %v, want %d", body, resp.Status, out, status)
		}
		if fault, ok := out["error"].(map[string]any); !ok || fault["message"] == "" || fault["code"] != float64(status) {
			t.Errorf("%.100s: answers %v", body, out)
		}
	}
	for path, status := range map[string]int{"/identity": 300, "/identity/v3": 200, "/identity/v3/": 200, "/identity/v2.0": 404, "/identity/v3/nothing": 404} {
		if resp, _ := w.ask("GET", path, ""); resp.Status != status {
			t.Errorf("%s: %d, want %d", path, resp.Status, status)
		}
	}
	if resp, _ := w.ask("PUT", "/identity/v3/auth/tokens", ""); resp.Status != 405 || resp.Header.Get("Allow") == "" {
		t.Errorf("another method: %d", resp.Status)
	}
}

func TestNamesAreFound(t *testing.T) {
	w := newWorld(t, api.NoAuth{})
	token, _ := w.login(password("ann", "x", inLab))
	lab := access.ProjectID("lab")
	for path, want := range map[string]string{
		"/identity/v3/auth/projects": lab, "/identity/v3/projects?name=lab": lab, "/identity/v3/projects/" + lab: `"name":"lab"`,
		"/identity/v3/users?name=ann": identity.UserID("ann"), "/identity/v3/users/" + identity.UserID("ann"): `"name":"ann"`,
		"/identity/v3/domains": `"Default"`, "/identity/v3/domains/default": `"Default"`, "/identity/v3/auth/domains": `"Default"`,
		"/identity/v3/auth/catalog": `"image"`,
	} {
		resp, out := w.ask("GET", path, "", "X-Auth-Token", token)
		b := must.Get(json.Marshal(out))(t)
		if resp.Status != 200 || !strings.Contains(string(b), want) {
			t.Errorf("%s: %d %s", path, resp.Status, b)
		}
	}
	for _, path := range []string{"/identity/v3/projects/lab", "/identity/v3/users/ann", "/identity/v3/domains/other"} {
		if resp, _ := w.ask("GET", path, "", "X-Auth-Token", token); resp.Status != 404 {
			t.Errorf("%s: %d", path, resp.Status)
		}
	}
}

// FuzzToken: no token but one that was issued is taken, whatever it is made of.
func FuzzToken(f *testing.F) {
	tokens, _, _ := newTokens(f, api.NoAuth{}, time.Now)
	for _, seed := range []string{"salvor.", "salvor.e30.", "salvor.eyJ1c2VyIjoiYSJ9.AAAA", "salvor.!!.x", "salvor...."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if !strings.HasPrefix(token, "salvor.") {
			return
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["X-Auth-Token"] = []string{token}
		if _, err := tokens.Authenticate(r); api.Status(err) != http.StatusUnauthorized {
			t.Fatalf("%q: %v", token, err)
		}
	})
}

// FuzzRequest: whatever is asked for a token is answered by one or by a 4xx.
func FuzzRequest(f *testing.F) {
	tokens, _, _ := newTokens(f, api.NoAuth{}, time.Now)
	handler := identity.New(identity.Config{Tokens: tokens, Auth: tokens, Log: slog.New(slog.DiscardHandler)})
	for _, seed := range []string{password("ann", "x", inLab), password("ann", "x", `,"scope":"unscoped"`), `{"auth":{"identity":{"methods":["token"],"token":{"id":"salvor.x.y"}}}}`, `{"auth":{"scope":{"unscoped":0}}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/identity/v3/auth/tokens", strings.NewReader(body)))
		if w.Code != http.StatusCreated && w.Code/100 != 4 {
			t.Fatalf("%q: %d %s", body, w.Code, w.Body)
		}
	})
}
