package gophercloud

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/ports"

	"salvor/test/fixture"
)

const hostMAC = "52:54:00:00:00:31"

// reconcile does what baremetal-operator (0.13) does with a host in the state provisioned: it adopts a manageable node, ends a
// maintenance of an active one, and switches the machine as spec.online says. It gives the requests that change something. While the host
// has the annotation baremetalhost.metal3.io/paused the operator does not call it.
func (w *world) reconcile(id string, online bool) (writes []string) {
	w.Helper()
	n, err := nodes.Get(w.ctx, w.api, id).Extract()
	w.want(err)
	switch nodes.ProvisionState(n.ProvisionState) {
	case nodes.Manageable, nodes.AdoptFail:
		writes = append(writes, "adopt")
		w.want(nodes.ChangeProvisionState(w.ctx, w.api, id, nodes.ProvisionStateOpts{Target: nodes.TargetAdopt}).ExtractErr())
	case nodes.Active:
		if n.Maintenance && n.Fault == "" {
			writes = append(writes, "end maintenance")
			w.want(nodes.UnsetMaintenance(w.ctx, w.api, id).ExtractErr())
		}
	}
	target := map[bool]nodes.TargetPowerState{true: nodes.PowerOn, false: nodes.PowerOff}[online]
	if n.PowerState != string(target) && n.TargetProvisionState == "" {
		writes = append(writes, string(target))
		w.power(id, target)
	}
	return writes
}

// ramdisk plays the agent in the rescue ramdisk: it looks itself up, which brings it the password's hash, and says that it runs.
func (w *world) ramdisk(id string) {
	w.Helper()
	agent := httptest.NewServer(http.NotFoundHandler())
	w.Cleanup(agent.Close)
	answer := fixture.Send(w, http.MethodGet, w.url+"/v1/lookup?addresses="+hostMAC+"&node_uuid="+id, nil, "X-OpenStack-Ironic-API-Version", "1.68").Want(w, http.StatusOK).Object(w)
	config, _ := answer["config"].(map[string]any)
	beat := map[string]any{"callback_url": strings.Replace(agent.URL, "http:", "https:", 1), "agent_token": config["agent_token"], "agent_version": "12.0.0"}
	fixture.Send(w, http.MethodPost, w.url+"/v1/heartbeat/"+id, beat, "X-OpenStack-Ironic-API-Version", "1.68").Want(w, http.StatusAccepted)
}

// drive fetches the config drive that the BMC was given, from the API's listener, which has the boot files too.
func (w *world) drive(address string) []byte {
	w.Helper()
	_, path, _ := strings.Cut(address, "/boot/")
	resp, err := http.Get(w.url + "/boot/" + path)
	w.want(err)
	defer resp.Body.Close()
	image, err := io.ReadAll(resp.Body)
	w.want(err)
	if resp.StatusCode != http.StatusOK {
		w.Errorf("the config drive at %s: %s", address, resp.Status)
	}
	return image
}

// TestRescueOfAMetal3Host: a live ISO is provisioned with the requests of baremetal-operator on a host of the type idrac. An administrator
// rescues it. When the host is not paused any more, the operator finds it as it was and changes nothing.
func TestRescueOfAMetal3Host(t *testing.T) {
	w := newWorld(t)
	images := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(images.Close)
	live := images.URL + "/live.iso"
	made, err := nodes.Create(w.ctx, w.api, nodes.CreateOpts{
		Name: "metal3~host-0", Driver: "idrac", BootInterface: "idrac-redfish-virtual-media", ManagementInterface: "idrac-redfish", PowerInterface: "idrac-redfish",
		BIOSInterface: "idrac-redfish", RAIDInterface: "idrac-redfish", VendorInterface: "idrac-redfish", FirmwareInterface: "redfish", InspectInterface: "redfish",
		DeployInterface: "ramdisk",
		DriverInfo: map[string]any{
			"redfish_address": w.bmc, "redfish_username": "admin", "redfish_password": "calvin", "redfish_verify_ca": false,
			"deploy_kernel": images.URL + "/kernel", "deploy_ramdisk": images.URL + "/ramdisk",
		},
	}).Extract()
	w.want(err)
	id := made.UUID
	_, err = ports.Create(w.ctx, w.api, ports.CreateOpts{NodeUUID: id, Address: hostMAC, PXEEnabled: yes(true)}).Extract()
	w.want(err)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetManage}, nodes.Manageable)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetProvide}, nodes.Available)
	_, err = nodes.Update(w.ctx, w.api, id, nodes.UpdateOpts{
		nodes.UpdateOperation{Op: nodes.AddOp, Path: "/instance_info/boot_iso", Value: live},
		nodes.UpdateOperation{Op: nodes.AddOp, Path: "/instance_uuid", Value: "6a2c5a3e-7c9d-4a57-9a3e-000000000031"},
	}).Extract()
	w.want(err)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetActive, ConfigDrive: nodes.ConfigDrive{
		MetaData: map[string]any{"name": "host-0"}, UserData: "#cloud-config of host-0",
	}}, nodes.Active)
	booted := func(when string) {
		t.Helper()
		if boot := w.machine.Boot(); w.machine.Image() != live || boot.Target != "Cd" || boot.Enabled != "Continuous" || !w.machine.On() {
			t.Errorf("%s: CD %q, boot %+v, on %t; want the live ISO", when, w.machine.Image(), boot, w.machine.On())
		}
		if image := w.drive(w.machine.Stick()); !bytes.Contains(image, []byte("config-2")) || !bytes.Contains(image, []byte("#cloud-config of host-0")) {
			t.Errorf("%s: the config drive has %d bytes and not the user data", when, len(image))
		}
	}
	booted("provisioned")
	if writes := w.reconcile(id, true); len(writes) > 0 {
		t.Errorf("the operator changes a host that it has provisioned: %q", writes)
	}

	w.want(nodes.ChangeProvisionState(w.ctx, w.api, id, nodes.ProvisionStateOpts{Target: nodes.TargetRescue, RescuePassword: "let-me-in-1"}).ExtractErr())
	w.reach(id, nodes.RescueWait)
	if w.machine.Image() == live || w.machine.Stick() != "" {
		t.Errorf("in the rescue the machine has CD %q and USB %q", w.machine.Image(), w.machine.Stick())
	}
	w.ramdisk(id)
	w.reach(id, nodes.Rescue)
	// An operator that is not paused leaves a rescue alone only as long as the host is to be on.
	if writes := w.reconcile(id, true); len(writes) > 0 {
		t.Errorf("the operator changes a host in rescue: %q", writes)
	}
	// It switches a rescue off if the host is to be off. Nobody then boots the machine's own system by a power on.
	if writes := w.reconcile(id, false); !slices.Equal(writes, []string{string(nodes.PowerOff)}) {
		t.Errorf("the operator changes a host in rescue that is to be off: %q", writes)
	}
	w.refused(nodes.ChangePowerState(w.ctx, w.api, id, nodes.PowerStateOpts{Target: nodes.PowerOn}).ExtractErr(), http.StatusConflict)
	w.reach(id, nodes.Rescue)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetUnrescue}, nodes.Active)
	booted("unrescued")
	if writes := w.reconcile(id, true); len(writes) > 0 {
		t.Errorf("the operator changes a host that was rescued: %q", writes)
	}
	if n := w.reach(id, nodes.Active); n.InstanceUUID == "" || n.InstanceInfo["boot_iso"] != live || n.LastError != "" || n.Maintenance {
		t.Errorf("the node after the rescue: %+v", n)
	}

	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetDeleted}, nodes.Available)
	if w.machine.Image() != "" || w.machine.Stick() != "" || w.machine.On() {
		t.Errorf("deprovisioned: CD %q, USB %q, on %t", w.machine.Image(), w.machine.Stick(), w.machine.On())
	}
}

// TestDetachedMetal3Host: the operator detaches a host by the deletion of its node. The node is active, has an instance and is in maintenance.
func TestDetachedMetal3Host(t *testing.T) {
	w := newWorld(t)
	made, err := nodes.Create(w.ctx, w.api, nodes.CreateOpts{
		Name: "metal3~host-1", Driver: "redfish",
		DriverInfo: map[string]any{"redfish_address": w.bmc, "redfish_username": "admin", "redfish_password": "calvin"},
	}).Extract()
	w.want(err)
	id := made.UUID
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetManage}, nodes.Manageable)
	w.provision(id, nodes.ProvisionStateOpts{Target: nodes.TargetAdopt}, nodes.Active)
	w.power(id, nodes.PowerOn)
	_, err = nodes.Update(w.ctx, w.api, id, nodes.UpdateOpts{
		nodes.UpdateOperation{Op: nodes.AddOp, Path: "/instance_uuid", Value: "6a2c5a3e-7c9d-4a57-9a3e-000000000032"},
	}).Extract()
	w.want(err)
	w.refused(nodes.Delete(w.ctx, w.api, id).ExtractErr(), http.StatusConflict)
	w.want(nodes.SetMaintenance(w.ctx, w.api, id, nodes.MaintenanceOpts{Reason: "forcing deletion in baremetal-operator"}).ExtractErr())
	w.want(nodes.Delete(w.ctx, w.api, id).ExtractErr())
	w.refused(nodes.Get(w.ctx, w.api, id).Err, http.StatusNotFound)
	if !w.machine.On() {
		t.Error("the machine was switched off")
	}
}
