package examine

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"salvor/diagnose"
	"salvor/test/must"
)

// writeBlockDevices makes a /sys/class/block: each device with what it lies on.
func writeBlockDevices(t *testing.T, slaves map[string][]string) string {
	t.Helper()
	sys := t.TempDir()
	for name, below := range slaves {
		must.OK(t, os.MkdirAll(filepath.Join(sys, name, "slaves"), 0o755))
		for _, b := range below {
			must.OK(t, os.Symlink("../../"+b, filepath.Join(sys, name, "slaves", b)))
		}
	}
	return sys
}

// TestUncoveredNodesAreRefused: what lvm calls active may be the mapping of another group over a disk without an overlay.
func TestUncoveredNodesAreRefused(t *testing.T) {
	sys := writeBlockDevices(t, map[string][]string{
		"loop1": nil, "loop3": nil, "loop9": nil, "sda": nil,
		"dm-0": {"loop1p2"}, "dm-1": {"dm-0", "loop3"}, "dm-2": {"sda2"}, "dm-3": {"dm-1", "dm-2"}, "dm-4": {"loop9"},
		"dm-5": nil, "dm-6": {"dm-0", "dm-5"}, "dm-7": {"dm-8"}, "dm-8": {"dm-7"}, "dm-9": {"md127"}, "md127": {"sda", "loop1"}, "sda2": nil,
	})
	x := &examinationRun{Request: Request{Log: slog.New(slog.DiscardHandler)}, loops: map[string]bool{"loop1": true, "loop3": true}}
	for node, want := range map[string]bool{
		"/dev/loop1": true, "/dev/loop1p2": true, "/dev/dm-0": true, "/dev/dm-1": true,
		"/dev/dm-6": true, // a mirror with an error target in place of a missing disk
		"/dev/dm-2": false, "/dev/dm-3": false, "/dev/dm-4": false, "/dev/dm-5": false, "/dev/dm-7": false, "/dev/dm-9": false,
		"/dev/dm-77": false, "/dev/sda": false, "/dev/loop9p1": false, "/dev/mapper/x": false, "dm-0": false,
	} {
		d := &device{Device: diagnose.Device{Path: "/dev/mapper/vg-" + filepath.Base(node)}, node: node}
		before := len(x.gaps)
		refused := x.refuseUncovered(sys, d)
		if refused == want || (d.node == node) != want || (d.NotExamined == "") != want || (len(x.gaps) == before) != want {
			t.Errorf("%s: refused %v, %+v", node, refused, d)
		}
	}
	if x.refuseUncovered(sys, &device{}) {
		t.Error("a device without a node is refused again")
	}
}
