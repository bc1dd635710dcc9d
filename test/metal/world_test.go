// Package metal proves that servers on bare metal work through their whole life. It runs the real binary, whose endpoint is its own Bare
// Metal API with machines that exist as records only. The end-to-end test uses a machine of the lab.
package metal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"salvor/client"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
)

const patience = 60 * time.Second

// cloud is a control plane, and an endpoint of the Bare Metal API: its own unless another one is named.
type cloud struct {
	*testing.T
	server *program.Server
	api    *client.Client // of the endpoint
	image  string
	flavor string
}

// newCloud has one flavor that asks for a machine of class baremetal, and one image.
func newCloud(t *testing.T, more string) *cloud {
	t.Helper()
	images := t.TempDir()
	for _, name := range []string{"kernel", "initramfs"} {
		must.OK(t, os.WriteFile(filepath.Join(images, name), []byte("no machine boots this "+name), 0o600))
	}
	c := &cloud{T: t}
	c.server = program.Serve(t, fmt.Sprintf("[conductor]\nautomated_clean = false\nrescue_kernel = %[1]s/kernel\nrescue_ramdisk = %[1]s/initramfs\n"+
		"[ramdisk]\nlisten = %[2]s\n[compute]\nshutdown_timeout = 1\n%[3]s", images, program.FreeAddress(t), more))
	t.Cleanup(func() {
		if t.Failed() {
			log := c.server.Log()
			t.Logf("the server's log:\n%s", log[max(0, len(log)-20_000):])
		}
	})
	c.use(c.server.URL)
	made := c.call(http.MethodPost, "/compute/v2.1/flavors", object{"flavor": object{"name": "metal", "ram": 64, "vcpus": 1, "disk": 1}})
	c.flavor = made["flavor"].(object)["id"].(string)
	c.call(http.MethodPost, "/compute/v2.1/flavors/"+c.flavor+"/os-extra_specs", object{"extra_specs": object{"resources:CUSTOM_BAREMETAL": "1", "resources:VCPU": "0"}})
	c.image = c.addImage("debian")
	return c
}

type object = map[string]any

// use names the endpoint whose machines are looked at.
func (c *cloud) use(url string) {
	c.Helper()
	var err error
	if c.api, err = client.New(client.Config{Endpoint: url}); err != nil {
		c.Fatal(err)
	}
}

func (c *cloud) addImage(name string) string {
	c.Helper()
	made := c.call(http.MethodPost, "/image/v2/images", object{"name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public"})
	id := made["id"].(string)
	c.call(http.MethodPut, "/image/v2/images/"+id+"/file", bytes.Repeat([]byte(name), 1<<12))
	return id
}

// ask sends a request and gives what came of it.
func (c *cloud) ask(method, path string, body any) (int, object) {
	c.Helper()
	answer := fixture.Send(c, method, c.server.URL+path, body, "OpenStack-API-Version", "compute 2.87")
	var out object
	_ = json.Unmarshal([]byte(answer.Body), &out)
	return answer.Status, out
}

// call is ask for what must go well.
func (c *cloud) call(method, path string, body any) object {
	c.Helper()
	status, said := c.ask(method, path, body)
	if status >= 300 {
		c.Fatalf("%s %s: %d %v", method, path, status, said)
	}
	return said
}

// node adds a machine that is available.
func (c *cloud) node(name string, more client.Record) string {
	c.Helper()
	fields := client.Record{"driver": "fake-hardware", "name": name, "resource_class": "baremetal", "properties": object{"cpus": 4, "memory_mb": 8192, "local_gb": 100}}
	for k, v := range more {
		fields[k] = v
	}
	n := must.Get(c.api.CreateNode(c.Context(), fields))(c)
	must.Get(c.api.Create(c.Context(), client.Ports, client.Record{"node_uuid": n.UUID, "address": macOf(name)}))(c)
	for _, step := range []struct{ verb, state string }{{"manage", "manageable"}, {"provide", "available"}} {
		must.OK(c, c.api.Provision(c.Context(), n.UUID, ironic.ProvisionRequest{Target: step.verb}))
		c.becomes(n.UUID, step.state)
	}
	return n.UUID
}

func macOf(name string) string {
	return fmt.Sprintf("52:54:00:00:%02x:%02x", len(name), name[len(name)-1])
}

// becomes waits for a node's provision state.
func (c *cloud) becomes(id, state string) {
	c.Helper()
	c.eventually("node "+id+" is "+state, func() error {
		n, err := c.api.Node(c.Context(), id)
		if err == nil && (n.ProvisionState != state || n.Reservation != "") {
			err = fmt.Errorf("it is %s: %s", n.ProvisionState, n.LastError)
		}
		return err
	})
}

// endpoint adds the endpoint, and waits until machines can be had there.
func (c *cloud) endpoint(url string, machines int) {
	c.Helper()
	c.call(http.MethodPost, "/salvor/v1/clusters", object{"name": "metal", "kind": "ironic", "url": url})
	c.eventually("the endpoint tells its machines", func() error {
		hosts := c.call(http.MethodGet, "/salvor/v1/hosts", nil)["hosts"].([]any)
		if len(hosts) == 0 {
			return fmt.Errorf("no host: %v", c.call(http.MethodGet, "/salvor/v1/clusters", nil))
		}
		inventory := hosts[0].(object)["inventory"].(object)
		there, _ := inventory["machines"].(object)
		if n, _ := there["CUSTOM_BAREMETAL"].(float64); int(n) != machines {
			return fmt.Errorf("%v", inventory)
		}
		return nil
	})
}

// create asks for a server.
func (c *cloud) create(name string) string {
	c.Helper()
	made := c.call(http.MethodPost, "/compute/v2.1/servers", object{"server": object{"name": name, "flavorRef": c.flavor, "imageRef": c.image, "networks": "none"}})
	return made["server"].(object)["id"].(string)
}

// show reads a server; nil: it is gone.
func (c *cloud) show(id string) object {
	c.Helper()
	status, said := c.ask(http.MethodGet, "/compute/v2.1/servers/"+id, nil)
	if status == http.StatusNotFound {
		return nil
	}
	return said["server"].(object)
}

// is waits for a server's status, without a task.
func (c *cloud) is(id, want string) object {
	c.Helper()
	var srv object
	c.eventually("server "+id+" is "+want, func() error {
		srv = c.show(id)
		if srv["status"] != want || srv["OS-EXT-STS:task_state"] != nil {
			return fmt.Errorf("it is %v, task %v, fault %v", srv["status"], srv["OS-EXT-STS:task_state"], srv["fault"])
		}
		return nil
	})
	return srv
}

// act asks for an action, and gives the status and the answer.
func (c *cloud) act(id string, body object) (int, object) {
	c.Helper()
	return c.ask(http.MethodPost, "/compute/v2.1/servers/"+id+"/action", body)
}

func (c *cloud) must(id string, body object) object {
	c.Helper()
	status, said := c.act(id, body)
	if status >= 300 {
		c.Fatalf("%v: %d %v", body, status, said)
	}
	return said
}

func (c *cloud) eventually(what string, holds func() error) {
	c.Helper()
	program.Until(c, what, patience, holds)
}
