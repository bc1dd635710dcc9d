package libvirt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
)

// A helper has the server's local disks, which cannot be written to, a channel, bounds, and no way to a network, a console or a volume.
func TestHelperDefinition(t *testing.T) {
	t.Parallel()
	for _, bus := range []string{"", "sata", "usb"} {
		d := rescued(server(compute.BIOS), rescue.Kernel)
		d.Machine = map[string]string{propDiskBus: bus, propMachine: "pc-q35-7.2", propAgent: "yes"}
		def := must.Get(buildHelper(d, testHost, true))(t)
		text := must.Get(def.Marshal())(t)
		for _, without := range []string{"<interface", "<serial type", "<console", "iscsi", "never in the XML", "drive.iso", "unmap", "guest_agent", serverID + "</uuid>", "urn:salvor:server", "sata\">"} {
			if strings.Contains(text, without) {
				t.Errorf("bus %q: the helper has %s:\n%s", bus, without, text)
			}
		}
		for _, with := range []string{"<name>salvor-diagnose-" + serverID, "<kernel>/rescue/image</kernel>", "<initrd>/rescue/ramdisk</initrd>", "/run/salvor/channel.sock",
			`<hard_limit unit="MiB">2048</hard_limit>`, "<global_quota>150000</global_quota>", "<on_reboot>destroy</on_reboot>", `<memory unit="MiB">1024</memory>`} {
			if !strings.Contains(text, with) {
				t.Errorf("bus %q: the helper has no %s:\n%s", bus, with, text)
			}
		}
		if len(def.Devices.Disks) != 1 || def.Devices.Disks[0].ReadOnly == nil || def.Devices.Disks[0].Boot != nil || def.Devices.Disks[0].Source.File.File != "/disks/vda.qcow2" || def.Devices.Disks[0].Driver.Type != "qcow2" {
			t.Errorf("bus %q: the disks are %+v", bus, def.Devices.Disks)
		}
	}
	d := rescued(server(compute.BIOS), rescue.Kernel)
	if def := must.Get(buildHelper(d, testHost, false))(t); def.MemoryTune != nil || def.CPUTune != nil {
		t.Error("a helper without control groups names them")
	}
	d.ChannelPath = ""
	if _, err := buildHelper(d, testHost, true); !problem.Is(err, problem.Invalid) {
		t.Errorf("a helper without a channel: %v", err)
	}
}

// A helper of a UEFI guest gets a copy of the guest's variables, so that it sees its boot entries and changes none.
func TestHelperVariables(t *testing.T) {
	t.Parallel()
	from := testHost
	from.nvram = t.TempDir()
	d := rescued(server(compute.UEFI), rescue.Kernel)
	own, copied := nvramPath(from.nvram, serverID, false), nvramPath(from.nvram, helperID(serverID).String(), false)
	for _, template := range []string{"/ovmf/vars.fd", own} {
		def := must.Get(buildHelper(d, from, true))(t)
		if v := def.OS.NVRam; v.Template != template || v.NVRam != copied || v.NVRam == own || filepath.Dir(v.NVRam) != from.nvram {
			t.Errorf("the variables are %+v, want a copy of %s", v, template)
		}
		must.OK(t, os.WriteFile(own, nil, 0o600))
	}
}

// No list of guests has a helper in it, and no other guest is taken for one.
func TestIsHelper(t *testing.T) {
	t.Parallel()
	helper := rpc.Domain{Name: helperPrefix + serverID, UUID: rpc.UUID(helperID(serverID))}
	others := []rpc.Domain{{Name: helper.Name, UUID: rpc.UUID(uuid.MustParse(serverID))}, {Name: "salvor-7", UUID: helper.UUID}}
	if !isHelper(helper) || isHelper(others[0]) || isHelper(others[1]) {
		t.Error("a helper is not told from other guests")
	}
}
