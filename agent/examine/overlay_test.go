package examine

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"salvor/diagnose"
	"salvor/test/must"
)

// TestListOfReadOnlyDevices: it stays until the last device is writable again.
func TestListOfReadOnlyDevices(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	must.OK(t, os.WriteFile(list, []byte("/dev/sda\n/dev/sda1\n/dev/sdb\n"), 0o600))
	var asked []string
	busy := errors.New("busy")
	fails := func(node string) error {
		asked = append(asked, node)
		if node == "/dev/sda1" {
			return busy
		}
		return nil
	}
	if err := restoreWritable(list, fails); !errors.Is(err, busy) || !reflect.DeepEqual(asked, []string{"/dev/sda", "/dev/sda1", "/dev/sdb"}) {
		t.Errorf("%v, asked %q", err, asked)
	}
	if _, err := os.Stat(list); err != nil {
		t.Errorf("the list went though a device is read-only: %v", err)
	}
	must.OK(t, restoreWritable(list, func(string) error { return nil }))
	if _, err := os.Stat(list); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the list stays though all devices are writable: %v", err)
	}
	must.OK(t, restoreWritable(list, fails)) // without a list
	must.OK(t, setWritable(filepath.Join(t.TempDir(), "gone")))
	if err := setWritable(t.TempDir()); err == nil {
		t.Error("what is no block device was set writable")
	}
}

// TestOwnMappings: a volume of LVM is not taken down, whatever its name is.
func TestOwnMappings(t *testing.T) {
	for _, c := range []struct {
		name, uuid string
		want       bool
	}{
		{"salvor_sda\n", "\n", true},
		{"salvor_crypt0\n", "CRYPT-LUKS2-ca4568d59b4e4c47b21eb52fa0d1618e-salvor_crypt0\n", true},
		{"salvor_data-root\n", "LVM-KnCGawKlB3QlVlRvfOTB3dRidICcmmdtsP02urpMvMJl5wIUqQr0swKvjhZ6EjUer\n", false},
		{"vg-root\n", "\n", false},
	} {
		if got := isOwnMapping(writeFiles(t, map[string]string{"name": c.name, "uuid": c.uuid}), overlayPrefix); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if isOwnMapping(t.TempDir(), overlayPrefix) {
		t.Error("a device without a name")
	}
}

// TestFullOverlays: what was read through an overlay that overflowed is no damage, also where it lies on several disks.
func TestFullOverlays(t *testing.T) {
	x := &examinationRun{}
	x.devices = []*device{
		{Device: diagnose.Device{Path: "/dev/sda"}, disk: "/dev/sda"},
		{Device: diagnose.Device{Path: "/dev/sda1", Parents: []string{"/dev/sda"}, MountError: "structure needs cleaning"}, disk: "/dev/sda"},
		{Device: diagnose.Device{Path: "/dev/sdb"}, disk: "/dev/sdb"},
		{Device: diagnose.Device{Path: "/dev/sdb1", Parents: []string{"/dev/sdb"}, MountError: "input/output error"}, disk: "/dev/sdb"},
		{Device: diagnose.Device{Path: "/dev/mapper/luks-1", Parents: []string{"/dev/sdb1"}}, disk: "/dev/sdb"},
		{Device: diagnose.Device{Path: "/dev/mapper/vg-data", Parents: []string{"/dev/sda1", "/dev/mapper/luks-1"}, NotExamined: "lvm does not activate it"}, disk: "/dev/sda"},
	}
	system := func(root, boot string) *diagnose.System {
		s := &diagnose.System{Root: root, Devices: x.plainDevices(), Files: &diagnose.Tree{}}
		s.Devices[4].Path = "/dev/mapper/crypt"
		for i := range s.Devices {
			if s.Devices[i].Path == boot {
				s.Devices[i].MountedAt = "/boot"
			}
			s.Checks = append(s.Checks, diagnose.Check{Device: s.Devices[i].Path, Damaged: true})
		}
		return s
	}
	onA, onB, split := system("/dev/sda1", ""), system("/dev/mapper/crypt", ""), system("/dev/sda1", "/dev/sdb1")
	x.dropUnreliable(nil, []*diagnose.System{onA, onB, split})
	if len(onB.Checks) != 6 || onB.Files == nil || x.devices[3].MountError == "" {
		t.Errorf("something is dropped without an overflow: %+v", onB)
	}
	x.dropUnreliable(map[string]string{"/dev/sdb": "its overlay is full"}, []*diagnose.System{onA, onB, split})
	for _, s := range []*diagnose.System{onA, onB, split} {
		if len(s.Checks) != 2 || s.Checks[0].Device != "/dev/sda" || s.Checks[1].Device != "/dev/sda1" {
			t.Errorf("checks of %s: %+v", s.Root, s.Checks)
		}
		for i, want := range []string{"", "", "its overlay is full", "its overlay is full", "its overlay is full", "lvm does not activate it"} {
			if d := s.Devices[i]; d.NotExamined != want || (d.MountError != "") != (i == 1) || x.devices[i].NotExamined != want {
				t.Errorf("%s: %+v", s.Root, d)
			}
		}
	}
	if onA.Files == nil || onB.Files != nil || split.Files != nil {
		t.Errorf("files: %v %v %v", onA.Files, onB.Files, split.Files)
	}
}
