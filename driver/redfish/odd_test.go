package redfish

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
)

// odd is a BMC of which a test answers some requests itself.
type odd struct {
	*drivertest.BMC
	mu    sync.Mutex
	own   func(w http.ResponseWriter, method, path string) bool // true: it was answered
	asked []string
}

func (o *odd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Method != http.MethodGet {
		o.asked = append(o.asked, r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
	}
	if !o.own(w, r.Method, r.URL.Path) {
		o.BMC.ServeHTTP(w, r)
	}
}

func newOdd(t *testing.T, own func(o *odd, w http.ResponseWriter, method, path string) bool) (*odd, *metal.Node) {
	t.Helper()
	o := &odd{BMC: drivertest.NewBMC("admin", password)}
	o.own = func(w http.ResponseWriter, method, path string) bool { return own(o, w, method, path) }
	server := httptest.NewServer(o)
	t.Cleanup(func() { o.Release(); server.Close() })
	return o, node(server.URL)
}

func answerJSON(w http.ResponseWriter, code int, doc map[string]any) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(doc)
	return true
}

func refuse(w http.ResponseWriter) bool {
	return answerJSON(w, http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "Base.1.0.GeneralError", "message": "the interlock is engaged"}})
}

// isRefusal tells whether an error is a lasting one that quotes the BMC.
func isRefusal(err error) bool {
	return err != nil && !problem.Is(err, problem.Unavailable) && strings.Contains(err.Error(), "interlock")
}

const former = "http://192.0.2.7:8088/boot/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/boot.iso"

// TestARefusedEjectIsAnError: a medium of ours that the BMC does not let go of may boot once more. One that is out though the BMC
// refused is out.
func TestARefusedEjectIsAnError(t *testing.T) {
	for name, out := range map[string]bool{"stays": false, "is out": true} {
		t.Run(name, func(t *testing.T) {
			o, n := newOdd(t, func(o *odd, w http.ResponseWriter, method, path string) bool {
				if method != http.MethodPost || !strings.HasSuffix(path, "EjectMedia") {
					return false
				}
				if out {
					o.SetImage("")
				}
				return refuse(w)
			})
			o.SetImage(former)
			err := (&Media{Driver: &Driver{}, Files: files}).CleanUpRamdisk(t.Context(), n)
			if out != (err == nil) || !out && !isRefusal(err) {
				t.Errorf("%v, image %q", err, o.Image())
			}
		})
	}
}

// TestAnImageOfAFormerBootIsEjectedFromAnotherDrive: the machine could boot from it. Images of others stay.
func TestAnImageOfAFormerBootIsEjectedFromAnotherDrive(t *testing.T) {
	const tools = "http://192.0.2.9/tools.iso"
	for second, left := range map[string]string{former: "", tools: tools} {
		image := second
		o, n := newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
			drives, second, _ := strings.Cut(path, "/VirtualMedia")
			drives += "/VirtualMedia"
			switch method + " " + second {
			case "GET ":
				if !strings.HasSuffix(path, "/VirtualMedia") {
					return false
				}
				return answerJSON(w, http.StatusOK, map[string]any{"Members": []any{map[string]any{"@odata.id": drives + "/Cd"}, map[string]any{"@odata.id": drives + "/Cd2"}}})
			case "GET /Cd2":
				return answerJSON(w, http.StatusOK, map[string]any{"@odata.id": path, "MediaTypes": []string{"CD"}, "Inserted": image != "", "Image": image,
					"Actions": map[string]any{"#VirtualMedia.EjectMedia": map[string]any{"target": path + "/Actions/VirtualMedia.EjectMedia"}}})
			case "POST /Cd2/Actions/VirtualMedia.EjectMedia":
				image = ""
				w.WriteHeader(http.StatusNoContent)
				return true
			}
			return false
		})
		m := &Media{Driver: &Driver{}, Files: files}
		var err error
		if n.Plan, err = m.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}); err != nil {
			t.Fatal(err)
		}
		if err := m.PrepareRamdisk(t.Context(), n); err != nil || o.Image() != n.Plan.FileURL(metal.BootISO) || image != left {
			t.Errorf("%v; the drives hold %q and %q, want ours and %q", err, o.Image(), image, left)
		}
	}
}

// TestAMachineOnItsWayIsNotOn: one that is switching off is ordered on, and is on when the BMC reads On, not before.
func TestAMachineOnItsWayIsNotOn(t *testing.T) {
	reads := []string{"PoweringOff", "PoweringOn", "PoweringOn", "On"}
	last := ""
	o, n := newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
		switch {
		case method == http.MethodGet && path == drivertest.SystemPath:
			last = reads[0]
			if len(reads) > 1 && last != "PoweringOff" {
				reads = reads[1:]
			}
			return answerJSON(w, http.StatusOK, map[string]any{"@odata.id": path, "PowerState": last,
				"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{"target": path + "/Actions/ComputerSystem.Reset"}}})
		case method == http.MethodPost && strings.HasSuffix(path, "ComputerSystem.Reset"):
			reads = reads[1:]
			w.WriteHeader(http.StatusNoContent)
			return true
		}
		return false
	})
	if err := (&Driver{}).SetPower(t.Context(), n, metal.PowerOn); err != nil || last != "On" || strings.Join(o.asked, " ") != "ComputerSystem.Reset" {
		t.Errorf("%v; it read %q last, after orders %q", err, last, o.asked)
	}
}

// TestARefusedResetIsAnError: a BMC that refuses the order has done nothing, and its words are told.
func TestARefusedResetIsAnError(t *testing.T) {
	t.Parallel() // salvor looks for some seconds whether the power changes unseen
	o, n := newOdd(t, func(_ *odd, w http.ResponseWriter, method, path string) bool {
		return method == http.MethodPost && strings.HasSuffix(path, "ComputerSystem.Reset") && refuse(w)
	})
	d := &Driver{}
	if err := d.SetPower(drivertest.WithShortPauses(t.Context()), n, metal.PowerOn); !isRefusal(err) {
		t.Errorf("on: %v", err)
	}
	o.SetOn(true)
	if err := d.SetPower(drivertest.WithShortPauses(t.Context()), n, metal.PowerOff); !isRefusal(err) {
		t.Errorf("off: %v", err)
	}
	if err := d.SoftOff(drivertest.WithShortPauses(t.Context()), n); !isRefusal(err) {
		t.Errorf("soft off: %v", err)
	}
}
