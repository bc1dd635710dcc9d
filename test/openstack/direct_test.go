//go:build openstack

package openstack

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/test/must"
	"salvor/test/program"
)

const (
	// diskSize is more than the agent takes for a system disk without hints; the disk is sparse.
	diskSize = 5 << 30
	// tailSize is what the image has behind its partitions.
	tailSize = 16 << 20
	// tableStart and tableEnd enclose the partitions in a master boot record. The agent adds one there for the config drive.
	tableStart, tableEnd = 446, 510
	cloudConfig          = "#cloud-config\n# of a user of Nova\n"
)

// owner is a user of Nova whose server is the machine of the lab.
type owner struct {
	*user
	image []byte // a system, and random bytes behind its partitions
}

// newOwner makes an image of the machine's own system, empties the machine's disk, and makes the node.
func (c *cloud) newOwner() *owner {
	c.Helper()
	m := c.machine
	tail := make([]byte, tailSize)
	_, _ = rand.Read(tail)
	o := &owner{image: append(must.Get(os.ReadFile(m.Disk))(c), tail...)}
	for _, size := range []int64{0, diskSize} {
		must.OK(c, os.Truncate(m.Disk, size))
	}
	c.upload("system", bytes.NewReader(o.image))
	o.user = c.newUser("salvor", "direct", object{
		"driver": "redfish", "deploy_interface": "direct", "boot_interface": "redfish-virtual-media", "rescue_interface": "agent",
		"driver_info": object{"redfish_address": m.Address, "redfish_username": m.User, "redfish_password": m.Password},
		"properties":  object{"cpus": 1, "memory_mb": 1024, "local_gb": diskSize >> 30, "cpu_arch": "x86_64", "capabilities": "boot_mode:bios"},
	}, m.MAC, "bios")
	// From now on: the machine is cleaned when its server is deleted.
	c.must("PATCH", o.baremetal("/nodes/"+o.node), []object{{"op": "add", "path": "/automated_clean", "value": true}}, 200)
	return o
}

// deploy creates and deletes a server on the machine, and looks at its disk.
func (o *owner) deploy(t *testing.T) {
	o.TB = t
	t.Cleanup(func() {
		if t.Failed() {
			serial, _ := os.ReadFile(o.machine.SerialLog)
			t.Logf("the machine:\n%s", serial[max(0, len(serial)-3000):])
		}
	})
	began := time.Now()
	if ended := o.createFrom("system", cloudConfig); ended != active {
		t.Fatalf("create: %s", ended)
	}
	created := time.Since(began)
	o.compareDisk(t)
	o.readConfigDrive(t)
	program.Until(t, "the system of the image answers", stepTime, func() error { return o.boots(t) })
	booted := time.Since(began)
	began = time.Now()
	if ended := o.delete(); ended != "gone; node available" {
		t.Errorf("delete: %s", ended)
	}
	deleted := time.Since(began)
	if head := o.disk(t, 0, 512); !bytes.Equal(head, make([]byte, len(head))) {
		t.Errorf("the server is deleted, and its partition table is still there: %x", head)
	}
	o.step("direct: created in %.1f s, the system answers after %.1f s, deleted and cleaned in %.1f s", created.Seconds(), booted.Seconds(), deleted.Seconds())
}

// disk reads a part of the machine's disk.
func (o *owner) disk(t *testing.T, from, length int64) []byte {
	t.Helper()
	f := must.Get(os.Open(o.machine.Disk))(t)
	defer f.Close()
	b := make([]byte, length)
	must.Get(f.ReadAt(b, from))(t)
	return b
}

// compareDisk wants all bytes of the image on the disk, but for the partition table and the partition of the system, which may run already.
func (o *owner) compareDisk(t *testing.T) {
	t.Helper()
	disk := o.disk(t, 0, int64(len(o.image)))
	root := partitions(o.image)[1]
	rootEnd := root.start + root.length
	if want := int64(len(o.image) - tailSize); rootEnd != want {
		t.Fatalf("the system's partition ends at %d, the system at %d", rootEnd, want)
	}
	for _, part := range []struct{ from, end int64 }{{0, tableStart}, {tableEnd, root.start}, {rootEnd, int64(len(disk))}} {
		if got, want := disk[part.from:part.end], o.image[part.from:part.end]; !bytes.Equal(got, want) {
			at := 0
			for got[at] == want[at] {
				at++
			}
			t.Errorf("the disk differs from the image at byte %d: %#x, want %#x", part.from+int64(at), got[at], want[at])
		}
	}
}

// partition is a place on a disk, in bytes.
type partition struct{ start, length int64 }

// partitions reads a master boot record.
func partitions(disk []byte) (all []partition) {
	for at := tableStart; at < tableEnd; at += 16 {
		start, length := binary.LittleEndian.Uint32(disk[at+8:]), binary.LittleEndian.Uint32(disk[at+12:])
		all = append(all, partition{int64(start) * 512, int64(length) * 512})
	}
	return all
}

// readConfigDrive finds Nova's metadata in the partition that the image does not have.
func (o *owner) readConfigDrive(t *testing.T) {
	t.Helper()
	added := partitions(o.disk(t, 0, 512))[2]
	if added.start < int64(len(o.image)) || added.start+added.length > diskSize {
		t.Fatalf("the partition of the config drive is %+v", added)
	}
	iso := filepath.Join(t.TempDir(), "config-2.iso")
	must.OK(t, os.WriteFile(iso, o.disk(t, added.start, added.length), 0o600))
	if label := extract(t, iso, "-d"); !strings.Contains(label, "Volume id: config-2\n") {
		t.Errorf("the config drive's label: %s", label)
	}
	if got := extract(t, iso, "-R", "-x", "/openstack/latest/user_data"); got != cloudConfig {
		t.Errorf("user_data %q", got)
	}
	var meta struct {
		UUID, Name string
		Meta       map[string]string
	}
	raw := extract(t, iso, "-R", "-x", "/openstack/latest/meta_data.json")
	if err := json.Unmarshal([]byte(raw), &meta); err != nil || meta.UUID != o.server || meta.Name != o.name || meta.Meta["purpose"] != "test" {
		t.Errorf("meta_data.json %s: %v", raw, err)
	}
	if network := extract(t, iso, "-R", "-x", "/openstack/latest/network_data.json"); !strings.Contains(network, o.fill("{NETWORK_first}")) {
		t.Errorf("network_data.json %s", network)
	}
}

// extract reads an ISO 9660 image.
func extract(t *testing.T, iso string, args ...string) string {
	t.Helper()
	return string(must.Get(exec.CommandContext(t.Context(), "isoinfo", append(args, "-i", iso)...).Output())(t))
}

// boots asks the system on the machine who it is.
func (o *owner) boots(t *testing.T) error {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + o.machine.TenantAddress + "/")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && !strings.Contains(string(page), "marker="+o.machine.Marker+" ") {
		err = fmt.Errorf("it answers %q", page)
	}
	return err
}
