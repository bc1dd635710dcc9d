package ironic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"salvor/api"
	"salvor/api/ironic"
	"salvor/metal"
	"salvor/test/debian"
	"salvor/test/must"
)

// baremetal runs the real client of python3-ironicclient.
type baremetal struct {
	*testing.T
	auth []string
}

func newBaremetal(t *testing.T, auth ...string) *baremetal {
	debian.Program(t, "baremetal", "python3-ironicclient")
	return &baremetal{t, auth}
}

// run gives the exit status and both outputs.
func (b *baremetal) run(args ...string) (ok bool, stdout, stderr string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "baremetal", append(b.auth, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+b.TempDir(), "no_proxy=*", "PYTHONWARNINGS=ignore")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	return err == nil, out.String(), errs.String()
}

// must runs a command that has to succeed and decodes its JSON, if it prints any.
func (b *baremetal) must(args ...string) any {
	b.Helper()
	ok, out, errs := b.run(args...)
	if !ok {
		b.Fatalf("baremetal %s: %s%s", strings.Join(args, " "), out, errs)
	}
	var v any
	if strings.Contains(strings.Join(args, " "), "-f json") {
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			b.Fatalf("baremetal %s: %v in %s", strings.Join(args, " "), err, out)
		}
	}
	return v
}

func TestRealClient(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.handler)
	defer server.Close()
	b := newBaremetal(t, "--os-auth-type", "none", "--os-endpoint", server.URL)
	n := b.must("node", "create", "--driver", "fake-hardware", "--name", "n1", "--driver-info", "fake_password=hush",
		"--property", "cpus=4", "--resource-class", "big", "-f", "json").(map[string]any)
	if n["name"] != "n1" || n["driver_info"].(map[string]any)["fake_password"] != "******" || n["resource_class"] != "big" {
		t.Errorf("create: %v", n)
	}
	if list := b.must("node", "list", "-f", "json").([]any); len(list) != 1 || list[0].(map[string]any)["Provisioning State"] != "enroll" {
		t.Errorf("list: %v", list)
	}
	b.must("node", "set", "n1", "--extra", "a=b", "--driver-info", "fake_address=x")
	b.must("port", "create", "52:54:00:AA:BB:01", "--node", n["uuid"].(string), "--extra", "vif_port_id=br-tenant", "-f", "json")
	if list := b.must("port", "list", "-f", "json").([]any); len(list) != 1 || list[0].(map[string]any)["Address"] != "52:54:00:aa:bb:01" {
		t.Errorf("ports: %v", list)
	}
	if v := b.must("node", "validate", "n1", "-f", "json").([]any); len(v) < 8 {
		t.Errorf("validate: %v", v)
	}
	b.must("node", "maintenance", "set", "n1", "--reason", "testing")
	shown := b.must("node", "show", "n1", "-f", "json").(map[string]any)
	if shown["maintenance"] != true || shown["maintenance_reason"] != "testing" || shown["extra"].(map[string]any)["a"] != "b" {
		t.Errorf("show: %v", shown)
	}
	b.must("node", "history", "list", "n1", "-f", "json")
	b.must("conductor", "list", "-f", "json")
	if ok, _, errs := b.run("node", "provide", "n1"); ok || !strings.Contains(errs, "can not be performed on node") {
		t.Errorf("provide in enroll: %v %s", ok, errs)
	}
	b.must("node", "power", "off", "n1")
	w.free()
	b.must("node", "manage", "n1")
	w.free()
	w.edit(n["uuid"].(string), func(n *metal.Node) { n.ProvisionState, n.Maintenance = metal.Active, false })
	b.must("node", "rescue", "n1", "--rescue-password", "open sesame")
	w.free()
	if strings.Contains(w.log.String(), "sesame") {
		t.Error("the rescue password is in the log")
	}
	w.edit(n["uuid"].(string), func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	b.must("node", "delete", "n1")
	if ok, _, errs := b.run("node", "show", "nope"); ok || !strings.Contains(errs, "could not be found") {
		t.Errorf("show nope: %v %s", ok, errs)
	}
}

func TestRealClientBasicAuth(t *testing.T) {
	w := newWorld(t)
	hash, err := bcrypt.GenerateFromPassword([]byte("open sesame"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "htpasswd")
	must.OK(t, os.WriteFile(file, []byte("ann:"+string(hash)+"\n"), 0o600))
	if w.config.Auth, err = api.NewHTTPBasic(file); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(ironic.New(w.config))
	defer server.Close()
	auth := []string{"--os-auth-type", "http_basic", "--os-endpoint", server.URL, "--os-username", "ann", "--os-password"}
	newBaremetal(t, append(auth, "open sesame")...).must("node", "list", "-f", "json")
	if ok, _, errs := newBaremetal(t, append(auth, "wrong")...).run("node", "list"); ok || !strings.Contains(errs, "401") && !strings.Contains(errs, "Authorization") {
		t.Errorf("wrong password: %v %s", ok, errs)
	}
	if strings.Contains(w.log.String(), "sesame") {
		t.Error("the password is in the log")
	}
}

// TestSDK runs testdata/sdk.py on Debian's openstacksdk, which the client stands on.
func TestSDK(t *testing.T) {
	debian.File(t, "/usr/lib/python3/dist-packages/openstack", "python3-openstacksdk")
	server := httptest.NewServer(newWorld(t).handler)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "testdata/sdk.py", server.URL)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
