package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/agent/network"
	"salvor/problem"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

// TestAFinalizeThatFailsLeavesNoNetworkPlan: without a password nobody can enter, so the network step must find no plan to apply, and
// no plan of a former order either.
func TestAFinalizeThatFailsLeavesNoNetworkPlan(t *testing.T) {
	a, root, _, _ := newAgent(t, newIronic(t), "")
	order := wire.FinalizeParams{RescuePassword: testHash, Hashed: true}
	must.OK(t, a.finalize(order))
	if _, err := network.ReadPlan(root); err != nil {
		t.Fatalf("after one that succeeds: %v", err)
	}
	must.OK(t, os.Remove(filepath.Join(root, "etc/shadow")))
	if err := a.finalize(order); err == nil {
		t.Error("it succeeds without /etc/shadow")
	}
	if plan, err := network.ReadPlan(root); !problem.Is(err, problem.NotFound) {
		t.Errorf("it left the plan %+v, %v", plan, err)
	}
}

// TestFinalizeByKey: keys open the machine for both users, with a password beside them or without; a line that is no key opens nothing.
func TestFinalizeByKey(t *testing.T) {
	t.Parallel()
	const key = "ssh-ed25519 AAAA me"
	for name, c := range map[string]struct {
		order    wire.FinalizeParams
		password bool
		fails    bool
	}{
		"alone":               {wire.FinalizeParams{Salvor: &wire.Extras{AuthorizedKeys: []string{key}}}, false, false},
		"with a password":     {wire.FinalizeParams{RescuePassword: testHash, Hashed: true, Salvor: &wire.Extras{AuthorizedKeys: []string{key}}}, true, false},
		"no key, no password": {wire.FinalizeParams{Salvor: &wire.Extras{}}, false, true},
		"two lines":           {wire.FinalizeParams{RescuePassword: testHash, Hashed: true, Salvor: &wire.Extras{AuthorizedKeys: []string{key + "\n" + key}}}, false, true},
		"a hash that is none": {wire.FinalizeParams{RescuePassword: "x:y", Hashed: true, Salvor: &wire.Extras{AuthorizedKeys: []string{key}}}, false, true},
	} {
		a, root, _, _ := newAgent(t, newIronic(t), "")
		for _, home := range []string{"root", "home/rescue"} {
			must.OK(t, os.MkdirAll(filepath.Join(root, home), 0o755))
		}
		if err := a.finalize(c.order); (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		shadow := must.Get(os.ReadFile(filepath.Join(root, "etc/shadow")))(t)
		if strings.Contains(string(shadow), testHash) != c.password {
			t.Errorf("%s: shadow:\n%s", name, shadow)
		}
		for _, home := range []string{"root", "home/rescue"} {
			text, err := os.ReadFile(filepath.Join(root, home, ".ssh/authorized_keys"))
			if opened := err == nil && string(text) == key+"\n"; opened == c.fails || c.fails && err == nil {
				t.Errorf("%s: the keys of %s: %q, %v", name, home, text, err)
			}
		}
	}
}

// TestHostKeyIsAwaited: a file that dropbearkey has not finished is read again; without one the answer says so.
func TestHostKeyIsAwaited(t *testing.T) {
	t.Parallel()
	a, root, sleeps, _ := newAgent(t, newIronic(t), "")
	file := filepath.Join(root, sshKeyFile)
	must.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
	const whole = "Public key portion is:\nssh-ed25519 AAAA root@rescue\nFingerprint: SHA256:abc\n"
	sleeps.each = func(n int) {
		text := whole
		if n == 1 {
			text = whole[:40]
		}
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	got := must.Get(a.hostKey(t.Context(), nil))(t)
	if got != (wire.HostKey{PublicKey: "ssh-ed25519 AAAA root@rescue"}) || len(sleeps.list) != 2 {
		t.Errorf("%+v after %d waits", got, len(sleeps.list))
	}
}

// TestFinalizeTakesStrangeNetworkData: network data that cannot be followed, and a NIC for ssh that is gone, cost no rescue.
func TestFinalizeTakesStrangeNetworkData(t *testing.T) {
	t.Parallel()
	a, root, _, _ := newAgent(t, newIronic(t), "")
	own := must.Get(a.macs())(t)[0]
	for name, data := range map[string]string{"a link without id": `{"links":[{}]}`, "links no list": `{"links":3}`, "no object": `[]`, "null": `null`} {
		order := wire.FinalizeParams{RescuePassword: testHash, Hashed: true, Salvor: &wire.Extras{
			NetworkData: []byte(data), SSHInterfaces: []string{"52:54:00:99:99:99", strings.ToUpper(own)}}}
		must.OK(t, a.finalize(order))
		plan := must.Get(network.ReadPlan(root))(t)
		if len(plan.SSHInterfaces) != 1 || plan.SSHInterfaces[0] != own {
			t.Errorf("%s: ssh listens on %q, want %s", name, plan.SSHInterfaces, own)
		}
	}
}

// TestCheckNetwork: before the finalize the agent says what it will have of network data, and changes nothing.
func TestCheckNetwork(t *testing.T) {
	t.Parallel()
	a, root, _, _ := newAgent(t, newIronic(t), "")
	own := must.Get(a.macs())(t)[0]
	for name, c := range map[string]struct{ data, address, named string }{
		"all there":  {`{"links":[{"id":"a","ethernet_mac_address":"` + own + `"}],"networks":[{"id":"n","link":"a","type":"ipv4","ip_address":"192.0.2.7/24"}]}`, "192.0.2.7", ""},
		"a dead NIC": {`{"links":[{"id":"a","ethernet_mac_address":"02:00:00:00:99:99"}],"networks":[{"id":"n","link":"a","type":"ipv4","ip_address":"192.0.2.7/24"}]}`, "", "02:00:00:00:99:99"},
		"no object":  {`[]`, "", "DHCP is asked"},
		"none":       {`null`, "", ""},
	} {
		check := must.Get(a.checkNetwork(t.Context(), map[string]json.RawMessage{"network_data": json.RawMessage(c.data)}))(t).(wire.NetworkCheck)
		if told := strings.Join(check.LeftOut, ";"); strings.Join(check.Addresses, ",") != c.address || !strings.Contains(told, c.named) || (told == "") != (c.named == "") {
			t.Errorf("%s: %+v", name, check)
		}
	}
	if _, err := network.ReadPlan(root); !problem.Is(err, problem.NotFound) {
		t.Errorf("a check left a plan: %v", err)
	}
}
