package libvirt

import (
	"context"
	"encoding/json"
	"fmt"

	"libvirt.org/go/libvirtxml"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
)

// cpuInfo is the shape in which the Compute API tells of a host's CPU.
type cpuInfo struct {
	Arch     string      `json:"arch"`
	Model    string      `json:"model"`
	Vendor   string      `json:"vendor"`
	Topology cpuTopology `json:"topology"`
	Features []string    `json:"features"`
}

type cpuTopology struct {
	Cells   int `json:"cells"`
	Sockets int `json:"sockets"`
	Cores   int `json:"cores"`
	Threads int `json:"threads"`
}

func (h *Hypervisor) Inventory(ctx context.Context) (compute.Inventory, error) {
	type facts struct {
		inventory compute.Inventory
		caps      string
	}
	found, err := callLibvirt(ctx, h, "read the host's inventory", h.opts.Timeout, func(c *rpc.Libvirt) (facts, error) {
		var f facts
		_, memory, cpus, _, _, _, _, _, err := c.NodeGetInfo()
		if err != nil {
			return f, err
		}
		kind, err := c.ConnectGetType()
		if err != nil {
			return f, err
		}
		version, err := c.ConnectGetVersion()
		if err != nil {
			return f, err
		}
		f.caps, err = c.ConnectGetCapabilities()
		f.inventory = compute.Inventory{HypervisorType: kind, HypervisorVersion: int(version), VCPUs: int(cpus), RAM: int(memory >> 10)}
		return f, err
	})
	if err != nil {
		return compute.Inventory{}, err
	}
	out := found.inventory
	out.InitiatorIQN = h.opts.InitiatorIQN
	out.Firmware = []compute.Firmware{compute.BIOS}
	if findFirmware() != nil {
		out.Firmware = append(out.Firmware, compute.UEFI)
	}
	out.CPUInfo, err = cpuInfoOf(found.caps)
	return out, err
}

// cpuInfoOf reads what a host's CPU is from libvirt's capabilities.
func cpuInfoOf(capabilities string) (string, error) {
	var caps libvirtxml.Caps
	if err := caps.Unmarshal(capabilities); err != nil {
		return "", fmt.Errorf("read libvirt's capabilities: %w", err)
	}
	cpu := caps.Host.CPU
	if cpu == nil {
		return "", nil
	}
	info := cpuInfo{Arch: cpu.Arch, Model: cpu.Model, Vendor: cpu.Vendor, Topology: cpuTopology{Cells: 1}, Features: []string{}}
	if t := cpu.Topology; t != nil {
		info.Topology.Sockets, info.Topology.Cores, info.Topology.Threads = t.Sockets, t.Cores, t.Threads
	}
	if caps.Host.NUMA != nil && caps.Host.NUMA.Cells != nil {
		info.Topology.Cells = int(caps.Host.NUMA.Cells.Num)
	}
	for _, f := range cpu.FeatureFlags {
		info.Features = append(info.Features, f.Name)
	}
	text, err := json.Marshal(info)
	return string(text), err
}
