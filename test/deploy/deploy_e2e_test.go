//go:build e2e

// Package deploy proves on machines of the lab that salvor brings systems to their disks, with the real ramdisk and its agent. A written
// image boots. salvor refuses an image that may not be written, and reports the reason. Inspection and cleaning do their documented work.
package deploy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/client"
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

// longest bounds each stage; an idle machine takes a tenth of it.
const longest = 3 * time.Minute

// diskSize is more than the agent takes for a system disk without hints; the disk is sparse.
const diskSize = 5 << 30

// world is one machine in its lab, a server, and a folder of images.
type world struct {
	t       *testing.T
	lab     *lab.Lab
	machine lab.MachineStatus
	server  *program.Server
	images  string
	raw     string // an image of the machine's own first system
}

func newWorld(t *testing.T, firmware lab.Firmware, boot, ramdisk string) *world {
	t.Helper()
	self := must.Get(os.Executable())(t)
	l, err := lab.Up(t.Context(), lab.Spec{Name: "deploy", Firmware: firmware, Memory: 1024, StateDir: t.TempDir(), Program: []string{self}, Leashed: true})
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
	w := &world{t: t, lab: l, machine: status.Machines[0], images: t.TempDir()}
	w.raw = filepath.Join(w.images, "tenant.raw")
	w.keepDisk()
	w.server = program.Serve(t, fmt.Sprintf(`[ramdisk]
listen = 10.77.0.1:6386
[bridge]
provisioning_network = br-prov
cleaning_network = br-prov
inspection_network = br-prov
rescuing_network = br-rescue
tenant_network = br-tenant
[netboot]
interfaces = br-prov:authoritative:10.77.0.100-10.77.0.199/24
[inspector]
add_ports = all
[conductor]
deploy_kernel = %[1]s/kernel
deploy_ramdisk = %[1]s/initramfs
file_url_allowed_paths = %[2]s
deploy_callback_timeout = 170
`, ramdisk, w.images), l.Command(t.Context(), "env").Args...)
	m := w.machine
	w.post("/v1/nodes", map[string]any{
		"name": "m1", "driver": "redfish", "deploy_interface": "direct", "inspect_interface": "agent", "network_interface": "bridge", "boot_interface": boot,
		"driver_info": map[string]any{"redfish_address": m.Address, "redfish_username": m.User, "redfish_password": m.Password},
		"properties":  map[string]any{"capabilities": "boot_mode:" + string(firmware)}, "automated_clean": false,
	})
	w.post("/v1/ports", map[string]any{
		"node_uuid": w.node().UUID, "address": m.MAC, "local_link_connection": map[string]any{"port_id": m.PortID, "switch_id": "52:54:00:00:00:01"},
	})
	w.ask("manage", nil, "manageable")
	return w
}

// keepDisk makes the image of the machine's disk, and empties the disk.
func (w *world) keepDisk() {
	w.t.Helper()
	out := must.Get(os.Create(w.raw))(w.t)
	defer out.Close()
	disk := must.Get(os.OpenFile(w.machine.Disk, os.O_RDWR, 0))(w.t)
	defer disk.Close()
	must.Get(io.Copy(out, disk))(w.t)
	for _, size := range []int64{0, diskSize} {
		must.OK(w.t, disk.Truncate(size))
	}
}

// inside runs a program in the lab and returns what it printed.
func (w *world) inside(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), longest)
	defer cancel()
	cmd := w.lab.Command(ctx, args[0], args[1:]...)
	var out, complaints bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaints
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, complaints.String())
	}
	return out.String(), nil
}

func (w *world) call(method, path string, body any) string {
	w.t.Helper()
	args := []string{"curl", "-sS", "--fail-with-body", "-X", method, "-H", "X-OpenStack-Ironic-API-Version: 1.87", "-H", "Content-Type: application/json", w.server.URL + path}
	text := ""
	if body != nil {
		raw := must.Get(json.Marshal(body))(w.t)
		text, args = string(raw), append(args, "--data-binary", "@-")
	}
	out, err := w.inside(text, args...)
	if err != nil {
		w.t.Fatalf("%s %s: %v\n%s", method, path, err, out)
	}
	return out
}

func (w *world) post(path string, body any) { w.t.Helper(); w.call("POST", path, body) }

func (w *world) node() client.Node {
	w.t.Helper()
	var n client.Node
	must.OK(w.t, json.Unmarshal([]byte(w.call("GET", "/v1/nodes/m1", nil)), &n))
	return n
}

// ask gives the node a verb and waits for a state.
func (w *world) ask(verb string, more map[string]any, want string) client.Node {
	w.t.Helper()
	start := time.Now()
	body := map[string]any{"target": verb}
	for k, v := range more {
		body[k] = v
	}
	w.call("PUT", "/v1/nodes/m1/states/provision", body)
	for end := time.Now().Add(longest); ; time.Sleep(100 * time.Millisecond) {
		n := w.node()
		if n.ProvisionState == want && n.Reservation == "" {
			w.t.Logf("%s: %s after %.1f s %s", verb, want, time.Since(start).Seconds(), n.LastError)
			return n
		}
		if time.Now().After(end) || n.Reservation == "" && (strings.HasSuffix(n.ProvisionState, "failed") || n.ProvisionState == "error" || n.ProvisionState == "active") {
			w.t.Fatalf("%s: the node is in %s (%s), want %s\n%s", verb, n.ProvisionState, n.LastError, want, w.picture())
		}
	}
}

// image sets what is to be deployed.
func (w *world) image(path, format, sum string) {
	w.t.Helper()
	w.call("PATCH", "/v1/nodes/m1", []map[string]any{{"op": "add", "path": "/instance_info", "value": map[string]any{
		"image_source": "file://" + path, "image_disk_format": format, "image_os_hash_algo": "sha256", "image_os_hash_value": sum,
	}}})
}

// boots waits until the machine's system answers on the tenant network and tells who it is.
func (w *world) boots() {
	w.t.Helper()
	want := "marker=" + w.machine.Marker + " "
	for end := time.Now().Add(longest); ; time.Sleep(200 * time.Millisecond) {
		out, err := w.inside("", "curl", "-sS", "-m", "2", "http://"+w.machine.TenantAddress+"/")
		if err == nil && strings.Contains(out, want) {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("the deployed system does not answer: %v %s\n%s", err, out, w.picture())
		}
	}
}

// picture is what helps to understand a failure.
func (w *world) picture() string {
	serial, _ := os.ReadFile(w.machine.SerialLog)
	log := w.server.Log()
	return fmt.Sprintf("server:\n%s\nmachine:\n%s", log[max(0, len(log)-4000):], serial[max(0, len(serial)-3000):])
}

func (w *world) sum(path string) string {
	w.t.Helper()
	f := must.Get(os.Open(path))(w.t)
	defer f.Close()
	h := sha256.New()
	must.Get(io.Copy(h, f))(w.t)
	return hex.EncodeToString(h.Sum(nil))
}

func (w *world) qemuImage(name string, args ...string) string {
	w.t.Helper()
	path := filepath.Join(w.images, name)
	if out, err := exec.CommandContext(w.t.Context(), "qemu-img", append(args, path)...).CombinedOutput(); err != nil {
		w.t.Fatalf("qemu-img (package qemu-utils): %v\n%s", err, out)
	}
	return path
}

// diskHead is the beginning of the machine's disk as it is now.
func (w *world) diskHead() []byte {
	w.t.Helper()
	f := must.Get(os.Open(w.machine.Disk))(w.t)
	defer f.Close()
	b := make([]byte, 1<<20)
	must.Get(io.ReadFull(f, b))(w.t)
	return b
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

// TestDeploy inspects, deploys and cleans a BIOS machine, and deploys a UEFI one.
func TestDeploy(t *testing.T) {
	images := ramdisk(t)
	t.Run("BIOS", func(t *testing.T) { newWorld(t, lab.BIOS, "redfish-virtual-media", images).bios() })
	t.Run("UEFI", func(t *testing.T) { newWorld(t, lab.UEFI, "ipxe", images).uefi() })
}

func (w *world) bios() {
	w.inspection()
	w.ask("provide", nil, "available")
	w.refusals()
	w.image(w.raw, "raw", w.sum(w.raw))
	w.ask("active", map[string]any{"configdrive": map[string]any{"meta_data": map[string]any{"name": "m1"}, "user_data": "#cloud-config\n"}}, "active")
	w.boots()
	w.configDrive()
	w.ask("deleted", nil, "available")
	w.ask("manage", nil, "manageable")
	if head := w.diskHead(); bytes.Equal(head, make([]byte, len(head))) {
		w.t.Fatal("the disk is empty before it is cleaned")
	}
	w.ask("clean", map[string]any{"clean_steps": []map[string]any{{"interface": "deploy", "step": "erase_devices_metadata"}}}, "manageable")
	if head := w.diskHead(); !bytes.Equal(head[:512], make([]byte, 512)) {
		w.t.Error("erase_devices_metadata left a partition table")
	}
}

func (w *world) uefi() {
	qcow := w.qemuImage("tenant.qcow2", "convert", "-c", "-f", "raw", "-O", "qcow2", w.raw)
	w.ask("provide", nil, "available")
	w.image(qcow, "qcow2", w.sum(qcow))
	w.ask("active", nil, "active")
	w.boots()
}

// refusals are deployments that may not come about; the node says why, and is asked again.
func (w *world) refusals() {
	verb := "active"
	refused := func(path, format, sum string, words ...string) {
		w.t.Helper()
		w.image(path, format, sum)
		n := w.ask(verb, nil, "deploy failed")
		for _, word := range append(words, "write_image", "ask for") {
			if !strings.Contains(n.LastError, word) {
				w.t.Errorf("last_error %q lacks %q", n.LastError, word)
			}
		}
	}
	wrong := strings.Repeat("ab", 32)
	refused(w.raw, "raw", wrong, wrong, w.sum(w.raw))
	cut := filepath.Join(w.images, "cut.qcow2")
	whole := must.Get(os.ReadFile(w.qemuImage("whole.qcow2", "convert", "-f", "raw", "-O", "qcow2", w.raw)))(w.t)
	must.OK(w.t, os.WriteFile(cut, whole[:len(whole)/2], 0o644))
	refused(cut, "qcow2", w.sum(cut))
	backed := filepath.Join(w.images, "backed.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-f", "qcow2", "-b", "/etc/shadow", "-F", "raw", "-u", backed, "64M").CombinedOutput(); err != nil {
		w.t.Fatalf("qemu-img: %v\n%s", err, out)
	}
	refused(backed, "qcow2", w.sum(backed), "backing file")
	refused(w.raw, "qcow2", w.sum(w.raw), "qcow2")
	head := w.diskHead()
	if !bytes.Equal(head[510:512], []byte{0, 0}) {
		w.t.Error("a refused image left a disk that a BIOS would boot")
	}
}

// inspection fills in what the machine is made of.
func (w *world) inspection() {
	n := w.ask("inspect", nil, "manageable")
	for key, least := range map[string]float64{"cpus": 1, "memory_mb": 512, "local_gb": 1} {
		var v float64
		if _, err := fmt.Sscan(fmt.Sprint(n.Properties[key]), &v); err != nil || v < least {
			w.t.Errorf("property %s is %v", key, n.Properties[key])
		}
	}
	if n.Properties["cpu_arch"] != "x86_64" || !strings.Contains(fmt.Sprint(n.Properties["capabilities"]), "boot_mode:bios") {
		w.t.Errorf("properties %v", n.Properties)
	}
	if out := w.call("GET", "/v1/ports?node=m1", nil); !strings.Contains(out, w.machine.MAC) {
		w.t.Errorf("ports %s", out)
	}
	if out := w.call("GET", "/v1/nodes/m1/inventory", nil); !strings.Contains(out, w.machine.MAC) {
		w.t.Errorf("inventory %.500s", out)
	}
	w.t.Logf("volume connectors: %s", w.call("GET", "/v1/volume/connectors?node=m1", nil))
}

// configDrive finds the drive on the machine's disk.
func (w *world) configDrive() {
	w.t.Helper()
	f := must.Get(os.Open(w.machine.Disk))(w.t)
	defer f.Close()
	// Behind the image, or at the end of the disk.
	disk, end := make([]byte, 512<<20), make([]byte, 128<<20)
	must.Get(f.ReadAt(disk, 0))(w.t)
	must.Get(f.ReadAt(end, diskSize-int64(len(end))))(w.t)
	disk = append(disk, end...)
	at := bytes.Index(disk, []byte("config-2"))
	if at < 0 || !bytes.Contains(disk[at:], []byte("#cloud-config")) {
		w.t.Error("the disk holds no config drive with the user's data")
	}
}
