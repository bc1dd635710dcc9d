package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/agent/network"
	"salvor/driver"
	driveragent "salvor/driver/agent"
	"salvor/metal"
	"salvor/secret"
	"salvor/test/must"
	wire "salvor/wire/agent"
	"salvor/wire/ironic"
)

// TestWithOurServer lets salvor's own rescue interface finish the rescue: the two ends
// of the wire are written apart.
func TestWithOurServer(t *testing.T) {
	f := newIronic(t)
	a, root, _, _ := newAgent(t, f, "")
	rescue := driveragent.Rescue{Locks: &driver.AddressLocks{}}
	node := &metal.Node{ID: testNode}
	ended := make(chan error, 2)
	f.onHeartbeat = func(url string, heartbeat ironic.Heartbeat) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		at := driver.Agent{URL: url, Version: heartbeat.AgentVersion, CA: heartbeat.AgentVerifyCA, Token: secret.New("wrong")}
		order := driver.Finalize{Hash: secret.New(testHash), Extras: &wire.Extras{SSHInterfaces: []string{testMAC}, TenantMove: true, NetworkData: json.RawMessage(`{"links":[]}`)}}
		if err := rescue.Finalize(ctx, node, at, order); err == nil || !strings.Contains(err.Error(), "token") {
			t.Errorf("a wrong token: %v", err)
		}
		at.Token = secret.New(testToken)
		ended <- rescue.Finalize(ctx, node, at, order)
		for range 2000 { // the port closes right after the answer
			if err := rescue.Finalize(ctx, node, at, order); errors.Is(err, driver.ErrGone) {
				ended <- nil
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		ended <- errors.New("the port does not close")
	}
	must.OK(t, runAgent(t, a))
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	plan, err := network.ReadPlan(root)
	if err != nil || plan.Move != network.MoveYes || !slices.Equal(plan.SSHInterfaces, []string{testMAC}) || !strings.Contains(shadowOf(t, root), testHash) {
		t.Errorf("plan %+v, %v", plan, err)
	}
}
