package fleet

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/client"
	"salvor/secret"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

func plan(t *testing.T, change func(*Config)) *Fleet {
	t.Helper()
	api := must.Get(client.New(client.Config{Endpoint: "http://127.0.0.1:1"}))(t)
	c := Config{API: api, Nodes: 1000, Seed: 7, Rescued: 0.3, Held: 0.3, HeartbeatInterval: 100 * time.Second, Workers: 4, Faults: Rates{Silent: 0.1, Slow: 0.1, Lying: 0.1, Busy: 0.1}}
	if change != nil {
		change(&c)
	}
	f := must.Get(New(c))(t)
	return f
}

// TestSeed says that everything that is chosen is the same for one seed and another for another.
func TestSeed(t *testing.T) {
	same, other := 0, 0
	a, b, c := plan(t, nil), plan(t, nil), plan(t, func(c *Config) { c.Seed = 8 })
	names, addresses := map[string]bool{}, map[string]bool{}
	for i := range a.machines {
		if a.UUID(i) != b.UUID(i) || a.MAC(i) != b.MAC(i) || a.machines[i].fault != b.machines[i].fault || a.machines[i].rescued != b.machines[i].rescued || a.machines[i].held != b.machines[i].held {
			t.Fatalf("machine %d differs in two fleets of one seed", i)
		}
		names[a.UUID(i)], addresses[a.MAC(i)], addresses[a.host(i)] = true, true, true
		if a.machines[i].fault == c.machines[i].fault {
			same++
		}
		if a.UUID(i) == c.UUID(i) || a.MAC(i) == c.MAC(i) || a.Name(i) == c.Name(i) {
			other++
		}
	}
	if same == len(a.machines) || other > 0 {
		t.Errorf("another seed gives %d of the faults and %d of the names of the first", same, other)
	}
	if len(names) != 1000 || len(addresses) != 2000 {
		t.Errorf("%d UUIDs and %d addresses of 1000 machines", len(names), len(addresses))
	}
	for i := range a.wheel {
		if !slices.Equal(a.wheel[i].machines, b.wheel[i].machines) {
			t.Fatal("heartbeats lie elsewhere in two fleets of one seed")
		}
	}
	if s := a.Summary(); s.Faulty < 300 || s.Faulty > 500 {
		t.Errorf("%d of 1000 BMCs misbehave, want about 400", s.Faulty)
	}
	if host := a.host(MaxNodes - 1); host != "127.80.98.76" {
		t.Errorf("the last machine has its BMC at %s", host)
	}
}

// TestRefused are fleets that cannot be.
func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no node": func(c *Config) { c.Nodes = 0 }, "too many": func(c *Config) { c.Nodes = MaxNodes + 1 },
		"more than all": func(c *Config) { c.Rescued, c.Held = 0.6, 0.6 }, "negative": func(c *Config) { c.Faults.Slow = -0.1 }, "more faults than BMCs": func(c *Config) { c.Faults.Slow = 0.9 },
		"no pause": func(c *Config) { c.HeartbeatInterval = 0 }, "nobody": func(c *Config) { c.Workers = 0 },
	} {
		c := Config{Nodes: 10, HeartbeatInterval: time.Second, Workers: 1, Faults: Rates{Busy: 0.2}}
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestToken finds the token wherever it lies in a medium.
func TestToken(t *testing.T) {
	const word = "APPEND ipa-api-url=http://c ipa-agent-token=abcdefghijklmnopqrstuvwxyz012345 quiet\n"
	for _, before := range []int{0, 1, 65000, 65530, 65536 + 200, 65536 + 256, 1 << 20} {
		got, err := findAgentToken(strings.NewReader(strings.Repeat("\x00", before) + word + strings.Repeat("x", 100000)))
		if err != nil || got.Reveal() != "abcdefghijklmnopqrstuvwxyz012345" {
			t.Errorf("after %d bytes: %q, %v", before, got.Reveal(), err)
		}
	}
	for _, text := range []string{"", "x", strings.Repeat("ipa-agent-token=", 10000)} {
		if got, err := findAgentToken(strings.NewReader(text)); err != nil || !got.Empty() {
			t.Errorf("%.20q: %q, %v", text, got.Reveal(), err)
		}
	}
}

// TestFaults asks a BMC of each fault, before and after the fleet is enrolled.
func TestFaults(t *testing.T) {
	f := plan(t, func(c *Config) { c.Nodes = 5; c.Faults = Rates{} })
	for i, kind := range []bmcFault{none, silent, lying, busy} {
		f.machines[i].fault = kind
	}
	ctx, cancel := context.WithCancel(t.Context())
	listens, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- f.Run(ctx, func(context.Context) { close(listens) }) }()
	<-listens
	ask := func(i int, path string) int {
		timeout := 20 * time.Second
		if f.faulty.Load() && i < len(f.machines) && f.machines[i].fault == silent {
			timeout = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		method, body := http.MethodGet, ""
		if path != "" {
			method, body = http.MethodPost, `{"ResetType": "ForceOff"}`
		}
		r := must.Get(http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.64.0.1:%d%s/%d%s", f.port, systems, i, path), strings.NewReader(body)))(t)
		r.SetBasicAuth(username, password)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for i := range 4 {
		if got := ask(i, ""); got != http.StatusOK {
			t.Errorf("BMC %d answers %d before the fleet is enrolled", i, got)
		}
	}
	f.faulty.Store(true)
	for i, want := range []int{200, 0, 200, 503} {
		if got := ask(i, ""); got != want {
			t.Errorf("BMC %d answers %d, want %d", i, got, want)
		}
	}
	if got := ask(9, ""); got != http.StatusNotFound {
		t.Errorf("a BMC that is not there answers %d", got)
	}
	for i, want := range map[int]bool{0: false, 2: true} {
		if got := ask(i, "/Actions/ComputerSystem.Reset"); got != http.StatusNoContent || f.machines[i].on != want {
			t.Errorf("machine %d: %d to the order to go off, on %t", i, got, f.machines[i].on)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestAgentGoesWithThePower: a call to an agent whose machine was switched off finds nobody, as on real machines. An answer that refuses the token would
// have a rescue fail at once, although the next boot of the ramdisk may be under way.
func TestAgentGoesWithThePower(t *testing.T) {
	f := plan(t, func(c *Config) { c.Nodes = 1; c.Faults = Rates{} })
	ctx, cancel := context.WithCancel(t.Context())
	listens, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- f.Run(ctx, func(context.Context) { close(listens) }) }()
	<-listens
	ask := func() (status int, err error) {
		r := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.64.0.1:%d%s?%s=word", f.port, wire.CommandsPath, wire.QueryToken), nil))(t)
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			status = answer.StatusCode
			err = answer.Body.Close()
		}
		return status, err
	}
	f.power(0, true)
	if !f.settle(0, f.machines[0].boots, secret.New("word")) {
		t.Fatal("the agent of the present boot is not taken")
	}
	if status, err := ask(); status != http.StatusOK || err != nil {
		t.Errorf("while its machine is on: want 200, got %d and %v", status, err)
	}
	f.power(0, false)
	if status, err := ask(); err == nil {
		t.Errorf("after its machine went off: want no answer, got %d", status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
