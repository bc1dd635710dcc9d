package redfish

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

const liveISO = "http://operator:hunter9-hunter9@192.0.2.9/live.iso?signature=abcdef"

// plan has the node boot what the ramdisk says, as a conductor does.
func plan(t *testing.T, m *Media, n *metal.Node, r driver.Ramdisk) {
	t.Helper()
	n.BootNumber++
	r.BootNumber = n.BootNumber
	n.Plan = must.Get(m.Plan(n, r))(t)
	must.OK(t, m.PrepareRamdisk(t.Context(), n))
}

// TestLiveISO: a node whose system is an ISO image has it in the CD drive and its config drive in the USB drive. A rescue replaces both,
// its end puts them back, and the end of the instance ejects them.
func TestLiveISO(t *testing.T) {
	bmc, _, n := machine(t)
	m := &Media{Driver: &Driver{}, Files: files}
	n.InstanceInfo = metal.Object{"boot_iso": liveISO}
	live := driver.Ramdisk{ISO: liveISO, Persistent: true, ConfigDrive: true}
	want := func(what, cd, stick string, boot drivertest.Override) {
		t.Helper()
		if bmc.Image() != cd || bmc.Stick() != stick || bmc.Boot().Target != boot.Target || bmc.Boot().Enabled != boot.Enabled {
			t.Fatalf("%s: CD %q, USB %q, boot %+v; want %q, %q, %+v", what, bmc.Image(), bmc.Stick(), bmc.Boot(), cd, stick, boot)
		}
	}
	forever := drivertest.Override{Target: "Cd", Enabled: "Continuous"}
	plan(t, m, n, live)
	want("deployed", liveISO, n.Plan.FileURL(metal.BootConfigDrive), forever)
	if n.Plan.CarryToken || n.Plan.Kernel != "" || len(n.Plan.Params) > 0 {
		t.Errorf("the plan %+v promises what a ready-made image does not hold", n.Plan)
	}
	must.OK(t, m.PrepareRamdisk(t.Context(), n)) // it may be repeated
	must.OK(t, m.Driver.DetachMedia(t.Context(), n, nil))
	want("after a user detached all media", liveISO, n.Plan.FileURL(metal.BootConfigDrive), forever)
	for _, medium := range must.Get(m.Driver.Media(t.Context(), n))(t) {
		if strings.Contains(medium.Image, "hunter9") || strings.Contains(medium.Image, n.Plan.Path) {
			t.Errorf("the list of media shows %s", medium.Image)
		}
	}
	plan(t, m, n, driver.Ramdisk{Kernel: "/k", Image: "/r"})
	want("rescued", n.Plan.FileURL(metal.BootISO), "", drivertest.Override{Target: "Cd", Enabled: "Once"})
	must.OK(t, m.CleanUpRamdisk(t.Context(), n))
	want("after the rescue", "", "", drivertest.Override{Target: "None", Enabled: "Disabled"})
	plan(t, m, n, live)
	want("unrescued", liveISO, n.Plan.FileURL(metal.BootConfigDrive), forever)
	must.OK(t, m.CleanUpRamdisk(t.Context(), n))
	want("deleted", "", "", drivertest.Override{Target: "None", Enabled: "Disabled"})

	bmc.SetImage("http://192.0.2.9/other.iso")
	n.Plan = nil
	must.OK(t, m.CleanUpRamdisk(t.Context(), n))
	want("an operator's own medium", "http://192.0.2.9/other.iso", "", drivertest.Override{Target: "None", Enabled: "Disabled"})
}

// TestISOFileIsServed: an ISO image that is a file of the conductor reaches the BMC under a URL of the plan.
func TestISOFileIsServed(t *testing.T) {
	bmc, _, n := machine(t)
	m := &Media{Driver: &Driver{}, Files: files}
	plan(t, m, n, driver.Ramdisk{ISO: "/srv/live.iso", Kernel: "/k", Image: "/r"})
	if bmc.Image() != n.Plan.FileURL(metal.BootISO) || n.Plan.ISO != "/srv/live.iso" || n.Plan.Kernel != "" {
		t.Errorf("CD %q, plan %+v", bmc.Image(), n.Plan)
	}
}

// TestISOErrorsHideTheURL: what opens the ISO image is in no error, even if the BMC repeats it.
func TestISOErrorsHideTheURL(t *testing.T) {
	_, n := newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
		if method != http.MethodPost || !strings.HasSuffix(path, "InsertMedia") {
			return false
		}
		return answerJSON(w, http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "Base.1.0.GeneralError", "message": "cannot mount " + liveISO}})
	})
	m := &Media{Driver: &Driver{}, Files: files}
	n.Plan = must.Get(m.Plan(n, driver.Ramdisk{ISO: liveISO, Persistent: true}))(t)
	err := m.PrepareRamdisk(t.Context(), n)
	if err == nil || strings.Contains(err.Error(), "hunter9") || strings.Contains(err.Error(), "abcdef") {
		t.Errorf("%v", err)
	}
}

// TestConfigDriveNeedsADrive: without a virtual USB drive the config drive is refused before anything is touched.
func TestConfigDriveNeedsADrive(t *testing.T) {
	m := &Media{Driver: &Driver{}, Files: files}
	n := &metal.Node{ID: "n1"}
	metal.KeepBMC(n, metal.BMC{ReadAt: time.Now(), DrivesKnown: true, Drives: []string{"CD", "Floppy"}})
	_, err := m.Plan(n, driver.Ramdisk{ISO: liveISO, ConfigDrive: true})
	if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "USB") {
		t.Errorf("%v, want invalid with the drive that lacks", err)
	}
	must.Get(m.Plan(n, driver.Ramdisk{ISO: liveISO}))(t)
}

// TestOneDriveForBoth: of a BMC whose only drive takes a CD or a USB stick the config drive is refused before anything is touched. With a
// second drive, that one gets the CD.
func TestOneDriveForBoth(t *testing.T) {
	const list = "/redfish/v1/Managers/bmc/VirtualMedia"
	images, shown := map[string]string{}, []string{}
	second := false
	_, n := newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
		member, ok := strings.CutPrefix(path, list)
		member, action, _ := strings.Cut(strings.Trim(member, "/"), "/")
		switch {
		case !ok:
			return false
		case member == "":
			all := []any{map[string]any{"@odata.id": list + "/Both"}}
			if second {
				all = append(all, map[string]any{"@odata.id": list + "/CD"})
			}
			return answerJSON(w, http.StatusOK, map[string]any{"Members": all})
		case strings.HasSuffix(action, "InsertMedia"):
			images[member], shown = shown[0], shown[1:]
			return answerJSON(w, http.StatusOK, map[string]any{})
		}
		types := []string{"CD", "DVD"}
		if member == "Both" {
			types = append(types, "USBStick")
		}
		return answerJSON(w, http.StatusOK, map[string]any{"MediaTypes": types, "Inserted": images[member] != "", "Image": images[member],
			"Actions": map[string]any{"#VirtualMedia.InsertMedia": map[string]any{"target": list + "/" + member + "/Actions/VirtualMedia.InsertMedia"}}})
	})
	m := &Media{Driver: &Driver{}, Files: files}
	for _, second = range []bool{false, true} {
		metal.KeepBMC(n, must.Get(m.Driver.DescribeBMC(t.Context(), n))(t))
		_, err := m.Plan(n, driver.Ramdisk{ISO: liveISO, ConfigDrive: true})
		if !second && (!problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "has one virtual drive")) || second && err != nil {
			t.Errorf("two drives %t: %v", second, err)
		}
		must.Get(m.Plan(n, driver.Ramdisk{ISO: liveISO}))(t)
	}
	n.Plan = must.Get(m.Plan(n, driver.Ramdisk{ISO: liveISO, ConfigDrive: true, Persistent: true}))(t)
	drive := n.Plan.FileURL(metal.BootConfigDrive)
	shown = []string{liveISO, drive}
	must.OK(t, m.PrepareRamdisk(t.Context(), n))
	if images["CD"] != liveISO || images["Both"] != drive {
		t.Errorf("inserted %v", images)
	}
}

// TestActionInfoIsReadOnce for all insertions into a drive, and again for a node with another login.
func TestActionInfoIsReadOnce(t *testing.T) {
	const cd, info = "/redfish/v1/Managers/bmc/VirtualMedia/Cd", "/redfish/v1/Managers/bmc/InsertInfo"
	image, asked := "", 0
	_, n := newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
		switch {
		case path == info:
			asked++
			return answerJSON(w, http.StatusOK, map[string]any{"Parameters": []any{map[string]any{"Name": "Image", "Required": true}}})
		case path == cd+"/Actions/VirtualMedia.InsertMedia":
			image = liveISO
			return answerJSON(w, http.StatusOK, map[string]any{})
		case path == cd+"/Actions/VirtualMedia.EjectMedia":
			image = ""
			return answerJSON(w, http.StatusOK, map[string]any{})
		case path == cd:
			return answerJSON(w, http.StatusOK, map[string]any{"MediaTypes": []string{"CD"}, "Inserted": image != "", "Image": image, "Actions": map[string]any{
				"#VirtualMedia.InsertMedia": map[string]any{"target": cd + "/Actions/VirtualMedia.InsertMedia", "@Redfish.ActionInfo": info},
				"#VirtualMedia.EjectMedia":  map[string]any{"target": cd + "/Actions/VirtualMedia.EjectMedia"},
			}})
		}
		return false
	})
	m := &Media{Driver: &Driver{}, Files: files}
	n.Plan = must.Get(m.Plan(n, driver.Ramdisk{ISO: liveISO, Persistent: true}))(t)
	for range 3 {
		must.OK(t, m.PrepareRamdisk(t.Context(), n))
		must.OK(t, m.CleanUpRamdisk(t.Context(), n))
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	n.DriverInfo[QuirksKey] = "insert=Inserted"
	must.OK(t, m.PrepareRamdisk(t.Context(), n))
	if asked != 2 {
		t.Errorf("with other driver_info: asked %d times", asked)
	}
}
