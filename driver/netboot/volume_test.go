package netboot

import (
	"context"
	"strings"
	"testing"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
)

// initiator is a machine's own, which notes what it was asked.
type initiator struct{ asked []string }

func (i *initiator) note(word string) error { i.asked = append(i.asked, word); return nil }

func (i *initiator) CheckVolumes(context.Context, *metal.Node, metal.VolumePlan) error {
	return i.note("check")
}

func (i *initiator) PlanVolumes(*metal.Node, []*metal.Port, metal.VolumePlan, int64) (*metal.BootPlan, error) {
	return nil, i.note("plan")
}

func (i *initiator) PrepareVolumes(context.Context, *metal.Node, metal.VolumePlan) error {
	return i.note("prepare")
}

func (i *initiator) RefreshVolumes(context.Context, *metal.Node, metal.VolumePlan) error {
	return i.note("refresh")
}

func (i *initiator) CleanUpVolumes(context.Context, *metal.Node) error { return i.note("clean up") }

func TestVolumeRoads(t *testing.T) {
	n := &metal.Node{ID: "n", Properties: metal.Object{"capabilities": "boot_mode:uefi"}}
	ports := []*metal.Port{{Address: "52:54:00:00:00:01", PXEEnabled: true}}
	iscsi, fc := metal.VolumePlan{Root: &metal.Volume{Type: metal.ISCSI}}, metal.VolumePlan{Root: &metal.Volume{Type: metal.FibreChannel}}
	var set rescue.Boot
	device := func(_ context.Context, _ *metal.Node, b rescue.Boot) error { set = b; return nil }
	files := driver.BootFiles{URL: "http://192.0.2.1:6385/", APIURL: "http://192.0.2.1:6385"}
	ctx := t.Context()

	ipxe := IPXE(files, device)
	plan, err := ipxe.PlanVolumes(n, ports, iscsi, 7)
	if err != nil || !plan.Volumes || !plan.Persistent || plan.BootNumber != 7 || plan.Kernel != "" || len(plan.Path) != 32 || plan.MACs[0] != ports[0].Address || plan.URL != "http://192.0.2.1:6385" {
		t.Errorf("%+v: %v", plan, err)
	}
	if _, err := ipxe.PlanVolumes(n, nil, iscsi, 7); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "no port") {
		t.Error(err)
	}
	if err := ipxe.PrepareVolumes(ctx, n, iscsi); err != nil || set != (rescue.Boot{Device: "pxe", Mode: "uefi", Persistent: true}) {
		t.Errorf("%+v: %v", set, err)
	}
	// The host bus adapter boots by itself.
	if plan, err := ipxe.PlanVolumes(n, nil, fc, 7); plan != nil || err != nil {
		t.Errorf("%+v: %v", plan, err)
	}
	if err := ipxe.PrepareVolumes(ctx, n, fc); err != nil || set != (rescue.Boot{Device: "disk", Mode: "uefi", Persistent: true}) {
		t.Errorf("%+v: %v", set, err)
	}
	if err := ipxe.CleanUpVolumes(ctx, n); err != nil || set != (rescue.Boot{}) {
		t.Errorf("%+v: %v", set, err)
	}

	if err := HTTP(files, device, nil).CheckVolumes(ctx, n, iscsi); !problem.Is(err, problem.Invalid) {
		t.Error(err)
	}
	own := &initiator{}
	http := HTTP(files, device, nil).WithInitiator(own)
	plan, err = http.PlanVolumes(n, ports, iscsi, 7)
	if plan != nil || err != nil {
		t.Errorf("%+v: %v", plan, err)
	}
	for _, err := range []error{http.CheckVolumes(ctx, n, iscsi), http.PrepareVolumes(ctx, n, iscsi), http.RefreshVolumes(ctx, n, iscsi), http.CleanUpVolumes(ctx, n)} {
		if err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(own.asked, " "); got != "check prepare refresh clean up" {
		t.Error(got)
	}
}
