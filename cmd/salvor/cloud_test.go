package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/cmd/salvor/kit"
	"salvor/test/must"
)

// runWithoutURL runs the program with an environment of its own: an empty home, the working directory dir, and no variable that names an API.
func runWithoutURL(t *testing.T, dir string, env map[string]string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	for _, name := range []string{"SALVOR_URL", "OS_ENDPOINT", "OS_CLOUD", "OS_CLIENT_CONFIG_FILE", "XDG_CONFIG_HOME", "SALVOR_TOKEN", "OS_TOKEN", "SALVOR_USER", "OS_REGION_NAME"} {
		t.Setenv(name, env[name])
	}
	t.Setenv("HOME", filepath.Join(dir, "home"))
	t.Chdir(dir)
	root := newRootCommand()
	var out, errs bytes.Buffer
	root.SetArgs(args)
	root.SetIn(strings.NewReader(""))
	root.SetOut(&out)
	root.SetErr(&errs)
	if err := root.ExecuteContext(t.Context()); err != nil {
		status = kit.ExitStatus(err)
		fmt.Fprintln(&errs, "salvor:", err)
	}
	return out.String(), errs.String(), status
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
}

// fakeOpenStack is a Keystone with a Bare Metal API. Each records how it was asked.
type fakeOpenStack struct {
	*httptest.Server
	auth  json.RawMessage // of the newest login
	creds string          // of the newest request for nodes
}

func newFakeOpenStack(t *testing.T) *fakeOpenStack {
	f := &fakeOpenStack{}
	mux := http.NewServeMux()
	catalog := func(w http.ResponseWriter) {
		fmt.Fprintf(w, `{"token": {"expires_at": "2099-01-01T00:00:00.000000Z", "catalog": [{"type": "baremetal", "endpoints": [
			{"interface": "public", "region": "r1", "region_id": "r1", "url": %q}]}]}}`, f.URL+"/metal")
	}
	mux.HandleFunc("GET /identity/v3/auth/tokens", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Subject-Token", r.Header.Get("X-Subject-Token"))
		catalog(w)
	})
	mux.HandleFunc("POST /identity/v3/auth/tokens", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Auth json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&body)
		f.auth = body.Auth
		if bytes.Contains(body.Auth, []byte(`"wrong"`)) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Subject-Token", "tok")
		w.WriteHeader(http.StatusCreated)
		catalog(w)
	})
	mux.HandleFunc("GET /metal/v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		f.creds = strings.Trim(r.Header.Get("X-Auth-Token")+" "+user+" "+password, " ")
		fmt.Fprint(w, `{"nodes": [{"uuid": "u1", "name": "a"}]}`)
	})
	mux.HandleFunc("GET /metal/v1", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

const cloudsYAML = `clouds:
  plain: {auth_type: none, baremetal_endpoint_override: "URL/metal"}
  open: {auth_type: none, auth: {endpoint: "URL/metal"}}
  basic: {auth_type: http_basic, auth: {endpoint: "URL/metal", username: ann}}
  fixed: {auth_type: admin_token, auth: {endpoint: "URL/metal", token: stored}}
  lab:
    region_name: r1
    auth: {auth_url: "URL/identity/v3", username: ann, project_name: lab, user_domain_name: Default, project_domain_name: Default}
  app:
    auth_type: v3applicationcredential
    auth: {auth_url: "URL/identity/v3", application_credential_id: a1, application_credential_secret: s1}
  token: {auth_type: token, auth: {auth_url: "URL/identity/v3", token: t1}}
  refused: {auth: {auth_url: "URL/identity/v3", username: ann, password: wrong, project_name: lab, user_domain_name: Default, project_domain_name: Default}}
  elsewhere: {region_name: r2, auth: {auth_url: "URL/identity/v3", token: t1}}
  bare: {auth_type: none}
  noauthurl: {auth: {username: ann}}
`

func writeClouds(t *testing.T, f *fakeOpenStack) string {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "clouds.yaml"), strings.ReplaceAll(cloudsYAML, "URL", f.URL))
	writeFile(t, filepath.Join(dir, "secure.yaml"), "clouds:\n  lab: {auth: {password: p1}}\n  basic: {auth: {password: p2}}\n")
	return dir
}

// TestCloud reaches the API of each kind of cloud with the credentials of that cloud.
func TestCloud(t *testing.T) {
	f := newFakeOpenStack(t)
	dir := writeClouds(t, f)
	for name, want := range map[string]struct{ creds, auth string }{
		"plain": {"", ""}, "open": {"", ""}, "basic": {"ann p2", ""}, "fixed": {"stored", ""},
		"lab": {"tok", `"password":"p1"`}, "app": {"tok", `"secret":"s1"`}, "token": {"t1", ""},
	} {
		f.creds, f.auth = "none", nil
		for _, run := range []struct {
			env  map[string]string
			args []string
		}{
			{nil, []string{"node", "list", "--os-cloud", name}},
			{map[string]string{"OS_CLOUD": name}, []string{"node", "list"}},
			// What is typed comes before the environment.
			{map[string]string{"OS_CLOUD": "refused", "SALVOR_URL": "http://127.0.0.1:1", "SALVOR_TOKEN": "other"}, []string{"node", "list", "--os-cloud", name}},
		} {
			out, errs, status := runWithoutURL(t, dir, run.env, run.args...)
			if status != 0 || !strings.Contains(out, "u1") || f.creds != want.creds || !strings.Contains(string(f.auth), want.auth) {
				t.Errorf("%s: status %d, sent %q, login %s\n%s", name, status, f.creds, f.auth, errs)
			}
		}
	}
}

// TestCloudPrecedence: in the environment the variables of the API come before OS_CLOUD, and a token before the login of the cloud.
func TestCloudPrecedence(t *testing.T) {
	f := newFakeOpenStack(t)
	dir := writeClouds(t, f)
	for _, c := range []struct {
		env   map[string]string
		args  string
		creds string
	}{
		{map[string]string{"OS_CLOUD": "refused", "SALVOR_URL": f.URL + "/metal"}, "node list", ""},
		{map[string]string{"OS_CLOUD": "no such cloud", "OS_ENDPOINT": f.URL + "/metal", "OS_TOKEN": "mine"}, "node list", "mine"},
		{map[string]string{"OS_CLOUD": "plain", "SALVOR_TOKEN": "mine"}, "node list", "mine"},
		{nil, "node list --os-cloud lab --url " + f.URL + "/metal", "tok"},
		{map[string]string{"OS_CLIENT_CONFIG_FILE": filepath.Join(dir, "other.yaml")}, "node list --os-cloud lab", "theirs"},
	} {
		writeFile(t, filepath.Join(dir, "other.yaml"), "clouds: {lab: {auth_type: admin_token, auth: {token: theirs, endpoint: '"+f.URL+"/metal'}}}")
		f.creds = "none"
		if _, errs, status := runWithoutURL(t, dir, c.env, strings.Fields(c.args)...); status != 0 || f.creds != c.creds {
			t.Errorf("%v %s: status %d, sent %q, want %q\n%s", c.env, c.args, status, f.creds, c.creds, errs)
		}
	}
}

// TestCloudRefused tells in one line what is wrong with a cloud, and what there is.
func TestCloudRefused(t *testing.T) {
	f := newFakeOpenStack(t)
	dir, empty := writeClouds(t, f), t.TempDir()
	broken, large := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(broken, "clouds.yaml"), "clouds: [")
	writeFile(t, filepath.Join(large, "clouds.yaml"), strings.Repeat("#", kit.MaxCloudsFile+1))
	for _, c := range []struct {
		dir, cloud string
		status     int
		want       string
	}{
		{dir, "lba", kit.StatusUsage, `cloud "lba": unknown; clouds.yaml has app, bare, basic, elsewhere, fixed, lab, noauthurl, open, plain, refused, token`},
		{empty, "lab", kit.StatusUsage, `cloud "lab": there is no clouds.yaml; looked for clouds.yaml, ` + filepath.Join(empty, "home/.config/openstack/clouds.yaml") + ", /etc/openstack/clouds.yaml"},
		{dir, "bare", kit.StatusUsage, `cloud "bare" of clouds.yaml: auth_type none needs baremetal_endpoint_override`},
		{dir, "noauthurl", kit.StatusUsage, `cloud "noauthurl" of clouds.yaml: it has no auth_url`},
		{dir, "refused", kit.StatusFailed, `cloud "refused": Keystone at ` + f.URL + `/identity/v3 refuses its credentials`},
		{dir, "elsewhere", kit.StatusFailed, `cloud "elsewhere": the catalog of Keystone has no service baremetal`},
		{broken, "lab", kit.StatusUsage, "clouds.yaml is no clouds.yaml: "},
		{large, "lab", kit.StatusUsage, "larger than 1048576 bytes"},
	} {
		_, errs, status := runWithoutURL(t, c.dir, nil, "node", "list", "--os-cloud", c.cloud)
		if status != c.status || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, want %d and %q:\n%s", c.cloud, status, c.status, c.want, errs)
		}
	}
}
