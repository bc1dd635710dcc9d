package redfish

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
	"salvor/wire/agent"
)

const password = "hunter2-Tr0ub4dor"

var files = driver.BootFiles{URL: "http://192.0.2.1:8088/", APIURL: "http://192.0.2.1:6385"}

// machine starts a BMC and gives the node of its machine.
func machine(t *testing.T) (*drivertest.BMC, *httptest.Server, *metal.Node) {
	t.Helper()
	bmc := drivertest.NewBMC("admin", password)
	server := httptest.NewServer(bmc)
	t.Cleanup(func() { bmc.Release(); server.Close() })
	return bmc, server, node(server.URL)
}

func node(address string) *metal.Node {
	return &metal.Node{ID: "11111111-2222-3333-4444-555555555555", DriverInfo: metal.Object{
		AddressKey: address, UsernameKey: "admin", PasswordKey: password,
	}}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func redfishMachine(t *testing.T, adjust func(*drivertest.BMC, *metal.Node)) drivertest.Machine {
	bmc := drivertest.NewBMC("admin", password)
	network := drivertest.NewNetwork(bmc)
	t.Cleanup(func() { bmc.Release(); network.Close() })
	n := node(network.URL)
	bmc.Delay = 5 * time.Millisecond
	if adjust != nil {
		adjust(bmc, n)
	}
	d := &Driver{Locks: &driver.AddressLocks{}}
	t.Cleanup(func() {
		if bmc.Overlapped() {
			t.Error("two requests were at the BMC at once")
		}
		if bmc.Sessions() > 0 {
			t.Errorf("%d sessions were left open", bmc.Sessions())
		}
	})
	return drivertest.Machine{
		Node: n, Power: d, Management: d, Boot: &Media{Driver: d, Files: files}, On: bmc.On,
		Parts:   &drivertest.Parts{BIOS: BIOS{d}, RAID: RAID{d}, Firmware: Firmware{d}, Vendor: Vendor{d}, Setting: "Cores", Value: "8"},
		Ramdisk: driver.Ramdisk{Kernel: "/k", Image: "/r", Params: []string{"a=b"}, BootNumber: 3, CarryToken: true},
		Break: func(f drivertest.Fault) bool {
			bmc.Break(f)
			if f == drivertest.Down {
				network.Close()
			}
			return true
		},
		Dial: network.Dial, Log: bmc.Log, Overheat: func() { bmc.SetTemperature(99, "Critical") },
		Secrets: []string{password, "aHVudGVy", "YWRtaW46"}, // plain, and parts of what basic auth makes of it
		Wrong: map[string]func(*metal.Node){
			"no address":       func(n *metal.Node) { delete(n.DriverInfo, AddressKey) },
			"not http":         func(n *metal.Node) { n.DriverInfo[AddressKey] = "ftp://host" },
			"user in address":  func(n *metal.Node) { n.DriverInfo[AddressKey] = "https://admin:" + password + "@host" },
			"path in address":  func(n *metal.Node) { n.DriverInfo[AddressKey] = network.URL + "/evil" },
			"wrong password":   func(n *metal.Node) { n.DriverInfo[PasswordKey] = password + "x" },
			"no such system":   func(n *metal.Node) { n.DriverInfo[SystemKey] = "/redfish/v1/Systems/9" },
			"system elsewhere": func(n *metal.Node) { n.DriverInfo[SystemKey] = "//elsewhere.invalid/x" },
			"auth type":        func(n *metal.Node) { n.DriverInfo[AuthKey] = "kerberos" },
		},
	}
}

func TestContract(t *testing.T) {
	for name, adjust := range map[string]func(*drivertest.BMC, *metal.Node){
		"basic":     nil,
		"session":   func(_ *drivertest.BMC, n *metal.Node) { n.DriverInfo[AuthKey] = "session" },
		"auto":      func(_ *drivertest.BMC, n *metal.Node) { n.DriverInfo[AuthKey] = "auto" },
		"etags":     func(b *drivertest.BMC, _ *metal.Node) { b.ETags = true },
		"weak":      func(b *drivertest.BMC, _ *metal.Node) { b.ETags, b.WeakETags, b.MediaInSystem = true, true, true },
		"moved":     func(b *drivertest.BMC, _ *metal.Node) { b.SystemsPath = "/redfish/v1/Machines" },
		"named":     func(b *drivertest.BMC, n *metal.Node) { b.Systems, n.DriverInfo[SystemKey] = 3, drivertest.SystemPath },
		"paged log": func(b *drivertest.BMC, _ *metal.Node) { b.SetLogFormat(drivertest.LogFormat{PageSize: 1}) },
		"newest log": func(b *drivertest.BMC, _ *metal.Node) {
			b.SetLogFormat(drivertest.LogFormat{PageSize: 2, NewestFirst: true})
		},
		"linked log": func(b *drivertest.BMC, _ *metal.Node) { b.SetLogFormat(drivertest.LogFormat{PageSize: 3, Links: true}) },
		"short id":   func(b *drivertest.BMC, n *metal.Node) { b.Systems, n.DriverInfo[SystemKey] = 3, "1" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.RunInMemory(t, func(t *testing.T) drivertest.Machine {
				r := redfishMachine(t, adjust)
				if name != "basic" && name != "session" {
					r.Break = nil // faults take time, and these differ in what a well BMC wants
				}
				if name == "session" {
					r.Parts = nil
				}
				return r
			})
		})
	}
}

func TestManySystemsNeedAName(t *testing.T) {
	bmc, _, n := machine(t)
	bmc.Systems = 2
	_, err := (&Driver{}).PowerState(t.Context(), n)
	if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), SystemKey) || !strings.Contains(err.Error(), "Systems/2") {
		t.Fatalf("%v; want invalid, naming %s and the systems", err, SystemKey)
	}
}

// A wrong password must not be tried more often than asked: BMCs lock accounts.
func TestWrongPasswordIsTriedOnce(t *testing.T) {
	for auth, requests := range map[string]int{"": 1, "basic": 1, "session": 1, "auto": 1} {
		bmc, _, n := machine(t)
		n.DriverInfo[PasswordKey] = "x"
		if auth != "" {
			n.DriverInfo[AuthKey] = auth
		}
		if err := (&Driver{}).SetPower(t.Context(), n, metal.PowerOn); !problem.Is(err, problem.Invalid) || bmc.Requests() != requests {
			t.Fatalf("%q: %v after %d requests; want one refusal", auth, err, bmc.Requests())
		}
	}
}

// The power of a hundred thousand machines is read every two minutes: a look is one request.
func TestALookAtThePowerIsOneRequest(t *testing.T) {
	bmc, _, n := machine(t)
	n.DriverInfo[SystemKey] = "/redfish/v1/Systems/1"
	if power, _, err := (&Driver{}).ReadPowerAndHealth(t.Context(), n); err != nil || power == metal.PowerUnknown || bmc.Requests() != 1 {
		t.Fatalf("power %q, %v after %d requests; want one", power, err, bmc.Requests())
	}
}

func TestMedia(t *testing.T) {
	bmc, _, n := machine(t)
	d := &Driver{Locks: &driver.AddressLocks{}}
	m := &Media{Driver: d, Files: files}
	foreign := "http://192.0.2.9/tools.iso"
	bmc.SetImage(foreign)
	if err := m.CleanUpRamdisk(drivertest.WithShortPauses(t.Context()), n); err != nil || bmc.Image() != foreign {
		t.Fatalf("clean-up: %v, image %q; another's medium must stay", err, bmc.Image())
	}
	var err error
	if n.Plan, err = m.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}); err != nil {
		t.Fatal(err)
	}
	must.OK(t, m.PrepareRamdisk(drivertest.WithShortPauses(t.Context()), n))
	want := "http://192.0.2.1:8088/boot/" + n.Plan.Path + "/boot.iso"
	if boot := bmc.Boot(); bmc.Image() != want || boot.Target != "Cd" || boot.Enabled != "Once" {
		t.Fatalf("image %q, override %+v; want %q and Cd once", bmc.Image(), boot, want)
	}
	before := bmc.Requests()
	if err := m.PrepareRamdisk(drivertest.WithShortPauses(t.Context()), n); err != nil || bmc.Image() != want {
		t.Fatalf("again: %v, image %q", err, bmc.Image())
	}
	t.Logf("a repeated prepare takes %d requests", bmc.Requests()-before)
	n.Plan = nil // a former boot's image, its plan long gone
	if err := m.CleanUpRamdisk(drivertest.WithShortPauses(t.Context()), n); err != nil || bmc.Image() != "" || bmc.Boot().Enabled != "Disabled" {
		t.Fatalf("clean-up: %v, image %q, override %+v", err, bmc.Image(), bmc.Boot())
	}
	bmc.Break(drivertest.Liar)
	n.Plan = &metal.BootPlan{URL: "http://192.0.2.1", Path: "x"}
	ctx, cancel := context.WithTimeout(drivertest.WithShortPauses(t.Context()), drivertest.Bound)
	defer cancel()
	if err := m.PrepareRamdisk(ctx, n); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "inserted=false") {
		t.Fatalf("media that is not inserted: %v", err)
	}
}

func TestHTTPBoot(t *testing.T) {
	bmc, _, n := machine(t)
	d := &Driver{}
	url := "http://192.0.2.1/boot/x/boot.efi"
	for range 2 {
		must.OK(t, d.SetHTTPBoot(t.Context(), n, url))
	}
	if got := bmc.Boot(); got.Target != "UefiHttp" || got.Enabled != "Once" || got.HTTPBootURI != url {
		t.Fatalf("override %+v", got)
	}
	bmc.NoHTTPBoot = true
	if err := d.SetHTTPBoot(t.Context(), n, url); err != nil || bmc.Boot().Target != "Pxe" {
		t.Fatalf("without the target: %v, override %+v", err, bmc.Boot())
	}
}

func TestBootModeIsWrittenOnlyToChangeIt(t *testing.T) {
	bmc, _, n := machine(t)
	must.OK(t, (&Driver{}).SetBootDevice(t.Context(), n, rescue.Boot{Device: "disk", Persistent: true, Mode: "bios"}))
	if got := bmc.Boot(); got.Mode != "Legacy" || got.Target != "Hdd" || got.Enabled != "Continuous" {
		t.Fatalf("override %+v", got)
	}
	got, err := (&Driver{}).BootDevice(t.Context(), n)
	if err != nil || got != (rescue.Boot{Device: "disk", Persistent: true, Mode: "bios"}) {
		t.Fatalf("read %+v, %v", got, err)
	}
	// A saved boot without an override still had a mode, which a rescue by UEFI HTTP may have changed.
	if err := (&Driver{}).SetBootDevice(t.Context(), n, rescue.Boot{Mode: "uefi"}); err != nil || bmc.Boot().Mode != "UEFI" || bmc.Boot().Enabled != "Disabled" {
		t.Fatalf("%v, override %+v", err, bmc.Boot())
	}
}

func TestInspect(t *testing.T) {
	_, _, n := machine(t)
	found, err := (&Driver{}).Inspect(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range (metal.Object{"cpus": 4.0, "memory_mb": 2048.0, "local_gb": 20.0, "cpu_arch": "x86_64"}) {
		if found.Properties[key] != want {
			t.Errorf("%s is %v, want %v", key, found.Properties[key], want)
		}
	}
	if !slices.Equal(found.MACs, []string{"52:54:00:aa:bb:01"}) {
		t.Errorf("macs %q", found.MACs)
	}
	size, cores, speed := int64(2048), 1, 10000
	frequency := "2100"
	want := &agent.Inventory{
		Interfaces: []agent.Interface{{Name: "NIC.1", MACAddress: "52:54:00:aa:bb:01", HasCarrier: true, SpeedMbps: &speed}},
		CPU:        agent.CPU{ModelName: "Acme 4T", Frequency: &frequency, Count: 4, Architecture: "x86_64", Flags: []string{}, SocketCount: &cores},
		Disks:      []agent.Disk{{Name: "Disk 0", Model: "D20", Size: 20 << 30, Vendor: text("Acme")}},
		Memory:     agent.Memory{Total: 2 << 30, PhysicalMB: &size},
		SystemVendor: agent.Vendor{
			ProductName: "One", SerialNumber: "S1", Manufacturer: "Acme", Firmware: &agent.Firmware{Version: "2.1"},
		},
		Boot: agent.Boot{CurrentBootMode: "uefi"},
	}
	if got := found.Inventory; !reflect.DeepEqual(got, want) {
		t.Errorf("the inventory is\n%s\nwant\n%s", must.Get(json.Marshal(got))(t), must.Get(json.Marshal(want))(t))
	}
}

// TestInspectOfDrives: a machine without SimpleStorage tells of the drives of its controllers. A number that a BMC writes as text counts too.
func TestInspectOfDrives(t *testing.T) {
	bmc := drivertest.NewBMC("admin", password)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case drivertest.SystemPath + "/SimpleStorage":
			_, _ = io.WriteString(w, `{"Members": []}`)
		case drivertest.SystemPath + "/EthernetInterfaces/0":
			_, _ = io.WriteString(w, `{"Id": "E0", "MACAddress": "52:54:00:aa:bb:01", "SpeedMbps": "1000", "LinkStatus": "LinkDown"}`)
		case drivertest.SystemPath + "/Storage/RAID1/Drives/D2":
			_, _ = io.WriteString(w, `{"Id": "D2", "Name": "", "CapacityBytes": 107374182400, "MediaType": "HDD", "Manufacturer": "Acme", "SerialNumber": "D2S"}`)
		default:
			bmc.ServeHTTP(w, r)
		}
	}))
	defer server.Close()
	found, err := (&Driver{}).Inspect(t.Context(), node(server.URL))
	if err != nil {
		t.Fatal(err)
	}
	disks, nics := found.Inventory.Disks, found.Inventory.Interfaces
	if len(disks) != 3 || disks[1].Name != "D2" || !disks[1].Rotational || disks[0].Rotational || disks[1].Size != 100<<30 || *disks[1].Serial != "D2S" {
		t.Errorf("disks %+v", disks)
	}
	if len(nics) != 1 || nics[0].HasCarrier || nics[0].SpeedMbps == nil || *nics[0].SpeedMbps != 1000 {
		t.Errorf("interfaces %+v", nics)
	}
}

func text(s string) *string { return &s }

func TestCertificates(t *testing.T) {
	bmc := drivertest.NewBMC("admin", password)
	server := httptest.NewUnstartedServer(bmc)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must.OK(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	words := map[string]bool{}
	for _, path := range []string{"/nowhere", "/etc/passwd", t.TempDir(), "/proc/self/mem"} {
		_, err := loadCertPool(path)
		if err == nil {
			t.Fatal(path)
		}
		words[strings.ReplaceAll(err.Error(), path, "")] = true
	}
	if len(words) != 1 {
		t.Errorf("errors tell files apart: %v", words)
	}
	for _, c := range []struct {
		verify any
		want   bool
	}{{nil, false}, {true, false}, {"True", false}, {false, true}, {"false", true}, {ca, true}, {ca + "x", false}, {7.0, false}} {
		n := node(strings.TrimPrefix(server.URL, "https://")) // no scheme: https
		n.DriverInfo[VerifyKey] = c.verify
		_, err := (&Driver{}).PowerState(t.Context(), n)
		if c.want != (err == nil) || (err != nil && !problem.Is(err, problem.Invalid)) {
			t.Errorf("%s=%v: %v", VerifyKey, c.verify, err)
		}
	}
}

// Each status has the kind of who can mend it.
func TestKinds(t *testing.T) {
	t.Parallel() // salvor asks again after a pause
	for code, kind := range map[int]problem.Kind{
		400: problem.Invalid, 401: problem.Invalid, 403: problem.Invalid, 404: problem.Invalid, 405: problem.Unsupported, 409: problem.Unavailable,
		412: problem.Unavailable, 422: problem.Invalid, 429: problem.Unavailable, 500: problem.Unavailable, 501: problem.Unsupported, 503: problem.Unavailable,
	} {
		for _, body := range []string{"", "<html>" + password, `{"error":{"message":"` + password + `\u0000\n"}}`, `{"error":7}`, `{"error":{"@Message.ExtendedInfo":[{"Message":"` + strings.Repeat("x", 5000) + `"}]}}`} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/redfish/v1/" {
					_, _ = w.Write([]byte("{}"))
					return
				}
				w.WriteHeader(code)
				_, _ = w.Write([]byte(body))
			}))
			n := node(server.URL)
			n.DriverInfo[SystemKey] = drivertest.SystemPath
			_, err := (&Driver{}).PowerState(drivertest.WithShortPauses(t.Context()), n)
			server.Close()
			if !problem.Is(err, kind) || strings.Contains(err.Error(), password) || strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 600 {
				t.Errorf("%d: %v (%s), want %s", code, err, problem.KindOf(err), kind)
			}
			if shown := problem.Redact(err.Error()); strings.Contains(shown, "xxx") || strings.Contains(shown, "html") {
				t.Errorf("%d: a tenant is shown what the BMC wrote: %s", code, shown)
			}
		}
	}
}

// TestALackingLicenceIsTold: vendors tell of it by ids of their own and with any status; nobody mends it by asking again.
func TestALackingLicenceIsTold(t *testing.T) {
	for id, lacks := range map[string]bool{
		"iLO.2.14.LicenseKeyRequired": true, "SMC.1.0.OemLicenseNotPassed": true, "IDRAC.2.8.LIC501": true, "IDRAC.2.8.RAC0720": false, "Base.1.8.InsufficientPrivilege": false,
	} {
		for _, code := range []int{400, 403, 500} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/redfish/v1/" {
					_, _ = w.Write([]byte("{}"))
					return
				}
				w.WriteHeader(code)
				_, _ = w.Write([]byte(`{"error":{"@Message.ExtendedInfo":[{"MessageId":"` + id + `","Message":"no"}]}}`))
			}))
			n := node(server.URL)
			n.DriverInfo[SystemKey] = drivertest.SystemPath
			_, err := (&Driver{}).PowerState(drivertest.WithShortPauses(t.Context()), n)
			server.Close()
			if told := errors.Is(err, driver.ErrLicence) && problem.Is(err, problem.Unsupported) && strings.Contains(err.Error(), "licence"); told != lacks {
				t.Errorf("%s with %d: %v", id, code, err)
			}
		}
	}
}

// Many at once: one BMC sees one request at a time, and nobody is left out.
func TestOneAtATime(t *testing.T) {
	bmc, _, n := machine(t)
	d := &Driver{Locks: &driver.AddressLocks{}}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := d.PowerState(t.Context(), n); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if bmc.Overlapped() {
		t.Error("requests overlapped")
	}
}

// TestILOKeys: a node of the hardware type ilo is reached by its own keys, and errors name them.
func TestILOKeys(t *testing.T) {
	bmc, server, _ := machine(t)
	host, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	n := &metal.Node{ID: "n1", Driver: ILO, DriverInfo: metal.Object{
		ILOAddressKey: "http://" + host, "client_port": port, "ilo_username": "admin", "ilo_password": password,
	}}
	must.OK(t, (&Driver{}).SetPower(t.Context(), n, metal.PowerOn))
	if !bmc.On() {
		t.Error("the machine is off")
	}
	if n.DriverInfo[AddressKey] != nil {
		t.Error("the record was changed")
	}
	n.DriverInfo["ilo_password"] = "x"
	if _, err := (&Driver{}).PowerState(t.Context(), n); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "ilo_password") || strings.Contains(err.Error(), PasswordKey) {
		t.Errorf("%v; want the record's own keys", err)
	}
}
