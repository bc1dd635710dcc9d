package libvirt

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

var update = flag.Bool("update", false, "write the definitions in testdata again")

const (
	serverID = "6a1f0c9e-6d9c-4b7e-9a55-0d4a6f1f2c01"
	volumeID = "0b5d8f6e-1f0a-4d57-8f5e-7a3c2b1d0e9f"
)

// server has a local disk, a volume with CHAP, two NICs and a config drive.
func server(firmware compute.Firmware) hypervisor.Domain {
	return hypervisor.Domain{
		Spec: compute.Spec{
			ServerID: serverID, Name: "web & <mail>", GuestName: "salvor-7", Epoch: 3, VCPUs: 2, RAM: 1024, Firmware: firmware, Drive: true,
			Disks: []compute.SpecDisk{
				{Name: "vda", BootIndex: 0},
				{Name: "vdb", BootIndex: -1, VolumeID: volumeID, Portal: "10.0.0.5:3260", IQN: "iqn.2026-11.org.salvor:v1", LUN: 1, CHAPUser: "u"},
			},
			NICs: []compute.NIC{{MAC: "fa:16:3e:00:00:01", Bridge: "br0"}, {MAC: "fa:16:3e:00:00:02", Bridge: "br1"}},
		},
		Paths:     map[string]hypervisor.DiskFile{"vda": {Path: "/disks/vda.qcow2", Format: "qcow2"}},
		CHAP:      map[string]secret.Value{volumeID: secret.New("never in the XML")},
		DrivePath: "/run/salvor/drive.iso", ConsolePath: "/run/salvor/console.log", ChannelPath: "/run/salvor/channel.sock",
	}
}

// rescued boots the server into a rescue system of a kind.
func rescued(d hypervisor.Domain, kind rescue.Kind) hypervisor.Domain {
	s := rescue.Source{Name: "a rescue", Kind: kind}
	d.RescueImage, d.RescueFormat = "/rescue/image", "raw"
	switch kind {
	case rescue.Kernel:
		d.RescueRamdisk, s.Append = "/rescue/ramdisk", `console=ttyS0 quiet "a & b"`
	case rescue.Disk:
		d.RescueFormat, d.RescueDrivePath = "qcow2", "/run/salvor/rescue-drive.iso"
	}
	d.Spec.Rescue = &compute.SpecRescue{Source: s}
	return d
}

var testHost = hostFacts{initiator: "iqn.2026-11.org.salvor:host", nvram: "/nvram", firmware: &uefiFirmware{"/ovmf/code.fd", "/ovmf/vars.fd"}}

func mustRender(t *testing.T, d hypervisor.Domain, h hostFacts) *libvirtxml.Domain {
	t.Helper()
	def := must.Get(buildDomain(d, h))(t)
	return def
}

func text(t *testing.T, def *libvirtxml.Domain) string {
	t.Helper()
	out := must.Get(def.Marshal())(t)
	return out
}

// cases are each kind of rescue with each firmware, and buses beside the usual one.
func cases() map[string]hypervisor.Domain {
	all := map[string]hypervisor.Domain{}
	for _, f := range []compute.Firmware{compute.BIOS, compute.UEFI} {
		all[string(f)] = server(f)
		for _, kind := range []rescue.Kind{rescue.ISO, rescue.Disk, rescue.Kernel} {
			all[fmt.Sprintf("%s-%s", f, kind)] = rescued(server(f), kind)
		}
	}
	volume := server(compute.BIOS)
	volume.Disks = []compute.SpecDisk{volume.Disks[1]}
	volume.Disks[0].Name, volume.Disks[0].BootIndex = "vda", 0
	all["volume-disk"] = rescued(volume, rescue.Disk)
	scsi := rescued(server(compute.BIOS), rescue.Disk)
	scsi.Machine = map[string]string{"hw_disk_bus": "scsi", "hw_qemu_guest_agent": "yes", "hw_vif_model": "e1000"}
	scsi.Spec.Rescue.Bus = "scsi"
	all["scsi-disk"] = scsi
	sata := rescued(server(compute.BIOS), rescue.Disk)
	sata.Machine = map[string]string{"hw_disk_bus": "sata"}
	sata.Spec.Rescue.Bus = "usb"
	all["sata-usb"] = sata
	return all
}

func TestDefinitions(t *testing.T) {
	for name, d := range cases() {
		t.Run(name, func(t *testing.T) {
			got := text(t, mustRender(t, d, testHost)) + "\n"
			file := filepath.Join("testdata", name+".xml")
			if *update {
				must.OK(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want := must.Get(os.ReadFile(file))(t)
			if got != string(want) {
				t.Errorf("the definition is not the one in %s (go test -update writes it again):\n%s", file, got)
			}
			if strings.Contains(got, "never in the XML") {
				t.Error("a password is in the definition")
			}
		})
	}
}

// Whatever the rescue, the guest's own devices have the names, places and order that they have without it.
func TestRescueMovesNothing(t *testing.T) {
	for name, d := range cases() {
		if d.Spec.Rescue == nil {
			continue
		}
		own := d
		own.Spec.Rescue = nil
		before, after := mustRender(t, own, testHost), mustRender(t, d, testHost)
		places := func(def *libvirtxml.Domain) []string {
			var all []string
			for _, disk := range def.Devices.Disks {
				all = append(all, fmt.Sprint(disk.Device, " ", disk.Target.Dev, disk.Target.Bus, " ", disk.Serial, " ", address(disk.Address)))
			}
			for _, nic := range def.Devices.Interfaces {
				all = append(all, nic.MAC.Address+" "+address(nic.Address))
			}
			return all
		}
		disks := len(before.Devices.Disks)
		was, is := places(before), places(after)
		if fmt.Sprint(was[:disks]) != fmt.Sprint(is[:disks]) || fmt.Sprint(was[disks:]) != fmt.Sprint(is[len(after.Devices.Disks):]) {
			t.Errorf("%s: devices were\n%v, are\n%v", name, was, is)
		}
		orders := 0
		for i, disk := range after.Devices.Disks {
			if disk.Boot != nil {
				orders++
				if disk.Boot.Order != 1 || i != len(after.Devices.Disks)-1 {
					t.Errorf("%s: disk %s boots at %d", name, disk.Target.Dev, disk.Boot.Order)
				}
			}
		}
		if want := map[bool]int{true: 0, false: 1}[d.Spec.Rescue.Kind == rescue.Kernel]; orders != want {
			t.Errorf("%s: %d disks boot, want %d", name, orders, want)
		}
	}
}

func address(a *libvirtxml.DomainAddress) string {
	switch {
	case a == nil:
		return "anywhere"
	case a.PCI != nil:
		return fmt.Sprintf("port %d", *a.PCI.Bus)
	}
	return fmt.Sprintf("unit %d:%d", *a.Drive.Controller, *a.Drive.Unit)
}

// What a definition says of a guest is read from it again, whoever may have written more into it.
func TestARescueSystemWithAChannelDoesNotBeginAgainByItself(t *testing.T) {
	for access, want := range map[rescue.Access]string{rescue.ByChannel: "destroy", rescue.ByConfigDrive: "restart"} {
		d := rescued(server(compute.BIOS), rescue.Kernel)
		d.Spec.Rescue.Access = access
		if got := mustRender(t, d, testHost).OnReboot; got != want {
			t.Errorf("%s: %s, want %s", access, got, want)
		}
	}
}

func TestReadBack(t *testing.T) {
	for name, d := range cases() {
		var def libvirtxml.Domain
		must.OK(t, def.Unmarshal(text(t, mustRender(t, d, testHost))))
		m, ours := parseMark(`<app xmlns="urn:other"><server id="1"/></app>` + def.Metadata.XML)
		want := domainMetadata{ID: serverID, Epoch: 3, Name: "web & <mail>"}
		if d.Spec.Rescue != nil {
			want.Rescue = "/rescue/image"
		}
		if !ours || m != want {
			t.Errorf("%s: mark %+v %v, want %+v", name, m, ours, want)
		}
		var g compute.Guest
		fillFromDefinition(&g, &def)
		if g.VCPUs != 2 || g.RAM != 1024 || len(g.NICs) != 2 || g.NICs[1].MAC != "fa:16:3e:00:00:02" || g.NICs[1].Bridge != "br1" {
			t.Errorf("%s: %+v", name, g)
		}
		if ids := secretsOf(&def); len(ids) != 1 || ids[0] != secretID(serverID, volumeID) {
			t.Errorf("%s: secrets %v", name, ids)
		}
	}
}

// A guest keeps its machine over an update of QEMU.
func TestKeepsMachine(t *testing.T) {
	h := testHost
	h.machine = "pc-q35-7.2"
	if got := mustRender(t, server(compute.BIOS), h).OS.Type.Machine; got != h.machine {
		t.Errorf("machine %s, want %s", got, h.machine)
	}
}

func TestRefused(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*hypervisor.Domain)
		kind   problem.Kind
	}{
		"a disk without a file":      {func(d *hypervisor.Domain) { d.Paths = nil }, problem.Invalid},
		"a disk of another format":   {func(d *hypervisor.Domain) { d.Paths["vda"] = hypervisor.DiskFile{Path: "/x", Format: "vmdk"} }, problem.Unsupported},
		"a disk of another name":     {func(d *hypervisor.Domain) { d.Disks[0].Name = "../x" }, problem.Invalid},
		"a volume without a portal":  {func(d *hypervisor.Domain) { d.Disks[1].Portal = "10.0.0.5" }, problem.Invalid},
		"a NIC without a bridge":     {func(d *hypervisor.Domain) { d.NICs[0].Bridge = "" }, problem.Invalid},
		"another machine":            {func(d *hypervisor.Domain) { d.Machine = map[string]string{"hw_machine_type": "virt"} }, problem.Unsupported},
		"another disk bus":           {func(d *hypervisor.Domain) { d.Machine = map[string]string{"hw_disk_bus": "xen"} }, problem.Unsupported},
		"another NIC":                {func(d *hypervisor.Domain) { d.Machine = map[string]string{"hw_vif_model": "ne2k_pci"} }, problem.Unsupported},
		"no memory":                  {func(d *hypervisor.Domain) { d.RAM = 0 }, problem.Invalid},
		"a path that is none":        {func(d *hypervisor.Domain) { d.DrivePath = "drive.iso" }, problem.Invalid},
		"a rescue by URL":            {func(d *hypervisor.Domain) { d.RescueImage = "http://x/y.iso" }, problem.Invalid},
		"a rescue without an image":  {func(d *hypervisor.Domain) { d.RescueImage = "" }, problem.Invalid},
		"a rescue of another kind":   {func(d *hypervisor.Domain) { d.Spec.Rescue.Kind = "floppy" }, problem.Unsupported},
		"a rescue on another bus":    {func(d *hypervisor.Domain) { d.Spec.Rescue.Bus = "fdc" }, problem.Unsupported},
		"a rescue as another device": {func(d *hypervisor.Domain) { d.Spec.Rescue.Device = "floppy" }, problem.Unsupported},
		"a rescue CD on virtio":      {func(d *hypervisor.Domain) { d.Spec.Rescue.Bus = "virtio" }, problem.Unsupported},
	} {
		d := rescued(server(compute.UEFI), rescue.ISO)
		c.change(&d)
		if _, err := buildDomain(d, testHost); !problem.Is(err, c.kind) {
			t.Errorf("%s: %v, want kind %s", what, err, c.kind)
		}
	}
	h := testHost
	h.firmware = nil
	if _, err := buildDomain(server(compute.UEFI), h); !problem.Is(err, problem.Unsupported) {
		t.Errorf("UEFI on a host without it: %v", err)
	}
}

func FuzzMark(f *testing.F) {
	for _, m := range []domainMetadata{{ID: serverID, Epoch: 1}, {ID: serverID, Epoch: -1, Incarnation: "0123abcd", Name: "<&>", Rescue: "/a b"}} {
		text := must.Get(m.xml())(f)
		f.Add(text)
		f.Add(text + text)
		f.Add(text[:len(text)-3])
	}
	f.Add(`<a/></metadata><x:server xmlns:x="` + namespace + `" id="" epoch=""/>`)
	f.Add(`<x:server xmlns:x="` + namespace + `" id="` + serverID + `" epoch="9999999999999999999"/>`)
	f.Fuzz(func(t *testing.T, metadata string) {
		m, ours := parseMark(metadata)
		if !ours {
			if m != (domainMetadata{}) {
				t.Errorf("%+v from what is none of ours", m)
			}
			return
		}
		text := must.Get(m.xml())(t)
		if again, ok := parseMark(text); !ok || again.ID != m.ID || again.Epoch != m.Epoch || again.Incarnation != m.Incarnation {
			t.Errorf("%+v reads back as %+v", m, again)
		}
	})
}

func TestURI(t *testing.T) {
	for uri, want := range map[string]string{
		"": "/run/libvirt/libvirt-sock", "qemu:///system": "/run/libvirt/libvirt-sock", "qemu:///system?socket=/x/y": "/x/y", "/x/y": "/x/y",
		"qemu+unix:///system?socket=/x": "/x",
	} {
		if h, err := New(Options{URI: uri}); err != nil || h.sockets[0] != want {
			t.Errorf("%q: %v", uri, err)
		}
	}
	for _, uri := range []string{"xen:///system", "qemu+ssh://host/system", "qemu:///session", "x y", "qemu://host/system"} {
		if _, err := New(Options{URI: uri}); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v", uri, err)
		}
	}
}

// TestFilesOfAGuest: the files of its disks are told, and neither its CDs nor its volumes.
func TestFilesOfAGuest(t *testing.T) {
	t.Parallel()
	disk := func(device, file string) libvirtxml.DomainDisk {
		d := libvirtxml.DomainDisk{Device: device, Source: &libvirtxml.DomainDiskSource{}}
		if file != "" {
			d.Source.File = &libvirtxml.DomainDiskSourceFile{File: file}
		}
		return d
	}
	var g compute.Guest
	fillFromDefinition(&g, &libvirtxml.Domain{Devices: &libvirtxml.DomainDeviceList{Disks: []libvirtxml.DomainDisk{
		disk("disk", "/pool/a"), disk("cdrom", "/pool/cd"), disk("disk", ""), {Device: "disk"}, disk("", "/pool/b"),
	}}})
	if len(g.Files) != 2 || g.Files[0] != "/pool/a" || g.Files[1] != "/pool/b" {
		t.Errorf("%v", g.Files)
	}
}
