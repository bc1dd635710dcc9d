package fleet

import (
	"os"
	"testing"

	"salvor/store/storetest"
	"salvor/test/program"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// TestPeersOnPostgres has two servers share a database; one is killed at work and the
// other goes on with all that it held.
func TestPeersOnPostgres(t *testing.T) {
	// Each has a key file of its own by default; those who share a database share the key.
	key := t.TempDir() + "/secrets.key"
	config := quiet + "[database]\nconnection = " + storetest.Postgres(t) + "\n[secrets]\nkey_file = " + key + "\n"
	first := program.Serve(t, config+"[DEFAULT]\nhost = first\n")
	second := program.Serve(t, config+"[DEFAULT]\nhost = second\n")
	f := newFleet(t, second, 60)
	for _, step := range []struct{ verb, want string }{{"rescue", "rescue"}, {"unrescue", "active"}} {
		f.request(step.verb)
		first.Kill()
		f.reach(step.want)
		first.Start(t)
	}
}
