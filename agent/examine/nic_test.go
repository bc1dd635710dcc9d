package examine

import (
	"reflect"
	"testing"
)

// TestPredictableNames: the names that systemd-udevd gives for these folders of sysfs.
func TestPredictableNames(t *testing.T) {
	for _, c := range []struct {
		name, device string
		files        map[string]string
		want         []string
	}{
		{"a virtio device", "pci0000:00/0000:00:01.0/virtio0", nil, []string{"enp0s1", "eth0"}},
		{"in a hotplug slot", "pci0000:00/0000:00:03.0/virtio0", map[string]string{"sys/bus/pci/slots/3/address": "0000:00:03\n"}, []string{"ens3", "enp0s3", "eth0"}},
		{"behind a root port", "pci0000:00/0000:00:07.0/0000:01:00.0", map[string]string{"sys/bus/pci/slots/0/address": "0000:01:00\n"}, []string{"enp1s0", "eth0"}},
		{"on the board", "pci0000:00/0000:00:1c.0/0000:3d:00.0", map[string]string{"sys/devices/pci0000:00/0000:00:1c.0/0000:3d:00.0/acpi_index": "1\n"}, []string{"eno1", "enp61s0", "eth0"}},
		{"by SMBIOS", "pci0000:00/0000:02:00.0", map[string]string{"sys/devices/pci0000:00/0000:02:00.0/index": "2\n"}, []string{"eno2", "enp2s0", "eth0"}},
		{"second function", "pci0000:00/0000:00:1c.0/0000:3d:00.1", nil, []string{"enp61s0f1", "eth0"}},
		{"first of several functions", "pci0000:00/0000:3d:00.0", map[string]string{"sys/devices/pci0000:00/0000:3d:00.0/config": "\x86\x80\x00\x10aaaaaaaaaa\x80\x00"}, []string{"enp61s0f0", "eth0"}},
		{"port with a name", "pci0000:00/0000:5e:00.0", map[string]string{"phys_port_name": "p0\n"}, []string{"enp94s0np0", "eth0"}},
		{"second port", "pci0000:00/0000:5e:00.0", map[string]string{"dev_port": "1\n"}, []string{"enp94s0d1", "eth0"}},
		{"another domain", "pci0001:00/0001:01:00.0", nil, []string{"enP1p1s0", "eth0"}},
		{"USB", "pci0000:00/0000:00:14.0/usb1/1-2/1-2.3/1-2.3:1.0", nil, []string{"enp0s20u2u3", "enx525400aabbcc", "eth0"}},
		{"Xen", "vif-0", nil, []string{"enX0", "eth0"}},
		{"Hyper-V", "LNXSYSTM:00/vmbus/1234", nil, []string{"eth0"}},
	} {
		files := map[string]string{"sys/devices/" + c.device + "/class": "", "sys/class/net/eth0/address": "52:54:00:AA:BB:CC\n", "sys/class/net/eth0/type": "1\n", "sys/class/net/eth0/carrier": "1\n",
			"sys/class/net/eth0/device": "->../../../devices/" + c.device, "sys/devices/" + c.device + "/driver": "->/bus/drivers/virtio_net", "sys/class/net/lo/type": "772\n"}
		for name, text := range c.files {
			if name == "dev_port" || name == "phys_port_name" {
				name = "sys/class/net/eth0/" + name
			}
			files[name] = text
		}
		got := listNICs(writeFiles(t, files))
		if len(got) != 1 || !reflect.DeepEqual(got[0].Names, c.want) || got[0].MAC != "52:54:00:aa:bb:cc" || got[0].Driver != "virtio_net" || !got[0].Carrier {
			t.Errorf("%s: %+v, want %q", c.name, got, c.want)
		}
	}
}

func TestDrivers(t *testing.T) {
	top := writeFiles(t, map[string]string{
		"sys/class/block/sda/device":                                    "->../../../devices/pci0000:00/0000:00:1f.2/ata1/host0/0:0:0:0",
		"sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/0:0:0:0/x":      "",
		"sys/devices/pci0000:00/0000:00:1f.2/driver":                    "->../../../bus/pci/drivers/ahci",
		"sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/0:0:0:0/driver": "->../../../../../../bus/scsi/drivers/sd",
		"sys/bus/scsi/drivers/sd/module":                                "->../../../../module/sd_mod",
		"sys/bus/pci/drivers/ahci/bind":                                 "",
	})
	if got, want := diskDrivers(top, "/dev/sda"), []string{"sd_mod", "ahci"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

// TestModuleOfNIC: rules compare modules, and some drivers of network interfaces have other names than their modules.
func TestModuleOfNIC(t *testing.T) {
	top := writeFiles(t, map[string]string{
		"sys/class/net/eth0/address": "d8:3a:dd:00:00:01\n", "sys/class/net/eth0/type": "1\n", "sys/class/net/eth0/device": "->../../../devices/platform/scb/fd580000.ethernet",
		"sys/devices/platform/scb/fd580000.ethernet/driver": "->../../../../bus/platform/drivers/bcmgenet",
		"sys/bus/platform/drivers/bcmgenet/module":          "->../../../../module/genet",
	})
	if got := listNICs(top); len(got) != 1 || got[0].Driver != "genet" {
		t.Errorf("a Raspberry Pi 4, whose driver bcmgenet is in the module genet: want one interface with the module genet, got %+v", got)
	}
}

func TestMemory(t *testing.T) {
	top := writeFiles(t, map[string]string{
		"proc/meminfo": "MemTotal:         995584 kB\nMemFree: 5 kB\nMemAvailable:     802000 kB\n",
		"sys/devices/system/edac/mc/mc0/ce_count": "3\n", "sys/devices/system/edac/mc/mc0/ue_count": "0\n", "sys/devices/system/edac/mc/mc1/ce_count": "4\n", "sys/devices/system/edac/mc/mc1/ue_count": "1\n",
	})
	corrected, uncorrected := memoryErrors(top)
	if totalMemory(top) != 995584<<10 || availableMemory(top) != 802000<<10 || corrected != 7 || uncorrected != 1 {
		t.Errorf("%d %d %d %d", totalMemory(top), availableMemory(top), corrected, uncorrected)
	}
}
