package redfish

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/rescue"
)

// requestVerb is something that an operation asks of a BMC, with the number of requests that the BMC gets for it.
type requestVerb struct {
	name string
	// former is the number before package conversation was, and now the number today: with name and password in each request, and with a
	// session that is kept for the next verb.
	former, now [2]int
	do          func(ctx context.Context, d *Driver, n *metal.Node) error
}

// stepToItsEnd runs a step until it need not run again.
func stepToItsEnd(ctx context.Context, run driver.StepRunner, n *metal.Node, step metal.Step) error {
	for range 20 {
		if wait, err := run.RunStep(ctx, n, step); !wait || err != nil {
			return err
		}
	}
	return context.DeadlineExceeded
}

func setPower(want metal.Power) func(context.Context, *Driver, *metal.Node) error {
	return func(ctx context.Context, d *Driver, n *metal.Node) error { return d.SetPower(ctx, n, want) }
}

// verbsOfRescue are what a rescue by virtual media asks of the BMC, up to the end of the unrescue.
func verbsOfRescue(ctx context.Context, d *Driver, n *metal.Node) (err error) {
	m := &Media{Driver: d, Files: files}
	if n.Plan, err = m.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}); err != nil {
		return err
	}
	saved := rescue.Boot{}
	for _, do := range []func() error{
		func() error { _, err := d.PowerState(ctx, n); return err },
		func() (err error) { saved, err = d.BootDevice(ctx, n); return err },
		func() error { return d.SetPower(ctx, n, metal.PowerOff) },
		func() error { return m.PrepareRamdisk(ctx, n) },
		func() error { return d.SetPower(ctx, n, metal.PowerOn) },
		func() error { return d.SetPower(ctx, n, metal.PowerOff) },
		func() error { return m.CleanUpRamdisk(ctx, n) },
		func() error { return m.PrepareInstance(ctx, n, saved) },
		func() error { return d.SetPower(ctx, n, metal.PowerOn) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

var requestVerbs = []requestVerb{
	{"manage: read the power", [2]int{2, 3}, [2]int{2, 3}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		_, err := d.PowerState(ctx, n)
		return err
	}},
	{"manage: describe the BMC", [2]int{10, 10}, [2]int{10, 10}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		_, err := d.DescribeBMC(ctx, n)
		return err
	}},
	{"power off", [2]int{5, 5}, [2]int{5, 5}, setPower(metal.PowerOff)},
	{"power on", [2]int{5, 5}, [2]int{5, 5}, setPower(metal.PowerOn)},
	{"power on of a machine that is on", [2]int{2, 2}, [2]int{2, 2}, setPower(metal.PowerOn)},
	{"reboot: restart", [2]int{3, 3}, [2]int{3, 3}, func(ctx context.Context, d *Driver, n *metal.Node) error { return d.Restart(ctx, n) }},
	{"reboot: soft restart", [2]int{3, 3}, [2]int{3, 3}, func(ctx context.Context, d *Driver, n *metal.Node) error { return d.SoftRestart(ctx, n) }},
	{"inject NMI", [2]int{3, 3}, [2]int{3, 3}, func(ctx context.Context, d *Driver, n *metal.Node) error { return d.InjectNMI(ctx, n) }},
	{"attach a medium", [2]int{9, 9}, [2]int{9, 9}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		return d.AttachMedium(ctx, n, metal.MediumArgs{DeviceType: "cdrom", ImageURL: "http://192.0.2.9/tools.iso"})
	}},
	{"detach the media", [2]int{9, 9}, [2]int{9, 9}, func(ctx context.Context, d *Driver, n *metal.Node) error { return d.DetachMedia(ctx, n, nil) }},
	{"list the boot devices", [2]int{2, 2}, [2]int{2, 2}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		_, err := d.BootDevices(ctx, n)
		return err
	}},
	{"set the boot device", [2]int{4, 4}, [2]int{4, 4}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		return d.SetBootDevice(ctx, n, rescue.Boot{Device: "pxe"})
	}},
	{"remove the boot device", [2]int{4, 4}, [2]int{4, 4}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		return d.SetBootDevice(ctx, n, rescue.Boot{})
	}},
	{"set HTTP boot", [2]int{4, 4}, [2]int{4, 4}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		return d.SetHTTPBoot(ctx, n, "http://192.0.2.1/boot/x/boot.efi")
	}},
	{"set the boot mode", [2]int{4, 4}, [2]int{4, 4}, func(ctx context.Context, d *Driver, n *metal.Node) error { return d.SetBootMode(ctx, n, "bios") }},
	{"set secure boot", [2]int{6, 6}, [2]int{6, 6}, func(ctx context.Context, d *Driver, n *metal.Node) error { return d.SetSecureBoot(ctx, n, true) }},
	{"rescue and unrescue by virtual media", [2]int{50, 50}, [2]int{50, 50}, verbsOfRescue},
	{"inspect", [2]int{10, 10}, [2]int{10, 10}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		_, err := d.Inspect(ctx, n)
		return err
	}},
	{"read the health", [2]int{5, 5}, [2]int{5, 5}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		_, err := d.ReadHealth(ctx, n)
		return err
	}},
	{"read the event log", [2]int{7, 7}, [2]int{7, 7}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		_, err := d.ReadEventLog(ctx, n, metal.MaxLogEntries)
		return err
	}},
	{"read the BIOS", [2]int{6, 6}, [2]int{6, 6}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		_, err := BIOS{d}.BIOSSettings(ctx, n)
		return err
	}},
	{"change the BIOS", [2]int{21, 21}, [2]int{21, 21}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		return stepToItsEnd(ctx, BIOS{d}, n, wantTurbo("Disabled"))
	}},
	{"create a volume", [2]int{18, 18}, [2]int{19, 19}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		n.TargetRAID = metal.Object{"logical_disks": []any{map[string]any{"size_gb": 10.0, "raid_level": "1"}}}
		return stepToItsEnd(ctx, RAID{d}, n, step("raid", "create_configuration", nil))
	}},
	{"list the volumes", [2]int{9, 9}, [2]int{9, 9}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		_, err := RAID{d}.RAIDConfig(ctx, n)
		return err
	}},
	{"delete the volumes", [2]int{18, 18}, [2]int{19, 19}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		return stepToItsEnd(ctx, RAID{d}, n, step("raid", "delete_configuration", nil))
	}},
	{"list the firmware", [2]int{7, 7}, [2]int{7, 7}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		_, err := Firmware{d}.Components(ctx, n)
		return err
	}},
	{"update the firmware", [2]int{39, 39}, [2]int{40, 40}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		return stepToItsEnd(ctx, Firmware{d}, n, step("firmware", "update", metal.Object{"settings": []any{map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-2.3"}}}))
	}},
	{"probe", [2]int{28, 28}, [2]int{29, 29}, func(ctx context.Context, d *Driver, n *metal.Node) error {
		_, err := d.ProbeBMC(ctx, n)
		return err
	}},
}

// TestRequestsOfEachVerb counts the requests that each verb sends to a BMC in order, one verb after the other on a machine that is on. If a verb
// needs more, the number here grows, by one over the former number at most: each request takes a BMC up to seconds.
func TestRequestsOfEachVerb(t *testing.T) {
	for i, auth := range []string{"basic", "session"} {
		synctest.Test(t, func(t *testing.T) {
			bmc := drivertest.NewBMC("admin", password)
			bmc.SetOn(true)
			bmc.Delay = 10 * time.Millisecond
			network, pool := drivertest.NewNetwork(bmc), &SessionPool{}
			defer network.Close()
			defer pool.Close()
			ctx, n := driver.WithDial(t.Context(), network.Dial), node(network.URL)
			n.DriverInfo[AuthKey] = auth
			d := &Driver{Locks: &driver.AddressLocks{}, Sessions: pool}
			for _, v := range requestVerbs {
				before := bmc.Requests()
				if err := v.do(ctx, d, n); err != nil {
					t.Errorf("%s: %v", v.name, err)
				}
				got := bmc.Requests() - before
				if got != v.now[i] {
					t.Errorf("%s, login by %s: %d requests, want %d", v.name, auth, got, v.now[i])
				}
				if got > v.former[i]+1 {
					t.Errorf("%s, login by %s: %d requests, at most %d are allowed", v.name, auth, got, v.former[i]+1)
				}
			}
		})
	}
}
