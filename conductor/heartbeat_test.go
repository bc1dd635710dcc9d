package conductor

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/metal"
)

// TestHeartbeatsAreWrittenTogether: the first, and what somebody waits for, at once; what says nothing new later.
func TestHeartbeatsAreWrittenTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	now := time.Now().Truncate(time.Second)
	b.nodes = metal.NewNodes(b.store, b.store, b.key, metal.NewDirectory(b.store, time.Now, 0, 0), metal.Options{}, func() time.Time { return now })
	change(t, b, func(n *metal.Node) {
		n.ProvisionState, n.BootNumber, n.Plan = metal.Servicing, 1, &metal.BootPlan{Path: uuid.NewString(), BootNumber: 1}
	})
	ctx := context.Background()
	beat := metal.Heartbeat{URL: "http://10.0.0.9:9999", Version: "1", Token: (&metal.Node{ID: b.node, BootNumber: 1}).AgentToken(b.key)}
	say := func(h metal.Heartbeat) time.Time {
		t.Helper()
		now = now.Add(time.Minute)
		if err := b.nodes.Heartbeat(ctx, b.node, h); err != nil {
			t.Fatal(err)
		}
		c, err := b.store.Contact(ctx, nil, b.node)
		if err != nil {
			t.Fatal(err)
		}
		return c.HeartbeatAt
	}
	if at := say(beat); !at.Equal(now) {
		t.Errorf("the first was written at %s, want %s", at, now)
	}
	if at := say(beat); !at.Before(now) {
		t.Error("one that says nothing new was committed at once")
	}
	if err := b.nodes.FlushHeartbeats(ctx); err != nil {
		t.Fatal(err)
	}
	if c, _ := b.store.Contact(ctx, nil, b.node); !c.HeartbeatAt.Equal(now) {
		t.Errorf("after the flush it is %s, want %s", c.HeartbeatAt, now)
	}
	beat.Status = "end"
	if at := say(beat); !at.Equal(now) {
		t.Error("a change was not committed at once")
	}
	change(t, b, func(n *metal.Node) { n.ProvisionState = metal.ServiceWait })
	if at := say(beat); !at.Equal(now) {
		t.Error("what somebody waits for was not committed at once")
	}
}
