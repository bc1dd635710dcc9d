//go:build e2e

package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/services"

	"salvor/lab/sim"
	"salvor/secret"
	"salvor/test/must"
	"salvor/test/program"
)

// compute is a salvor with one simulated VM host, under keystone.
type compute struct {
	t     testing.TB
	url   string
	token string // an administrator's
}

// call asks it as the administrator.
func (c *compute) call(method, path string, body any) map[string]any {
	c.t.Helper()
	text := must.Get(json.Marshal(body))(c.t)
	kind := "application/json"
	if raw, ok := body.([]byte); ok {
		text, kind = raw, "application/octet-stream"
	}
	request := must.Get(http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader(text)))(c.t)
	request.Header.Set("X-Auth-Token", c.token)
	request.Header.Set("Content-Type", kind)
	response := must.Get(http.DefaultClient.Do(request))(c.t)
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		c.t.Fatalf("%s %s: %d %v: %s", method, path, response.StatusCode, err, said)
	}
	var answer map[string]any
	_ = json.Unmarshal(said, &answer)
	return answer
}

func (c *compute) flavor(name string) string {
	c.t.Helper()
	made := c.call(http.MethodPost, "/compute/v2.1/flavors", map[string]any{"flavor": map[string]any{"name": name, "ram": 64, "vcpus": 1, "disk": 1}})
	return made["flavor"].(map[string]any)["id"].(string)
}

func (c *compute) image(name string) string {
	c.t.Helper()
	made := c.call(http.MethodPost, "/image/v2/images", map[string]any{"name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public"})
	id := made["id"].(string)
	c.call(http.MethodPut, "/image/v2/images/"+id+"/file", bytes.Repeat([]byte(name), 1<<16))
	return id
}

// newCompute starts it and puts it into the catalog.
func newCompute(t testing.TB, k *keystone) *compute {
	t.Helper()
	images := t.TempDir()
	for _, name := range []string{"kernel", "initramfs"} {
		write(t, images, name, "no machine boots this "+name)
	}
	door := program.FreeAddress(t)
	s := program.Serve(t, k.configuration()+fmt.Sprintf("[conductor]\nrescue_kernel = %[1]s/kernel\nrescue_ramdisk = %[1]s/initramfs\n[hosts]\nlisten = %[2]s\n[compute]\nshutdown_timeout = 1\n", images, door))
	for kind, path := range map[string]string{"compute": "/compute/v2.1", "image": "/image", "volumev3": "/volume/v3/$(tenant_id)s"} {
		service := must.Get(services.Create(t.Context(), k.api, services.CreateOpts{Type: kind, Extra: map[string]any{"name": kind}}).Extract())(t).ID
		k.announce(service, "RegionOne", s.URL+path)
	}
	admin := k.as("admin", adminPassword, &gophercloud.AuthScope{ProjectName: "admin", DomainName: "Default"})
	c := &compute{t: t, url: s.URL, token: admin.Token()}
	join := c.call(http.MethodPost, "/salvor/v1/join-tokens", map[string]any{})["token"].(string)
	var log program.Buffer
	h := must.Get(sim.StartHost(t.Context(), sim.Config{
		Controller: "https://" + door, Token: secret.New(join), StateDir: t.TempDir(), Name: "vm1", Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, sim.NewMachine()))(t)
	t.Cleanup(func() {
		if err := h.Stop(); err != nil {
			t.Errorf("the host ended with %v", err)
		}
		if t.Failed() {
			text := s.Log()
			t.Logf("the server's log:\n%s\nthe host's:\n%s", text[max(0, len(text)-20_000):], log.String())
		}
	})
	return c
}

// prepareRescue has tempest rescue servers as users of keystone that it makes by itself.
func prepareRescue(w *cloud, dir string) []string {
	c := newCompute(w.keystone.t, w.keystone)
	text := `[DEFAULT]
log_file = DIR/tempest.log
[oslo_concurrency]
lock_path = DIR/lock
[auth]
use_dynamic_credentials = true
create_isolated_networks = false
admin_username = admin
admin_password = PASSWORD
admin_project_name = admin
admin_domain_name = Default
default_credentials_domain_name = Default
[identity]
auth_version = v3
uri_v3 = AUTH
region = RegionOne
v3_endpoint_type = public
[identity-feature-enabled]
api_v2 = false
api_v3 = true
[service_available]
neutron = false
nova = true
glance = true
cinder = false
swift = false
[compute]
image_ref = ` + c.image("debian") + `
image_ref_alt = ` + c.image("other") + `
flavor_ref = ` + c.flavor("small") + `
flavor_ref_alt = ` + c.flavor("large") + `
min_microversion = 2.1
max_microversion = 2.88
build_interval = 1
build_timeout = 120
[compute-feature-enabled]
rescue = true
stable_rescue = false
pause = true
[validation]
run_validation = false
`
	w.write(dir, "tempest.conf", text)
	must.OK(w.keystone.t, os.MkdirAll(filepath.Join(dir, "lock"), 0o700))
	return []string{"TEMPEST_CONFIG_DIR=" + dir, "TEMPEST_CONFIG=tempest.conf"}
}
