//go:build e2e

// Package volume proves with real machines that a node boots from a volume whose target and connector were given over the API. The machines
// boot by an iPXE script with BIOS and UEFI, and by a machine's own initiator.
package volume

import (
	"strings"
	"testing"

	"salvor/test/machine"
)

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) { machine.Main(m) }

// secret has characters that mean something to boot scripts and shells.
const secret = `p$w{x} 12;||#`

// TestBootFromVolume takes one machine through every way to its volume.
func TestBootFromVolume(t *testing.T) {
	w := newWorld(t)
	w.export("vol1", secret)
	for _, r := range []struct {
		name, boot, firmware string
		rounds               func(*world)
	}{
		{"iPXE, BIOS", "ipxe", "bios", func(w *world) {
			w.listsInitiator("vol1")
			w.rescueAndBack()
			w.wrongSecret()
			w.wrongInitiator()
		}},
		{"iPXE, UEFI", "ipxe", "uefi", func(w *world) { w.listsInitiator("vol1") }},
		{"own initiator by Redfish", "redfish-virtual-media", "bios", func(w *world) {
			w.listsInitiator("vol1")
			w.forgotten = func() { w.adapterIsEmpty() }
		}},
	} {
		if !t.Run(r.name, func(t *testing.T) {
			w.T = t
			w.enroll(r.boot, r.firmware)
			w.refusals()
			// The first of two portals is dead.
			w.target("vol1", "10.77.0.1:3999", "10.77.0.1:3260")
			w.deploy()
			r.rounds(w)
			w.tearDown()
		}) {
			return
		}
	}
	w.T = t
	t.Run("standalone steps", func(t *testing.T) {
		w.T = t
		w.standaloneSteps()
	})
}

// standaloneSteps exports a file by the program's own attach, and takes it back.
func (w *world) standaloneSteps() {
	w.enroll("ipxe", "bios")
	w.CLI("node", "set", "m1", "--property", "capabilities=iscsi_boot:true")
	disk := w.volume("step")
	w.CLI("volume", "attach", "m1", "--source", "tgt", "--control-port", control, "--backing", disk, "--portal", "10.77.0.1:3260", "--volume-id", "step")
	if show := w.tgt("--mode", "target", "--op", "show"); !strings.Contains(show, ":step") || !strings.Contains(show, w.iqn) {
		w.Fatalf("no export for %s: %s", w.iqn, show)
	}
	w.marker, w.boots = w.markers["step"], 0
	w.deploy()
	w.CLI("node", "power", "off", "m1")
	w.settled("power_state", "power off")
	w.CLI("volume", "detach", "m1", "--source", "tgt", "--control-port", control)
	if show := w.tgt("--mode", "target", "--op", "show"); strings.Contains(show, ":step") {
		w.Fatalf("the export is left: %s", show)
	}
	if left := w.CLI("volume", "target", "list", "--node", "m1", "-f", "value"); left != "" {
		w.Fatalf("the target is left: %s", left)
	}
}
