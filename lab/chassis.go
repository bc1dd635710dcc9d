package lab

import (
	"context"

	"salvor/problem"
)

// Power is whether a machine runs.
type Power string

const (
	PowerOn  Power = "on"
	PowerOff Power = "off"
)

// Action is a change of power that a BMC can ask for.
type Action string

const (
	ActionOn       Action = "on"       // nothing if on
	ActionOff      Action = "off"      // at once; nothing if off
	ActionShutdown Action = "shutdown" // ask the system by ACPI; it may take its time, or ignore it
	ActionRestart  Action = "restart"  // off, then on
	ActionNMI      Action = "nmi"
)

// Device is where a machine boots from.
type Device string

const (
	DeviceDefault Device = ""
	DeviceDisk    Device = "disk"
	DevicePXE     Device = "pxe"
	DeviceCD      Device = "cd"
	DeviceHTTP    Device = "http"   // UEFI HTTP boot
	DeviceVolume  Device = "volume" // what the machine's own iSCSI adapter shows
)

// Override changes what a machine boots, once or until changed again.
type Override struct {
	Device  Device
	Persist bool
	URI     string // DeviceHTTP: what to boot; empty: as DHCP says
}

// Chassis is what a BMC controls. Its methods may be called at any time and concurrently.
type Chassis interface {
	// Power tells what is true now.
	Power() Power
	// Do changes power and returns when the change is made (or, for a shutdown, asked for).
	// Conflict: a shutdown or NMI of a machine that is off.
	Do(ctx context.Context, action Action) error
	Override() Override
	// SetOverride takes effect at the next start of the machine, never in a running one.
	SetOverride(o Override)
}

// Drive is a machine's removable drive. Its methods may be called at any time and concurrently.
type Drive interface {
	// Insert fetches the image by HTTP and puts it in at the machine's next start; it replaces
	// what was in. Unavailable: the image cannot be had. Invalid: not an http(s) URL.
	Insert(ctx context.Context, url string) error
	// Eject takes the image out, of a running machine too; nothing if there is none.
	Eject(ctx context.Context) error
	// Image is the URL of what is in, empty for nothing.
	Image() string
}

// FirmwareSwitch is a machine whose firmware mode can be chosen, as by Redfish's boot mode.
type FirmwareSwitch interface {
	Firmware() Firmware
	// SetFirmware takes effect at the next start.
	SetFirmware(f Firmware)
}

func errOff(machine, what string) error {
	return problem.Conflictf("%s machine %s: it is off", what, machine)
}
