//go:build e2e

package metal

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"salvor/lab"
	"salvor/lab/personality"
	"salvor/test/machine"
	"salvor/test/must"
)

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) { machine.Main(m) }

// diskSize is more than the agent takes for a system disk without hints; the disk is sparse.
const diskSize = 5 << 30

// rack is a machine of the lab behind a BMC like that of sushy-tools, and a salvor whose endpoint is itself.
type rack struct{ *machine.World }

func newRack(t *testing.T) *rack {
	t.Helper()
	r := &rack{machine.Up(t, lab.Spec{Name: "metal", Firmware: lab.BIOS, Memory: 1024, Like: personality.SushyTools})}
	r.Serve(fmt.Sprintf(`[ramdisk]
listen = 10.77.0.1:6386
[bridge]
provisioning_network = br-prov
cleaning_network = br-prov
rescuing_network = br-prov
tenant_network = br-tenant
[netboot]
interfaces = br-prov:authoritative:10.77.0.100-10.77.0.199/24
[conductor]
deploy_kernel = %[1]s/kernel
deploy_ramdisk = %[1]s/initramfs
rescue_kernel = %[1]s/kernel
rescue_ramdisk = %[1]s/initramfs
automated_clean = false
[compute]
shutdown_timeout = 2
`, machine.Ramdisk(t)))
	return r
}

// takeDisk makes an image of the machine's own system, and empties its disk.
func (r *rack) takeDisk() string {
	r.Helper()
	image := filepath.Join(r.TempDir(), "tenant.qcow2")
	if out, err := exec.CommandContext(r.Context(), "qemu-img", "convert", "-f", "raw", "-O", "qcow2", r.Machine.Disk, image).CombinedOutput(); err != nil {
		r.Fatalf("qemu-img (package qemu-utils): %v\n%s", err, out)
	}
	for _, size := range []int64{0, diskSize} {
		must.OK(r, os.Truncate(r.Machine.Disk, size))
	}
	return image
}

// call asks the API.
func (r *rack) call(method, path string, body any) object {
	r.Helper()
	var out object
	_ = json.Unmarshal([]byte(r.API(method, path, body)), &out)
	return out
}

// openstack runs Debian's client in the lab.
func (r *rack) openstack(args ...string) string {
	r.Helper()
	words := append([]string{"env", "-i", "PATH=/usr/bin:/bin", "HOME=" + r.TempDir(), "LC_ALL=C.UTF-8", "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1",
		"OS_AUTH_TYPE=password", "OS_AUTH_URL=" + r.Server.URL + "/identity", "OS_IDENTITY_API_VERSION=3", "OS_USERNAME=admin", "OS_PASSWORD=any", "OS_PROJECT_NAME=admin",
		"OS_USER_DOMAIN_ID=default", "OS_PROJECT_DOMAIN_ID=default", "/usr/bin/openstack"}, args...)
	out, err := r.Inside("", words...)
	if err != nil {
		r.Fatalf("openstack %s (package python3-openstackclient): %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (r *rack) is(id, want string) {
	r.Helper()
	r.Until("the server is "+want, func() error {
		srv := r.call("GET", "/compute/v2.1/servers/"+id, nil)["server"].(object)
		if srv["status"] == "ERROR" && want != "ERROR" {
			r.Fatalf("the server failed: %v", srv["fault"])
		}
		if srv["status"] != want || srv["OS-EXT-STS:task_state"] != nil {
			return fmt.Errorf("it is %v, task %v", srv["status"], srv["OS-EXT-STS:task_state"])
		}
		return nil
	})
}

func (r *rack) nodeIs(want string) {
	r.Helper()
	r.Until("the node is "+want, func() error {
		n := r.call("GET", "/v1/nodes/m1", nil)
		if n["provision_state"] != want || n["reservation"] != nil {
			return fmt.Errorf("it is %v: %v", n["provision_state"], n["last_error"])
		}
		return nil
	})
}

// TestRescueOnMetal deploys a server to a machine, rescues it with Debian's client, logs in with the password, and puts it back.
func TestRescueOnMetal(t *testing.T) {
	r := newRack(t)
	image := r.takeDisk()
	m := r.Machine
	r.Enroll(object{
		"deploy_interface": "direct", "boot_interface": "redfish-virtual-media", "resource_class": "baremetal", "properties": object{"capabilities": "boot_mode:bios"},
	})
	r.call("PUT", "/v1/nodes/m1/states/provision", object{"target": "manage"})
	r.nodeIs("manageable")
	r.call("PUT", "/v1/nodes/m1/states/provision", object{"target": "provide"})
	r.nodeIs("available")

	flavor := r.call("POST", "/compute/v2.1/flavors", object{"flavor": object{"name": "metal", "ram": 1024, "vcpus": 1, "disk": 0}})["flavor"].(object)["id"].(string)
	r.call("POST", "/compute/v2.1/flavors/"+flavor+"/os-extra_specs", object{"extra_specs": object{"resources:CUSTOM_BAREMETAL": "1"}})
	kept := r.call("POST", "/image/v2/images", object{"name": "tenant", "disk_format": "qcow2", "container_format": "bare"})["id"].(string)
	must.Get(r.Inside("", "curl", "-sS", "--fail-with-body", "-H", "Content-Type: application/octet-stream", "-T", image, r.Server.URL+"/image/v2/images/"+kept+"/file"))(t)
	r.call("POST", "/salvor/v1/clusters", object{"name": "metal", "kind": "ironic", "url": "self"})
	r.Until("the endpoint tells its machine", func() error {
		if all := r.call("GET", "/salvor/v1/hosts", nil); !strings.Contains(fmt.Sprint(all), "CUSTOM_BAREMETAL:1") {
			return fmt.Errorf("%v", all)
		}
		return nil
	})

	made := r.call("POST", "/compute/v2.1/servers", object{"server": object{"name": "web", "flavorRef": flavor, "imageRef": kept}})
	id := made["server"].(object)["id"].(string)
	r.is(id, "ACTIVE")
	r.openstack("server", "rescue", "--password", "open-sesame-7", "web")
	r.is(id, "RESCUE")
	r.Until("an ssh prompt with the rescue password", func() error {
		out, err := r.SSH("", "rescue@"+m.TenantAddress, "open-sesame-7", "/dev/null", "cat /proc/cmdline")
		if err == nil && !strings.Contains(out, "ipa-api-url=") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	r.openstack("server", "unrescue", "web")
	r.is(id, "ACTIVE")
	r.Until("its own system runs", func() error {
		out, err := r.Page(m.TenantAddress)
		if err == nil && !strings.Contains(out, "marker="+m.Marker+" ") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	r.openstack("server", "delete", "web")
	r.nodeIs("available")
	if strings.Contains(r.Server.Log(), "open-sesame-7") {
		t.Error("the log tells the password")
	}
}
