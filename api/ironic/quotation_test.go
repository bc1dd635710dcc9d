package ironic_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"salvor/access"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

// TestWordsOfBMCsAreForAdministrators: principals who may see everything read text of a BMC or an agent. Owners, lessees and readers
// of a project do not.
func TestWordsOfBMCsAreForAdministrators(t *testing.T) {
	const banner = "INTERNAL-SECRET-BANNER build 7"
	words := "Failed to rescue: 500: " + problem.Quote(banner)
	w := newWorld(t)
	w.tenancy()
	for _, id := range []string{owned, leased} {
		w.edit(id, func(n *metal.Node) {
			n.LastError, n.MaintenanceReason, n.Maintenance, n.Fault, n.BootNumber = words, words, true, "power failure", 1
		})
		must.OK(t, w.store.Do(t.Context(), func(tx job.Tx) error {
			if err := w.store.Append(tx, job.Event{Subject: job.Node(id), At: time.Now(), Type: "state", Text: "rescue failed: " + words, Severity: "error"}); err != nil {
				return err
			}
			return w.store.SaveContact(tx, metal.Contact{NodeID: id, AgentBoot: 1, AgentStatus: "error", AgentStatusMessage: banner, HeartbeatAt: time.Now()})
		}))
	}
	project := access.Scope{Project: "p1", ProjectName: "one"}
	for _, tt := range []struct {
		name  string
		who   http.Handler
		node  string
		shown bool
	}{
		{"administrator", w.handler, owned, true},
		{"system administrator", w.persona(access.Scope{System: true}, "admin", "member", "reader"), owned, true},
		{"system reader", w.persona(access.Scope{System: true}, "reader"), owned, true},
		{"owner's admin", w.persona(project, "admin", "manager", "member", "reader"), owned, false},
		{"owner's member", w.persona(project, "member", "reader"), owned, false},
		{"owner's reader", w.persona(project, "reader"), owned, false},
		{"lessee's admin", w.persona(project, "admin", "manager", "member", "reader"), leased, false},
		{"lessee's reader", w.persona(project, "reader"), leased, false},
	} {
		told := false
		for _, path := range []string{"/v1/nodes/" + tt.node, "/v1/nodes/detail", "/v1/nodes?fields=uuid,last_error,maintenance_reason", "/v1/nodes/" + tt.node + "/states", "/v1/nodes/" + tt.node + "/history?detail=true"} {
			a := ask(tt.who, "GET", path, "1.82", "")
			if a.Status != 200 && !(tt.node == leased && a.Status == 403) {
				t.Fatalf("%s: %s: %d %s", tt.name, path, a.Status, a.Body)
			}
			if !tt.shown && strings.Contains(a.Body, banner) {
				t.Errorf("%s sees at %s what a BMC wrote: %s", tt.name, path, a.Body)
			}
			if tt.shown && !strings.Contains(a.Body, banner) {
				t.Errorf("%s does not see at %s what a BMC wrote: %s", tt.name, path, a.Body)
			}
			told = told || strings.Contains(a.Body, problem.Redacted)
		}
		if told == tt.shown {
			t.Errorf("%s is told of hidden words: %v", tt.name, told)
		}
	}
}
