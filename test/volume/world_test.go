//go:build e2e

package volume

import (
	"context"
	"encoding/json"
	"fmt"
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
	"salvor/test/program"
)

const (
	// longest bounds each stage, of which the longest is a boot; an idle machine takes a tenth of it.
	longest = 3 * time.Minute
	// control is the control port of the storage daemon, whose socket lies in a folder of its own.
	control = "7"
)

// world is a machine, a storage daemon and a server, all inside of a lab.
type world struct {
	*machine.World
	iqn      string
	marker   string // of the system that is to boot
	markers  map[string]string
	boots    int // of that system so far
	targetID string
	password string
	// forgotten is looked at once the node is torn down.
	forgotten func()
}

func newWorld(t *testing.T) *world {
	w := &world{
		World:   machine.Up(t, lab.Spec{Name: "volume", Disk: lab.BlankDisk, Initiator: true}),
		markers: map[string]string{}, iqn: "iqn.2026-01.org.salvor.test:m1", password: "rescue-volume",
	}
	w.Timeout, w.Env = longest, []string{"TGT_IPC_SOCKET=" + w.Dir + "/tgt"}
	w.startStorage()
	w.Serve(fmt.Sprintf(`[ramdisk]
listen = 10.77.0.1:6386
[bridge]
provisioning_network = br-prov
cleaning_network = br-clean
inspection_network = br-tenant
rescuing_network = br-rescue
tenant_network = br-prov
[netboot]
interfaces = br-prov:authoritative:10.77.0.100-10.77.0.199/24:guests,br-rescue:authoritative:10.79.0.100-10.79.0.199/24:gateway=10.79.0.1
[pxe]
kernel_append_params = console=ttyS0 quiet
[conductor]
rescue_kernel = %[1]s/kernel
rescue_ramdisk = %[1]s/initramfs
automated_clean = false
`, machine.Ramdisk(t)))
	return w
}

// startStorage runs tgtd inside of the lab, which ends it.
func (w *world) startStorage() {
	if _, err := exec.LookPath("tgtd"); err != nil {
		w.Fatalf("the Debian package tgt is needed: %v", err)
	}
	cmd := w.Lab.Command(context.WithoutCancel(w.Context()), "tgtd", "-f", "-C", control, "--iscsi", "portal=10.77.0.1:3260")
	cmd.Env = append(os.Environ(), "TGT_IPC_SOCKET="+w.Dir+"/tgt")
	var said program.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	must.OK(w, cmd.Start())
	w.Cleanup(func() {
		// It pays no heed to requests to end while targets are there; the lab's end is the last resort.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	w.Await("storage answers", func() bool {
		_, err := w.Inside("", "tgtadm", "-C", control, "--lld", "iscsi", "--mode", "target", "--op", "show")
		return err == nil
	})
}

func (w *world) tgt(args ...string) string {
	w.Helper()
	out, err := w.Inside("", append([]string{"tgtadm", "-C", control, "--lld", "iscsi"}, args...)...)
	if err != nil {
		w.Fatalf("tgtadm %v: %v", args, err)
	}
	return out
}

// volume makes a disk image with a system.
func (w *world) volume(name string) string {
	v := must.Get(lab.MakeVolume(w.Context(), w.Dir, filepath.Join(w.Dir, name+".img")))(w)
	w.markers[name] = v.Marker
	return v.Path
}

// export makes a target for the node's initiator alone, with CHAP.
func (w *world) export(name, password string) {
	path := w.volume(name)
	w.tgt("--mode", "target", "--op", "new", "--tid", "1", "-T", target(name))
	w.tgt("--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", path)
	w.tgt("--mode", "account", "--op", "new", "--user", "chap", "--password", password)
	w.tgt("--mode", "account", "--op", "bind", "--tid", "1", "--user", "chap")
	w.tgt("--mode", "target", "--op", "bind", "--tid", "1", "-Q", w.iqn)
	w.marker = w.markers[name]
}

func target(name string) string { return "iqn.2026-01.org.salvor.test:" + name }

// settled waits until a field of the node has a value.
func (w *world) settled(field, want string) {
	w.Helper()
	w.Await(field+" "+want, func() bool { n := w.Node(); return n.Record.Text(field) == want && n.Reservation == "" })
}

// enroll makes the node anew, ready to be deployed, with its connector.
func (w *world) enroll(boot, firmware string) {
	w.Helper()
	w.Enroll(map[string]any{"boot_interface": boot, "storage_interface": "external", "properties": map[string]any{"capabilities": "boot_mode:" + firmware}})
	w.CLI("node", "manage", "m1", "--wait")
	w.CLI("node", "provide", "m1", "--wait")
	w.CLI("volume", "connector", "create", "--node", "m1", "--type", "iqn", "--connector-id", w.iqn)
}

// refusals are told by validate and before anything is touched.
func (w *world) refusals() {
	w.Helper()
	w.target("nowhere", "10.77.0.1:3260")
	before := w.Node()
	refused := func(reason string) {
		w.Helper()
		out, _ := w.TryCLI("", "node", "validate", "m1")
		_, err := w.TryCLI("", "node", "deploy", "m1", "--wait")
		if err == nil || !strings.Contains(err.Error(), reason) || !strings.Contains(out, reason) {
			w.Fatalf("deploy: %v\nvalidate: %s\nwant %q", err, out, reason)
		}
		if n := w.Node(); n.ProvisionState != "available" || n.PowerState != before.PowerState {
			w.Fatalf("state %s, power %s", n.ProvisionState, n.PowerState)
		}
	}
	refused("iscsi_boot")
	w.CLI("node", "set", "m1", "--property", "capabilities="+before.Properties.Text("capabilities")+",iscsi_boot:true")
	w.CLI("volume", "target", "unset", w.targetID, "--property", "target_portal")
	refused("target_portal")
	w.CLI("volume", "target", "delete", w.targetID)
}

// target registers where the volume is, with its root's index.
func (w *world) target(name string, portals ...string) {
	w.Helper()
	properties, err := json.Marshal(map[string]any{
		"target_portals": portals, "target_iqn": target(name), "target_lun": 1, "auth_method": "CHAP", "auth_username": "chap", "auth_password": secret,
	})
	if len(portals) == 1 {
		properties, err = json.Marshal(map[string]any{
			"target_portal": portals[0], "target_iqn": target(name), "target_lun": 1, "auth_method": "CHAP", "auth_username": "chap", "auth_password": secret,
		})
	}
	if err != nil {
		w.Fatal(err)
	}
	body := fmt.Sprintf(`{"node_uuid": %q, "volume_type": "iscsi", "volume_id": %q, "boot_index": 0, "properties": %s}`, w.Node().UUID, name, properties)
	var made client.Record
	must.OK(w, json.Unmarshal([]byte(w.API("POST", "/v1/volume/targets", body)), &made))
	w.targetID = made.Text("uuid")
}

// address is what the system on the machine said last that it was given.
func (w *world) address() string {
	serial, _ := os.ReadFile(w.Machine.SerialLog)
	text := string(serial)
	i := strings.LastIndex(text, "TENANT address ")
	if i < 0 {
		return ""
	}
	return strings.TrimSpace(strings.SplitN(text[i+len("TENANT address "):], "\n", 2)[0])
}

// deploy has the machine boot its system from the volume, where the boots are counted.
func (w *world) deploy() {
	w.Helper()
	start := time.Now()
	w.CLI("node", "deploy", "m1", "--wait")
	w.up()
	w.Logf("deployed and up: %.1f s", time.Since(start).Seconds())
}

func (w *world) up() {
	w.Helper()
	w.boots++
	want := fmt.Sprintf("marker=%s boots=%d ", w.marker, w.boots)
	w.Await("the system on the volume", func() bool {
		address := w.address()
		if address == "" {
			return false
		}
		out, err := w.Page(address)
		if err == nil && !strings.Contains(out, want) {
			w.Fatalf("the system says %q, want %q", out, want)
		}
		return err == nil
	})
}

// listsInitiator looks at the storage daemon's own list.
func (w *world) listsInitiator(name string) {
	w.Helper()
	show := w.tgt("--mode", "target", "--op", "show")
	if !strings.Contains(show, target(name)) || !strings.Contains(show, "Initiator: "+w.iqn) {
		w.Fatalf("the target lists no %s:\n%s", w.iqn, show)
	}
}

// rescueAndBack sees the volume's own file system from the rescue, and the system again after it.
func (w *world) rescueAndBack() {
	w.Helper()
	address, start := w.address(), time.Now()
	must.Get(w.TryCLI(w.password+"\n", "node", "rescue", "m1", "--rescue-password-file", "-", "--wait"))(w)
	w.Await("the volume in the rescue", func() bool {
		out, err := w.SSH("", "rescue@"+address, w.password, "/dev/null", "mkdir -p /mnt && mount -t ext4 /dev/sda2 /mnt && cat /mnt/etc/marker && umount /mnt")
		if err == nil && strings.TrimSpace(out) != w.marker {
			w.Fatalf("the rescue shows %q, want %q", out, w.marker)
		}
		return err == nil
	})
	w.Logf("rescued with the volume: %.1f s", time.Since(start).Seconds())
	start = time.Now()
	w.CLI("node", "unrescue", "m1", "--wait")
	w.up()
	w.Logf("back: %.1f s", time.Since(start).Seconds())
}

// change patches a record while the node is off, and has the machine start with it.
func (w *world) change(path, patch string) {
	w.Helper()
	w.CLI("node", "power", "off", "m1")
	w.settled("power_state", "power off")
	w.API("PATCH", path, patch)
	w.CLI("node", "power", "on", "m1")
	w.settled("power_state", "power on")
}

// fails waits for the reason on the node.
func (w *world) fails(reason string) {
	w.Helper()
	w.Await("last_error "+reason, func() bool { return strings.Contains(w.Node().LastError, reason) })
}

// wrongSecret is told on the node; with the right one the next start is well.
func (w *world) wrongSecret() {
	w.Helper()
	path := "/v1/volume/targets/" + w.targetID
	w.change(path, `[{"op": "replace", "path": "/properties/auth_password", "value": "wrong-secret"}]`)
	w.fails("the target refuses the login")
	w.change(path, fmt.Sprintf(`[{"op": "replace", "path": "/properties/auth_password", "value": %q}]`, secret))
	w.up()
	if n := w.Node(); n.LastError != "" {
		w.Fatalf("last_error %q stays", n.LastError)
	}
}

// wrongInitiator is one that the storage does not let in.
func (w *world) wrongInitiator() {
	w.Helper()
	connector := w.CLI("volume", "connector", "list", "--node", "m1", "-f", "value", "-c", "uuid")
	path := "/v1/volume/connectors/" + connector
	w.change(path, `[{"op": "replace", "path": "/connector_id", "value": "iqn.2026-01.org.salvor.test:stranger"}]`)
	w.fails("no such target for this node")
}

// adapterIsEmpty proves that the machine's own initiator keeps nothing of a volume.
func (w *world) adapterIsEmpty() {
	w.Helper()
	out, err := w.Inside("", "curl", "-sS", "-f", "-u", w.Machine.User+":"+w.Machine.Password,
		w.Machine.Address+w.Machine.SystemID+"/NetworkInterfaces/1/NetworkDeviceFunctions/1")
	if err != nil || strings.Contains(out, target("vol1")) || strings.Contains(out, `"chap"`) {
		w.Fatalf("the adapter keeps %s (%v)", out, err)
	}
}

// tearDown clears the targets and keeps the connectors, then forgets the node.
func (w *world) tearDown() {
	w.Helper()
	w.CLI("node", "undeploy", "m1", "--wait")
	if left := w.CLI("volume", "target", "list", "--node", "m1", "-f", "value"); left != "" {
		w.Fatalf("targets are left: %s", left)
	}
	if left := w.CLI("volume", "connector", "list", "--node", "m1", "-f", "value"); left == "" {
		w.Fatal("the connector is gone")
	}
	if w.forgotten != nil {
		w.forgotten()
		w.forgotten = nil
	}
	if log := w.Server.Log(); strings.Contains(log, secret) {
		w.Fatal("the secret is in the log")
	}
	w.CLI("node", "delete", "m1")
}
