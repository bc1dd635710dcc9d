// Package trouble takes one resource at a time from the real program: space on its disk, its database, the bytes of its SQLite file, or the
// validity of its certificate. The program must report this, lose nothing, and continue by itself when the resource is back.
package trouble

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// patience bounds what has to come once the trouble is over.
const patience = 60 * time.Second

const quiet = "[conductor]\nsync_power_state_interval = 0\nworkers_pool_size = 100\n"

type object map[string]any

// plane is one salvor serve and what it was asked for.
type plane struct {
	testing.TB
	server *program.Server
	nodes  []string

	mu       sync.Mutex
	accepted map[string]string // request id -> node
	answers  map[int]int       // by status
	words    map[string]bool   // of refusals
}

func newPlane(t testing.TB, server *program.Server) *plane {
	return &plane{TB: t, server: server, accepted: map[string]string{}, answers: map[int]int{}, words: map[string]bool{}}
}

// ask sends a request; status 0 is no answer.
func (p *plane) ask(method, path string, in any) (status int, text, request string) {
	a, err := fixture.TrySend(context.Background(), &http.Client{Timeout: patience}, method, p.server.URL+path, in, "X-OpenStack-Ironic-API-Version", "1.80")
	if a.Status == 0 {
		return 0, err.Error(), ""
	}
	return a.Status, a.Body, a.Header.Get("Openstack-Request-Id")
}

// enroll makes nodes in use whose machines take a while for each thing.
func (p *plane) enroll(n int) {
	p.Helper()
	for range n {
		status, text, _ := p.ask(http.MethodPost, "/v1/nodes", object{"driver": "fake-hardware", "driver_info": object{"fake_delay": "0.2"}})
		var made struct{ UUID string }
		if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusCreated {
			p.Fatalf("enroll: %d %s", status, text)
		}
		p.nodes = append(p.nodes, made.UUID)
	}
	for _, s := range []struct{ verb, want string }{{"manage", "manageable"}, {"adopt", "active"}} {
		for _, node := range p.nodes {
			if status, text, _ := p.ask(http.MethodPut, "/v1/nodes/"+node+"/states/provision", object{"target": s.verb}); status != http.StatusAccepted {
				p.Fatalf("%s: %d %s", s.verb, status, text)
			}
		}
		for _, node := range p.nodes {
			p.eventually("a node is "+s.want, func() error {
				if got := p.node(node); got.State != s.want || got.Reservation != "" {
					return fmt.Errorf("it is %+v", got)
				}
				return nil
			})
		}
	}
}

type node struct {
	State       string `json:"provision_state"`
	Reservation string
	Error       string `json:"last_error"`
}

func (p *plane) node(id string) (n node) {
	_, text, _ := p.ask(http.MethodGet, "/v1/nodes/"+id+"?fields=provision_state,reservation,last_error", nil)
	_ = json.Unmarshal([]byte(text), &n)
	return n
}

// work asks for rescues of nodes and their ends, a user for each, until stop is closed. It returns what waits for them.
func (p *plane) work(stop <-chan struct{}, nodes []string) *sync.WaitGroup {
	var users sync.WaitGroup
	for _, id := range nodes {
		users.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
				}
				var wish object
				switch n := p.node(id); {
				case n.Reservation != "":
					continue
				case n.State == "active":
					wish = object{"target": "rescue", "rescue_password": "a long enough word"}
				case n.State == "rescue":
					wish = object{"target": "unrescue"}
				default:
					continue
				}
				status, text, request := p.ask(http.MethodPut, "/v1/nodes/"+id+"/states/provision", wish)
				p.mu.Lock()
				p.answers[status]++
				if status == http.StatusAccepted {
					p.accepted[request] = id
				} else {
					p.words[text] = true
				}
				p.mu.Unlock()
			}
		})
	}
	return &users
}

// count is how many requests were answered by a status so far.
func (p *plane) count(status int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers[status]
}

func (p *plane) eventually(what string, holds func() error) {
	p.Helper()
	if err := program.Await(patience, holds); err != nil {
		p.Fatalf("%s: %v\n%s", what, err, p.tail())
	}
}

func (p *plane) tail() string {
	log := p.server.Log()
	return log[max(0, len(log)-4000):]
}

// alive fails the test if the process has ended.
func (p *plane) alive() {
	p.Helper()
	select {
	case <-p.server.Ended():
		p.Fatalf("salvor serve ended:\n%s", p.tail())
	default:
	}
}

// refused fails the test if an answer other than success was not a 503. A 409 is allowed for the state of a node, and a 504 for a
// commit that was cut off.
func (p *plane) refused() {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for status, n := range p.answers {
		if status != http.StatusAccepted && status != http.StatusServiceUnavailable && status != http.StatusConflict && status != http.StatusGatewayTimeout {
			p.Errorf("%d requests were answered by %d: %v", n, status, p.words)
		}
	}
}

// settled waits until all work has ended and fails the test for each node that it left anything with.
func (p *plane) settled() {
	p.Helper()
	for _, id := range p.nodes {
		p.eventually("all work ends", func() error {
			if n := p.node(id); n.Reservation != "" || n.State != "active" && n.State != "rescue" || n.Error != "" {
				return fmt.Errorf("node %s is %+v", id, n)
			}
			return nil
		})
	}
}

// health is the answer about the process's health.
func (p *plane) health() (int, string) {
	status, text, _ := p.ask(http.MethodGet, "/healthz", nil)
	return status, text
}

// metric gives the value of a metric without labels; an error: the page does not have it.
func (p *plane) metric(name string) (float64, error) {
	status, text, _ := p.ask(http.MethodGet, "/metrics", nil)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s: %d %.300s", name, status, text)
}

// salvor runs the command line and gives its exit status and all that it printed.
func (p *plane) salvor(args ...string) (int, string) {
	return run(p, args...)
}

func run(t testing.TB, args ...string) (int, string) {
	t.Helper()
	cmd := exec.Command(program.Path(t, "salvor"), args...)
	out, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(out)
}

// start runs salvor serve on a state directory where it must not come to serve.
func start(t testing.TB, state string) (int, string) {
	t.Helper()
	cmd := exec.Command(program.Path(t, "salvor"), "serve", "--state-dir", state, "--listen", "127.0.0.1:0")
	var out program.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must.OK(t, cmd.Start())
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	served := make(chan struct{})
	go func() {
		for {
			if strings.Contains(out.String(), "msg=serving") {
				_ = cmd.Process.Kill()
				return
			}
			select {
			case <-served:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	_ = cmd.Wait()
	close(served)
	return cmd.ProcessState.ExitCode(), out.String()
}

// fill writes a file until its disk is full.
func fill(t testing.TB, dir string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; size /= 2 {
		for b := make([]byte, size); err == nil; {
			_, err = f.Write(b)
		}
		err = nil
	}
	return ballast
}

// judge looks each accepted request up in the database: it is one job that ended well.
func (p *plane) judge(db *sql.DB) {
	p.Helper()
	rows := must.Get(db.Query(`SELECT request_id, subject_id, state, problem FROM job WHERE class = 'operation'`))(p)
	defer rows.Close()
	jobs := map[string]int{}
	for rows.Next() {
		var request, node, state, why string
		must.OK(p, rows.Scan(&request, &node, &state, &why))
		jobs[request]++
		if state != "ended" || why != "" {
			p.Errorf("node %s: an operation is %s: %s", node, state, why)
		}
	}
	must.OK(p, rows.Err())
	for request, node := range p.accepted {
		if jobs[request] != 1 {
			p.Errorf("node %s: accepted request %s is %d jobs", node, request, jobs[request])
		}
	}
}

// command runs a program and gives what it printed.
func command(name string, args ...string) string {
	out, _ := exec.Command(name, args...).CombinedOutput()
	return string(out)
}
