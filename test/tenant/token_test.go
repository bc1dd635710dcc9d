package tenant

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/store/storetest"
	"salvor/test/must"
	"salvor/test/program"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// eventually waits for a condition, and fails the test if it does not come within a bound.
func eventually(t *testing.T, within time.Duration, what string, is func() bool) {
	t.Helper()
	program.Until(t, what, within, program.If(is))
}

// TestTokensByTheCommandLine walks the life of tokens: the first one, those of a project's own administrator, their end.
func TestTokensByTheCommandLine(t *testing.T) {
	s := newSite(t, "alpha", "beta")
	// One more while the server has the database: the key of the state directory opens the door.
	args := []string{"token", "create", "late", "--role", "reader", "--local", "--config", filepath.Join(s.server.State, "salvor.conf"), "--state-dir", s.server.State, "-f", "value", "-c", "token"}
	s.tokens["late"] = s.salvor("", args...)
	s.tokens["bob"] = s.salvor("alpha-admin", "token", "create", "bob", "--role", "member", "--expires-in", "12h", "-f", "value", "-c", "token")
	for _, tt := range []struct {
		as, method, path, body string
		want                   int
	}{
		{"", "GET", "/v1/nodes", "", 401}, {"root", "GET", "/v1/nodes", "", 200}, {"late", "GET", "/v1/nodes", "", 200}, {"bob", "GET", "/v1/nodes", "", 200},
		{"late", "POST", "/v1/nodes", `{"driver": "fake-hardware"}`, 403}, {"late", "GET", "/v1/drivers", "", 200}, {"bob", "GET", "/v1/drivers", "", 403},
		{"late", "GET", "/compute/v2.1/os-hypervisors", "", 200}, {"late", "POST", "/compute/v2.1/flavors", `{"flavor": {"name": "x", "ram": 1, "vcpus": 1, "disk": 1}}`, 403},
		{"alpha-admin", "GET", "/compute/v2.1/os-hypervisors", "", 403}, {"alpha-admin", "POST", "/compute/v2.1/flavors", `{"flavor": {"name": "x", "ram": 1, "vcpus": 1, "disk": 1}}`, 403},
		{"late", "GET", "/salvor/v1/hosts", "", 200}, {"late", "POST", "/salvor/v1/tokens", `{"name": "x", "role": "reader"}`, 403},
		{"alpha-admin", "GET", "/salvor/v1/hosts", "", 403}, {"bob", "GET", "/salvor/v1/tokens", "", 403},
		{"alpha-admin", "POST", "/salvor/v1/tokens", `{"name": "x", "role": "admin", "project": "beta"}`, 403},
		{"root", "POST", "/salvor/v1/tokens", `{"name": "x", "role": "root"}`, 400}, {"root", "POST", "/salvor/v1/tokens", `{"name": "x y", "role": "reader"}`, 400},
		{"root", "POST", "/salvor/v1/tokens", `{"name": "bob", "role": "reader"}`, 409}, {"root", "POST", "/salvor/v1/tokens", `{"name": "x", "role": "reader", "expires_in": -1}`, 400},
		{"root", "POST", "/salvor/v1/tokens", `{"name": "x", "role": "reader", "digest": "d"}`, 400}, {"root", "DELETE", "/salvor/v1/tokens/nobody", "", 404},
	} {
		if a := s.ask(tt.as, tt.method, tt.path, tt.body); a.Status != tt.want {
			t.Errorf("%s %s %s by %s: %d, want %d: %s", tt.method, tt.path, tt.body, tt.as, a.Status, tt.want, a.Body)
		}
	}
	var listed []map[string]any
	list := func(as string) int {
		t.Helper()
		must.OK(t, json.Unmarshal([]byte(s.salvor(as, "token", "list", "-f", "json")), &listed))
		return len(listed)
	}
	if all, own := list("root"), list("alpha-admin"); all != 9 || own != 4 {
		t.Errorf("root sees %d tokens, alpha's administrator %d", all, own)
	}
	eventually(t, 20*time.Second, "the last use is written", func() bool {
		return s.ask("root", "GET", "/salvor/v1/tokens/bob", "").field(t, "used_at") != "<nil>"
	})
	s.salvor("alpha-admin", "token", "revoke", "bob")
	if a := s.ask("bob", "GET", "/v1/nodes", ""); a.Status != 401 && a.Status != 200 {
		t.Error(a.Status, a.Body)
	}
	eventually(t, 20*time.Second, "bob's token is refused", func() bool { return s.ask("bob", "GET", "/v1/nodes", "").Status == 401 })
	s.nothingKept()
}

// nothingKept: no token's text is in a file of the state directory, or in the log.
func (s *site) nothingKept() {
	s.Helper()
	files := must.Get(filepath.Glob(filepath.Join(s.server.State, "*")))(s)
	places := map[string]string{"the log": s.server.Log()}
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil {
			places[file] = string(b)
		}
	}
	for where, text := range places {
		for who, token := range s.tokens {
			if strings.Contains(text, strings.TrimPrefix(token, "salvor_")) {
				s.Errorf("%s holds the token of %s", where, who)
			}
		}
	}
}

// TestRevokedEverywhere: of two processes on one PostgreSQL the other one refuses within two seconds what one revoked.
func TestRevokedEverywhere(t *testing.T) {
	program.Path(t, "salvor")
	shared := t.TempDir()
	config := fmt.Sprintf("[DEFAULT]\nauth_strategy = token\n[database]\nconnection = %s\n[secrets]\nkey_file = %s\n", storetest.Postgres(t), filepath.Join(shared, "secrets.key"))
	file := filepath.Join(shared, "salvor.conf")
	must.OK(t, os.WriteFile(file, []byte(config), 0o600))
	s := &site{T: t, tokens: map[string]string{}}
	s.tokens["root"] = s.salvor("", "token", "create", "root", "--role", "admin", "--local", "--config", file, "--state-dir", filepath.Join(shared, "cli"), "-f", "value", "-c", "token")
	var servers []*program.Server
	for _, name := range []string{"one", "two"} {
		server := must.Get(program.Launch(filepath.Join(shared, name), strings.Replace(config, "[DEFAULT]\n", "[DEFAULT]\nhost = "+name+"\n", 1)))(t)
		t.Cleanup(server.Stop)
		servers = append(servers, server)
	}
	s.server = servers[0]
	s.token("ci", "reader", "")
	status := func(i int, token string) int {
		t.Helper()
		a := must.Get(request(servers[i].URL, token, "GET", "/v1/nodes", ""))(t)
		return a.Status
	}
	login := s.ask("root", "POST", "/identity/v3/auth/tokens", `{"auth":{"identity":{"methods":["token"],"token":{"id":"`+s.tokens["ci"]+`"}}}}`)
	if login.Status != 201 || login.Header.Get("X-Subject-Token") != s.tokens["ci"] {
		t.Errorf("log in by a token: %d %s", login.Status, login.Body)
	}
	for i := range servers {
		if got := status(i, s.tokens["ci"]); got != 200 {
			t.Fatalf("server %d: %d", i, got)
		}
	}
	s.salvor("root", "token", "revoke", "ci")
	began := time.Now()
	for i := range servers {
		eventually(t, 20*time.Second, "the token is refused", func() bool { return status(i, s.tokens["ci"]) == 401 })
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("a revoked token opened for %s", took)
	}
}

// TestPolicyFile: rules of a file go over the defaults on Ironic's, Nova's and Cyclades' faces, and are read again.
func TestPolicyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string) {
		t.Helper()
		must.OK(t, os.WriteFile(file+".new", []byte(text), 0o600))
		must.OK(t, os.Rename(file+".new", file))
	}
	closed := "\"baremetal:node:get_states\": \"role:admin\"\n\"os_compute_api:servers:index\": \"!\"\n\"os_compute_api:os-hypervisors:list\": \"role:reader\"\n"
	write(closed)
	s := newSiteWith(t, byToken+"[oslo_policy]\npolicy_file = "+file+"\n", "alpha")
	node := s.made("root", "POST", "/v1/nodes", `{"driver": "fake-hardware", "owner": "`+s.ask("root", "GET", "/salvor/v1/tokens/alpha-member", "").field(t, "project_id")+`"}`, "uuid")
	paths := []string{"/v1/nodes/" + node + "/states", "/compute/v2.1/servers", "/cyclades/compute/v2.0/servers", "/compute/v2.1/os-hypervisors"}
	states := func() string {
		t.Helper()
		var out []string
		for _, path := range paths {
			out = append(out, fmt.Sprint(s.ask("alpha-member", "GET", path, "").Status))
		}
		return strings.Join(out, " ")
	}
	if got := states(); got != "403 403 403 200" {
		t.Errorf("closed by the file: %s", got)
	}
	write("baremetal:node:get_states: role:admin and\n")
	eventually(t, 20*time.Second, "the broken file is told of", func() bool { return strings.Contains(s.server.Log(), "the rules of before stay") })
	if got := states(); got != "403 403 403 200" {
		t.Errorf("after a broken file: %s", got)
	}
	write("{}\n")
	eventually(t, 20*time.Second, "the defaults are back", func() bool { return states() == "200 200 200 403" })
}
