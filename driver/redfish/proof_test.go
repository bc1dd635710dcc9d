package redfish

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/driver/redfish/link"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
)

// TestBusyBMCHasNotClearedTheOverride: a BMC that has no time while the override is removed may boot the medium once more, so the caller tries again.
func TestBusyBMCHasNotClearedTheOverride(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusConflict, http.StatusBadGateway, http.StatusGatewayTimeout} {
		synctest.Test(t, func(t *testing.T) {
			isBusy := false
			f := &foreignBMC{refuse: func(string, string, map[string]any) (int, string, []string) {
				if isBusy {
					return status, "Base.1.0.GeneralError", nil
				}
				return 0, "", nil
			}}
			ctx, n := startForeignInMemory(t, f)
			ctx, notes := driver.WithNotes(ctx)
			d := &Driver{}
			must.OK(t, d.SetBootDevice(ctx, n, rescue.Boot{Device: "cdrom"}))
			isBusy = true
			if err := d.SetBootDevice(ctx, n, rescue.Boot{}); !problem.Is(err, problem.Unavailable) || len(notes.Texts()) != 0 {
				t.Errorf("%d while the override is removed: %v; notes %q", status, err, notes.Texts())
			}
			isBusy = false
			must.OK(t, d.SetBootDevice(ctx, n, rescue.Boot{}))
			if boot := f.Boot(); boot.Enabled != "Disabled" && boot.Target != "None" {
				t.Errorf("%d: the BMC has %+v", status, boot)
			}
		})
	}
}

// TestRefusedLoginHasNotClearedTheOverride: a BMC that has a new password keeps the override, and the operator is told.
func TestRefusedLoginHasNotClearedTheOverride(t *testing.T) {
	f := &foreignBMC{refuse: func(_, _ string, body map[string]any) (int, string, []string) {
		if boot := bootOf(body); boot != nil && boot["BootSourceOverrideTarget"] != "Cd" {
			return http.StatusUnauthorized, "Base.1.0.NoValidSession", nil
		}
		return 0, "", nil
	}}
	n := startForeign(t, f)
	must.OK(t, (&Driver{}).SetBootDevice(t.Context(), n, rescue.Boot{Device: "cdrom"}))
	if err := (&Driver{}).SetBootDevice(t.Context(), n, rescue.Boot{}); err == nil {
		t.Error("a BMC that refuses the login has cleared the override")
	}
}

// newIDRAC is an iDRAC that takes the boot target Cd for a physical drive.
func newIDRAC(t *testing.T) (*foreignBMC, *metal.Node) {
	t.Helper()
	f := &foreignBMC{attributes: map[string]any{dellFirstBoot: "Normal", dellBootOnce: "Enabled"}}
	f.show = func(path string, doc map[string]any) {
		if path == drivertest.SystemPath {
			doc["Manufacturer"], doc["Model"] = "Dell Inc.", "PowerEdge R740"
		}
	}
	n := startForeign(t, f)
	metal.KeepBMC(n, metal.BMC{ReadAt: time.Now(), Vendor: "Dell Inc.", BMCModel: "14G Monolithic", Firmware: "5.10.50.00"})
	return f, n
}

// TestIDRACThatKeepsItsBootDevice: an iDRAC that takes the order and boots the disk all the same has not set the virtual CD.
func TestIDRACThatKeepsItsBootDevice(t *testing.T) {
	f, n := newIDRAC(t)
	f.keepsAttributes = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := (&Driver{}).SetBootDevice(ctx, n, rescue.Boot{Device: "cdrom"}); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), dellFirstBoot) {
		t.Errorf("an iDRAC that boots the disk: %v", err)
	}
}

// TestIDRACBootsTheVirtualCDForGood where the medium holds the instance: a boot for once would lead to the disk at the second start.
func TestIDRACBootsTheVirtualCDForGood(t *testing.T) {
	f, n := newIDRAC(t)
	must.OK(t, (&Driver{}).SetBootDevice(t.Context(), n, rescue.Boot{Device: "cdrom", Persistent: true}))
	if want := map[string]any{dellFirstBoot: dellVirtualCD, dellBootOnce: "Disabled"}; !maps.Equal(f.attributes, want) {
		t.Errorf("attributes %v, want %v", f.attributes, want)
	}
}

// TestOverrideThatIsNotShown: a BMC that takes a boot device and shows another one boots that one.
func TestOverrideThatIsNotShown(t *testing.T) {
	f := &foreignBMC{show: func(path string, doc map[string]any) {
		if boot := bootOf(doc); boot != nil && path == drivertest.SystemPath {
			boot["BootSourceOverrideTarget"], boot["BootSourceOverrideEnabled"] = "Hdd", "Once"
		}
	}}
	n := startForeign(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := (&Driver{}).SetBootDevice(ctx, n, rescue.Boot{Device: "pxe"}); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "Hdd") {
		t.Errorf("network boot on a BMC that shows the disk: %v", err)
	}
}

// TestMediaAreProven: a medium that is not in the drive after the order boots nothing, and one that stays may boot once more.
func TestMediaAreProven(t *testing.T) {
	isShown, isStuck := "", false
	f := &foreignBMC{show: func(path string, doc map[string]any) {
		if strings.HasSuffix(path, "/VirtualMedia/Cd") && isShown != "" && (isStuck || doc["Inserted"] == true) {
			doc["Image"], doc["Inserted"] = isShown, true
		}
	}}
	n := startForeign(t, f)
	m := &Media{Driver: &Driver{}, Files: files}
	n.Plan = must.Get(m.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r"}))(t)
	order := func(what string, fn func(context.Context, *metal.Node) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(drivertest.WithShortPauses(t.Context()), time.Second)
		defer cancel()
		if err := fn(ctx, n); !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s of a medium that the drive does not follow: %v", what, err)
		}
	}
	isShown = "http://192.0.2.9/tools.iso" // whatever is inserted
	order("insert", m.PrepareRamdisk)
	isShown, isStuck = n.Plan.ISOURL(), true // whatever is ejected
	order("eject", m.CleanUpRamdisk)
}

// TestLegacyTLSHasNoRC4, and without the option there are no old cipher suites at all.
func TestLegacyTLSHasNoRC4(t *testing.T) {
	n := node("https://192.0.2.1")
	if c := must.Get(newTLSConfig(n, ""))(t); c.MinVersion != tls.VersionTLS12 || c.CipherSuites != nil || c.InsecureSkipVerify {
		t.Errorf("by default: version %#x, suites %v, unverified %v", c.MinVersion, c.CipherSuites, c.InsecureSkipVerify)
	}
	n.DriverInfo[TLSLegacyKey] = "true"
	c := must.Get(newTLSConfig(n, "1.0"))(t)
	if c.MinVersion != tls.VersionTLS10 || !slices.Contains(c.CipherSuites, tls.TLS_RSA_WITH_AES_128_CBC_SHA) {
		t.Errorf("old: version %#x, suites %v", c.MinVersion, c.CipherSuites)
	}
	for _, suite := range c.CipherSuites {
		if strings.Contains(tls.CipherSuiteName(suite), "RC4") {
			t.Errorf("%s is offered", tls.CipherSuiteName(suite))
		}
	}
}

// TestRAIDTakesNoDiskInUse: a volume is made of free drives alone, of the wanted kind, unless the drives are named or shared.
func TestRAIDTakesNoDiskInUse(t *testing.T) {
	disk := func(id, media string) *physicalDrive {
		return &physicalDrive{ID: id, MediaType: media, Protocol: "SAS", path: "/d/" + id}
	}
	used := &raidVolume{}
	used.Links.Drives = link.Links{{Path: "/d/1"}}
	c := &storageController{disks: []*physicalDrive{disk("1", "HDD"), disk("2", "SSD"), disk("3", "HDD"), disk("4", "HDD")}, volumes: []*raidVolume{used}}
	for _, w := range []struct {
		name  string
		disk  logicalDisk
		count int
		want  string
	}{
		{"free drives", logicalDisk{}, 2, "/d/2 /d/3"},
		{"free drives of a kind", logicalDisk{media: "HDD"}, 2, "/d/3 /d/4"},
		{"too few free drives", logicalDisk{media: "HDD"}, 3, ""},
		{"shared drives", logicalDisk{share: true}, 2, "/d/1 /d/2"},
		{"named drives", logicalDisk{disks: []string{"4", "2"}}, 2, "/d/2 /d/4"},
		{"a named drive that is not there", logicalDisk{disks: []string{"4", "9"}}, 2, ""},
		{"another protocol", logicalDisk{protocol: "NVME"}, 1, ""},
	} {
		var got []string
		for _, link := range w.disk.choose(c, w.count) {
			got = append(got, link.Path)
		}
		if strings.Join(got, " ") != w.want {
			t.Errorf("%s: %q, want %q", w.name, got, w.want)
		}
	}
}

// TestVolumesOfOthersAreNotTaken: a volume counts as the wanted one by its level, its size, its name and its controller.
func TestVolumesOfOthersAreNotTaken(t *testing.T) {
	size := 100.0 * gib
	v := &raidVolume{Name: "data", RAIDType: "RAID1", CapacityBytes: &size}
	all := []*storageController{{ID: "C1", volumes: []*raidVolume{v}}}
	for name, c := range map[string]struct {
		disk logicalDisk
		want bool
	}{
		"the same":           {logicalDisk{level: "1", bytes: 101 * gib}, true},
		"any size":           {logicalDisk{level: "1"}, true},
		"a larger one":       {logicalDisk{level: "1", bytes: 110 * gib}, false},
		"a smaller one":      {logicalDisk{level: "1", bytes: 90 * gib}, false},
		"another level":      {logicalDisk{level: "5"}, false},
		"another name":       {logicalDisk{level: "1", name: "root"}, false},
		"another controller": {logicalDisk{level: "1", controller: "C2"}, false},
		"its name and place": {logicalDisk{level: "1", name: "data", controller: "C1"}, true},
	} {
		if got := c.disk.found(all, map[*raidVolume]bool{}); got != c.want {
			t.Errorf("%s: found %v", name, got)
		}
		if c.disk.found(all, map[*raidVolume]bool{v: true}) {
			t.Errorf("%s: a volume is taken twice", name)
		}
	}
}

// TestWantedVolumesStay: delete_existing removes what the target configuration does not have, and keeps what it has.
func TestWantedVolumesStay(t *testing.T) {
	const storage = "redfish/v1/Systems/1/Storage"
	tree := fstest.MapFS{}
	for path, text := range map[string]string{
		"redfish/v1/Systems":        `{"Members":[{"@odata.id":"/redfish/v1/Systems/1"}]}`,
		"redfish/v1/Systems/1":      `{"PowerState":"Off","Storage":{"@odata.id":"/` + storage + `"}}`,
		storage:                     `{"Members":[{"@odata.id":"/` + storage + `/1"}]}`,
		storage + "/1":              `{"Id":"1","Drives":[],"Volumes":{"@odata.id":"/` + storage + `/1/Volumes"}}`,
		storage + "/1/Volumes":      `{"Members":[{"@odata.id":"/` + storage + `/1/Volumes/data"},{"@odata.id":"/` + storage + `/1/Volumes/old"}]}`,
		storage + "/1/Volumes/data": `{"Id":"data","Name":"data","RAIDType":"RAID1","CapacityBytes":107374182400}`,
		storage + "/1/Volumes/old":  `{"Id":"old","Name":"old","RAIDType":"RAID0","CapacityBytes":107374182400}`,
	} {
		tree[path+"/index.json"] = &fstest.MapFile{Data: []byte(text)}
	}
	replay := drivertest.NewReplay(tree, nil)
	server := httptest.NewServer(replay)
	defer server.Close()
	n := node(server.URL)
	n.TargetRAID = metal.Object{"logical_disks": []any{
		map[string]any{"raid_level": "1", "size_gb": 100.0, "volume_name": "data"}, map[string]any{"raid_level": "5", "size_gb": 50.0},
	}}
	_, err := RAID{&Driver{}}.RunStep(t.Context(), n, step("raid", "create_configuration", metal.Object{"delete_existing": true}))
	if got := strings.Join(replay.Writes(), "; "); err != nil || got != "DELETE /Systems/1/Storage/1/Volumes/old null" {
		t.Errorf("the BMC was told %q: %v", got, err)
	}
}

// TestUnreadHealthIsNotWhole: parts that a BMC has no time to show may be unhealthy. A part that it does not have is none.
func TestUnreadHealthIsNotWhole(t *testing.T) {
	for status, want := range map[int]bool{http.StatusServiceUnavailable: true, http.StatusNotFound: false} {
		_, n := newOdd(t, func(_ *odd, w http.ResponseWriter, _, path string) bool {
			return strings.HasPrefix(path, "/redfish/v1/Chassis") && answerJSON(w, status, map[string]any{})
		})
		if health := must.Get((&Driver{}).ReadHealth(drivertest.WithShortPauses(t.Context()), n))(t); health.Truncated != want {
			t.Errorf("a chassis with status %d: %+v", status, health)
		}
	}
}

// TestPasswordsInRefusals: a BMC that repeats the login in what it refuses does not get the login shown.
func TestPasswordsInRefusals(t *testing.T) {
	basic := base64.StdEncoding.EncodeToString([]byte("admin:" + password))
	f := &foreignBMC{refuse: func(string, string, map[string]any) (int, string, []string) {
		return http.StatusBadRequest, "wrong: " + password + " and " + basic, nil
	}}
	err := (&Driver{}).SetBootDevice(t.Context(), startForeign(t, f), rescue.Boot{Device: "pxe"})
	if err == nil || !strings.Contains(err.Error(), "wrong:") || strings.Contains(err.Error(), password) || strings.Contains(err.Error(), basic) {
		t.Errorf("the refusal reads %v", err)
	}
}

// TestPrivateResourcesAreNotRecorded: a recording does not follow links to accounts, sessions, logs and certificates.
func TestPrivateResourcesAreNotRecorded(t *testing.T) {
	doc := map[string]any{}
	for i, path := range []string{"Systems/1", "AccountService/Accounts/1", "SessionService/Sessions", "Systems/1/LogServices/Log/Entries", "Managers/1/Certificates/1", "EventService/Subscriptions/2"} {
		doc[strconv.Itoa(i)] = map[string]any{"@odata.id": "/redfish/v1/" + path}
	}
	if got := linksOf(doc); !slices.Equal(got, []string{"/redfish/v1/Systems/1"}) {
		t.Errorf("it records %q", got)
	}
}

// TestVersions are compared by their numbers.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"10.0", "9.0", 1}, {"5.10.50.00", "6.0", -1}, {"6.00.02", "6.0", 1}, {"6.0", "6.00.00", 0}, {"", "6.0", -1}, {"v7.1", "7.01", 0}} {
		if got := compareVersions(c.a, c.b); got != c.want {
			t.Errorf("%q against %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// TestMachineThatStaysOn: a BMC that takes the order to switch off has not switched off before the machine reads off.
func TestMachineThatStaysOn(t *testing.T) {
	bmc, _, n := machine(t)
	bmc.SetOn(true)
	bmc.Break(drivertest.Liar)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := (&Driver{}).SetPower(ctx, n, metal.PowerOff); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "still reads") {
		t.Errorf("off: %v", err)
	}
}

// TestRestartsNotTaken: the error of a restart tells whether the BMC has surely not taken the restart.
func TestRestartsNotTaken(t *testing.T) {
	for name, c := range map[string]struct {
		fails func(w http.ResponseWriter)
		want  bool
	}{
		"busy":              {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, true},
		"refused":           {func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) }, true},
		"cut off":           {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, false},
		"lost in a gateway": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusGatewayTimeout) }, false},
	} {
		bmc, _, n := machine(t)
		bmc.SetOn(true)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				c.fails(w)
				return
			}
			bmc.ServeHTTP(w, r)
		}))
		n.DriverInfo[AddressKey] = server.URL
		if err := (&Driver{}).Restart(t.Context(), n); err == nil || driver.IsNotTaken(err) != c.want {
			t.Errorf("%s: surely not taken %t, want %t (%v)", name, driver.IsNotTaken(err), c.want, err)
		}
		server.Close()
	}
}
