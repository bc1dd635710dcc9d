//go:build openstack

package openstack

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/lab"
	"salvor/test/machine"
	"salvor/test/must"
	"salvor/test/program"
)

const password = "of-this-run-only"

// cloud is a running OpenStack with two bare metal services: Debian's Ironic and salvor.
type cloud struct {
	*site
	token  string // of the user admin in the project admin
	salvor *program.Server
	// baremetal are the URLs of the two services, by the name of the nova-compute that uses each.
	baremetal map[string]string
	machine   lab.MachineStatus // that salvor deploys
}

// sides are the names of the two nova-computes.
var sides = []string{"ironic", "salvor"}

func newCloud(t testing.TB, deployed lab.MachineStatus) *cloud {
	t.Helper()
	l := newSite(t)
	c := &cloud{site: l, baremetal: map[string]string{}, machine: deployed}
	l.set("PASSWORD", password)
	l.set("RAMDISK", machine.Ramdisk(t))
	l.set("BMC", must.Get(url.Parse(deployed.Address))(t).Hostname())
	for _, name := range []string{"KEYSTONE", "PLACEMENT", "GLANCE", "NEUTRON", "NOVA", "IRONIC"} {
		l.port(name)
	}
	must.OK(l, l.startMessages())
	l.step("RabbitMQ runs")
	c.writeKeys()
	l.port("DB")
	c.configure()
	l.startDatabase()
	l.step("MariaDB has all schemas")
	c.startIdentity()
	l.step("Keystone runs")
	c.startServices()
	l.step("placement, Glance, Neutron, Nova, Ironic and salvor run")
	c.startComputes()
	l.step("two nova-computes run")
	return c
}

func (c *cloud) writeKeys() {
	for _, name := range []string{"fernet/0", "fernet/1"} {
		key := make([]byte, 32)
		_, _ = rand.Read(key)
		c.file(name, base64.URLEncoding.EncodeToString(key))
	}
	for _, dir := range []string{"images", "glance-staging", "glance-tasks", "neutron", "nova", "ironic", "ironic/lock", "nova-ironic", "nova-salvor"} {
		c.file(dir+"/.keep", "")
	}
}

func (c *cloud) configure() {
	c.file("keystone.conf", keystoneConf)
	c.file("placement/placement.conf", placementConf)
	c.file("glance.conf", glanceConf)
	c.file("neutron.conf", neutronConf)
	c.file("ironic.conf", ironicConf)
	c.set("NOVA_DB", "nova_cell0")
	c.file("nova-cell0.conf", novaConf)
	c.set("NOVA_DB", "nova")
	c.file("nova.conf", novaConf)
}

func (c *cloud) conf(name string) string { return filepath.Join(c.dir, name) }

// startIdentity starts Keystone with the services' users and the catalog.
func (c *cloud) startIdentity() {
	c.Helper()
	port := c.fill("{KEYSTONE}")
	url := "http://127.0.0.1:" + port + "/v3"
	must.OK(c, c.run("keystone-manage", "--config-file", c.conf("keystone.conf"), "bootstrap", "--bootstrap-password", password, "--bootstrap-region-id", "RegionOne",
		"--bootstrap-public-url", url, "--bootstrap-internal-url", url, "--bootstrap-admin-url", url))
	must.OK(c, c.uwsgi("keystone", port, "/usr/bin/keystone-wsgi-public", "--config-file "+c.conf("keystone.conf"), 3))
	c.login()
	project := c.identity("projects", "project", object{"name": "service", "domain_id": "default"})
	role := object{}
	for _, one := range c.must("GET", url+"/roles", nil, 200)["roles"].([]any) {
		role[text(one, "name")] = text(one, "id")
	}
	if role["service"] == nil {
		role["service"] = c.identity("roles", "role", object{"name": "service"})
	}
	for _, name := range []string{"nova", "placement", "glance", "neutron", "ironic", "salvor"} {
		user := c.identity("users", "user", object{"name": name, "password": password, "domain_id": "default"})
		for _, r := range []string{"admin", "service"} {
			c.must("PUT", fmt.Sprintf("%s/projects/%s/users/%s/roles/%s", url, project, user, role[r]), nil, 204)
		}
	}
	for kind, at := range map[string]string{
		"placement": "http://127.0.0.1:{PLACEMENT}", "image": "http://127.0.0.1:{GLANCE}", "network": "http://127.0.0.1:{NEUTRON}", "compute": "http://127.0.0.1:{NOVA}/v2.1",
	} {
		service := c.identity("services", "service", object{"type": kind, "name": kind})
		for _, access := range []string{"public", "internal", "admin"} {
			c.identity("endpoints", "endpoint", object{"service_id": service, "interface": access, "region": "RegionOne", "url": c.fill(at)})
		}
	}
}

// login gets the token of the administrator.
func (c *cloud) login() {
	c.Helper()
	body := object{"auth": object{
		"identity": object{"methods": []string{"password"}, "password": object{"user": object{"name": "admin", "domain": object{"id": "default"}, "password": password}}},
		"scope":    object{"project": object{"name": "admin", "domain": object{"id": "default"}}},
	}}
	answer := must.Get(c.ask("POST", c.fill("http://127.0.0.1:{KEYSTONE}/v3/auth/tokens"), body))(c)
	if c.token = answer.header.Get("X-Subject-Token"); answer.status != 201 || c.token == "" {
		c.Fatalf("log in to Keystone: %d %s", answer.status, answer.body)
	}
}

// identity makes a thing of Keystone and gives its id.
func (c *cloud) identity(path, kind string, o object) string {
	c.Helper()
	return text(c.must("POST", c.fill("http://127.0.0.1:{KEYSTONE}/v3/"+path), object{kind: o}, 201)[kind], "id")
}

func (c *cloud) startServices() {
	c.Helper()
	nova := c.conf("nova.conf")
	c.together(
		func() error {
			return c.uwsgi("placement", c.fill("{PLACEMENT}"), "/usr/bin/placement-api", "", 2, "OS_PLACEMENT_CONFIG_DIR="+c.conf("placement"))
		},
		func() error {
			return c.listen("glance", "{GLANCE}", "glance-api", "--config-file", c.conf("glance.conf"))
		},
		func() error {
			return c.listen("neutron", "{NEUTRON}", "neutron-server", "--config-file", c.conf("neutron.conf"))
		},
		func() error {
			return c.listen("ironic", "{IRONIC}", python, "-c", "import sys; from ironic.cmd.singleprocess import main; sys.exit(main())", "--config-file", c.conf("ironic.conf"))
		},
		func() error {
			if err := c.run("nova-manage", "--config-file", nova, "cell_v2", "map_cell0", "--database_connection", c.fill("mysql+pymysql://root@127.0.0.1:{DB}/nova_cell0")); err != nil {
				return err
			}
			if err := c.run("nova-manage", "--config-file", nova, "cell_v2", "create_cell", "--name", "cell1"); err != nil {
				return err
			}
			for _, name := range []string{"nova-conductor", "nova-scheduler"} {
				if err := c.start(name, nil, name, "--config-file", nova); err != nil {
					return err
				}
			}
			return c.listen("nova-api", "{NOVA}", "nova-api", "--config-file", nova)
		},
	)
	c.salvor = program.Serve(c, c.fill(salvorConf))
	c.Cleanup(func() {
		if c.Failed() {
			log := c.salvor.Log()
			c.Logf("salvor:\n%s", log[max(0, len(log)-6000):])
		}
	})
	c.baremetal["ironic"], c.baremetal["salvor"] = c.fill("http://127.0.0.1:{IRONIC}"), c.salvor.URL
}

// listen starts a daemon and waits for its port.
func (c *cloud) listen(name, port, command string, args ...string) error {
	if err := c.start(name, nil, command, args...); err != nil {
		return err
	}
	return c.answers(name, c.fill(port))
}

func (c *cloud) startComputes() {
	c.Helper()
	for _, side := range sides {
		host := "nova-" + side
		c.set("HOST", host)
		c.set("BAREMETAL", c.baremetal[side])
		over := c.file(host+".conf", computeConf)
		must.OK(c, c.start("compute-"+side, nil, "nova-compute", "--config-file", c.conf("nova.conf"), "--config-file", over))
	}
}

// object is one of JSON.
type object = map[string]any

// answer is that of an API.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ask sends a request with the administrator's token and the newest microversions that Zed's services share.
func (c *cloud) ask(method, url string, body any) (answer, error) {
	var reader io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case io.Reader:
		reader, kind = b, "application/octet-stream"
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		reader = strings.NewReader(string(raw))
	}
	ctx, cancel := context.WithTimeout(c.Context(), 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, reader)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", kind)
	r.Header.Set("X-Auth-Token", c.token)
	r.Header.Set("X-OpenStack-Nova-API-Version", "2.79")
	r.Header.Set("X-OpenStack-Ironic-API-Version", "1.80")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, raw}, err
}

// must sends a request that has to be answered with a status.
func (c *cloud) must(method, url string, body any, want int) object {
	c.Helper()
	a := must.Get(c.ask(method, url, body))(c)
	if a.status != want {
		c.Fatalf("%s %s: %d, want %d: %.1000s", method, url, a.status, want, a.body)
	}
	return a.object()
}

// object is the body of an answer; empty where that is none.
func (a answer) object() (out object) {
	_ = json.Unmarshal(a.body, &out)
	return out
}

// text gives a member of an object as text.
func text(o any, key string) string {
	m, _ := o.(object)
	s, _ := m[key].(string)
	return s
}
