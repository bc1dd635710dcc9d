package libvirt

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"salvor/compute"
	"salvor/problem"
	"salvor/rescue"
)

// diskBusType is how a disk is attached.
type diskBusType string

const (
	busVirtio diskBusType = "virtio"
	busSCSI   diskBusType = "scsi"
	busSATA   diskBusType = "sata"
	busUSB    diskBusType = "usb"
)

// buses are the words of images for them.
var buses = map[string]diskBusType{"": busVirtio, "virtio": busVirtio, "scsi": busSCSI, "sata": busSATA, "ide": busSATA, "usb": busUSB}

func (p *domainBuilder) diskBus() diskBusType { return buses[p.Machine[propDiskBus]] }

// cdBus is that of the config drive. Kernels for clouds have no driver for SATA, and systems without one for
// virtio are given SATA disks.
func (p *domainBuilder) cdBus() diskBusType {
	if b := p.Machine[propCDBus]; b != "" {
		return buses[b]
	}
	if b := p.diskBus(); b == busVirtio || b == busSCSI {
		return busSCSI
	}
	return busSATA
}

// rescueSerial is the serial number of the disk of a rescue system.
const rescueSerial = "rescue"

// rescueSCSI is the controller that a rescue device is alone on.
const rescueSCSI = 1

// rescueBus is that of the rescue's disk or CD; empty: the rescue brings no device.
func (p *domainBuilder) rescueBus() diskBusType {
	if p.Rescue == nil || p.Rescue.Kind == rescue.Kernel {
		return ""
	}
	if p.Rescue.Bus == "" && p.rescueCD() {
		return busSATA
	}
	return buses[p.Rescue.Bus]
}

func (p *domainBuilder) rescueCD() bool {
	if p.Rescue.Device == "" {
		return p.Rescue.Kind == rescue.ISO
	}
	return p.Rescue.Device == "cdrom"
}

var diskName = regexp.MustCompile(`^(?:vd|sd|hd)([a-z])$`)

// diskIndex is a disk's place among its guest's, from its name: "vda" is 0.
func diskIndex(name string) (int, error) {
	m := diskName.FindStringSubmatch(name)
	if m == nil {
		return 0, problem.Invalidf("disk %q: want vda to vdz", name)
	}
	return int(m[1][0] - 'a'), nil
}

// diskTargetName is the name of a disk on a bus; the letter says its place.
func diskTargetName(b diskBusType, index int) string {
	prefix := "sd"
	if b == busVirtio {
		prefix = "vd"
	}
	return prefix + string(rune('a'+index))
}

func (p *domainBuilder) disks() error {
	if _, known := buses[p.Machine[propDiskBus]]; !known {
		return problem.Unsupportedf("%s=%s: want virtio, scsi, sata or usb", propDiskBus, p.Machine[propDiskBus])
	}
	for _, d := range p.Disks {
		disk, err := p.disk(d)
		if err != nil {
			return err
		}
		p.out.Devices.Disks = append(p.out.Devices.Disks, *disk)
	}
	return nil
}

// disk is one of the server's own disks.
func (p *domainBuilder) disk(d compute.SpecDisk) (*libvirtxml.DomainDisk, error) {
	index, err := diskIndex(d.Name)
	if err != nil {
		return nil, err
	}
	b := p.diskBus()
	out := &libvirtxml.DomainDisk{Device: "disk", Serial: p.serial(d), Target: &libvirtxml.DomainDiskTarget{Dev: diskTargetName(b, index), Bus: string(b)}}
	switch b {
	case busVirtio:
		out.Address = pciPortAddress(p.diskPort(index))
	case busSCSI:
		out.Address = driveAddress(0, uint(index))
	case busSATA:
		if index >= sataDisks {
			return nil, problem.Unsupportedf("disk %s: SATA has room for %d disks", d.Name, sataDisks)
		}
		out.Address = driveAddress(0, uint(index))
	}
	if d.VolumeID != "" {
		err = p.volume(out, d)
	} else {
		err = p.file(out, d)
	}
	// In a rescue only its own device boots: a rescue that fails must not end in the broken system.
	if d.BootIndex >= 0 && p.Rescue == nil {
		out.Boot = &libvirtxml.DomainDeviceBoot{Order: uint(d.BootIndex) + 1}
	}
	return out, err
}

// serial is what the guest finds a disk by. virtio shows its first 20 characters.
func (p *domainBuilder) serial(d compute.SpecDisk) string {
	if d.VolumeID != "" {
		return d.VolumeID
	}
	return d.Name + "-" + strings.ReplaceAll(p.ServerID, "-", "")[:16]
}

func driveAddress(controller, u uint) *libvirtxml.DomainAddress {
	return &libvirtxml.DomainAddress{Drive: &libvirtxml.DomainAddressDrive{Controller: &controller, Bus: new(uint), Target: new(uint), Unit: &u}}
}

func (p *domainBuilder) file(out *libvirtxml.DomainDisk, d compute.SpecDisk) error {
	f, found := p.Paths[d.Name]
	if !found || f.Path == "" {
		return problem.Invalidf("disk %s: no file on this host", d.Name)
	}
	if f.Format != "raw" && f.Format != "qcow2" {
		return problem.Unsupportedf("disk %s: format %q, want raw or qcow2", d.Name, f.Format)
	}
	out.Driver = &libvirtxml.DomainDiskDriver{Name: "qemu", Type: f.Format, Discard: "unmap"}
	out.Source = &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: f.Path}}
	return nil
}

// volume is logged in to by QEMU itself: the host sees no device of it. The definition names the password's secret only.
func (p *domainBuilder) volume(out *libvirtxml.DomainDisk, d compute.SpecDisk) error {
	address, portal, err := net.SplitHostPort(d.Portal)
	if err != nil || d.IQN == "" || d.LUN < 0 {
		return problem.Invalidf("volume %s: want a portal HOST:PORT, an IQN and a LUN, have %q %q %d", d.VolumeID, d.Portal, d.IQN, d.LUN)
	}
	network := &libvirtxml.DomainDiskSourceNetwork{
		Protocol: "iscsi", Name: fmt.Sprintf("%s/%d", d.IQN, d.LUN),
		Hosts: []libvirtxml.DomainDiskSourceHost{{Name: address, Port: portal}},
	}
	if name := cmp.Or(p.initiator, p.Initiator); name != "" {
		network.Initiator = &libvirtxml.DomainDiskSourceNetworkInitiator{IQN: &libvirtxml.DomainDiskSourceNetworkIQN{Name: name}}
	}
	if d.CHAPUser != "" {
		network.Auth = &libvirtxml.DomainDiskAuth{
			Username: d.CHAPUser, Secret: &libvirtxml.DomainDiskSecret{Type: "iscsi", UUID: secretID(p.ServerID, d.VolumeID).String()},
		}
	}
	out.Driver = &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw", Cache: "none", Discard: "unmap"}
	out.Source = &libvirtxml.DomainDiskSource{Network: network}
	return nil
}

// secretID is the name of the libvirt secret with a volume's CHAP password.
func secretID(server, volume string) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:salvor:chap:"+server+":"+volume))
}

// drivePath is the config drive. A rescue's own takes its place in the same CD drive: two of them would have the same label.
func (p *domainBuilder) drivePath() string {
	if p.Rescue != nil && p.RescueDrivePath != "" {
		return p.RescueDrivePath
	}
	return p.DrivePath
}

func (p *domainBuilder) drives() error {
	path := p.drivePath()
	if path == "" {
		return nil
	}
	switch b := p.cdBus(); b {
	case busSCSI:
		p.addCD(driveTarget, b, driveAddress(0, scsiDriveUnit), path, "raw", 0)
	case busSATA:
		p.addCD(driveTarget, b, driveAddress(0, driveUnit), path, "raw", 0)
	default:
		return problem.Unsupportedf("%s=%s: want scsi or sata", propCDBus, p.Machine[propCDBus])
	}
	return nil
}

func (p *domainBuilder) addCD(name string, b diskBusType, at *libvirtxml.DomainAddress, path, format string, order uint) {
	cd := libvirtxml.DomainDisk{
		Device: "cdrom", ReadOnly: &libvirtxml.DomainDiskReadOnly{}, Address: at,
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: format},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: path}},
		Target: &libvirtxml.DomainDiskTarget{Dev: name, Bus: string(b)},
	}
	if order > 0 {
		cd.Boot = &libvirtxml.DomainDeviceBoot{Order: order}
	}
	p.out.Devices.Disks = append(p.out.Devices.Disks, cd)
}

// rescueDevice is the last disk of all, and the only one that boots.
func (p *domainBuilder) rescueDevice() error {
	if p.rescueBus() == "" && (p.Rescue == nil || p.Rescue.Kind == rescue.Kernel) {
		return nil
	}
	if p.Rescue.Kind != rescue.ISO && p.Rescue.Kind != rescue.Disk {
		return problem.Unsupportedf("rescue image %q: kind %q, want iso, disk or kernel", p.Rescue.Name, p.Rescue.Kind)
	}
	if p.rescueBus() == "" {
		return problem.Unsupportedf("rescue image %q: bus %q, want virtio, scsi, sata or usb", p.Rescue.Name, p.Rescue.Bus)
	}
	format := p.RescueFormat
	if format == "" {
		format = "raw"
	}
	if format != "raw" && format != "qcow2" {
		return problem.Unsupportedf("rescue image %q: format %q, want raw or qcow2", p.Rescue.Name, format)
	}
	b, last := p.rescueBus(), p.lastTarget()
	if last > 'z'-'a' {
		return problem.Unsupportedf("rescue image %q: the server has no room for another disk", p.Rescue.Name)
	}
	at := map[diskBusType]*libvirtxml.DomainAddress{busVirtio: pciPortAddress(p.ports), busSATA: driveAddress(0, rescueUnit)}[b]
	if b == busSCSI {
		at = driveAddress(rescueSCSI, 0)
	}
	switch p.Rescue.Device {
	case "", "disk", "cdrom":
	default:
		return problem.Unsupportedf("rescue image %q: device %q, want disk or cdrom", p.Rescue.Name, p.Rescue.Device)
	}
	if p.rescueCD() {
		if b == busVirtio {
			return problem.Unsupportedf("rescue image %q: there is no CD drive on virtio", p.Rescue.Name)
		}
		p.addCD(rescueCDTarget, b, at, p.RescueImage, format, 1)
		return nil
	}
	p.out.Devices.Disks = append(p.out.Devices.Disks, libvirtxml.DomainDisk{
		Device: "disk", Serial: rescueSerial, Address: at,
		Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: format, Discard: "unmap"},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: p.RescueImage}},
		Target: &libvirtxml.DomainDiskTarget{Dev: diskTargetName(b, last), Bus: string(b)},
		Boot:   &libvirtxml.DomainDeviceBoot{Order: 1},
	})
	return nil
}

// lastTarget is the place behind all of the server's disks.
func (p *domainBuilder) lastTarget() int {
	last := 0
	for _, d := range p.Disks {
		if index, err := diskIndex(d.Name); err == nil {
			last = max(last, index+1)
		}
	}
	return last
}
