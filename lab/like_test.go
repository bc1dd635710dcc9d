package lab

import (
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/driver"
	"salvor/driver/ipmi"
	"salvor/driver/redfish"
	"salvor/lab/personality"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/debian"
	"salvor/test/must"
	"salvor/test/program"
)

// bootingMachine is a fakeMachine that notes what it boots. An order to switch on a machine that is on boots nothing.
type bootingMachine struct {
	*fakeMachine

	noting  sync.Mutex
	boots   []string // from the medium or the disk
	devices []Device
}

func (m *bootingMachine) Do(ctx context.Context, a Action) error {
	m.noting.Lock()
	defer m.noting.Unlock()
	device, from := m.Override().Device, "disk"
	if device == DeviceCD && m.Image() != "" {
		from = m.Image()
	}
	starts := a == ActionOn && m.Power() == PowerOff || a == ActionRestart
	if err := m.fakeMachine.Do(ctx, a); err != nil || !starts {
		return err
	}
	m.boots, m.devices = append(m.boots, from), append(m.devices, device)
	return nil
}

// booted is what it has booted so far.
func (m *bootingMachine) booted() ([]string, []Device) {
	m.noting.Lock()
	defer m.noting.Unlock()
	return slices.Clone(m.boots), slices.Clone(m.devices)
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

// persist repeats an order that a BMC cannot take now, as a conductor does.
func persist(t *testing.T, what string, order func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := order()
		if err == nil {
			return
		}
		if !problem.Is(err, problem.Unavailable) || time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func rescueTwice(t *testing.T, m *bootingMachine, n *metal.Node) {
	d := &redfish.Driver{Locks: &driver.AddressLocks{}}
	media := &redfish.Media{Driver: d, Files: driver.BootFiles{URL: "http://192.0.2.1:8088", APIURL: "http://192.0.2.1:6385"}}
	ctx, notes := driver.WithNotes(t.Context())
	do := func(what string, order func() error) { t.Helper(); persist(t, what, order) }
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
	if boots, _ := m.booted(); !slices.Equal(boots, wants) {
		t.Errorf("the machine booted %q, want %q; notes %q", boots, wants, notes.Texts())
	}
	do("boot from disk from now on", func() error { return d.SetBootDevice(ctx, n, rescue.Boot{Device: "disk", Persistent: true}) })
}

// startForeignIPMI starts a machine behind an IPMI BMC of the lab, in a directory of its own.
func startForeignIPMI(t *testing.T, like personality.Name) (*bootingMachine, *metal.Node) {
	t.Helper()
	m, _, n := startLoggingIPMI(t, like)
	return m, n
}

// startLoggingIPMI is startForeignIPMI with the chassis, whose events the BMC logs.
func startLoggingIPMI(t *testing.T, like personality.Name) (*bootingMachine, *faultyChassis, *metal.Node) {
	t.Helper()
	debian.Program(t, "ipmi_sim", "openipmi")
	debian.File(t, pyghmiDir, "python3-pyghmi")
	t.Setenv("GORACE", "atexit_sleep_ms=0") // each command of the BMC runs this program, which under the race detector ends a second late
	t.Chdir(t.TempDir())
	must.OK(t, os.Mkdir(testSpec.Name, 0o700))
	spec, log := testSpec, slog.New(slog.DiscardHandler)
	spec.BMC, spec.Like = IPMI, like
	m := &bootingMachine{fakeMachine: &fakeMachine{power: PowerOn, firmware: BIOS}}
	machine := &labMachine{chassis: newFaulty(newForeign(m, like))}
	w := &runningLab{log: log, machines: map[string]*labMachine{spec.Name: machine}}
	must.OK(t, w.listen(t.Context()))
	at := freeUDP(t)
	bmc := must.Get(newIPMIBMC(spec, at, freeUDP(t), []string{must.Get(os.Executable())(t)}, log))(t)
	machine.chassis.events.forwardTo(bmc.forwardEvent)
	t.Cleanup(bmc.stop)
	must.OK(t, bmc.start())
	n := &metal.Node{ID: "n1", DriverInfo: metal.Object{
		ipmi.AddressKey: "127.0.0.1", ipmi.PortKey: float64(at.Port()), ipmi.UsernameKey: spec.User, ipmi.PasswordKey: spec.Password,
	}}
	program.Until(t, "the BMC answers", time.Minute, func() error { _, err := new(ipmi.Driver).PowerState(t.Context(), n); return err })
	return m, machine.chassis, n
}

// freeUDP is an address on which nobody listened a moment ago: the programs want a number.
func freeUDP(t *testing.T) netip.AddrPort {
	t.Helper()
	probe := must.Get(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer probe.Close()
	at := probe.LocalAddr().(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// TestRescueBehindForeignIPMI rescues a machine from the network behind the lab's IPMI BMC with each personality, puts it back, and tries
// what each of them is known for.
func TestRescueBehindForeignIPMI(t *testing.T) {
	for _, c := range []struct {
		like  personality.Name
		suite string // what the error of another cipher suite says
		user  string // what the error of a wrong user name says
		notes []string
	}{
		{"", "takes none of the cipher suites", "refuses ipmi_username", nil},
		{personality.VirtualBMC, "answers with another cipher suite", "does not answer the login", []string{"was told to remove its boot override and still reads"}},
		{personality.Suite3Only, "takes none of the cipher suites", "refuses ipmi_username", nil},
		{personality.SilentOnWrongUser, "takes none of the cipher suites", "does not answer the login", nil},
	} {
		t.Run(string(c.like), func(t *testing.T) {
			m, n := startForeignIPMI(t, c.like)
			d := &ipmi.Driver{Locks: &driver.AddressLocks{}}
			ctx, notes := driver.WithNotes(t.Context())
			power := func(want metal.Power) {
				t.Helper()
				persist(t, string(want), func() error { return d.SetPower(ctx, n, want) })
			}
			boot := func(b rescue.Boot) {
				t.Helper()
				persist(t, "boot device "+b.Device, func() error { return d.SetBootDevice(ctx, n, b) })
			}
			for range 2 { // the first is given up, the second is kept
				power(metal.PowerOff)
				boot(rescue.Boot{Device: "pxe"})
				power(metal.PowerOn)
				boot(rescue.Boot{})
			}
			power(metal.PowerOff)
			boot(rescue.Boot{Device: "disk", Persistent: true})
			power(metal.PowerOn)
			if _, devices := m.booted(); !slices.Equal(devices, []Device{DevicePXE, DevicePXE, DeviceDisk}) {
				t.Errorf("the machine booted from %q, want the network twice, then the disk", devices)
			}
			texts := notes.Texts()
			for _, part := range c.notes {
				if !strings.Contains(strings.Join(texts, "\n"), part) {
					t.Errorf("notes %q, want %q", texts, part)
				}
			}
			if len(c.notes) == 0 && len(texts) > 0 {
				t.Errorf("notes %q, want none", texts)
			}
			for key, wrong := range map[string]struct{ value, says string }{ipmi.CipherKey: {"17", c.suite}, ipmi.UsernameKey: {"nobody", c.user}} {
				other := n.Clone()
				other.DriverInfo[key] = wrong.value
				if _, err := d.PowerState(t.Context(), other); err == nil || !strings.Contains(err.Error(), wrong.says) {
					t.Errorf("%s %s: %v, want %q", key, wrong.value, err, wrong.says)
				}
			}
		})
	}
}
