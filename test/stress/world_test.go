// Package stress runs several control planes of the real program on one PostgreSQL. It kills, freezes and cuts them off while a fleet is
// rescued and unrescued. Then it checks their work by the history that the database itself wrote.
package stress

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"salvor/store/storetest"
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/test/program"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// stallTimeout bounds each request and each wait of these tests.
const stallTimeout = 90 * time.Second

// calmTimeout bounds the time after the storm in which the number of open jobs does not fall. On a machine with a tenth of its processors, conductors
// lose their leases to each other for minutes.
const calmTimeout = 5 * time.Minute

// delay is how many seconds a request to a machine takes, so that there is always work in hand.
const delay = "0.1"

// canary is a word in every secret of the fleet; it must be found nowhere.
const canary = "canary-in-the-mine"

// plane is one process with its own line to the database and its own clock.
type plane struct {
	name   string
	server *program.Server
	line   *line
	clock  string      // the file that sets its clock wrong
	down   atomic.Bool // it is known not to answer
}

type world struct {
	t      testing.TB
	db     *sql.DB
	planes []*plane
	nodes  []string
	http   *http.Client

	mu       sync.Mutex
	reads    []read
	accepted map[string]string // request id -> node
	refused  map[string]bool
	unknown  map[string]int // by node: requests without an answer
	did      map[string]int
	// Accepted requests without a job, and with more than one.
	missing, doubled int
}

// read is one answer of an API about a node.
type read struct {
	node     string
	from, to time.Time
	saw      look
}

func newWorld(t testing.TB, planes, nodes int) *world {
	t.Helper()
	w := &world{t: t, http: &http.Client{Timeout: stallTimeout}, accepted: map[string]string{}, refused: map[string]bool{}, unknown: map[string]int{}, did: map[string]int{}}
	at := storetest.Postgres(t)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	if w.db, err = sql.Open("pgx", at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.db.Close() })
	key := t.TempDir() + "/secrets.key"
	for i := range planes {
		p := &plane{name: fmt.Sprint("plane-", i), line: newLine(t, filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432")), clock: filepath.Join(t.TempDir(), "clock")}
		to := fmt.Sprintf("postgres://postgres@%s%s?sslmode=disable&application_name=%s", p.line.listener.Addr(), u.Path, p.name)
		p.server = program.Serve(t, fmt.Sprintf("[DEFAULT]\nhost = %s\n[conductor]\nworkers_pool_size = 100\nsync_power_state_interval = 0\n[database]\nconnection = %s\n[secrets]\nkey_file = %s\n", p.name, to, key),
			"env", "SALVOR_TEST_CLOCK="+p.clock)
		w.planes = append(w.planes, p)
	}
	// A process that stands still could not be stopped in order.
	t.Cleanup(func() {
		for _, p := range w.planes {
			p.thaw()
			p.line.heal()
		}
	})
	w.nodes = make([]string, nodes)
	w.each(func(i int) error { return w.enroll(i) })
	w.http.Timeout = 2 * time.Second // of the storm's victims not all answer
	record(t, w.db)
	return w
}

// each does something for every node, some at a time.
func (w *world) each(do func(i int) error) {
	w.t.Helper()
	var all sync.WaitGroup
	next := make(chan int)
	for range 32 {
		all.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					w.t.Errorf("node %d: %v", i, err)
				}
			}
		})
	}
	for i := range w.nodes {
		next <- i
	}
	close(next)
	all.Wait()
	if w.t.Failed() {
		w.t.FailNow()
	}
}

type object map[string]any

// ask sends a request to a process and gives its answer; status 0 is no answer.
func (w *world) ask(p *plane, method, path string, in, out any) (status int, request string, err error) {
	a, err := fixture.TrySend(context.Background(), w.http, method, p.server.URL+path, in, "X-OpenStack-Ironic-API-Version", "1.80")
	if err != nil {
		return 0, "", err
	}
	if a.Status >= 300 {
		err = fmt.Errorf("%s %s answers %d: %.300s", method, path, a.Status, a.Body)
	} else if out != nil {
		err = json.Unmarshal([]byte(a.Body), out)
	}
	return a.Status, a.Header.Get("Openstack-Request-Id"), err
}

// enroll makes an active node with a secret.
func (w *world) enroll(i int) error {
	p := w.planes[i%len(w.planes)]
	var made struct{ UUID string }
	if _, _, err := w.ask(p, http.MethodPost, "/v1/nodes", object{"driver": "fake-hardware", "driver_info": object{"fake_password": canary, "fake_delay": delay}}, &made); err != nil {
		return err
	}
	w.nodes[i] = made.UUID
	for _, s := range []struct{ verb, want string }{{"manage", "manageable"}, {"adopt", "active"}} {
		if _, _, err := w.ask(p, http.MethodPut, "/v1/nodes/"+made.UUID+"/states/provision", object{"target": s.verb}, nil); err != nil {
			return err
		}
		for end := time.Now().Add(stallTimeout); ; time.Sleep(20 * time.Millisecond) {
			saw, err := w.read(p, made.UUID)
			if err == nil && saw.provision == s.want && !saw.locked {
				break
			}
			if err != nil || time.Now().After(end) {
				return fmt.Errorf("to be %s, is %+v: %w", s.want, saw, err)
			}
		}
	}
	return nil
}

func (w *world) read(p *plane, node string) (look, error) {
	var n struct {
		State       string `json:"provision_state"`
		Reservation *string
	}
	_, _, err := w.ask(p, http.MethodGet, "/v1/nodes/"+node+"?fields=provision_state,reservation", nil, &n)
	return look{n.State, n.Reservation != nil && *n.Reservation != ""}, err
}

// traffic reads nodes, and asks for a rescue of what is active and for the end of one of what is rescued, until ctx ends.
func (w *world) traffic(ctx context.Context, chance *rand.Rand, mine []string) {
	for ctx.Err() == nil {
		node, p := mine[chance.IntN(len(mine))], w.planes[chance.IntN(len(w.planes))]
		if p.down.Load() && chance.IntN(20) > 0 {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		from := time.Now()
		saw, err := w.read(p, node)
		to := time.Now()
		if err != nil {
			time.Sleep(20 * time.Millisecond) // it is dead or stands still
			continue
		}
		w.mu.Lock()
		w.reads = append(w.reads, read{node, from, to, saw})
		w.mu.Unlock()
		var wish object
		switch {
		case saw.locked:
			continue
		case saw.provision == "active":
			wish = object{"target": "rescue", "rescue_password": canary}
		case saw.provision == "rescue":
			wish = object{"target": "unrescue"}
		default:
			continue
		}
		status, request, _ := w.ask(p, http.MethodPut, "/v1/nodes/"+node+"/states/provision", wish, nil)
		w.mu.Lock()
		switch {
		case status == http.StatusAccepted:
			w.accepted[request] = node
		case status >= 400 && status < 500:
			w.refused[request] = true
		default:
			w.unknown[node]++ // it may have been accepted
		}
		w.mu.Unlock()
	}
}

func (p *plane) freeze() {
	p.down.Store(true)
	_ = syscall.Kill(p.server.PID(), syscall.SIGSTOP)
}

func (p *plane) thaw() {
	_ = syscall.Kill(p.server.PID(), syscall.SIGCONT)
	p.down.Store(false)
}

// owns tells whether the process has a job in hand.
func (w *world) owns(ctx context.Context, p *plane) (any bool) {
	err := w.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM job j JOIN conductor c ON c.owner = j.owner WHERE c.hostname = $1)`, p.name).Scan(&any)
	if err != nil && ctx.Err() == nil {
		w.t.Errorf("the jobs of %s: %v", p.name, err)
	}
	return any
}

// busy waits until the process has a job in hand; false if ctx ends before.
func (w *world) busy(ctx context.Context, p *plane) bool {
	for ctx.Err() == nil {
		if w.owns(ctx, p) {
			return true
		}
		pause(ctx, 5*time.Millisecond)
	}
	return false
}

// setClock sets the process's clock wrong.
func (p *plane) setClock(by time.Duration) error {
	if err := os.WriteFile(p.clock+".new", []byte(by.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(p.clock+".new", p.clock)
}

// count runs a query that gives one number.
func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	if err := w.db.QueryRow(query, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// calm waits until every job has ended.
func (w *world) calm() time.Duration {
	w.t.Helper()
	began := time.Now()
	last, least := began, math.MaxInt
	for ; ; time.Sleep(50 * time.Millisecond) {
		left := w.count(`SELECT count(*) FROM job WHERE state <> 'ended'`)
		if left == 0 {
			return time.Since(began)
		}
		if left < least {
			last, least = time.Now(), left
		}
		if time.Since(last) > calmTimeout {
			w.logStall()
			w.t.Fatalf("%d jobs have not ended, and their number has not fallen for %s", left, calmTimeout)
		}
	}
}

// logStall logs what the jobs wait for, what the sessions of the database do, and how busy the machine is.
func (w *world) logStall() {
	w.t.Helper()
	for _, query := range []string{
		`SELECT 'job ' || id || ' of ' || subject_id || ': ' || state || ' at ' || action || ', owner ' || owner || ', due ' || (due - extract(epoch from now())*1000000)::bigint || ' us, waits for ' || wait_for || ', crashes ' || crashes FROM job WHERE state <> 'ended' LIMIT 5`,
		`SELECT count(*) || ' sessions of ' || application_name || ' are ' || coalesce(state, 'without a state') || ', wait for ' || coalesce(wait_event, 'nothing') || ', the longest since ' || max(now() - state_change) || ': ' || left(min(query), 80) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() GROUP BY application_name, state, wait_event ORDER BY count(*) DESC LIMIT 12`,
	} {
		rows, err := w.db.Query(query)
		if err != nil {
			w.t.Log(err)
			continue
		}
		for rows.Next() {
			var text string
			must.OK(w.t, rows.Scan(&text))
			w.t.Log(text)
		}
		_ = rows.Close()
	}
	for _, file := range []string{"loadavg", "pressure/cpu", "pressure/io", "pressure/memory"} {
		if b, err := os.ReadFile(filepath.Join("/proc", file)); err == nil {
			w.t.Logf("%s: %s", file, b)
		}
	}
}

// secrets searches every table and every log for the canary.
func (w *world) secrets() {
	w.t.Helper()
	rows := must.Get(w.db.Query(`SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'`))(w.t)
	var tables []string
	for rows.Next() {
		var name string
		must.OK(w.t, rows.Scan(&name))
		tables = append(tables, name)
	}
	_ = rows.Close()
	for _, name := range tables {
		if n := w.count(`SELECT count(*) FROM "`+name+`" AS x WHERE x::text LIKE '%' || $1::text || '%'`, canary); n > 0 {
			w.t.Errorf("%d rows of table %s hold the secret", n, name)
		}
	}
	if n := w.count(`SELECT count(*) FROM job WHERE secret IS NOT NULL`); n > 0 {
		w.t.Errorf("%d jobs still hold a secret", n)
	}
	for _, p := range w.planes {
		if strings.Contains(p.server.Log(), canary) {
			w.t.Errorf("the log of %s holds the secret", p.name)
		}
	}
}

// settle judges the requests: each that was accepted is one job that ended well, each that was refused is none.
func (w *world) settle() (jobs int) {
	w.t.Helper()
	rows := must.Get(w.db.Query(`SELECT h.request, h.node, j.state, j.problem FROM history h JOIN job j ON j.id = h.job WHERE h.what = 'insert'`))(w.t)
	defer rows.Close()
	began := map[string]int{}
	for rows.Next() {
		var request, node, state, why string
		must.OK(w.t, rows.Scan(&request, &node, &state, &why))
		jobs++
		began[request]++
		if state != "ended" || why != "" {
			w.t.Errorf("node %s: a job is %s: %s", node, state, why)
		}
		if w.refused[request] {
			w.t.Errorf("node %s: a request that was refused began work", node)
		}
		if w.accepted[request] == "" {
			if w.unknown[node]--; w.unknown[node] < 0 {
				w.t.Errorf("node %s: work that nobody asked for", node)
			}
		}
	}
	for request, node := range w.accepted {
		switch n := began[request]; {
		case n == 0:
			w.missing++
		case n > 1:
			w.doubled++
		}
		if began[request] != 1 {
			w.t.Errorf("node %s: an accepted request began %d jobs", node, began[request])
		}
	}
	return jobs
}
