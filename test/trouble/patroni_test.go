package trouble

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"salvor/test/must"
	"salvor/test/program"
)

// cluster is a real Patroni with etcd and three PostgreSQL servers on loopback, in a directory of its own.
type cluster struct {
	testing.TB
	dir   string
	as    *syscall.Credential
	etcd  string
	nodes []*patroniNode
}

type patroniNode struct {
	name, rest, postgres string
	run                  *exec.Cmd
}

const (
	postgresBin = "/usr/lib/postgresql/15/bin"
	// patroniTime bounds a failover: twice Patroni's default ttl, and time for a busy machine.
	patroniTime = 2 * time.Minute
)

// TestPatroni: a switchover and the kill of the leader's machine, under work, lose no accepted change and do none twice. Run it by
// hand: it needs Debian's patroni, etcd-server and python3-etcd, and takes minutes, because Patroni waits for its ttl.
func TestPatroni(t *testing.T) {
	if os.Getenv("SALVOR_PATRONI") == "" {
		t.Skip("set SALVOR_PATRONI=1; needs patroni, etcd-server, python3-etcd and PostgreSQL 15")
	}
	for _, settings := range []string{"ttl: 30, loop_wait: 10, retry_timeout: 10", "ttl: 20, loop_wait: 2, retry_timeout: 5"} {
		t.Run(settings, func(t *testing.T) { failsOver(t, settings) })
	}
}

func failsOver(t *testing.T, settings string) {
	c := newCluster(t, settings)
	leader, _ := c.roles()
	db := c.open(leader, "postgres")
	must.Get(db.Exec("CREATE DATABASE salvor"))(t)
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, n.postgres)
	}
	config := quiet + "[database]\nconnection = postgres://postgres@" + strings.Join(hosts, ",") + "/salvor?sslmode=disable\n[secrets]\nkey_file = " +
		t.TempDir() + "/secrets.key\n[DEFAULT]\nhost = "
	planes := []*plane{newPlane(t, program.Serve(t, config+"first\n")), newPlane(t, program.Serve(t, config+"second\n"))}
	planes[0].enroll(8)
	planes[1].nodes = planes[0].nodes
	stop := make(chan struct{})
	var writers []*writing
	var all []*sync.WaitGroup
	for i, p := range planes {
		all = append(all, p.work(stop, p.nodes[4*i:4*i+4]))
		w := p.write(stop)
		writers, all = append(writers, w), append(all, &w.done)
	}
	for i, event := range []string{"switchover", "kill", "kill"} {
		leader, standby := c.roles()
		for _, w := range writers {
			w.await(time.Now())
		}
		began := time.Now()
		if event == "kill" {
			c.kill(leader)
		} else {
			c.ask(leader, http.MethodPost, "/switchover", object{"leader": leader.name, "candidate": standby.name}, nil)
			t.Logf("%d: Patroni answered the switchover after %s", i, time.Since(began).Round(time.Millisecond))
		}
		for _, w := range writers {
			w.await(time.Now()) // as many as began before that
		}
		for end := began.Add(patroniTime); ; time.Sleep(100 * time.Millisecond) {
			if now, _ := c.look(c.nodes[0], c.nodes[1], c.nodes[2]); now != nil && now != leader {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("no new leader\n%s", c.log())
			}
		}
		asked := time.Now()
		for n, w := range writers {
			w.await(asked)
			t.Logf("%d: %s of %s: process %d accepted no change for %s", i, event, leader.name, n, w.gap(began).Round(10*time.Millisecond))
		}
		if event == "kill" {
			c.start(leader)
		}
	}
	close(stop)
	for _, w := range all {
		w.Wait()
	}
	leader, _ = c.roles()
	db = c.open(leader, "salvor")
	for n, p := range planes {
		p.settled()
		p.refused()
		p.judge(db)
		p.alive()
		writers[n].judge(p)
		t.Logf("process %d: operations by status %v, %d accepted; changes by status %v", n, p.answers, len(p.accepted), writers[n].answers)
	}
	twice := 0
	if err := db.QueryRow("SELECT COUNT(*) FROM (SELECT request_id FROM job WHERE class = 'operation' GROUP BY request_id HAVING COUNT(*) > 1) x").Scan(&twice); err != nil || twice != 0 {
		t.Errorf("%d requests are two operations: %v", twice, err)
	}
}

// writing changes a field of one node again and again, to a number that rises.
type writing struct {
	done sync.WaitGroup
	node string

	mu       sync.Mutex
	accepted []time.Time // when each accepted change was answered
	newest   int         // newest accepted number
	answers  map[int]int // by status
}

func (p *plane) write(stop <-chan struct{}) *writing {
	status, text, _ := p.ask(http.MethodPost, "/v1/nodes", object{"driver": "fake-hardware"})
	var made struct{ UUID string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusCreated {
		p.Fatalf("enroll: %d %s", status, text)
	}
	w := &writing{node: made.UUID, answers: map[int]int{}}
	w.done.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			status, text, _ := p.ask(http.MethodPatch, "/v1/nodes/"+w.node, []object{{"op": "add", "path": "/extra/number", "value": n}})
			w.mu.Lock()
			if w.answers[status]++; w.answers[status] == 1 {
				p.Logf("a change was answered by %d %s", status, text)
			}
			if status == http.StatusOK {
				w.accepted, w.newest = append(w.accepted, time.Now()), n
			}
			w.mu.Unlock()
		}
	})
	return w
}

// await waits for three accepted changes after a time.
func (w *writing) await(after time.Time) {
	for end := time.Now().Add(patroniTime); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		w.mu.Lock()
		n := len(w.accepted)
		enough := n >= 3 && w.accepted[n-3].After(after)
		w.mu.Unlock()
		if enough {
			return
		}
	}
}

// gap is the longest time without an accepted change since shortly before a time.
func (w *writing) gap(since time.Time) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 1; i < len(w.accepted); i++ {
		if w.accepted[i].After(since) {
			longest = max(longest, w.accepted[i].Sub(w.accepted[i-1]))
		}
	}
	return longest
}

// judge fails the test if the newest accepted number was lost.
func (w *writing) judge(p *plane) {
	p.Helper()
	_, text, _ := p.ask(http.MethodGet, "/v1/nodes/"+w.node, nil)
	var got struct{ Extra struct{ Number int } }
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Extra.Number < w.newest {
		p.Errorf("the node has number %d, %d was accepted: %v", got.Extra.Number, w.newest, err)
	}
}

func newCluster(t *testing.T, settings string) *cluster {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "salvor-patroni"))(t)
	c := &cluster{TB: t, dir: dir, etcd: program.FreeAddress(t)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", c.log())
		}
		_ = os.RemoveAll(dir)
	})
	if os.Getuid() == 0 {
		u := must.Get(user.Lookup("postgres"))(t)
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		c.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		must.OK(t, os.Chown(dir, uid, gid))
	}
	peer := "http://" + program.FreeAddress(t)
	etcd := c.launch("etcd", "etcd", "--data-dir", dir+"/etcd", "--listen-client-urls", "http://"+c.etcd, "--advertise-client-urls", "http://"+c.etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	t.Cleanup(func() { end(etcd) })
	for i := range 3 {
		n := &patroniNode{name: fmt.Sprint("n", i), rest: program.FreeAddress(t), postgres: program.FreeAddress(t)}
		data := filepath.Join(dir, n.name)
		text := fmt.Sprintf(`scope: salvor
name: %[1]s
restapi: {listen: '%[2]s', connect_address: '%[2]s'}
etcd3: {host: '%[3]s'}
bootstrap:
  dcs: {%[4]s, synchronous_mode: true, synchronous_mode_strict: true, postgresql: {use_pg_rewind: true, parameters: {max_connections: 100}}}
  initdb: [{encoding: UTF8}, {auth: trust}, data-checksums]
  pg_hba: [host all all 127.0.0.0/8 trust, host replication all 127.0.0.0/8 trust]
postgresql:
  listen: '%[5]s'
  connect_address: '%[5]s'
  data_dir: %[6]s
  bin_dir: %[7]s
  pgpass: %[6]s.pgpass
  pg_hba: [host all all 127.0.0.0/8 trust, host replication all 127.0.0.0/8 trust]
  authentication: {superuser: {username: postgres, password: x}, replication: {username: postgres, password: x}}
  parameters: {unix_socket_directories: '%[8]s', shared_buffers: 32MB}
`, n.name, n.rest, c.etcd, settings, n.postgres, data, postgresBin, dir)
		must.OK(t, os.WriteFile(data+".yml", []byte(text), 0o644))
		c.nodes = append(c.nodes, n)
		t.Cleanup(func() { c.kill(n) })
		c.start(n)
	}
	return c
}

func (c *cluster) launch(name, program string, args ...string) *exec.Cmd {
	c.Helper()
	log := must.Get(os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))(c)
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	cmd.Env = append(os.Environ(), "HOME="+c.dir, "PATH="+postgresBin+":/usr/bin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as}
	must.OK(c, cmd.Start())
	return cmd
}

func end(cmd *exec.Cmd) {
	if cmd != nil && cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func (c *cluster) start(n *patroniNode) {
	c.Helper()
	n.run = c.launch(n.name, "patroni", filepath.Join(c.dir, n.name+".yml"))
}

// kill ends Patroni and PostgreSQL of a node at once, as the loss of its machine would.
func (c *cluster) kill(n *patroniNode) {
	end(n.run)
	text, _ := os.ReadFile(filepath.Join(c.dir, n.name, "postmaster.pid"))
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || pid < 2 {
		return
	}
	// A file that was left behind may name another process by now.
	if at, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); at == filepath.Join(c.dir, n.name) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// ask sends a request to a node's Patroni.
func (c *cluster) ask(n *patroniNode, method, path string, in, out any) bool {
	body, _ := json.Marshal(in)
	r := must.Get(http.NewRequest(method, "http://"+n.rest+path, bytes.NewReader(body)))(c)
	resp, err := (&http.Client{Timeout: patroniTime}).Do(r)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return out == nil || json.NewDecoder(resp.Body).Decode(out) == nil
}

// member is a node as Patroni's /cluster tells of it.
type member struct{ Name, Role, State string }

func (m member) follows() bool { return m.State == "running" || m.State == "streaming" }

// whole tells whether all nodes run. Before that the loss of one more may leave no synchronous standby.
func (c *cluster) whole() bool {
	var all struct{ Members []member }
	if !c.ask(c.nodes[0], http.MethodGet, "/cluster", nil, &all) {
		return false
	}
	return len(all.Members) == len(c.nodes) && !slices.ContainsFunc(all.Members, func(m member) bool { return !m.follows() })
}

// look asks nodes in turn for the leader and its synchronous standby; nil: there is none.
func (c *cluster) look(nodes ...*patroniNode) (leader, standby *patroniNode) {
	for _, n := range nodes {
		var all struct{ Members []member }
		if !c.ask(n, http.MethodGet, "/cluster", nil, &all) {
			continue
		}
		for i, m := range c.nodes {
			for _, of := range all.Members {
				switch {
				case of.Name != m.name:
				case of.Role == "leader" && of.State == "running":
					leader = c.nodes[i]
				case of.Role == "sync_standby" && of.follows():
					standby = c.nodes[i]
				}
			}
		}
		return leader, standby
	}
	return nil, nil
}

// roles waits until there are a leader and a synchronous standby.
func (c *cluster) roles() (leader, standby *patroniNode) {
	c.Helper()
	for end := time.Now().Add(patroniTime); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if leader, standby = c.look(c.nodes...); leader != nil && standby != nil && c.whole() {
			return leader, standby
		}
	}
	c.Fatalf("no leader with a synchronous standby, or not all nodes run:\n%s", c.log())
	return nil, nil
}

func (c *cluster) open(n *patroniNode, database string) *sql.DB {
	c.Helper()
	db := must.Get(sql.Open("pgx", "postgres://postgres@"+n.postgres+"/"+database+"?sslmode=disable"))(c)
	c.Cleanup(func() { _ = db.Close() })
	return db
}

// log is the end of what the programs wrote.
func (c *cluster) log() string {
	var out strings.Builder
	files, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&out, "%s:\n%s\n", filepath.Base(f), text[max(0, len(text)-3000):])
	}
	return out.String()
}
