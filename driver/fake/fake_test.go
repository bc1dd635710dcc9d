package fake

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

func node(id string) *metal.Node {
	return &metal.Node{ID: id, PowerState: metal.PowerOff, DriverInfo: metal.Object{}}
}

var boot = Boot{Files: driver.BootFiles{URL: "http://192.0.2.1", APIURL: "http://192.0.2.1:6385"}}

func TestContract(t *testing.T) {
	drivertest.Run(t, func(*testing.T) drivertest.Machine {
		n := node("n1")
		return drivertest.Machine{
			Log: func(e drivertest.Event) { logEvent(n, e) },
			Overheat: func() {
				n.DriverInfo[UnhealthyKey] = `[{"component": "temperature", "name": "Inlet Temp", "state": "upper critical", "health": "critical", "reading": 99, "unit": "°C"}]`
			},
			Node: n, Power: Hardware{}, Management: Hardware{}, Boot: boot, Hidden: true,
			Parts:   &drivertest.Parts{BIOS: BIOS{}, RAID: RAID{}, Firmware: Firmware{}, Console: Console{}, Vendor: Vendor{}, Setting: "ProcTurbo", Value: "Off"},
			Ramdisk: driver.Ramdisk{Kernel: "/k", Image: "/r", Params: []string{"x=y"}, BootNumber: 1},
			Wrong: map[string]func(*metal.Node){
				"delay": func(n *metal.Node) { n.DriverInfo[DelayKey] = "soon" },
				"never": func(n *metal.Node) { n.DriverInfo[DelayKey] = 1e9 },
				"NaN":   func(n *metal.Node) { n.DriverInfo[DelayKey] = "NaN" },
			},
		}
	})
}

// logEvent adds an event to the log in the record.
func logEvent(n *metal.Node, e drivertest.Event) {
	entry := metal.LogEntry{Time: e.Time, Severity: metal.HealthCritical, State: metal.EventAsserted, Sensor: "Drive 0", Message: "Drive Fault"}
	switch e.Kind {
	case drivertest.MemoryError:
		entry.Sensor, entry.Message = "Memory A1", "Uncorrectable ECC"
	case drivertest.DriveReplaced:
		entry.Severity, entry.State = metal.HealthOK, metal.EventDeasserted
	case drivertest.ForeignRecord:
		entry = metal.LogEntry{Severity: "purple", State: "odd", Message: "\x1b[2Jnote" + strings.Repeat(" more", 1000)}
	}
	all, _ := n.DriverInfo[EventLogKey].([]any)
	n.DriverInfo[EventLogKey] = append(all, entry)
}

// TestALogThatIsNone: what is no list is the operator's to mend.
func TestALogThatIsNone(t *testing.T) {
	n := node("n1")
	n.DriverInfo[EventLogKey], n.DriverInfo[UnhealthyKey] = "x", 7.0
	if _, err := (Hardware{}).ReadEventLog(t.Context(), n, 5); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), EventLogKey) {
		t.Error(err)
	}
	if _, err := (Hardware{}).ReadHealth(t.Context(), n); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), UnhealthyKey) {
		t.Error(err)
	}
}

func TestThousandAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			n := node(fmt.Sprint(i))
			n.DriverInfo[DelayKey] = 0.001
			if err := (Hardware{}).SetPower(t.Context(), n, metal.PowerOn); err != nil {
				t.Error(err)
			}
			if err := (Rescue{}).Finalize(t.Context(), n, driver.Agent{}, driver.Finalize{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestDelayEndsWithItsContext(t *testing.T) {
	n := node("n1")
	n.DriverInfo[DelayKey] = 60.0
	ctx := driver.WithGate(t.Context(), func() error { return problem.Unavailablef("shut") })
	began := time.Now()
	if _, err := (Hardware{}).PowerState(ctx, n); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "shut") || time.Since(began) > 20*time.Second {
		t.Fatal(err)
	}
}

// TestInspectInventsNothing: clients read a property that nobody has found as a fact.
func TestInspectInventsNothing(t *testing.T) {
	found, err := Hardware{}.Inspect(t.Context(), &metal.Node{Properties: metal.Object{"cpus": 4.0}})
	if err != nil || len(found.Properties) > 0 || len(found.MACs) > 0 || found.Inventory != nil {
		t.Error(found, err)
	}
}

func TestSoftOffIsSeen(t *testing.T) {
	n := node("n1")
	n.PowerState = metal.PowerOn
	must.OK(t, (Hardware{}).SoftOff(t.Context(), n))
	if state, err := (Hardware{}).PowerState(t.Context(), n); err != nil || state != metal.PowerOff {
		t.Fatal(state, err)
	}
}
