//go:build openstack

// Package openstack runs Debian's OpenStack beside salvor and compares what users of Nova see of machines under Ironic and under salvor.
package openstack

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"salvor/test/must"
)

const (
	// startTime bounds the start of one daemon: OpenStack's load hundreds of Python modules.
	startTime = 5 * time.Minute
	// commandTime bounds one command, such as the creation of a schema.
	commandTime = 20 * time.Minute
	stopTime    = 20 * time.Second
	python      = "/usr/bin/python3"
)

// site is all that the test starts, with all its files in one directory.
type site struct {
	testing.TB
	dir   string // on tmpfs where there is one
	began time.Time
	mu    sync.Mutex
	value map[string]string // of the names in braces that configurations hold
	// daemons are those that run.
	daemons []daemon
}

func newSite(t testing.TB) *site {
	t.Helper()
	parent := "/dev/shm"
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		parent = ""
	}
	dir := must.Get(os.MkdirTemp(parent, "salvor-openstack-"))(t)
	l := &site{TB: t, dir: dir, began: time.Now(), value: map[string]string{"DIR": dir}}
	t.Cleanup(func() {
		l.stop()
		if t.Failed() {
			l.showLogs()
		}
		_ = os.RemoveAll(dir)
	})
	return l
}

// showLogs gives the last lines of each log.
func (l *site) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(l.dir, "*.log"))
	for _, log := range logs {
		text, _ := os.ReadFile(log)
		l.Logf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-3000):])
	}
}

func (l *site) step(format string, args ...any) {
	l.Logf("%5.0f s: %s", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
}

// port gives a free TCP port a name.
func (l *site) port(name string) string {
	l.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(l)
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	l.set(name, port)
	return port
}

func (l *site) set(name, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value[name] = value
}

// fill puts values in place of names in braces.
func (l *site) fill(text string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, value := range l.value {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// file writes a file of the site's directory and gives its path.
func (l *site) file(name, text string) string {
	l.Helper()
	path := filepath.Join(l.dir, name)
	must.OK(l, os.MkdirAll(filepath.Dir(path), 0o700))
	must.OK(l, os.WriteFile(path, []byte(l.fill(text)), 0o600))
	return path
}

func (l *site) environment(more ...string) []string {
	return append([]string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + l.dir, "TMPDIR=" + l.dir, "LC_ALL=C.UTF-8", "no_proxy=*", "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=ignore",
	}, more...)
}

// run runs a command to its end.
func (l *site) run(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(l.Context(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = l.environment(), l.dir, 5*time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out[max(0, len(out)-3000):])
	}
	return nil
}

// start starts a daemon, which the test's end stops by its process id. Its log is NAME.log.
func (l *site) start(name string, env []string, program string, args ...string) error {
	log, err := os.Create(filepath.Join(l.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = l.environment(env...), l.dir, log, log
	// Workers and shells of a daemon are of its process group, which ends as a whole.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.daemons = append(l.daemons, daemon{cmd.Process.Pid, ended})
	return nil
}

// daemon is a process group that was started.
type daemon struct {
	pid   int
	ended chan struct{}
}

// stop ends all daemons at once, by their process ids.
func (l *site) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.daemons {
		_ = syscall.Kill(-d.pid, syscall.SIGTERM)
	}
	late, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	for _, d := range l.daemons {
		select {
		case <-d.ended:
		case <-late.Done():
		}
		_ = syscall.Kill(-d.pid, syscall.SIGKILL)
		<-d.ended
	}
}

// answers waits until a server accepts connections at a port.
func (l *site) answers(name, port string) error {
	for end := time.Now().Add(startTime); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
		if err == nil {
			conn.Close()
			return nil
		}
	}
	log, _ := os.ReadFile(filepath.Join(l.dir, name+".log"))
	return fmt.Errorf("%s does not listen at port %s:\n%s", name, port, log[max(0, len(log)-3000):])
}

// together runs functions at once and ends the test if one fails.
func (l *site) together(all ...func() error) {
	l.Helper()
	errs := make(chan error, len(all))
	for _, one := range all {
		go func() { errs <- one() }()
	}
	failed := false
	for range all {
		if err := <-errs; err != nil {
			l.Error(err)
			failed = true
		}
	}
	if failed {
		l.FailNow()
	}
}

// databases of the services; a schema takes minutes to create and seconds to load.
var databases = []string{"keystone", "placement", "nova_api", "nova_cell0", "nova", "glance", "neutron", "ironic"}

// schemaCache is the file with the schemas of the packages that are installed.
func (l *site) schemaCache() string {
	out := must.Get(exec.Command("dpkg-query", "-W", "python3-keystone", "python3-placement", "python3-nova", "python3-glance", "python3-neutron", "python3-ironic", "mariadb-server").Output())(l)
	cache := must.Get(os.UserCacheDir())(l)
	return filepath.Join(cache, "salvor", fmt.Sprintf("openstack-schemas-%x.sql", sha256.Sum256(out)))
}

// startDatabase starts a MariaDB that flushes nothing and has the schemas of all services.
func (l *site) startDatabase() {
	l.Helper()
	data := filepath.Join(l.dir, "mariadb")
	socket := filepath.Join(l.dir, "mariadb.socket")
	must.OK(l, l.run("mariadb-install-db", "--no-defaults", "--user=root", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db"))
	port := l.fill("{DB}")
	must.OK(l, l.start("mariadb", nil, "mariadbd", "--no-defaults", "--user=root", "--datadir="+data, "--socket="+socket, "--port="+port, "--bind-address=127.0.0.1",
		"--skip-grant-tables", "--skip-name-resolve", "--max-connections=400", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-log-file-size=64M",
		"--character-set-server=utf8mb3", "--collation-server=utf8mb3_general_ci", "--pid-file="+filepath.Join(l.dir, "mariadb.pid")))
	must.OK(l, l.answers("mariadb", port))
	client := []string{"--no-defaults", "--socket=" + socket, "--user=root"}
	if cache := l.schemaCache(); fileExists(cache) {
		must.OK(l, l.run("/bin/sh", "-c", "mariadb "+strings.Join(client, " ")+" <"+cache))
		l.step("the schemas are loaded from %s", cache)
		return
	}
	for _, name := range databases {
		must.OK(l, l.run("mariadb", append(client, "-e", "create database "+name)...))
	}
	l.createSchemas()
	cache := l.schemaCache()
	must.OK(l, os.MkdirAll(filepath.Dir(cache), 0o700))
	must.OK(l, l.run("/bin/sh", "-c", "mariadb-dump "+strings.Join(client, " ")+" --databases "+strings.Join(databases, " ")+" >"+cache+".new"))
	must.OK(l, os.Rename(cache+".new", cache))
	l.step("the schemas are created, and cached in %s", cache)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// createSchemas has each service create its tables.
func (l *site) createSchemas() {
	l.Helper()
	in := func(name string) string { return filepath.Join(l.dir, name) }
	l.together(
		func() error { return l.run("keystone-manage", "--config-file", in("keystone.conf"), "db_sync") },
		func() error {
			if err := l.run("nova-manage", "--config-file", in("nova.conf"), "api_db", "sync"); err != nil {
				return err
			}
			// cell0 and cell1 have the same tables.
			if err := l.run("nova-manage", "--config-file", in("nova.conf"), "db", "sync", "--local_cell"); err != nil {
				return err
			}
			return l.run("nova-manage", "--config-file", in("nova-cell0.conf"), "db", "sync", "--local_cell")
		},
		func() error {
			if err := l.run("/usr/bin/env", "OS_PLACEMENT_CONFIG_DIR="+in("placement"), "placement-manage", "--config-file", in("placement/placement.conf"), "db", "sync"); err != nil {
				return err
			}
			if err := l.run("glance-manage", "--config-file", in("glance.conf"), "db_sync"); err != nil {
				return err
			}
			if err := l.run(python, "-c", "import sys; from ironic.cmd.dbsync import main; sys.exit(main())", "--config-file", in("ironic.conf"), "create_schema"); err != nil {
				return err
			}
			return l.run("neutron-db-manage", "--config-file", in("neutron.conf"), "upgrade", "heads")
		},
	)
}

// startMessages starts RabbitMQ with an epmd of its own.
func (l *site) startMessages() error {
	epmd, node, dist := l.port("EPMD"), l.port("RABBIT"), l.port("RABBIT_DIST")
	if err := l.start("epmd", nil, "/usr/bin/epmd", "-port", epmd, "-address", "127.0.0.1"); err != nil {
		return err
	}
	if err := l.answers("epmd", epmd); err != nil {
		return err
	}
	err := l.start("rabbitmq", []string{
		"ERL_EPMD_PORT=" + epmd, "ERL_EPMD_ADDRESS=127.0.0.1", fmt.Sprintf("RABBITMQ_NODENAME=salvor%d@localhost", os.Getpid()),
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT=" + node, "RABBITMQ_DIST_PORT=" + dist,
		"RABBITMQ_MNESIA_BASE=" + filepath.Join(l.dir, "rabbitmq"), "RABBITMQ_LOG_BASE=" + filepath.Join(l.dir, "rabbitmq-log"),
		"RABBITMQ_CONF_ENV_FILE=/dev/null", "RABBITMQ_CONFIG_FILE=" + filepath.Join(l.dir, "rabbitmq-none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(l.dir, "rabbitmq-plugins"), "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 1:1",
	}, "/usr/lib/rabbitmq/bin/rabbitmq-server")
	if err != nil {
		return err
	}
	return l.answers("rabbitmq", node)
}

// uwsgi starts a WSGI program. Connections are closed and say so, or clients see them reset.
func (l *site) uwsgi(name, port, file, arguments string, processes int, env ...string) error {
	err := l.start(name, env, "uwsgi", "--plugin", "python3", "--http-socket", "127.0.0.1:"+port, "--wsgi-file", file, "--master", "--die-on-term", "--lazy-apps",
		"--processes", fmt.Sprint(processes), "--need-app", "--buffer-size", "65535", "--add-header", "Connection: close", "--pyargv", arguments)
	if err != nil {
		return err
	}
	return l.answers(name, port)
}
