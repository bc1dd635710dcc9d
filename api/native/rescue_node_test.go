package native_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/metal"
	"salvor/rescue"
)

// TestRescueOfANode: what the owner gives reaches the rescue; a password is made, and shown, only where neither a password nor a key is given.
func TestRescueOfANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.nodes = []*metal.Node{{Name: "m1", Owner: "ann", ProvisionState: metal.Active}}
	for _, c := range []struct {
		body            string
		password, lasts bool
		keys            int
		made            bool
	}{
		{`{"password":"let me in"}`, true, false, 0, false},
		{`{"keys":["ssh-ed25519 AAAA"],"expires_in":3600}`, false, true, 1, false},
		{`{}`, true, false, 0, true},
		{`{"keys":[]}`, true, false, 0, true},
	} {
		w.rescued = nil
		got := w.ask("ann", "POST", "/nodes/m1/rescue", c.body, 202)
		if len(w.rescued) != 1 {
			t.Fatalf("%s: %v", c.body, w.rescued)
		}
		args := w.rescued[0]
		made, _ := got["password"].(string)
		if args.RescuePassword.Empty() == c.password || len(args.RescueKeys) != c.keys || (args.RescueLasts == time.Hour) != c.lasts || (made != "") != c.made {
			t.Errorf("%s: %+v, answered %v", c.body, args, got)
		}
		if c.made && (made != args.RescuePassword.Reveal() || len(made) < 20) {
			t.Errorf("%s: shows a password that does not open it", c.body)
		}
	}
	w.rescued = nil
	for body, status := range map[string]int{`{"pasword":"x"}`: 400, `{"expires_in":-1}`: 400, `{"keys":"x"}`: 400, `[]`: 400} {
		w.ask("ann", "POST", "/nodes/m1/rescue", body, status)
	}
	w.ask("reader of ann", "POST", "/nodes/m1/rescue", "{}", 403)
	w.ask("bob", "POST", "/nodes/m1/rescue", "{}", 404)
	if len(w.rescued) != 0 {
		t.Errorf("refused requests rescued: %v", w.rescued)
	}
}

// TestReadersAreNotShownTheEntry: a reader sees that there is a session, and neither host key nor address, in no answer.
func TestReadersAreNotShownTheEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	session := &rescue.Session{Fingerprint: "SHA256:node", HostKey: "ssh-ed25519 NODE", Addresses: []string{"192.0.2.9"}}
	w.nodes = []*metal.Node{{ID: "1", Name: "m1", Lessee: "ann", ProvisionState: metal.Rescue, Rescue: session}}
	v := w.server("web1", 1)
	w.change(v.ID, func(s *compute.Server) {
		s.Project, s.NICs, s.Rescue.HostKey = "ann", []compute.NIC{{Addresses: []string{"192.0.2.8"}}}, "ssh-ed25519 SERVER"
	})
	entries := []string{"SHA256:node", "192.0.2.9", "salvor node ssh m1", "SHA256:f", "192.0.2.8", "salvor server ssh web1"}
	for requester, shown := range map[string]bool{"ann": true, "admin": true, "reader of ann": false} {
		all := ""
		for _, path := range []string{"/rescue-sessions", "/rescue-sessions?kind=node", "/rescue-sessions/m1", "/rescue-sessions/web1", "/nodes/m1/why", "/servers/web1/why"} {
			got := w.ask(requester, "GET", path, "", 200)
			all += fmt.Sprint(got)
			if !shown && strings.Contains(path, "/m1") && !strings.Contains(fmt.Sprint(got), "m1") {
				t.Errorf("%s: %s: %v", requester, path, got)
			}
		}
		for _, entry := range entries {
			if strings.Contains(all, entry) != shown {
				t.Errorf("%s: %q is shown: %v, want %v", requester, entry, !shown, shown)
			}
		}
	}
	if session.HostKey == "" {
		t.Error("the answer to a reader changed the session")
	}
}
