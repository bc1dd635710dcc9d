package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/job"
	"salvor/test/must"
)

// scopes authenticates by X-Auth-Token: "root", "PROJECT" for a member there, or "ROLE@DOMAIN" for a role over no project.
type scopes struct{}

func (scopes) Authenticate(r *http.Request) (access.Principal, error) {
	word := r.Header.Get("X-Auth-Token")
	role, domain, landless := strings.Cut(word, "@")
	switch {
	case landless:
		return access.Principal{User: "eve", Role: access.Scoped, Scope: access.Scope{Domain: domain, Roles: strings.Split(role, "+")}}, nil
	case word == "root":
		return access.Principal{User: "root", Role: access.Admin}, nil
	case word == "":
		return access.Principal{}, &api.Error{Status: http.StatusUnauthorized, Text: "who are you?"}
	}
	return access.Principal{User: "ann", Role: access.Scoped, Scope: access.Scope{Project: word, ProjectName: "lab", Roles: []string{"member", "reader"}}}, nil
}

// bird is in the name of all that belongs to somebody, or to nobody.
const bird = "kingfisher"

type estate struct {
	*testing.T
	main http.Handler
	// own are ids by the word that paths have for them.
	own map[string][]string
}

func (e *estate) ask(as, method, path, body string, header ...string) *httptest.ResponseRecorder {
	e.Helper()
	r := httptest.NewRequestWithContext(e.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	for i, all := 0, append([]string{
		"X-Auth-Token", as, "Content-Type", "application/json", "X-OpenStack-Ironic-API-Version", "latest", "X-OpenStack-Nova-API-Version", "2.87",
	}, header...); i+1 < len(all); i += 2 {
		r.Header.Set(all[i], all[i+1])
	}
	if strings.HasPrefix(path, "/volume") {
		r.Header.Set("OpenStack-API-Version", "volume 3.70")
	}
	w := httptest.NewRecorder()
	e.main.ServeHTTP(w, r)
	return w
}

func (e *estate) make(word, as, method, path, body string, field ...string) string {
	e.Helper()
	w := e.ask(as, method, path, body)
	if w.Code/100 != 2 {
		e.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	if len(field) == 0 {
		return ""
	}
	var v any
	must.OK(e, json.Unmarshal(w.Body.Bytes(), &v))
	for _, name := range field {
		v = v.(map[string]any)[name]
	}
	id := fmt.Sprint(v)
	e.own[word] = append(e.own[word], id)
	return id
}

func (e *estate) furnish(project string) {
	for _, owner := range []string{`"owner": "` + project + `", `, ""} {
		n := len(e.own["node"])
		name := fmt.Sprintf("%s-%d", bird, n)
		node := e.make("node", "root", "POST", "/v1/nodes", `{`+owner+`"driver": "fake-hardware", "name": "`+name+`"}`, "uuid")
		e.make("port", "root", "POST", "/v1/ports", fmt.Sprintf(`{"node_uuid": "%s", "address": "52:54:00:00:00:0%d", "extra": {"a": "%s"}}`, node, n, bird), "uuid")
		e.make("portgroup", "root", "POST", "/v1/portgroups", `{"node_uuid": "`+node+`", "name": "g`+name+`"}`, "uuid")
		e.make("allocation", "root", "POST", "/v1/allocations", `{`+owner+`"name": "a`+name+`", "resource_class": "none"}`, "uuid")
		e.make("runbook", "root", "POST", "/v1/runbooks", `{`+owner+`"name": "CUSTOM_r`+name+`", "steps": [{"interface": "deploy", "step": "erase", "order": 1, "args": {}}]}`, "uuid")
	}
	for _, as := range []string{project, "root"} {
		image := e.make("image", as, "POST", "/image/v2/images", `{"name": "`+bird+`", "disk_format": "raw", "container_format": "bare", "visibility": "private"}`, "id")
		e.ask(as, "PUT", "/image/v2/images/"+image+"/file", strings.Repeat("\x00", 4096), "Content-Type", "application/octet-stream")
	}
	e.make("", "root", "POST", "/compute/v2.1/flavors", `{"flavor": {"id": "tiny", "name": "tiny", "ram": 64, "vcpus": 1, "disk": 1}}`)
	server := e.make("server", project, "POST", "/compute/v2.1/servers",
		`{"server": {"name": "`+bird+`", "flavorRef": "tiny", "imageRef": "`+e.own["image"][0]+`", "networks": "none", "metadata": {"`+bird+`": "red"}, "tags": ["`+bird+`"]}}`, "server", "id")
	e.own["server"] = append(e.own["server"], "1")
	e.make("keypair", project, "POST", "/compute/v2.1/os-keypairs", `{"keypair": {"name": "`+bird+`", "type": "ssh"}}`, "keypair", "name")
	e.make("network", "root", "POST", "/salvor/v1/networks", `{"name": "`+bird+`", "bridge": "br-a", "project": "`+project+`"}`, "id")
	for i, at := range []string{project + "/", ""} {
		e.make("volume", "root", "POST", "/volume/v3/"+at+"volumes", fmt.Sprintf(
			`{"volume": {"size": 1, "name": "%s", "metadata": {"salvor:portal": "192.0.2.7", "salvor:iqn": "iqn.2026-01.example:disks", "salvor:lun": "%d"}}}`, bird, i+1), "volume", "id")
	}
	e.own["ident"] = append(append([]string{}, e.own["node"]...), server)
}

// TestNobodyWithoutAProject: whoever has a role, but over no project and not over the system, sees nothing of anybody at any door.
func TestNobodyWithoutAProject(t *testing.T) {
	p := newTestControlPlane(t, "[DEFAULT]\nenabled_hardware_types = fake-hardware\n")
	catalog := must.Get(json.Marshal(p.conductor.Nodes.Catalog()))(t)
	now := time.Now()
	must.OK(t, p.Store.Register(t.Context(), job.Conductor{
		ID: "c1", Incarnation: "i1", Hostname: "c1", Groups: []string{""}, Description: catalog, StartedAt: now, UpdatedAt: now,
	}))
	main, _ := p.handlersFor(scopes{})
	e := &estate{T: t, main: main, own: map[string][]string{}}
	e.furnish(access.ProjectID("lab"))
	doors := main.(api.RouteLister).Endpoints
	for _, role := range []string{"reader", "member+reader", "manager+member+reader", "service", "observer"} {
		as, tried := role+"@d", 0
		for _, d := range doors {
			if d.Method != http.MethodGet || d.Open {
				continue
			}
			for _, path := range e.paths(d.Path) {
				tried++
				w := e.ask(as, d.Method, path, "")
				if w.Code >= 500 {
					t.Errorf("%s: GET %s: %d %.200s", as, path, w.Code, w.Body)
				}
				if strings.Contains(w.Body.String(), bird) || strings.Contains(w.Body.String(), `"count":2`) || strings.Contains(w.Body.String(), `"total_count":2`) {
					t.Errorf("%s: GET %s tells what is another's: %d %.200s", as, path, w.Code, w.Body)
				}
			}
		}
		if tried < 100 {
			t.Errorf("only %d requests by %s", tried, as)
		}
	}
}

// paths are those of a door with what there is in place of its arguments, each with the queries that widen lists.
func (e *estate) paths(shape string) []string {
	paths := []string{""}
	for _, part := range strings.Split(strings.TrimPrefix(shape, "/"), "/") {
		fill := []string{part}
		if word, ok := strings.CutPrefix(part, "{"); ok {
			word = strings.TrimSuffix(word, "}")
			if fill = e.own[word]; fill == nil {
				fill = append(append([]string{access.ProjectID("lab")}, e.own["node"][0]), e.own["server"]...)
			}
		}
		var next []string
		for _, p := range paths {
			for _, f := range fill {
				next = append(next, p+"/"+f)
			}
		}
		paths = next
	}
	for _, p := range paths {
		paths = append(paths, p+"?with_count=1", p+"?all_tenants=1")
	}
	return paths
}
