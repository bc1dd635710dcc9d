// Package inventory describes the machine as ironic-python-agent does, from /sys and
// /proc alone: what an inspection sends. It reads and changes nothing, and what it
// cannot find out it leaves empty. It must not know who is told.
package inventory

import (
	"bufio"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"salvor/agent/disk"
	wire "salvor/wire/agent"
)

// Place is where the machine is looked at: Root is empty for the machine itself.
type Place struct {
	Root string
	// CommandLine of the kernel, for the NIC that booted (BOOTIF).
	CommandLine string
}

func (p Place) path(name string) string { return filepath.Join("/", p.Root, name) }

// text reads a short file; empty if it is not there.
func (p Place) text(name string) string {
	b, err := os.ReadFile(p.path(name))
	if err != nil || len(b) > 64<<10 {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(strings.Trim(string(b), "\x00"), ""))
}

func (p Place) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(p.text(name), 10, 64)
	return n, err == nil
}

func (p Place) names(dir string) []string {
	entries, err := os.ReadDir(p.path(dir))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// link is the last part of what a symbolic link points to.
func (p Place) link(name string) string {
	target, err := os.Readlink(p.path(name))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

func present(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Gather looks at all of it.
func (p Place) Gather() (wire.Inventory, error) {
	disks, err := disk.List(p.Root)
	if err != nil {
		return wire.Inventory{}, err
	}
	inventory := wire.Inventory{
		Interfaces: p.Interfaces(), CPU: p.cpu(), Disks: []wire.Disk{}, Memory: p.memory(),
		SystemVendor: p.vendor(), Boot: p.boot(), Hostname: p.hostname(),
	}
	for _, d := range disks {
		inventory.Disks = append(inventory.Disks, d.Disk)
	}
	return inventory, nil
}

func (p Place) hostname() string {
	if p.Root != "" {
		return p.text("proc/sys/kernel/hostname")
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// Interfaces are the NICs with a device behind them.
func (p Place) Interfaces() []wire.Interface {
	out := []wire.Interface{}
	for _, name := range p.names("sys/class/net") {
		at := filepath.Join("sys/class/net", name)
		mac := strings.ToLower(p.text(at + "/address"))
		if _, err := os.Stat(p.path(at + "/device")); err != nil || mac == "" {
			continue
		}
		nic := wire.Interface{
			Name: name, MACAddress: mac, HasCarrier: p.text(at+"/carrier") == "1",
			Vendor: present(p.text(at + "/device/vendor")), Product: present(p.text(at + "/device/device")),
			Driver: present(p.link(at + "/device/driver")), PCIAddress: p.pciAddress(at + "/device"),
		}
		if speed, ok := p.number(at + "/speed"); ok && speed > 0 {
			mbps := int(speed)
			nic.SpeedMbps = &mbps
		}
		if p.Root == "" {
			nic.IPv4Address, nic.IPv6Address = addresses(name)
		}
		out = append(out, nic)
	}
	return out
}

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// pciAddress is of the PCI device nearest to a device, which may lie on a bus below it (virtio, USB).
func (p Place) pciAddress(name string) *string {
	real, err := filepath.EvalSymlinks(p.path(name))
	if err != nil {
		return nil
	}
	for _, part := range slices.Backward(strings.Split(real, "/")) {
		if pciAddress.MatchString(part) {
			return &part
		}
	}
	return nil
}

// addresses are the first of each family that is more than link-local.
func addresses(name string) (v4, v6 *string) {
	nic, err := net.InterfaceByName(name)
	if err != nil {
		return nil, nil
	}
	list, err := nic.Addrs()
	if err != nil {
		return nil, nil
	}
	for _, a := range list {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLinkLocalUnicast() {
			continue
		}
		text := n.IP.String()
		switch {
		case n.IP.To4() != nil && v4 == nil:
			v4 = &text
		case n.IP.To4() == nil && v6 == nil:
			v6 = &text
		}
	}
	return v4, v6
}

// architectures by Go's name.
var architectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "386": "i686"}

func (p Place) cpu() wire.CPU {
	cpu := wire.CPU{Architecture: architectures[runtime.GOARCH], Flags: []string{}}
	sockets := map[string]bool{}
	f, err := os.Open(p.path("proc/cpuinfo"))
	if err != nil {
		return cpu
	}
	defer f.Close()
	scanner := bufio.NewScanner(f)
	for scanner.Scan() {
		key, value, _ := strings.Cut(scanner.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "processor":
			cpu.Count++
		case "model name":
			cpu.ModelName = value
		case "cpu MHz":
			cpu.Frequency = present(value)
		case "physical id":
			sockets[value] = true
		case "flags", "Features":
			cpu.Flags = strings.Fields(value)
		}
	}
	if n := len(sockets); n > 0 {
		cpu.SocketCount = &n
	}
	if khz, ok := p.number("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"); ok {
		cpu.Frequency = present(strconv.FormatInt(khz/1000, 10))
	}
	return cpu
}

func (p Place) memory() wire.Memory {
	var m wire.Memory
	for line := range strings.Lines(p.text("proc/meminfo")) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			m.Total = kib << 10
		}
	}
	if mb := p.modules(); mb > 0 {
		m.PhysicalMB = &mb
	}
	return m
}

// modules adds up the sizes of memory devices (SMBIOS type 17), in MiB.
func (p Place) modules() int64 {
	var sum int64
	for _, name := range p.names("sys/firmware/dmi/entries") {
		if !strings.HasPrefix(name, "17-") {
			continue
		}
		b, err := os.ReadFile(p.path(filepath.Join("sys/firmware/dmi/entries", name, "raw")))
		if err != nil || len(b) < 14 {
			continue
		}
		size := int64(binary.LittleEndian.Uint16(b[12:]))
		switch {
		case size == 0xffff:
		case size == 0x7fff && len(b) >= 32:
			sum += int64(binary.LittleEndian.Uint32(b[28:]) & 0x7fffffff)
		case size&0x8000 != 0:
			sum += (size & 0x7fff) >> 10
		default:
			sum += size
		}
	}
	return sum
}

func (p Place) vendor() wire.Vendor {
	const at = "sys/class/dmi/id/"
	v := wire.Vendor{ProductName: p.text(at + "product_name"), SerialNumber: p.text(at + "product_serial"), Manufacturer: p.text(at + "sys_vendor")}
	firmware := wire.Firmware{Vendor: p.text(at + "bios_vendor"), Version: p.text(at + "bios_version"), BuildDate: p.text(at + "bios_date")}
	if firmware != (wire.Firmware{}) {
		v.Firmware = &firmware
	}
	return v
}

func (p Place) boot() wire.Boot {
	b := wire.Boot{CurrentBootMode: "bios", PXEInterface: p.bootNIC()}
	if _, err := os.Stat(p.path("sys/firmware/efi")); err == nil {
		b.CurrentBootMode = "uefi"
	}
	return b
}

// bootNIC is the MAC that a PXE loader put into the command line as BOOTIF=01-aa-bb-...
func (p Place) bootNIC() *string {
	for _, word := range strings.Fields(p.CommandLine) {
		if value, ok := strings.CutPrefix(word, "BOOTIF="); ok {
			value = strings.ToLower(strings.ReplaceAll(value, "-", ":"))
			if len(value) == 20 {
				value = value[3:]
			}
			if _, err := net.ParseMAC(value); err == nil {
				return &value
			}
		}
	}
	return nil
}

// Initiators are the names by which this machine asks for volumes: the file of an
// installed initiator, or what the firmware booted with; HBAs from the kernel.
func (p Place) Initiators() *wire.Initiators {
	found := wire.Initiators{IQN: p.text("sys/firmware/ibft/initiator/initiator-name")}
	for line := range strings.Lines(p.text("etc/iscsi/initiatorname.iscsi")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "InitiatorName="); ok && found.IQN == "" {
			found.IQN = name
		}
	}
	for _, host := range p.names("sys/class/fc_host") {
		at := filepath.Join("sys/class/fc_host", host)
		port := wire.FibreChannelPort{Host: host, WWNN: worldWide(p.text(at + "/node_name")), WWPN: worldWide(p.text(at + "/port_name"))}
		if port.WWPN != "" {
			found.FibreChannel = append(found.FibreChannel, port)
		}
	}
	if found.IQN == "" && found.FibreChannel == nil {
		return nil
	}
	return &found
}

// worldWide is 16 hex digits out of 0x and 16 hex digits.
func worldWide(text string) string {
	text = strings.ToLower(strings.TrimPrefix(text, "0x"))
	if len(text) != 16 || strings.Trim(text, "0123456789abcdef") != "" || strings.Trim(text, "0") == "" {
		return ""
	}
	return text
}

// PCIDevices are all devices of the PCI buses.
func (p Place) PCIDevices() []wire.PCIDevice {
	var out []wire.PCIDevice
	for _, bus := range p.names("sys/bus/pci/devices") {
		at := filepath.Join("sys/bus/pci/devices", bus)
		hex := func(name string) string { return strings.TrimPrefix(p.text(filepath.Join(at, name)), "0x") }
		d := wire.PCIDevice{
			VendorID: hex("vendor"), ProductID: hex("device"), Class: hex("class"), Bus: bus,
			Revision: present(hex("revision")), NUMANode: present(p.text(at + "/numa_node")),
		}
		if d.VendorID != "" && d.ProductID != "" {
			out = append(out, d)
		}
	}
	return out
}

// Root is the disk on which a system would be written without hints, or nil.
func Root(disks []wire.Disk) *wire.Disk {
	var found []disk.Found
	for _, d := range disks {
		found = append(found, disk.Found{Disk: d})
	}
	chosen, err := disk.Choose(found, nil)
	if err != nil {
		return nil
	}
	return &chosen.Disk
}
