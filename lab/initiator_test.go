package lab

import (
	"log/slog"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/driver/redfish"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

// adapter is an iSCSI adapter of its own in memory.
type adapter struct{ Initiator Initiator }

type adapterSwitch struct{ a *adapter }

func (s adapterSwitch) Initiator() Initiator     { return s.a.Initiator }
func (s adapterSwitch) SetInitiator(i Initiator) { s.a.Initiator = i }

// adapterFixture is salvor's driver before a BMC, whose machine has an adapter unless a is nil.
func adapterFixture(t *testing.T, a *adapter) (*redfish.Media, *metal.Node, *fakeMachine) {
	t.Helper()
	m := &fakeMachine{power: PowerOff, firmware: BIOS}
	service := newRedfishBMC(testSpec, newFaulty(m), m, m, slog.New(slog.DiscardHandler))
	if a != nil {
		service.initiator = adapterSwitch{a}
	}
	server := httptest.NewServer(service.handler())
	t.Cleanup(server.Close)
	n := &metal.Node{ID: "n", DriverInfo: metal.Object{redfish.AddressKey: server.URL, redfish.UsernameKey: "admin", redfish.PasswordKey: "secret"}}
	return &redfish.Media{Driver: &redfish.Driver{Locks: &driver.AddressLocks{}}}, n, m
}

func volumePlan(paths int) metal.VolumePlan {
	root := &metal.Volume{Type: metal.ISCSI, Login: metal.Login{Username: "u", Password: secret.New("p")}}
	for i := range paths {
		root.Paths = append(root.Paths, metal.VolumePath{Host: "192.0.2." + string(rune('1'+i)), Port: 3260, IQN: "iqn.2026-01.org.salvor:v", LUN: 3})
	}
	return metal.VolumePlan{Initiator: "iqn.2026-01.org.salvor:m1", Root: root}
}

func TestDriverSetsUpTheInitiator(t *testing.T) {
	a := &adapter{}
	media, n, machine := adapterFixture(t, a)
	ctx := t.Context()
	for _, paths := range []int{3, 1, 1} {
		plan := volumePlan(paths)
		must.OK(t, media.CheckVolumes(ctx, n, plan))
		must.OK(t, media.PrepareVolumes(ctx, n, plan))
		want := Initiator{Name: plan.Initiator, User: "u", Secret: "p", Targets: []InitiatorTarget{{"iqn.2026-01.org.salvor:v", "192.0.2.1", 3260, 3}}}
		if paths > 1 {
			want.Targets = append(want.Targets, InitiatorTarget{"iqn.2026-01.org.salvor:v", "192.0.2.2", 3260, 3})
		}
		if !reflect.DeepEqual(a.Initiator, want) || machine.Override() != (Override{Device: DeviceVolume, Persist: true}) {
			t.Errorf("%d paths: %+v, boots %+v", paths, a.Initiator, machine.Override())
		}
	}
	boot, err := media.Driver.BootDevice(ctx, n)
	if err != nil || boot.Device != "iscsiboot" || !boot.Persistent {
		t.Errorf("%+v: %v", boot, err)
	}
	changed := volumePlan(1)
	changed.Root.Login = metal.Login{}
	if err := media.RefreshVolumes(ctx, n, changed); err != nil || a.Initiator.User != "" || a.Initiator.Secret != "" {
		t.Errorf("refreshed: %+v: %v", a.Initiator, err)
	}
	if err := media.CleanUpVolumes(ctx, n); err != nil || !reflect.DeepEqual(a.Initiator, Initiator{}) || machine.Override().Device != DeviceDefault {
		t.Errorf("cleaned up: %+v, %+v: %v", a.Initiator, machine.Override(), err)
	}
	if err := media.CleanUpVolumes(ctx, n); err != nil {
		t.Error(err)
	}
}

func TestDriverRefusesWhatAnInitiatorCannot(t *testing.T) {
	a := &adapter{}
	media, n, _ := adapterFixture(t, a)
	mutual, several, named := volumePlan(1), volumePlan(1), volumePlan(1)
	mutual.Root.Mutual = metal.Login{Username: "m", Password: secret.New("q")}
	several.Others = []metal.Volume{*several.Root}
	named.Root.Paths[0].Host = "storage.example.org"
	for word, plan := range map[string]metal.VolumePlan{"cannot do MutualCHAP": mutual, "attaches the root volume only": several, "wants the portal's address": named} {
		if err := media.CheckVolumes(t.Context(), n, plan); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want %q, got %v", word, err)
		}
	}
	media, n, machine := adapterFixture(t, nil)
	if err := media.CheckVolumes(t.Context(), n, volumePlan(1)); !problem.Is(err, problem.Unsupported) || !strings.Contains(err.Error(), "no iSCSI initiator") {
		t.Error(err)
	}
	if err := media.CleanUpVolumes(t.Context(), n); err != nil {
		t.Error(err)
	}
	// Fibre channel is the adapter's own affair.
	fc := metal.VolumePlan{Root: &metal.Volume{Type: metal.FibreChannel}}
	if err := media.CheckVolumes(t.Context(), n, fc); err != nil {
		t.Error(err)
	}
	if err := media.PrepareVolumes(t.Context(), n, fc); err != nil || machine.Override() != (Override{Device: DeviceDisk, Persist: true}) {
		t.Errorf("%+v: %v", machine.Override(), err)
	}
}
