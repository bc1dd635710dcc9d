// Package gophercloud proves that Go programs written for Ironic, such as Metal3's operator and Terraform's provider, work with salvor. It
// uses gophercloud, the library of these programs.
package gophercloud

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/noauth"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/allocations"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/conductors"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/drivers"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/ports"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"salvor/driver/drivertest"
	"salvor/test/must"
	"salvor/test/program"
)

const (
	image    = "http://images.example/tools.iso"
	patience = 60 * time.Second
)

// world is a server with a client of gophercloud's.
type world struct {
	*testing.T
	ctx context.Context
	api *gophercloud.ServiceClient
	bmc string // address of a Redfish BMC, which is machine
	url string // of the server

	machine *drivertest.BMC
}

func newWorld(t *testing.T) *world {
	images := t.TempDir()
	for _, name := range []string{"kernel", "ramdisk"} {
		must.OK(t, os.WriteFile(filepath.Join(images, name), []byte("no machine boots it here"), 0o600))
	}
	s := program.Serve(t, fmt.Sprintf(`
[DEFAULT]
enabled_hardware_types = redfish,fake-hardware,idrac
[conductor]
automated_clean = true
deploy_kernel = %[1]s/kernel
deploy_ramdisk = %[1]s/ramdisk
rescue_kernel = %[1]s/kernel
rescue_ramdisk = %[1]s/ramdisk
# Without boot files nobody carries a token, and so neither do the findings of an inspection.
[agent]
rescue_password_in_lookup = true
[ramdisk]
listen = 127.0.0.1:0
`, images))
	api := must.Get(noauth.NewBareMetalNoAuth(noauth.EndpointOpts{IronicEndpoint: s.URL + "/v1"}))(t)
	api.Microversion = "1.115"
	bmc := drivertest.NewBMC("admin", "calvin")
	server := httptest.NewServer(bmc)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return &world{t, ctx, api, server.URL, s.URL, bmc}
}

func (w *world) want(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// refused wants an answer with the status.
func (w *world) refused(err error, status int) {
	w.Helper()
	if !gophercloud.ResponseCodeIs(err, status) {
		w.Errorf("got %v, want status %d", err, status)
	}
}

// reach waits until the node rests in a state.
func (w *world) reach(id string, state nodes.ProvisionState) *nodes.Node {
	w.Helper()
	var n *nodes.Node
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		var err error
		n, err = nodes.Get(w.ctx, w.api, id).Extract()
		w.want(err)
		if n.ProvisionState == string(state) {
			return n
		}
	}
	w.Fatalf("node is in %q (%s), want %q", n.ProvisionState, n.LastError, state)
	return nil
}

func (w *world) provision(id string, o nodes.ProvisionStateOpts, state nodes.ProvisionState) *nodes.Node {
	w.Helper()
	w.want(nodes.ChangeProvisionState(w.ctx, w.api, id, o).ExtractErr())
	return w.reach(id, state)
}

func yes(v bool) *bool { return &v }

// TestNodes lives through a node's life as Metal3's operator would, with every option that the library has.
func TestNodes(t *testing.T) {
	w := newWorld(t)
	made, err := nodes.Create(w.ctx, w.api, nodes.CreateOpts{
		Name: "metal3~worker-0", Driver: "fake-hardware", AutomatedClean: yes(true), ResourceClass: "gold", Owner: "me", ConductorGroup: "",
		Properties: map[string]any{"cpu_arch": "x86_64", "capabilities": "boot_mode:uefi"}, Extra: map[string]any{"rack": "7"},
		DriverInfo: map[string]any{"password": "hunter2"}, BootInterface: "fake", DeployInterface: "fake", RescueInterface: "fake", InspectInterface: "fake",
		ManagementInterface: "fake", PowerInterface: "fake", NetworkInterface: "noop", StorageInterface: "noop", DisablePowerOff: yes(false),
		NetworkData: map[string]any{},
	}).Extract()
	w.want(err)
	if made.ProvisionState != string(nodes.Enroll) || made.DriverInfo["password"] != "******" || made.Name != "metal3~worker-0" {
		t.Errorf("created: %+v", made)
	}
	id := made.UUID
	changed, err := nodes.Update(w.ctx, w.api, id, nodes.UpdateOpts{
		nodes.UpdateOperation{Op: nodes.AddOp, Path: "/instance_info/image_source", Value: "http://images.example/disk.raw"},
		nodes.UpdateOperation{Op: nodes.AddOp, Path: "/driver_info/deploy_kernel", Value: "http://images.example/kernel"},
		nodes.UpdateOperation{Op: nodes.ReplaceOp, Path: "/resource_class", Value: "silver"},
		nodes.UpdateOperation{Op: nodes.RemoveOp, Path: "/extra/rack"},
	}).Extract()
	w.want(err)
	if changed.ResourceClass != "silver" || changed.Extra["rack"] != nil || changed.InstanceInfo["image_source"] == nil {
		t.Errorf("changed: %+v", changed)
	}
	w.lists(id)
	w.life(id)
	w.lesser(id)
	w.want(nodes.Delete(w.ctx, w.api, id).ExtractErr())
	w.refused(nodes.Get(w.ctx, w.api, id).Err, http.StatusNotFound)
}

func (w *world) lists(id string) {
	w.Helper()
	for name, list := range map[string]func(*gophercloud.ServiceClient, nodes.ListOptsBuilder) (int, error){
		"brief": func(c *gophercloud.ServiceClient, o nodes.ListOptsBuilder) (int, error) {
			return w.count(nodes.List(c, o).AllPages(w.ctx))
		},
		"detail": func(c *gophercloud.ServiceClient, o nodes.ListOptsBuilder) (int, error) {
			return w.count(nodes.ListDetail(c, o).AllPages(w.ctx))
		},
	} {
		n, err := list(w.api, nodes.ListOpts{Driver: "fake-hardware", ProvisionState: nodes.Enroll, ResourceClass: "silver", Limit: 1, SortKey: "name"})
		if err != nil || n != 1 {
			w.Errorf("%s list: %d nodes, %v", name, n, err)
		}
	}
	pages, err := nodes.List(w.api, nodes.ListOpts{Fields: []string{"uuid", "name", "provision_state", "boot_interface"}}).AllPages(w.ctx)
	w.want(err)
	found, err := nodes.ExtractNodes(pages)
	w.want(err)
	if len(found) != 1 || found[0].UUID != id || found[0].BootInterface != "fake" {
		w.Errorf("list of fields: %+v", found)
	}
}

// life is the provision states with every option that the library can send.
func (w *world) life(id string) {
	w.Helper()
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetManage}, nodes.Manageable)
	validation, err := nodes.Validate(w.ctx, w.api, id).Extract()
	w.want(err)
	if !validation.Power.Result || !validation.Deploy.Result || !validation.Boot.Result {
		w.Errorf("validate: %+v", validation)
	}
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetInspect}, nodes.Manageable)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetClean, CleanSteps: []nodes.CleanStep{
		{Interface: nodes.InterfaceBIOS, Step: "factory_reset", Args: map[string]any{}},
	}}, nodes.Manageable)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetProvide}, nodes.Available)
	active := w.provision(id, nodes.ProvisionStateOpts{
		Target:      nodes.TargetActive,
		ConfigDrive: nodes.ConfigDrive{MetaData: map[string]any{"hostname": "worker-0"}, UserData: "#cloud-config\n", NetworkData: map[string]any{}},
	}, nodes.Active)
	if drive := active.InstanceInfo["configdrive"]; drive != nil && drive != "******" {
		w.Errorf("the config drive is shown: %v", drive)
	}
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetRescue, RescuePassword: "correct horse battery"}, nodes.Rescue)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetUnrescue}, nodes.Active)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetDeleted}, nodes.Available)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetManage}, nodes.Manageable)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetAdopt}, nodes.Active)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetDeleted}, nodes.Available)
}

// lesser are the smaller calls: power, maintenance, boot device, VIFs.
func (w *world) lesser(id string) {
	w.Helper()
	for _, target := range []nodes.TargetPowerState{nodes.PowerOn, nodes.SoftRebooting, nodes.Rebooting, nodes.SoftPowerOff, nodes.PowerOff} {
		w.power(id, target)
	}
	w.want(nodes.SetMaintenance(w.ctx, w.api, id, nodes.MaintenanceOpts{Reason: "new fan"}).ExtractErr())
	n, err := nodes.Get(w.ctx, w.api, id).Extract()
	w.want(err)
	if !n.Maintenance || n.MaintenanceReason != "new fan" {
		w.Errorf("maintenance: %+v", n)
	}
	w.want(nodes.UnsetMaintenance(w.ctx, w.api, id).ExtractErr())
	w.want(nodes.SetBootDevice(w.ctx, w.api, id, nodes.BootDeviceOpts{BootDevice: "pxe", Persistent: true}).ExtractErr())
	device, err := nodes.GetBootDevice(w.ctx, w.api, id).Extract()
	w.want(err)
	if device.BootDevice != "pxe" || !device.Persistent {
		w.Errorf("boot device: %+v", device)
	}
	devices, err := nodes.GetSupportedBootDevices(w.ctx, w.api, id).Extract()
	w.want(err)
	if len(devices) == 0 {
		w.Error("no boot devices are supported")
	}
	w.vifs(id)
}

// power asks for a power state and waits for the end of the change.
func (w *world) power(id string, target nodes.TargetPowerState) {
	w.Helper()
	w.want(nodes.ChangePowerState(w.ctx, w.api, id, nodes.PowerStateOpts{Target: target, Timeout: 30}).ExtractErr())
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		n, err := nodes.Get(w.ctx, w.api, id).Extract()
		w.want(err)
		if n.TargetPowerState == "" && n.Reservation == "" {
			return
		}
	}
	w.Fatalf("%s does not end", target)
}

func (w *world) vifs(id string) {
	w.Helper()
	const vif = "7c2d3f10-6d1a-4c8e-9d55-94a4f6b1f0e1"
	port, err := ports.Create(w.ctx, w.api, ports.CreateOpts{NodeUUID: id, Address: "52:54:00:00:00:01", PXEEnabled: yes(true), PhysicalNetwork: "p1",
		LocalLinkConnection: map[string]any{"switch_id": "00:11:22:33:44:55", "port_id": "Eth1", "switch_info": "tor"}, Extra: map[string]any{"slot": "1"}}).Extract()
	w.want(err)
	w.want(nodes.AttachVirtualInterface(w.ctx, w.api, id, nodes.VirtualInterfaceOpts{ID: vif, PortUUID: port.UUID}).ExtractErr())
	attached, err := nodes.ListVirtualInterfaces(w.ctx, w.api, id).Extract()
	w.want(err)
	if len(attached) != 1 || attached[0].ID != vif {
		w.Errorf("VIFs: %+v", attached)
	}
	w.want(nodes.DetachVirtualInterface(w.ctx, w.api, id, vif).ExtractErr())
	w.ports(id, port.UUID)
}

func (w *world) ports(node, id string) {
	w.Helper()
	pages, err := ports.List(w.api, ports.ListOpts{NodeUUID: node, Fields: []string{"node_uuid", "uuid", "address"}}).AllPages(w.ctx)
	w.want(err)
	found, err := ports.ExtractPorts(pages)
	w.want(err)
	if len(found) != 1 || found[0].NodeUUID != node {
		w.Errorf("ports: %+v", found)
	}
	pages, err = ports.ListDetail(w.api, ports.ListOpts{Address: "52:54:00:00:00:01"}).AllPages(w.ctx)
	w.want(err)
	if found, err = ports.ExtractPorts(pages); err != nil || len(found) != 1 || found[0].PhysicalNetwork != "p1" {
		w.Errorf("ports in detail: %+v, %v", found, err)
	}
	p, err := ports.Update(w.ctx, w.api, id, ports.UpdateOpts{ports.UpdateOperation{Op: ports.ReplaceOp, Path: "/address", Value: "52:54:00:00:00:02"}}).Extract()
	w.want(err)
	if p.Address != "52:54:00:00:00:02" {
		w.Errorf("port: %+v", p)
	}
	w.want(ports.Delete(w.ctx, w.api, id).ExtractErr())
	w.refused(ports.Get(w.ctx, w.api, id).Err, http.StatusNotFound)
}

// count is how many nodes some pages hold.
func (w *world) count(pages pagination.Page, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	found, err := nodes.ExtractNodes(pages)
	return len(found), err
}

// TestHardware asks and tells a Redfish BMC all that the library knows of.
func TestHardware(t *testing.T) {
	w := newWorld(t)
	made, err := nodes.Create(w.ctx, w.api, nodes.CreateOpts{
		Driver: "redfish", DriverInfo: map[string]any{"redfish_address": w.bmc, "redfish_username": "admin", "redfish_password": "calvin"},
		FirmwareInterface: "redfish", BIOSInterface: "redfish", VendorInterface: "redfish", RAIDInterface: "redfish",
	}).Extract()
	w.want(err)
	id := made.UUID
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetManage}, nodes.Manageable)

	w.want(nodes.AttachVirtualMedia(w.ctx, w.api, id, nodes.AttachVirtualMediaOpts{DeviceType: nodes.VirtualMediaCD, ImageURL: image}).ExtractErr())
	media := nodes.GetVirtualMedia(w.ctx, w.api, id)
	w.want(media.Err)
	w.want(nodes.DetachVirtualMedia(w.ctx, w.api, id, nodes.DetachVirtualMediaOpts{DeviceTypes: []nodes.VirtualMediaDeviceType{nodes.VirtualMediaCD}}).ExtractErr())

	firmware, err := nodes.ListFirmware(w.ctx, w.api, id).Extract()
	w.want(err)
	if len(firmware) == 0 || firmware[0].Component == "" || firmware[0].CurrentVersion == "" {
		t.Errorf("firmware: %+v", firmware)
	}
	settings, err := nodes.ListBIOSSettings(w.ctx, w.api, id, nodes.ListBIOSSettingsOpts{Detail: true}).Extract()
	w.want(err)
	if len(settings) == 0 {
		t.Error("no BIOS settings")
	} else {
		// Ironic answers under the setting's own name; the library's Extract looks for another.
		one := nodes.GetBIOSSetting(w.ctx, w.api, id, settings[0].Name)
		body, _ := one.Body.(map[string]any)
		if shown, _ := body[settings[0].Name].(map[string]any); one.Err != nil || shown["name"] != settings[0].Name {
			t.Errorf("BIOS setting %s: %v, %v", settings[0].Name, one.Body, one.Err)
		}
	}
	w.power(id, nodes.PowerOn)
	w.want(nodes.InjectNMI(w.ctx, w.api, id).ExtractErr())

	w.refused(nodes.GetInventory(w.ctx, w.api, id).Err, http.StatusNotFound)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetInspect}, nodes.Manageable)
	read, err := nodes.GetInventory(w.ctx, w.api, id).Extract()
	w.want(err)
	if i := read.Inventory; i.CPU.Count != 4 || len(i.Interfaces) != 1 || len(i.Disks) != 1 || i.Memory.PhysicalMb != 2048 || i.SystemVendor.Manufacturer != "Acme" {
		t.Errorf("the inventory that the BMC tells: %+v", i)
	}
	w.inventory(id)
	w.subscriptions(id)
	raid := nodes.RAIDConfigOpts{LogicalDisks: []nodes.LogicalDisk{{RAIDLevel: nodes.RAID1, IsRootVolume: yes(true)}}}
	w.want(nodes.SetRAIDConfig(w.ctx, w.api, id, raid).ExtractErr())
}

// inventory is what the ramdisk of an inspection brings; the test is that ramdisk.
func (w *world) inventory(id string) {
	w.Helper()
	patch := nodes.UpdateOpts{nodes.UpdateOperation{Op: nodes.AddOp, Path: "/inspect_interface", Value: "agent"}}
	_, err := nodes.Update(w.ctx, w.api, id, patch).Extract()
	w.want(err)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetInspect}, nodes.InspectWait)
	found := `{"inventory": {"interfaces": [{"name": "eth0", "mac_address": "52:54:00:00:00:09", "has_carrier": true}],
		"cpu": {"count": 4, "architecture": "x86_64"}, "memory": {"physical_mb": 8192, "total": 8589934592},
		"disks": [{"name": "/dev/sda", "size": 53687091200}], "boot": {"current_boot_mode": "uefi", "pxe_interface": "52:54:00:00:00:09"}, "hostname": "found"}}`
	r, err := http.NewRequestWithContext(w.ctx, http.MethodPost, w.url+"/v1/continue_inspection?node_uuid="+id, strings.NewReader(found))
	w.want(err)
	r.Header.Set("X-OpenStack-Ironic-API-Version", "1.84")
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	w.want(err)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		w.Fatalf("continue_inspection: %s", answer.Status)
	}
	n := w.reach(id, nodes.Manageable)
	if n.Properties["cpu_arch"] != "x86_64" || n.Properties["memory_mb"] == nil {
		w.Errorf("inspection left the properties %v", n.Properties)
	}
	brought, err := nodes.GetInventory(w.ctx, w.api, id).Extract()
	w.want(err)
	if brought.Inventory.CPU.Count != 4 || len(brought.Inventory.Interfaces) != 1 || brought.Inventory.Hostname != "found" {
		w.Errorf("inventory: %+v", brought.Inventory)
	}
}

func (w *world) subscriptions(id string) {
	w.Helper()
	methods, err := nodes.GetVendorPassthruMethods(w.ctx, w.api, id).Extract()
	w.want(err)
	if methods.CreateSubscription.HTTPMethods == nil || methods.DeleteSubscription.HTTPMethods == nil {
		w.Errorf("vendor methods: %+v", methods)
	}
	made, err := nodes.CreateSubscription(w.ctx, w.api, id, nodes.CallVendorPassthruOpts{Method: "create_subscription"},
		nodes.CreateSubscriptionOpts{Destination: "https://listener.example/events", EventTypes: []string{"Alert"}, Context: "salvor", Protocol: "Redfish"}).Extract()
	w.want(err)
	all, err := nodes.GetAllSubscriptions(w.ctx, w.api, id, nodes.CallVendorPassthruOpts{Method: "get_all_subscriptions"}).Extract()
	w.want(err)
	if len(all.Members) != 1 {
		w.Errorf("subscriptions: %+v", all)
	}
	one, err := nodes.GetSubscription(w.ctx, w.api, id, nodes.CallVendorPassthruOpts{Method: "get_subscription"}, nodes.GetSubscriptionOpts{Id: made.Id}).Extract()
	if err != nil || one.Destination != "https://listener.example/events" {
		w.Errorf("subscription %s: %+v, %v", made.Id, one, err)
	}
	w.want(nodes.DeleteSubscription(w.ctx, w.api, id, nodes.CallVendorPassthruOpts{Method: "delete_subscription"}, nodes.DeleteSubscriptionOpts{Id: made.Id}).ExtractErr())
}

// TestCatalog reads drivers and conductors.
func TestCatalog(t *testing.T) {
	w := newWorld(t)
	pages, err := drivers.ListDrivers(w.api, drivers.ListDriversOpts{Detail: true}).AllPages(w.ctx)
	w.want(err)
	found, err := drivers.ExtractDrivers(pages)
	w.want(err)
	if len(found) != 3 {
		t.Errorf("drivers: %+v", found)
	}
	d, err := drivers.GetDriverDetails(w.ctx, w.api, "redfish").Extract()
	w.want(err)
	if d.DefaultPowerInterface != "redfish" || len(d.Hosts) == 0 {
		t.Errorf("driver: %+v", d)
	}
	properties, err := drivers.GetDriverProperties(w.ctx, w.api, "redfish").Extract()
	if err != nil || (*properties)["redfish_address"] == nil {
		t.Errorf("properties: %v, %v", properties, err)
	}
	disks, err := drivers.GetDriverDiskProperties(w.ctx, w.api, "redfish").Extract()
	if err != nil || (*disks)["raid_level"] == nil {
		t.Errorf("disk properties: %v, %v", disks, err)
	}
	w.want(drivers.ListVendorPassthruMethods(w.ctx, w.api, "redfish").Err)
	pages, err = conductors.List(w.api, conductors.ListOpts{Detail: true}).AllPages(w.ctx)
	w.want(err)
	hosts, err := conductors.ExtractConductors(pages)
	w.want(err)
	if len(hosts) != 1 || !hosts[0].Alive {
		t.Fatalf("conductors: %+v", hosts)
	}
	one, err := conductors.Get(w.ctx, w.api, hosts[0].Hostname).Extract()
	if err != nil || len(one.Drivers) != 3 {
		t.Errorf("conductor: %+v, %v", one, err)
	}
}

// TestAllocations claims a node and gives it back.
func TestAllocations(t *testing.T) {
	w := newWorld(t)
	n, err := nodes.Create(w.ctx, w.api, nodes.CreateOpts{Driver: "fake-hardware", ResourceClass: "gold"}).Extract()
	w.want(err)
	w.provision(n.UUID, nodes.ProvisionStateOpts{Target: nodes.TargetManage}, nodes.Manageable)
	w.provision(n.UUID, nodes.ProvisionStateOpts{Target: nodes.TargetProvide}, nodes.Available)
	w.power(n.UUID, nodes.PowerOff) // a node whose power nobody knows is not given away
	claim := func(name, class string, want string) *allocations.Allocation {
		t.Helper()
		a, err := allocations.Create(w.ctx, w.api, allocations.CreateOpts{Name: name, ResourceClass: class, CandidateNodes: []string{n.UUID}, Extra: map[string]string{"for": "test"}}).Extract()
		w.want(err)
		for until := time.Now().Add(patience); a.State == "allocating" && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			a, err = allocations.Get(w.ctx, w.api, a.UUID).Extract()
			w.want(err)
		}
		if a.State != want {
			t.Errorf("allocation %s: %+v, want %s", name, a, want)
		}
		return a
	}
	a := claim("web", "gold", "active")
	if a.NodeUUID != n.UUID {
		t.Errorf("allocated %s", a.NodeUUID)
	}
	if b := claim("more", "gold", "error"); b.LastError == "" {
		t.Error("a second allocation of the only node says no reason")
	}
	pages, err := allocations.List(w.api, allocations.ListOpts{State: allocations.AllocationState(allocations.Active), ResourceClass: "gold", Node: n.UUID}).AllPages(w.ctx)
	w.want(err)
	found, err := allocations.ExtractAllocations(pages)
	if err != nil || len(found) != 1 {
		t.Errorf("allocations: %+v, %v", found, err)
	}
	w.want(allocations.Delete(w.ctx, w.api, "web").ExtractErr())
	w.refused(allocations.Get(w.ctx, w.api, "web").Err, http.StatusNotFound)
}
