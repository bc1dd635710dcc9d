package redfish

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/fixture"
	"salvor/test/must"
)

// runUpdate calls a step until it ends, at most a few times.
func runUpdate(t *testing.T, r driver.StepRunner, n *metal.Node, step metal.Step) error {
	t.Helper()
	for range 20 {
		wait, err := r.RunStep(t.Context(), n, step)
		if err != nil || !wait {
			return err
		}
	}
	t.Fatal("the step does not end")
	return nil
}

func updateStep(images ...any) metal.Step {
	return metal.Step{Interface: "firmware", Step: "update", Args: metal.Object{"settings": images}}
}

// TestFirmwareUpdate: the images are taken one after the other. The machine is restarted for the one of its BIOS and not for the BMC's, and
// the step ends when the new versions are shown.
func TestFirmwareUpdate(t *testing.T) {
	bmc, _, n := machine(t)
	d := &Driver{}
	bmc.SetOn(true)
	var starts atomic.Int32
	bmc.OnPower = func(on bool, _ drivertest.Override, _ string) {
		if on {
			starts.Add(1)
		}
	}
	n.InternalInfo = metal.Object{"kept": true}
	step := updateStep(
		map[string]any{"component": "bmc", "url": "http://192.0.2.9/bmc-8.0"},
		map[string]any{"component": "bios", "url": "https://u:hunter9-hunter9@192.0.2.9/bios-2.2"},
	)
	must.OK(t, runUpdate(t, Firmware{d}, n, step))
	if got := bmc.Updates(); len(got) != 2 || !strings.HasSuffix(got[0], "bmc-8.0") || !strings.HasSuffix(got[1], "bios-2.2") {
		t.Errorf("the BMC was given %q", got)
	}
	versions := map[string]string{}
	for _, c := range must.Get(Firmware{d}.Components(t.Context(), n))(t) {
		versions[c.Component] = c.CurrentVersion
	}
	if versions["bmc"] != "8.0" || versions["bios"] != "2.2" {
		t.Errorf("versions %v", versions)
	}
	fixture.Poll(t, "a start", func() bool { return starts.Load() > 0 }) // the BMC shows the power before it calls
	if starts.Load() != 1 || !bmc.On() {
		t.Errorf("%d starts, on %t; want one start, for the BIOS", starts.Load(), bmc.On())
	}
	if len(n.InternalInfo) != 1 {
		t.Errorf("the step left %v", n.InternalInfo)
	}
}

// TestFirmwareUpdateOfManagement is the step with a list of images of unknown parts.
func TestFirmwareUpdateOfManagement(t *testing.T) {
	bmc, _, n := machine(t)
	step := metal.Step{Interface: "management", Step: driver.UpdateFirmware, Args: metal.Object{"firmware_images": []any{map[string]any{"url": "http://192.0.2.9/bios-2.2"}}}}
	must.OK(t, runUpdate(t, &Driver{}, n, step))
	if len(bmc.Updates()) != 1 || !bmc.On() {
		t.Errorf("updates %q, on %t", bmc.Updates(), bmc.On())
	}
}

// TestFirmwareUpdateFails: the BMC's reason is told, what opens the URL is not, and nothing is left that would stop the next try.
func TestFirmwareUpdateFails(t *testing.T) {
	bmc, _, n := machine(t)
	bmc.FailUpdates("the image http://192.0.2.9/bios-9?key=hunter9-hunter9 is for another model")
	step := updateStep(map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-9?key=hunter9-hunter9"})
	err := runUpdate(t, Firmware{&Driver{}}, n, step)
	if !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "another model") || strings.Contains(err.Error(), "hunter9") {
		t.Errorf("%v", err)
	}
	if bmc.On() || n.InternalInfo[updateKey] != nil {
		t.Errorf("on %t, left %v", bmc.On(), n.InternalInfo)
	}
	bmc.FailUpdates("")
	must.OK(t, runUpdate(t, Firmware{&Driver{}}, n, updateStep(map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-2.3"})))
}

// TestFirmwareUpdateIsRefused before the BMC is given anything.
func TestFirmwareUpdateIsRefused(t *testing.T) {
	bmc, _, n := machine(t)
	for _, address := range []string{"ftp://192.0.2.9/bios-2.2", "/etc/shadow", "http:///x"} {
		if _, err := (Firmware{&Driver{}}).RunStep(t.Context(), n, updateStep(map[string]any{"component": "bios", "url": address})); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v, want invalid", address, err)
		}
	}
	if len(bmc.Updates()) > 0 {
		t.Errorf("the BMC was given %q", bmc.Updates())
	}
	o, n := newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
		return path == "/redfish/v1/UpdateService" && answerJSON(w, http.StatusOK, map[string]any{"ServiceEnabled": false})
	})
	_, err := (Firmware{&Driver{}}).RunStep(t.Context(), n, updateStep(map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-2.2"}))
	if !problem.Is(err, problem.Unsupported) || len(o.Updates()) > 0 {
		t.Errorf("%v, want unsupported", err)
	}
}

// TestUpdateWithoutATask: of a BMC that names no task nobody knows how far it is. The machine stays as it is until the version changes, or
// for the time that an update may take.
func TestUpdateWithoutATask(t *testing.T) {
	o, n := newOdd(t, func(o *odd, w http.ResponseWriter, method, path string) bool {
		if method != http.MethodPost || !strings.Contains(path, "SimpleUpdate") {
			return false
		}
		w.WriteHeader(http.StatusOK)
		return true
	})
	o.SetOn(true)
	var changes atomic.Int32
	o.OnPower = func(bool, drivertest.Override, string) { changes.Add(1) }
	f, step := Firmware{&Driver{}}, updateStep(map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-2.2"})
	for range 3 {
		if wait, err := f.RunStep(t.Context(), n, step); !wait || err != nil || changes.Load() > 0 {
			t.Fatalf("wait %t, %v, %d changes of the power", wait, err, changes.Load())
		}
	}
	r := updateOf(n)
	r.BegunAt = time.Now().Add(-2 * versionWait)
	recordUpdate(n, &r)
	if wait, err := f.RunStep(t.Context(), n, step); !wait || err != nil {
		t.Errorf("wait %t, %v", wait, err)
	}
	fixture.Poll(t, "off and on", func() bool { return changes.Load() == 2 })
}

// TestTheSameVersionAgain: an image of the version that is there never shows another, so the wait for it ends with a note.
func TestTheSameVersionAgain(t *testing.T) {
	_, _, n := machine(t)
	step := updateStep(map[string]any{"component": "bmc", "url": "http://192.0.2.9/bmc-7.0"})
	f := Firmware{&Driver{}}
	for range 2 { // handed over, and ended
		if wait, err := f.RunStep(t.Context(), n, step); !wait || err != nil {
			t.Fatal(wait, err)
		}
	}
	if wait, err := f.RunStep(t.Context(), n, step); !wait || err != nil {
		t.Fatal("the version may still change", wait, err)
	}
	r := updateOf(n)
	r.EndedAt = time.Now().Add(-2 * versionWait)
	recordUpdate(n, &r)
	ctx, notes := driver.WithNotes(t.Context())
	if wait, err := f.RunStep(ctx, n, step); wait || err != nil || len(notes.Texts()) != 1 || !strings.Contains(notes.Texts()[0], "7.0") {
		t.Errorf("wait %t, %v, notes %q", wait, err, notes.Texts())
	}
}

// TestAnOrderThatWasCutOffIsNotGivenAgain: the conductor was killed after the BMC took the image and before it noted that.
func TestAnOrderThatWasCutOffIsNotGivenAgain(t *testing.T) {
	for name, image := range map[string]string{"task": "bios-2.2", "version": "bmc-8.0"} {
		t.Run(name, func(t *testing.T) {
			bmc, _, n := machine(t)
			bmc.SetOn(true)
			for range 250 { // the newest is the last of the list
				bmc.AddTask(map[string]any{"Name": "x", "TaskState": "Completed"})
			}
			component, _, _ := strings.Cut(image, "-")
			f, step := Firmware{&Driver{}}, updateStep(map[string]any{"component": component, "url": "http://192.0.2.9/" + image})
			for range 10 {
				stored := n.Clone()
				if wait, err := f.RunStep(t.Context(), n, step); !wait || err != nil {
					t.Fatal(wait, err)
				}
				if len(bmc.Updates()) > 0 {
					n = stored
					break
				}
			}
			ctx, notes := driver.WithNotes(t.Context())
			for range 10 {
				wait, err := f.RunStep(ctx, n, step)
				must.OK(t, err)
				if !wait {
					break
				}
			}
			if got := bmc.Updates(); len(got) != 1 || n.InternalInfo[updateKey] != nil {
				t.Errorf("the BMC was given %q, the node notes %v", got, n.InternalInfo)
			}
			if len(notes.Texts()) != 1 || !strings.Contains(notes.Texts()[0], "not ordered again") {
				t.Errorf("notes %q", notes.Texts())
			}
		})
	}
}

// TestAnIntentIsOrderedOnce: a conductor that takes over finds no order and stores the intent anew. It is cut off after the BMC took the
// image, and the first conductor, which never gave the order, goes on.
func TestAnIntentIsOrderedOnce(t *testing.T) {
	bmc, _, n := machine(t)
	first, second := Firmware{&Driver{}}, Firmware{&Driver{}}
	step := updateStep(map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-2.2"})
	run := func(f Firmware) {
		t.Helper()
		if wait, err := f.RunStep(t.Context(), n, step); !wait || err != nil {
			t.Fatal(wait, err)
		}
	}
	run(first)
	run(second)
	if got := bmc.Updates(); len(got) > 0 {
		t.Errorf("the intent of another conductor was ordered before it was stored anew: %q", got)
	}
	stored := n.Clone()
	run(second)
	n = stored
	must.OK(t, runUpdate(t, first, n, step))
	if got := bmc.Updates(); len(got) != 1 {
		t.Errorf("the BMC was given %q", got)
	}
}

// TestARefusedOrderIsGivenAgain, though another client's update runs meanwhile: a refusal proves that the BMC did not take ours.
func TestARefusedOrderIsGivenAgain(t *testing.T) {
	var refusals atomic.Int32
	o, n := newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
		if method != http.MethodPost || !strings.Contains(path, "SimpleUpdate") || refusals.Add(1) > 1 {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	f, step := Firmware{&Driver{}}, updateStep(map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-2.2"})
	if wait, err := f.RunStep(t.Context(), n, step); !wait || err != nil {
		t.Fatal(wait, err)
	}
	o.AddTask(map[string]any{"Name": "Firmware update", "TaskState": "Running"})
	if _, err := f.RunStep(t.Context(), n, step); !problem.Is(err, problem.Unavailable) {
		t.Fatalf("%v, want unavailable", err)
	}
	must.OK(t, runUpdate(t, f, n, step))
	if got := o.Updates(); len(got) != 1 {
		t.Errorf("the BMC was given %q", got)
	}
}

// TestForeignTasksAreNoUpdates: a task that another client started is not taken for ours, and neither is one from before.
func TestForeignTasksAreNoUpdates(t *testing.T) {
	bmc, _, n := machine(t)
	f := Firmware{&Driver{}}
	must.OK(t, runUpdate(t, f, n, updateStep(map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-2.2"})))
	step := updateStep(map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-2.3"})
	if wait, err := f.RunStep(t.Context(), n, step); !wait || err != nil {
		t.Fatal(wait, err)
	}
	bmc.AddTask(map[string]any{"Name": "Export of the log", "TaskState": "Running"})
	bmc.AddTask(map[string]any{"Name": "Firmware update", "TaskState": "Running"}) // no TargetUri tells whose it is
	bmc.AddTask(map[string]any{"Name": "x", "TaskState": "Running", "Payload": map[string]any{"TargetUri": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"}})
	must.OK(t, runUpdate(t, f, n, step))
	if got := bmc.Updates(); len(got) != 2 {
		t.Errorf("the BMC was given %q", got)
	}
}

// TestTheRamdiskIsPreparedBeforeAStepsRestart of the machine, which is off then.
func TestTheRamdiskIsPreparedBeforeAStepsRestart(t *testing.T) {
	for name, step := range map[string]metal.Step{
		"firmware": updateStep(map[string]any{"component": "bios", "url": "http://192.0.2.9/bios-2.2"}),
		"settings": {Interface: "bios", Step: "apply_configuration", Args: metal.Object{"settings": []any{map[string]any{"name": "ProcTurbo", "value": "Disabled"}}}},
		"reset":    {Interface: "bios", Step: "factory_reset"},
	} {
		t.Run(name, func(t *testing.T) {
			bmc, _, n := machine(t)
			bmc.SetOn(true)
			prepared := 0
			ctx := driver.WithBeforeStart(t.Context(), func(context.Context) error {
				if bmc.On() {
					t.Error("the machine is on")
				}
				prepared++
				return nil
			})
			var d driver.StepRunner = Firmware{&Driver{}}
			if step.Interface == "bios" {
				d = BIOS{&Driver{}}
			}
			for range 10 {
				if wait, err := d.RunStep(ctx, n, step); err != nil || !wait {
					must.OK(t, err)
					break
				}
			}
			if prepared != 1 || !bmc.On() {
				t.Errorf("prepared %d times, on %t", prepared, bmc.On())
			}
		})
	}
}
