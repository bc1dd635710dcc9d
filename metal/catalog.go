package metal

import "encoding/json"

// Catalog is what a conductor says of its hardware types, published in its row, so
// that the API can validate, show defaults and refuse at the door without asking it.
type Catalog struct {
	Drivers []DriverInfo `json:"drivers"`
	// Preflight is what processes without this conductor's configuration check operations by. Only the program reads it.
	Preflight json.RawMessage `json:"preflight,omitempty"`
}

// DriverInfo describes one hardware type.
type DriverInfo struct {
	Name string `json:"name"`
	// Interfaces by kind: power, management, boot, network, rescue, deploy, inspect, storage, ...
	Interfaces map[string]InterfaceSet `json:"interfaces"`
	// Properties are the keys of driver_info it understands, with a sentence each.
	Properties map[string]string `json:"properties"`
}

// InterfaceSet is what a hardware type offers of one kind.
type InterfaceSet struct {
	Default string          `json:"default"`
	Enabled []InterfaceInfo `json:"enabled"` // in the order of preference
}

// InterfaceInfo describes one implementation.
type InterfaceInfo struct {
	Name string `json:"name"`
	// Required are keys of driver_info without which it cannot work.
	Required []string `json:"required,omitempty"`
	// RequiredForRescue are keys needed (beside Required) to rescue; a key that the conductor's configuration supplies is not listed.
	RequiredForRescue []string `json:"required_for_rescue,omitempty"`
	// RequiredInstance are keys of instance_info without which it cannot deploy.
	RequiredInstance []string `json:"required_instance,omitempty"`
	// InsteadInstance is a key of instance_info that replaces all of RequiredInstance; empty: none does.
	InsteadInstance string `json:"instead_instance,omitempty"`
	// ImageFormats marks a deploy interface that writes the image of instance_info, and says in which formats.
	ImageFormats []string `json:"image_formats,omitempty"`
	// Unsupported marks "no-rescue" and its like: the kind's operations are refused.
	Unsupported bool `json:"unsupported,omitempty"`
	// Broken says why it cannot work as this conductor is configured; empty: it can.
	Broken string `json:"broken,omitempty"`
	// NeedsPorts: the node must have at least one port.
	NeedsPorts bool `json:"needs_ports,omitempty"`
	// Heartbeat says how a deploy interface takes heartbeats: "" not at all, or "wait".
	Heartbeat string `json:"heartbeat,omitempty"`
	// NeedsHeartbeat marks a rescue interface whose ramdisk must be heard: the deploy interface has to take heartbeats.
	NeedsHeartbeat bool `json:"needs_heartbeat,omitempty"`
	// Volumes marks a storage interface under which the node boots from its volume targets.
	Volumes bool `json:"volumes,omitempty"`
	// BootsVolumes are the types of volume that a boot interface can boot from.
	BootsVolumes []VolumeType `json:"boots_volumes,omitempty"`
	// Methods are what a vendor interface can be called for.
	Methods map[string]VendorMethod `json:"methods,omitempty"`
	// Warning is what an operator should know of it as it is configured.
	Warning string `json:"warning,omitempty"`
}

// Kinds of interface, in Ironic's order.
var InterfaceKinds = []string{"bios", "boot", "console", "deploy", "firmware", "inspect", "management", "network", "power", "raid", "rescue", "storage", "vendor"}

// Driver finds a hardware type by name.
func (c Catalog) Driver(name string) (DriverInfo, bool) {
	for _, d := range c.Drivers {
		if d.Name == name {
			return d, true
		}
	}
	return DriverInfo{}, false
}

// Find gives the node's implementation of a kind: the one it names, or the default. ok is false if the
// hardware type does not offer it.
func (d DriverInfo) Find(n *Node, kind string) (InterfaceInfo, bool) {
	set, ok := d.Interfaces[kind]
	if !ok {
		return InterfaceInfo{}, false
	}
	name := n.Interfaces[kind]
	if name == "" {
		name = set.Default
	}
	for _, i := range set.Enabled {
		if i.Name == name {
			return i, true
		}
	}
	return InterfaceInfo{}, false
}
