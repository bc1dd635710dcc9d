package trouble

import (
	"database/sql"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"salvor/store/storetest"
	"salvor/test/must"
	"salvor/test/program"
)

// away is how long the database is gone: longer than leases last.
const away = 20 * time.Second

// TestDatabaseAway: while PostgreSQL is gone every request is refused as one that may be asked again, and nothing else happens; when it is
// back, stopped in order or killed, all goes on in the same process and everything accepted ends well.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	// A crash must keep what was committed, as on a server that nobody made quick for tests.
	at := storetest.Postgres(t) + "&synchronous_commit=on"
	db := must.Get(sql.Open("pgx", at))(t)
	t.Cleanup(func() { _ = db.Close() })
	server := program.Serve(t, quiet+"[database]\nconnection = "+at+"\n")
	p := newPlane(t, server)
	p.enroll(12)
	pid, stop := server.PID(), make(chan struct{})
	users := p.work(stop, p.nodes[2:])
	more := func(what string, n int) {
		t.Helper()
		before := p.count(http.StatusAccepted)
		p.eventually(what, func() error {
			if got := p.count(http.StatusAccepted) - before; got < n {
				return fmt.Errorf("%d accepted", got)
			}
			return nil
		})
	}
	more("work is under way", 15)
	for _, trouble := range []struct {
		sig  syscall.Signal
		away time.Duration
	}{{syscall.SIGINT, away}, {syscall.SIGKILL, time.Second}} {
		storetest.Halt(t, trouble.sig)
		for end := time.Now().Add(trouble.away); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			for _, r := range []struct{ method, path string }{{http.MethodGet, "/v1/nodes"}, {http.MethodPut, "/v1/nodes/" + p.nodes[0] + "/states/provision"}, {http.MethodGet, "/healthz"}} {
				if status, text, _ := p.ask(r.method, r.path, object{"target": "rescue", "rescue_password": "a long enough word"}); status != http.StatusServiceUnavailable {
					t.Errorf("%s %s: %d %s", r.method, r.path, status, text)
				}
			}
			p.alive()
			if t.Failed() {
				break
			}
		}
		storetest.Resume(t)
		more("work goes on", 15)
	}
	close(stop)
	users.Wait()
	p.settled()
	p.refused()
	p.judge(db)
	p.alive()
	// A success says nothing about the database for some seconds after a failure, and the newest failure may be that of an idle connection.
	p.eventually("health says that all is well", func() error {
		if status, text := p.health(); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	if server.PID() != pid {
		t.Errorf("process %d became %d", pid, server.PID())
	}
	t.Logf("answers by status: %v", p.answers)
}
