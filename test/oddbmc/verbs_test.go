package oddbmc

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"salvor/driver"
	"salvor/driver/redfish"
	"salvor/metal"
	"salvor/rescue"
	"salvor/secret"
)

// verb is one thing that salvor asks of a BMC.
type verb struct {
	name string
	// off: the machine is off before. image: what is in the virtual CD drive before.
	off   bool
	image func(w *world) string
	// run does the verb; what it returns must be the same behind a BMC that costs nothing.
	run func(ctx context.Context, w *world) (any, error)
	// check tells what is wrong with the machine after a verb that is done; empty: nothing.
	check func(w *world) string
	// needs are resources, or members of resources as PATH#POINTER, without which the verb may fail. Orders are always needed.
	needs []string
	// wary are beginnings of PATH#POINTER that the verb must read whole: with a part hidden it neither changes anything nor claims that it is done.
	wary []string
	// leavesOff: the machine may be off after the verb; stepMayLeaveOff: after one that failed.
	leavesOff, failureLeavesOff bool
	// raw: the result has documents of the BMC as they are.
	raw bool
	// hurries: the verb has less time than two requests without an answer take.
	hurries bool
	// partial: the verb tells of what it could read, and that there is more.
	partial bool
}

const (
	collectionPath = "/redfish/v1/Systems"
	managerPath    = "/redfish/v1/Managers/bmc"
	mediaPath      = managerPath + "/VirtualMedia"
	rootPath       = "/redfish/v1"
	storagePath    = systemPath + "/Storage"
	raidPath       = storagePath + "/RAID1"
	volumesPath    = raidPath + "/Volumes"
)

// read makes a verb that reads.
func read[T any](name string, fn func(ctx context.Context, w *world) (T, error), needs ...string) verb {
	return verb{name: name, needs: needs, run: func(ctx context.Context, w *world) (any, error) {
		var out T
		err := try(ctx, func(ctx context.Context) (err error) { out, err = fn(ctx, w); return err })
		return out, err
	}}
}

func partly(v verb) verb {
	v.partial, v.hurries = true, true
	return v
}

// change makes a verb that changes something.
func change(name string, fn func(ctx context.Context, w *world) error, check func(w *world) string, needs ...string) verb {
	return verb{name: name, needs: needs, check: check, run: func(ctx context.Context, w *world) (any, error) {
		return nil, try(ctx, func(ctx context.Context) error { return fn(ctx, w) })
	}}
}

func want(what string, got, wanted any) string {
	if got == wanted {
		return ""
	}
	return fmt.Sprintf("%s is %v, want %v", what, got, wanted)
}

func powerIs(on bool) func(*world) string {
	return func(w *world) string { return want("the machine being on", w.isOn(), on) }
}

func bootIs(target, enabled string) func(*world) string {
	return func(w *world) string {
		if o := w.bmc.Boot(); o.Target != target || o.Enabled != enabled {
			return fmt.Sprintf("the boot override is %s %s, want %s %s", o.Target, o.Enabled, target, enabled)
		}
		return ""
	}
}

const (
	power   = systemPath + "#/PowerState"
	actions = systemPath + "#/Actions"
	bootObj = systemPath + "#/Boot"
)

var mediaNeeds = []string{power, actions, bootObj, systemPath + "#/Links/ManagedBy", managerPath + "#/VirtualMedia", mediaPath, mediaPath + "/Cd"}

const foreignImage = "http://192.0.2.9/tools.iso"

func plan(w *world) {
	if w.node.Plan == nil {
		var err error
		if w.node.Plan, err = w.media.Plan(w.node, driver.Ramdisk{Kernel: "/k", Image: "/r", BootNumber: 3}); err != nil {
			panic(err)
		}
	}
}

func emptyDrives(w *world) string {
	if images := w.images(); len(images) > 0 {
		return fmt.Sprintf("the drives hold %q, want nothing", images)
	}
	return ""
}

func volumes() metal.VolumePlan {
	return metal.VolumePlan{Initiator: "iqn.2026-11.org:a", Root: &metal.Volume{
		Type: metal.ISCSI, Login: metal.Login{Username: "u", Password: secret.New(chapSecret)},
		Paths: []metal.VolumePath{{Host: "192.0.2.7", Port: 3260, IQN: "iqn.2026-11.org:t"}},
	}}
}

var functionNeeds = []string{systemPath + "#/NetworkInterfaces", nicsPath, nicsPath + "/1", nicsPath + "/1/NetworkDeviceFunctions", functionPath, bootObj}

func biosStep(name string, args metal.Object) func(ctx context.Context, w *world) (any, error) {
	return func(ctx context.Context, w *world) (any, error) {
		return nil, runStep(ctx, w.node, redfish.BIOS{Driver: w.driver}, metal.Step{Interface: "bios", Step: name, Args: args})
	}
}

var verbs = []verb{
	read("manage", func(ctx context.Context, w *world) (metal.BMC, error) {
		b, err := w.driver.DescribeBMC(ctx, w.node)
		b.ReadAt = time.Time{}
		return b, err
	}),
	read("power state", func(ctx context.Context, w *world) (metal.Power, error) { return w.driver.PowerState(ctx, w.node) }, power),
	{name: "power sync", needs: []string{power}, run: func(ctx context.Context, w *world) (any, error) {
		var state metal.Power
		var err error
		for range 3 { // a single round may fail
			state, err = w.driver.PowerState(driver.WithUserRequest(ctx, ""), w.node)
			time.Sleep(time.Minute)
		}
		return state, err
	}},
	func() verb {
		v := change("power on", func(ctx context.Context, w *world) error { return w.driver.SetPower(ctx, w.node, metal.PowerOn) }, powerIs(true), power, actions)
		v.off, v.failureLeavesOff = true, true
		return v
	}(),
	func() verb {
		v := change("power off", func(ctx context.Context, w *world) error { return w.driver.SetPower(ctx, w.node, metal.PowerOff) }, powerIs(false), power, actions)
		v.leavesOff = true
		return v
	}(),
	func() verb {
		// The BMC is only asked: who waits for the machine to be off sees what became of the order.
		v := change("soft power off", func(ctx context.Context, w *world) error { return w.driver.SoftOff(ctx, w.node) }, nil, power, actions)
		v.leavesOff = true
		return v
	}(),
	change("restart", func(ctx context.Context, w *world) error { return w.driver.Restart(ctx, w.node) }, func(w *world) string {
		time.Sleep(time.Minute)
		return want("the machine being restarted", w.bmc.Restarts() > 0, true)
	}, power, actions),
	change("soft restart", func(ctx context.Context, w *world) error { return w.driver.SoftRestart(ctx, w.node) }, func(w *world) string {
		time.Sleep(time.Minute)
		return want("the machine being restarted", w.bmc.SoftRestarts() > 0, true)
	}, power, actions),
	change("interrupt", func(ctx context.Context, w *world) error { return w.driver.InjectNMI(ctx, w.node) }, func(w *world) string {
		time.Sleep(time.Minute)
		return want("the machine being interrupted", w.bmc.Interrupts() > 0, true)
	}, power, actions),
	read("boot devices", func(ctx context.Context, w *world) ([]string, error) { return w.driver.BootDevices(ctx, w.node) }, bootObj),
	read("boot device", func(ctx context.Context, w *world) (rescue.Boot, error) { return w.driver.BootDevice(ctx, w.node) }, bootObj),
	change("set boot device once", func(ctx context.Context, w *world) error {
		return w.driver.SetBootDevice(ctx, w.node, rescue.Boot{Device: "pxe"})
	}, bootIs("Pxe", "Once"), bootObj),
	change("set boot device for good", func(ctx context.Context, w *world) error {
		return w.driver.SetBootDevice(ctx, w.node, rescue.Boot{Device: "disk", Persistent: true})
	}, bootIs("Hdd", "Continuous"), bootObj),
	change("set HTTP boot", func(ctx context.Context, w *world) error {
		return w.driver.SetHTTPBoot(ctx, w.node, "http://192.0.2.1:8088/boot/x.efi")
	}, bootIs("UefiHttp", "Once"), bootObj),
	read("boot mode", func(ctx context.Context, w *world) (string, error) { return w.driver.BootMode(ctx, w.node) }, bootObj),
	change("set boot mode", func(ctx context.Context, w *world) error { return w.driver.SetBootMode(ctx, w.node, "bios") },
		func(w *world) string { return want("the boot mode", w.bmc.Boot().Mode, "Legacy") }, bootObj),
	read("secure boot", func(ctx context.Context, w *world) (bool, error) { return w.driver.SecureBoot(ctx, w.node) }, systemPath+"#/SecureBoot", systemPath+"/SecureBoot"),
	change("set secure boot", func(ctx context.Context, w *world) error { return w.driver.SetSecureBoot(ctx, w.node, true) }, nil, systemPath+"#/SecureBoot", systemPath+"/SecureBoot"),
	{name: "rescue and unrescue", needs: mediaNeeds, run: rescueAndBack},
	func() verb {
		v := change("clean up media", func(ctx context.Context, w *world) error { return w.media.CleanUpRamdisk(ctx, w.node) }, emptyDrives, mediaNeeds...)
		v.image = func(w *world) string { plan(w); return w.node.Plan.ISOURL() }
		return v
	}(),
	read("list media", func(ctx context.Context, w *world) ([]metal.Medium, error) { return w.driver.Media(ctx, w.node) }, mediaNeeds...),
	change("attach medium", func(ctx context.Context, w *world) error {
		return w.driver.AttachMedium(ctx, w.node, metal.MediumArgs{DeviceType: "cdrom", ImageURL: foreignImage})
	}, func(w *world) string { return want("the image", w.bmc.Image(), foreignImage) }, mediaNeeds...),
	func() verb {
		v := change("detach media", func(ctx context.Context, w *world) error { return w.driver.DetachMedia(ctx, w.node, nil) }, emptyDrives, mediaNeeds...)
		v.image = func(*world) string { return foreignImage }
		return v
	}(),
	read("inspect", func(ctx context.Context, w *world) (driver.Inspected, error) { return w.driver.Inspect(ctx, w.node) }),
	read("volumes", func(ctx context.Context, w *world) (metal.Object, error) {
		return redfish.RAID{Driver: w.driver}.RAIDConfig(ctx, w.node)
	}, systemPath+"#/Storage", storagePath, raidPath, volumesPath),
	{name: "make a volume", wary: []string{volumesPath}, failureLeavesOff: true, needs: []string{systemPath + "#/Storage", storagePath, raidPath, volumesPath, volumesPath + "/V4"}, run: func(ctx context.Context, w *world) (any, error) {
		w.node.TargetRAID = metal.Object{"logical_disks": []any{map[string]any{"raid_level": "0", "size_gb": "MAX"}}}
		return nil, runStep(ctx, w.node, redfish.RAID{Driver: w.driver}, metal.Step{Interface: "raid", Step: "create_configuration"})
	}, check: func(w *world) string {
		return want("there being a new volume", w.bmc.Volumes() >= 1, true)
	}},
	{name: "delete volumes", wary: []string{volumesPath}, failureLeavesOff: true, needs: []string{systemPath + "#/Storage", storagePath, raidPath, volumesPath}, run: func(ctx context.Context, w *world) (any, error) {
		return nil, runStep(ctx, w.node, redfish.RAID{Driver: w.driver}, metal.Step{Interface: "raid", Step: "delete_configuration"})
	}},
	read("BIOS settings", func(ctx context.Context, w *world) ([]metal.BIOSSetting, error) {
		return redfish.BIOS{Driver: w.driver}.BIOSSettings(ctx, w.node)
	}, systemPath+"#/Bios", biosPath),
	{name: "change a BIOS setting", wary: []string{biosPath}, failureLeavesOff: true, needs: []string{power, actions, systemPath + "#/Bios", biosPath, biosPath + "/Settings"},
		run: biosStep("apply_configuration", metal.Object{"settings": []any{map[string]any{"name": "ProcTurbo", "value": "Disabled"}}}), check: powerIs(true)},
	{name: "reset the BIOS", failureLeavesOff: true, needs: []string{power, actions, systemPath + "#/Bios", biosPath, biosPath + "/Settings"}, run: biosStep("factory_reset", nil), check: powerIs(true)},
	read("firmware", func(ctx context.Context, w *world) ([]metal.FirmwareComponent, error) {
		return redfish.Firmware{Driver: w.driver}.Components(ctx, w.node)
	}),
	{name: "update firmware", wary: []string{"/redfish/v1/TaskService/Tasks"}, failureLeavesOff: true, needs: []string{power, actions, rootPath, rootPath + "#/UpdateService", "/redfish/v1/UpdateService", "/redfish/v1/TaskService/Tasks/0"}, run: func(ctx context.Context, w *world) (any, error) {
		return nil, runStep(ctx, w.node, redfish.Firmware{Driver: w.driver}, metal.Step{Interface: "firmware", Step: "update",
			Args: metal.Object{"settings": []any{map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-2.2"}}}})
	}, check: func(w *world) string {
		if got := len(w.bmc.Updates()); got != 1 {
			return fmt.Sprintf("the BMC was given %d images, want 1", got)
		}
		return powerIs(true)(w)
	}},
	read("indicators", func(ctx context.Context, w *world) (map[string]map[string]metal.Indicator, error) {
		return w.driver.Indicators(ctx, w.node)
	}),
	change("set an indicator", func(ctx context.Context, w *world) error {
		return w.driver.SetIndicator(ctx, w.node, "system", "1", "on")
	}, nil, systemPath),
	partly(read("event log", func(ctx context.Context, w *world) (metal.EventLog, error) {
		out, err := w.driver.ReadEventLog(ctx, w.node, 100)
		out.Logs = nil // they say what is left out
		return out, err
	},
		systemPath+"#/Links/ManagedBy", managerPath, managerPath+"/LogServices", managerPath+"/LogServices/SEL", managerPath+"/LogServices/SEL/Entries")),
	partly(read("health", func(ctx context.Context, w *world) (metal.Health, error) { return w.driver.ReadHealth(ctx, w.node) }, systemPath+"#/Status")),
	func() verb {
		v := read("record", func(ctx context.Context, w *world) ([]metal.RecordedResource, error) {
			return w.driver.RecordResources(ctx, w.node, metal.RecordArgs{Paths: []string{rootPath + "/", systemPath, systemPath + "/EthernetInterfaces"}, Key: "0123456789abcdef"})
		})
		v.raw = true
		return v
	}(),
	partly(read("probe", func(ctx context.Context, w *world) (metal.Probe, error) {
		out, err := w.driver.ProbeBMC(ctx, w.node)
		out.Login = "" // a BMC that is full of sessions is met by the other login
		return out, err
	})),
	change("check volumes", func(ctx context.Context, w *world) error { return w.media.CheckVolumes(ctx, w.node, volumes()) }, nil, functionNeeds...),
	change("set up the iSCSI initiator", func(ctx context.Context, w *world) error { return w.media.PrepareVolumes(ctx, w.node, volumes()) },
		func(w *world) string {
			return want("the target of the initiator", w.adapter.target(), "iqn.2026-11.org:t")
		}, functionNeeds...),
	{name: "clear the iSCSI initiator", needs: functionNeeds, run: func(ctx context.Context, w *world) (any, error) {
		w.adapter.mu.Lock()
		w.adapter.boot["PrimaryTargetName"], w.adapter.boot["CHAPUsername"] = "iqn.2026-11.org:t", "u"
		w.adapter.mu.Unlock()
		return nil, try(ctx, func(ctx context.Context) error { return w.media.CleanUpVolumes(ctx, w.node) })
	}, check: func(w *world) string { return want("the target of the initiator", w.adapter.target(), "") }},
	{name: "clear the job queue", wary: []string{"/redfish/v1/JobService/Jobs"}, needs: []string{rootPath, "/redfish/v1/JobService", "/redfish/v1/JobService/Jobs"}, run: func(ctx context.Context, w *world) (any, error) {
		return nil, runStep(ctx, w.node, w.driver, metal.Step{Interface: "management", Step: "clear_job_queue"})
	}, check: func(w *world) string { return want("the number of jobs", w.bmc.Jobs(), 0) }},
	{name: "reset the BMC", needs: []string{systemPath + "#/Links/ManagedBy", managerPath}, run: func(ctx context.Context, w *world) (any, error) {
		return nil, runStep(ctx, w.node, w.driver, metal.Step{Interface: "management", Step: "reset_bmc"})
	}},
	{name: "subscribe to events", raw: true, needs: []string{rootPath, "/redfish/v1/EventService", "/redfish/v1/EventService/Subscriptions"}, run: func(ctx context.Context, w *world) (any, error) {
		var out any
		err := try(ctx, func(ctx context.Context) (err error) {
			out, err = redfish.Vendor{Driver: w.driver}.Call(ctx, w.node, metal.VendorCall{Method: "create_subscription", HTTPMethod: "POST", Args: metal.Object{"Destination": "https://192.0.2.9/events"}})
			return err
		})
		return out, err
	}, check: func(w *world) string { return want("the number of subscriptions", w.bmc.Subscriptions() >= 1, true) }},
}

// rescueAndBack does what a rescue and an unrescue do to the machine. What fails is undone as a conductor does: the medium is taken out, and
// the machine is switched on again.
func rescueAndBack(ctx context.Context, w *world) (any, error) {
	plan(w)
	step := func(fn func(ctx context.Context) error) error { return try(ctx, fn) }
	off := func(ctx context.Context) error { return w.driver.SetPower(ctx, w.node, metal.PowerOff) }
	on := func(ctx context.Context) error { return w.driver.SetPower(ctx, w.node, metal.PowerOn) }
	prepare := func(ctx context.Context) error { return w.media.PrepareRamdisk(ctx, w.node) }
	cleanUp := func(ctx context.Context) error { return w.media.CleanUpRamdisk(ctx, w.node) }
	booted := func(context.Context) error {
		if b := w.lastBoot(); w.tree == nil && (b.target != "Cd" || b.image != w.node.Plan.ISOURL()) {
			return fmt.Errorf("WRONG BOOT: the machine booted %+v, want the image of the rescue", b)
		}
		return nil
	}
	emptied := func(context.Context) error {
		if text := emptyDrives(w); text != "" {
			return fmt.Errorf("MEDIUM LEFT: after the unrescue %s", text)
		}
		if o := w.bmc.Boot(); w.tree == nil && o.Enabled != "Disabled" && o.Target != "None" && o.Target != "Hdd" {
			return fmt.Errorf("OVERRIDE LEFT: after the unrescue the machine boots from %s", o.Target)
		}
		return nil
	}
	for _, do := range []func(context.Context) error{off, prepare, on, booted, off, cleanUp, emptied, on} {
		if err := step(do); err != nil {
			cleaned := step(cleanUp)
			_ = step(on)
			if cleaned == nil && len(w.images()) > 0 {
				return nil, fmt.Errorf("MEDIUM LEFT by an undo without error, after: %w", err)
			}
			return nil, err
		}
	}
	return nil, nil
}

// shown is a result as JSON.
func shown(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
