package libvirt

import (
	"fmt"
	"path/filepath"
	"strings"

	"libvirt.org/go/libvirtxml"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/rescue"
	wire "salvor/wire/agent"
)

// agentName is the port of QEMU's guest agent, for guests whose image says that they have it.
const agentName = "org.qemu.guest_agent.0"

// Properties of an image that shape a guest.
const (
	propMachine = "hw_machine_type"
	propDiskBus = "hw_disk_bus"
	propCDBus   = "hw_cdrom_bus"
	propNIC     = "hw_vif_model"
	propAgent   = "hw_qemu_guest_agent"
)

// Each virtio device sits behind a PCIe port of its own, by its role: so nothing that a rescue adds moves a device
// that the guest knows, and the rescue device is behind all of them.
const (
	serialPort = 1
	rngPort    = 2
	scsiPort   = 3
	firstPort  = 4 // of the NICs; disks follow by their letter
	sparePorts = 4 // for volumes that are attached while the guest runs
)

// Places of the CD drives on the first SCSI controller, or on the SATA controller that each q35 machine has.
const (
	scsiDriveUnit  = 64 // behind all disks
	driveUnit      = 4
	rescueUnit     = 5
	sataDisks      = 4
	driveTarget    = "sdx"
	rescueCDTarget = "sdy"
)

// hostFacts is what a definition takes from where it is made.
type hostFacts struct {
	kvm       bool
	initiator string
	nvram     string
	firmware  *uefiFirmware
	// machine is the one that the guest has had, empty if it is new: it is kept over updates of QEMU.
	machine string
}

// domainBuilder is a definition in the making.
type domainBuilder struct {
	hypervisor.Domain
	hostFacts
	out *libvirtxml.Domain
	// ports is the number of PCIe ports; the last one is the rescue device's.
	ports uint
}

// buildDomain makes the definition of a guest. Invalid or Unsupported: the spec asks for what cannot be.
func buildDomain(d hypervisor.Domain, h hostFacts) (*libvirtxml.Domain, error) {
	p := &domainBuilder{Domain: d, hostFacts: h}
	if err := p.check(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{p.frame, p.system, p.controllers, p.disks, p.drives, p.rescueDevice, p.nics, p.consoles} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("define server %s: %w", d.ServerID, err)
		}
	}
	return p.out, nil
}

func (p *domainBuilder) check() error {
	for what, path := range map[string]string{
		"config drive": p.DrivePath, "console": p.ConsolePath, "channel": p.ChannelPath, "rescue image": p.RescueImage,
		"rescue ramdisk": p.RescueRamdisk, "rescue config drive": p.RescueDrivePath,
	} {
		if path != "" && !filepath.IsAbs(path) {
			return problem.Invalidf("define server %s: the %s %q is no absolute path", p.ServerID, what, path)
		}
	}
	if p.VCPUs < 1 || p.RAM < 1 {
		return problem.Invalidf("define server %s: %d CPUs and %d MiB are no guest", p.ServerID, p.VCPUs, p.RAM)
	}
	if p.Rescue != nil && p.RescueImage == "" {
		return problem.Invalidf("define server %s: a rescue without an image", p.ServerID)
	}
	return nil
}

func (p *domainBuilder) frame() error {
	m := domainMetadata{ID: p.ServerID, Epoch: p.Epoch, Incarnation: p.Incarnation, Name: cleanName(p.Name)}
	if p.Rescue != nil {
		m.Rescue = p.RescueImage
	}
	text, err := m.xml()
	if err != nil {
		return err
	}
	p.out = &libvirtxml.Domain{
		Type: "qemu", Name: p.GuestName, UUID: p.ServerID,
		Metadata: &libvirtxml.DomainMetadata{XML: text},
		Memory:   &libvirtxml.DomainMemory{Value: uint(p.RAM), Unit: "MiB"},
		VCPU:     &libvirtxml.DomainVCPU{Value: uint(p.VCPUs)},
		CPU:      &libvirtxml.DomainCPU{Mode: "maximum"},
		Features: &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}},
		Clock:    &libvirtxml.DomainClock{Offset: "utc"},
		// A guest that restarts itself stays the one that it is; one that ends or crashes is off.
		OnPoweroff: "destroy", OnReboot: "restart", OnCrash: "destroy",
		Devices: &libvirtxml.DomainDeviceList{
			MemBalloon: &libvirtxml.DomainMemBalloon{Model: "none"},
			RNGs: []libvirtxml.DomainRNG{{
				Model:   "virtio",
				Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
				Address: pciPortAddress(rngPort),
			}},
		},
	}
	if p.Rescue != nil && p.Rescue.Access == rescue.ByChannel {
		// Its credential is in its memory: one that began again by itself would wait for another one for ever.
		p.out.OnReboot = "destroy"
	}
	if p.kvm {
		p.out.Type, p.out.CPU.Mode = "kvm", "host-model"
	}
	return nil
}

// system is the machine, its firmware, and a kernel that a rescue boots directly.
func (p *domainBuilder) system() error {
	machine := p.Machine[propMachine]
	switch {
	case machine == "" && p.machine != "":
		machine = p.machine
	case machine == "":
		machine = "q35"
	case machine != "q35" && !strings.HasPrefix(machine, "pc-q35-"):
		return problem.Unsupportedf("%s=%s: want q35 or a version of it", propMachine, machine)
	}
	p.out.OS = &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: machine, Type: "hvm"}}
	if p.Firmware == compute.UEFI {
		if p.firmware == nil {
			return problem.Unsupportedf("this host has no UEFI firmware for guests (Debian: package ovmf)")
		}
		p.out.OS.Loader = &libvirtxml.DomainLoader{Path: p.firmware.Code, Readonly: "yes", Type: "pflash"}
		p.out.OS.NVRam = &libvirtxml.DomainNVRam{Template: p.firmware.Vars, NVRam: nvramPath(p.nvram, p.ServerID, p.Rescue != nil)}
	}
	if p.Rescue != nil && p.Rescue.Kind == rescue.Kernel {
		p.out.OS.Kernel, p.out.OS.Initrd, p.out.OS.Cmdline = p.RescueImage, p.RescueRamdisk, p.Rescue.Append
	}
	return nil
}

// nvramPath is where a guest's UEFI variables lie. A rescue has its own: firmware drops the entries of systems that
// it may not boot, and the guest's own entries must be there when it comes back.
func nvramPath(dir, id string, rescued bool) string {
	if rescued {
		id += "_rescue"
	}
	return filepath.Join(dir, id+"_VARS.fd")
}

func (p *domainBuilder) controllers() error {
	highest := -1
	for _, d := range p.Disks {
		index, err := diskIndex(d.Name)
		if err != nil {
			return err
		}
		highest = max(highest, index)
	}
	p.ports = p.diskPort(highest + 1 + sparePorts)
	for i := range p.ports {
		index := i + 1
		p.out.Devices.Controllers = append(p.out.Devices.Controllers, libvirtxml.DomainController{Type: "pci", Index: &index, Model: "pcie-root-port"})
	}
	p.out.Devices.Controllers = append(p.out.Devices.Controllers,
		libvirtxml.DomainController{Type: "virtio-serial", Index: new(uint), Address: pciPortAddress(serialPort)},
		libvirtxml.DomainController{Type: "sata", Index: new(uint)})
	usb := libvirtxml.DomainController{Type: "usb", Index: new(uint), Model: "none"}
	if p.diskBus() == busUSB || p.rescueBus() == busUSB {
		usb.Model, usb.Address = "qemu-xhci", pciPortAddress(p.ports)
	}
	p.out.Devices.Controllers = append(p.out.Devices.Controllers, usb)
	if p.diskBus() == busSCSI || p.cdBus() == busSCSI && p.drivePath() != "" {
		p.addSCSI(0, scsiPort)
	}
	if p.rescueBus() == busSCSI {
		p.addSCSI(rescueSCSI, p.ports)
	}
	return nil
}

func (p *domainBuilder) addSCSI(index, at uint) {
	p.out.Devices.Controllers = append(p.out.Devices.Controllers,
		libvirtxml.DomainController{Type: "scsi", Index: &index, Model: "virtio-scsi", Address: pciPortAddress(at)})
}

// diskPort is the PCIe port of the disk with this letter, counted from 0.
func (p *domainBuilder) diskPort(index int) uint { return uint(firstPort + len(p.NICs) + index) }

// pciPortAddress is the address of a device behind a PCIe port.
func pciPortAddress(index uint) *libvirtxml.DomainAddress {
	return &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{Domain: new(uint), Bus: &index, Slot: new(uint), Function: new(uint)}}
}

func (p *domainBuilder) nics() error {
	model := p.Machine[propNIC]
	switch model {
	case "":
		model = "virtio"
	case "virtio", "e1000e":
	case "e1000":
		model = "e1000e" // the one of the two that PCI Express knows
	default:
		return problem.Unsupportedf("%s=%s: want virtio or e1000e", propNIC, model)
	}
	for i, n := range p.NICs {
		if n.Bridge == "" {
			return problem.Invalidf("NIC %s has no bridge", n.MAC)
		}
		p.out.Devices.Interfaces = append(p.out.Devices.Interfaces, libvirtxml.DomainInterface{
			MAC:    &libvirtxml.DomainInterfaceMAC{Address: n.MAC},
			Source: &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: n.Bridge}},
			Model:  &libvirtxml.DomainInterfaceModel{Type: model},
			// Nothing boots from the network, and its ROM would cost seconds.
			ROM:     &libvirtxml.DomainROM{Enabled: "no"},
			Address: pciPortAddress(uint(firstPort + i)),
		})
	}
	return nil
}

// consoles are the serial console and the ports to agents in the guest. They are the same with and without a rescue.
func (p *domainBuilder) consoles() error {
	if p.ConsolePath != "" {
		p.out.Devices.Serials = []libvirtxml.DomainSerial{{
			Source: &libvirtxml.DomainChardevSource{File: &libvirtxml.DomainChardevSourceFile{Path: p.ConsolePath, Append: "on"}},
			Target: &libvirtxml.DomainSerialTarget{Port: new(uint)},
		}}
	}
	if p.ChannelPath != "" {
		p.addChannel(wire.ChannelName, &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: p.ChannelPath})
	}
	if p.Machine[propAgent] == "yes" || p.Machine[propAgent] == "true" {
		p.addChannel(agentName, &libvirtxml.DomainChardevSourceUNIX{Mode: "bind"})
	}
	return nil
}

func (p *domainBuilder) addChannel(name string, socket *libvirtxml.DomainChardevSourceUNIX) {
	p.out.Devices.Channels = append(p.out.Devices.Channels, libvirtxml.DomainChannel{
		Source: &libvirtxml.DomainChardevSource{UNIX: socket},
		Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: name}},
	})
}
