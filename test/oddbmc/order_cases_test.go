package oddbmc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
		words      string
		do         func(ctx context.Context, w *world) error
	}{
		{"power off", resetPath, http.StatusBadRequest, "Base.1.18.ActionParameterNotSupported", []any{"ResetType", "ComputerSystem.Reset"}, "a parameter is not supported",
			func(ctx context.Context, w *world) error { return w.driver.SetPower(ctx, w.node, metal.PowerOff) }},
		{"insertion", insertPath, http.StatusBadRequest, "iLO.2.24.MaxVirtualMediaConnectionEstablished", nil, "the virtual drive is in use already",
			func(ctx context.Context, w *world) error { plan(w); return w.media.PrepareRamdisk(ctx, w.node) }},
		{"boot device", systemPath, http.StatusForbidden, "Base.1.18.InsufficientPrivilege", nil, "this user lacks the privilege",
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
				for _, part := range append([]any{c.words, c.id[strings.LastIndexByte(c.id, '.')+1:]}, c.args...) {
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
