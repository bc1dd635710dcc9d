// Package driver is the contract for hardware: small interfaces that a hardware type is composed of. A driver talks to a BMC, a switch or a
// ramdisk, reads before it acts, proves by a read-back and returns facts. It knows no store, no job and no other driver. It does not retry,
// but classifies each error: problem.Unavailable may pass, the operator must mend problem.Invalid, and the hardware lacks what is
// problem.Unsupported.
package driver

import (
	"context"
	"encoding/json"
	"time"

	"salvor/metal"
	"salvor/rescue"
	"salvor/secret"
	"salvor/wire/agent"
)

// Power reads and sets the power of a node. Every method may be repeated.
type Power interface {
	// PowerState reads the power now. Unavailable if the BMC does not answer.
	PowerState(ctx context.Context, n *metal.Node) (metal.Power, error)
	// SetPower asks for on or off and returns once a read-back shows it, or with Unavailable at ctx's end or after ProveTimeout.
	// Already there is success. off is forced, never graceful.
	SetPower(ctx context.Context, n *metal.Node, want metal.Power) error
	// SoftOff asks the system to shut down by itself and returns without waiting for it. Unsupported where the BMC cannot.
	SoftOff(ctx context.Context, n *metal.Node) error
}

// Management sets what boots.
type Management interface {
	// BootDevices lists the words that SetBootDevice takes: pxe, disk, cdrom, bios, safe, wanboot, ...
	BootDevices(ctx context.Context, n *metal.Node) ([]string, error)
	// BootDevice reads the override; an empty Device where there is none.
	BootDevice(ctx context.Context, n *metal.Node) (rescue.Boot, error)
	// SetBootDevice sets the device for the next boot, or for good. Repeating is harmless. An empty Device removes the override.
	SetBootDevice(ctx context.Context, n *metal.Node, b rescue.Boot) error
}

// Ramdisk is what a boot interface is asked to boot.
type Ramdisk struct {
	Kernel, Image string // file path on the conductor or http(s) URL
	// ISO is a bootable ISO image, a path or http(s) URL. It goes before kernel and image where the boot interface can show one.
	ISO        string
	Params     []string // kernel parameters in addition to those of the boot method
	BootNumber int64
	CarryToken bool
	// Persistent: the ramdisk is the node's system, booted each time.
	Persistent bool
	// ConfigDrive: the machine is to be shown its config drive, where the boot interface can.
	ConfigDrive bool
	// Ports are the node's PXE-enabled ports.
	Ports []*metal.Port
}

// Boot brings a machine into a ramdisk and back to its own system.
type Boot interface {
	// Plan computes the boot plan without touching anything; its Path is fresh and random. The conductor stores the plan
	// before PrepareRamdisk, so that firmware that fetches early finds the plan.
	Plan(n *metal.Node, r Ramdisk) (*metal.BootPlan, error)
	// PrepareRamdisk makes n.Plan the next boot: inserts media, sets the boot device. Repeating is harmless.
	PrepareRamdisk(ctx context.Context, n *metal.Node) error
	// CleanUpRamdisk takes it back: ejects media, removes the override. Harmless when there is nothing.
	CleanUpRamdisk(ctx context.Context, n *metal.Node) error
	// PrepareInstance sets the boot of the node's own system, as saved before the rescue.
	PrepareInstance(ctx context.Context, n *metal.Node, saved rescue.Boot) error
}

// BMCDescriber is a Management that reads what the BMC offers. It changes nothing.
type BMCDescriber interface {
	DescribeBMC(ctx context.Context, n *metal.Node) (metal.BMC, error)
}

// BMCProber is a Management that looks at all that the BMC can do. It changes nothing.
type BMCProber interface {
	// ProbeBMC fails only where the machine itself cannot be read.
	ProbeBMC(ctx context.Context, n *metal.Node) (metal.Probe, error)
}

// EventLog is a Management that reads the event log of the BMC. It never clears the log and changes nothing.
type EventLog interface {
	// ReadEventLog reads the newest entries, at most limit and metal.MaxLogEntries, and stops after 4 MiB of answers. Entries of one log are
	// in the order of their records, because the clock of a BMC may be unset. A log that cannot be read, or not to its end in time, is a
	// problem in its summary. Unsupported: the BMC has no event log. Unavailable: none could be read.
	ReadEventLog(ctx context.Context, n *metal.Node, limit int) (metal.EventLog, error)
}

// Health is a Management that reads the health of the machine's components and its sensors. It changes nothing.
type Health interface {
	// ReadHealth reads a bounded number of components. It fails only where the machine itself cannot be read; Unsupported: the BMC has
	// no sensors.
	ReadHealth(ctx context.Context, n *metal.Node) (metal.Health, error)
}

// BMCRecorder is a Management that reads resources of a BMC as they are, without what tells of the machine's owner. It changes nothing.
type BMCRecorder interface {
	// RecordResources reads at least the first of the resources, in order, and fewer than were asked for where they are large or slow.
	RecordResources(ctx context.Context, n *metal.Node, a metal.RecordArgs) ([]metal.RecordedResource, error)
}

// BMCNeeds is a Boot that tells from a description why the BMC cannot bring the machine into a ramdisk. It asks nobody.
type BMCNeeds interface {
	CheckBMC(n *metal.Node, b metal.BMC) error
}

// Net names a network that a machine can be on.
type Net string

const (
	Provisioning Net = "provisioning"
	CleaningNet  Net = "cleaning"
	Inspection   Net = "inspection"
	Rescuing     Net = "rescuing"
	Tenant       Net = "tenant"
)

// Network moves a machine's ports. Every method may be repeated.
type Network interface {
	// Validate tells what is missing for this network, as problem.Invalid; it asks nothing outside.
	Validate(n *metal.Node, ports []*metal.Port, net Net) error
	// Attach puts the ports on the network. Detach takes them off it; being elsewhere is success.
	Attach(ctx context.Context, n *metal.Node, ports []*metal.Port, net Net) error
	Detach(ctx context.Context, n *metal.Node, ports []*metal.Port, net Net) error
	// Moves tells whether the machine changes networks between these two, so that the ramdisk waits for a new lease.
	Moves(n *metal.Node, ports []*metal.Port, from, to Net) bool
}

// Nets are all networks.
var Nets = []Net{Provisioning, CleaningNet, Inspection, Rescuing, Tenant}

// NetworkReader is a Network that can read which networks the ports of a machine are on. It changes nothing.
type NetworkReader interface {
	// Networks lists the networks that any of the ports is on, in the order of Nets; none: the ports are on no network that the interface
	// knows. If two networks are one bridge or one Neutron network, it lists both. Unavailable if they cannot be read.
	Networks(ctx context.Context, n *metal.Node, ports []*metal.Port) ([]Net, error)
}

// NetsWhere lists the networks for which a condition holds, in the order of Nets.
func NetsWhere(holds func(Net) (bool, error)) ([]Net, error) {
	var out []Net
	for _, net := range Nets {
		yes, err := holds(net)
		if err != nil {
			return nil, err
		}
		if yes {
			out = append(out, net)
		}
	}
	return out, nil
}

// Agent is the ramdisk agent of one boot, as its heartbeat described it.
type Agent struct {
	URL, Version, CA string
	Token            secret.Value
}

// Finalize is what the agent is told at the end of a rescue.
type Finalize struct {
	Hash secret.Value // crypt(3) hash of the rescue password; empty where Extras has keys and no password was asked for
	// Extras go only to an agent whose version begins with agent.Product.
	Extras *agent.Extras
	// ConfigDrive is the stored config drive, or nil. Its network_data goes to the agent where Extras has none, and its public keys beside
	// those of Extras.
	ConfigDrive json.RawMessage
}

// RescueSystem is what is known of a rescue system before it is opened.
type RescueSystem struct {
	// HostKey is its public ssh host key, as the agent gives it: hostile text. Empty: the agent does not give it.
	HostKey string
	// NetworkData is the network_data.json by which it sets up its network; nil: none is known here.
	NetworkData json.RawMessage
	// Checked tells whether the agent said what it will have of its network data: LeftOut are clauses about what it cannot have, hostile text that
	// is masked and quoted, and Addresses are the fixed addresses that it will have.
	Checked   bool
	LeftOut   []string
	Addresses []string
	// TakesKeys tells whether its agent takes ssh keys.
	TakesKeys bool
}

// RescueReader is a Rescue that reads a RescueSystem. Reading changes nothing, and fails with the errors of Finalize.
type RescueReader interface {
	ReadRescueSystem(ctx context.Context, n *metal.Node, a Agent, f Finalize) (RescueSystem, error)
}

// Rescue finishes a rescue.
type Rescue interface {
	// NeedsRamdisk: true where a ramdisk must be booted and heartbeat; false (fake) where the rescue is done at once.
	NeedsRamdisk() bool
	// Finalize has the agent set the credential, ready the tenant network and end. ErrGone if the agent no longer
	// listens (connection refused), Unavailable if unknown, Conflict if the agent refused.
	Finalize(ctx context.Context, n *metal.Node, a Agent, f Finalize) error
}

// ErrGone tells that nothing listens where the agent was: it has ended, or its ramdisk has.
var ErrGone = errGone{}

type errGone struct{}

func (errGone) Error() string { return "the agent no longer listens" }

// ErrFaulty tells that the agent answers, and fails at it (a status of 500 or above).
var ErrFaulty = errFaulty{}

type errFaulty struct{}

func (errFaulty) Error() string { return "the agent fails" }

// ErrNoCommand tells that the agent does not know the command, so it did nothing.
var ErrNoCommand = errNoCommand{}

type errNoCommand struct{}

func (errNoCommand) Error() string { return "the agent does not know the command" }

// Inspect reads what a machine is made of without a ramdisk.
type Inspect interface {
	Inspect(ctx context.Context, n *metal.Node) (Inspected, error)
}

// Inspected is what an inspection without a ramdisk has read.
type Inspected struct {
	// Properties are merged into the node's: cpus, memory_mb, local_gb, cpu_arch.
	Properties metal.Object
	MACs       []string
	// Inventory is stored in place of an agent's, and clients read it there; nil: nothing is stored.
	Inventory *agent.Inventory
}

// HardwareType is a named composition of interfaces. Maps are by interface name;
// the Catalog published from it says which are default and what each needs.
type HardwareType struct {
	Info       metal.DriverInfo
	Power      map[string]Power
	Management map[string]Management
	Boot       map[string]Boot
	Network    map[string]Network
	Rescue     map[string]Rescue
	Inspect    map[string]Inspect
	Deploy     map[string]Deploy
	// Extras are the implementations of the kinds beside these (bios, raid, console, vendor, firmware, storage), by kind and name.
	Extras map[string]map[string]any
}

// CallTimeout bounds one request to a BMC or an agent.
const CallTimeout = 30 * time.Second
