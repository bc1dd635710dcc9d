package serve

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"salvor/conductor/node"
	"salvor/config"
	"salvor/driver"
	"salvor/driver/network"
	"salvor/metal"
	"salvor/test/must"
)

func goodDriverConfig() driverConfig {
	return driverConfig{
		Files:        driver.BootFiles{URL: "http://192.0.2.1:8088", APIURL: "http://192.0.2.1:6385"},
		RescueKernel: "/k", RescueRamdisk: "/r",
		Bridges: network.Bridges{driver.Provisioning: "br-prov", driver.Rescuing: "br-prov", driver.Tenant: "br-tenant"},
	}
}

// Every interface that is offered is there, and every one that is there is offered.
func TestHardwareTypesAreWhole(t *testing.T) {
	for _, h := range hardwareTypes(goodDriverConfig()) {
		built := map[string][]string{
			"power": sorted(h.Power), "management": sorted(h.Management), "boot": sorted(h.Boot), "network": sorted(h.Network),
			"rescue": sorted(h.Rescue), "deploy": sorted(h.Deploy), "inspect": sorted(h.Inspect),
		}
		for _, kind := range metal.InterfaceKinds {
			set, ok := h.Info.Interfaces[kind]
			if !ok || set.Default == "" || len(set.Enabled) == 0 || set.Enabled[0].Name != set.Default {
				t.Errorf("%s: %s offers %+v", h.Info.Name, kind, set)
				continue
			}
			want, implemented := built[kind]
			if !implemented {
				continue
			}
			var offered []string
			for _, i := range set.Enabled {
				if i.Name != "no-inspect" {
					offered = append(offered, i.Name)
				}
				if i.Broken != "" {
					t.Errorf("%s: %s %s is broken: %s", h.Info.Name, kind, i.Name, i.Broken)
				}
			}
			slices.Sort(offered)
			if !slices.Equal(offered, want) {
				t.Errorf("%s: %s offers %q, has %q", h.Info.Name, kind, offered, want)
			}
		}
		for _, set := range h.Info.Interfaces {
			for _, i := range set.Enabled {
				for _, key := range append(i.Required, i.RequiredForRescue...) {
					if h.Info.Properties[key] == "" {
						t.Errorf("%s: %s needs %s, which is not described", h.Info.Name, i.Name, key)
					}
				}
			}
		}
	}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func TestCatalogTellsWhatIsMissing(t *testing.T) {
	good := metal.Catalog{}
	for _, h := range hardwareTypes(goodDriverConfig()) {
		good.Drivers = append(good.Drivers, h.Info)
	}
	bare := metal.Catalog{}
	for _, h := range hardwareTypes(driverConfig{}) {
		bare.Drivers = append(bare.Drivers, h.Info)
	}
	n := &metal.Node{}
	byArch := map[string]node.Images{"aarch64": {Kernel: "/k", Ramdisk: "/r"}}
	for _, h := range hardwareTypes(driverConfig{RescueByArch: byArch, DeployByArch: byArch}) {
		for kind, set := range h.Info.Interfaces {
			for _, i := range set.Enabled {
				if all := slices.Concat(i.Required, i.RequiredForRescue); slices.ContainsFunc(all, func(key string) bool { return strings.HasSuffix(key, "_kernel") || strings.HasSuffix(key, "_ramdisk") }) {
					t.Errorf("%s: %s %s wants %q, which the configuration by architecture has", h.Info.Name, kind, i.Name, all)
				}
			}
		}
	}
	for _, name := range []string{"redfish", "ipmi"} {
		with, _ := good.Driver(name)
		without, _ := bare.Driver(name)
		if i, _ := with.Find(n, "rescue"); i.Name != "agent" || len(i.RequiredForRescue) != 0 {
			t.Errorf("%s: rescue %+v", name, i)
		}
		if i, _ := without.Find(n, "rescue"); !slices.Equal(i.RequiredForRescue, []string{"rescue_kernel", "rescue_ramdisk"}) {
			t.Errorf("%s: rescue %+v", name, i)
		}
		if i, _ := without.Find(n, "boot"); !strings.Contains(i.Broken, "[ramdisk]listen") {
			t.Errorf("%s: boot %+v", name, i)
		}
		if i, _ := with.Find(n, "power"); len(i.Required) != 1 || !strings.HasSuffix(i.Required[0], "_address") {
			t.Errorf("%s: power %+v", name, i)
		}
		if i, _ := with.Find(n, "network"); i.Name != "bridge" || !strings.Contains(i.Warning, "provisioning") {
			t.Errorf("%s: network %+v", name, i)
		}
		if i, _ := without.Find(n, "network"); i.Name != "noop" {
			t.Errorf("%s: network %+v", name, i)
		}
	}
	broken := goodDriverConfig()
	broken.Bridges[driver.Tenant] = "../br"
	info := hardwareTypes(broken)[0].Info
	if i, _ := info.Find(n, "network"); !strings.Contains(i.Broken, "tenant") {
		t.Errorf("a bad bridge: %+v", i)
	}
}

func TestFakeHardwareNeedsNothing(t *testing.T) {
	for _, h := range hardwareTypes(driverConfig{}) {
		if h.Info.Name != "fake-hardware" {
			continue
		}
		for kind := range h.Info.Interfaces {
			if i, ok := h.Info.Find(&metal.Node{}, kind); !ok || i.Broken != "" || len(i.Required) > 0 || len(i.RequiredForRescue) > 0 || i.NeedsPorts {
				t.Errorf("%s: %+v", kind, i)
			}
		}
	}
}

// untestedDrivers need no contract: hardware without a BMC refuses every request.
var untestedDrivers = []string{"manual"}

// TestDriversAreComposedAndTested: each package below driver/ that implements driver.Power is part of a hardware type, and its tests run the
// contract of drivers.
func TestDriversAreComposedAndTested(t *testing.T) {
	composed := map[string]bool{}
	for _, h := range hardwareTypes(goodDriverConfig()) {
		for _, power := range h.Power {
			of := reflect.TypeOf(power)
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			composed[path.Base(of.PkgPath())] = true
		}
	}
	folders, err := filepath.Glob("../../../driver/*")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	for _, folder := range folders {
		name, implements, tested := filepath.Base(folder), false, false
		files, _ := filepath.Glob(filepath.Join(folder, "*.go"))
		for _, file := range files {
			source := must.Get(os.ReadFile(file))(t)
			isTest := strings.HasSuffix(file, "_test.go")
			implements = implements || !isTest && regexp.MustCompile(`_\s+driver\.Power\s+=`).Match(source)
			tested = tested || isTest && regexp.MustCompile(`drivertest\.Run(InMemory)?\(`).Match(source)
		}
		if implements && !composed[name] {
			t.Errorf("driver/%s implements driver.Power, and hardwareTypes does not compose it", name)
		}
		if composed[name] && !implements {
			t.Errorf("driver/%s does not say by `_ driver.Power = ` what it implements", name)
		}
		if implements && !tested && !slices.Contains(untestedDrivers, name) {
			t.Errorf("no test of driver/%s runs drivertest.Run", name)
		}
	}
}

// TestDefaultEnablesAllHardware: the configuration's default names each hardware type, in order.
func TestDefaultEnablesAllHardware(t *testing.T) {
	var all []string
	for _, h := range hardwareTypes(goodDriverConfig()) {
		all = append(all, h.Info.Name)
	}
	cfg, _, err := config.Load(config.Source{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(all, cfg.Default.EnabledHardwareTypes) {
		t.Errorf("[DEFAULT]enabled_hardware_types is %q by default; there are %q", cfg.Default.EnabledHardwareTypes, all)
	}
}

// TestNamesOfIronicsClients: baremetal-operator, Terraform's provider and others name interfaces as Ironic has them. Each name leads to
// the implementation of the interface whose work it is.
func TestNamesOfIronicsClients(t *testing.T) {
	all := map[string]driver.HardwareType{}
	for _, h := range hardwareTypes(goodDriverConfig()) {
		all[h.Info.Name] = h
	}
	for name, same := range map[string]map[string][2]string{
		"idrac": {
			"power": {"idrac-redfish", "redfish"}, "management": {"idrac-redfish", "redfish"}, "bios": {"idrac-redfish", "redfish"}, "raid": {"idrac-redfish", "redfish"},
			"vendor": {"idrac-redfish", "redfish"}, "inspect": {"idrac-redfish", "redfish"}, "boot": {"idrac-redfish-virtual-media", "redfish-virtual-media"},
		},
		"ilo":     {"power": {"ilo", "redfish"}, "management": {"ilo", "redfish"}, "bios": {"ilo", "redfish"}, "inspect": {"ilo", "redfish"}, "boot": {"ilo-virtual-media", "redfish-virtual-media"}},
		"redfish": {"boot": {"pxe", "ipxe"}}, "ipmi": {"boot": {"pxe", "ipxe"}}, "fake-hardware": {"boot": {"pxe", "ipxe"}}, "manual-management": {"boot": {"pxe", "ipxe"}},
	} {
		for kind, names := range same {
			h, n := all[name], &metal.Node{Interfaces: map[string]string{kind: names[0]}}
			if i, ok := h.Info.Find(n, kind); !ok || i.Name != names[0] {
				t.Errorf("%s has no %s interface %s", name, kind, names[0])
			}
			theirs, ours := h.Part(kind, names[0]), h.Part(kind, names[1])
			if theirs == nil || reflect.TypeOf(theirs) != reflect.TypeOf(ours) {
				t.Errorf("%s: %s interface %s is a %T, %s a %T", name, kind, names[0], theirs, names[1], ours)
			}
		}
	}
	if i, _ := all["ilo"].Info.Find(&metal.Node{}, "power"); i.Name != "ilo" || !slices.Equal(i.Required, []string{"ilo_address"}) {
		t.Errorf("ilo: power %+v", i)
	}
	if i, _ := all["idrac"].Info.Find(&metal.Node{}, "firmware"); i.Name != "redfish" {
		t.Errorf("idrac: firmware %+v", i)
	}
}
