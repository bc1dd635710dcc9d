package redfish

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/metal"
	"salvor/wire/agent"
)

// maxParts bounds how many parts of one sort are read of a machine.
const maxParts = 64

// systemInventory is the part of a ComputerSystem that inspection needs. Counts are
// pointers: BMCs write null while a machine is off.
type systemInventory struct {
	ProcessorSummary   struct{ Count, CoreCount, LogicalProcessorCount *float64 }
	MemorySummary      struct{ TotalSystemMemoryGiB *float64 }
	Processors         link.Link
	SimpleStorage      link.Link
	Storage            link.Link
	EthernetInterfaces link.Link
	SerialNumber       string
	BIOSVersion        string `json:"BiosVersion"`
}

// Inspect reads processors, memory, disks and NICs. What the BMC does not tell is left out.
func (d *Driver) Inspect(ctx context.Context, n *metal.Node) (driver.Inspected, error) {
	out := driver.Inspected{Properties: metal.Object{}, Inventory: &agent.Inventory{CPU: agent.CPU{Flags: []string{}}}}
	err := d.with(ctx, n, "inspect", func(s *bmcSession) error {
		sys, err := s.read()
		if err != nil {
			return err
		}
		var doc systemInventory
		if _, err := s.bmc.Get(s.system, &doc); err != nil {
			return err
		}
		inv := out.Inventory
		if gib := doc.MemorySummary.TotalSystemMemoryGiB; gib != nil && *gib > 0 {
			mb := int64(*gib * 1024)
			out.Properties["memory_mb"] = float64(mb)
			inv.Memory = agent.Memory{Total: mb << 20, PhysicalMB: &mb}
		}
		if err := s.bmc.LeaveOut(s.processors(doc, out.Properties, &inv.CPU)); err != nil {
			return err
		}
		if inv.Disks, err = s.disks(doc); err != nil {
			return err
		}
		largest := int64(0)
		for _, disk := range inv.Disks {
			largest = max(largest, disk.Size)
		}
		if gib := largest >> 30; gib > 0 {
			out.Properties["local_gb"] = float64(gib)
		}
		inv.SystemVendor = agent.Vendor{ProductName: driver.Sanitize(sys.Model), SerialNumber: driver.Sanitize(doc.SerialNumber), Manufacturer: driver.Sanitize(sys.Manufacturer)}
		if version := driver.Sanitize(doc.BIOSVersion); version != "" {
			inv.SystemVendor.Firmware = &agent.Firmware{Version: version}
		}
		inv.Boot.CurrentBootMode = map[string]string{"UEFI": "uefi", "Legacy": "bios"}[sys.Boot.Mode]
		inv.Interfaces, err = s.interfaces(doc)
		for _, nic := range inv.Interfaces {
			out.MACs = append(out.MACs, nic.MACAddress)
		}
		return s.bmc.LeaveOut(err)
	})
	return out, err
}

// forEachMember reads the members of a collection, each by itself; no link, no members. A member that cannot be read is left out and noted.
func forEachMember[T any](s *bmcSession, list link.Link, fn func(T)) error {
	_, err := conversation.Each(s.bmc, list, maxParts, func(_, _ string, doc *T) { fn(*doc) })
	return err
}

type processorResource struct {
	ProcessorType, InstructionSet, Model string
	TotalCores, TotalThreads             *float64
	MaxSpeedMHz                          int
}

// processors counts threads, as Ironic's cpus does, and tells the architecture.
func (s *bmcSession) processors(doc systemInventory, found metal.Object, cpu *agent.CPU) error {
	threads, sockets := 0.0, 0
	err := forEachMember(s, doc.Processors, func(p processorResource) {
		if p.ProcessorType != "" && p.ProcessorType != "CPU" {
			return
		}
		sockets++
		for _, count := range []*float64{p.TotalThreads, p.TotalCores} {
			if count != nil && *count > 0 {
				threads += *count
				break
			}
		}
		if arch := map[string]string{"x86-64": "x86_64", "x86": "i686", "ARM-A64": "aarch64", "ARM-A32": "armv7l"}[p.InstructionSet]; arch != "" {
			found["cpu_arch"], cpu.Architecture = arch, arch
		}
		cpu.ModelName = cmp.Or(cpu.ModelName, driver.Sanitize(p.Model))
		if cpu.Frequency == nil && p.MaxSpeedMHz > 0 {
			cpu.Frequency = known(strconv.Itoa(int(p.MaxSpeedMHz)))
		}
	})
	if sockets > 0 {
		cpu.SocketCount = &sockets
	}
	sum := doc.ProcessorSummary
	for _, count := range []*float64{&threads, sum.LogicalProcessorCount, sum.CoreCount, sum.Count} {
		if count != nil && *count > 0 {
			found["cpus"], cpu.Count = float64(int64(*count)), int(*count)
			break
		}
	}
	return err
}

// known is the text as a pointer; nil: there is none.
func known(text string) *string {
	if text = driver.Sanitize(text); text == "" {
		return nil
	}
	return &text
}

// diskResource is a Drive, or a device of SimpleStorage.
type diskResource struct {
	manufacturerInfo
	ID            string `json:"Id"`
	Name          string
	MediaType     string
	CapacityBytes *float64
}

// disks gives the disks whose size the BMC tells. Drives of controllers are read only where SimpleStorage shows none.
func (s *bmcSession) disks(doc systemInventory) ([]agent.Disk, error) {
	out := []agent.Disk{}
	add := func(d diskResource) {
		if d.CapacityBytes == nil || *d.CapacityBytes <= 0 || len(out) == maxParts {
			return
		}
		out = append(out, agent.Disk{
			Name: driver.Sanitize(cmp.Or(d.Name, d.ID)), Model: driver.Sanitize(d.Model), Size: int64(*d.CapacityBytes), Rotational: d.MediaType == "HDD",
			Serial: known(d.SerialNumber), Vendor: known(d.Manufacturer),
		})
	}
	err := forEachMember(s, doc.SimpleStorage, func(c struct{ Devices []diskResource }) {
		for _, d := range c.Devices {
			add(d)
		}
	})
	if err = s.bmc.LeaveOut(err); err != nil || len(out) > 0 {
		return out, err
	}
	var drives link.Links
	err = forEachMember(s, doc.Storage, func(c struct{ Drives link.Links }) { drives = append(drives, c.Drives...) })
	if err == nil {
		_, err = conversation.EachOf(s.bmc, drives[:min(len(drives), maxParts)], func(_, _ string, d *diskResource) { add(*d) })
	}
	return out, s.bmc.LeaveOut(err)
}

// nicResource is an EthernetInterface.
type nicResource struct {
	ID                              string `json:"Id"`
	MACAddress, PermanentMACAddress string
	LinkStatus                      string
	SpeedMbps                       int
}

// interfaces gives the NICs that have a MAC, each MAC once.
func (s *bmcSession) interfaces(doc systemInventory) ([]agent.Interface, error) {
	out := []agent.Interface{}
	err := forEachMember(s, doc.EthernetInterfaces, func(nic nicResource) {
		for _, text := range []string{nic.PermanentMACAddress, nic.MACAddress} {
			mac, err := net.ParseMAC(text)
			if err != nil || len(mac) != 6 {
				continue
			}
			address := strings.ToLower(mac.String())
			if slices.ContainsFunc(out, func(i agent.Interface) bool { return i.MACAddress == address }) {
				return
			}
			found := agent.Interface{Name: driver.Sanitize(nic.ID), MACAddress: address, HasCarrier: nic.LinkStatus == "LinkUp"}
			if speed := int(nic.SpeedMbps); speed > 0 {
				found.SpeedMbps = &speed
			}
			out = append(out, found)
			return
		}
	})
	return out, err
}
