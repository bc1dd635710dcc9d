package node

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

// TestRescueByKeyStoresHowToEnter: keys open the machine without a password; the session has the host key, its fingerprint and the fixed
// address until the next operation takes the rescue system away.
func TestRescueByKeyStoresHowToEnter(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	change(t, b, func(n *metal.Node) {
		n.NetworkData = metal.Object{
			"links":    []any{map[string]any{"id": "l0", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}},
			"networks": []any{map[string]any{"id": "n0", "type": "ipv4", "link": "l0", "ip_address": "192.0.2.7/24"}}, "services": []any{},
		}
	})
	b.run(t)
	must.OK(t, b.provision(metal.ToRescue, metal.ProvisionArgs{RescueKeys: []string{benchHostKey}, RescueLasts: time.Hour}))
	n := b.pokes(t, metal.Rescue)
	key := must.Get(rescue.ParseHostKey(benchHostKey))(t)
	if s := n.Rescue; s.HostKey != key.Key || s.Fingerprint != key.Fingerprint || !slices.Equal(s.Addresses, []string{"192.0.2.7"}) || s.Notice != "" || s.ExpiresAt.IsZero() {
		t.Errorf("session %+v", s)
	}
	if b.credential != benchHostKey {
		t.Errorf("the agent was given %q", b.credential)
	}
	must.OK(t, b.ask(t, metal.ToRescue))
	b.until(t, metal.RescueWait)
	if s := b.stored(t).Rescue; s.HostKey != "" || s.Fingerprint != "" || len(s.Addresses) != 0 || !s.ExpiresAt.IsZero() {
		t.Errorf("a second rescue still shows how the first was entered: %+v", s)
	}
}

// TestLeftOutOfTheNetworkIsTold: what the agent will leave out is in the session, in why and in the history; an address that the rescue system will
// not have is not shown as one at which ssh answers. An agent of a former release says nothing.
func TestLeftOutOfTheNetworkIsTold(t *testing.T) {
	t.Parallel()
	for name, nics := range map[string][]string{"an agent of today": {"52:54:00:00:00:01"}, "a former release": nil} {
		b := newBench(t, metal.Active)
		b.nics = nics
		change(t, b, func(n *metal.Node) {
			n.NetworkData = metal.Object{
				"links": []any{map[string]any{"id": "l0", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}, map[string]any{"id": "l1", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:02"}},
				"networks": []any{map[string]any{"id": "n0", "type": "ipv4", "link": "l0", "ip_address": "192.0.2.7/24"},
					map[string]any{"id": "n1", "type": "ipv4", "link": "l1", "ip_address": "198.51.100.7/24"}}, "services": []any{},
			}
		})
		b.run(t)
		must.OK(t, b.provision(metal.ToRescue, metal.ProvisionArgs{RescuePassword: secret.New("let me in")}))
		n := b.pokes(t, metal.Rescue)
		told := strings.Join(n.Rescue.Entry(n.Rescue.Addresses), "\n")
		events := fmt.Sprint(must.Get(b.store.Latest(t.Context(), job.Node(n.ID), 100))(t))
		for _, text := range []string{`link "l1": no NIC has the MAC 52:54:00:00:00:02`, `network "n1" (198.51.100.7/24): its link "l1" is not there`} {
			if want := nics != nil; strings.Contains(told, text) != want || strings.Contains(events, text) != want {
				t.Errorf("%s: why\n%s\nhistory\n%s\nwant %q in both: %v", name, told, events, text, want)
			}
		}
		want := []string{"192.0.2.7", "198.51.100.7"}
		if nics != nil {
			want = want[:1]
		}
		if !slices.Equal(n.Rescue.Addresses, want) {
			t.Errorf("%s: addresses %q, want %q", name, n.Rescue.Addresses, want)
		}
		must.OK(t, b.ask(t, metal.ToRescue))
		b.until(t, metal.RescueWait)
		if s := b.stored(t).Rescue; len(s.LeftOut) != 0 {
			t.Errorf("%s: a second rescue still shows what the first left out: %q", name, s.LeftOut)
		}
	}
}

// TestForeignAgentTakesNoKeys: with a password the rescue goes on and its session says that the keys were not taken; without one it
// fails with the reason, and the machine is taken back to its own network.
func TestForeignAgentTakesNoKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		password string
		ends     metal.State
		says     string
	}{{"let me in", metal.Rescue, "takes no ssh keys"}, {"", metal.RescueFailed, "takes no ssh keys"}} {
		b := newBench(t, metal.Active)
		b.agentVersion = "9.4.0"
		b.run(t)
		must.OK(t, b.provision(metal.ToRescue, metal.ProvisionArgs{RescuePassword: secret.New(c.password), RescueKeys: []string{benchHostKey}}))
		n := b.pokeUntil(t, c.ends, b.poke)
		if !strings.Contains(n.LastError+n.Rescue.Notice, c.says) {
			t.Errorf("password %q: last_error %q, notice %q", c.password, n.LastError, n.Rescue.Notice)
		}
		if n.Rescue.HostKey != "" || strings.Contains(b.credential, "ssh-ed25519") {
			t.Errorf("password %q: host key %q, credential %q", c.password, n.Rescue.HostKey, b.credential)
		}
		if c.ends == metal.RescueFailed && (!b.networks[driver.Tenant] || b.networks[driver.Rescuing] || b.agentUp) {
			t.Errorf("not taken back: %s", b.picture(t))
		}
	}
}

// TestKeysAreCheckedAtTheRequest: the request is refused before the machine is touched.
func TestKeysAreCheckedAtTheRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.nodes = metal.NewNodes(b.store, b.store, b.key, metal.NewDirectory(b.store, time.Now, 0, 0), metal.Options{RescuePasswordInLookup: true}, time.Now)
	for says, args := range map[string]metal.ProvisionArgs{
		"rescue_password_in_lookup": {RescueKeys: []string{benchHostKey}},
		"non-empty":                 {},
		"at most 366 days":          {RescuePassword: secret.New("x"), RescueLasts: rescue.MaxLasting + 1},
		"lasts":                     {RescuePassword: secret.New("x"), RescueLasts: -1},
	} {
		if err := b.provision(metal.ToRescue, args); !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	b.nodes = metal.NewNodes(b.store, b.store, b.key, metal.NewDirectory(b.store, time.Now, 0, 0), metal.Options{}, time.Now)
	if err := b.provision(metal.ToRescue, metal.ProvisionArgs{RescueKeys: []string{"ssh-ed25519"}}); !problem.Is(err, problem.Invalid) {
		t.Errorf("a key that is none: %v", err)
	}
	if n := b.stored(t); n.ProvisionState != metal.Active || n.Reservation != "" {
		t.Errorf("refused requests left %s", b.picture(t))
	}
}

func TestAddressesOfARescueSystem(t *testing.T) {
	t.Parallel()
	const agent = "https://198.51.100.9:9999"
	const data = `{"links":[{"id":"a","ethernet_mac_address":"52:54:00:00:00:01"},{"id":"b","ethernet_mac_address":"52:54:00:00:00:02"}],
		"networks":[{"link":"a","ip_address":"192.0.2.1"},{"link":"b","ip_address":"2001:db8::1/64"},{"link":"b","ip_address":"192.0.2.1"},{"link":"b","type":"ipv4_dhcp"},{"link":"b","ip_address":"x"}]}`
	for name, c := range map[string]struct {
		entry rescueEntry
		data  string
		want  []string
	}{
		"fixed":                         {rescueEntry{moves: true}, data, []string{"192.0.2.1", "2001:db8::1"}},
		"of the NICs on which ssh is":   {rescueEntry{moves: true, interfaces: []string{"52:54:00:00:00:01"}}, data, []string{"192.0.2.1"}},
		"it stays where it is":          {rescueEntry{}, "", []string{"198.51.100.9"}},
		"it stays, by DHCP":             {rescueEntry{}, `{"networks":[{"type":"ipv4_dhcp"}]}`, []string{"198.51.100.9"}},
		"it moves":                      {rescueEntry{moves: true}, "", nil},
		"it stays, ssh is on some NICs": {rescueEntry{interfaces: []string{"52:54:00:00:00:01"}}, "null", nil},
		"no JSON":                       {rescueEntry{moves: true}, "{", nil},
	} {
		if got := c.entry.addresses(json.RawMessage(c.data), agent); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	many := `{"networks":[` + strings.TrimSuffix(strings.Repeat(`{"ip_address":"192.0.2.1"},`, 300), ",") + `]}`
	if got := (rescueEntry{}).addresses(json.RawMessage(many), agent); len(got) != 1 {
		t.Errorf("one address 300 times: %v", got)
	}
}

// TestExpiredRescueEnds: at its end, and not before, the machine boots its own system again, once; one in maintenance is left alone.
func TestExpiredRescueEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.run(t)
	now := time.Now()
	nodes := metal.NewNodes(b.store, b.store, b.key, metal.NewDirectory(b.store, time.Now, 0, 0), metal.Options{}, func() time.Time { return now })
	must.OK(t, b.provision(metal.ToRescue, metal.ProvisionArgs{RescuePassword: secret.New("let me in"), RescueLasts: time.Hour}))
	b.pokes(t, metal.Rescue)
	now = now.Add(59 * time.Minute)
	must.OK(t, nodes.ExpireRescues(t.Context()))
	if n := b.stored(t); n.ProvisionState != metal.Rescue {
		t.Fatalf("a minute too early it is %s", n.ProvisionState)
	}
	now = now.Add(2 * time.Minute)
	change(t, b, func(n *metal.Node) { n.Maintenance = true })
	must.OK(t, nodes.ExpireRescues(t.Context()))
	if n := b.stored(t); n.ProvisionState != metal.Rescue {
		t.Fatalf("in maintenance it is %s", n.ProvisionState)
	}
	change(t, b, func(n *metal.Node) { n.Maintenance = false })
	must.OK(t, nodes.ExpireRescues(t.Context()))
	must.OK(t, nodes.ExpireRescues(t.Context()))
	if n := b.until(t, metal.Active); n.Rescue != nil || b.running != "system" || b.systemOn != 1 {
		t.Errorf("not back, or more than once: %s, booted %d times", b.picture(t), b.systemOn)
	}
	events := must.Get(b.store.Events(t.Context(), job.Node(b.node), 0, 100))(t)
	count := 0
	for _, e := range events {
		if strings.Contains(e.Text, "because its rescue session is over") {
			count++
		}
	}
	if count != 1 {
		t.Errorf("the history says %d times why it left rescue", count)
	}
}

// TestSessionsWithoutAnEndStay: nobody asked for one.
func TestSessionsWithoutAnEndStay(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Rescue)
	change(t, b, func(n *metal.Node) { n.Rescue = &rescue.Session{StartedAt: time.Now().Add(-1000 * time.Hour)} })
	must.OK(t, b.nodes.ExpireRescues(t.Context()))
	if n := b.stored(t); n.ProvisionState != metal.Rescue || n.Reservation != "" {
		t.Errorf("it is %s", n.ProvisionState)
	}
	found := must.Get(b.nodes.List(t.Context(), metal.NodeFilter{RescueExpires: true}, record.Page{Limit: 10}))(t)
	if len(found) != 0 {
		t.Errorf("listed as one that ends by itself: %v", found)
	}
}
