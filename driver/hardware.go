package driver

import (
	"context"
	"io"

	"salvor/metal"
)

// What only some hardware can do is an interface of its own, which an implementation of
// the kind named with it may have beside its duties. A request for an ability that an
// implementation lacks is answered as unsupported. Where an implementation keeps facts of its own, it puts them into the
// InternalInfo of the node in its hand, as a new map: whoever called it stores that.

// SettingsChecker is an interface that reads settings from driver_info (any kind). CheckSettings gives the error with which every operation
// would refuse the settings of the node, and asks nobody. elsewhere: the conductor of the node runs on another machine, so files that the
// settings name are not looked at.
type SettingsChecker interface {
	CheckSettings(n *metal.Node, elsewhere bool) error
}

// Step is something that an interface does to a machine in cleaning, deployment or service.
type Step struct {
	Interface string // kind: bios, raid, management, firmware, vendor
	Name      string
	// Priority orders it in automated cleaning, highest first; 0: the step runs only on request.
	Priority int
	// DeployPriority orders it in deployment, highest first; 0 leaves it to templates and requests.
	DeployPriority int
	Abortable      bool
	// Restarts: the machine is switched off and on by it, so a ramdisk that ran is gone after it.
	Restarts bool
	ArgsInfo map[string]ArgInfo
}

// ArgInfo describes an argument of a step.
type ArgInfo struct {
	Description string `json:"description"`
	Required    bool   `json:"required"`
}

// StepRunner does the steps of one interface without the help of a ramdisk. Any
// interface of a hardware type may be one.
type StepRunner interface {
	// Steps lists the steps that the interface offers for this node, and asks nothing outside of the process.
	Steps(ctx context.Context, n *metal.Node) ([]Step, error)
	// RunStep does one, and may be repeated. wait: it is under way, and is to be called again with the same step, by and
	// by, until it tells that it is done. Unknown steps and wrong arguments are Invalid.
	RunStep(ctx context.Context, n *metal.Node, s metal.Step) (wait bool, err error)
}

// StepForgetter is a StepRunner that notes in the node what it has asked the machine for.
type StepForgetter interface {
	// ForgetStep drops the notes of a step that a former job left or that was given up, so that it can be asked for anew.
	ForgetStep(n *metal.Node)
}

// StepParts is a StepRunner whose steps may do several long works one after the other.
type StepParts interface {
	// StepPart names the work in hand of the step that the node notes. Each has the time-out of a step for itself.
	StepPart(n *metal.Node) string
}

type beforeStartKey struct{}

// WithBeforeStart has BeforeStart call prepare under the returned context.
func WithBeforeStart(ctx context.Context, prepare func(context.Context) error) context.Context {
	return context.WithValue(ctx, beforeStartKey{}, prepare)
}

// BeforeStart prepares what a machine boots that a step starts or restarts: the ramdisk of the operation, if it has one. Every step
// calls it directly before that. Under a context without WithBeforeStart it does nothing.
func BeforeStart(ctx context.Context) error {
	prepare, _ := ctx.Value(beforeStartKey{}).(func(context.Context) error)
	if prepare == nil {
		return nil
	}
	return prepare(ctx)
}

// BIOS reads the settings of the firmware (kind bios); its steps change them.
type BIOS interface {
	BIOSSettings(ctx context.Context, n *metal.Node) ([]metal.BIOSSetting, error)
}

// Firmware reads what versions the parts of the machine run (kind firmware).
type Firmware interface {
	Components(ctx context.Context, n *metal.Node) ([]metal.FirmwareComponent, error)
}

// RAID reads the volumes as they are, as raid_config shows them (kind raid); its steps change them.
type RAID interface {
	RAIDConfig(ctx context.Context, n *metal.Node) (metal.Object, error)
}

// Console gives the serial line of the machine to clients (kind console). Every method may be repeated.
type Console interface {
	StartConsole(ctx context.Context, n *metal.Node) error
	StopConsole(ctx context.Context, n *metal.Node) error
	// ConsoleInfo says how to reach a console that was started: its type and url.
	ConsoleInfo(ctx context.Context, n *metal.Node) (metal.Object, error)
}

// ConsoleReader is a Console that reads the serial line through the BMC.
type ConsoleReader interface {
	// ReadConsole writes what the machine says to w, and calls opened before the first byte. It ends with ctx, or when the BMC ends it, and then tells
	// why: Conflict if somebody else reads the line, Unsupported if the BMC has none. It sends nothing to the machine.
	ReadConsole(ctx context.Context, n *metal.Node, opened func(), w io.Writer) error
}

// Vendor does what only this hardware knows of (kind vendor).
type Vendor interface {
	// Call runs one of the methods that the interface's description lists. Secrets in args go nowhere but to the machine.
	Call(ctx context.Context, n *metal.Node, c metal.VendorCall) (answer any, err error)
}

// PowerAndHealth reads power and health in one look (kind power). Health is OK, Warning, Critical, or empty where the BMC does not tell.
type PowerAndHealth interface {
	ReadPowerAndHealth(ctx context.Context, n *metal.Node) (power metal.Power, health string, err error)
}

// Restarter resets a machine that is on without switching it off (kind power). A repetition is another restart.
type Restarter interface {
	Restart(ctx context.Context, n *metal.Node) error
}

// SoftRestarter asks the system of a machine that is on to restart, without switching the machine off (kind power). A repetition is another restart.
type SoftRestarter interface {
	SoftRestart(ctx context.Context, n *metal.Node) error
}

// BootModes are of firmwares that boot in more than one way (kind management): modes are "uefi" and "bios".
type BootModes interface {
	BootMode(ctx context.Context, n *metal.Node) (string, error)
	SetBootMode(ctx context.Context, n *metal.Node, mode string) error
	SecureBoot(ctx context.Context, n *metal.Node) (bool, error)
	SetSecureBoot(ctx context.Context, n *metal.Node, on bool) error
}

// Indicators are the indicator lights of a machine and its parts (kind management).
type Indicators interface {
	// Indicators lists them by component (system, chassis, drive, ...) and name.
	Indicators(ctx context.Context, n *metal.Node) (map[string]map[string]metal.Indicator, error)
	// Indicator reads the state of one: on, off, blinking or unknown. NotFound if there is none.
	Indicator(ctx context.Context, n *metal.Node, component, name string) (string, error)
	SetIndicator(ctx context.Context, n *metal.Node, component, name, state string) error
}

// NMI interrupts the system in a way that it cannot mask (kind management). A repetition is another interrupt.
type NMI interface {
	InjectNMI(ctx context.Context, n *metal.Node) error
}

// VirtualMedia are images that the BMC shows the machine as drives (kind management).
// What a boot of ours has inserted stays: it is neither replaced nor ejected while the node has its boot plan.
type VirtualMedia interface {
	Media(ctx context.Context, n *metal.Node) ([]metal.Medium, error)
	AttachMedium(ctx context.Context, n *metal.Node, m metal.MediumArgs) error
	// DetachMedia ejects from the devices of these types (cdrom, disk, floppy); none: from all.
	DetachMedia(ctx context.Context, n *metal.Node, types []string) error
}

// Part gives the implementation of an interface by kind and name, to look for what it can do beside its duties; nil if there is none.
func (t HardwareType) Part(kind, name string) any {
	switch kind {
	case "power":
		return part(t.Power, name)
	case "management":
		return part(t.Management, name)
	case "boot":
		return part(t.Boot, name)
	case "network":
		return part(t.Network, name)
	case "rescue":
		return part(t.Rescue, name)
	case "inspect":
		return part(t.Inspect, name)
	case "deploy":
		return part(t.Deploy, name)
	}
	return t.Extras[kind][name]
}

func part[I any](from map[string]I, name string) any {
	if i, ok := from[name]; ok {
		return i
	}
	return nil
}
