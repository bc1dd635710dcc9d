package lab

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"salvor/driver/ipmi"
	"salvor/driver/redfish"
	"salvor/lab/personality"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
	"salvor/test/program"
)

// TestTheLogByRedfish: power orders and seeded faults are in the log, and a fault makes the machine unhealthy until it ends.
func TestTheLogByRedfish(t *testing.T) {
	f := newBMCFixture(t)
	d := &redfish.Driver{}
	n := &metal.Node{ID: "n1", DriverInfo: metal.Object{redfish.AddressKey: f.url, redfish.UsernameKey: "admin", redfish.PasswordKey: "secret"}}
	must.OK(t, d.SetPower(t.Context(), n, metal.PowerOn))
	must.OK(t, d.SetPower(t.Context(), n, metal.PowerOff))
	for _, kind := range []EventKind{EventDriveFault, EventBatteryLow, EventMemoryError} {
		must.OK(t, f.chassis.events.add(kind))
	}
	if err := f.chassis.events.add("earthquake"); !problem.Is(err, problem.Invalid) {
		t.Errorf("an unknown event: %v", err)
	}
	log := must.Get(d.ReadEventLog(t.Context(), n, 10))(t)
	var got []string
	for _, e := range log.Entries {
		got = append(got, fmt.Sprintf("%s %s %s %s", e.ID, e.Severity, e.State, e.Sensor))
		if e.Time.IsZero() || time.Since(e.Time) > time.Hour || e.Message == "" {
			t.Errorf("%+v", e)
		}
	}
	if want := []string{
		"1 ok deasserted Power Unit #0x01", "2 ok asserted Power Unit #0x01", "3 critical asserted Drive Slot/Bay #0x50", "4 warning asserted Battery #0x60",
		"5 critical asserted Memory #0x40",
	}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	health := must.Get(d.ReadHealth(t.Context(), n))(t)
	if health.Health != metal.HealthCritical || len(health.Unhealthy) != 1 || health.Unhealthy[0].Message != "Drive 0 failed.; The voltage of the CMOS battery is low.; An uncorrectable ECC error occurred in memory module DIMM_A1." {
		t.Errorf("%+v", health)
	}
	f.chassis.events.entries = f.chassis.events.entries[:3]
	must.OK(t, f.chassis.events.add(EventDriveReplaced))
	if health := must.Get(d.ReadHealth(t.Context(), n))(t); health.Health != metal.HealthOK || len(health.Unhealthy) > 0 {
		t.Errorf("after the drive was replaced: %+v", health)
	}
}

// TestTheLogByIPMI: the simulator logs the same events, in the order in which they happened.
func TestTheLogByIPMI(t *testing.T) {
	_, chassis, n := startLoggingIPMI(t, "")
	d := &ipmi.Driver{}
	persist(t, "power off", func() error { return d.SetPower(t.Context(), n, metal.PowerOff) })
	persist(t, "power on", func() error { return d.SetPower(t.Context(), n, metal.PowerOn) })
	must.OK(t, chassis.events.add(EventMemoryError))
	want := []string{"ok asserted Power Unit #0x01", "ok deasserted Power Unit #0x01", "critical asserted Memory #0x40"}
	program.Until(t, "the events are in the log", time.Minute, func() error {
		log, err := d.ReadEventLog(t.Context(), n, 10)
		if err != nil {
			return err
		}
		var got []string
		for _, e := range log.Entries {
			got = append(got, fmt.Sprintf("%s %s %s", e.Severity, e.State, e.Sensor))
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
	_, chassis, _ = startLoggingIPMI(t, personality.VirtualBMC)
	if err := chassis.events.add(EventMemoryError); !problem.Is(err, problem.Unsupported) {
		t.Errorf("a BMC without a log: %v, want unsupported", err)
	}
}
