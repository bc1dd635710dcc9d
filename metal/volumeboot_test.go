package metal

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"salvor/problem"
	"salvor/record"
)

const testInitiator = "iqn.2026-01.org.salvor:m1"

func bootNode(capabilities any) *Node {
	return &Node{ID: "n", Properties: Object{"capabilities": capabilities}}
}

func iqnConnector() []*Connector {
	return []*Connector{{Type: "mac", ConnectorID: "52:54:00:00:00:01"}, {Type: "iqn", ConnectorID: testInitiator}}
}

func iscsiTarget(index int, more Object) *Target {
	p := Object{"target_portal": "192.0.2.1:3260", "target_iqn": "iqn.2010-10.com.example:vol-X", "target_lun": 0.0}
	for k, v := range more {
		if v == nil {
			delete(p, k)
			continue
		}
		p[k] = v
	}
	return &Target{Record: record.Record{ID: fmt.Sprint("t", index)}, VolumeType: "iscsi", VolumeID: "v", BootIndex: index, Properties: p}
}

func TestPlanVolumesReadsEveryForm(t *testing.T) {
	n := bootNode("boot_mode:uefi, iscsi_boot:true,fibre_channel_boot:True")
	multipath := Object{"target_portal": nil, "target_iqn": nil, "target_lun": nil,
		"target_portals": []any{"192.0.2.1:3260", "[2001:db8::1]:860", "storage.example.org"},
		"target_iqns":    []any{"iqn.2010-10.com.example:x", "iqn.2010-10.com.example:y", "iqn.2010-10.com.example:z"},
		"target_luns":    []any{0.0, json.Number("1"), "2"}}
	plan, err := PlanVolumes(n, iqnConnector(), []*Target{iscsiTarget(2, nil), iscsiTarget(0, multipath), iscsiTarget(-1, nil)})
	if err != nil {
		t.Fatal(err)
	}
	want := []VolumePath{
		{"192.0.2.1", 3260, "iqn.2010-10.com.example:x", 0}, {"2001:db8::1", 860, "iqn.2010-10.com.example:y", 1},
		{"storage.example.org", 3260, "iqn.2010-10.com.example:z", 2},
	}
	if plan.Initiator != testInitiator || !reflect.DeepEqual(plan.Root.Paths, want) || len(plan.Others) != 1 || plan.Others[0].BootIndex != 2 {
		t.Errorf("%+v", plan)
	}
	chap := Object{"auth_method": "CHAP", "auth_username": "u", "auth_password": "p", "auth_mutual_username": "mu", "auth_mutual_password": "mp"}
	plan, err = PlanVolumes(bootNode(map[string]any{"iscsi_boot": true}), iqnConnector(), []*Target{iscsiTarget(0, chap)})
	if err != nil || plan.Root.Login.Username != "u" || plan.Root.Login.Password.Reveal() != "p" || plan.Root.Mutual.Username != "mu" {
		t.Errorf("%+v: %v", plan.Root, err)
	}
	fc := &Target{VolumeType: "fibre_channel", Properties: Object{"target_wwn": []any{"50014380186B3F65", "50:01:43:80:18:6b:3f:67"}, "target_lun": 1.0}}
	hba := []*Connector{{Type: "wwpn", ConnectorID: "10:00:00:00:c9:12:34:56"}, {Type: "wwnn", ConnectorID: "20000000c9123456"}}
	plan, err = PlanVolumes(n, hba, []*Target{fc})
	if err != nil || plan.Initiator != "" || plan.Root.LUN != 1 || !reflect.DeepEqual(plan.Root.WWNs, []string{"50:01:43:80:18:6b:3f:65", "50:01:43:80:18:6b:3f:67"}) {
		t.Errorf("%+v: %v", plan.Root, err)
	}
}

func TestPlanVolumesRefusesWithTheReason(t *testing.T) {
	able, hba := bootNode("iscsi_boot:true,fibre_channel_boot:true"), []*Connector{{Type: "wwpn", ConnectorID: "1000000000c91234"}}
	fc := &Target{VolumeType: "fibre_channel", Properties: Object{"target_wwn": "50014380186b3f65", "target_lun": 1.0}}
	both := append(hba, &Connector{Type: "wwnn", ConnectorID: "2000000000c91234"})
	for _, c := range []struct {
		reason     string
		node       *Node
		connectors []*Connector
		targets    []*Target
	}{
		{"iscsi_boot", bootNode(nil), iqnConnector(), []*Target{iscsiTarget(0, nil)}},
		{"iscsi_boot", bootNode("iscsi_boot:false"), iqnConnector(), []*Target{iscsiTarget(0, nil)}},
		{"type iqn", able, nil, []*Target{iscsiTarget(0, nil)}},
		{"is not an iSCSI name", able, []*Connector{{Type: "iqn", ConnectorID: "whatever"}}, []*Target{iscsiTarget(0, nil)}},
		{"lack target_portal", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"target_portal": nil})}},
		{"lack target_iqn", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"target_iqn": nil})}},
		{"lack target_lun", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"target_lun": nil})}},
		{"no host", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"target_portal": "a b:3260"})}},
		{"no such port", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"target_portal": "192.0.2.1:0"})}},
		{"no iSCSI name", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"target_iqn": "iqn.2010-10.com.example:a\nshell"})}},
		{"target_lun must", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"target_lun": -1.0})}},
		{"each portal wants", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"target_portals": []any{"192.0.2.1", "192.0.2.2"}, "target_luns": []any{0.0, 1.0, 2.0}})}},
		{"belong together", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"auth_username": "u"})}},
		{"auth_method is CHAP", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"auth_method": "CHAP"})}},
		{"auth_method", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"auth_method": "KRB5"})}},
		{"mutual CHAP needs auth_username", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"auth_mutual_username": "u", "auth_mutual_password": "p"})}},
		{"control character", able, iqnConnector(), []*Target{iscsiTarget(0, Object{"auth_username": "u", "auth_password": "a\nb"})}},
		{"boot index 1", able, iqnConnector(), []*Target{iscsiTarget(0, nil), iscsiTarget(1, Object{"target_portal": nil})}},
		{"nothing boots", able, iqnConnector(), []*Target{{VolumeType: "rbd"}}},
		{"type wwnn", able, hba, []*Target{fc}},
		{"type wwpn", able, nil, []*Target{fc}},
		{"fibre_channel_boot", bootNode("iscsi_boot:true"), both, []*Target{fc}},
		{"fibre channel volume has no boot script", able, append(both, iqnConnector()...), []*Target{fc, iscsiTarget(1, nil)}},
	} {
		plan, err := PlanVolumes(c.node, c.connectors, c.targets)
		if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), c.reason) || plan.Root != nil {
			t.Errorf("want %q, got %v", c.reason, err)
		}
	}
	if plan, err := PlanVolumes(bootNode(nil), nil, []*Target{iscsiTarget(1, nil)}); err != nil || plan.Root != nil {
		t.Errorf("without a root: %+v, %v", plan, err)
	}
}

// Whatever a target holds, it is refused with a kind, or what comes out is safe: words of
// narrow alphabets, and logins of one line.
func TestPlanVolumesOfAnything(t *testing.T) {
	values := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.String(), func(s string) any { return s }), rapid.Map(rapid.Float64(), func(f float64) any { return f }),
		rapid.SampledFrom([]any{"192.0.2.1", "iqn.2010-10.com.example:v", "a b", "${x}", "a\nb", 0.0, "CHAP", true, Object{"x": 1.0}}),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]any{"192.0.2.1", "[::1]:1", "iqn.2010-10.com.example:v", "||", 1.0, nil}), 0, 4), func(s []any) any { return s }),
	)
	keys := rapid.SampledFrom([]string{"target_portal", "target_portals", "target_iqn", "target_iqns", "target_lun", "target_luns", "target_wwn",
		"auth_method", "auth_username", "auth_password", "auth_mutual_username", "auth_mutual_password"})
	rapid.Check(t, func(t *rapid.T) {
		target := iscsiTarget(0, nil)
		target.VolumeType = rapid.SampledFrom([]string{"iscsi", "fibre_channel", "ISCSI"}).Draw(t, "type")
		for k, v := range rapid.MapOf(keys, values).Draw(t, "properties") {
			target.Properties[k] = v
		}
		connectors := append(iqnConnector(), &Connector{Type: "wwpn", ConnectorID: "1000000000c91234"}, &Connector{Type: "wwnn", ConnectorID: "1000000000c91234"})
		plan, err := PlanVolumes(bootNode("iscsi_boot:true,fibre_channel_boot:1"), connectors, []*Target{target})
		if err != nil {
			if !problem.Is(err, problem.Invalid) || strings.ContainsAny(err.Error(), "\n\x00") {
				t.Fatalf("%q", err)
			}
			return
		}
		for _, p := range plan.Root.Paths {
			if strings.ContainsAny(p.Host+p.IQN, " \t\n${}|&;\"'`\\#<>()") || p.Port < 1 || p.Port > 65535 || p.LUN < 0 {
				t.Fatalf("%+v", p)
			}
		}
		for _, l := range []Login{plan.Root.Login, plan.Root.Mutual} {
			if strings.ContainsAny(l.Username+l.Password.Reveal(), "\n\r\x00") || (l.Username == "") != l.Password.Empty() {
				t.Fatalf("%q", l.Username)
			}
		}
	})
}
