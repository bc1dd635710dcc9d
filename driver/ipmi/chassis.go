package ipmi

import (
	"context"
	"errors"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// Commands of the chassis (IPMI 2.0, chapter 28).
const (
	commandStatus  = 0x01
	commandControl = 0x02
	commandSetBoot = 0x08
	commandGetBoot = 0x09
)

// Chassis control orders.
const (
	orderOff   = 0x00
	orderOn    = 0x01
	orderReset = 0x03
	orderNMI   = 0x04
	orderSoft  = 0x05
)

// sendChassisCommand sends a command of the chassis.
func sendChassisCommand(ctx context.Context, c commandSender, command byte, data ...byte) ([]byte, error) {
	return c.send(ctx, netFnChassis, command, data...)
}

// Boot option parameters, and the bits of the boot flags.
const (
	paramValidClear = 0x03
	paramBootFlags  = 0x05

	// keepValid stops the BMC from forgetting an override 60 seconds after it was set.
	keepValid = 0x08

	flagValid      = 0x80
	flagPersistent = 0x40
	flagUEFI       = 0x20
)

// selectors are the boot device selectors by Ironic's word.
var selectors = []struct {
	word string
	code byte
}{{"pxe", 1}, {"disk", 2}, {"safe", 3}, {"diag", 4}, {"cdrom", 5}, {"bios", 6}, {"floppy", 15}}

func readPowerState(ctx context.Context, c commandSender) (metal.Power, error) {
	answer, err := sendChassisCommand(ctx, c, commandStatus)
	if err != nil {
		return metal.PowerUnknown, err
	}
	if len(answer) < 3 {
		return metal.PowerUnknown, problem.Unavailablef("the chassis status has %d bytes, not 3", len(answer))
	}
	if answer[0]&1 == 1 {
		return metal.PowerOn, nil
	}
	return metal.PowerOff, nil
}

// PowerState reads the chassis status.
func (d *Driver) PowerState(ctx context.Context, n *metal.Node) (metal.Power, error) {
	var power metal.Power
	err := d.with(ctx, n, "read power", func(ctx context.Context, c commandSender) (err error) {
		power, err = readPowerState(ctx, c)
		return err
	})
	return power, err
}

// BootDevices lists the devices of the protocol. A BMC does not tell which devices it takes.
func (d *Driver) BootDevices(_ context.Context, n *metal.Node) ([]string, error) {
	if _, err := parseDriverInfo(n); err != nil {
		return nil, problem.Invalidf("list boot devices of node %s: ipmi: %w", n.ID, err)
	}
	var out []string
	for _, s := range selectors {
		out = append(out, s.word)
	}
	return out, nil
}

// bootFlags are the boot flags of a BMC.
type bootFlags struct{ first, selector byte }

func readFlags(ctx context.Context, c commandSender) (bootFlags, error) {
	answer, err := sendChassisCommand(ctx, c, commandGetBoot, paramBootFlags, 0, 0)
	if err != nil {
		return bootFlags{}, err
	}
	// Version and parameter come before the five bytes of the flags.
	if len(answer) < 4 {
		return bootFlags{}, problem.Unavailablef("the boot flags have %d bytes, not 7", len(answer))
	}
	return bootFlags{answer[2], answer[3] >> 2 & 0x0f}, nil
}

// boot is the override in force. Flags that are not valid are used up: what they name is history.
func (f bootFlags) boot() rescue.Boot {
	if f.first&flagValid == 0 {
		return rescue.Boot{}
	}
	for _, s := range selectors {
		if s.code != f.selector {
			continue
		}
		out := rescue.Boot{Device: s.word, Persistent: f.first&flagPersistent != 0, Mode: "bios"}
		if f.first&flagUEFI != 0 {
			out.Mode = "uefi"
		}
		return out
	}
	return rescue.Boot{}
}

// BootDevice reads the boot flags.
func (d *Driver) BootDevice(ctx context.Context, n *metal.Node) (rescue.Boot, error) {
	var out rescue.Boot
	err := d.with(ctx, n, "read boot device", func(ctx context.Context, c commandSender) error {
		now, err := readFlags(ctx, c)
		out = now.boot()
		return err
	})
	return out, err
}

// flagsForBoot are the flags for a boot.
func flagsForBoot(b rescue.Boot) (bootFlags, bool) {
	if b.Device == "" {
		return bootFlags{}, true
	}
	for _, s := range selectors {
		if s.word != b.Device {
			continue
		}
		f := bootFlags{first: flagValid, selector: s.code}
		if b.Persistent {
			f.first |= flagPersistent
		}
		if b.Mode == "uefi" {
			f.first |= flagUEFI
		}
		return f, true
	}
	return bootFlags{}, false
}

// SetBootDevice writes the boot flags and reads the device back, and nothing else: not every BMC shows the other flags. Nor does every one
// show the disk, which to some is no override. Some show the device that the running machine has booted from, so of a machine that is on,
// another device is a note. So is an override that cannot be removed: a device that boots nothing falls through to the next.
func (d *Driver) SetBootDevice(ctx context.Context, n *metal.Node, b rescue.Boot) error {
	want, known := flagsForBoot(b)
	if !known {
		return problem.Invalidf("set boot device of node %s: ipmi: unknown device %q", n.ID, driver.Sanitize(b.Device))
	}
	return d.with(ctx, n, "set boot device", func(ctx context.Context, c commandSender) error {
		err := writeFlags(ctx, c, want)
		if err != nil && b.Device == "" && !problem.Is(err, problem.Unavailable) && !errors.Is(err, driver.ErrLogin) {
			driver.Note(ctx, "the boot override of the BMC cannot be removed: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
		now, err := readFlags(ctx, c)
		if err != nil || now.selector == want.selector || b.Device == "disk" && now.selector == 0 {
			return err
		}
		if b.Device == "" {
			if now.first&flagValid != 0 {
				driver.Note(ctx, "the BMC was told to remove its boot override and still reads boot device selector %d", now.selector)
			}
			return nil
		}
		if power, err := readPowerState(ctx, c); err == nil && power == metal.PowerOn {
			driver.Note(ctx, "the BMC took boot device selector %d and reads %d, which may be what the running machine has booted from", want.selector, now.selector)
			return nil
		}
		return problem.Unavailablef("the BMC took boot device selector %d, but reads %d", want.selector, now.selector)
	})
}

func writeFlags(ctx context.Context, c commandSender, want bootFlags) error {
	// Not every BMC has this parameter; one without it may forget the override after a minute.
	if _, err := sendChassisCommand(ctx, c, commandSetBoot, paramValidClear, keepValid); err != nil && !problem.Is(err, problem.Unsupported) {
		return err
	}
	_, err := sendChassisCommand(ctx, c, commandSetBoot, paramBootFlags, want.first, want.selector<<2, 0, 0, 0)
	return err
}
