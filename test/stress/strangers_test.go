package stress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"salvor/lab/sim"
	"salvor/secret"
	"salvor/test/must"
	"salvor/test/program"
)

// Goals and sizes of the measurement.
const (
	getGoal    = 100 * time.Millisecond // 99 of 100 reads
	memoryGoal = 250 << 20
	logGoal    = 1 << 20
	stormTime  = 20 * time.Second // how long each kind of load lasts
	leased     = 3                // hosts with a lease
)

// TestStrangers loads each listener in turn, in five ways, from a process with a quota of the processors. Meanwhile it measures what
// an authenticated client gets (reads, leases of hosts), and the server's memory and log. SALVOR_SCALE=0.1 makes it smaller.
func TestStrangers(t *testing.T) {
	if os.Getenv("SALVOR_SOAK") == "" {
		t.Skip("a long measurement: make strangers, or SALVOR_SOAK=1")
	}
	scale := 1.0
	if word := os.Getenv("SALVOR_SCALE"); word != "" {
		var err error
		if scale, err = strconv.ParseFloat(word, 64); err != nil || scale <= 0 || scale > 1 {
			t.Fatalf("SALVOR_SCALE=%s: want more than 0 and at most 1", word)
		}
	}
	w := newTarget(t, max(int(1000*scale), 50), false)
	doors := map[string]string{"api": strings.TrimPrefix(w.server.URL, "http://"), "ramdisk": w.server.Door("ramdisk"), "hosts": w.server.Door("hosts"), "health": w.server.Door("health")}
	for _, door := range []string{"api", "ramdisk", "hosts", "health"} {
		for _, kind := range []string{"idle from many places", "idle from one place", "slow bodies", "slow readers", "refused requests"} {
			if !t.Run(door+"/"+kind, func(t *testing.T) { w.storm(t, door, doors[door], kind, scale) }) && w.t.Context().Err() != nil {
				return
			}
		}
	}
}

// TestHandshakes has one source begin 2,000 TLS handshakes in a second on each listener that speaks TLS; it ends every second of them.
// Without SALVOR_SOAK there are a twentieth of them for a few seconds, and no time is measured.
func TestHandshakes(t *testing.T) {
	scale, nodes := 1.0, 1000
	if os.Getenv("SALVOR_SOAK") == "" {
		scale, nodes = 0.05, 20
	}
	w := newTarget(t, nodes, true)
	w.short = scale < 1
	for door, address := range map[string]string{"api": strings.TrimPrefix(w.url, "https://"), "hosts": w.server.Door("hosts")} {
		t.Run(door, func(t *testing.T) { w.storm(t, door, address, "handshakes", scale) })
	}
}

// target is a control plane with nodes to list and hosts that renew their leases.
type target struct {
	t      *testing.T
	server *program.Server
	url    string // of the API
	trust  *tls.Config
	client *http.Client
	short  bool // a short round, of which no time is measured
}

// newTarget starts the attacked control plane; secured: its API speaks TLS.
func newTarget(t *testing.T, nodes int, secured bool) *target {
	dir := t.TempDir()
	hash := must.Get(bcrypt.GenerateFromPassword([]byte("password"), bcrypt.MinCost))(t)
	users := filepath.Join(dir, "users")
	must.OK(t, os.WriteFile(users, []byte("admin:"+string(hash)+"\n"), 0o600))
	w := &target{t: t, client: http.DefaultClient}
	more := ""
	if secured {
		pool := x509.NewCertPool()
		pool.AddCert(program.Certify(t, dir, "api", time.Now().AddDate(0, 0, 90)))
		w.trust = &tls.Config{RootCAs: pool}
		w.client = &http.Client{Transport: &http.Transport{TLSClientConfig: w.trust}}
		t.Cleanup(w.client.CloseIdleConnections)
		more = fmt.Sprintf("[api]\nenable_ssl_api = true\ncert_file = %s\nkey_file = %s\n", filepath.Join(dir, "api.crt"), filepath.Join(dir, "api.key"))
	}
	w.server = program.Serve(t, more+fmt.Sprintf("[DEFAULT]\nauth_strategy = http_basic\nhttp_basic_auth_user_file = %s\n[hosts]\nlisten = 127.0.0.1:0\n[ramdisk]\nlisten = 127.0.0.1:0\n[health]\nlisten = 127.0.0.1:0\n", users))
	if w.url = w.server.URL; secured {
		w.url = strings.Replace(w.url, "http:", "https:", 1)
	}
	for i := range nodes {
		w.ask(http.MethodPost, "/v1/nodes", fmt.Sprintf(`{"driver": "fake-hardware", "name": "n%d", "extra": {"words": %q}}`, i, strings.Repeat("many words ", 50)), nil)
	}
	for i := range leased {
		var made struct {
			Token string `json:"token"`
		}
		w.ask(http.MethodPost, "/salvor/v1/join-tokens", `{"note": "strangers"}`, &made)
		h := must.Get(sim.StartHost(t.Context(), sim.Config{
			Controller: "https://" + w.server.Door("hosts"), Token: secret.New(made.Token), StateDir: t.TempDir(), Name: fmt.Sprint("vm", i), Log: slog.New(slog.DiscardHandler),
		}, sim.NewMachine()))(t)
		t.Cleanup(func() { _ = h.Stop() })
	}
	program.Until(t, "the hosts are up", stallTimeout, func() error {
		if up := w.up(); up != leased {
			return fmt.Errorf("%d of %d", up, leased)
		}
		return nil
	})
	return w
}

func request(ctx context.Context, method, url, body string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.SetBasicAuth("admin", "password")
	r.Header.Set("X-OpenStack-Ironic-API-Version", "1.82")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

func (w *target) ask(method, path, body string, into any) {
	w.t.Helper()
	answer := must.Get(w.client.Do(request(w.t.Context(), method, w.url+path, body)))(w.t)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, b)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// up counts the hosts whose lease counts.
func (w *target) up() (n int) {
	var all []struct {
		State string `json:"state"`
		Up    bool   `json:"up"`
	}
	var page struct {
		Hosts json.RawMessage `json:"hosts"`
	}
	w.ask(http.MethodGet, "/salvor/v1/hosts", "", &page)
	must.OK(w.t, json.Unmarshal(page.Hosts, &all))
	for _, h := range all {
		if h.Up || h.State == "up" {
			n++
		}
	}
	return n
}

// storm has strangers load a listener and tells what others saw meanwhile.
func (w *target) storm(t *testing.T, door, address, kind string, scale float64) {
	logged := len(w.server.Log())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	begun, ended := strangers(t, ctx, door, address, kind, scale)
	select {
	case <-begun:
	case <-time.After(stallTimeout):
		t.Fatal("the strangers never began")
	}
	lasts := stormTime
	if w.short {
		lasts = 3 * time.Second
	}
	var times []time.Duration
	var worst, lost, failed, most int
	for i, until := 0, time.Now().Add(lasts); time.Now().Before(until); i++ {
		client := w.client
		if i%4 == 0 { // somebody who has no connection yet
			client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: w.trust}}
		}
		began := time.Now()
		answer, err := client.Do(request(ctx, http.MethodGet, w.url+"/v1/nodes?limit=10", ""))
		var body []byte
		if err == nil {
			body, err = io.ReadAll(answer.Body)
			answer.Body.Close()
			if err == nil && answer.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %.200s", answer.Status, body)
			}
		}
		if err != nil {
			failed++
			t.Logf("GET: %v", err)
		}
		times = append(times, time.Since(began))
		if i%10 == 0 {
			if down := leased - w.up(); down > lost {
				lost = down
			}
			most = max(most, resident(w.server.PID()))
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	said := <-ended
	slices.Sort(times)
	p99, written := times[len(times)*99/100], len(w.server.Log())-logged
	worst = int(times[len(times)-1].Milliseconds())
	t.Logf("%s; %d GETs: 99 of 100 within %s, longest %d ms, %d failed; leases lost %d; memory %d MiB; log %d bytes", strings.TrimSpace(said), len(times), p99.Round(time.Millisecond), worst, failed, lost, most>>20, written)
	if p99 > getGoal && !w.short {
		t.Errorf("99 of 100 GETs took %s, want at most %s", p99, getGoal)
	}
	if failed > 0 || lost > 0 || most > memoryGoal || written > logGoal {
		t.Errorf("%d GETs failed, %d hosts lost their lease, memory %d MiB, log %d bytes; want 0, 0, at most %d MiB, at most %d bytes", failed, lost, most>>20, written, memoryGoal>>20, logGoal)
	}
}

// resident is the memory of a process in bytes.
func resident(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(b)
	pages, _ := strconv.Atoi(string(fields[1]))
	return pages * os.Getpagesize()
}

// load is what one process of strangers does.
type load struct {
	door, address string
	sources       int  // addresses that they come from
	silent        bool // its connections are plain, whatever the listener speaks
	sent, refused atomic.Int64
}

// TestStrangerProcess is the process of the strangers: TestStrangers starts it with its task in the environment.
func TestStrangerProcess(t *testing.T) {
	task := strings.Split(os.Getenv("SALVOR_STRANGERS"), "|")
	if len(task) != 4 {
		t.Skip("started by TestStrangers")
	}
	scale, _ := strconv.ParseFloat(task[3], 64)
	l := &load{door: task[0], address: task[1], sources: 200, silent: strings.HasPrefix(task[2], "idle") || task[2] == "handshakes"}
	some := func(n int) int { return max(int(float64(n)*scale), 10) }
	go func() { // the end of the parent ends it
		_, _ = io.Copy(io.Discard, os.Stdin)
		fmt.Printf("%d connections or requests, %d refused\n", l.sent.Load(), l.refused.Load())
		os.Exit(0)
	}()
	fmt.Println("begun")
	switch task[2] {
	case "idle from many places":
		l.each(some(20_000), l.idle)
	case "idle from one place":
		l.sources = 1
		l.each(some(20_000), l.idle)
	case "slow bodies":
		l.each(some(4_000), l.slowBody)
	case "slow readers":
		l.each(some(600), l.slowReader)
	case "handshakes":
		l.sources = 1
		l.handshakes(some(2000))
	case "refused requests":
		l.refusedRequests(some(1500))
	}
	select {}
}

// each keeps n connections open, each by its own goroutine; one that is closed is opened again after a second.
func (l *load) each(n int, use func(net.Conn)) {
	var opening sync.WaitGroup
	turns := make(chan struct{}, 200)
	for i := range n {
		opening.Add(1)
		go func() {
			first := true
			for {
				turns <- struct{}{}
				c, err := l.dial(i)
				<-turns
				if first {
					opening.Done()
					first = false
				}
				if err != nil {
					l.refused.Add(1)
				} else {
					l.sent.Add(1)
					use(c)
					c.Close()
				}
				time.Sleep(time.Second)
			}
		}()
	}
	opening.Wait()
}

func (l *load) dial(i int) (net.Conn, error) {
	from, door := i%l.sources, l.door
	if l.silent {
		door = "" // not even a handshake
	}
	d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, byte(from>>8), byte(from%250+1))}}
	return dialDoor(d, door, l.address)
}

// idle sends nothing and waits until the connection is closed.
func (l *load) idle(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }

// slowBody announces a body and sends one byte of it each second.
func (l *load) slowBody(c net.Conn) {
	path := map[string]string{"hosts": "/v1/join"}[l.door]
	if path == "" {
		path = "/v1/continue_inspection"
	}
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{", path)
	for {
		if _, err := c.Write([]byte{' '}); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// slowReader asks for the largest answer that it gets, and reads one byte of it each second.
func (l *load) slowReader(c net.Conn) {
	path := map[string]string{"api": "/v1/nodes/detail?limit=1000", "ramdisk": "/v1", "hosts": "/none", "health": "/metrics"}[l.door]
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetReadBuffer(4096)
	}
	var r strings.Builder
	_ = request(context.Background(), http.MethodGet, "http://127.0.0.1"+path, "").Write(&r)
	fmt.Fprint(c, r.String())
	for b := make([]byte, 1); ; time.Sleep(time.Second) {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}

// handshakes begins rate TLS handshakes in each second. It completes every second one, and sends only the first message of the others.
func (l *load) handshakes(rate int) {
	near, far := net.Pipe()
	go func() { _ = tls.Client(near, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	hello := make([]byte, 16<<10)
	n, err := far.Read(hello)
	if err != nil {
		panic(err)
	}
	places := make(chan struct{}, 400)
	turn := time.NewTicker(10 * time.Millisecond)
	began := time.Now()
	for i := 0; ; {
		<-turn.C
		for due := int(time.Since(began).Seconds() * float64(rate)); i < due; i++ {
			places <- struct{}{}
			go func() {
				defer func() { <-places }()
				c, err := l.dial(i)
				if err != nil {
					l.refused.Add(1)
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(10 * time.Second))
				if i%2 == 0 {
					err = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake()
				} else if _, err = c.Write(hello[:n]); err == nil {
					_, err = c.Read(make([]byte, 1)) // the server has done its part
				}
				if err != nil {
					l.refused.Add(1)
					return
				}
				l.sent.Add(1)
			}()
		}
	}
}

// refusedRequests asks n times for paths of 60 kB that nobody has.
func (l *load) refusedRequests(n int) {
	path := "/" + strings.Repeat("x", 60_000)
	var next atomic.Int64
	for i := range 20 {
		go func() {
			for next.Add(1) <= int64(n) {
				c, err := l.dial(i)
				if err != nil {
					l.refused.Add(1)
					continue
				}
				fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path)
				_, _ = io.Copy(io.Discard, c)
				c.Close()
				l.sent.Add(1)
			}
		}()
	}
}
