package server

import (
	"encoding/json"
	"os"
	"path/filepath"
	"salvor/test/must"
	"salvor/test/program"
	"strings"
	"testing"

	_ "embed"
)

// client is Debian's openstack.
type client struct {
	*testing.T
	command *program.OpenStack
}

func newClient(t *testing.T, url string) *client {
	t.Helper()
	return &client{t, program.NewOpenStack(t, url+"/identity/v3", os.Stderr, "OS_COMPUTE_API_VERSION=2.88", "OS_USERNAME=operator", "OS_PROJECT_NAME=rescuers")}
}

// try runs a command.
func (c *client) try(words ...string) program.CommandResult {
	c.Helper()
	return c.command.Run(c.T, words...)
}

// run runs a command that must succeed and gives what it printed.
func (c *client) run(words ...string) string {
	c.Helper()
	a := c.try(words...)
	if a.Status != 0 {
		c.Fatalf("openstack %s: status %d\n%s%s", strings.Join(words, " "), a.Status, a.Out, a.Err)
	}
	return a.Out
}

// rows runs a command that lists, show one that shows.
func (c *client) rows(words ...string) []map[string]any {
	c.Helper()
	var rows []map[string]any
	if text := c.run(append(words, "-f", "json")...); json.Unmarshal([]byte(text), &rows) != nil {
		c.Fatalf("openstack %s: %s", strings.Join(words, " "), text)
	}
	return rows
}

func (c *client) show(words ...string) map[string]any {
	c.Helper()
	var row map[string]any
	if text := c.run(append(words, "-f", "json")...); json.Unmarshal([]byte(text), &row) != nil {
		c.Fatalf("openstack %s: %s", strings.Join(words, " "), text)
	}
	return row
}

// one is the only row of a list.
func (c *client) one(words ...string) map[string]any {
	c.Helper()
	rows := c.rows(words...)
	if len(rows) != 1 {
		c.Fatalf("openstack %s: %d rows: %v", strings.Join(words, " "), len(rows), rows)
	}
	return rows[0]
}

// status waits until a server has a status.
func (c *client) status(w *world, server, want string) map[string]any {
	c.Helper()
	var s map[string]any
	w.eventually("server "+server, func() error {
		s = c.show("server", "show", server)
		if s["status"] != want {
			return errorOf("status %v, task %v, fault %v; want %s", s["status"], s["OS-EXT-STS:task_state"], s["fault"], want)
		}
		return nil
	})
	return s
}

// TestOpenStack goes the whole way of a server by Debian's openstack command.
func TestOpenStack(t *testing.T) {
	w := newWorld(t, "")
	c := newClient(t, w.server.URL)
	file := filepath.Join(t.TempDir(), "disk.raw")
	must.OK(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	c.run("flavor", "create", "small", "--ram", "256", "--disk", "1", "--vcpus", "1")
	if f := c.one("flavor", "list"); f["Name"] != "small" || f["RAM"] != 256.0 {
		t.Errorf("flavor list: %v", f)
	}
	c.run("image", "create", "debian", "--file", file, "--disk-format", "raw", "--property", "OS=debian", "--property", "OSFAMILY=linux")
	if i := c.one("image", "list"); i["Name"] != "debian" || i["Status"] != "active" {
		t.Errorf("image list: %v", i)
	}
	if i := c.show("image", "show", "debian"); i["size"] != float64(1<<20) {
		t.Errorf("image show: %v", i)
	}
	w.eventually("compute service list", func() error {
		if s := c.one("compute", "service", "list"); s["Binary"] != "nova-compute" || s["State"] != "up" || s["Host"] != "vm1" {
			return errorOf("%v", s)
		}
		return nil
	})
	if h := c.one("hypervisor", "list"); h["State"] != "up" {
		t.Errorf("hypervisor list: %v", h)
	}
	c.run("server", "create", "web1", "--flavor", "small", "--image", "debian", "--nic", "none", "--wait")
	if s := c.one("server", "list"); s["Name"] != "web1" || s["Status"] != "ACTIVE" || s["Image"] != "debian" || s["Flavor"] != "small" {
		t.Errorf("server list: %v", s)
	}
	c.run("server", "stop", "web1")
	c.status(w, "web1", "SHUTOFF")
	c.run("server", "start", "web1")
	c.status(w, "web1", "ACTIVE")

	// The password that is told is the one that was asked for, or one that was made; the image by name or by salvor's choice.
	said := c.run("server", "rescue", "web1", "--password", "sesame")
	if strings.Contains(said, "sesame") {
		t.Errorf("the client said %q", said)
	}
	rescued := c.status(w, "web1", "RESCUE")
	guest, ok := w.machine.State(rescued["id"].(string))
	if !ok || guest.Runs == nil || guest.Runs.Rescue == nil || len(guest.Runs.Disks) != 1 {
		t.Errorf("the rescued guest is %+v", guest)
	}
	if a := c.try("server", "rescue", "web1"); a.Status == 0 || !strings.Contains(a.Err, "while it is in vm_state rescued") {
		t.Errorf("a second rescue: %+v", a)
	}
	if a := c.try("server", "stop", "web1"); a.Status == 0 {
		t.Errorf("stop of a rescued server: %+v", a)
	}
	c.run("server", "unrescue", "web1")
	c.status(w, "web1", "ACTIVE")
	if guest, _ := w.machine.State(rescued["id"].(string)); guest.Runs == nil || guest.Runs.Rescue != nil {
		t.Errorf("the guest after its rescue is %+v", guest)
	}
	c.run("server", "rescue", "web1", "--image", "debian")
	c.status(w, "web1", "RESCUE")
	c.run("server", "unrescue", "web1")
	c.status(w, "web1", "ACTIVE")

	c.volumes(w)
	c.run("server", "delete", "web1", "--wait")
	if rows := c.rows("server", "list"); len(rows) != 0 {
		t.Errorf("server list after the deletion: %v", rows)
	}
	w.eventually("the guest is gone", func() error {
		if _, ok := w.machine.State(rescued["id"].(string)); ok {
			return errorOf("it is still there")
		}
		return nil
	})
	for _, secret := range []string{"sesame", "OS_PASSWORD"} {
		if strings.Contains(w.server.Log()+w.hostLog.String(), secret) {
			t.Errorf("%q is in a log", secret)
		}
	}
}

// volumes attaches one and boots from one, and rescues the server that does.
func (c *client) volumes(w *world) {
	c.Helper()
	for _, name := range []string{"data", "root"} {
		c.run("volume", "create", name, "--size", "1", "--property", "salvor:portal=192.0.2.9:3260", "--property", "salvor:iqn=iqn.2026-11.com.example:"+name,
			"--property", "salvor:lun=1", "--property", "salvor:chap_user=me", "--property", "salvor:chap_password=volumes-secret", "--bootable")
	}
	if shown := c.run("volume", "show", "data"); strings.Contains(shown, "volumes-secret") {
		c.Errorf("the CHAP password is shown: %s", shown)
	}
	c.run("server", "add", "volume", "web1", "data")
	w.eventually("the volume is in use", func() error {
		if v := c.show("volume", "show", "data"); v["status"] != "in-use" {
			return errorOf("it is %v", v["status"])
		}
		return nil
	})
	c.run("server", "remove", "volume", "web1", "data")
	w.eventually("the volume is free", func() error {
		if v := c.show("volume", "show", "data"); v["status"] != "available" {
			return errorOf("it is %v", v["status"])
		}
		return nil
	})
	c.run("server", "create", "db1", "--flavor", "small", "--volume", "root", "--nic", "none", "--wait")
	c.run("server", "rescue", "db1")
	c.status(w, "db1", "RESCUE")
	c.run("server", "unrescue", "db1")
	c.status(w, "db1", "ACTIVE")
	c.run("server", "delete", "db1", "--wait")
}
