//go:build e2e

package network

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/provider"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

// neutronServer starts Debian's neutron-server, with a switch that takes every port
// whose profile names one of its own, and gives its URL.
func neutronServer(t *testing.T) string {
	t.Helper()
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "import neutron").CombinedOutput(); err != nil {
		t.Fatalf("install python3-neutron: %v: %s", err, out)
	}
	dir := t.TempDir()
	data := must.Get(filepath.Abs("testdata"))(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close() // neutron-server takes no listener from others
	conf := filepath.Join(dir, "neutron.conf")
	text := fmt.Sprintf(`[DEFAULT]
core_plugin = ml2
auth_strategy = noauth
transport_url = fake:/
bind_host = 127.0.0.1
bind_port = %d
api_workers = 0
rpc_workers = 0
rpc_state_report_workers = 0
state_path = %[2]s
api_paste_config = %[3]s/api-paste.ini
dhcp_agent_notification = false
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[database]
connection = sqlite:///%[2]s/neutron.db
[oslo_concurrency]
lock_path = %[2]s
[ml2]
type_drivers = flat
tenant_network_types = flat
mechanism_drivers = salvor
extension_drivers =
[ml2_type_flat]
flat_networks = *
`, port, dir, data)
	must.OK(t, os.WriteFile(conf, []byte(text), 0o600))
	var log bytes.Buffer
	cmd := exec.Command(python, filepath.Join(data, "neutron_server.py"), filepath.Join(dir, "neutron.db"), conf)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+data, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	must.OK(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		if t.Failed() {
			t.Logf("neutron-server:\n%s", tail(log.String()))
		}
	})
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	for until := time.Now().Add(90 * time.Second); time.Now().Before(until); {
		select {
		case <-ended:
			t.Fatal("neutron-server ended")
		case <-time.After(100 * time.Millisecond):
		}
		if answer, err := http.Get(url + "/v2.0/networks"); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return url
			}
		}
	}
	t.Fatal("neutron-server does not answer")
	return ""
}

func tail(s string) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// world is a Neutron with the networks of an operator and a tenant's.
type world struct {
	*testing.T
	ctx   context.Context
	cloud *Cloud
	ids   map[string]string
}

func newWorld(t *testing.T) *world {
	w := &world{t, context.Background(), newTestCloud(t, neutronServer(t), "p"), map[string]string{}}
	client := must.Get(w.cloud.service(w.ctx))(t)
	for i, name := range []string{"provisioning", "cleaning", "rescuing", "inspection", "tenant"} {
		n, err := networks.Create(w.ctx, client, provider.CreateOptsExt{
			CreateOptsBuilder: networks.CreateOpts{Name: name, ProjectID: "p"}, Segments: []provider.Segment{{NetworkType: "flat", PhysicalNetwork: name}},
		}).Extract()
		if err != nil {
			t.Fatal(err)
		}
		w.ids[name] = n.ID
		_, err = subnets.Create(w.ctx, client, subnets.CreateOpts{NetworkID: n.ID, CIDR: fmt.Sprintf("10.9.%d.0/24", i), IPVersion: 4, ProjectID: "p"}).Extract()
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// on lists the Neutron ports of a network.
func (w *world) on(network string) []vif {
	w.Helper()
	got := must.Get(w.cloud.list(w.ctx, ports.ListOpts{NetworkID: w.ids[network]}))(w)
	return got
}

func (w *world) want(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func machine() (*metal.Node, []*metal.Port) {
	n := &metal.Node{ID: "6a0e7b3e-5d0f-4c61-9d1b-0d9a3f3b7c11", DriverInfo: metal.Object{}}
	nic := func(mac string, pxe bool) *metal.Port {
		return &metal.Port{NodeID: n.ID, Address: mac, PXEEnabled: pxe, InternalInfo: metal.Object{}, Extra: metal.Object{},
			LocalLink: metal.Object{"switch_id": "00:11:22:33:44:55", "port_id": "Ethernet1/1", "switch_info": "tor1"}}
	}
	return n, []*metal.Port{nic("52:54:00:00:00:01", true), nic("52:54:00:00:00:02", true), nic("52:54:00:00:00:03", false)}
}

// TestNeutron walks a machine through the networks of a real Neutron.
func TestNeutron(t *testing.T) {
	w := newWorld(t)
	d := NewNeutron(w.cloud, Networks{Of: map[driver.Net]string{driver.Provisioning: "provisioning", driver.CleaningNet: w.ids["cleaning"], driver.Rescuing: "rescuing"}})
	n, nics := machine()

	for range 2 { // twice: it finds what it made
		w.want(d.Attach(w.ctx, n, nics, driver.CleaningNet))
	}
	made := w.on("cleaning")
	if len(made) != 2 {
		t.Fatalf("%d ports on the cleaning network, want one for each bootable NIC", len(made))
	}
	for _, v := range made {
		if v.HostID != n.ID || v.VIFType != "other" || v.VNICType != "baremetal" || v.DeviceID != n.ID {
			t.Errorf("not bound to the machine: %+v", v)
		}
	}
	w.want(d.cloud.remove(w.ctx, made[0].ID)) // somebody took one away
	w.want(d.Attach(w.ctx, n, nics, driver.CleaningNet))
	if len(w.on("cleaning")) != 2 {
		t.Error("the missing port was not made again")
	}
	for range 2 {
		w.want(d.Detach(w.ctx, n, nics, driver.CleaningNet))
	}
	if left := w.on("cleaning"); len(left) != 0 {
		t.Errorf("ports are left on the cleaning network: %v", left)
	}
	w.tenant(d, n, nics)
	w.refusals(d, n, nics)
}

// tenant binds a tenant's port, rescues the machine and comes back.
func (w *world) tenant(d *Neutron, n *metal.Node, nics []*metal.Port) {
	w.Helper()
	if err := d.Attach(w.ctx, n, nics, driver.Tenant); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "vifs") {
		w.Errorf("a machine without a tenant's port: %v", err)
	}
	client, err := w.cloud.service(w.ctx)
	w.want(err)
	p, err := ports.Create(w.ctx, client, ports.CreateOpts{NetworkID: w.ids["tenant"], ProjectID: "p"}).Extract()
	w.want(err)
	nics[0].InternalInfo[TenantVIFKey] = p.ID
	bound := func(host, mac string) {
		w.Helper()
		v, err := w.cloud.get(w.ctx, p.ID)
		w.want(err)
		if v.HostID != host || mac != "" && v.MACAddress != mac {
			w.Errorf("the tenant's port is bound to %q with %s, want %q with %s", v.HostID, v.MACAddress, host, mac)
		}
	}
	for range 2 {
		w.want(d.Attach(w.ctx, n, nics, driver.Tenant))
		bound(n.ID, nics[0].Address)
	}
	other := n.Clone()
	other.ID = "6a0e7b3e-5d0f-4c61-9d1b-0d9a3f3b7c12"
	if err := d.Attach(w.ctx, other, nics, driver.Tenant); !problem.Is(err, problem.Conflict) {
		w.Errorf("the port of another machine was taken: %v", err)
	}
	bound(n.ID, nics[0].Address)
	// A rescue: off the tenant's port, onto the rescuing network with the same NIC, and back.
	for range 2 {
		w.want(d.Detach(w.ctx, n, nics, driver.Tenant))
		bound("", "")
	}
	w.want(d.Attach(w.ctx, n, nics, driver.Rescuing))
	if len(w.on("rescuing")) != 2 {
		w.Error("the machine is not on the rescuing network")
	}
	w.want(d.Detach(w.ctx, n, nics, driver.Rescuing))
	w.want(d.Attach(w.ctx, n, nics, driver.Tenant))
	bound(n.ID, nics[0].Address)

	flat := NewFlat(w.cloud, Networks{Of: map[driver.Net]string{driver.CleaningNet: "cleaning"}})
	w.want(flat.Detach(w.ctx, n, nics, driver.Tenant))
	bound("", "")
	w.want(flat.Attach(w.ctx, n, nics, driver.Rescuing))
	bound(n.ID, nics[0].Address)
	if len(w.on("rescuing")) != 0 {
		w.Error("a flat machine was put on the rescuing network")
	}
	w.want(flat.Attach(w.ctx, n, nics, driver.CleaningNet))
	if len(w.on("cleaning")) != 2 {
		w.Error("a flat machine is not on the cleaning network")
	}
	w.want(flat.Detach(w.ctx, n, nics, driver.CleaningNet))
}

// refusals says what is missing, in words for the node.
func (w *world) refusals(d *Neutron, n *metal.Node, nics []*metal.Port) {
	w.Helper()
	for _, c := range []struct{ network, want string }{
		{"nowhere", `no network "nowhere"`},
		{"6a0e7b3e-5d0f-4c61-9d1b-0d9a3f3b7c99", "no network"},
	} {
		n.DriverInfo["rescuing_network"] = c.network
		if err := d.Attach(w.ctx, n, nics, driver.Rescuing); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), c.want) {
			w.Errorf("rescuing network %s: %v", c.network, err)
		}
	}
	delete(n.DriverInfo, "rescuing_network")
	for _, p := range nics {
		p.LocalLink = metal.Object{}
	}
	if err := d.Attach(w.ctx, n, nics, driver.Rescuing); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "names no switch port") {
		w.Errorf("a NIC of which nobody knows the switch port: %v", err)
	}
	w.want(d.Detach(w.ctx, n, nics, driver.Rescuing))
	if len(w.on("rescuing")) != 0 {
		w.Error("a port that could not be bound is left")
	}
}
