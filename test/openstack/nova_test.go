//go:build openstack

package openstack

import (
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/lab"
	"salvor/lab/personality"
	"salvor/test/machine"
	"salvor/test/must"
	"salvor/test/program"
)

// stepTime bounds one step of a user of Nova.
const stepTime = 10 * time.Minute

// user is who uses Nova on one side: what becomes of each step is compared with the other side.
type user struct {
	*cloud
	side   string
	name   string // of the node, of its resource class in lower case, of the flavor and of the server
	flavor string
	node   string // UUID
	server string // UUID
}

// step is one that a user asks of Nova, and how it ended.
type step struct {
	name string
	// ends is how it ends under Ironic; if it does not, the comparison proves nothing.
	ends string
	do   func(u *user) string
}

// outcome is how a step ended, in words that are the same on both sides if users see no difference, and how long it took.
type outcome struct {
	ended string
	took  time.Duration
}

// active is a server that runs on a deployed node.
const active = "ACTIVE; node active"

var steps = []step{
	{"create, with a network and a config drive", active, (*user).create},
	{"rescue", "RESCUE; node rescue", func(u *user) string {
		return u.action(object{"rescue": object{"adminPass": "let-me-in"}}, 200, "RESCUE")
	}},
	{"unrescue", active, func(u *user) string { return u.action(object{"unrescue": nil}, 202, "ACTIVE") }},
	{"stop", "SHUTOFF; node active", func(u *user) string { return u.action(object{"os-stop": nil}, 202, "SHUTOFF") }},
	{"start", active, func(u *user) string { return u.action(object{"os-start": nil}, 202, "ACTIVE") }},
	{"reboot, hard", active, func(u *user) string {
		return u.action(object{"reboot": object{"type": "HARD"}}, 202, "ACTIVE")
	}},
	{"reboot, soft", active, func(u *user) string {
		return u.action(object{"reboot": object{"type": "SOFT"}}, 202, "ACTIVE")
	}},
	{"rebuild with another image", active, func(u *user) string {
		return u.action(object{"rebuild": object{"imageRef": u.image("another")}}, 202, "ACTIVE")
	}},
	{"power off behind Nova's back", "SHUTOFF; node active", func(u *user) string { return u.behind("power off", "SHUTOFF") }},
	{"power on behind Nova's back", active, func(u *user) string { return u.behind("power on", "ACTIVE") }},
	{"add a network", "200; 2 networks", (*user).addNetwork},
	{"remove the network", "202; 1 networks", (*user).removeNetwork},
	{"delete", "gone; node available", (*user).delete},
}

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) { machine.Main(m) }

// labVariable has the state directory of the lab in which this process runs.
const labVariable = "SALVOR_OPENSTACK_LAB"

// TestNova runs itself again inside a lab with one machine, whose loopback has OpenStack and salvor. There a user of Nova does the same on
// Debian's Ironic and on salvor, and has salvor deploy the machine.
func TestNova(t *testing.T) {
	dir := os.Getenv(labVariable)
	if dir == "" {
		runInLab(t)
		return
	}
	c := newCloud(t, must.Get(must.Get(lab.Attach(dir, ""))(t).Status(t.Context()))(t).Machines[0])
	c.prepare()
	users := map[string]*user{}
	for _, side := range sides {
		users[side] = c.newUser(side, side, object{
			"driver": "fake-hardware", "deploy_interface": "fake", "rescue_interface": "fake",
			"properties": object{"cpus": 1, "memory_mb": 1024, "local_gb": 10, "cpu_arch": "x86_64", "capabilities": "boot_mode:uefi"},
		}, fmt.Sprintf("52:54:00:00:00:%02x", len(side)), "uefi")
	}
	owner := c.newOwner()
	c.step("nodes, flavors, networks and images exist; waiting for Nova to find the nodes")
	for _, u := range []*user{users["ironic"], users["salvor"], owner.user} {
		u.awaitInventory()
	}
	c.step("Nova has the inventory of all nodes")
	t.Run("fake", func(t *testing.T) { c.compare(t, users) })
	t.Run("direct", owner.deploy)
	c.TB = t
}

// runInLab starts the lab and this test in it.
func runInLab(t *testing.T) {
	// The ramdisk and the programs are built outside, where there is a network.
	ramdisk, programs := machine.Ramdisk(t), filepath.Dir(program.Path(t, "salvor"))
	w := machine.Up(t, lab.Spec{Like: personality.SushyTools, Memory: 1024})
	cmd := w.Lab.Command(t.Context(), must.Get(os.Executable())(t), "-test.v", "-test.run="+flag.Lookup("test.run").Value.String(), "-test.timeout="+flag.Lookup("test.timeout").Value.String())
	cmd.Env = append(os.Environ(), labVariable+"="+w.Dir, "SALVOR_RAMDISK="+ramdisk, "SALVOR_BIN="+programs)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("the test inside the lab: %v", err)
	}
}

// compare has both users take the same steps, which have to end alike.
func (c *cloud) compare(t *testing.T, users map[string]*user) {
	c.TB = t
	var table strings.Builder
	fmt.Fprintf(&table, "| step | Ironic | s | salvor | s |\n|---|---|---|---|---|\n")
	for _, s := range steps {
		got := map[string]outcome{}
		for _, side := range sides {
			began := time.Now()
			ended := s.do(users[side])
			got[side] = outcome{ended, time.Since(began)}
		}
		ironic, salvor := got["ironic"], got["salvor"]
		fmt.Fprintf(&table, "| %s | %s | %.1f | %s | %.1f |\n", s.name, ironic.ended, ironic.took.Seconds(), salvor.ended, salvor.took.Seconds())
		if ironic.ended != s.ends {
			t.Errorf("%s: under Ironic %q, which must be %q", s.name, ironic.ended, s.ends)
		}
		if ironic.ended != salvor.ended {
			t.Errorf("%s: under Ironic %q, under salvor %q", s.name, ironic.ended, salvor.ended)
		}
		c.step("%s: %s, %s", s.name, ironic.ended, salvor.ended)
	}
	t.Logf("what a user of Nova sees:\n%s", table.String())
}

func (c *cloud) nova(path string) string    { return c.fill("http://127.0.0.1:{NOVA}/v2.1") + path }
func (c *cloud) neutron(path string) string { return c.fill("http://127.0.0.1:{NEUTRON}/v2.0") + path }

// prepare makes what both users share: images and networks.
func (c *cloud) prepare() {
	c.Helper()
	for _, name := range []string{"one", "another"} {
		c.upload(name, strings.NewReader("the disk of "+name))
	}
	for i, name := range []string{"first", "second"} {
		network := text(c.must("POST", c.neutron("/networks"), object{"network": object{"name": name, "shared": true}}, 201)["network"], "id")
		c.must("POST", c.neutron("/subnets"), object{"subnet": object{"network_id": network, "ip_version": 4, "cidr": fmt.Sprintf("10.77.%d.0/24", i)}}, 201)
		c.set("NETWORK_"+name, network)
	}
}

// upload gives Glance a public image.
func (c *cloud) upload(name string, content io.Reader) {
	c.Helper()
	glance := c.fill("http://127.0.0.1:{GLANCE}/v2/images")
	id := text(c.must("POST", glance, object{"name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public"}, 201), "id")
	c.must("PUT", glance+"/"+id+"/file", content, 204)
	c.set("IMAGE_"+name, id)
}

func (c *cloud) image(name string) string { return c.fill("{IMAGE_" + name + "}") }

// newUser makes a node, its port and its flavor, which asks for the node's boot mode.
func (c *cloud) newUser(side, name string, node object, mac, bootMode string) *user {
	c.Helper()
	u := &user{cloud: c, side: side, name: name}
	node["name"], node["resource_class"], node["network_interface"] = name, name, "noop"
	u.node = text(c.must("POST", u.baremetal("/nodes"), node, 201), "uuid")
	c.must("POST", u.baremetal("/ports"), object{"node_uuid": u.node, "address": mac}, 201)
	for _, verb := range []struct{ target, ends string }{{"manage", "manageable"}, {"provide", "available"}} {
		c.must("PUT", u.baremetal("/nodes/"+u.node+"/states/provision"), object{"target": verb.target}, 202)
		u.awaitNode("provision_state", verb.ends)
	}
	// Nova takes no node whose power is not known, and nobody knows that of a fresh fake node.
	c.must("PUT", u.baremetal("/nodes/"+u.node+"/states/power"), object{"target": "power off"}, 202)
	u.awaitNode("power_state", "power off")
	class := "resources:CUSTOM_" + strings.ToUpper(name)
	u.flavor = text(c.must("POST", c.nova("/flavors"), object{"flavor": object{"name": name, "vcpus": 1, "ram": 1024, "disk": 10}}, 200)["flavor"], "id")
	c.must("POST", c.nova("/flavors/"+u.flavor+"/os-extra_specs"), object{"extra_specs": object{
		class: "1", "resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0", "capabilities:boot_mode": bootMode,
	}}, 200)
	return u
}

func (u *user) baremetal(path string) string { return u.cloud.baremetal[u.side] + "/v1" + path }

// await asks again and again until a value is the wanted one, and gives the last one.
func (u *user) await(want string, value func() string) string {
	last := ""
	for end := time.Now().Add(stepTime); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if last = value(); last == want {
			break
		}
	}
	return last
}

func (u *user) nodeField(key string) string {
	return text(u.must("GET", u.baremetal("/nodes/"+u.node), nil, 200), key)
}

func (u *user) awaitNode(key, want string) {
	u.Helper()
	failure := ""
	got := u.await(want, func() string {
		node := u.must("GET", u.baremetal("/nodes/"+u.node), nil, 200)
		if failure = text(node, "last_error"); failure != "" && node["reservation"] == nil {
			return want // it will not change
		}
		return text(node, key)
	})
	if got != want || failure != "" {
		u.Fatalf("%s: the node's %s is %q, want %q: %s", u.name, key, u.nodeField(key), want, failure)
	}
}

// awaitInventory waits until placement has the node with its resource class, free to be used.
func (u *user) awaitInventory() {
	u.Helper()
	got := u.await("free", func() string {
		a := must.Get(u.ask("GET", u.fill("http://127.0.0.1:{PLACEMENT}/resource_providers/"+u.node+"/inventories"), nil))(u)
		if a.status == 200 && strings.Contains(string(a.body), "CUSTOM_"+strings.ToUpper(u.name)) && strings.Contains(string(a.body), `"reserved": 0`) {
			return "free"
		}
		return fmt.Sprintf("%d %s", a.status, a.body)
	})
	if got != "free" {
		u.Fatalf("%s: Nova does not offer the node: %s", u.name, got)
	}
}

// view tells what a user sees of the server, and the node's provision state.
func (u *user) view() (status, whole string) {
	a := must.Get(u.ask("GET", u.nova("/servers/"+u.server), nil))(u)
	if a.status == 404 {
		return "GONE", "gone; node " + u.nodeField("provision_state")
	}
	if a.status != 200 {
		u.Fatalf("%s: the server: %d: %.1000s", u.name, a.status, a.body)
	}
	server, _ := a.object()["server"].(object) // of the same answer: the server may be gone at the next
	status = text(server, "status")
	if task := text(server, "OS-EXT-STS:task_state"); task != "" {
		status += " " + task
	}
	fault, _ := server["fault"].(object)
	return status, strings.TrimSpace(strings.TrimSuffix(status+"; node "+u.nodeField("provision_state"), "; node ") + " " + text(fault, "message"))
}

// until waits for a status of the server, and gives what the user sees then.
func (u *user) until(want string) string {
	var whole string
	u.await(want, func() string {
		var status string
		if status, whole = u.view(); strings.HasPrefix(status, "ERROR") && want != "ERROR" {
			return want // it will not change
		}
		return status
	})
	return whole
}

func (u *user) create() string { return u.createFrom("one", "") }

// createFrom asks for a server of an image, with data of the user.
func (u *user) createFrom(image, data string) string {
	u.Helper()
	a := u.must("POST", u.nova("/servers"), object{"server": object{
		"name": u.name, "flavorRef": u.flavor, "imageRef": u.image(image), "networks": []object{{"uuid": u.fill("{NETWORK_first}")}}, "config_drive": true,
		"user_data": base64.StdEncoding.EncodeToString([]byte(data)), "metadata": object{"purpose": "test"},
	}}, 202)
	u.server = text(a["server"], "id")
	return u.until("ACTIVE")
}

// action asks for an action and waits for the server's status.
func (u *user) action(body object, want int, status string) string {
	u.Helper()
	a := must.Get(u.ask("POST", u.nova("/servers/"+u.server+"/action"), body))(u)
	if a.status != want {
		return fmt.Sprintf("%d %.200s", a.status, a.body)
	}
	return u.until(status)
}

// behind changes the power by the bare metal API. Nova has to follow without being asked.
func (u *user) behind(target, status string) string {
	u.Helper()
	u.must("PUT", u.baremetal("/nodes/"+u.node+"/states/power"), object{"target": target}, 202)
	return u.until(status)
}

func (u *user) addNetwork() string {
	u.Helper()
	a := must.Get(u.ask("POST", u.nova("/servers/"+u.server+"/os-interface"), object{"interfaceAttachment": object{"net_id": u.fill("{NETWORK_second}")}}))(u)
	return fmt.Sprintf("%d; %d networks", a.status, len(u.interfaces()))
}

func (u *user) removeNetwork() string {
	u.Helper()
	for _, one := range u.interfaces() {
		if text(one, "net_id") == u.fill("{NETWORK_second}") {
			a := must.Get(u.ask("DELETE", u.nova("/servers/"+u.server+"/os-interface/"+text(one, "port_id")), nil))(u)
			left := u.await("1", func() string { return fmt.Sprint(len(u.interfaces())) })
			return fmt.Sprintf("%d; %s networks", a.status, left)
		}
	}
	return "it is not there"
}

func (u *user) interfaces() []any {
	u.Helper()
	list, _ := u.must("GET", u.nova("/servers/"+u.server+"/os-interface"), nil, 200)["interfaceAttachments"].([]any)
	return list
}

func (u *user) delete() string {
	u.Helper()
	u.must("DELETE", u.nova("/servers/"+u.server), nil, 204)
	u.until("GONE")
	u.awaitNode("provision_state", "available")
	_, whole := u.view()
	return whole
}
