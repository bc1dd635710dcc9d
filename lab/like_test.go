package lab

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"salvor/driver"
	"salvor/driver/redfish"
	"salvor/lab/personality"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
)

// bootingMachine is a fakeMachine that notes what it boots.
type bootingMachine struct {
	*fakeMachine
	boots []string
}

func (m *bootingMachine) Do(ctx context.Context, a Action) error {
	from := "disk"
	if (a == ActionOn && m.Power() == PowerOff || a == ActionRestart) && m.Override().Device == DeviceCD && m.Image() != "" {
		from = m.Image()
	}
	err := m.fakeMachine.Do(ctx, a)
	if err == nil && (a == ActionOn || a == ActionRestart) {
		m.boots = append(m.boots, from)
	}
	return err
}

// TestRescueBehindForeignBMCs rescues a machine behind the lab's BMC with each personality, gives up another rescue, and puts the machine
// back, through the driver for Redfish.
func TestRescueBehindForeignBMCs(t *testing.T) {
	for _, name := range append(personality.RedfishNames(), "") {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			m := &bootingMachine{fakeMachine: &fakeMachine{power: PowerOn, firmware: UEFI}}
			spec := testSpec
			spec.Like = name
			service := newRedfishBMC(spec, newFaulty(m), m, m, slog.New(slog.DiscardHandler))
			server := httptest.NewServer(service.handler())
			t.Cleanup(server.Close)
			rescueTwice(t, m, &metal.Node{ID: "n1", DriverInfo: metal.Object{
				redfish.AddressKey: server.URL, redfish.UsernameKey: spec.User, redfish.PasswordKey: spec.Password,
			}})
		})
	}
}

func rescueTwice(t *testing.T, m *bootingMachine, n *metal.Node) {
	d := &redfish.Driver{Locks: &driver.AddressLocks{}}
	media := &redfish.Media{Driver: d, Files: driver.BootFiles{URL: "http://192.0.2.1:8088", APIURL: "http://192.0.2.1:6385"}}
	ctx, notes := driver.WithNotes(t.Context())
	// do repeats an order that the BMC cannot take now, as a conductor does.
	do := func(what string, order func() error) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			err := order()
			if err == nil {
				return
			}
			if !problem.Is(err, problem.Unavailable) || time.Now().After(end) {
				t.Fatalf("%s: %v; notes %q", what, err, notes.Texts())
			}
		}
	}
	power := func(want metal.Power) { t.Helper(); do(string(want), func() error { return d.SetPower(ctx, n, want) }) }
	do("manage", func() error {
		found, err := d.DescribeBMC(ctx, n)
		if err == nil {
			metal.KeepBMC(n, found)
			err = media.CheckBMC(n, found)
		}
		return err
	})
	saved := must.Get(d.BootDevice(ctx, n))(t)
	wants := []string{}
	for range 2 { // the first is given up, the second is kept
		power(metal.PowerOff)
		n.Plan = must.Get(media.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}))(t)
		do("prepare", func() error { return media.PrepareRamdisk(ctx, n) })
		power(metal.PowerOn)
		wants = append(wants, n.Plan.FileURL(metal.BootISO))
		power(metal.PowerOff)
		do("clean up", func() error { return media.CleanUpRamdisk(ctx, n) })
		if m.Image() != "" {
			t.Errorf("%q is left in the drive", m.Image())
		}
	}
	n.Plan = nil
	do("restore the boot device", func() error { return media.PrepareInstance(ctx, n, saved) })
	power(metal.PowerOn)
	wants = append(wants, "disk")
	if fmt.Sprint(m.boots) != fmt.Sprint(wants) {
		t.Errorf("the machine booted %q, want %q; notes %q", m.boots, wants, notes.Texts())
	}
	do("boot from disk from now on", func() error { return d.SetBootDevice(ctx, n, rescue.Boot{Device: "disk", Persistent: true}) })
}
