package oddbmc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/driver"
	"salvor/driver/redfish"
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
			inWorld(t, worldOptions{before: c.before}, func(ctx context.Context, w *world) {
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
				if err != nil || len(found.MACs) != 1 {
					t.Errorf("inspect: %v, MACs %q; want one", err, found.MACs)
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

// TestAnOrderByATaskThatFails: sushy note raise-error-on-async-task-failure, Redfishtool 55, lenovo powershell-redfish PR 75. The BMC answers
// 202 with a task, and the task fails: the error has the task's words, soon.
func TestAnOrderByATaskThatFails(t *testing.T) {
	const taskPath, why = rootPath + "/TaskService/Tasks/7", "Unable to connect to the image file: the server answered 404."
	for name, c := range map[string]struct {
		order string
		do    func(ctx context.Context, w *world) error
	}{
		"insertion": {insertPath, func(ctx context.Context, w *world) error { plan(w); return w.media.PrepareRamdisk(ctx, w.node) }},
		"power off": {resetPath, func(ctx context.Context, w *world) error { return w.driver.SetPower(ctx, w.node, metal.PowerOff) }},
		"boot device": {systemPath, func(ctx context.Context, w *world) error {
			return w.driver.SetBootDevice(ctx, w.node, rescue.Boot{Device: "pxe"})
		}},
		"volume": {volumesPath, func(ctx context.Context, w *world) error {
			w.node.TargetRAID = metal.Object{"logical_disks": []any{map[string]any{"raid_level": "0", "size_gb": "MAX"}}}
			return runStep(ctx, w.node, redfish.RAID{Driver: w.driver}, metal.Step{Interface: "raid", Step: "create_configuration"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			orders, reads := 0, 0
			before := hook(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				switch {
				case r.Method != http.MethodGet && pathOf(r) == c.order:
					orders++
					w.Header().Set("Location", taskPath)
					return sendDocument(w, http.StatusAccepted, map[string]any{"@odata.id": taskPath, "@odata.type": "#Task.v1_4_3.Task", "Id": "7", "TaskState": "Running"})
				case pathOf(r) == taskPath:
					reads++
					return sendDocument(w, http.StatusOK, map[string]any{"@odata.id": taskPath, "@odata.type": "#Task.v1_4_3.Task", "Id": "7", "TaskState": "Exception", "TaskStatus": "Critical",
						"Messages": []any{map[string]any{"MessageId": "Example.1.0.MountFailed", "Message": why}}})
				}
				return false
			})
			inWorld(t, worldOptions{before: before}, func(ctx context.Context, w *world) {
				began := time.Now()
				err := c.do(ctx, w)
				if err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("%v; want the words of the task", err)
				}
				if took := time.Since(began); took > 30*time.Second || reads == 0 || orders > 2 {
					t.Errorf("after %s, %d orders and %d reads of the task; want at most 30s, 1 or 2 orders, and the task read", took, orders, reads)
				}
			})
		})
	}
}

// TestVolumeTypeIsRefused: Ironic note redfish-fix-raid-creation. iLO 6 refuses members of a new volume that the schema deprecates.
func TestVolumeTypeIsRefused(t *testing.T) {
	for _, refused := range [][]string{{"VolumeType"}, {"VolumeType", "Encrypted"}, {"VolumeType", "Name"}, {"Name"}} {
		t.Run(strings.Join(refused, " and "), func(t *testing.T) {
			var mu sync.Mutex
			var made []map[string]any
			before := hook(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				if r.Method != http.MethodPost || pathOf(r) != volumesPath {
					return false
				}
				text, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(text))
				var body map[string]any
				_ = json.Unmarshal(text, &body)
				for _, name := range refused {
					if _, ok := body[name]; ok {
						return sendDocument(w, http.StatusBadRequest, errorDocument("Base.1.17.PropertyUnknown", "", name))
					}
				}
				mu.Lock()
				defer mu.Unlock()
				made = append(made, body)
				return false
			})
			inWorld(t, worldOptions{before: before}, func(ctx context.Context, w *world) {
				w.node.TargetRAID = metal.Object{"logical_disks": []any{map[string]any{"raid_level": "1", "size_gb": 40.0}}}
				if err := runStep(ctx, w.node, redfish.RAID{Driver: w.driver}, metal.Step{Interface: "raid", Step: "create_configuration"}); err != nil {
					t.Errorf("make a volume: %v", err)
				}
				if len(made) != 1 || made[0]["RAIDType"] != "RAID1" || made[0]["Links"] == nil {
					t.Errorf("the controller made %v, want one volume with RAIDType RAID1 and its drives", made)
				}
			})
		})
	}
}

// TestOddBIOSRegistries: Ironic note ValueDisplayName, gofish 99, Ironic bug 2095486. One attribute that cannot be understood costs itself
// only, and a setting whose name is about a password never shows a value.
func TestOddBIOSRegistries(t *testing.T) {
	name := func(kind string, texts ...string) (out []any) {
		for _, text := range texts {
			out = append(out, map[string]any{kind: text})
		}
		return out
	}
	for _, c := range []struct {
		name   string
		values []any
		bound  any
		upper  float64 // 0: not told
	}{
		{"in order", name("ValueName", "Uefi", "Bios"), 64, 64},
		{"display names only", name("ValueDisplayName", "Uefi", "Bios"), 64, 64},
		{"a bound as text", name("ValueName", "Uefi", "Bios"), "64", 0},
		{"a bound of 32 bits", name("ValueName", "Uefi", "Bios"), 4294967295.0, 4294967295},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := answering(rootPath+"/Registries/BiosRegistry/file", http.StatusOK, map[string]any{"RegistryEntries": map[string]any{"Attributes": []any{
				map[string]any{"AttributeName": "BootMode", "Type": "Enumeration", "Value": c.values},
				map[string]any{"AttributeName": "Cores", "Type": "Integer", "LowerBound": 1, "UpperBound": c.bound},
				map[string]any{"AttributeName": "AdminPassword", "Type": "Password"},
			}}})
			inWorld(t, worldOptions{before: before}, func(ctx context.Context, w *world) {
				settings, err := redfish.BIOS{Driver: w.driver}.BIOSSettings(ctx, w.node)
				if err != nil || strings.Contains(shown(settings), biosPassword) {
					t.Errorf("%v; the settings show the password: %s", err, shown(settings))
					return
				}
				for _, s := range settings {
					switch {
					case s.Name == "BootMode" && !slices.Equal(s.AllowableValues, []string{"Uefi", "Bios"}):
						t.Errorf("BootMode may be %q, want Uefi and Bios", s.AllowableValues)
					case s.Name == "Cores" && (s.AttributeType != "Integer" || c.upper != 0 && (s.UpperBound == nil || float64(*s.UpperBound) != c.upper)):
						t.Errorf("Cores is %s, want an Integer up to %v", shown(s), c.upper)
					}
				}
			})
		})
	}
	t.Run("no registry", func(t *testing.T) {
		inWorld(t, worldOptions{before: answering(rootPath+"/Registries", http.StatusNotFound, missingDocument)}, func(ctx context.Context, w *world) {
			settings, err := redfish.BIOS{Driver: w.driver}.BIOSSettings(ctx, w.node)
			if err != nil || strings.Contains(shown(settings), biosPassword) {
				t.Errorf("%v; the settings show the password: %s", err, shown(settings))
			}
		})
	})
}

// TestConnectionsAreCutWhenUsedAgain: sushy note disable-conn-pooling, golang/go 22158. The BMC answers the first request of each connection
// and cuts it at the second one.
func TestConnectionsAreCutWhenUsedAgain(t *testing.T) {
	for _, session := range []bool{false, true} {
		t.Run(fmt.Sprint("session ", session), func(t *testing.T) {
			var mu sync.Mutex
			used := map[string]bool{}
			before := hook(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				mu.Lock()
				defer mu.Unlock()
				if used[r.RemoteAddr] {
					panic(http.ErrAbortHandler)
				}
				used[r.RemoteAddr] = true
				return false
			})
			inWorld(t, worldOptions{session: session, before: before}, func(ctx context.Context, w *world) {
				if _, err := w.driver.DescribeBMC(ctx, w.node); err != nil {
					t.Errorf("describe: %v", err)
				}
				for _, want := range []metal.Power{metal.PowerOff, metal.PowerOn} {
					if err := w.driver.SetPower(ctx, w.node, want); err != nil || w.bmc.On() != (want == metal.PowerOn) {
						t.Errorf("set %s: %v, the machine is on: %t", want, err, w.bmc.On())
					}
				}
				if _, err := rescueAndBack(ctx, w); err != nil {
					t.Errorf("rescue: %v", err)
				}
				w.pool.Close()
				if w.bmc.Sessions() != 0 {
					t.Errorf("%d sessions are open, want none", w.bmc.Sessions())
				}
			})
		})
	}
}

// TestErrorsWithoutWords: ilo-fans-controller 2, ansible 51818, community.general PR 4596. The errors of an iLO have a MessageId and its
// arguments, and error.message says only where to look.
func TestErrorsWithoutWords(t *testing.T) {
	for _, c := range []struct {
		name, path string
		status     int
		id         string
		args       []any
		do         func(ctx context.Context, w *world) error
	}{
		{"power off", resetPath, http.StatusBadRequest, "Base.1.18.ActionParameterNotSupported", []any{"ResetType", "ComputerSystem.Reset"},
			func(ctx context.Context, w *world) error { return w.driver.SetPower(ctx, w.node, metal.PowerOff) }},
		{"insertion", insertPath, http.StatusBadRequest, "iLO.2.24.MaxVirtualMediaConnectionEstablished", nil,
			func(ctx context.Context, w *world) error { plan(w); return w.media.PrepareRamdisk(ctx, w.node) }},
		{"boot device", systemPath, http.StatusForbidden, "Base.1.18.InsufficientPrivilege", nil,
			func(ctx context.Context, w *world) error {
				return w.driver.SetBootDevice(ctx, w.node, rescue.Boot{Device: "pxe"})
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := hook(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				return r.Method != http.MethodGet && pathOf(r) == c.path && sendDocument(w, c.status, errorDocument(c.id, "", c.args...))
			})
			inWorld(t, worldOptions{before: before}, func(ctx context.Context, w *world) {
				err := c.do(ctx, w)
				if err == nil {
					t.Error("done, want the refusal of the BMC")
					return
				}
				for _, part := range append([]any{c.id[strings.LastIndexByte(c.id, '.')+1:]}, c.args...) {
					if !strings.Contains(err.Error(), part.(string)) {
						t.Errorf("%v; want %s in it", err, part)
					}
				}
				if strings.Contains(err.Error(), "See @Message") {
					t.Errorf("%v; want no advice to look elsewhere", err)
				}
			})
		})
	}
}

// TestMissingForAMoment: sushy note fix-dell-bmc-404-race-condition, device-management-toolkit 1069. For some seconds after an order the BMC
// answers 404 for a resource that it had before.
func TestMissingForAMoment(t *testing.T) {
	for _, c := range []struct {
		name, order string
		gone        func(path string) bool
		empty       string // a collection that is empty meanwhile
	}{
		{"the system after a reset", resetPath, func(p string) bool { return p == systemPath }, ""},
		{"the drive after an insertion", insertPath, func(p string) bool { return p == cdPath }, ""},
		{"the list of drives after an insertion", insertPath, func(p string) bool { return strings.HasPrefix(p, mediaPath) }, ""},
		{"all systems after a reset", resetPath, func(p string) bool { return p == systemPath }, collectionPath},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			var until time.Time
			before := hook(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				mu.Lock()
				defer mu.Unlock()
				switch now := time.Now(); {
				case r.Method == http.MethodPost && pathOf(r) == c.order:
					until = now.Add(4 * time.Second)
				case r.Method == http.MethodGet && now.Before(until) && c.gone(pathOf(r)):
					return sendDocument(w, http.StatusNotFound, missingDocument)
				case r.Method == http.MethodGet && now.Before(until) && pathOf(r) == c.empty:
					return sendDocument(w, http.StatusOK, map[string]any{"Members": []any{}, "Members@odata.count": 0})
				}
				return false
			})
			inWorld(t, worldOptions{before: before}, func(ctx context.Context, w *world) {
				if _, err := rescueAndBack(ctx, w); err != nil || !w.bmc.On() {
					t.Errorf("rescue: %v, the machine is on: %t", err, w.bmc.On())
				}
			})
		})
	}
}

// TestOneRefusalOfAGoodLogin: infra-controller PRs 69 and 5349, idrac_exporter 178, python-redfish-library 160. The BMC answers one 401 though
// the same login was accepted a moment ago.
func TestOneRefusalOfAGoodLogin(t *testing.T) {
	for _, c := range []struct {
		name    string
		session bool
		at      int // which request
		login   bool
		sync    bool
	}{
		{"power sync", false, 2, false, true},
		{"power sync by a session", true, 2, false, true},
		{"second request", false, 2, false, false},
		{"fifth request", false, 5, false, false},
		{"fifth request by a session", true, 5, false, false},
		{"a new session", true, 2, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			requests := 0
			before := hook(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				mu.Lock()
				defer mu.Unlock()
				isLogin := r.Method == http.MethodPost && pathOf(r) == sessionsPath
				if isLogin == c.login {
					requests++
				}
				if isLogin != c.login || requests != c.at {
					return false
				}
				w.Header().Set("WWW-Authenticate", `Basic realm="RedfishService"`)
				return sendDocument(w, http.StatusUnauthorized, errorDocument("Base.1.8.AccessDenied", "The service denied access."))
			})
			inWorld(t, worldOptions{session: c.session, before: before}, func(ctx context.Context, w *world) {
				if c.login {
					if _, err := w.driver.PowerState(ctx, w.node); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(20 * time.Second)
				}
				if !c.sync {
					if _, err := rescueAndBack(ctx, w); err != nil || !w.bmc.On() {
						t.Errorf("rescue: %v, the machine is on: %t", err, w.bmc.On())
					}
					return
				}
				failed := 0
				for range 4 {
					if _, err := w.driver.PowerState(driver.WithUserRequest(ctx, ""), w.node); err != nil {
						failed++
					}
					time.Sleep(time.Minute)
				}
				if failed > 1 {
					t.Errorf("%d of 4 readings of the power failed after one 401, want one at most", failed)
				}
			})
		})
	}
}

// TestPowerOrderRefusedWhileThePowerChanges: Ironic note catch-redfish-409. The BMC refuses an order because the machine is on its way there.
func TestPowerOrderRefusedWhileThePowerChanges(t *testing.T) {
	for _, c := range []struct {
		name, reads string
		want        metal.Power
		status      int
	}{
		{"on, reads PoweringOn", "PoweringOn", metal.PowerOn, http.StatusBadRequest},
		{"on, reads Off", "Off", metal.PowerOn, http.StatusBadRequest},
		{"on, reads PoweringOn, 409", "PoweringOn", metal.PowerOn, http.StatusConflict},
		{"off, reads PoweringOff", "PoweringOff", metal.PowerOff, http.StatusBadRequest},
		{"off, reads On", "On", metal.PowerOff, http.StatusBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			var until time.Time
			var set func(bool)
			on := c.want == metal.PowerOn
			refuseReset := hook(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				if r.Method != http.MethodPost || pathOf(r) != resetPath {
					return false
				}
				text, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(text))
				if kind := map[bool]string{true: `"On"`, false: `"ForceOff"`}[on]; !strings.Contains(string(text), kind) {
					return false
				}
				mu.Lock()
				defer mu.Unlock()
				if until.IsZero() {
					until = time.Now().Add(3 * time.Second)
					time.AfterFunc(3*time.Second, func() { set(on) })
				}
				return sendDocument(w, c.status, errorDocument("IDRAC.2.8.PSU501", "The server is already in the state that was asked for, or on its way."))
			})
			read := showing(systemPath, func(doc map[string]any) {
				mu.Lock()
				defer mu.Unlock()
				if time.Now().Before(until) {
					doc["PowerState"] = c.reads
				}
			})
			inWorld(t, worldOptions{before: all(refuseReset, read)}, func(ctx context.Context, w *world) {
				set = w.bmc.SetOn
				w.bmc.SetOn(!on)
				if err := w.driver.SetPower(ctx, w.node, c.want); err != nil || w.bmc.On() != on {
					t.Errorf("set %s: %v, the machine is on: %t", c.want, err, w.bmc.On())
				}
				if on { // as in a rescue: what came up is not switched off again
					w.bmc.SetOn(true)
				}
			})
		})
	}
}
