package trouble

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/store/storetest"
	"salvor/test/debian"
	"salvor/test/must"
	"salvor/test/program"
)

// bouncer starts a PgBouncer before a PostgreSQL and gives the URL of the database by way of it.
func bouncer(t *testing.T, server *storetest.Instance, database, mode, more string) string {
	t.Helper()
	path := debian.Program(t, "pgbouncer", "pgbouncer")
	dir, err := os.MkdirTemp("", "salvor-pgb") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := fmt.Sprintf("[databases]\n* = host=%s port=5432\n[pgbouncer]\npool_mode = %s\nlisten_addr =\nunix_socket_dir = %s\nlisten_port = 5432\nauth_type = trust\nauth_file = %s/users\n%s\n",
		server.Dir(), mode, dir, dir, more)
	for name, text := range map[string]string{"pgbouncer.ini": config, "users": "\"postgres\" \"\"\n"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	as := server.User()
	if as != nil { // PgBouncer does not run as root either
		must.OK(t, os.Chown(dir, int(as.Uid), int(as.Gid)))
	}
	cmd := exec.Command(path, filepath.Join(dir, "pgbouncer.ini"))
	var log program.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &log, &log, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() { // the signal of a parent's death is that of the thread
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(ended)
	}()
	must.OK(t, <-started)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	must.OK(t, program.Await(patience, func() error {
		c, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL.5432"))
		if err != nil {
			return fmt.Errorf("%w: %s", err, log.String())
		}
		return c.Close()
	}))
	return "postgres://postgres@/" + database + "?host=" + url.QueryEscape(dir) + "&sslmode=disable"
}

// TestPooler serves through a real PgBouncer: two processes share the database, and all that they accept ends well.
func TestPooler(t *testing.T) {
	t.Parallel()
	server := storetest.NewInstance(t)
	db := must.Get(sql.Open("pgx", server.URL("postgres")))(t)
	t.Cleanup(func() { _ = db.Close() })
	for _, tt := range []struct{ name, mode, options string }{
		{"session", "session", "pool_mode = session\n"},
		{"polling", "transaction", "pool_mode = transaction\n"},
		{"listening", "transaction", "pool_mode = transaction\ndirect_connection = DIRECT\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must.Get(db.ExecContext(t.Context(), "CREATE DATABASE "+tt.name))(t)
			if status, out := run(t, "db", "migrate", "--database", server.URL(tt.name)); status != 0 {
				t.Fatalf("migrate: %d %s", status, out)
			}
			at := bouncer(t, server, tt.name, tt.mode, "default_pool_size = 60\nmax_client_conn = 200")
			config := quiet + "[database]\nconnection = " + at + "\n" + strings.ReplaceAll(tt.options, "DIRECT", server.URL(tt.name)) +
				"[secrets]\nkey_file = " + t.TempDir() + "/secrets.key\n[DEFAULT]\nhost = "
			first := newPlane(t, program.Serve(t, config+"first\n"))
			second := newPlane(t, program.Serve(t, config+"second\n"))
			first.enroll(6)
			second.nodes = first.nodes
			stop := make(chan struct{})
			one, two := first.work(stop, first.nodes[:3]), second.work(stop, first.nodes[3:])
			for _, p := range []*plane{first, second} {
				p.eventually("work goes on", func() error {
					if got := p.count(202); got < 10 {
						return fmt.Errorf("%d accepted", got)
					}
					return nil
				})
			}
			close(stop)
			one.Wait()
			two.Wait()
			jobs := must.Get(sql.Open("pgx", server.URL(tt.name)))(t)
			defer jobs.Close()
			for _, p := range []*plane{first, second} {
				p.settled()
				p.refused()
				p.judge(jobs)
			}
			log := first.server.Log()
			if polls := strings.Contains(log, "found by polling"); polls != (tt.name == "polling") {
				t.Errorf("polling is told: %v", polls)
			}
			if strings.Contains(log, "listen for work of other processes") {
				t.Errorf("it does not hear of others' work:\n%s", first.tail())
			}
			bounded := ""
			if err := jobs.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&bounded); err != nil || bounded != "0" {
				t.Errorf("%s locks of sessions are left: %v", bounded, err)
			}
			t.Logf("idle: %.1f transactions a second of two processes", transactions(t, jobs, tt.name))
		})
	}
}

// transactions is how many the server carries out in a second while nobody asks for anything.
func transactions(t *testing.T, db *sql.DB, name string) float64 {
	t.Helper()
	count := func() (n float64) {
		must.OK(t, db.QueryRowContext(t.Context(), "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1", name).Scan(&n))
		return n
	}
	before, began := count(), time.Now()
	time.Sleep(4 * time.Second)
	return (count() - before) / time.Since(began).Seconds()
}

// TestPoolerIsTold: a pooler that the configuration does not name is refused in a line that says what to set.
func TestPoolerIsTold(t *testing.T) {
	t.Parallel()
	server := storetest.NewInstance(t)
	const lax = "ignore_startup_parameters = statement_timeout,lock_timeout,idle_in_transaction_session_timeout"
	for _, tt := range []struct{ name, mode, more, options, want string }{
		{"startup parameters", "transaction", "", "", "set [database]pool_mode"},
		{"transaction mode", "transaction", lax, "", "set [database]pool_mode = transaction"},
		{"session mode without time limits", "session", lax, "", "set [database]pool_mode"},
		{"transaction mode taken for session mode", "transaction", "", "pool_mode = session\n", "set [database]pool_mode = transaction"},
		{"tables that are not there", "transaction", "", "pool_mode = transaction\n", "salvor db migrate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := bouncer(t, server, "postgres", tt.mode, tt.more)
			_, err := program.Launch(t.TempDir(), "[database]\nconnection = "+at+"\n"+tt.options)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "panic") {
				t.Errorf("told: %v", err)
			}
			if tt.mode == "session" {
				return // a tool works through it: the session is its own
			}
			if status, out := run(t, "db", "migrate", "--database", at); status == 0 || !strings.Contains(out, "pool") {
				t.Errorf("salvor db migrate through the pooler: %d %s", status, out)
			}
		})
	}
}
