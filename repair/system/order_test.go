package system

import (
	"testing"

	"salvor/diagnose"
)

func findingsOf(ids ...string) []diagnose.Finding {
	var out []diagnose.Finding
	for _, id := range ids {
		out = append(out, diagnose.Finding{ID: id})
	}
	return out
}

func TestOrder(t *testing.T) {
	got := Order(findingsOf("sshd-config-invalid", "disk-full", "network-mac-changed", "fstab-device-missing", "selinux-unlabelled", "nologin-present"))
	var ids []string
	for _, f := range got {
		ids = append(ids, f.ID)
	}
	want := []string{"fstab-device-missing", "network-mac-changed", "sshd-config-invalid", "nologin-present", "selinux-unlabelled"}
	if len(ids) != len(want) {
		t.Fatalf("%v, want %v", ids, want)
	}
	for i := range want {
		if ids[i] != want[i] {
			t.Fatalf("%v, want %v", ids, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name    string
		ids     []string
		system  diagnose.System
		refused []string
	}{
		{"nothing in the way", []string{"fstab-device-missing", "disk-full"}, diagnose.System{}, nil},
		{"a failing disk", []string{"disk-failing", "fstab-device-missing", "clock-wrong"}, diagnose.System{}, []string{"fstab-device-missing", "clock-wrong"}},
		{"a failing disk without a finding", []string{"fstab-device-missing"}, diagnose.System{Disks: []diagnose.DiskHealth{{Failing: true}}}, []string{"fstab-device-missing"}},
		{"a suspended system", []string{"fstab-device-missing", "hibernation-image", "clock-wrong"}, diagnose.System{}, []string{"fstab-device-missing"}},
		{"a full /boot", []string{"boot-partition-full", "initramfs-damaged", "grub-config-empty", "fstab-device-missing"}, diagnose.System{}, []string{"initramfs-damaged", "grub-config-empty"}},
		{"a new instance", []string{"cloud-init-new-instance", "network-mac-changed", "nologin-present"}, diagnose.System{}, []string{"network-mac-changed"}},
		{"a damaged file system", []string{"file-system-damaged", "nologin-present"}, diagnose.System{}, []string{"nologin-present"}},
		{"one id twice", []string{"disk-failing", "nologin-present", "nologin-present"}, diagnose.System{}, []string{"nologin-present"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Refusals(findingsOf(tc.ids...), &tc.system)
			same := len(got) == len(tc.refused)
			for i := range min(len(got), len(tc.refused)) {
				same = same && got[i].Finding == tc.refused[i] && got[i].Why != ""
			}
			if !same {
				t.Errorf("%+v, want %v", got, tc.refused)
			}
		})
	}
}

// TestRestoreRefusal: an undo by files is refused where its writes harm, and not where there is no room for an initramfs.
func TestRestoreRefusal(t *testing.T) {
	for id, refused := range map[string]bool{
		"disk-failing": true, "hibernation-image": true, "file-system-damaged": true, "superblock-missing": true, "disk-full": false, "cloud-init-new-instance": false, "sshd-masked": false,
	} {
		if why := RestoreRefusal(findingsOf(id), &diagnose.System{}); (why != "") != refused {
			t.Errorf("%s: %q", id, why)
		}
	}
	if RestoreRefusal(nil, &diagnose.System{Disks: []diagnose.DiskHealth{{Failing: true}}}) == "" {
		t.Error("a failing disk that no finding names does not refuse")
	}
}
