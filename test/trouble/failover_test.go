package trouble

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/store/storetest"
	"salvor/test/must"
	"salvor/test/program"
)

// TestFailover: the primary of two PostgreSQL servers is killed under work and its synchronous standby is promoted. Two processes live on, no
// accepted operation is lost or done twice, and all end.
func TestFailover(t *testing.T) {
	t.Parallel()
	pair := storetest.NewPair(t, true)
	config := quiet + "[database]\nconnection = " + pair.Database("salvor") + "\n[secrets]\nkey_file = " + t.TempDir() + "/secrets.key\n[DEFAULT]\nhost = "
	first := newPlane(t, program.Serve(t, config+"first\n"))
	second := newPlane(t, program.Serve(t, config+"second\n"))
	first.enroll(8)
	second.nodes = first.nodes
	stop := make(chan struct{})
	one, two := first.work(stop, first.nodes[:4]), second.work(stop, first.nodes[4:])
	more := func(what string) {
		t.Helper()
		for _, p := range []*plane{first, second} {
			before := p.count(http.StatusAccepted)
			p.eventually(what, func() error {
				if got := p.count(http.StatusAccepted) - before; got < 5 {
					return fmt.Errorf("%d accepted", got)
				}
				return nil
			})
		}
	}
	more("work is under way")
	killed := time.Now()
	pair.Primary.Kill()
	status, text, id := first.ask(http.MethodPut, "/v1/nodes/"+first.nodes[0]+"/states/provision", object{"target": "rescue", "rescue_password": "a long enough word"})
	if status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout {
		t.Errorf("without a primary: %d %s", status, text)
	}
	namesNothing(t, text, id, pair.Primary.Dir(), pair.Standby.Dir())
	pair.Standby.Promote()
	t.Logf("promoted %s after the kill", time.Since(killed))
	more("work goes on")
	t.Logf("five operations more of each process were accepted %s after the kill", time.Since(killed))
	close(stop)
	one.Wait()
	two.Wait()
	db := must.Get(sql.Open("pgx", pair.Standby.URL("salvor")))(t)
	defer db.Close()
	for _, p := range []*plane{first, second} {
		p.settled()
		p.refused()
		p.judge(db)
		p.alive()
		t.Logf("answers by status: %v", p.answers)
	}
}

// namesNothing fails the test where an answer tells of what stands behind the program, or tells no request id.
func namesNothing(t *testing.T, text, id string, more ...string) {
	t.Helper()
	for _, word := range append(more, "postgres", "user=", "database=", "SQLSTATE", "dial", "127.0.0.1", "FATAL", "EOF", ".s.PGSQL") {
		if strings.Contains(text, word) {
			t.Errorf("an answer holds %q: %s", word, text)
		}
	}
	if id == "" || !strings.Contains(text, id) {
		t.Errorf("an answer without its request id %s: %s", id, text)
	}
}

// TestFrozenStandby: while the synchronous standby is frozen, a request gets a 504 in time. The answer says that the request may
// have been taken, and how to look. The request is one operation, which ends well when the standby is back.
func TestFrozenStandby(t *testing.T) {
	t.Parallel()
	pair := storetest.NewPair(t, true)
	p := newPlane(t, program.Serve(t, quiet+"[database]\nconnection = "+pair.Database("salvor")+"\n"))
	p.enroll(2)
	pair.FreezeReceiver()
	var all sync.WaitGroup
	for _, node := range p.nodes {
		all.Go(func() {
			began := time.Now()
			status, text, id := p.ask(http.MethodPut, "/v1/nodes/"+node+"/states/provision", object{"target": "rescue", "rescue_password": "a long enough word"})
			if took := time.Since(began); status != http.StatusGatewayTimeout || took > 30*time.Second || !strings.Contains(text, "may have been made") || !strings.Contains(text, "salvor why") {
				t.Errorf("answered after %s: %d %s", took, status, text)
			}
			namesNothing(t, text, id, pair.Primary.Dir())
			p.mu.Lock()
			p.accepted[id] = node
			p.mu.Unlock()
		})
	}
	all.Wait()
	if n := p.node(p.nodes[0]); n.State == "" {
		t.Error("reading does not go on")
	}
	if status, text := p.health(); status != http.StatusServiceUnavailable {
		t.Errorf("health: %d %s", status, text)
	}
	pair.Standby.Thaw()
	p.eventually("both rescues end", func() error {
		for _, node := range p.nodes {
			if n := p.node(node); n.State != "rescue" || n.Reservation != "" {
				return fmt.Errorf("%+v", n)
			}
		}
		return nil
	})
	db := must.Get(sql.Open("pgx", pair.Primary.URL("salvor")))(t)
	defer db.Close()
	p.judge(db)
}

// TestAnswersNameNoDatabase: whatever keeps the database away, answers name nothing of it, and the log has what they leave out.
func TestAnswersNameNoDatabase(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text, logged string
	}{
		{"refused login", "ALTER ROLE secretuser NOLOGIN", "secretuser"},
		{"dropped database", "DROP DATABASE secretname WITH (FORCE)", "secretname"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := storetest.NewInstance(t)
			db := must.Get(sql.Open("pgx", server.URL("postgres")))(t)
			defer db.Close()
			do := func(text string) {
				t.Helper()
				must.Get(db.ExecContext(t.Context(), text))(t)
			}
			do("CREATE ROLE secretuser LOGIN")
			do("CREATE DATABASE secretname OWNER secretuser")
			at := strings.Replace(server.URL("secretname"), "postgres@", "secretuser@", 1)
			p := newPlane(t, program.Serve(t, quiet+"[database]\nconnection = "+at+"\n"))
			do(tt.text)
			// A connection that was logging in meanwhile may come later than a look at all of them.
			cut := func() { do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'secretuser'") }
			cut()
			for _, path := range []string{"/v1/nodes", "/salvor/v1/hosts", "/compute/v2.1/servers"} {
				var status int
				var text, id string
				p.eventually("the answer is a refusal", func() error {
					if status, text, id = p.ask(http.MethodGet, path, nil); status != http.StatusServiceUnavailable {
						return fmt.Errorf("%s: %d %s", path, status, text)
					}
					return nil
				})
				namesNothing(t, text, id, "secretuser", "secretname", server.Dir())
			}
			var text, id string
			p.eventually("a write is refused", func() (err error) {
				cut()
				var status int
				if status, text, id = p.ask(http.MethodPost, "/v1/nodes", object{"driver": "fake-hardware"}); status != http.StatusServiceUnavailable {
					err = fmt.Errorf("a write: %d %s", status, text)
				}
				return err
			})
			namesNothing(t, text, id, "secretuser", "secretname", server.Dir())
			p.server.AwaitLog(t, tt.logged)
			if _, text := p.health(); strings.Contains(text, "secret") {
				t.Errorf("health: %s", text)
			}
		})
	}
}
