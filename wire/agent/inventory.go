package agent

import "encoding/json"

// TokenHeader carries the agent token of the boot beside an inspection's findings, since these are stored and the token is not, and at a lookup.
const TokenHeader = "X-Salvor-Agent-Token"

// Inspection is the body of POST /v1/continue_inspection (microversion 1.84, or the
// path of ipa-inspection-callback-url): what the ramdisk found. The answer is 202 with
// the form of a lookup's node from 1.84, {"uuid": ...} below.
type Inspection struct {
	Inventory Inventory `json:"inventory"`
	// RootDisk is the disk on which an image would be written without hints.
	RootDisk *Disk `json:"root_disk,omitempty"`
	// BootInterface is the MAC of the NIC that booted, in the form of BOOTIF or null.
	BootInterface *string `json:"boot_interface"`
	// Error says what could not be found out, or is null.
	Error         *string                  `json:"error"`
	Configuration *InspectionConfiguration `json:"configuration,omitempty"`
	// Collected is what further collectors send.
	PCIDevices []PCIDevice `json:"pci_devices,omitempty"`
	// Logs are base64 of a tar.gz, sent by the collector logs.
	Logs string `json:"logs,omitempty"`
	// Initiators are salvor's own: what volume connectors are made of.
	Initiators *Initiators `json:"salvor_initiators,omitempty"`
}

// InspectionConfiguration says how the ramdisk looked.
type InspectionConfiguration struct {
	Collectors []string  `json:"collectors"`
	Managers   []Manager `json:"managers"`
}

// Manager is a hardware manager of the agent.
type Manager struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Initiators are the names by which the machine asks for volumes.
type Initiators struct {
	// IQN of iSCSI; empty where the machine has none of its own.
	IQN string `json:"iqn,omitempty"`
	// FibreChannel are the ports of the HBAs; names are 16 hex digits without colons.
	FibreChannel []FibreChannelPort `json:"fibre_channel,omitempty"`
}

// FibreChannelPort is one port of an HBA.
type FibreChannelPort struct {
	Host string `json:"host"`
	WWNN string `json:"wwnn"`
	WWPN string `json:"wwpn"`
}

// Inventory is the hardware as the real agent describes it.
type Inventory struct {
	Interfaces   []Interface `json:"interfaces"`
	CPU          CPU         `json:"cpu"`
	Disks        []Disk      `json:"disks"`
	Memory       Memory      `json:"memory"`
	BMCAddress   *string     `json:"bmc_address"`
	BMCv6Address *string     `json:"bmc_v6address"`
	SystemVendor Vendor      `json:"system_vendor"`
	Boot         Boot        `json:"boot"`
	Hostname     string      `json:"hostname"`
}

// Interface is a NIC.
type Interface struct {
	Name        string          `json:"name"`
	MACAddress  string          `json:"mac_address"`
	IPv4Address *string         `json:"ipv4_address"`
	IPv6Address *string         `json:"ipv6_address"`
	HasCarrier  bool            `json:"has_carrier"`
	LLDP        json.RawMessage `json:"lldp"` // list of [type, hex], or null
	Vendor      *string         `json:"vendor"`
	Product     *string         `json:"product"`
	ClientID    *string         `json:"client_id"`
	BIOSDevName *string         `json:"biosdevname"`
	SpeedMbps   *int            `json:"speed_mbps"`
	PCIAddress  *string         `json:"pci_address"`
	Driver      *string         `json:"driver"`
}

// CPU are all processors; Frequency is in MHz, as text.
type CPU struct {
	ModelName    string   `json:"model_name"`
	Frequency    *string  `json:"frequency"`
	Count        int      `json:"count"`
	Architecture string   `json:"architecture"`
	Flags        []string `json:"flags"`
	SocketCount  *int     `json:"socket_count"`
}

// Disk is a block device on which a system can live. Size is in bytes.
type Disk struct {
	Name               string  `json:"name"` // /dev/sda
	Model              string  `json:"model"`
	Size               int64   `json:"size"`
	Rotational         bool    `json:"rotational"`
	WWN                *string `json:"wwn"`
	Serial             *string `json:"serial"`
	Vendor             *string `json:"vendor"`
	WWNWithExtension   *string `json:"wwn_with_extension"`
	WWNVendorExtension *string `json:"wwn_vendor_extension"`
	HCTL               *string `json:"hctl"`
	ByPath             *string `json:"by_path"`
	LogicalSectors     int64   `json:"logical_sectors,omitempty"`
	PhysicalSectors    int64   `json:"physical_sectors,omitempty"`
}

// Memory is in bytes and, what is fitted, in MiB.
type Memory struct {
	Total      int64  `json:"total"`
	PhysicalMB *int64 `json:"physical_mb"`
}

// Vendor is who made the machine.
type Vendor struct {
	ProductName  string    `json:"product_name"`
	SerialNumber string    `json:"serial_number"`
	Manufacturer string    `json:"manufacturer"`
	Firmware     *Firmware `json:"firmware,omitempty"`
}

// Firmware is the machine's BIOS or UEFI.
type Firmware struct {
	Vendor    string `json:"vendor"`
	Version   string `json:"version"`
	BuildDate string `json:"build_date"`
}

// Boot is how the ramdisk was booted.
type Boot struct {
	CurrentBootMode string  `json:"current_boot_mode"` // bios or uefi
	PXEInterface    *string `json:"pxe_interface"`
}

// PCIDevice has hex without 0x.
type PCIDevice struct {
	VendorID  string  `json:"vendor_id"`
	ProductID string  `json:"product_id"`
	Class     string  `json:"class"`
	Revision  *string `json:"revision"`
	NUMANode  *string `json:"numa_node_id"`
	Bus       string  `json:"bus"`
}
