package node

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/metal"
	"salvor/secret"
	"salvor/test/must"
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
		must.OK(t, b.nodes.Heartbeat(ctx, b.node, h))
		c := must.Get(b.store.Contact(ctx, nil, b.node))(t)
		return c.HeartbeatAt
	}
	if at := say(beat); !at.Equal(now) {
		t.Errorf("the first was written at %s, want %s", at, now)
	}
	if at := say(beat); !at.Before(now) {
		t.Error("one that says nothing new was committed at once")
	}
	must.OK(t, b.nodes.FlushHeartbeats(ctx))
	if c, _ := b.store.Contact(ctx, nil, b.node); !c.HeartbeatAt.Equal(now) {
		t.Errorf("after the flush it is %s, want %s", c.HeartbeatAt, now)
	}
	beat.Status = "end"
	if at := say(beat); !at.Equal(now) {
		t.Error("a change was not committed at once")
	}
	change(t, b, func(n *metal.Node) { n.ProvisionState = metal.ServiceWait })
	if at := say(beat); !at.Equal(now) {
		t.Error("what someone waits for was not committed at once")
	}
}

// TestARepeatedHeartbeat: what was said before to the same row is known at once; whatever differs is judged anew.
func TestARepeatedHeartbeat(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	now := time.Now().Truncate(time.Second)
	b.nodes = metal.NewNodes(b.store, b.store, b.key, metal.NewDirectory(b.store, time.Now, 0, 0), metal.Options{}, func() time.Time { return now })
	boot := func(number int64, s metal.State) {
		change(t, b, func(n *metal.Node) {
			n.ProvisionState, n.BootNumber, n.Plan = s, number, &metal.BootPlan{Path: uuid.NewString(), BootNumber: number}
		})
	}
	ctx := context.Background()
	heartbeatAt := func(number int64) metal.Heartbeat {
		return metal.Heartbeat{URL: "http://10.0.0.9:9999", Version: "1", Token: (&metal.Node{ID: b.node, BootNumber: number}).AgentToken(b.key)}
	}
	say := func(h metal.Heartbeat) {
		t.Helper()
		must.OK(t, b.nodes.Heartbeat(ctx, b.node, h))
	}
	repeated := func(h metal.Heartbeat, want bool, why string) {
		t.Helper()
		if same, err := b.nodes.RepeatedHeartbeat(ctx, b.node, h); err != nil || same != want {
			t.Fatalf("%s: repeated %t, %v", why, same, err)
		}
	}
	boot(1, metal.Rescue)
	first := heartbeatAt(1)
	repeated(first, false, "never heard")
	say(first)
	say(first)
	now = now.Add(time.Minute)
	repeated(first, true, "the same")
	must.OK(t, b.nodes.FlushHeartbeats(ctx))
	if c, _ := b.store.Contact(ctx, nil, b.node); !c.HeartbeatAt.Equal(now) {
		t.Errorf("after the flush it was heard at %s, want %s", c.HeartbeatAt, now)
	}
	for why, change := range map[string]func(*metal.Heartbeat){
		"another token": func(h *metal.Heartbeat) { h.Token = heartbeatAt(2).Token }, "no token": func(h *metal.Heartbeat) { h.Token = secret.Value{} },
		"another certificate": func(h *metal.Heartbeat) { h.CA = "x" }, "another address": func(h *metal.Heartbeat) { h.URL = "http://10.0.0.8:9999" },
		"a status": func(h *metal.Heartbeat) { h.Status = "end" },
	} {
		other := first
		change(&other)
		repeated(other, false, why)
	}
	elsewhere := metal.WithinGroup(ctx, "elsewhere")
	if same, err := b.nodes.RepeatedHeartbeat(elsewhere, b.node, first); err != nil || same {
		t.Fatalf("from another site: repeated %t, %v", same, err)
	}
	boot(2, metal.Rescue)
	repeated(first, false, "another boot")
	say(heartbeatAt(2))
	say(heartbeatAt(2))
	repeated(heartbeatAt(2), true, "the same of the next boot")
	boot(2, metal.Servicing)
	say(heartbeatAt(2))
	repeated(heartbeatAt(2), false, "a state in which a lock tells whether someone waits")
}
