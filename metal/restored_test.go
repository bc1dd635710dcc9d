package metal

import (
	"testing"
	"time"

	"salvor/job"
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

// TestEndedState: a node whose operation ended where it stood shows its failure. A rescue for a diagnosis that has not touched its machine leaves the
// node as it was.
func TestEndedState(t *testing.T) {
	made := &rescue.Session{Diagnosis: "d1"}
	for name, c := range map[string]struct {
		node Node
		job  job.Job
		want State
	}{
		"rescuing":                       {Node{ProvisionState: Rescuing}, job.Job{Kind: "rescue"}, RescueFailed},
		"rescue wait":                    {Node{ProvisionState: RescueWait}, job.Job{Kind: "rescue"}, RescueFailed},
		"a diagnosis's rescue":           {Node{ProvisionState: Rescuing, Rescue: made}, job.Job{Kind: "rescue"}, Active},
		"a diagnosis's rescue, advanced": {Node{ProvisionState: Rescuing, Rescue: made}, job.Job{Kind: "rescue", Memo: map[string]string{"advanced": "yes"}}, RescueFailed},
		"unrescuing":                     {Node{ProvisionState: Unrescuing}, job.Job{Kind: "unrescue"}, UnrescueFailed},
		"cleaning":                       {Node{ProvisionState: Cleaning}, job.Job{Kind: "clean"}, CleanFailed},
		"deploy wait":                    {Node{ProvisionState: DeployWait}, job.Job{Kind: "deploy"}, DeployFailed},
		"verifying":                      {Node{ProvisionState: Verifying}, job.Job{Kind: "manage"}, Enroll},
		"a state without work":           {Node{ProvisionState: Active}, job.Job{Kind: "power"}, Active},
	} {
		if got := c.node.EndedState(&c.job); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
