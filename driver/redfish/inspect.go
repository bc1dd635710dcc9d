package redfish

import (
	"context"
	"net"
	"slices"
	"strings"

	"salvor/metal"
)

// maxParts bounds how many parts of one sort are read of a machine.
const maxParts = 64

// systemInventory is the part of a ComputerSystem that inspection needs. Counts are
// pointers: BMCs write null while a machine is off.
type systemInventory struct {
	ProcessorSummary   struct{ Count, CoreCount, LogicalProcessorCount *float64 }
	MemorySummary      struct{ TotalSystemMemoryGiB *float64 }
	Processors         resourceLink
	SimpleStorage      resourceLink
	Storage            resourceLink
	EthernetInterfaces resourceLink
}

// Inspect reads processors, memory, the largest disk and the MACs of the NICs. What
// the BMC does not tell is left out.
func (d *Driver) Inspect(ctx context.Context, n *metal.Node) (metal.Object, []string, error) {
	found, macs := metal.Object{}, []string(nil)
	err := d.with(ctx, n, "inspect", func(s *bmcSession) error {
		if _, err := s.read(); err != nil {
			return err
		}
		var doc systemInventory
		if _, err := s.get(s.system, &doc); err != nil {
			return err
		}
		if gib := doc.MemorySummary.TotalSystemMemoryGiB; gib != nil && *gib > 0 {
			found["memory_mb"] = float64(int64(*gib * 1024))
		}
		if err := s.processors(doc, found); err != nil {
			return err
		}
		bytes, err := s.disk(doc)
		if err != nil {
			return err
		}
		if gib := int64(bytes / (1 << 30)); gib > 0 {
			found["local_gb"] = float64(gib)
		}
		macs, err = s.macs(doc)
		return err
	})
	return found, macs, err
}

// forEachMember reads the members of a collection one by one; no link, no members.
func forEachMember[T any](s *bmcSession, list resourceLink, fn func(T)) error {
	if list.Path == "" {
		return nil
	}
	all, err := s.members(list.Path, maxParts)
	if err != nil {
		return err
	}
	for _, member := range all {
		var doc T
		if _, err := s.get(member.Path, &doc); err != nil {
			return err
		}
		fn(doc)
	}
	return nil
}

type processorResource struct {
	ProcessorType, InstructionSet string
	TotalCores, TotalThreads      *float64
}

// processors counts threads, as Ironic's cpus does, and tells the architecture.
func (s *bmcSession) processors(doc systemInventory, found metal.Object) error {
	threads := 0.0
	err := forEachMember(s, doc.Processors, func(p processorResource) {
		if p.ProcessorType != "" && p.ProcessorType != "CPU" {
			return
		}
		for _, count := range []*float64{p.TotalThreads, p.TotalCores} {
			if count != nil && *count > 0 {
				threads += *count
				break
			}
		}
		if arch := map[string]string{"x86-64": "x86_64", "x86": "i686", "ARM-A64": "aarch64", "ARM-A32": "armv7l"}[p.InstructionSet]; arch != "" {
			found["cpu_arch"] = arch
		}
	})
	sum := doc.ProcessorSummary
	for _, count := range []*float64{&threads, sum.LogicalProcessorCount, sum.CoreCount, sum.Count} {
		if count != nil && *count > 0 {
			found["cpus"] = float64(int64(*count))
			break
		}
	}
	return err
}

// disk is the capacity of the largest disk in bytes.
func (s *bmcSession) disk(doc systemInventory) (float64, error) {
	most := 0.0
	type device struct{ CapacityBytes *float64 }
	grow := func(d device) {
		if d.CapacityBytes != nil {
			most = max(most, *d.CapacityBytes)
		}
	}
	err := forEachMember(s, doc.SimpleStorage, func(c struct{ Devices []device }) {
		for _, d := range c.Devices {
			grow(d)
		}
	})
	if err != nil || most > 0 {
		return most, err
	}
	var drives []resourceLink
	err = forEachMember(s, doc.Storage, func(c struct{ Drives []resourceLink }) { drives = append(drives, c.Drives...) })
	if err != nil {
		return 0, err
	}
	for _, drive := range drives[:min(len(drives), maxParts)] {
		var d device
		if _, err := s.get(drive.Path, &d); err != nil {
			return 0, err
		}
		grow(d)
	}
	return most, nil
}

func (s *bmcSession) macs(doc systemInventory) ([]string, error) {
	var out []string
	err := forEachMember(s, doc.EthernetInterfaces, func(nic struct{ MACAddress, PermanentMACAddress string }) {
		for _, text := range []string{nic.PermanentMACAddress, nic.MACAddress} {
			mac, err := net.ParseMAC(text)
			if err != nil || len(mac) != 6 {
				continue
			}
			if address := strings.ToLower(mac.String()); !slices.Contains(out, address) {
				out = append(out, address)
			}
			return
		}
	})
	return out, err
}
