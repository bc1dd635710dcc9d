package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/migrations"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/services"

	rest "salvor/client"
	"salvor/host"
	"salvor/lab/sim"
	"salvor/test/must"
)

// pair is a control plane with two VM hosts, vm1 and vm2, that share a store of disks.
type pair struct {
	*world
	shared   string
	machines map[string]*sim.Machine
	states   map[string]string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{world: newPlane(t, ""), shared: t.TempDir(), machines: map[string]*sim.Machine{}, states: map[string]string{}}
	for _, name := range []string{"vm1", "vm2"} {
		p.machines[name], p.states[name] = sim.NewMachine(), t.TempDir()
	}
	return p
}

// boot starts the agent of a host; the boot's id tells it from former ones. The returned function ends it as power loss does: it says
// nothing to anybody.
func (p *pair) boot(name, boot string) (end func()) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	h := must.Get(sim.StartHost(ctx, sim.Config{
		API: p.server.URL, Controller: "https://" + p.door, StateDir: p.states[name], Name: name, Log: slog.New(slog.NewTextHandler(&p.hostLog, nil)),
		Stores: []host.Store{{Name: "shared", Dir: p.shared, Shared: true}}, BootID: func() (string, error) { return boot, nil },
	}, p.machines[name]))(p)
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		if err := h.Stop(); err != nil {
			p.Errorf("host %s ended with %v", name, err)
		}
	}
	p.Cleanup(end)
	return end
}

// up waits until a host is up, or down.
func (p *pair) up(c *client, name, state string) {
	p.Helper()
	p.eventually(name+" is "+state, func() error {
		for _, s := range c.rows("compute", "service", "list") {
			if s["Host"] == name && s["State"] == state {
				return nil
			}
		}
		return errorOf("it is not")
	})
}

// living waits until a server runs on a host, and nowhere else.
func (p *pair) living(c *client, name, on string) {
	p.Helper()
	s := c.status(p.world, name, "ACTIVE")
	if s["OS-EXT-SRV-ATTR:host"] != on {
		p.Errorf("server %s is on %v, not %s", name, s["OS-EXT-SRV-ATTR:host"], on)
	}
	if g, ok := p.machines[on].State(s["id"].(string)); !ok || g.Runs == nil {
		p.Errorf("%s has no guest %s that runs", on, name)
	}
}

// TestEvacuation lives through the death and the return of a host with the clients that operators have.
func TestEvacuation(t *testing.T) {
	p := newPair(t)
	c := newClient(t, p.server.URL)
	kill := p.boot("vm1", "vm1-first")
	p.up(c, "vm1", "up")
	c.run("flavor", "create", "small", "--ram", "256", "--disk", "1", "--vcpus", "1")
	api := gopherClient(p)
	for _, name := range []string{"web1", "web2"} {
		c.run("image", "create", name, "--file", "/etc/hostname", "--disk-format", "raw")
		c.run("server", "create", name, "--flavor", "small", "--image", name, "--nic", "none", "--wait")
	}
	p.boot("vm2", "vm2-first")
	p.up(c, "vm2", "up")

	if a := c.try("server", "evacuate", "web1"); a.Status == 0 || !strings.Contains(a.Err, "Compute service of vm1 is still in use.") {
		t.Errorf("an evacuation from a host that lives: %+v", a)
	}
	kill()
	c.run("compute", "service", "set", "--down", "vm1", "nova-compute")
	p.up(c, "vm1", "down")
	if a := c.try("server", "evacuate", "web1"); a.Status == 0 || !strings.Contains(a.Err, "salvor fence vm1") {
		t.Errorf("an evacuation without proof: %+v", a)
	}
	// Force-down is no proof where live evidence contradicts it: neighbours reach the address of a simulated host without its agent.
	native := must.Get(rest.New(rest.Config{Endpoint: p.server.URL}))(t)
	p.eventually("vm1 is attested as off", func() error {
		return native.Ask(t.Context(), rest.Native, http.MethodPost, "/hosts/vm1/fence", nil,
			map[string]any{"attest": "the plug is pulled", "disputes": []string{"neighbours-reach-it"}}, nil)
	})
	p.eventually("web1 is evacuated", func() error {
		// Debian's client asks, and then stumbles over the answer that every Nova gives: it looks for a server in it.
		if a := c.try("server", "evacuate", "web1"); a.Status != 0 && !strings.Contains(a.Err, "to_dict") {
			return errorOf("%+v", a)
		}
		return nil
	})
	password, err := servers.Evacuate(t.Context(), api, p.id(c, "web2"), servers.EvacuateOpts{Host: "vm2"}).ExtractAdminPass()
	if err != nil {
		t.Errorf("gophercloud: %q, %v", password, err)
	}
	p.living(c, "web1", "vm2")
	p.living(c, "web2", "vm2")
	p.migrations(c, api, "done")
	if a := c.try("compute", "service", "set", "--up", "vm1", "nova-compute"); a.Status == 0 {
		t.Errorf("a host that has not cleaned up was taken back: %+v", a)
	}

	p.boot("vm1", "vm1-second")
	p.eventually("vm1 has cleaned up", func() error {
		if left, err := p.machines["vm1"].Guests(t.Context()); err != nil || len(left) > 0 {
			return errorOf("%+v, %v", left, err)
		}
		return nil
	})
	p.eventually("the moves are completed", func() error {
		if l := c.rows("server", "migration", "list", "--status", "completed"); len(l) != 2 {
			return errorOf("%v", l)
		}
		return nil
	})
	p.migrations(c, api, "completed")
	c.run("compute", "service", "set", "--up", "vm1", "nova-compute")
	p.up(c, "vm1", "up")
	p.living(c, "web1", "vm2")
}

func (p *pair) id(c *client, name string) string {
	return c.show("server", "show", name)["id"].(string)
}

// gopherClient is gophercloud's, at its default microversion.
func gopherClient(p *pair) *gophercloud.ServiceClient {
	p.Helper()
	provider := must.Get(openstack.AuthenticatedClient(p.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: p.server.URL + "/identity/v3", Username: "operator", Password: "x", DomainID: "default", TenantName: "rescuers",
	}))(p)
	api := must.Get(openstack.NewComputeV2(provider, gophercloud.EndpointOpts{Region: "RegionOne"}))(p)
	return api
}

// migrations proves that both clients see both moves, and that gophercloud may force the host down as well.
func (p *pair) migrations(c *client, api *gophercloud.ServiceClient, status string) {
	p.Helper()
	rows := c.rows("server", "migration", "list", "--host", "vm1", "--type", "evacuation")
	if len(rows) != 2 || rows[0]["Type"] != "evacuation" || rows[0]["Status"] != status || rows[0]["Source Compute"] != "vm1" || rows[0]["Dest Compute"] != "vm2" {
		p.Errorf("server migration list: %v", rows)
	}
	newest := *api
	newest.Microversion = "2.80"
	pages := must.Get(migrations.List(&newest, migrations.ListOpts{SourceCompute: new(string)}).AllPages(p.Context()))(p)
	if all, err := migrations.ExtractMigrations(pages); err != nil || len(all) != 2 || all[0].Status != status || all[0].CreatedAt.IsZero() || all[0].UUID == "" || all[0].DestCompute != "vm2" {
		p.Errorf("gophercloud: %+v, %v", all, err)
	}
	pages = must.Get(services.List(&newest, services.ListOpts{Host: "vm1"}).AllPages(p.Context()))(p)
	all, err := services.ExtractServices(pages)
	if err != nil || len(all) != 1 {
		p.Fatalf("gophercloud: %+v, %v", all, err)
	}
	if down, err := services.Update(p.Context(), &newest, all[0].ID, services.UpdateOpts{ForcedDown: true}).Extract(); err != nil || !down.ForcedDown || down.State != "down" {
		p.Errorf("gophercloud: %+v, %v", down, err)
	}
}
