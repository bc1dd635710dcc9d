package compute

import (
	"strings"
	"testing"

	"salvor/rescue"
)

// TestDiagnosisHindranceInRescue: a rescue system with an agent examines the disks once it is up, those of an adopted server and volumes too.
func TestDiagnosisHindranceInRescue(t *testing.T) {
	for name, tc := range map[string]struct {
		access rescue.Access
		state  rescue.State
		power  Power
		says   string
	}{
		"ready":            {rescue.ByChannel, rescue.Ready, PowerOn, ""},
		"off":              {rescue.ByChannel, rescue.Ready, PowerOff, "ask again once it is ready"},
		"booting":          {rescue.ByChannel, rescue.Booting, PowerOn, "the session is booting"},
		"by config drive":  {rescue.ByConfigDrive, rescue.Ready, PowerOn, "without salvor's agent"},
		"without a way in": {rescue.NoAccess, rescue.Ready, PowerOn, "without salvor's agent"},
	} {
		s := &Server{Power: tc.power, Foreign: true, Disks: []Disk{{Name: "vda", VolumeID: "v"}}, Rescue: &rescue.Session{State: tc.state, Source: &rescue.Source{Access: tc.access}}}
		if why := DiagnosisHindrance(s, &Host{Kind: AgentHost}, DiagnoseArgs{}); !strings.Contains(why, tc.says) || why == "" != (tc.says == "") {
			t.Errorf("%s: %s", name, why)
		}
	}
	if why := DiagnosisHindrance(&Server{Power: PowerOff, Disks: []Disk{{Name: "vda"}}}, &Host{Kind: AgentHost}, DiagnoseArgs{}); why != "" {
		t.Errorf("a server that is off: %s", why)
	}
}
