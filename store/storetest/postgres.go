package storetest

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the server's own connection
)

// server is the one PostgreSQL of this test binary.
var server struct {
	once    sync.Once
	managed bool // Main will stop it
	dir     string
	pid     int
	exited  chan struct{}
	db      *sql.DB
	err     error
	names   atomic.Int64
}

// Main runs the tests of a binary and then stops the PostgreSQL that they may have
// started: func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }.
func Main(m *testing.M) int {
	server.managed = true
	defer stopServer()
	// A third of rapid's own number of walks is enough beside all other tests; -rapid.checks still overrules it.
	if f := flag.Lookup("rapid.checks"); f != nil {
		_ = f.Value.Set("30")
	}
	return m.Run()
}

// Postgres gives the URL of a fresh database on a server of this test binary, which
// Debian's package postgresql must have brought; without that package tests under -short are skipped.
func Postgres(t testing.TB) string {
	t.Helper()
	if !server.managed {
		t.Fatal("storetest: TestMain must call storetest.Main, which stops PostgreSQL")
	}
	server.once.Do(func() { server.err = startServer() })
	if errors.Is(server.err, errNoServer) && testing.Short() {
		t.Skip(server.err)
	}
	if server.err != nil {
		t.Fatalf("PostgreSQL for tests: %v", server.err)
	}
	return createDatabase(t, "")
}

// createDatabase creates a database of the test's own, with options of CREATE DATABASE, and returns its URL.
func createDatabase(t testing.TB, options string) string {
	t.Helper()
	name := fmt.Sprintf("t%d", server.names.Add(1))
	if _, err := server.db.Exec("CREATE DATABASE " + name + " " + options); err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	t.Cleanup(func() {
		if _, err := server.db.Exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Errorf("PostgreSQL for tests: %v", err)
		}
	})
	return serverURL(name)
}

// Disconnect cuts every connection to the database.
func Disconnect(t testing.TB, d Database) {
	t.Helper()
	u, err := url.Parse(d.URL)
	if err == nil {
		_, err = server.db.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", u.Path[1:])
	}
	if err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
}

func runCheckpoint(t testing.TB) {
	t.Helper()
	if _, err := server.db.Exec("CHECKPOINT"); err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
}

// serverURL names a database on the server, which listens on a socket in its directory only.
func serverURL(name string) string {
	return "postgres://postgres@/" + name + "?host=" + url.QueryEscape(server.dir) + "&sslmode=disable"
}

func startServer() (err error) {
	bin, err := findServer()
	if err != nil {
		return err
	}
	as, err := serverUser()
	if err != nil {
		return err
	}
	if server.dir, err = os.MkdirTemp(fastDir(), "salvor-pg"); err != nil {
		return err
	}
	if as != nil {
		if err := os.Chown(server.dir, int(as.Uid), int(as.Gid)); err != nil {
			return err
		}
	}
	data := filepath.Join(server.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync",
		"--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en") // an order of words that is not that of bytes
	initdb.Dir, initdb.SysProcAttr = server.dir, &syscall.SysProcAttr{Credential: as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	if err := startPostgres(bin, as); err != nil {
		return err
	}
	return connectPostgres()
}

func startPostgres(bin string, as *syscall.Credential) error {
	data := filepath.Join(server.dir, "data")
	run := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", server.dir, "-c", "listen_addresses=", "-c", "fsync=off",
		"-c", "full_page_writes=off", "-c", "track_commit_timestamp=on", "-c", "synchronous_commit=off", "-c", "max_connections=200",
		"-c", "shared_buffers=16MB", "-c", "autovacuum=off", "-c", "jit=off") // databases of tests are small, and a test that needs statistics runs ANALYZE
	run.Dir = server.dir
	// It dies with this process even where that is killed.
	run.SysProcAttr = &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	return launchPostgres(run)
}

// Halt ends the server with a signal: SIGINT in order though its clients are at work, SIGKILL as a crash. Its databases stay.
func Halt(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(server.pid, sig); err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	select {
	case <-server.exited:
	case <-time.After(30 * time.Second):
		t.Fatal("PostgreSQL for tests does not end")
	}
}

// Resume starts the server that Halt ended.
func Resume(t testing.TB) {
	t.Helper()
	bin, err := findServer()
	if err != nil {
		t.Fatal(err)
	}
	as, err := serverUser()
	if err != nil {
		t.Fatal(err)
	}
	_ = server.db.Close()
	// What the former one had started may live a moment longer, and it is not let in beside that.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err = startPostgres(bin, as); err == nil {
			err = connectPostgres()
		}
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("PostgreSQL for tests: %v", err)
		}
	}
}

// fastDir is a place in memory where the machine has one with room, else the usual one for temporary files.
func fastDir() string {
	const shm, room = "/dev/shm", 2 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err != nil || int64(fs.Bavail)*fs.Bsize < room {
		return ""
	}
	return shm
}

// launchPostgres starts the server from a thread that lasts, because the signal of a parent's death is that of the thread.
func launchPostgres(run *exec.Cmd) error {
	log, err := os.Create(filepath.Join(server.dir, "log"))
	if err != nil {
		return err
	}
	run.Stdout, run.Stderr = log, log
	started := make(chan error)
	server.exited = make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := run.Start()
		_ = log.Close()
		started <- err
		if err == nil {
			_ = run.Wait()
		}
		close(server.exited)
	}()
	if err := <-started; err != nil {
		return err
	}
	server.pid = run.Process.Pid
	return nil
}

// connectPostgres waits until the server answers.
func connectPostgres() error {
	db, err := sql.Open("pgx", serverURL("postgres"))
	if err != nil {
		return err
	}
	server.db = db
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-server.exited:
			log, _ := os.ReadFile(filepath.Join(server.dir, "log"))
			return fmt.Errorf("the server ended at once: %s", log)
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func stopServer() {
	if server.db != nil {
		_ = server.db.Close()
	}
	if server.pid != 0 {
		// Immediate shutdown: nothing of it is kept.
		_ = syscall.Kill(server.pid, syscall.SIGQUIT)
		select {
		case <-server.exited:
		case <-time.After(20 * time.Second):
			_ = syscall.Kill(server.pid, syscall.SIGKILL)
			<-server.exited
		}
	}
	if server.dir != "" {
		_ = os.RemoveAll(server.dir)
	}
}

// errNoServer fails a test, but skips it under -short, with which "make check" runs.
var errNoServer = errors.New("no server under /usr/lib/postgresql: install the Debian package postgresql, or run make packages")

// findServer gives the directory of the newest installed server's programs.
func findServer() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	best, newest := "", 0
	for _, path := range found {
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))); err == nil && v > newest {
			best, newest = filepath.Dir(path), v
		}
	}
	if best == "" {
		return "", errNoServer
	}
	return best, nil
}

// serverUser is whom the server runs as: root must not, others run it as themselves.
func serverUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("install the package postgresql: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
