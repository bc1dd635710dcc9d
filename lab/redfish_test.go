package lab

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stmcginnis/gofish"
	gofishredfish "github.com/stmcginnis/gofish/schemas"

	"salvor/problem"
	"salvor/test/must"
)

// fakeMachine is a Chassis, Drive and FirmwareSwitch without QEMU: it does at once what it is told.
type fakeMachine struct {
	mu       sync.Mutex
	power    Power
	override Override
	firmware Firmware
	image    string
	actions  []Action
	err      error // of the next calls that can fail
}

func (f *fakeMachine) Power() Power { f.mu.Lock(); defer f.mu.Unlock(); return f.power }

func (f *fakeMachine) Do(_ context.Context, a Action) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	f.actions = append(f.actions, a)
	switch a {
	case ActionOn, ActionRestart:
		f.power = PowerOn
		if !f.override.Persist {
			f.override = Override{}
		}
	case ActionOff:
		f.power = PowerOff
	default:
		if f.power == PowerOff {
			return errOff("m1", string(a))
		}
	}
	return nil
}

func (f *fakeMachine) Override() Override      { f.mu.Lock(); defer f.mu.Unlock(); return f.override }
func (f *fakeMachine) SetOverride(o Override)  { f.mu.Lock(); defer f.mu.Unlock(); f.override = o }
func (f *fakeMachine) Firmware() Firmware      { f.mu.Lock(); defer f.mu.Unlock(); return f.firmware }
func (f *fakeMachine) SetFirmware(fw Firmware) { f.mu.Lock(); defer f.mu.Unlock(); f.firmware = fw }
func (f *fakeMachine) Image() string           { f.mu.Lock(); defer f.mu.Unlock(); return f.image }
func (f *fakeMachine) Eject(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.image = ""
	return f.err
}

func (f *fakeMachine) Insert(_ context.Context, url string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.image = url
	}
	return f.err
}

var testSpec = machineSpec{
	Name: "m1", UUID: "6f3c1a52-9f0f-4d5e-8d8e-1f2f3c4d5e6f", MAC: "52:54:00:5a:4c:01", Tap: "tap-m1", Octet: 11,
	BMC: Redfish, Firmware: BIOS, Memory: 512, Disk: TenantDisk, Accel: "tcg", User: "admin", Password: "secret",
}

// bmcFixture is a Redfish service on a fake machine.
type bmcFixture struct {
	*testing.T
	machine *fakeMachine
	chassis *faultyChassis
	url     string
}

func newBMCFixture(t *testing.T) *bmcFixture {
	t.Helper()
	m := &fakeMachine{power: PowerOff, firmware: BIOS}
	chassis := newFaulty(m)
	service := newRedfishBMC(testSpec, chassis, m, m, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(service.handler())
	t.Cleanup(server.Close)
	return &bmcFixture{T: t, machine: m, chassis: chassis, url: server.URL}
}

// call sends a request with credentials and returns status, headers and the decoded body.
func (f *bmcFixture) call(method, path, body string, header ...string) (int, http.Header, map[string]any) {
	f.Helper()
	req := must.Get(http.NewRequest(method, f.url+path, strings.NewReader(body)))(f)
	req.SetBasicAuth("admin", "secret")
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "X-Auth-Token" {
			req.Header.Del("Authorization")
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp := must.Get(http.DefaultClient.Do(req))(f)
	defer resp.Body.Close()
	text := must.Get(io.ReadAll(resp.Body))(f)
	var decoded map[string]any
	if len(text) > 0 {
		if err := json.Unmarshal(text, &decoded); err != nil {
			f.Fatalf("%s %s: %v in %q", method, path, err, text)
		}
	}
	return resp.StatusCode, resp.Header, decoded
}

// want is call with a demand on the status.
func (f *bmcFixture) want(status int, method, path, body string, header ...string) map[string]any {
	f.Helper()
	got, _, decoded := f.call(method, path, body, header...)
	if got != status {
		f.Fatalf("%s %s %s: status %d, want %d (%v)", method, path, body, got, status, decoded)
	}
	if status >= 400 {
		e, ok := decoded["error"].(map[string]any)
		if !ok || e["code"] == "" || e["message"] == "" || e["@Message.ExtendedInfo"] == nil {
			f.Fatalf("%s %s: error body %v is not of DSP0266", method, path, decoded)
		}
	}
	return decoded
}

const (
	sysPath   = "/redfish/v1/Systems/m1"
	resetPath = sysPath + "/Actions/ComputerSystem.Reset"
	cdPath    = "/redfish/v1/Managers/bmc/VirtualMedia/Cd"
)

// Every link that the service gives leads to a resource that names itself by it.
func TestRedfishLinks(t *testing.T) {
	f := newBMCFixture(t)
	seen := map[string]bool{}
	var visit func(path string)
	var follow func(v any)
	follow = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, inner := range v {
				if link, ok := inner.(string); ok && key == "@odata.id" {
					visit(link)
				}
				follow(inner)
			}
		case []any:
			for _, inner := range v {
				follow(inner)
			}
		}
	}
	visit = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		body := f.want(http.StatusOK, "GET", path, "")
		if body["@odata.id"] != path {
			t.Errorf("GET %s: @odata.id is %v", path, body["@odata.id"])
		}
		if body["@odata.type"] == nil || body["Name"] == nil {
			t.Errorf("GET %s: no type or name", path)
		}
		follow(body)
	}
	visit("/redfish/v1")
	if len(seen) < 12 {
		t.Errorf("only %d resources: %v", len(seen), seen)
	}
	f.want(http.StatusOK, "GET", "/redfish/v1/", "")
	f.want(http.StatusOK, "GET", sysPath+"/", "")
	f.want(http.StatusNotFound, "GET", "/redfish/v1/Systems/other", "")
}

func TestRedfishAuthentication(t *testing.T) {
	f := newBMCFixture(t)
	for _, path := range []string{"/redfish", "/redfish/v1", "/redfish/v1/"} {
		resp, err := http.Get(f.url + path)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("GET %s without credentials: %v %v", path, resp, err)
		}
		resp.Body.Close()
	}
	f.want(http.StatusUnauthorized, "GET", sysPath, "", "Authorization", "Basic bm86bm8=")
	f.want(http.StatusUnauthorized, "GET", sysPath, "", "X-Auth-Token", "00")
	f.want(http.StatusUnauthorized, "POST", sessionsID, `{"UserName":"admin","Password":"wrong"}`)
	f.want(http.StatusBadRequest, "POST", sessionsID, `{`)
	status, header, _ := f.call("POST", sessionsID, `{"UserName":"admin","Password":"secret"}`)
	token, location := header.Get("X-Auth-Token"), header.Get("Location")
	if status != http.StatusCreated || token == "" || location == "" {
		t.Fatalf("login: %d, token %q, location %q", status, token, location)
	}
	f.want(http.StatusOK, "GET", location, "", "X-Auth-Token", token)
	f.want(http.StatusNoContent, "DELETE", location, "", "X-Auth-Token", token)
	f.want(http.StatusUnauthorized, "GET", sysPath, "", "X-Auth-Token", token)
	f.want(http.StatusNotFound, "DELETE", location, "")
}

func TestRedfishReset(t *testing.T) {
	f := newBMCFixture(t)
	for _, step := range []struct {
		reset  string
		status int
		power  string
	}{
		{"Nmi", 409, "Off"}, {"GracefulShutdown", 409, "Off"}, {"ForceOff", 204, "Off"}, {"On", 204, "On"}, {"On", 204, "On"},
		{"Nmi", 204, "On"}, {"ForceRestart", 204, "On"}, {"Explode", 400, "On"}, {"ForceOff", 204, "Off"}, {"PowerCycle", 204, "On"},
	} {
		f.want(step.status, "POST", resetPath, `{"ResetType":"`+step.reset+`"}`)
		if got := f.want(200, "GET", sysPath, "")["PowerState"]; got != step.power {
			t.Errorf("after %s: PowerState %v, want %s", step.reset, got, step.power)
		}
	}
	f.want(http.StatusBadRequest, "POST", resetPath, `[]`)
	f.machine.err = errors.New("qemu is broken")
	f.want(http.StatusInternalServerError, "POST", resetPath, `{"ResetType":"ForceOff"}`)
}

func TestRedfishBootOverride(t *testing.T) {
	f := newBMCFixture(t)
	for _, c := range []struct {
		patch  string
		status int
		want   Override
		uefi   bool
	}{
		{`{"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once"}}`, 204, Override{Device: DevicePXE}, false},
		{`{"Boot":{"BootSourceOverrideEnabled":"Continuous"}}`, 204, Override{Device: DevicePXE, Persist: true}, false},
		{`{"Boot":{"BootSourceOverrideTarget":"UefiHttp"}}`, 400, Override{Device: DevicePXE, Persist: true}, false},
		{`{"Boot":{"BootSourceOverrideTarget":"Floppy"}}`, 400, Override{Device: DevicePXE, Persist: true}, false},
		{`{"Boot":{"BootSourceOverrideEnabled":"Sometimes"}}`, 400, Override{Device: DevicePXE, Persist: true}, false},
		{`{"Boot":{"BootSourceOverrideMode":"Both"}}`, 400, Override{Device: DevicePXE, Persist: true}, false},
		{`{"Boot":{"HttpBootUri":"ftp://x/y"}}`, 400, Override{Device: DevicePXE, Persist: true}, false},
		{`{"Name":"other"}`, 400, Override{Device: DevicePXE, Persist: true}, false},
		{`{"Boot":{"BootSourceOverrideTarget":"Cd","BootSourceOverrideEnabled":"Once"}}`, 204, Override{Device: DeviceCD}, false},
		{`{"Boot":{"BootSourceOverrideTarget":"UefiHttp","BootSourceOverrideMode":"UEFI","HttpBootUri":"http://10.77.0.1/x.efi"}}`, 204, Override{Device: DeviceHTTP, URI: "http://10.77.0.1/x.efi"}, true},
		{`{"Boot":{"BootSourceOverrideEnabled":"Disabled","HttpBootUri":"","BootSourceOverrideMode":"Legacy"}}`, 204, Override{}, false},
	} {
		f.want(c.status, "PATCH", sysPath, c.patch)
		if got := f.machine.Override(); got != c.want {
			t.Errorf("after %s: %+v, want %+v", c.patch, got, c.want)
		}
		if got := f.machine.Firmware() == UEFI; got != c.uefi {
			t.Errorf("after %s: UEFI %v", c.patch, got)
		}
	}
}

func TestRedfishOverrideIsReadBackAndUsedOnce(t *testing.T) {
	f := newBMCFixture(t)
	boot := func() map[string]any { return f.want(200, "GET", sysPath, "")["Boot"].(map[string]any) }
	_, header, _ := f.call("GET", sysPath, "")
	old := header.Get("ETag")
	f.want(204, "PATCH", sysPath, `{"Boot":{"BootSourceOverrideTarget":"Cd","BootSourceOverrideEnabled":"Once"}}`, "If-Match", old)
	f.want(412, "PATCH", sysPath, `{"Boot":{"BootSourceOverrideTarget":"Pxe"}}`, "If-Match", old)
	if b := boot(); b["BootSourceOverrideTarget"] != "Cd" || b["BootSourceOverrideEnabled"] != "Once" || b["BootSourceOverrideMode"] != "Legacy" {
		t.Errorf("boot %v", b)
	}
	f.want(204, "POST", resetPath, `{"ResetType":"On"}`)
	if b := boot(); b["BootSourceOverrideTarget"] != "None" || b["BootSourceOverrideEnabled"] != "Disabled" {
		t.Errorf("after the boot: %v", b)
	}
}

func TestRedfishVirtualMedia(t *testing.T) {
	f := newBMCFixture(t)
	insert, eject := cdPath+"/Actions/VirtualMedia.InsertMedia", cdPath+"/Actions/VirtualMedia.EjectMedia"
	f.want(204, "POST", insert, `{"Image":"http://10.77.0.1/a.iso","Inserted":true,"WriteProtected":true}`)
	if m := f.want(200, "GET", cdPath, ""); m["Inserted"] != true || m["Image"] != "http://10.77.0.1/a.iso" {
		t.Errorf("after insert: %v", m)
	}
	f.want(204, "POST", insert, `{"Image":"http://10.77.0.1/a.iso"}`)
	f.want(409, "POST", insert, `{"Image":"http://10.77.0.1/b.iso"}`)
	f.want(400, "POST", insert, `{}`)
	f.want(204, "POST", eject, `{}`)
	f.want(204, "POST", eject, ``)
	if m := f.want(200, "GET", cdPath, ""); m["Inserted"] != false || m["Image"] != nil {
		t.Errorf("after eject: %v", m)
	}
	f.machine.err = problem.Unavailablef("no such image")
	f.want(400, "POST", insert, `{"Image":"http://10.77.0.1/none.iso"}`)
}

func TestRedfishFaults(t *testing.T) {
	f := newBMCFixture(t)
	f.chassis.set(Fault{Kind: Fault503})
	f.want(503, "GET", "/redfish/v1", "")

	f.chassis.set(Fault{Kind: FaultRubbish})
	resp := must.Get(http.Get(f.url + "/redfish/v1"))(t)
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || json.Valid(text) {
		t.Errorf("rubbish: %d %q", resp.StatusCode, text)
	}

	f.chassis.set(Fault{Kind: FaultSlow, Delay: 50 * time.Millisecond})
	start := time.Now()
	f.want(200, "GET", sysPath, "")
	if d := time.Since(start); d < 50*time.Millisecond {
		t.Errorf("slow answer after %s", d)
	}

	f.chassis.set(Fault{Kind: FaultHang})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", f.url+"/redfish/v1", nil)
	if _, err := http.DefaultClient.Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: %v", err)
	}

	f.chassis.set(Fault{})
	f.want(200, "GET", sysPath, "")
}

func TestRedfishLies(t *testing.T) {
	f := newBMCFixture(t)
	f.chassis.set(Fault{Kind: FaultLiePower})
	power := func() any { return f.want(200, "GET", sysPath, "")["PowerState"] }
	if power() != "Off" {
		t.Error("a lie begins with the truth")
	}
	f.want(204, "POST", resetPath, `{"ResetType":"On"}`)
	if power() != "On" || f.machine.Power() != PowerOff || len(f.machine.actions) != 0 {
		t.Errorf("says %v, is %v, did %v", power(), f.machine.Power(), f.machine.actions)
	}
	f.want(204, "POST", resetPath, `{"ResetType":"ForceOff"}`)
	if power() != "Off" {
		t.Error("lie is not kept up")
	}
	f.want(204, "POST", resetPath, `{"ResetType":"On"}`)
	f.chassis.set(Fault{Kind: FaultNone})
	if power() != "Off" {
		t.Error("the truth is not back")
	}
}

// The library that salvor's own driver is made with.
func TestRedfishGofish(t *testing.T) {
	f := newBMCFixture(t)
	c := must.Get(gofish.Connect(gofish.ClientConfig{Endpoint: f.url, Username: "admin", Password: "secret"}))(t)
	defer c.Logout()
	systems, err := c.Service.Systems()
	if err != nil || len(systems) != 1 {
		t.Fatalf("systems %v: %v", systems, err)
	}
	s := systems[0]
	if s.UUID != testSpec.UUID || s.PowerState != gofishredfish.OffPowerState {
		t.Errorf("system %s is %s", s.UUID, s.PowerState)
	}
	if err := s.SetBoot(&gofishredfish.Boot{BootSourceOverrideTarget: gofishredfish.CdBootSource, BootSourceOverrideEnabled: gofishredfish.OnceBootSourceOverrideEnabled}); err != nil {
		t.Fatal(err)
	}
	if f.machine.Override() != (Override{Device: DeviceCD}) {
		t.Errorf("override %+v", f.machine.Override())
	}
	must.Get(s.Reset(gofishredfish.OnResetType))(t)
	nics, err := s.EthernetInterfaces()
	if err != nil || len(nics) != 1 || nics[0].MACAddress != testSpec.MAC {
		t.Errorf("NICs %v: %v", nics, err)
	}
	managers, err := c.Service.Managers()
	if err != nil || len(managers) != 1 {
		t.Fatalf("managers %v: %v", managers, err)
	}
	media, err := managers[0].VirtualMedia()
	if err != nil || len(media) != 1 {
		t.Fatalf("media %v: %v", media, err)
	}
	if f.machine.Power() != PowerOn {
		t.Error("not on")
	}
}
