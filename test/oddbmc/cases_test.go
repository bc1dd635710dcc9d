package oddbmc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/rescue"
)

// The tests of this file are public reports about the BMCs of others, one test for each kind. The reports stand in the comment of each test.

const (
	nicsListPath = systemPath + "/EthernetInterfaces"
	sessionsPath = rootPath + "/SessionService/Sessions"
	resetPath    = systemPath + "/Actions/ComputerSystem.Reset"
	cdPath       = mediaPath + "/Cd"
	insertPath   = cdPath + "/Actions/VirtualMedia.InsertMedia"
	driveTwoPath = raidPath + "/Drives/D2"
)

// hook puts fn before a BMC; fn tells whether it has answered.
func hook(fn func(w http.ResponseWriter, r *http.Request, next http.Handler) bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !fn(w, r, next) {
				next.ServeHTTP(w, r)
			}
		})
	}
}

func pathOf(r *http.Request) string { return strings.TrimRight(r.URL.Path, "/") }

func sendDocument(w http.ResponseWriter, status int, doc any) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
	return true
}

func errorDocument(id, message string, args ...any) map[string]any {
	info := map[string]any{"MessageId": id}
	if message != "" {
		info["Message"] = message
	}
	if len(args) > 0 {
		info["MessageArgs"] = args
	}
	return map[string]any{"error": map[string]any{"code": "iLO.0.10.ExtendedInfo", "message": "See @Message.ExtendedInfo for more information.", "@Message.ExtendedInfo": []any{info}}}
}

var (
	missingDocument = errorDocument("Base.1.8.ResourceMissingAtURI", "The resource at the URI was not found.")
	brokenDocument  = errorDocument("Base.1.8.InternalError", "The request failed due to an internal service error.")
)

// answering has the GET of a path answered by something else.
func answering(path string, status int, doc any) func(http.Handler) http.Handler {
	return hook(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		return r.Method == http.MethodGet && pathOf(r) == path && sendDocument(w, status, doc)
	})
}

// showing changes the document that the GET of a path shows.
func showing(path string, change func(doc map[string]any)) func(http.Handler) http.Handler {
	return hook(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if r.Method != http.MethodGet || pathOf(r) != path {
			return false
		}
		out := httptest.NewRecorder()
		next.ServeHTTP(out, r)
		doc := map[string]any{}
		if out.Code != http.StatusOK || json.Unmarshal(out.Body.Bytes(), &doc) != nil {
			return sendDocument(w, out.Code, json.RawMessage(out.Body.Bytes()))
		}
		change(doc)
		return sendDocument(w, http.StatusOK, doc)
	})
}

func setting(path string, members map[string]any) func(http.Handler) http.Handler {
	return showing(path, func(doc map[string]any) {
		for name, v := range members {
			doc[name] = v
		}
	})
}

// all puts several things before a BMC.
func all(before ...func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		for _, b := range before {
			next = b(next)
		}
		return next
	}
}

// drivesOfControllers hides SimpleStorage, so that the drives of the controllers are inspected, and gives the machine a second NIC.
func drivesOfControllers() func(http.Handler) http.Handler {
	return all(
		showing(systemPath, func(doc map[string]any) { delete(doc, "SimpleStorage") }),
		answering(nicsListPath+"/1", http.StatusOK, map[string]any{"Id": "NIC.2", "MACAddress": "52:54:00:AA:BB:02", "LinkStatus": "LinkDown"}),
	)
}

// TestOnePartCannotBeRead: proxmox-redfish 36, Redfish-Tacklebox PR 102, nv-redfish PR 185, ODIM 494, check_redfish 170. One member of a list
// that cannot be read costs itself: the inspection succeeds with all others, and a note names the one that is left out.
func TestOnePartCannotBeRead(t *testing.T) {
	addMember := func(path string, member any) func(http.Handler) http.Handler {
		return showing(path, func(doc map[string]any) { doc["Members"] = append(doc["Members"].([]any), member) })
	}
	for _, c := range []struct {
		name        string
		before      func(http.Handler) http.Handler
		nics, disks int
		note        string
	}{
		{"all is well", nil, 2, 3, ""},
		{"a network card answers 404", answering(nicsListPath+"/1", http.StatusNotFound, missingDocument), 1, 3, "EthernetInterfaces/1"},
		{"a network card answers 500", answering(nicsListPath+"/1", http.StatusInternalServerError, brokenDocument), 1, 3, "EthernetInterfaces/1"},
		{"a drive answers 404", answering(driveTwoPath, http.StatusNotFound, missingDocument), 2, 2, "Drives/D2"},
		{"a drive answers 500", answering(driveTwoPath, http.StatusInternalServerError, brokenDocument), 2, 2, "Drives/D2"},
		{"the list of processors answers 404", answering(systemPath+"/Processors", http.StatusNotFound, missingDocument), 2, 3, "Processors"},
		{"the list of network cards answers 404", answering(nicsListPath, http.StatusNotFound, missingDocument), 0, 3, "EthernetInterfaces"},
		{"the list of controllers answers 500", answering(storagePath, http.StatusInternalServerError, brokenDocument), 2, 0, "Storage"},
		{"the list of controllers is not ready", answering(storagePath, http.StatusNotFound, errorDocument("iLO.2.30.ResourceNotReadyRetry", "")), 2, 0, "Storage"},
		{"a link of the list of network cards is empty", addMember(nicsListPath, map[string]any{"@odata.id": ""}), 2, 3, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := []func(http.Handler) http.Handler{drivesOfControllers()}
			if c.before != nil {
				before = append(before, c.before)
			}
			inWorld(t, worldOptions{before: all(before...)}, func(ctx context.Context, w *world) {
				found, err := inspect(ctx, w)
				if err != nil {
					t.Errorf("inspect: %v", err)
					return
				}
				if len(found.MACs) != c.nics || len(found.Inventory.Disks) != c.disks || found.Properties["memory_mb"] != 2048.0 {
					t.Errorf("found %d network cards, %d disks and %v MiB, want %d, %d and 2048", len(found.MACs), len(found.Inventory.Disks), found.Properties["memory_mb"], c.nics, c.disks)
				}
				notes := strings.Join(w.notes.Texts(), "; ")
				if c.note != "" && !strings.Contains(notes, c.note) {
					t.Errorf("notes %q, want one that names %s", notes, c.note)
				}
			})
		})
	}
	t.Run("a virtual drive answers 404 beside a good one", func(t *testing.T) {
		before := addMember(mediaPath, map[string]any{"@odata.id": mediaPath + "/USB2"})
		inWorld(t, worldOptions{before: before}, func(ctx context.Context, w *world) {
			b, err := w.driver.DescribeBMC(ctx, w.node)
			if err != nil || !slices.Contains(b.Drives, "CD") {
				t.Errorf("describe: %v, drives %q; want one that takes a CD", err, b.Drives)
			}
			if _, err := rescueAndBack(ctx, w); err != nil {
				t.Errorf("rescue: %v", err)
			}
		})
	})
}

// TestValuesOfAnotherType: gofish 409, 99, 61; redfish_exporter 27, 9; fishymetrics 68; libredfish 27. A value of another JSON type than the
// schema has is a value that the BMC does not tell.
func TestValuesOfAnotherType(t *testing.T) {
	link := func(path string) map[string]any { return map[string]any{"@odata.id": path} }
	system := func(name string, v any) func(http.Handler) http.Handler {
		return setting(systemPath, map[string]any{name: v})
	}
	for _, c := range []struct {
		name   string
		before func(http.Handler) http.Handler
		media  bool // a virtual CD drive is found all the same
	}{
		{"cores N/A", setting(systemPath+"/Processors/0", map[string]any{"TotalCores": "N/A", "TotalThreads": "N/A"}), true},
		{"cores as text", setting(systemPath+"/Processors/0", map[string]any{"TotalCores": "2", "TotalThreads": "4"}), true},
		{"memory as text", system("MemorySummary", map[string]any{"TotalSystemMemoryGiB": "2"}), true},
		{"processors as text", system("ProcessorSummary", map[string]any{"Count": "2"}), true},
		{"size of a drive N/A", setting(driveTwoPath, map[string]any{"CapacityBytes": "N/A"}), true},
		{"serial number of a drive a number", setting(driveTwoPath, map[string]any{"SerialNumber": 77}), true},
		{"serial number a number", system("SerialNumber", 77), true},
		{"link of a network card true", setting(nicsListPath+"/0", map[string]any{"LinkStatus": true}), true},
		{"ManagedBy an object", system("Links", map[string]any{"ManagedBy": link(managerPath), "Chassis": []any{}}), true},
		{"Chassis a list of texts", system("Links", map[string]any{"ManagedBy": []any{link(managerPath)}, "Chassis": []any{"/redfish/v1/Chassis/1"}}), true},
		{"Status a text", system("Status", "OK"), true},
		{"Model a number", system("Model", 4029), true},
		{"VirtualMedia a list", setting(managerPath, map[string]any{"VirtualMedia": []any{}}), false},
		{"MediaTypes a text", setting(cdPath, map[string]any{"MediaTypes": "CD"}), true},
		{"Inserted a text", setting(cdPath, map[string]any{"Inserted": "false"}), true},
		{"Actions of a stick a list", setting(mediaPath+"/Usb", map[string]any{"Actions": []any{}}), true},
		{"boot targets a text", showing(systemPath, func(doc map[string]any) {
			doc["Boot"].(map[string]any)["BootSourceOverrideTarget@Redfish.AllowableValues"] = "None Pxe Hdd Cd"
		}), true},
		{"Members an object", setting(collectionPath, map[string]any{"Members": link(systemPath)}), true},
		{"FirmwareVersion a number", setting(managerPath, map[string]any{"FirmwareVersion": 2.0}), true},
		{"Settings null and Storage empty", setting(systemPath, map[string]any{"@Redfish.Settings": nil, "Storage": ""}), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, worldOptions{before: all(drivesOfControllers(), c.before)}, func(ctx context.Context, w *world) {
				b, err := w.driver.DescribeBMC(ctx, w.node)
				if err != nil || c.media && !slices.Contains(b.Drives, "CD") {
					t.Errorf("describe: %v, drives %q", err, b.Drives)
				}
				if err := w.driver.SetPower(ctx, w.node, metal.PowerOff); err != nil || w.bmc.On() {
					t.Errorf("power off: %v, the machine is on: %t", err, w.bmc.On())
				}
				if err := w.driver.SetBootDevice(ctx, w.node, rescue.Boot{Device: "pxe"}); err != nil || w.bmc.Boot().Target != "Pxe" {
					t.Errorf("boot device: %v, the override is %s", err, w.bmc.Boot().Target)
				}
				found, err := inspect(ctx, w)
				if err != nil || len(found.MACs) != 2 {
					t.Errorf("inspect: %v, MACs %q; want two", err, found.MACs)
				}
			})
		})
	}
}

func inspect(ctx context.Context, w *world) (found driver.Inspected, err error) {
	err = try(ctx, func(ctx context.Context) (err error) { found, err = w.driver.Inspect(ctx, w.node); return err })
	return found, err
}

// TestRedirectOfAnOrder: check_redfish PR 187, pegaprox 609. Old Supermicro answers a path without a slash at its end with 301 to the path
// with one, orders too. The order keeps its method and its body.
func TestRedirectOfAnOrder(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		for what, only := range map[string]func(r *http.Request) bool{
			"logins":     func(r *http.Request) bool { return r.Method == http.MethodPost && pathOf(r) == sessionsPath },
			"everything": func(*http.Request) bool { return true },
		} {
			t.Run(fmt.Sprint(status, " for ", what), func(t *testing.T) {
				before := hook(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
					if !only(r) || strings.HasSuffix(r.URL.Path, "/") {
						return false
					}
					w.Header().Set("Location", r.URL.Path+"/")
					w.WriteHeader(status)
					return true
				})
				inWorld(t, worldOptions{session: true, before: before}, func(ctx context.Context, w *world) {
					if _, err := w.driver.DescribeBMC(ctx, w.node); err != nil {
						t.Errorf("describe: %v", err)
					}
					if err := w.driver.SetPower(ctx, w.node, metal.PowerOff); err != nil || w.bmc.On() {
						t.Errorf("power off: %v, the machine is on: %t", err, w.bmc.On())
					}
					if err := w.driver.SetBootDevice(ctx, w.node, rescue.Boot{Device: "cdrom"}); err != nil || w.bmc.Boot().Target != "Cd" {
						t.Errorf("boot device: %v, the override is %s", err, w.bmc.Boot().Target)
					}
				})
			})
		}
	}
}

// TestSessionsAreClosed: openbmc 3353, nv-redfish PR 125, gofish 75, check_redfish 89. Whatever the BMC says about where its new session is, no
// session stays open, and a BMC with four of them is not full.
func TestSessionsAreClosed(t *testing.T) {
	for name, location := range map[string]func(path string) string{
		"a path":                          func(p string) string { return p },
		"a URL":                           func(p string) string { return "http://bmc.test" + p },
		"a URL of another host":           func(p string) string { return "https://localhost:8443" + p },
		"nothing; the body has @odata.id": func(string) string { return "" },
		"a relative reference":            func(p string) string { return "Sessions/" + p[strings.LastIndexByte(p, '/')+1:] },
		"a path without its first slash":  func(p string) string { return p[1:] },
		"a path with a slash at its end":  func(p string) string { return p + "/" },
	} {
		t.Run(name, func(t *testing.T) {
			open := 0
			var bmc func() int
			before := hook(func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
				if r.Method != http.MethodPost || pathOf(r) != sessionsPath {
					return false
				}
				if open = max(open, bmc()+1); open > 4 {
					return sendDocument(w, http.StatusServiceUnavailable, errorDocument("Base.1.8.SessionLimitExceeded", "The number of simultaneous sessions exceeds the limit."))
				}
				out := httptest.NewRecorder()
				next.ServeHTTP(out, r)
				at := out.Header().Get("Location")
				w.Header().Set("X-Auth-Token", out.Header().Get("X-Auth-Token"))
				if to := location(at); to != "" {
					w.Header().Set("Location", to)
				}
				return sendDocument(w, http.StatusCreated, map[string]any{"@odata.id": at, "Id": "1", "UserName": username})
			})
			inWorld(t, worldOptions{session: true, before: before}, func(ctx context.Context, w *world) {
				bmc = w.bmc.Sessions
				for i := range 6 {
					want := []metal.Power{metal.PowerOff, metal.PowerOn}[i%2]
					if err := w.driver.SetPower(ctx, w.node, want); err != nil {
						t.Errorf("order %d: set %s: %v", i, want, err)
					}
					time.Sleep(17 * time.Second)
				}
				if w.bmc.Sessions() != 0 {
					t.Errorf("%d sessions are open, want none", w.bmc.Sessions())
				}
			})
		})
	}
}
