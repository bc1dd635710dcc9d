package inventory

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"salvor/test/must"
	wire "salvor/wire/agent"
)

func tree(t *testing.T, files map[string]string, links map[string]string) Place {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(content), 0o644))
	}
	for name, target := range links {
		path := filepath.Join(root, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.Symlink(filepath.Join(root, target), path))
	}
	return Place{Root: root}
}

// module is an SMBIOS memory device of so many MiB.
func module(mib uint32) string {
	b := make([]byte, 40)
	b[0], b[1] = 17, 40
	size := uint16(mib)
	if mib >= 0x7fff {
		size = 0x7fff
		binary.LittleEndian.PutUint32(b[28:], mib)
	}
	binary.LittleEndian.PutUint16(b[12:], size)
	return string(b)
}

func TestGather(t *testing.T) {
	virtio := "sys/devices/pci0000:00/0000:00:03.0/virtio1"
	p := tree(t, map[string]string{
		virtio + "/vendor": "0x1af4\n", virtio + "/device": "0x0001\n",
		"sys/class/net/eth0/address": "52:54:00:AA:00:01\n", "sys/class/net/eth0/carrier": "1\n", "sys/class/net/eth0/speed": "10000\n",
		"sys/class/net/eth1/address": "52:54:00:aa:00:02\n", "sys/class/net/eth1/carrier": "0\n", "sys/class/net/eth1/speed": "-1\n", "sys/class/net/eth1/device/vendor": "0x8086",
		"sys/class/net/dummy0/address":      "52:54:00:aa:00:03\n",
		"proc/cpuinfo":                      "processor\t: 0\nmodel name\t: Big\ncpu MHz\t\t: 2000.5\nphysical id\t: 0\nflags\t\t: vmx sse\n\nprocessor\t: 1\nphysical id\t: 1\n",
		"proc/meminfo":                      "MemTotal:       2048 kB\nMemFree: 1 kB\n",
		"sys/firmware/dmi/entries/17-0/raw": module(4096), "sys/firmware/dmi/entries/17-1/raw": module(65536), "sys/firmware/dmi/entries/17-2/raw": module(0),
		"sys/firmware/dmi/entries/17-3/raw": "short", "sys/firmware/dmi/entries/16-0/raw": module(1),
		"sys/class/dmi/id/product_name": "Server 9\n", "sys/class/dmi/id/bios_vendor": "Firm\n",
		"sys/firmware/efi/fw_platform_size":       "64\n",
		"sys/bus/pci/devices/0000:00:03.0/vendor": "0x1af4\n", "sys/bus/pci/devices/0000:00:03.0/device": "0x1000\n", "sys/bus/pci/devices/0000:00:03.0/class": "0x020000\n",
		"sys/bus/pci/devices/0000:00:04.0/class": "0x1\n",
	}, map[string]string{"sys/class/net/eth0/device": virtio, virtio + "/driver": "sys/bus/virtio/drivers/virtio_net"})
	p.CommandLine = "quiet BOOTIF=01-52-54-00-aa-00-01"
	all := must.Get(p.Gather())(t)
	if len(all.Interfaces) != 2 || all.Disks == nil {
		t.Fatalf("%+v", all)
	}
	a, b := all.Interfaces[0], all.Interfaces[1]
	if a.MACAddress != "52:54:00:aa:00:01" || !a.HasCarrier || *a.SpeedMbps != 10000 || *a.PCIAddress != "0000:00:03.0" || *a.Driver != "virtio_net" || *a.Product != "0x0001" {
		t.Errorf("%+v", a)
	}
	if b.HasCarrier || b.SpeedMbps != nil || b.PCIAddress != nil || *b.Vendor != "0x8086" {
		t.Errorf("%+v", b)
	}
	if c := all.CPU; c.Count != 2 || *c.SocketCount != 2 || c.ModelName != "Big" || *c.Frequency != "2000.5" || len(c.Flags) != 2 {
		t.Errorf("%+v", c)
	}
	if all.Memory.Total != 2<<20 || *all.Memory.PhysicalMB != 4096+65536 || all.Boot.CurrentBootMode != "uefi" || *all.Boot.PXEInterface != "52:54:00:aa:00:01" {
		t.Errorf("%+v %+v", all.Memory, all.Boot)
	}
	if v := all.SystemVendor; v.ProductName != "Server 9" || v.Firmware == nil || v.Firmware.Vendor != "Firm" {
		t.Errorf("%+v", v)
	}
	if pci := p.PCIDevices(); len(pci) != 1 || pci[0].VendorID != "1af4" || pci[0].Class != "020000" || pci[0].Revision != nil {
		t.Errorf("%+v", pci)
	}
	if p.Initiators() != nil {
		t.Error("initiators out of nothing")
	}
}

// TestNothing: a machine of which nothing can be read is described, not refused.
func TestNothing(t *testing.T) {
	p := Place{Root: t.TempDir(), CommandLine: "BOOTIF=nonsense"}
	all, err := p.Gather()
	if err != nil || all.Interfaces == nil || all.CPU.Flags == nil || all.Boot.CurrentBootMode != "bios" || all.Boot.PXEInterface != nil || all.SystemVendor.Firmware != nil {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestInitiators(t *testing.T) {
	p := tree(t, map[string]string{
		"etc/iscsi/initiatorname.iscsi": "InitiatorName=iqn.file\n", "sys/firmware/ibft/initiator/initiator-name": "iqn.firmware\n",
		"sys/class/fc_host/host1/port_name": "0x0000000000000000\n", "sys/class/fc_host/host2/port_name": "0x2100001b32abcdef\n", "sys/class/fc_host/host2/node_name": "0x2000001b32abcdef\n",
	}, nil)
	found := p.Initiators()
	if found == nil || found.IQN != "iqn.firmware" || len(found.FibreChannel) != 1 || found.FibreChannel[0].WWPN != "2100001b32abcdef" {
		t.Errorf("%+v", found)
	}
}

func TestRoot(t *testing.T) {
	const gib = 1 << 30
	disks := []wire.Disk{{Name: "/dev/a", Size: 3 * gib}, {Name: "/dev/b", Size: 9 * gib}, {Name: "/dev/c", Size: 5 * gib}}
	if d := Root(disks); d == nil || d.Name != "/dev/c" {
		t.Errorf("%+v", d)
	}
	if d := Root(disks[:1]); d != nil {
		t.Errorf("%+v", d)
	}
}
