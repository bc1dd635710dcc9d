// Package metal holds physical machines: nodes, ports, their provision and power
// states, the boot plan, and the rules of changing them. It is pure: stores keep
// its rows, drivers touch the hardware, the API asks it. It never imports compute.
package metal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"time"

	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
)

// Object is a free-form JSON object of a record, as encoding/json decodes it.
type Object = map[string]any

// Power is a power state as Ironic spells it; empty means not known yet.
type Power string

const (
	PowerUnknown Power = ""
	PowerOn      Power = "power on"
	PowerOff     Power = "power off"
	PowerError   Power = "error"
)

// Node is a physical machine's record: what operators and salvor want of it.
// What is merely observed lives in Contact, which has no version.
type Node struct {
	ID      string // UUID
	Version int64  // raised by each change; updates compare it
	Name    string
	Driver  string // hardware type

	DriverInfo     Object // secret keys are sealed one by one by the store; plain here
	Properties     Object
	Extra          Object
	InstanceInfo   Object // never holds a rescue password
	InternalInfo   Object // what drivers keep, shown in driver_internal_info; no secret
	RAIDConfig     Object
	TargetRAID     Object
	NetworkData    Object
	InstanceUUID   string
	ChassisUUID    string
	ResourceClass  string
	Description    string
	Owner, Lessee  string
	Shard          string
	ParentNode     string // UUID
	AllocationID   string // UUID of the allocation that claims the node
	InstanceName   string
	ConductorGroup string
	Traits         []string
	AutomatedClean *bool // nil: as configured

	Maintenance       bool
	MaintenanceReason string
	Fault             string
	Protected         bool
	ProtectedReason   string
	Retired           bool
	RetiredReason     string

	// Interfaces by kind ("power", "boot", ...); a kind left out means the driver's default.
	Interfaces map[string]string

	PowerState      Power // as last believed; wanted while a rescue or an active system runs
	TargetPower     Power
	ProvisionState  State
	TargetProvision State
	ProvisionedAt   time.Time // of the last change of ProvisionState
	LastError       string
	CleanStep       Object
	DeployStep      Object
	ServiceStep     Object
	BootMode        string
	SecureBoot      *bool
	ConsoleEnabled  bool
	DisablePowerOff bool   // the machine must not be switched off; reboots only
	Health          string // as the BMC told it last: OK, Warning, Critical
	// PowerLock says why the node must stay off, and what ends that; empty: it need not.
	PowerLock       string
	InspectionStart time.Time
	InspectionEnd   time.Time

	// BootNumber counts the boots of a ramdisk; the agent token is derived from it, so raising it voids the token.
	BootNumber int64
	// Plan is what the machine is given when it boots from us; nil: nothing.
	Plan *BootPlan
	// Rescue is the open rescue session: nil outside of rescue.
	Rescue *rescue.Session

	CreatedAt, UpdatedAt time.Time

	// Reservation is the host name of the conductor whose job locks the node, or "salvor" while a job
	// is queued; Conductor the host name of one that serves its group. Both are read-only, filled by the store.
	Reservation string
	Conductor   string
}

// Contact is what has been heard of a node, apart from its record.
type Contact struct {
	NodeID string
	// AgentURL and the other agent fields are what the ramdisk of boot AgentBoot last said.
	AgentURL, AgentVersion, AgentCA string
	AgentStatus, AgentStatusMessage string
	AgentBoot                       int64
	HeartbeatAt                     time.Time
	// TokenTold is the boot number whose token lookup has already told.
	TokenTold int64
	LookupAt  time.Time
	// PowerRead is the power of the last reading that succeeded, at PowerReadAt.
	PowerRead   Power
	PowerReadAt time.Time
	// PowerError is why the last reading failed, at PowerFailedAt; empty: that reading succeeded. PowerFailures counts the readings in a row that
	// failed or differed from the wanted power. PowerRefused: the BMC answered, and refused the login or the request.
	PowerFailures int
	PowerError    string
	PowerFailedAt time.Time
	PowerRefused  bool
	// Seen is what netboot saw of the machine last; SaveContact leaves it alone.
	BootProgress
	// Refusals are the refused heartbeats; SaveContact leaves them alone.
	Refusals
	// Revision is raised by every write; the store keeps it.
	Revision int64
}

// Port is a NIC of a node.
type Port struct {
	record.Record
	NodeID           string
	Address          string // MAC, lower case
	PXEEnabled       bool
	LocalLink        Object // switch_id, port_id, switch_info
	PhysicalNetwork  string
	PortgroupID      string
	IsSmartNIC       bool
	NeverDynamic     bool // no portgroup is made of it while it is in use
	Name             string
	Description      string
	Vendor, Category string
	Extra            Object
	InternalInfo     Object
}

// BootPlan is all that a machine is given when it boots a ramdisk from us. Boot
// scripts, images and DHCP answers are rendered from it on request; no file per
// node exists. The agent token is not in it: whoever renders derives it.
type BootPlan struct {
	Method     BootMethod `json:"Road"` // how it is delivered
	Path       string     // random, unguessable; part of every URL of this boot
	Kernel     string     // file path on the conductor, http(s) URL, or glance://UUID
	Ramdisk    string     // the same
	Params     []string   // kernel parameters, without the agent token
	BootNumber int64      // the boot that it belongs to
	KeyID      string     // the key that its agent token is derived from; empty: the oldest
	CarryToken bool       // whether the kernel command line carries the agent token
	MACs       []string   // of the NICs that may ask, lower case
	Persistent bool       // every boot is this one until it is voided, not only the next
	Volumes    bool       // no ramdisk: the machine starts from its volume targets, as they are when it asks
	URL        string     // base URL under which the machine reaches our boot files, no trailing slash
	Image      string     // file path or glance://UUID of the system image that the ramdisk fetches from us; empty: none
	SecureBoot bool       `json:",omitempty"` // the firmware starts only what is signed
	// FirmwareMode is the mode that the firmware boots in, "uefi" or "bios"; empty: it is not known.
	FirmwareMode string `json:",omitempty"`
	// Refusal is the last boot file of this boot that the machine did not get; nil: there is none.
	Refusal *BootRefusal `json:",omitempty"`
	// System is what Glance said of the system image when the boot was planned; nil: it is none of Glance.
	System *Image `json:",omitempty"`
	// ISO is the path, http(s) URL or glance://UUID of a bootable ISO image; with it there is no kernel and no ramdisk, and its kernel parameters are its own.
	ISO string `json:",omitempty"`
	// ConfigDrive tells whether the machine is shown its config drive as a virtual USB stick.
	ConfigDrive bool `json:",omitempty"`
}

// BootMethod is how a machine gets its ramdisk.
type BootMethod string

const (
	BootIPXE  BootMethod = "ipxe"
	BootMedia BootMethod = "virtual-media"
	BootHTTP  BootMethod = "http"
)

// CarriesToken tells whether the node's present boot got its agent token by its boot files: what comes without it is not from there.
func (n *Node) CarriesToken() bool {
	return n.Plan != nil && n.Plan.BootNumber == n.BootNumber && n.Plan.CarryToken
}

// AgentToken derives the token of the node's present boot of a ramdisk. It stays the same while the key is changed.
func (n *Node) AgentToken(key *secret.Key) secret.Value {
	by := key.ID()
	if n.Plan != nil {
		by = n.Plan.KeyID
	}
	return key.TokenBy(by, "agent", n.ID, formatInt(n.BootNumber))
}

// Interface gives the node's interface of a kind, or the empty string where its driver's default holds.
func (n *Node) Interface(kind string) string { return n.Interfaces[kind] }

// Info reads a string of driver_info; numbers and booleans in it are written out.
func (n *Node) Info(key string) string { return formatScalar(n.DriverInfo[key]) }

// SetInternal stores a value in driver_internal_info; nil removes it. Copies of the node that share the former map keep what they have.
func (n *Node) SetInternal(key string, v any) {
	info := maps.Clone(n.InternalInfo)
	if info == nil {
		info = Object{}
	}
	if info[key] = v; v == nil {
		delete(info, key)
	}
	n.InternalInfo = info
}

// KeepInternal stores a struct of plain JSON values in driver_internal_info, as an object.
func (n *Node) KeepInternal(key string, record any) {
	var object map[string]any
	text, _ := json.Marshal(record) // plain values: cannot fail
	_ = json.Unmarshal(text, &object)
	n.SetInternal(key, object)
}

// Digest is the SHA-256 of plain JSON values, in hexadecimal. It tells values apart without showing them.
func Digest(of any) string {
	text, _ := json.Marshal(of) // plain values: cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ReadInternal reads what KeepInternal stored into record, a pointer; what cannot be read leaves record as it was.
func (n *Node) ReadInternal(key string, record any) {
	text, _ := json.Marshal(n.InternalInfo[key]) // it was JSON before: cannot fail
	_ = json.Unmarshal(text, record)
}

// Clone copies the node so deep that changing the copy's maps leaves the node alone
// (values inside the free-form objects are shared and must be replaced, not changed).
func (n *Node) Clone() *Node {
	c := *n
	for _, o := range []*Object{&c.DriverInfo, &c.Properties, &c.Extra, &c.InstanceInfo, &c.InternalInfo, &c.RAIDConfig, &c.TargetRAID, &c.NetworkData, &c.CleanStep, &c.DeployStep, &c.ServiceStep} {
		*o = maps.Clone(*o)
	}
	c.Interfaces = maps.Clone(n.Interfaces)
	return &c
}
