package storetest

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/test/must"
)

// Pair is a PostgreSQL primary and a standby that streams from it. Each server has a socket in a directory of its own. Promote does
// not swap the fields: Primary and Standby keep their first roles.
type Pair struct {
	Primary, Standby *Instance
}

// Instance is one PostgreSQL server of a test.
type Instance struct {
	t      testing.TB
	name   string
	dir    string
	bin    string
	as     *syscall.Credential
	run    *exec.Cmd
	exited chan struct{}
}

// standbyName is the application_name of the standby.
const standbyName = "standby"

// NewPair starts both servers; the end of the test stops them. With synchronous, a commit on the primary waits until the standby has it.
// Tests under -short are skipped where there is no PostgreSQL.
func NewPair(t testing.TB, synchronous bool) *Pair {
	t.Helper()
	p := &Pair{Primary: NewInstance(t), Standby: newInstance(t, standbyName)}
	p.Standby.command("pg_basebackup", "-D", p.Standby.data(), "-U", "postgres", "-R", "--no-sync", "-c", "fast",
		"-d", "host="+p.Primary.dir+" application_name="+standbyName)
	p.Standby.Start()
	p.awaitStreaming()
	if synchronous {
		p.Primary.exec("ALTER SYSTEM SET synchronous_standby_names = '" + standbyName + "'")
		p.Primary.exec("SELECT pg_reload_conf()")
		p.await("a synchronous standby", p.Primary, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')")
	}
	return p
}

// Database makes an empty database on the primary, waits until the standby has it, and gives its URL with both servers.
func (p *Pair) Database(name string) string {
	p.Primary.t.Helper()
	p.Primary.exec("CREATE DATABASE " + name)
	p.await("the new database on the standby", p.Standby, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = '"+name+"')")
	return p.URL(name)
}

// URL names a database on both servers, the primary first.
func (p *Pair) URL(database string) string {
	return "postgres://postgres@/" + database + "?host=" + url.QueryEscape(p.Primary.dir+","+p.Standby.dir) + "&sslmode=disable"
}

// FreezeReceiver stops the standby's process that receives the primary's log. The standby still answers, but falls behind, and
// commits hang if it is synchronous. Thaw ends that.
func (p *Pair) FreezeReceiver() {
	p.Primary.t.Helper()
	pid := 0
	p.Standby.query(&pid, "SELECT pid FROM pg_stat_wal_receiver")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		p.Primary.t.Fatalf("freeze the receiver of the standby: %v", err)
	}
}

// FreezeSender waits until the standby has all that is committed, and then stops the primary's process that sends its log. The standby
// gets nothing of what follows, not even from the buffer of a socket. Thaw ends that.
func (p *Pair) FreezeSender() {
	p.Primary.t.Helper()
	var position string
	p.Primary.query(&position, "SELECT pg_current_wal_lsn()::text")
	p.await("a standby that has all", p.Primary, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn >= '"+position+"')")
	pid := 0
	p.Primary.query(&pid, "SELECT pid FROM pg_stat_replication")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		p.Primary.t.Fatalf("freeze the sender of the primary: %v", err)
	}
}

func (p *Pair) awaitStreaming() {
	p.await("a standby that streams", p.Primary, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')")
}

func (p *Pair) await(what string, on *Instance, question string) {
	p.Primary.t.Helper()
	for end := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		var yes bool
		if on.query(&yes, question); yes {
			return
		}
		if time.Now().After(end) {
			p.Primary.t.Fatalf("PostgreSQL for tests: there never was %s: %s", what, on.log())
		}
	}
}

// startTime bounds the start and the end of a server, and what a pair waits for.
const startTime = 60 * time.Second

// NewInstance starts a server of the test's own; the end of the test stops it.
func NewInstance(t testing.TB) *Instance {
	t.Helper()
	i := newInstance(t, "primary")
	i.command("initdb", "-D", i.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C.UTF-8")
	i.Start()
	return i
}

func newInstance(t testing.TB, name string) *Instance {
	t.Helper()
	bin, err := findServer()
	if errors.Is(err, errNoServer) && testing.Short() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	i := &Instance{t: t, name: name, bin: bin}
	if i.as, err = serverUser(); err != nil {
		t.Fatal(err)
	}
	if i.dir, err = os.MkdirTemp(fastDir(), "salvor-pg"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		i.Kill()
		if t.Failed() {
			t.Logf("log of the %s:\n%s", name, i.log())
		}
		_ = os.RemoveAll(i.dir)
	})
	if i.as != nil {
		must.OK(t, os.Chown(i.dir, int(i.as.Uid), int(i.as.Gid)))
	}
	return i
}

// Dir is the directory of the server's socket.
func (i *Instance) Dir() string { return i.dir }

// User is the user that the server runs as; nil: the user of the test.
func (i *Instance) User() *syscall.Credential { return i.as }

// URL names a database on this server alone.
func (i *Instance) URL(database string) string {
	return "postgres://postgres@/" + database + "?host=" + url.QueryEscape(i.dir) + "&sslmode=disable"
}

func (i *Instance) data() string { return filepath.Join(i.dir, "data") }

// log is the end of what the server wrote.
func (i *Instance) log() string {
	all, _ := os.ReadFile(filepath.Join(i.dir, "log"))
	return string(all[max(0, len(all)-4000):])
}

// command runs one of PostgreSQL's programs as the server's user.
func (i *Instance) command(program string, args ...string) {
	i.t.Helper()
	cmd := exec.Command(filepath.Join(i.bin, program), args...)
	cmd.Dir, cmd.SysProcAttr = i.dir, &syscall.SysProcAttr{Credential: i.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		i.t.Fatalf("PostgreSQL for tests: %s: %v: %s", program, err, out)
	}
}

// Start starts the server, again after Kill or Stop, and waits until it answers. Its files keep each commit through the kill of its processes.
func (i *Instance) Start() {
	i.t.Helper()
	for end := time.Now().Add(startTime); ; time.Sleep(100 * time.Millisecond) {
		i.launch()
		err := i.ready()
		if err == nil {
			return
		}
		// A process of a killed server may live a moment longer, and PostgreSQL does not start a new server beside it.
		if time.Now().After(end) {
			i.t.Fatalf("PostgreSQL for tests: the %s: %v: %s", i.name, err, i.log())
		}
	}
}

// launch starts the server from a locked thread, because the kernel sends the parent-death signal when that thread ends.
func (i *Instance) launch() {
	i.t.Helper()
	log := must.Get(os.OpenFile(filepath.Join(i.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600))(i.t)
	run := exec.Command(filepath.Join(i.bin, "postgres"), "-D", i.data(), "-k", i.dir, "-c", "listen_addresses=", "-c", "fsync=off",
		"-c", "full_page_writes=off", "-c", "max_connections=200", "-c", "shared_buffers=32MB", "-c", "wal_sender_timeout=0", "-c", "wal_receiver_timeout=0",
		"-c", "wal_retrieve_retry_interval=200ms", "-c", "hot_standby_feedback=on")
	run.Dir, run.Stdout, run.Stderr = i.dir, log, log
	run.SysProcAttr = &syscall.SysProcAttr{Credential: i.as, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := run.Start()
		_ = log.Close()
		started <- err
		if err == nil {
			_ = run.Wait()
		}
		close(exited)
	}()
	must.OK(i.t, <-started)
	i.run, i.exited = run, exited
}

func (i *Instance) ready() error {
	for end := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		err := i.try(func(ctx context.Context, db *sql.DB) error { return db.PingContext(ctx) })
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-i.exited:
			return errors.New("it ended at once")
		default:
		}
	}
}

// Kill ends all processes of the server at once, frozen ones too, as the loss of its machine would.
func (i *Instance) Kill() {
	if i.run == nil {
		return
	}
	for _, pid := range i.freeze() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-i.exited
	i.run = nil
}

// Stop shuts the server down, even if clients are connected.
func (i *Instance) Stop() {
	i.t.Helper()
	_ = i.run.Process.Signal(syscall.SIGINT)
	select {
	case <-i.exited:
		i.run = nil
	case <-time.After(startTime):
		i.t.Fatalf("PostgreSQL for tests: the %s does not end: %s", i.name, i.log())
	}
}

// Promote makes the standby a primary and waits until it accepts changes.
func (i *Instance) Promote() {
	i.t.Helper()
	done := false
	if i.query(&done, "SELECT pg_promote(true, 60)"); !done {
		i.t.Fatalf("PostgreSQL for tests: the %s is not promoted: %s", i.name, i.log())
	}
}

// Freeze stops all processes of the server where they stand: connections stay open and nothing is answered.
func (i *Instance) Freeze() { i.freeze() }

// Thaw lets all processes of the server go on, whatever froze them.
func (i *Instance) Thaw() {
	for _, pid := range i.processes() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// freeze returns the processes that it stopped. It stops the postmaster first, so that no new one starts.
func (i *Instance) freeze() []int {
	_ = syscall.Kill(i.run.Process.Pid, syscall.SIGSTOP)
	all := i.processes()
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	return all
}

// processes are the postmaster and its children.
func (i *Instance) processes() []int {
	parent := i.run.Process.Pid
	all := []int{parent}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		// PID (NAME) STATE PARENT ...
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

func (i *Instance) exec(text string) {
	i.t.Helper()
	if err := i.try(func(ctx context.Context, db *sql.DB) error { _, err := db.ExecContext(ctx, text); return err }); err != nil {
		i.t.Fatalf("PostgreSQL for tests: the %s: %s: %v", i.name, text, err)
	}
}

// query asks the server for one value.
func (i *Instance) query(to any, text string) {
	i.t.Helper()
	if err := i.try(func(ctx context.Context, db *sql.DB) error { return db.QueryRowContext(ctx, text).Scan(to) }); err != nil {
		i.t.Fatalf("PostgreSQL for tests: the %s: %s: %v", i.name, text, err)
	}
}

// try runs a function with a new connection to the server.
func (i *Instance) try(do func(ctx context.Context, db *sql.DB) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	db, err := sql.Open("pgx", i.URL("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	return do(ctx, db)
}
