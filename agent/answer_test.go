package agent

import (
	"testing"

	"salvor/problem"
	"salvor/wire/ironic"
)

// TestTheAnswerOfALookupIsChecked: its name of the node becomes a part of paths, and its hash a line of /etc/shadow.
func TestTheAnswerOfALookupIsChecked(t *testing.T) {
	answer := func(node, hash string) *ironic.LookupAnswer {
		return &ironic.LookupAnswer{Node: ironic.LookupNode{UUID: node, InstanceInfo: map[string]any{"rescue_password": hash}}, Config: &ironic.LookupConfig{HeartbeatTimeout: 300}}
	}
	for _, node := range []string{"", ".", "..", "../../v1/nodes", "a/b", "a?b", "a b", "a\n"} {
		if err := new(Agent).take(&lookupSession{}, answer(node, "")); !problem.Is(err, problem.Unavailable) {
			t.Errorf("node %q: %v", node, err)
		}
	}
	for hash, taken := range map[string]bool{testHash: true, "": false, "secret": false, testHash + "\nroot::0:0": false, "x:" + testHash: false} {
		found := &lookupSession{}
		if err := new(Agent).take(found, answer("1be26c0b-03f2-4d2e-ae87-c02d7f33c123", hash)); err != nil || found.hash.Empty() == taken {
			t.Errorf("hash %q: taken %v, %v", hash, !found.hash.Empty(), err)
		}
	}
}
