package nova_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/availabilityzones"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/hypervisors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/instanceactions"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/keypairs"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/migrations"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/quotasets"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/services"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/tags"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/usage"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/volumeattach"

	"salvor/access"
	"salvor/api"
	"salvor/api/identity"
	"salvor/api/image"
	"salvor/api/nova"
	"salvor/api/volume"
	"salvor/blob"
	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
)

// cloud is a world whose servers become what is asked of them, with the other faces that clients use.
type cloud struct {
	*world
	url    string
	client *program.OpenStack
}

func newCloud(t *testing.T) *cloud {
	w := newWorld(t)
	blobs := must.Get(blob.Open(t.TempDir()))(w)
	t.Cleanup(func() { _ = blobs.Close() })
	log := slog.New(slog.NewTextHandler(w.log, nil))
	clock := func() time.Time { return w.now }
	kept := access.NewTokens(w.store, time.Now)
	auth := identity.NewTokens(w.secret, api.NoAuth{}, api.NewTokenAuth(kept, time.Now, log), kept, time.Now)
	faces := map[string]http.Handler{
		"/identity": identity.New(identity.Config{Tokens: auth, Auth: auth, Log: log}),
		"/image":    image.New(image.Config{Images: w.services.Images, Blobs: blobs, Auth: auth, Log: log}),
		"/volume":   volume.New(volume.Config{Volumes: w.services.Volumes, Auth: auth, Log: log}),
		"/compute":  nova.New(nova.Config{Services: w.services, Timeline: w.store, Auth: auth, Log: log, Now: clock}),
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for prefix, face := range faces {
			if r.URL.Path == prefix || strings.HasPrefix(r.URL.Path, prefix+"/") {
				face.ServeHTTP(rw, r)
				return
			}
		}
		http.NotFound(rw, r)
	}))
	t.Cleanup(server.Close)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.work(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &cloud{world: w, url: server.URL}
}

// work ends every job as soon as it is there: each server becomes what was asked of it.
func (w *world) work(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		jobs, err := w.store.Claim(ctx, "c1/i1", born.AddDate(100, 0, 0), []string{""}, kinds, 10)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range jobs {
			if err := w.workOff(context.WithoutCancel(ctx), &jobs[i]); err != nil {
				return fmt.Errorf("%s: %w", jobs[i].Kind, err)
			}
		}
	}
}

func (w *world) workOff(ctx context.Context, j *job.Job) error {
	srv, err := w.store.Servers().Get(ctx, nil, j.Subject.ID)
	if err != nil {
		return err
	}
	return w.store.Do(ctx, func(tx job.Tx) error {
		done := *j
		ended(&done)
		if err := w.store.Save(tx, &done, false); err != nil {
			return err
		}
		if j.Kind == compute.JobDelete {
			return w.services.Servers.Gone(ctx, tx, srv.ID)
		}
		if j.Kind == compute.JobAttach {
			if err := w.attached(ctx, tx, j); err != nil {
				return err
			}
		}
		return w.services.Servers.Finish(ctx, tx, srv.ID, func(s *compute.Server) { become(s, srv) })
	})
}

// attached makes the volume of an attachment one that is in use.
func (w *world) attached(ctx context.Context, tx job.Tx, j *job.Job) error {
	var args compute.VolumeArgs
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return err
	}
	v, err := w.store.Volumes().Get(ctx, tx, args.VolumeID)
	if err != nil {
		return err
	}
	v.Status = compute.VolumeInUse
	return w.store.Volumes().Save(tx, v)
}

// gophercloud gives a client of the Compute API at a microversion.
func (c *cloud) gophercloud(version string) *gophercloud.ServiceClient {
	c.Helper()
	provider := must.Get(openstack.AuthenticatedClient(c.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: c.url + "/identity", Username: "ann", Password: "x", DomainID: "default", TenantName: "lab",
	}))(c)
	client := must.Get(openstack.NewComputeV2(provider, gophercloud.EndpointOpts{Region: "RegionOne"}))(c)
	client.Microversion = version
	return client
}

// await waits for a server's status.
func (c *cloud) await(client *gophercloud.ServiceClient, id, status string) *servers.Server {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 20*time.Second)
	defer cancel()
	for {
		srv := must.Get(servers.Get(ctx, client, id).Extract())(c)
		if srv.Status == status {
			return srv
		}
		select {
		case <-ctx.Done():
			c.Fatalf("server %s is %s, not %s", id, srv.Status, status)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestGophercloud walks through a server's life at the versions at which shapes differ.
func TestGophercloud(t *testing.T) {
	c := newCloud(t)
	for _, version := range []string{"", "2.19", "2.26", "2.53", "2.73", "2.79", "2.88"} {
		t.Run("version "+version, func(t *testing.T) { c.TB = t; c.gophercloudLife(version) })
	}
}

func (c *cloud) gophercloudLife(version string) {
	ctx, client, minor := c.Context(), c.gophercloud(version), 1
	if version != "" {
		must.Get(fmt.Sscanf(version, "2.%d", &minor))(c)
	}
	key := must.Get(keypairs.Create(ctx, client, keypairs.CreateOpts{Name: "key" + version}).Extract())(c)
	opts := servers.CreateOpts{Name: "web" + version, ImageRef: imageOne, FlavorRef: "1", Metadata: map[string]string{"a": "b"}, UserData: []byte("#!/bin/sh\n")}
	if minor >= 37 {
		opts.Networks = "none"
	}
	made := must.Get(servers.Create(ctx, client, keypairs.CreateOptsExt{CreateOptsBuilder: opts, KeyName: key.Name}, nil).Extract())(c)
	if made.AdminPass == "" {
		c.Error("no password")
	}
	srv := c.await(client, made.ID, "ACTIVE")
	if srv.Metadata["a"] != "b" || srv.KeyName != key.Name || srv.LaunchedAt.IsZero() || srv.Created.IsZero() || srv.TenantID == "" {
		c.Errorf("%+v", srv)
	}
	password := must.Get(servers.Rescue(ctx, client, made.ID, servers.RescueOpts{AdminPass: "open-sesame"}).Extract())(c)
	if password != "open-sesame" {
		c.Errorf("password %q", password)
	}
	c.await(client, made.ID, "RESCUE")
	if _, err := servers.Rescue(ctx, client, made.ID, servers.RescueOpts{}).Extract(); !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
		c.Errorf("rescued twice: %v", err)
	}
	must.OK(c, servers.Unrescue(ctx, client, made.ID).ExtractErr())
	c.await(client, made.ID, "ACTIVE")
	must.OK(c, servers.Stop(ctx, client, made.ID).ExtractErr())
	c.await(client, made.ID, "SHUTOFF")
	must.OK(c, servers.Start(ctx, client, made.ID).ExtractErr())
	c.await(client, made.ID, "ACTIVE")
	must.OK(c, servers.Reboot(ctx, client, made.ID, servers.RebootOpts{Type: servers.SoftReboot}).ExtractErr())
	c.await(client, made.ID, "ACTIVE")
	c.gophercloudLists(client, made.ID, minor)
	must.OK(c, servers.Delete(ctx, client, made.ID).ExtractErr())
	must.OK(c, keypairs.Delete(ctx, client, key.Name, nil).ExtractErr())
	fixture.Poll(c, "the deleted server is gone", func() bool {
		return gophercloud.ResponseCodeIs(servers.Get(ctx, client, made.ID).Err, http.StatusNotFound)
	})
}

// gophercloudLists reads what there is beside servers.
func (c *cloud) gophercloudLists(client *gophercloud.ServiceClient, id string, minor int) {
	ctx := c.Context()
	pages := must.Get(servers.List(client, servers.ListOpts{Limit: 1, AllTenants: true}).AllPages(ctx))(c)
	if all, err := servers.ExtractServers(pages); err != nil || len(all) == 0 {
		c.Errorf("%v, %v", all, err)
	}
	pages = must.Get(flavors.ListDetail(client, flavors.ListOpts{AccessType: flavors.AllAccess}).AllPages(ctx))(c)
	if all, err := flavors.ExtractFlavors(pages); err != nil || len(all) != 2 || all[0].RAM != 512 {
		c.Errorf("%v, %v", all, err)
	}
	pages = must.Get(services.List(client, nil).AllPages(ctx))(c)
	if all, err := services.ExtractServices(pages); err != nil || len(all) != 1 || all[0].State != "up" || all[0].UpdatedAt.IsZero() {
		c.Errorf("%+v, %v", all, err)
	}
	pages = must.Get(hypervisors.List(client, nil).AllPages(ctx))(c)
	all, err := hypervisors.ExtractHypervisors(pages)
	if err != nil || len(all) != 1 || all[0].HypervisorHostname != "rack1" || all[0].HypervisorVersion != 7002022 {
		c.Errorf("%+v, %v", all, err)
	}
	_, err = hypervisors.Get(ctx, client, all[0].ID).Extract()
	must.OK(c, err)
	pages, err = keypairs.List(client, nil).AllPages(ctx)
	must.OK(c, err)
	if all, err := keypairs.ExtractKeyPairs(pages); err != nil || len(all) != 1 {
		c.Errorf("%+v, %v", all, err)
	}
	pages, err = instanceactions.List(client, id, nil).AllPages(ctx)
	must.OK(c, err)
	if all, err := instanceactions.ExtractInstanceActions(pages); err != nil || len(all) < 6 || all[0].Action != "reboot" {
		c.Errorf("%+v, %v", all, err)
	}
	pages, err = availabilityzones.ListDetail(client).AllPages(ctx)
	must.OK(c, err)
	if all, err := availabilityzones.ExtractAvailabilityZones(pages); err != nil || len(all) != 1 {
		c.Errorf("%+v, %v", all, err)
	}
	pages, err = volumeattach.List(client, id).AllPages(ctx)
	must.OK(c, err)
	if all, err := volumeattach.ExtractVolumeAttachments(pages); err != nil || len(all) != 0 {
		c.Errorf("%+v, %v", all, err)
	}
	pages, err = migrations.List(client, nil).AllPages(ctx)
	must.OK(c, err)
	if all, err := migrations.ExtractMigrations(pages); err != nil || len(all) != 0 {
		c.Errorf("%+v, %v", all, err)
	}
	pages, err = usage.AllTenants(client, nil).AllPages(ctx)
	must.OK(c, err)
	_, err = usage.ExtractAllTenants(pages)
	must.OK(c, err)
	_, err = limits.Get(ctx, client, nil).Extract()
	must.OK(c, err)
	_, err = quotasets.Get(ctx, client, projectA).Extract()
	must.OK(c, err)
	if minor >= 26 {
		must.OK(c, tags.Add(ctx, client, id, "one").ExtractErr())
		if l, err := tags.List(ctx, client, id).Extract(); err != nil || len(l) != 1 {
			c.Errorf("%v, %v", l, err)
		}
	}
	if minor >= 53 {
		must.Get(services.Update(ctx, client, hostOne, services.UpdateOpts{Status: services.ServiceEnabled}).Extract())(c)
	}
}

// debian starts Debian's openstack client; its commands speak the microversion.
func (c *cloud) debian(version string) {
	c.Helper()
	env := []string{"OS_USERNAME=ann", "OS_PROJECT_NAME=lab"}
	if version != "" {
		env = append(env, "OS_COMPUTE_API_VERSION="+version)
	}
	c.client = program.NewOpenStack(c.TB, c.url+"/identity", c.log, env...)
}

// openstack runs a command and gives what it says.
func (c *cloud) openstack(args ...string) any {
	c.Helper()
	output := c.client.Run(c.TB, args...)
	if output.Status != 0 {
		c.Fatalf("openstack %s: %+v; %s", strings.Join(args, " "), output, c.log)
	}
	var out any
	if args[len(args)-1] == "json" {
		if err := json.Unmarshal([]byte(output.Out), &out); err != nil {
			c.Fatalf("openstack %s says %+v: %v", strings.Join(args, " "), output, err)
		}
	}
	return out
}

func (c *cloud) show(args ...string) map[string]any {
	c.Helper()
	o, _ := c.openstack(append(args, "-f", "json")...).(map[string]any)
	return o
}

func (c *cloud) list(want int, args ...string) []any {
	c.Helper()
	l, _ := c.openstack(append(args, "-f", "json")...).([]any)
	if len(l) != want {
		c.Errorf("openstack %s: %v", strings.Join(args, " "), l)
	}
	return l
}

// TestOpenStackClient does with Debian's client what the guides do.
func TestOpenStackClient(t *testing.T) {
	c := newCloud(t)
	net := &compute.Network{Name: "lan", Bridge: "br0", CIDR: "10.1.0.0/24", Gateway: "10.1.0.1", First: "10.1.0.10", Last: "10.1.0.90", Shared: true}
	must.OK(c, c.services.Networks.Create(t.Context(), net, record.Asker{}))
	c.debian("") // the client's own default
	key := filepath.Join(t.TempDir(), "key")
	c.openstack("keypair", "create", "--private-key", key, "mine")
	if b, err := os.ReadFile(key); err != nil || !bytes.Contains(b, []byte("PRIVATE KEY")) {
		t.Errorf("%v", err)
	}
	made := c.show("server", "create", "--flavor", "m1.tiny", "--image", "debian", "--network", "lan", "--key-name", "mine", "--property", "a=b", "--wait", "web")
	if made["status"] != "ACTIVE" || !strings.Contains(fmt.Sprint(made["addresses"]), "10.1.0.1") {
		t.Errorf("%v", made)
	}
	listed := c.list(1, "server", "list", "--long")[0].(map[string]any)
	if listed["Name"] != "web" || listed["Status"] != "ACTIVE" || listed["Host"] != "rack1" || listed["Image Name"] != "debian" {
		t.Errorf("%v", listed)
	}
	c.openstackServer()
	c.openstackHosts()

	c.debian("2.87")
	volume := c.show("volume", "create", "--size", "4", "--bootable", "--property", "salvor:portal=192.0.2.7:3260", "--property", "salvor:iqn=iqn.2001-04.com.example:disk1", "--property", "salvor:lun=1", "disk1")
	c.show("server", "create", "--flavor", "m1.tiny", "--volume", volume["id"].(string), "--nic", "none", "fromvolume")
	c.waitStatus("fromvolume", "")
	c.openstackServer()
	c.openstackHosts()
	c.openstack("server", "lock", "--reason", "mine", "web")
	if s := c.show("server", "show", "web"); s["locked_reason"] != "mine" {
		t.Errorf("%v", s)
	}
	c.list(2, "server", "list")
	c.openstack("server", "delete", "--wait", "web", "fromvolume")
	c.list(0, "server", "list")
	c.openstack("keypair", "delete", "mine")
}

// openstackServer does with a server what its user can.
func (c *cloud) openstackServer() {
	c.Helper()
	c.openstack("server", "stop", "web")
	c.waitStatus("web", "SHUTOFF")
	c.openstack("server", "start", "web")
	c.waitStatus("web", "ACTIVE")
	c.openstack("server", "rescue", "--image", "debian", "--password", "open-sesame", "web")
	c.waitStatus("web", "RESCUE")
	c.openstack("server", "unrescue", "web")
	c.waitStatus("web", "ACTIVE")
	c.openstack("server", "reboot", "--hard", "web")
	c.waitStatus("web", "")
	for _, verb := range []string{"pause", "unpause", "suspend", "resume"} {
		c.openstack("server", verb, "web")
		c.waitStatus("web", map[string]string{"pause": "PAUSED", "suspend": "SUSPENDED"}[verb])
	}
	c.openstack("server", "set", "--property", "c=d", "web")
	events, _ := c.openstack("server", "event", "list", "web", "-f", "json").([]any)
	if len(events) < 10 || events[0].(map[string]any)["Action"] != "resume" {
		c.Errorf("%v", events)
	}
}

// openstackHosts does what operators can.
func (c *cloud) openstackHosts() {
	c.Helper()
	c.openstack("compute", "service", "set", "--disable", "--disable-reason", "why", "rack1", "nova-compute")
	if s := c.list(1, "compute", "service", "list", "--long")[0].(map[string]any); s["Disabled Reason"] != "why" || s["Status"] != "disabled" || s["State"] != "up" {
		c.Errorf("%v", s)
	}
	c.openstack("compute", "service", "set", "--enable", "rack1", "nova-compute")
	c.list(1, "hypervisor", "list")
	if h := c.show("hypervisor", "show", "rack1"); h["hypervisor_hostname"] != "rack1" {
		c.Errorf("%v", h)
	}
	c.show("flavor", "create", "--ram", "256", "--disk", "2", "--vcpus", "1", "--property", "hw:x=y", "m1.nano")
	c.list(3, "flavor", "list", "--all")
	c.openstack("flavor", "delete", "m1.nano")
	c.list(1, "availability", "zone", "list", "--compute")
}

// waitStatus asks Debian's client until the server has the status; empty: ACTIVE.
func (c *cloud) waitStatus(name, status string) {
	c.Helper()
	if status == "" {
		status = "ACTIVE"
	}
	var seen any
	for range 20 {
		if seen = c.show("server", "show", name)["status"]; seen == status {
			return
		}
	}
	c.Fatalf("server %s is %v, not %s", name, seen, status)
}
