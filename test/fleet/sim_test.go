package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	simulated "salvor/lab/sim/fleet"
	"salvor/test/must"
	"salvor/test/program"
)

// rehearse runs salvor-lab sim against a control plane.
func rehearse(t *testing.T, s *program.Server, words ...string) (map[string]any, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program.Path(t, "salvor-lab"), append([]string{"sim", "--url", s.URL, "-f", "json"}, words...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("salvor-lab sim: %v\n%.4000s", err, said.String())
	}
	var summary map[string]any
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &summary); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
	}
	return summary, said.String()
}

// rescuable is a control plane that can rescue simulated machines. Its ramdisk is never run.
func rescuable(t *testing.T) *program.Server {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"kernel", "initramfs"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("not run here "), 512), 0o600))
	}
	// Boot media are fetched at an address that must be known before the server listens.
	var server atomic.Pointer[url.URL]
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server.Load()) }})
	t.Cleanup(proxy.Close)
	s := program.Serve(t, fmt.Sprintf(`[conductor]
sync_power_state_interval = 1
rescue_kernel = %[1]s/kernel
rescue_ramdisk = %[1]s/initramfs
[service_catalog]
endpoint_override = %[2]s
`, dir, proxy.URL))
	server.Store(must.Get(url.Parse(s.URL))(t))
	return s
}

// TestSimulated enrolls a simulated fleet behind Redfish BMCs, part of it in rescue or waiting in one by boot media of
// the control plane, takes it over in a second run, and removes it.
func TestSimulated(t *testing.T) {
	s := rescuable(t)
	words := []string{"--nodes", "30", "--seed", "5", "--rescue", "0.3", "--hold", "0.3", "--boot-time", "50ms", "--heartbeat", "1s", "--for", "3s"}
	var rescued, held float64
	for run := range 2 {
		got, said := rehearse(t, s, words...)
		count := func(name string) float64 { n, _ := got[name].(float64); return n }
		rescued, held = count("rescued"), count("held")
		if count("enrolled") != 30 || count("errors") != 0 || rescued < 3 || held < 3 || count("opened") != rescued || count("agents") != held || count("heartbeats") < rescued+2*held || count("bmc_requests") < 100 {
			t.Fatalf("run %d: %v\n%.4000s", run, got, said)
		}
	}
	api, err := client.New(client.Config{Endpoint: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	nodes, err := api.Nodes(t.Context(), client.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		states[n.ProvisionState]++
	}
	if states["rescue"] != int(rescued) || states["rescue wait"] != int(held) || states["active"] != 30-int(rescued+held) {
		t.Errorf("the nodes are %v, want %v in rescue, %v waiting and the others active", states, rescued, held)
	}
	if _, said := rehearse(t, s, "--nodes", "30", "--seed", "5", "--clean"); !strings.Contains(said, "30 nodes removed, 0 errors") {
		t.Errorf("removal says %q", said)
	}
	if nodes, err = api.Nodes(t.Context(), client.Query{}); err != nil || len(nodes) != 0 {
		t.Errorf("%d nodes are left, %v", len(nodes), err)
	}
}

// TestSimulatedFaults: the shares of salvor-lab sim make as many BMCs fail as they say, and those of a seed are the same at another control plane.
func TestSimulatedFaults(t *testing.T) {
	words := []string{"sim", "--nodes", "24", "--seed", "9", "--busy", "0.4"}
	nobody := must.Get(client.New(client.Config{Endpoint: "http://127.0.0.1:1"}))(t)
	planned, err := simulated.New(simulated.Config{API: nobody, Nodes: 24, Seed: 9, HeartbeatInterval: time.Minute, Workers: 1, Faults: simulated.Rates{Busy: 0.4}})
	if err != nil {
		t.Fatal(err)
	}
	want := planned.Summary().Faulty
	if want < 4 || want > 16 {
		t.Fatalf("%d of 24 BMCs are to fail", want)
	}
	var found [2][]string
	for run := range found {
		s := program.Serve(t, "[conductor]\nsync_power_state_interval = 1\n")
		cmd := exec.CommandContext(t.Context(), program.Path(t, "salvor-lab"), append(words, "--url", s.URL)...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		must.OK(t, cmd.Start())
		api := must.Get(client.New(client.Config{Endpoint: s.URL}))(t)
		for end := time.Now().Add(time.Minute); len(found[run]) < want; time.Sleep(100 * time.Millisecond) {
			nodes, err := api.Nodes(t.Context(), client.Query{Detail: true})
			if err != nil || time.Now().After(end) {
				t.Fatalf("%d of %d BMCs fail, %v\n%.4000s", len(found[run]), want, err, said.String())
			}
			found[run] = nil
			for _, n := range nodes {
				if n.Fault == "power failure" {
					found[run] = append(found[run], n.Name)
				}
			}
		}
		must.OK(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
		slices.Sort(found[run])
	}
	if !slices.Equal(found[0], found[1]) || len(found[0]) != want {
		t.Errorf("want %d; at one control plane %v fail, at the other %v", want, found[0], found[1])
	}
}

// TestSimulatedWithoutARamdisk: one refusal at the start, not one for each node, and no node is left.
func TestSimulatedWithoutARamdisk(t *testing.T) {
	s := program.Serve(t, "")
	cmd := exec.CommandContext(t.Context(), program.Path(t, "salvor-lab"), "sim", "--url", s.URL, "--nodes", "50", "--rescue", "0.2", "--hold", "0.2", "--for", "1s")
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Count(string(out), "rescue_kernel") != 1 || !strings.Contains(string(out), "cannot rescue the simulated nodes") || strings.Count(string(out), "\n") > 5 {
		t.Errorf("%v: %.2000s", err, out)
	}
	api, err := client.New(client.Config{Endpoint: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := api.Nodes(t.Context(), client.Query{}); err != nil || len(left) != 0 {
		t.Errorf("%v, %d nodes are left", err, len(left))
	}
}

// TestSimOnAnEmptyStateDirectory: without rescues the fleet needs no configuration. What a rescue lacks, and what no node can do, is told in one
// line, and no node is left. The former name, salvor sim, says so too.
func TestSimOnAnEmptyStateDirectory(t *testing.T) {
	refused := func(cli program.CLI, want string, words ...string) {
		t.Helper()
		_, err := cli.Try(t, append([]string{"sim", "--nodes", "5", "--seed", "9", "--for", "1s"}, words...)...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(strings.TrimSpace(err.Error()), "\n") != 0 {
			t.Errorf("salvor-lab sim %q: %v, want one line with %q", words, err, want)
		}
		if nodes := cli.Run(t, "node", "list", "-f", "json"); nodes != "[]" {
			t.Errorf("nodes are left: %s", nodes)
		}
	}
	s := program.Serve(t, "")
	cli := program.CLI{URL: s.URL}
	refused(cli, "this control plane cannot rescue the simulated nodes: ", "--rescue", "0.5")
	refused(program.CLI{URL: program.Serve(t, "[DEFAULT]\nenabled_hardware_types = ipmi\n").URL}, "this control plane does not take the simulated nodes: ")
	if got, said := rehearse(t, s, "--nodes", "5", "--seed", "9", "--for", "1s"); got["enrolled"] != 5.0 || got["errors"] != 0.0 {
		t.Errorf("salvor-lab sim says %v\n%s", got, said)
	}
}
