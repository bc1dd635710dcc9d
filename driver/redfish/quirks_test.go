package redfish

import (
	"crypto/tls"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
)

func TestQuirkTable(t *testing.T) {
	for _, q := range quirks {
		if q.source == "" || q.value == "" || len(q.vendors)+len(q.models) == 0 {
			t.Errorf("%+v: a row needs a vendor or model, a value and a source", q)
		}
		for _, word := range slices.Concat(q.vendors, q.models, q.notModels) {
			if word != strings.ToLower(word) {
				t.Errorf("%+v: %q has capital letters, and matches nothing", q, word)
			}
		}
		n := &metal.Node{DriverInfo: metal.Object{QuirksKey: map[string]any{string(q.kind): q.value}}}
		if _, err := parseQuirks(n); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
	for _, c := range []struct {
		of    bmcIdentity
		facts string
	}{
		{bmcIdentity{}, ""},
		{bmcIdentity{vendor: "Acme", model: "X10"}, ""},
		{bmcIdentity{vendor: "Supermicro", model: "SYS-821GE-TNHR"}, "boot_body=full cd_target=UsbCd"},
		{bmcIdentity{vendor: "Supermicro", model: "ARS-111GL-NHR"}, "boot_body=full"},
		{bmcIdentity{vendor: "AMI"}, "boot_body=full"},
		{bmcIdentity{vendor: "Miami Servers"}, ""},
		{bmcIdentity{vendor: "American Megatrends International LLC"}, "boot_body=full"},
		{bmcIdentity{vendor: "Lenovo", model: "ThinkSystem SR670 V2"}, "drive_order=EXT"},
		{bmcIdentity{vendor: "Dell Inc.", model: "PowerEdge R740", bmcModel: "14G Monolithic", firmware: "5.10.50.00"}, "cd_boot=idrac"},
		{bmcIdentity{vendor: "Dell Inc.", model: "PowerEdge R750", bmcModel: "15G Monolithic", firmware: "6.00.02.00"}, ""},
		{bmcIdentity{vendor: "Dell Inc.", model: "PowerEdge R750", bmcModel: "15G Monolithic"}, ""},
		{bmcIdentity{vendor: "Dell Inc.", bmcModel: "17G Monolithic", firmware: "1.20.25.00"}, "drive_only=1"},
	} {
		if got := strings.Join(bmcFacts{identity: c.of}.texts(), " "); got != c.facts {
			t.Errorf("%+v: %s, want %s", c.of, got, c.facts)
		}
	}
}

// TestQuirksOfARecord: driver_info overrules the table, and what it may not say is refused in words.
func TestQuirksOfARecord(t *testing.T) {
	of := bmcIdentity{vendor: "Supermicro"}
	for _, c := range []struct {
		own   any
		facts string
		err   string
	}{
		{nil, "boot_body=full cd_target=UsbCd", ""},
		{"cd_target=Cd settle=5s", "boot_body=full cd_target=Cd settle=5s", ""},
		{map[string]any{"cd_target": "", "auth": "session"}, "auth=session boot_body=full", ""},
		{"cd_target=Floppy", "", "it may be Cd, UsbCd"},
		{"colour=red", "", "unknown kind"},
		{"settle=1h", "", "at most 2m0s"},
		{7.0, "", "must be an object"},
	} {
		n := &metal.Node{DriverInfo: metal.Object{QuirksKey: c.own}}
		own, err := parseQuirks(n)
		if c.err != "" {
			if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %v, want %s", c.own, err, c.err)
			}
			continue
		}
		if got := strings.Join(bmcFacts{of, own}.texts(), " "); err != nil || got != c.facts {
			t.Errorf("%v: %s %v, want %s", c.own, got, err, c.facts)
		}
	}
}

// TestSupermicroBootsTheVirtualCD: the system says who made it, so the right target is set without a word from an operator.
func TestSupermicroBootsTheVirtualCD(t *testing.T) {
	f := &foreignBMC{show: func(path string, doc map[string]any) {
		if path == drivertest.SystemPath {
			doc["Manufacturer"], doc["Model"] = "Supermicro", "SYS-821GE-TNHR"
			bootOf(doc)["BootSourceOverrideTarget@Redfish.AllowableValues"] = []string{"None", "Pxe", "Hdd", "Cd", "UsbCd"}
		}
	}}
	n := startForeign(t, f)
	d := &Driver{}
	must.OK(t, d.SetBootDevice(t.Context(), n, rescue.Boot{Device: "cdrom"}))
	if boot := f.Boot(); boot.Target != "UsbCd" || boot.Mode != "UEFI" {
		t.Errorf("the BMC has %+v", boot)
	}
	if got := must.Get(d.BootDevice(t.Context(), n))(t); got.Device != "cdrom" {
		t.Errorf("read back: %+v", got)
	}
	b := must.Get(d.DescribeBMC(t.Context(), n))(t)
	if b.Vendor != "Supermicro" || b.Model != "SYS-821GE-TNHR" || b.Firmware != "7.0" || !slices.Equal(b.Quirks, []string{"boot_body=full", "cd_target=UsbCd"}) {
		t.Errorf("%+v", b)
	}
}

// TestOldIDRACBootsTheVirtualCD: firmware before 6.00 takes the target Cd for the physical drive, so its own attributes are set.
func TestOldIDRACBootsTheVirtualCD(t *testing.T) {
	f := &foreignBMC{}
	f.attributes = map[string]any{dellFirstBoot: "Normal", dellBootOnce: "Disabled"}
	n := startForeign(t, f)
	metal.KeepBMC(n, metal.BMC{ReadAt: time.Now(), Vendor: "Dell Inc.", BMCModel: "14G Monolithic", Firmware: "5.10.50.00"})
	f.show = func(path string, doc map[string]any) {
		if path == drivertest.SystemPath {
			doc["Manufacturer"], doc["Model"] = "Dell Inc.", "PowerEdge R740"
		}
	}
	must.OK(t, (&Driver{}).SetBootDevice(t.Context(), n, rescue.Boot{Device: "cdrom"}))
	if f.attributes[dellFirstBoot] != dellVirtualCD || f.attributes[dellBootOnce] != "Enabled" || f.Boot().Target == "Cd" {
		t.Errorf("attributes %v, boot %+v", f.attributes, f.Boot())
	}
}

// TestValidateByQuirks: what cannot work is said before a machine is touched.
func TestValidateByQuirks(t *testing.T) {
	m := &Media{Driver: &Driver{}}
	n := node("http://192.0.2.1")
	b := metal.BMC{ReadAt: time.Now(), DrivesKnown: true, Drives: []string{"CD"}, Vendor: "Acme", Model: "One"}
	metal.KeepBMC(n, b)
	must.OK(t, m.CheckBMC(n, b))
	for _, own := range []string{"virtual_media=none", "cd_boot=physical"} {
		n.DriverInfo[QuirksKey] = own
		if err := m.CheckBMC(n, b); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "set boot_interface to ipxe or http") {
			t.Errorf("%s: %v", own, err)
		}
	}
}

// TestMakerOfAnOldIDRAC: iDRAC9 3.34 names its maker in the Oem member of the service root alone.
func TestMakerOfAnOldIDRAC(t *testing.T) {
	f := &foreignBMC{show: func(path string, doc map[string]any) {
		switch {
		case strings.TrimRight(path, "/") == "/redfish/v1":
			doc["Oem"] = map[string]any{"Dell": map[string]any{}}
		case path == drivertest.SystemPath:
			doc["Manufacturer"] = ""
		case strings.HasSuffix(path, "/Managers/bmc"):
			doc["Model"], doc["FirmwareVersion"] = "14G Modular", "3.34.34.34"
		}
	}}
	if b := must.Get((&Driver{}).DescribeBMC(t.Context(), startForeign(t, f)))(t); b.Vendor != "Dell" || strings.Join(b.Quirks, " ") != "cd_boot=idrac" {
		t.Errorf("%+v", b)
	}
}

// TestNothingIsTakenForGone: where the settings resource alone takes the boot device, the system's own says nothing about what is pending.
func TestNothingIsTakenForGone(t *testing.T) {
	tree := fstest.MapFS{}
	for path, text := range map[string]string{
		"redfish/v1/Systems": `{"Members":[{"@odata.id":"/redfish/v1/Systems/1"}]}`,
		"redfish/v1/Systems/1": `{"PowerState":"Off","Boot":{"BootSourceOverrideEnabled":"Disabled","BootSourceOverrideTarget":"None"},
			"@Redfish.Settings":{"SettingsObject":{"@odata.id":"/redfish/v1/Systems/1/SD"}}}`,
		"redfish/v1/Systems/1/SD": `{"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Pxe",
			"BootSourceOverrideTarget@Redfish.AllowableValues":["None","Pxe","Hdd"]}}`,
	} {
		tree[path+"/index.json"] = &fstest.MapFile{Data: []byte(text)}
	}
	replay := drivertest.NewReplay(tree, nil)
	server := httptest.NewServer(replay)
	defer server.Close()
	must.OK(t, (&Driver{}).SetBootDevice(t.Context(), node(server.URL), rescue.Boot{}))
	if got := strings.Join(replay.Writes(), "; "); got != `PATCH /Systems/1/SD {"Boot":{"BootSourceOverrideEnabled":"Disabled","BootSourceOverrideTarget":"None"}}` {
		t.Errorf("the BMC was told %s", got)
	}
}

// TestTLSProfiles: a BMC with old TLS works with the option that its refusal names, or the refusal is final at once.
func TestTLSProfiles(t *testing.T) {
	suite := func(ids ...uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.CipherSuites, c.MaxVersion = ids, tls.VersionTLS12 }
	}
	version := func(v uint16) func(*tls.Config) { return func(c *tls.Config) { c.MinVersion, c.MaxVersion = v, v } }
	for _, c := range []struct {
		name   string
		server func(*tls.Config)
		option string // "" works without
	}{
		{"TLS 1.3", version(tls.VersionTLS13), ""},
		{"TLS 1.2", version(tls.VersionTLS12), ""},
		{"TLS 1.1", version(tls.VersionTLS11), TLSMinimumKey},
		{"TLS 1.0", version(tls.VersionTLS10), TLSMinimumKey},
		{"ECDHE with CBC", suite(tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA), ""},
		{"RSA key exchange, GCM", suite(tls.TLS_RSA_WITH_AES_128_GCM_SHA256), TLSLegacyKey},
		{"RSA key exchange, CBC", suite(tls.TLS_RSA_WITH_AES_256_CBC_SHA), TLSLegacyKey},
		{"3DES", suite(tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA), TLSLegacyKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			bmc := drivertest.NewBMC("admin", password)
			server := httptest.NewUnstartedServer(bmc)
			server.TLS = &tls.Config{MinVersion: tls.VersionTLS10}
			c.server(server.TLS)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(func() { bmc.Release(); server.Close() })
			n := node(server.URL)
			n.DriverInfo[VerifyKey] = false
			d := &Driver{Locks: &driver.AddressLocks{}}
			_, err := d.PowerState(t.Context(), n)
			if c.option == "" {
				must.OK(t, err)
				return
			}
			if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), c.option) {
				t.Fatalf("%v; want invalid, naming %s", err, c.option)
			}
			n.DriverInfo[TLSMinimumKey], n.DriverInfo[TLSLegacyKey] = "1.0", true
			must.Get(d.PowerState(t.Context(), n))(t)
		})
	}
	n := node("https://192.0.2.1")
	n.DriverInfo[TLSMinimumKey] = "0.9"
	if _, err := (&Driver{}).PowerState(t.Context(), n); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "1.0, 1.1, 1.2, 1.3") {
		t.Errorf("%v", err)
	}
}

// TestPageOfQuirks: docs/hardware.md has each kind and each row.
func TestPageOfQuirks(t *testing.T) {
	page := string(must.Get(os.ReadFile("../../docs/hardware.md"))(t))
	for kind := range quirkValues {
		if !strings.Contains(page, "| `"+string(kind)+"` |") {
			t.Errorf("the page lacks the kind %s", kind)
		}
	}
	for _, q := range quirks {
		if !strings.Contains(page, "`"+string(q.kind)+"="+q.value+"` | "+q.source+" |") {
			t.Errorf("the page lacks the row %s=%s of %s", q.kind, q.value, q.source)
		}
	}
}

// TestEachQuirkHasItsText: driver_internal_info and why tell a quirk in words.
func TestEachQuirkHasItsText(t *testing.T) {
	for kind := range quirkValues {
		if strings.Count(quirkTexts[kind], "%s") != 1 {
			t.Errorf("%s: the text %q has no place for the value", kind, quirkTexts[kind])
		}
	}
	f := bmcFacts{own: map[quirkKind]string{quirkSettle: "5s", quirkCDTarget: "UsbCd"}}
	if got := strings.Join(f.inWords(), ", "); got != "boots the virtual CD by the boot target UsbCd, waits 5s after a power off" {
		t.Errorf("%s", got)
	}
}

// TestABMCThatIsAnotherAfterItsUpdate: rows of the model and firmware that it had before hold no more once it is read again.
func TestABMCThatIsAnotherAfterItsUpdate(t *testing.T) {
	f := &foreignBMC{}
	f.attributes = map[string]any{dellFirstBoot: "Normal", dellBootOnce: "Disabled"}
	for _, now := range []struct{ vendor, model, manager, firmware, quirks, target string }{
		{"Dell Inc.", "PowerEdge R740", "14G Monolithic", "7.00.00.00", "", "Cd"},
		{"Supermicro", "SYS-821GE-TNHR", "", "1.2", "boot_body=full cd_target=UsbCd", "UsbCd"},
	} {
		f.show = func(path string, doc map[string]any) {
			switch {
			case path == drivertest.SystemPath:
				doc["Manufacturer"], doc["Model"] = now.vendor, now.model
				bootOf(doc)["BootSourceOverrideTarget@Redfish.AllowableValues"] = []string{"None", "Pxe", "Hdd", "Cd", "UsbCd"}
			case strings.HasSuffix(path, "/Managers/bmc"):
				doc["Model"], doc["FirmwareVersion"] = now.manager, now.firmware
			}
		}
		n, d := startForeign(t, f), &Driver{}
		metal.KeepBMC(n, metal.BMC{ReadAt: time.Now(), Vendor: "Dell Inc.", Model: "PowerEdge R740", BMCModel: "14G Monolithic", Firmware: "5.10.50.00", Quirks: []string{"cd_boot=idrac"}})
		b := must.Get(d.DescribeBMC(t.Context(), n))(t)
		if b.Vendor != now.vendor || b.Model != now.model || b.Firmware != now.firmware || strings.Join(b.Quirks, " ") != now.quirks {
			t.Errorf("%s: %+v", now.model, b)
		}
		metal.KeepBMC(n, b)
		must.OK(t, d.SetBootDevice(t.Context(), n, rescue.Boot{Device: "cdrom"}))
		if f.Boot().Target != now.target || f.attributes[dellBootOnce] != "Disabled" {
			t.Errorf("%s: boot %+v, attributes %v", now.model, f.Boot(), f.attributes)
		}
	}
}
