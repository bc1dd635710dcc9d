package netboot

import (
	"context"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
)

var files = driver.BootFiles{URL: "http://192.0.2.1:8088/", APIURL: "http://192.0.2.1:6385"}

// bmc remembers what it was told.
type bmc struct {
	boots []rescue.Boot
	urls  []string
}

func (b *bmc) set(_ context.Context, _ *metal.Node, boot rescue.Boot) error {
	b.boots = append(b.boots, boot)
	return nil
}

func (b *bmc) url(_ context.Context, _ *metal.Node, url string) error {
	b.urls = append(b.urls, url)
	return nil
}

func plan(t *testing.T, b *Boot, n *metal.Node) {
	t.Helper()
	p := must.Get(b.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r", Ports: []*metal.Port{{Address: "52:54:00:AA:BB:CC"}, {Address: "52:54:00:aa:bb:cc"}}}))(t)
	if len(p.MACs) != 1 || p.MACs[0] != "52:54:00:aa:bb:cc" {
		t.Errorf("MACs %q", p.MACs)
	}
	n.Plan = p
}

func TestIPXE(t *testing.T) {
	controller := &bmc{}
	b := IPXE(files, controller.set)
	n := &metal.Node{ID: "n1", Properties: metal.Object{"capabilities": "a:b, boot_mode:bios"}}
	if err := b.PrepareRamdisk(t.Context(), n); !problem.Is(err, problem.Invalid) {
		t.Errorf("without a plan: %v", err)
	}
	plan(t, b, n)
	if n.Plan.Method != metal.BootIPXE {
		t.Errorf("road %q", n.Plan.Method)
	}
	saved := rescue.Boot{Device: "disk", Persistent: true}
	for _, err := range []error{b.PrepareRamdisk(t.Context(), n), b.CleanUpRamdisk(t.Context(), n), b.PrepareInstance(t.Context(), n, saved)} {
		if err != nil {
			t.Error(err)
		}
	}
	if len(controller.boots) != 3 || controller.boots[0] != (rescue.Boot{Device: "pxe", Mode: "bios"}) || controller.boots[1] != (rescue.Boot{}) || controller.boots[2] != saved {
		t.Errorf("the BMC was told %+v", controller.boots)
	}
}

func TestHTTP(t *testing.T) {
	controller := &bmc{}
	b := HTTP(files, controller.set, controller.url)
	n := &metal.Node{ID: "n1"}
	plan(t, b, n)
	must.OK(t, b.PrepareRamdisk(t.Context(), n))
	if want := "http://192.0.2.1:8088/boot/" + n.Plan.Path + "/boot.efi"; len(controller.urls) != 1 || controller.urls[0] != want {
		t.Errorf("the BMC was told %q, want %q", controller.urls, want)
	}
	secure := &metal.Node{ID: "n1", InstanceInfo: metal.Object{"capabilities": metal.Object{"secure_boot": "true"}}}
	plan(t, b, secure)
	must.OK(t, b.PrepareRamdisk(t.Context(), secure))
	if want := "http://192.0.2.1:8088/boot/" + secure.Plan.Path + "/boot.iso"; len(controller.urls) != 2 || controller.urls[1] != want {
		t.Errorf("with Secure Boot the BMC was told %q, want %q", controller.urls, want)
	}
	if err := HTTP(files, controller.set, nil).PrepareRamdisk(t.Context(), n); err != nil || len(controller.boots) != 1 || controller.boots[0] != (rescue.Boot{Device: "pxe", Mode: "uefi"}) {
		t.Errorf("%v, the BMC was told %+v", err, controller.boots)
	}
	n.BootMode = "bios"
	if _, err := b.Plan(n, driver.Ramdisk{Kernel: "/k", Image: "/r", Ports: []*metal.Port{{Address: "52:54:00:aa:bb:cc"}}}); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "UEFI") {
		t.Errorf("HTTP boot of a BIOS machine: %v", err)
	}
	if _, err := b.Plan(&metal.Node{ID: "n2"}, driver.Ramdisk{Kernel: "/k", Image: "/r"}); !problem.Is(err, problem.Invalid) {
		t.Errorf("no ports: %v", err)
	}
}

// TestNetworkBootShowsNoISO: an ISO image alone is refused with the way out, and one beside a kernel is not needed.
func TestNetworkBootShowsNoISO(t *testing.T) {
	b := IPXE(driver.BootFiles{URL: "http://192.0.2.1:8088", APIURL: "http://192.0.2.1:6385"}, nil)
	r := driver.Ramdisk{ISO: "http://192.0.2.9/live.iso", Ports: []*metal.Port{{Address: "52:54:00:00:00:01"}}, ConfigDrive: true}
	if _, err := b.Plan(&metal.Node{ID: "n1"}, r); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "redfish-virtual-media") {
		t.Errorf("%v, want invalid with the boot interface to set", err)
	}
	r.Kernel, r.Image = "/k", "/r"
	plan, err := b.Plan(&metal.Node{ID: "n1"}, r)
	if err != nil || plan.ISO != "" || plan.Kernel != "/k" || plan.ConfigDrive {
		t.Errorf("%+v, %v; want kernel and ramdisk", plan, err)
	}
}
