package tenant

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/access"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
)

// patience bounds one request, and one run of the command line.
const patience = 60 * time.Second

// site is a control plane whose users have tokens of its own.
type site struct {
	*testing.T
	server *program.Server
	tokens map[string]string // by who has them
}

const byToken = "[DEFAULT]\nauth_strategy = token\nenabled_hardware_types = fake-hardware\n"

// newSite makes the first token before the server runs, and by that one each of the others: PROJECT-ROLE.
func newSite(t *testing.T, projects ...string) *site { return newSiteWith(t, byToken, projects...) }

func newSiteWith(t *testing.T, text string, projects ...string) *site {
	t.Helper()
	state := t.TempDir()
	config := filepath.Join(state, "salvor.conf")
	must.OK(t, os.WriteFile(config, []byte(text), 0o600))
	s := &site{T: t, tokens: map[string]string{}}
	s.tokens["root"] = s.salvor("", "token", "create", "root", "--role", "admin", "--local", "--config", config, "--state-dir", state, "-f", "value", "-c", "token")
	var err error
	if s.server, err = program.Launch(state, text); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.server.Stop)
	for _, project := range projects {
		for _, role := range []string{"admin", "member", "reader"} {
			s.token(project+"-"+role, role, project)
		}
	}
	return s
}

// salvor runs the command line as somebody and gives what it printed.
func (s *site) salvor(as string, args ...string) string {
	s.Helper()
	return s.cli(as).Run(s, args...)
}

func (s *site) try(as string, args ...string) (string, error) { return s.cli(as).Try(s, args...) }

func (s *site) cli(as string) program.CLI {
	cli := program.CLI{Token: s.tokens[as]}
	if s.server != nil {
		cli.URL = s.server.URL
	}
	return cli
}

// token makes one by the command line.
func (s *site) token(name, role, project string) {
	s.Helper()
	args := []string{"token", "create", name, "--role", role, "-f", "value", "-c", "token"}
	if project != "" {
		args = append(args, "--project", project)
	}
	s.tokens[name] = s.salvor("root", args...)
}

type answer struct{ fixture.Answer }

func (a answer) field(t testing.TB, names ...string) string {
	t.Helper()
	var v any
	a.Decode(t, &v)
	for _, name := range names {
		o, _ := v.(map[string]any)
		v = o[name]
	}
	return fmt.Sprint(v)
}

var client = &http.Client{Timeout: patience}

func (s *site) ask(as, method, path, body string) answer {
	s.Helper()
	a := must.Get(request(s.server.URL, s.tokens[as], method, path, body))(s)
	return a
}

func request(url, token, method, path, body string) (answer, error) {
	contentType := "application/json"
	if strings.HasSuffix(path, "/file") {
		contentType = "application/octet-stream"
	}
	if method == http.MethodPatch && strings.HasPrefix(path, "/image/") {
		contentType = "application/openstack-images-v2.1-json-patch"
	}
	a, err := fixture.TrySend(context.Background(), client, method, url+path, body,
		"X-Auth-Token", token, "Content-Type", contentType, "X-OpenStack-Ironic-API-Version", "1.112", "X-OpenStack-Nova-API-Version", "2.87")
	return answer{a}, err
}

// made asks for something that must be made, and gives a field of it.
func (s *site) made(as, method, path, body string, field ...string) string {
	s.Helper()
	a := s.ask(as, method, path, body)
	if a.Status/100 != 2 {
		s.Fatalf("%s %s by %s: %d %s", method, path, as, a.Status, a.Body)
	}
	if len(field) == 0 {
		return ""
	}
	return a.field(s, field...)
}

// furnish creates what a project has, and gives the ids by the name that paths have for each.
func (s *site) furnish(project string) map[string]string {
	s.Helper()
	id, own := access.ProjectID(project), map[string]string{"project": access.ProjectID(project), "name": project + "s-node"}
	node := s.made("root", "POST", "/v1/nodes", `{"driver": "fake-hardware", "name": "`+own["name"]+`", "owner": "`+id+`", "resource_class": "`+project+`"}`, "uuid")
	own["node"] = node
	below := func(word, path, body string) {
		own[word] = s.made("root", "POST", path, `{"node_uuid": "`+node+`", `+body+`}`, "uuid")
	}
	below("group", "/v1/portgroups", `"name": "`+project+`s-group"`)
	below("port", "/v1/ports", `"address": "52:54:00:00:00:`+id[:2]+`"`)
	below("connector", "/v1/volume/connectors", `"type": "iqn", "connector_id": "iqn.2026-01.example:`+project+`"`)
	below("target", "/v1/volume/targets", `"volume_type": "iscsi", "volume_id": "`+project+`s-volume", "boot_index": 0`)
	s.made("root", "PUT", "/v1/nodes/"+node+"/traits/CUSTOM_A", "")
	own["allocation"] = s.made("root", "POST", "/v1/allocations", `{"name": "`+project+`s-allocation", "resource_class": "none", "owner": "`+id+`"}`, "uuid")
	own["runbook"] = s.made("root", "POST", "/v1/runbooks",
		`{"name": "`+project+`s-runbook", "owner": "`+id+`", "steps": [{"interface": "deploy", "step": "erase", "order": 1, "args": {}}]}`, "uuid")

	member := project + "-member"
	own["image"] = s.made(member, "POST", "/image/v2/images", `{"name": "`+project+`s-image", "disk_format": "raw", "container_format": "bare", "visibility": "private"}`, "id")
	s.made(member, "PUT", "/image/v2/images/"+own["image"]+"/file", strings.Repeat("\x00", 4096))
	own["keypair"] = project + "s-key"
	s.made(member, "POST", "/compute/v2.1/os-keypairs", `{"keypair": {"name": "`+own["keypair"]+`", "type": "ssh"}}`)
	own["network"] = s.made("root", "POST", "/salvor/v1/networks", `{"name": "`+project+`s-network", "bridge": "br-`+project+`", "project": "`+id+`"}`, "id")
	own["volume"] = s.made("root", "POST", "/volume/v3/"+id+"/volumes", `{"volume": {"size": 1, "name": "`+project+`s-disk", "metadata": {"salvor:portal": "192.0.2.7", "salvor:iqn": "iqn.2026-01.example:`+project+`", "salvor:lun": "1", "color": "red"}}}`, "volume", "id")
	own["server"] = s.made(member, "POST", "/compute/v2.1/servers",
		`{"server": {"name": "`+project+`s-server", "flavorRef": "tiny", "imageRef": "`+own["image"]+`", "networks": "none", "metadata": {"color": "red"}, "tags": ["red"]}}`, "server", "id")
	own["number"] = s.number(member, project+"s-server")
	own["token"] = s.made("root", "GET", "/salvor/v1/tokens/"+project+"-reader", "", "id")
	return own
}

// number is the id of a server on the face of Cyclades.
func (s *site) number(as, name string) string {
	s.Helper()
	var list struct {
		Servers []struct {
			ID   int64
			Name string
		}
	}
	a := s.ask(as, "GET", "/cyclades/compute/v2.0/servers", "")
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil {
		s.Fatal(err, a.Body)
	}
	for _, one := range list.Servers {
		if one.Name == name {
			return fmt.Sprint(one.ID)
		}
	}
	s.Fatalf("no server %s: %s", name, a.Body)
	return ""
}
