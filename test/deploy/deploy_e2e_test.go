//go:build e2e

// Package deploy proves on machines of the lab that salvor brings systems to their disks, with the real ramdisk and its agent. A written
// image boots. salvor refuses an image that may not be written, and reports the reason. Inspection and cleaning do their documented work.
package deploy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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
	"salvor/test/machine"
	"salvor/test/must"
)

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) { machine.Main(m) }

// diskSize is more than the agent takes for a system disk without hints; the disk is sparse.
const diskSize = 5 << 30

// world is one machine in its lab, a server, and a folder of images.
type world struct {
	*machine.World
	images string
	raw    string // an image of the machine's own first system
}

func newWorld(t *testing.T, firmware lab.Firmware, boot, ramdisk string) *world {
	t.Helper()
	w := &world{World: machine.Up(t, lab.Spec{Name: "deploy", Firmware: firmware, Memory: 1024}), images: t.TempDir()}
	w.raw = filepath.Join(w.images, "tenant.raw")
	w.keepDisk()
	w.Serve(fmt.Sprintf(`[ramdisk]
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
`, ramdisk, w.images))
	w.Enroll(map[string]any{
		"deploy_interface": "direct", "inspect_interface": "agent", "boot_interface": boot, "automated_clean": false,
		"properties": map[string]any{"capabilities": "boot_mode:" + string(firmware)},
	})
	w.ask("manage", nil, "manageable")
	return w
}

// keepDisk makes the image of the machine's disk, and empties the disk.
func (w *world) keepDisk() {
	w.Helper()
	out := must.Get(os.Create(w.raw))(w)
	defer out.Close()
	disk := must.Get(os.OpenFile(w.Machine.Disk, os.O_RDWR, 0))(w)
	defer disk.Close()
	must.Get(io.Copy(out, disk))(w)
	for _, size := range []int64{0, diskSize} {
		must.OK(w, disk.Truncate(size))
	}
}

// ask gives the node a verb and waits for a state.
func (w *world) ask(verb string, more map[string]any, want string) client.Node {
	w.Helper()
	start := time.Now()
	body := map[string]any{"target": verb}
	for k, v := range more {
		body[k] = v
	}
	w.API("PUT", "/v1/nodes/m1/states/provision", body)
	for end := time.Now().Add(w.Timeout); ; time.Sleep(100 * time.Millisecond) {
		n := w.Node()
		if n.ProvisionState == want && n.Reservation == "" {
			w.Logf("%s: %s after %.1f s %s", verb, want, time.Since(start).Seconds(), n.LastError)
			return n
		}
		if time.Now().After(end) || n.Reservation == "" && (strings.HasSuffix(n.ProvisionState, "failed") || n.ProvisionState == "error" || n.ProvisionState == "active") {
			w.Fatalf("%s: the node is in %s (%s), want %s", verb, n.ProvisionState, n.LastError, want)
		}
	}
}

// image sets what is to be deployed.
func (w *world) image(path, format, sum string) {
	w.Helper()
	w.API("PATCH", "/v1/nodes/m1", []map[string]any{{"op": "add", "path": "/instance_info", "value": map[string]any{
		"image_source": "file://" + path, "image_disk_format": format, "image_os_hash_algo": "sha256", "image_os_hash_value": sum,
	}}})
}

// boots waits until the machine's system answers on the tenant network and tells who it is.
func (w *world) boots() {
	w.Helper()
	w.Until("the deployed system answers", func() error {
		out, err := w.Page(w.Machine.TenantAddress)
		if err == nil && !strings.Contains(out, "marker="+w.Machine.Marker+" ") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
}

func (w *world) sum(path string) string {
	w.Helper()
	f := must.Get(os.Open(path))(w)
	defer f.Close()
	h := sha256.New()
	must.Get(io.Copy(h, f))(w)
	return hex.EncodeToString(h.Sum(nil))
}

func (w *world) qemuImage(name string, args ...string) string {
	w.Helper()
	path := filepath.Join(w.images, name)
	if out, err := exec.CommandContext(w.Context(), "qemu-img", append(args, path)...).CombinedOutput(); err != nil {
		w.Fatalf("qemu-img (package qemu-utils): %v\n%s", err, out)
	}
	return path
}

// diskHead is the beginning of the machine's disk as it is now.
func (w *world) diskHead() []byte {
	w.Helper()
	f := must.Get(os.Open(w.Machine.Disk))(w)
	defer f.Close()
	b := make([]byte, 1<<20)
	must.Get(io.ReadFull(f, b))(w)
	return b
}

// TestDeploy inspects, deploys and cleans a BIOS machine, and deploys a UEFI one.
func TestDeploy(t *testing.T) {
	images := machine.Ramdisk(t)
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
		w.Fatal("the disk is empty before it is cleaned")
	}
	w.ask("clean", map[string]any{"clean_steps": []map[string]any{{"interface": "deploy", "step": "erase_devices_metadata"}}}, "manageable")
	if head := w.diskHead(); !bytes.Equal(head[:512], make([]byte, 512)) {
		w.Error("erase_devices_metadata left a partition table")
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
		w.Helper()
		w.image(path, format, sum)
		n := w.ask(verb, nil, "deploy failed")
		for _, word := range append(words, "write_image", "ask for") {
			if !strings.Contains(n.LastError, word) {
				w.Errorf("last_error %q lacks %q", n.LastError, word)
			}
		}
	}
	wrong := strings.Repeat("ab", 32)
	refused(w.raw, "raw", wrong, wrong, w.sum(w.raw))
	cut := filepath.Join(w.images, "cut.qcow2")
	whole := must.Get(os.ReadFile(w.qemuImage("whole.qcow2", "convert", "-f", "raw", "-O", "qcow2", w.raw)))(w)
	must.OK(w, os.WriteFile(cut, whole[:len(whole)/2], 0o644))
	refused(cut, "qcow2", w.sum(cut))
	backed := filepath.Join(w.images, "backed.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-f", "qcow2", "-b", "/etc/shadow", "-F", "raw", "-u", backed, "64M").CombinedOutput(); err != nil {
		w.Fatalf("qemu-img: %v\n%s", err, out)
	}
	refused(backed, "qcow2", w.sum(backed), "backing file")
	refused(w.raw, "qcow2", w.sum(w.raw), "qcow2")
	head := w.diskHead()
	if !bytes.Equal(head[510:512], []byte{0, 0}) {
		w.Error("a refused image left a disk that a BIOS would boot")
	}
}

// inspection fills in what the machine is made of.
func (w *world) inspection() {
	n := w.ask("inspect", nil, "manageable")
	for key, least := range map[string]float64{"cpus": 1, "memory_mb": 512, "local_gb": 1} {
		var v float64
		if _, err := fmt.Sscan(fmt.Sprint(n.Properties[key]), &v); err != nil || v < least {
			w.Errorf("property %s is %v", key, n.Properties[key])
		}
	}
	if n.Properties["cpu_arch"] != "x86_64" || !strings.Contains(fmt.Sprint(n.Properties["capabilities"]), "boot_mode:bios") {
		w.Errorf("properties %v", n.Properties)
	}
	if out := w.API("GET", "/v1/ports?node=m1", nil); !strings.Contains(out, w.Machine.MAC) {
		w.Errorf("ports %s", out)
	}
	if out := w.API("GET", "/v1/nodes/m1/inventory", nil); !strings.Contains(out, w.Machine.MAC) {
		w.Errorf("inventory %.500s", out)
	}
	w.Logf("volume connectors: %s", w.API("GET", "/v1/volume/connectors?node=m1", nil))
}

// configDrive finds the drive on the machine's disk.
func (w *world) configDrive() {
	w.Helper()
	f := must.Get(os.Open(w.Machine.Disk))(w)
	defer f.Close()
	// Behind the image, or at the end of the disk.
	disk, end := make([]byte, 512<<20), make([]byte, 128<<20)
	must.Get(f.ReadAt(disk, 0))(w)
	must.Get(f.ReadAt(end, diskSize-int64(len(end))))(w)
	disk = append(disk, end...)
	at := bytes.Index(disk, []byte("config-2"))
	if at < 0 || !bytes.Contains(disk[at:], []byte("#cloud-config")) {
		w.Error("the disk holds no config drive with the user's data")
	}
}
