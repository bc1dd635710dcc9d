package lab

import "salvor/lab/personality"

// Status is the printed shape of a lab: what tests and demos read to enroll its machines.
type Status struct {
	Name     string          `json:"name"`
	PID      int             `json:"pid"` // of the lab's first process, seen from outside
	Dir      string          `json:"dir"`
	Socket   string          `json:"socket"`
	Accel    string          `json:"accel"`
	Networks []NetworkStatus `json:"networks"`
	Machines []MachineStatus `json:"machines"`
	Hosts    []HostStatus    `json:"hosts,omitempty"`
	Shared   string          `json:"shared,omitempty"` // a directory for disks that all hosts see
}

// HostStatus is one VM host of the lab. User and password open its BMC, as MachineStatus says.
type HostStatus struct {
	Name    string `json:"name"`
	UUID    string `json:"uuid"`
	PID     int    `json:"pid"`     // of its first process, as seen inside the lab; 0: it is off
	BootID  string `json:"boot_id"` // of its present life
	Address string `json:"address"` // on the provisioning network, where it reaches a control plane
	// StorageAddress is its own on the storage network.
	StorageAddress string `json:"storage_address"`
	Bridge         string `json:"bridge"` // for guests, as it is called inside the host
	Dir            string `json:"dir"`    // its /run and all that libvirt keeps, as seen from outside
	Socket         string `json:"socket"` // of its libvirt, as seen from outside
	// ServiceLog is what the program writes that it was told to run as a service.
	ServiceLog string `json:"service_log"`
	BMC        string `json:"bmc"` // base URL of its Redfish service
	SystemID   string `json:"system_id"`
	User       string `json:"user"`
	Password   string `json:"password"`
	Power      Power  `json:"power"` // what is true, whatever its BMC says
	Fault      string `json:"fault"` // of its BMC
	Cut        bool   `json:"cut"`   // from the provisioning and the tenant network
	Frozen     bool   `json:"frozen"`
}

// NetworkStatus is one bridge of the lab.
type NetworkStatus struct {
	Name      string   `json:"name"` // provisioning, cleaning, rescuing, tenant, bmc
	Bridge    string   `json:"bridge"`
	Addresses []string `json:"addresses"` // with prefix length, as on the bridge itself
}

// MachineStatus is one machine of the lab. User and password open its BMC, which nobody but the
// lab's own namespaces can reach, and die with the lab; so they are printed.
type MachineStatus struct {
	Name          string           `json:"name"`
	UUID          string           `json:"uuid"`
	MAC           string           `json:"mac"`
	Firmware      Firmware         `json:"firmware"`
	BMC           BMCType          `json:"bmc"`
	Like          personality.Name `json:"like,omitempty"` // whose BMC it behaves like
	Address       string           `json:"address"`        // Redfish: a base URL; IPMI: an IP address
	Port          int              `json:"port,omitempty"` // IPMI only
	User          string           `json:"user"`
	Password      string           `json:"password"`
	SystemID      string           `json:"system_id,omitempty"` // Redfish only
	PortID        string           `json:"port_id"`             // the machine's tap device
	Network       string           `json:"network"`             // the bridge that the tap is on now
	TenantAddress string           `json:"tenant_address"`      // what the tenant network's DHCP gives it
	Disk          string           `json:"disk"`
	Marker        string           `json:"marker,omitempty"`   // identity of the tenant system on its disk
	HostKey       string           `json:"host_key,omitempty"` // public ssh host key of the tenant system
	Power         Power            `json:"power"`              // what is true, whatever its BMC says
	Fault         string           `json:"fault"`
	SerialLog     string           `json:"serial_log"`
}
