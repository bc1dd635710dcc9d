package nova_test

import (
	"testing"
	"time"

	"salvor/compute"
)

// TestRescueByKey: salvor's own fields of a rescue reach the session: keys to let in, and when it ends.
func TestRescueByKey(t *testing.T) {
	w := newWorld(t)
	id := w.active()
	action := "/servers/" + id + "/action"
	for _, body := range []string{`{"salvor:keys": "ssh-ed25519 AAAA"}`, `{"salvor:keys": [""]}`, `{"salvor:keys": [1]}`, `{"salvor:expires_in": -1}`, `{"salvor:expires_in": "soon"}`, `{"salvor:expires_in": 99999999999}`} {
		w.want(400, "POST", action, "", `{"rescue": `+body+`}`)
	}
	w.want(200, "POST", action, "", `{"rescue": {"salvor:keys": ["ssh-ed25519 AAAA me\n"], "salvor:expires_in": 3600}}`)
	var srv *compute.Server
	w.set(id, func(s *compute.Server) { srv = s })
	if c := srv.Rescue.Credential; len(c.Keys) != 1 || c.Keys[0] != "ssh-ed25519 AAAA me" || c.Hash.Empty() {
		t.Errorf("keys %q, a hash: %v", c.Keys, !c.Hash.Empty())
	}
	if lasts := srv.Rescue.ExpiresAt.Sub(srv.Rescue.StartedAt); lasts != time.Hour {
		t.Errorf("it lasts %s", lasts)
	}
}
