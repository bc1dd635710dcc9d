//go:build e2e

package metal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/lab"
	"salvor/test/must"
	"salvor/test/program"
)

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) {
	if status, handled := lab.Hidden(os.Args[1:]); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

const (
	// longest bounds each stage; an idle machine takes a tenth of it.
	longest = 3 * time.Minute
	// diskSize is more than the agent takes for a system disk without hints; the disk is sparse.
	diskSize = 5 << 30
)

// rack is a machine of the lab behind a Redfish BMC, and a salvor whose endpoint is itself.
type rack struct {
	*testing.T
	lab     *lab.Lab
	machine lab.MachineStatus
	server  *program.Server
}

func newRack(t *testing.T) *rack {
	t.Helper()
	self := must.Get(os.Executable())(t)
	l, err := lab.Up(t.Context(), lab.Spec{Name: "metal", Firmware: lab.BIOS, Memory: 1024, StateDir: t.TempDir(), Program: []string{self}, Leashed: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	status, err := l.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &rack{T: t, lab: l, machine: status.Machines[0]}
	r.server = program.Serve(t, fmt.Sprintf(`[ramdisk]
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
`, ramdisk(t)), l.Command(t.Context(), "env").Args...)
	return r
}

// ramdisk is a folder with kernel and ramdisk: $SALVOR_RAMDISK, else built here.
func ramdisk(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("SALVOR_RAMDISK"); dir != "" {
		dir := must.Get(filepath.Abs(dir))(t)
		return dir
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), program.Path(t, "salvor"), "ramdisk", "build", "--out", dir).CombinedOutput(); err != nil {
		t.Fatalf("build the ramdisk: %v\n%s", err, out)
	}
	return dir
}

// takeDisk makes an image of the machine's own system, and empties its disk.
func (r *rack) takeDisk() string {
	r.Helper()
	image := filepath.Join(r.TempDir(), "tenant.qcow2")
	if out, err := exec.CommandContext(r.Context(), "qemu-img", "convert", "-f", "raw", "-O", "qcow2", r.machine.Disk, image).CombinedOutput(); err != nil {
		r.Fatalf("qemu-img (package qemu-utils): %v\n%s", err, out)
	}
	for _, size := range []int64{0, diskSize} {
		must.OK(r, os.Truncate(r.machine.Disk, size))
	}
	return image
}

// inside runs a program in the lab and returns what it printed.
func (r *rack) inside(stdin io.Reader, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), longest)
	defer cancel()
	cmd := r.lab.Command(ctx, args[0], args[1:]...)
	var out, complaints bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &complaints
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, complaints.String())
	}
	return out.String(), nil
}

// call asks the API; a body that is no object is sent as it is.
func (r *rack) call(method, path string, body any) object {
	r.Helper()
	kind, stdin := "application/json", io.Reader(nil)
	switch b := body.(type) {
	case io.Reader:
		kind, stdin = "application/octet-stream", b
	default:
		raw := must.Get(json.Marshal(b))(r)
		stdin = bytes.NewReader(raw)
	}
	args := []string{"curl", "-sS", "--fail-with-body", "-X", method, "-H", "X-OpenStack-Ironic-API-Version: 1.87", "-H", "Content-Type: " + kind, r.server.URL + path}
	if body != nil {
		args = append(args, "--data-binary", "@-")
	}
	text, err := r.inside(stdin, args...)
	if err != nil {
		r.Fatalf("%s %s: %v\n%s\n%s", method, path, err, text, r.picture())
	}
	var out object
	_ = json.Unmarshal([]byte(text), &out)
	return out
}

// openstack runs Debian's client in the lab.
func (r *rack) openstack(args ...string) string {
	r.Helper()
	words := append([]string{"env", "-i", "PATH=/usr/bin:/bin", "HOME=" + r.TempDir(), "LC_ALL=C.UTF-8", "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1",
		"OS_AUTH_TYPE=password", "OS_AUTH_URL=" + r.server.URL + "/identity", "OS_IDENTITY_API_VERSION=3", "OS_USERNAME=admin", "OS_PASSWORD=any", "OS_PROJECT_NAME=admin",
		"OS_USER_DOMAIN_ID=default", "OS_PROJECT_DOMAIN_ID=default", "/usr/bin/openstack"}, args...)
	out, err := r.inside(nil, words...)
	if err != nil {
		r.Fatalf("openstack %s (package python3-openstackclient): %v\n%s\n%s", strings.Join(args, " "), err, out, r.picture())
	}
	return out
}

// picture is what helps to understand a failure.
func (r *rack) picture() string {
	serial, _ := os.ReadFile(r.machine.SerialLog)
	var log []string
	for line := range strings.Lines(r.server.Log()) {
		if !strings.Contains(line, "msg=request") {
			log = append(log, line)
		}
	}
	return fmt.Sprintf("server:\n%s\nmachine:\n%s", strings.Join(log[max(0, len(log)-40):], ""), serial[max(0, len(serial)-3000):])
}

// until waits for a condition.
func (r *rack) until(what string, holds func() error) {
	r.Helper()
	begin := time.Now()
	for {
		err := holds()
		if err == nil {
			r.Logf("%s after %.1f s", what, time.Since(begin).Seconds())
			return
		}
		if time.Since(begin) > longest {
			r.Fatalf("%s: %v\n%s", what, err, r.picture())
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (r *rack) is(id, want string) {
	r.Helper()
	r.until("the server is "+want, func() error {
		srv := r.call("GET", "/compute/v2.1/servers/"+id, nil)["server"].(object)
		if srv["status"] == "ERROR" && want != "ERROR" {
			r.Fatalf("the server failed: %v\n%s", srv["fault"], r.picture())
		}
		if srv["status"] != want || srv["OS-EXT-STS:task_state"] != nil {
			return fmt.Errorf("it is %v, task %v", srv["status"], srv["OS-EXT-STS:task_state"])
		}
		return nil
	})
}

func (r *rack) nodeIs(want string) {
	r.Helper()
	r.until("the node is "+want, func() error {
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
	m := r.machine
	node := r.call("POST", "/v1/nodes", object{
		"name": "m1", "driver": "redfish", "deploy_interface": "direct", "network_interface": "bridge", "boot_interface": "redfish-virtual-media", "resource_class": "baremetal",
		"driver_info": object{"redfish_address": m.Address, "redfish_username": m.User, "redfish_password": m.Password},
		"properties":  object{"capabilities": "boot_mode:bios"},
	})["uuid"]
	r.call("POST", "/v1/ports", object{
		"node_uuid": node, "address": m.MAC, "local_link_connection": object{"port_id": m.PortID, "switch_id": "52:54:00:00:00:01"},
	})
	r.call("PUT", "/v1/nodes/m1/states/provision", object{"target": "manage"})
	r.nodeIs("manageable")
	r.call("PUT", "/v1/nodes/m1/states/provision", object{"target": "provide"})
	r.nodeIs("available")

	flavor := r.call("POST", "/compute/v2.1/flavors", object{"flavor": object{"name": "metal", "ram": 1024, "vcpus": 1, "disk": 0}})["flavor"].(object)["id"].(string)
	r.call("POST", "/compute/v2.1/flavors/"+flavor+"/os-extra_specs", object{"extra_specs": object{"resources:CUSTOM_BAREMETAL": "1"}})
	kept := r.call("POST", "/image/v2/images", object{"name": "tenant", "disk_format": "qcow2", "container_format": "bare"})["id"].(string)
	f := must.Get(os.Open(image))(t)
	defer f.Close()
	r.call("PUT", "/image/v2/images/"+kept+"/file", f)
	r.call("POST", "/salvor/v1/clusters", object{"name": "metal", "kind": "ironic", "url": "self"})
	r.until("the endpoint tells its machine", func() error {
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
	r.until("an ssh prompt with the rescue password", func() error {
		out, err := r.inside(nil, "env", "SSHPASS=open-sesame-7", "sshpass", "-e", "ssh", "-o", "ConnectTimeout=2", "-o", "LogLevel=ERROR", "-o", "PreferredAuthentications=password",
			"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "rescue@"+m.TenantAddress, "cat /proc/cmdline")
		if err == nil && !strings.Contains(out, "ipa-api-url=") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	r.openstack("server", "unrescue", "web")
	r.is(id, "ACTIVE")
	r.until("its own system runs", func() error {
		out, err := r.inside(nil, "curl", "-sS", "-m", "2", "http://"+m.TenantAddress+"/")
		if err == nil && !strings.Contains(out, "marker="+m.Marker+" ") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	r.openstack("server", "delete", "web")
	r.nodeIs("available")
	if strings.Contains(r.server.Log(), "open-sesame-7") {
		t.Error("the log tells the password")
	}
}
