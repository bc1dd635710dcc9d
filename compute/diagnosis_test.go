package compute

import (
	"strings"
	"testing"

	"salvor/rescue"
)

// TestDiagnosisHindranceInRescue: the way by the rescue system is named only where that has an agent.
func TestDiagnosisHindranceInRescue(t *testing.T) {
	for access, hasAgent := range map[rescue.Access]bool{rescue.ByChannel: true, rescue.ByConfigDrive: false, rescue.NoAccess: false} {
		s := &Server{Power: PowerOff, Disks: []Disk{{Name: "vda"}}, Rescue: &rescue.Session{State: rescue.Ready, Source: &rescue.Source{Access: access}}}
		why := DiagnosisHindrance(s, &Host{Kind: AgentHost})
		if strings.Contains(why, "salvor-agent examine") != hasAgent || !strings.Contains(why, "unrescue and stop the server") {
			t.Errorf("by %s: %s", access, why)
		}
	}
	if why := DiagnosisHindrance(&Server{Power: PowerOff, Disks: []Disk{{Name: "vda"}}}, &Host{Kind: AgentHost}); why != "" {
		t.Errorf("a server that is off: %s", why)
	}
}
