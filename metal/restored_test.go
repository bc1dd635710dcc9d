package metal

import (
	"testing"
	"time"

	"salvor/rescue"
)

// TestHeldDifferences: a reading is compared with the record fact by fact. A fact that a driver cannot read is no difference, and
// the path of a boot medium is not shown.
func TestHeldDifferences(t *testing.T) {
	booting := &BootPlan{Method: BootMedia}
	cd := []Medium{{MediaTypes: []string{"CD"}, Inserted: true, Image: "http://10.0.0.1:6386/boot/secret/path.iso"}}
	for name, c := range map[string]struct {
		node  Node
		facts HeldFacts
		want  string // of the one difference; empty: none
	}{
		"as recorded":            {Node{PowerState: PowerOn}, HeldFacts{Power: PowerOn, Boot: &rescue.Boot{}, MediaRead: true}, ""},
		"nothing can be read":    {Node{PowerState: PowerOn}, HeldFacts{}, ""},
		"off and found on":       {Node{PowerState: PowerOff}, HeldFacts{Power: PowerOn}, "power: power off/power on"},
		"a dead BMC":             {Node{PowerState: PowerOn}, HeldFacts{Unreadable: map[string]string{FactPower: "no route"}}, "power: power on/ no route"},
		"a persistent device":    {Node{}, HeldFacts{Boot: &rescue.Boot{Device: "disk", Persistent: true}}, ""},
		"an override":            {Node{}, HeldFacts{Boot: &rescue.Boot{Device: "cdrom"}}, "boot device: no override/once cdrom"},
		"a ramdisk that is gone": {Node{Plan: booting}, HeldFacts{Boot: &rescue.Boot{}}, "boot device: once cdrom/no override"},
		"media":                  {Node{}, HeldFacts{Media: cd, MediaRead: true}, "virtual media: none/CD from 10.0.0.1:6386"},
		"its network":            {Node{ProvisionState: Active}, HeldFacts{Networks: []string{"tenant"}, NetsRead: true}, ""},
		"another network":        {Node{ProvisionState: Active}, HeldFacts{Networks: []string{"rescuing", "tenant"}, NetsRead: true}, "network: tenant/rescuing, tenant"},
		"off its network":        {Node{ProvisionState: RescueWait}, HeldFacts{NetsRead: true}, "network: rescuing/none"},
		"on a network":           {Node{ProvisionState: Available}, HeldFacts{Networks: []string{"cleaning"}, NetsRead: true}, "network: none/cleaning"},
		"between networks":       {Node{ProvisionState: Deploying}, HeldFacts{NetsRead: true}, ""},
		"Neutron is away":        {Node{ProvisionState: Active}, HeldFacts{Unreadable: map[string]string{FactNet: "503"}}, "network: tenant/none 503"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			all := c.node.HeldDifferences(HeldReading{ReadAt: time.Unix(1, 0), Facts: c.facts})
			for _, d := range all {
				if got = d.What + ": " + d.Recorded + "/" + d.Found; d.Unreadable != "" {
					got += " " + d.Unreadable
				}
			}
			if got != c.want || len(all) > 1 {
				t.Errorf("%q of %+v, want %q", got, all, c.want)
			}
		})
	}
}

// TestDroppedState: after a rescue or an unrescue that is dropped the node is active; every other state of work has a failure.
func TestDroppedState(t *testing.T) {
	for from, want := range map[State]State{Rescuing: Active, RescueWait: Active, Unrescuing: Active, Cleaning: CleanFailed, DeployWait: DeployFailed, Verifying: Enroll, Active: Active} {
		if got := DroppedState(from); got != want {
			t.Errorf("%s -> %s, want %s", from, got, want)
		}
	}
}
