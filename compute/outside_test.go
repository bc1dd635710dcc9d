package compute_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
)

// TestWhyOutside: whom a server belongs to is told of no host and no conductor.
func TestWhyOutside(t *testing.T) {
	for name, tt := range map[string]struct {
		so   func(*compute.ServerSituation)
		mood record.Status
		says string
	}{
		"its job waits for a host": {func(s *compute.ServerSituation) {
			s.Jobs = []job.Job{works("server power", job.Waiting)}
			s.Jobs[0].Problem, s.Jobs[0].Owner = "host vm7 is full", "id/1"
		}, record.Waiting, "waits for what its action asked for"},
		"a conductor works": {func(s *compute.ServerSituation) {
			s.Jobs, s.Conductors.Owners = []job.Job{works("server power", job.Running)}, map[string]string{"id/1": "vm7"}
			s.Jobs[0].Owner = "id/1"
		}, record.Working, ""},
		"a conductor is silent": {func(s *compute.ServerSituation) { s.Conductors = record.Conductors{Dead: []string{"vm7"}} }, record.Stuck, "No conductor is known"},
		"it moves":              {func(s *compute.ServerSituation) { s.Move = &compute.Move{Words: "from vm7"} }, record.Waiting, "It is being moved to another host"},
	} {
		t.Run(name, func(t *testing.T) {
			s := compute.ServerSituation{
				Server: &compute.Server{Name: "web1", State: compute.Active, Power: compute.PowerOn, Wanted: compute.PowerOn, LaunchedAt: whyNow.Add(-time.Hour)},
				Host:   &compute.Host{Name: "vm7"}, Life: compute.HostLiveness{Up: true, RenewedAt: whyNow.Add(-3 * time.Second)}, Conductors: whyConductors,
			}
			tt.so(&s)
			w := s.Why()
			checkWhy(t, "server", "web1", w, tt.mood, []string{tt.says}, "")
			if text := w.Text("server", "web1", whyNow); strings.Contains(text, "vm7") || w.Conductor != "" {
				t.Errorf("an owner is told of %q: %s", w.Conductor, text)
			}
		})
	}
}

// TestEventsOutside: whom a server belongs to is told what was done, and not on which host or what that said.
func TestEventsOutside(t *testing.T) {
	for want, e := range map[string]job.Event{
		"asked to reboot": {Type: "request", Text: "asked to reboot"},
		"active -> error": {Type: "state", Text: "active -> error"},
		"define":          {Type: "action", Action: "define", Text: "define"},
		"undo define":     {Type: "action", Action: "define", Text: "undo define"},
		"define: waits":   {Type: "action", Action: "define", Severity: "info", Text: "define: waits for host vm7 to define the guest"},
		"define: did not succeed; an administrator may see why": {Type: "action", Action: "define", Severity: "error", Text: "define: failed: host vm7 is full"},
		"define: its host does not answer; the work is done when the host is back, or at another host by an evacuation": {Type: "action", Action: "define", Severity: "error",
			Text: "define: failed: Timeout reached while waiting for host vm7: the host is silent; " + compute.WorkIsKept + "; salvor server abort 4711 ends that"},
		"word of its host; an administrator may see why": {Type: "contact", Text: "goes to host vm7"},
	} {
		if got := compute.Outside(e).Text; got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
}
