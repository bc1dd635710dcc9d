package stress

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"salvor/client"
	"salvor/lab/sim/fleet"
	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/loose"
)

const (
	lyingAgents = 20
	lyingSeed   = 8
	// lieSize is what the conductor reads of an answer at most.
	lieSize = 24<<20 - 1<<10
	// growthGoal is how much the memory of the server may grow meanwhile.
	growthGoal = 100 << 20
)

// lies are answers to the question for an agent's commands: lists without number in the parameters of a command, in its outcome, in a member that
// nobody knows, and one in the other; and texts in as many values as are allowed, and in one value, which are received to their end.
func lies() (all [][]byte) {
	const command = `{"id":"1","command_name":"x","command_status":"RUNNING","command_params":%s,"command_result":%s}`
	lists := strings.Repeat("[],", lieSize/3) + "[]"
	const allowed = loose.MaxValues - 10
	texts := strings.Repeat(`"`+strings.Repeat("x", lieSize/allowed-3)+`",`, allowed)
	deep := strings.Repeat("[", lieSize/2) + strings.Repeat("]", lieSize/2)
	for _, lie := range []string{
		`{"commands":[` + fmt.Sprintf(command, `{"a":[`+lists+`]}`, "null") + `]}`, `{"commands":[` + fmt.Sprintf(command, "{}", `{"a":[`+lists+`]}`) + `]}`,
		`{"commands":[],"more":[` + lists + `]}`, `{"commands":[],"more":[` + texts + `""]}`, `{"commands":[],"more":"` + strings.Repeat("x", lieSize) + `"}`, `{"commands":[` + lists + `]}`, `{"commands":[` + fmt.Sprintf(command, "{}", deep) + `]}`,
	} {
		all = append(all, []byte(lie))
	}
	return all
}

// TestLyingAgents has agents of machines under diagnosis answer with as many JSON values as fit into an answer: first one agent, then 20 at once.
// Meanwhile it measures the memory of the server and the reads of another client. The reads without any lie, before that, show what other programs of
// this machine make of them. SALVOR_LENGTH is how long each part lasts.
func TestLyingAgents(t *testing.T) {
	if os.Getenv("SALVOR_SOAK") == "" {
		t.Skip("a long measurement: make lying-agents, or SALVOR_SOAK=1")
	}
	length := time.Minute
	if text := os.Getenv("SALVOR_LENGTH"); text != "" {
		length = must.Get(time.ParseDuration(text))(t)
	}
	w := newLiedTo(t)
	agents := w.startAgents(t)
	rested := 0
	for range 20 { // the enrolling has left garbage, of which the first collections make room
		time.Sleep(100 * time.Millisecond)
		rested = max(rested, resident(w.server.PID()))
	}
	for _, c := range []struct {
		name     string
		from, to int
		length   time.Duration
	}{{"no agent", 0, 0, length / 4}, {"1 agent", 0, 1, length}, {"20 agents at once", 1, 1 + lyingAgents, length}} {
		t.Run(c.name, func(t *testing.T) { w.measure(t, agents, rested, c.from, c.to, c.length) })
	}
}

// liedTo is a control plane whose machines have lying agents.
type liedTo struct {
	server *program.Server
	api    *client.Client
	fleet  *fleet.Fleet // for the names of the machines
}

func newLiedTo(t *testing.T) *liedTo {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"kernel", "initramfs"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("nobody boots this "), 512), 0o600))
	}
	// Boot media are fetched at an address that must be known before the server listens.
	var at atomic.Pointer[url.URL]
	media := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at.Load()) }})
	t.Cleanup(media.Close)
	w := &liedTo{server: program.Serve(t, fmt.Sprintf("[conductor]\nrescue_kernel = %[1]s/kernel\nrescue_ramdisk = %[1]s/initramfs\n[service_catalog]\nendpoint_override = %[2]s\n", dir, media.URL))}
	at.Store(must.Get(url.Parse(w.server.URL))(t))
	w.api = must.Get(client.New(client.Config{Endpoint: w.server.URL}))(t)
	for i := range 200 {
		must.Get(w.api.CreateNode(t.Context(), client.Record{"driver": "fake-hardware", "name": fmt.Sprint("n", i)}))(t)
	}
	w.fleet = must.Get(fleet.New(lyingFleet(w.api, nil)))(t)
	return w
}

func lyingFleet(api *client.Client, commands http.HandlerFunc) fleet.Config {
	return fleet.Config{
		API: api, Nodes: 1 + lyingAgents, Seed: lyingSeed, BootInterface: "redfish-virtual-media", HeartbeatInterval: 5 * time.Second, Boot: 100 * time.Millisecond,
		Workers: 8, Commands: commands,
	}
}

// lyingProcess is the process of the agents.
type lyingProcess struct{ answers atomic.Int64 }

// startAgents starts the process of the machines and their agents at the lowest priority, and with half of a processor where a control group can be made.
func (w *liedTo) startAgents(t *testing.T) *lyingProcess {
	t.Helper()
	cmd := exec.Command("nice", "-n", "19", os.Args[0], "-test.run", "^TestLyingAgentProcess$", "-test.timeout", "60m")
	cmd.Env = append(os.Environ(), "SALVOR_LYING="+w.server.URL)
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	inQuota(t, cmd.Process.Pid)
	p, begun, over := &lyingProcess{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			switch lines.Text() {
			case "begun":
				close(begun)
			case "lied":
				p.answers.Add(1)
			}
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-over
		_ = cmd.Wait()
	})
	select {
	case <-begun:
	case <-over:
		t.Fatal("the process of the agents ended before it had machines")
	case <-time.After(stallTimeout):
		t.Fatalf("the machines are not enrolled within %s", stallTimeout)
	}
	return p
}

// TestLyingAgentProcess is the process of the agents: TestLyingAgents starts it with the address of the control plane in the environment.
func TestLyingAgentProcess(t *testing.T) {
	address := os.Getenv("SALVOR_LYING")
	if address == "" {
		t.Skip("started by TestLyingAgents")
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // the end of the parent ends it
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	all, next := lies(), atomic.Int64{}
	machines := must.Get(fleet.New(lyingFleet(must.Get(client.New(client.Config{Endpoint: address}))(t), func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(all[int(next.Add(1))%len(all)])
		fmt.Println("lied")
	})))(t)
	must.OK(t, machines.Run(ctx, func(ctx context.Context) {
		if err := machines.Enroll(ctx); err != nil {
			t.Error(err)
			return
		}
		fmt.Println("begun")
		<-ctx.Done()
	}))
}

// measure has some machines diagnosed, again and again, and tells what the server and others had of that.
func (w *liedTo) measure(t *testing.T, agents *lyingProcess, rested, from, to int, length time.Duration) {
	before := agents.answers.Load()
	diagnosed := make(chan struct{})
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	go func() {
		defer close(diagnosed)
		for ctx.Err() == nil {
			for i := from; i < to; i++ { // a conflict says that the machine is being diagnosed
				_ = w.api.Ask(ctx, client.Native, http.MethodPost, "/nodes/"+w.fleet.UUID(i)+"/diagnoses", nil, map[string]any{"reboot": true}, nil)
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
		}
	}()
	var times []time.Duration
	failed, most := 0, 0
	for i := 0; ctx.Err() == nil; i++ {
		path := "/v1/nodes?limit=10"
		if i%2 == 0 {
			path = "/v1/nodes/" + w.fleet.UUID(i%(1+lyingAgents))
		}
		began := time.Now()
		answer, err := http.DefaultClient.Do(request(t.Context(), http.MethodGet, w.server.URL+path, ""))
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		if err != nil || answer.StatusCode != http.StatusOK {
			failed++
			t.Logf("GET %s: %v", path, err)
		}
		times = append(times, time.Since(began))
		most = max(most, resident(w.server.PID()))
		time.Sleep(20 * time.Millisecond)
	}
	<-diagnosed
	slices.Sort(times)
	p99, lied := times[len(times)*99/100], agents.answers.Load()-before
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("%s: %d answers of %d MiB; memory %d MiB before, %d MiB at most; %d GETs: half within %s, 99 of 100 within %s, longest %s; load %s",
		length, lied, lieSize>>20+1, rested>>20, most>>20, len(times), times[len(times)/2].Round(time.Millisecond), p99.Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond), bytes.TrimSpace(load))
	if lied < int64(to-from) {
		t.Errorf("want each of %d agents to be asked, got %d questions", to-from, lied)
	}
	if most-rested > growthGoal {
		t.Errorf("memory: want at most %d MiB more, got %d MiB more", growthGoal>>20, (most-rested)>>20)
	}
	if p99 > getGoal || failed > 0 {
		t.Errorf("GETs: want 99 of 100 within %s and none to fail, got %s and %d", getGoal, p99, failed)
	}
}
