package storetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// testKeyChange: all that was sealed is sealed with the other key in the end, while others write, and is read back whole with that key alone.
func testKeyChange(b *testEnv) {
	const canary = "cAnAry-of-a-change"
	next := secret.GenerateKey()
	old := b.db.Key.ID()
	for _, id := range []string{"a", "b"} {
		b.node(id, func(n *metal.Node) { n.DriverInfo = metal.Object{"redfish_password": canary, "big": 12345.0} })
	}
	b.insert(job.Operation, "b", func(j *job.Job) { j.Secret = secret.New(canary) })
	sealedRecords(b, canary)
	sealedCompute(b, canary)
	_, err := b.s.GetOrCreateSecret(b.ctx, "vault", secret.New(canary))
	b.ok(err)

	b.refused(b.s.ProposeKey(b.ctx, old, record.Asker{}), problem.Conflict, "Key "+old+" is current already; a key is used once.")
	id, err := b.db.Key.Add(next)
	b.ok(err)
	b.ok(b.s.ProposeKey(b.ctx, id, record.Asker{}))
	b.refused(b.s.ProposeKey(b.ctx, "00000000", record.Asker{}), problem.Conflict, "")
	b.ok(b.s.PromoteKey(b.ctx))
	b.ok(b.s.PromoteKey(b.ctx)) // said twice, it is done once

	var writers sync.WaitGroup
	ctx, stop := context.WithCancel(b.ctx)
	writers.Go(func() {
		for ctx.Err() == nil {
			_ = b.s.Do(ctx, func(tx job.Tx) error {
				n, err := b.s.Node(ctx, tx, "a")
				if err != nil {
					return err
				}
				return b.s.SaveNode(tx, n)
			})
		}
	})
	_, err = b.s.Reseal(b.ctx)
	stop()
	writers.Wait()
	b.ok(err)
	keys, err := b.s.SealKeys(b.ctx)
	b.ok(err)
	if len(keys) != 2 || keys[0].ID != old && keys[1].ID != old {
		b.Fatalf("keys: %+v", keys)
	}
	was := keys[0]
	if was.ID != old {
		was = keys[1]
	}
	if n, err := b.s.SealedWith(b.ctx, old); err != nil || n != 0 {
		b.Fatalf("%d rows are sealed with the old key still: %v", n, err)
	}
	b.refused(b.s.ForgetKey(b.ctx, was), problem.Conflict, "")
	j := b.claimOne()
	if j.Secret.Reveal() != canary {
		b.Fatal("the job's secret is not read back")
	}
	j.State = job.Ended
	b.save(&j, false)
	b.ok(b.s.ForgetKey(b.ctx, was))
	b.db.Key.Forget(old)

	alone := b.db
	if alone.Key, err = secret.NewKey(next); err != nil {
		b.Fatal(err)
	}
	b.ok(b.s.Close())
	b.s, b.db = Open(b.T, alone), alone
	for _, id := range []string{"a", "b"} {
		n := must.Get(b.s.Node(b.ctx, nil, id))(b)
		if n.DriverInfo["redfish_password"] != canary || n.DriverInfo["big"] != 12345.0 {
			b.Errorf("driver_info of %s is not read back", id)
		}
	}
	if v, err := b.s.GetOrCreateSecret(b.ctx, "vault", secret.Value{}); err != nil || v.Reveal() != canary {
		b.Errorf("what was kept is not read back: %v", err)
	}
	if v, err := b.s.Targets().Get(b.ctx, nil, "secretive"); err != nil || v.Properties["auth_password"] != canary {
		b.Errorf("a volume target is not read back: %v", err)
	}
	readRepairParts(b, canary)
}

// testKeyFence: one that seals and looked before the change waits it out, and a process that has not read the new key seals nothing with the old one.
func testKeyFence(b *testEnv) {
	second := secret.GenerateKey()
	change := func(master []byte) {
		id := must.Get(b.db.Key.Add(master))(b)
		b.ok(b.s.ProposeKey(b.ctx, id, record.Asker{}))
		b.ok(b.s.PromoteKey(b.ctx))
		must.Get(b.s.Reseal(b.ctx))(b)
		keys := must.Get(b.s.SealKeys(b.ctx))(b)
		for _, k := range keys {
			if k.State == store.OldKey {
				b.ok(b.s.ForgetKey(b.ctx, k))
			}
		}
	}
	change(second)
	third := secret.GenerateKey()
	change(third)
	var err error
	again := b.db
	if again.Key, err = secret.NewKey(second, third); err != nil {
		b.Fatal(err)
	}
	b.ok(b.s.Close())
	b.s, b.db = Open(b.T, again), again
	if id, err := secret.KeyID(third); err != nil || !slices.Equal(again.Key.IDs(), []string{id}) {
		b.Errorf("a retired key is known after a start: %v", again.Key.IDs())
	}
	if !b.db.Shared {
		return
	}
	slow := b.db
	if slow.Key, err = secret.NewKey(third); err != nil {
		b.Fatal(err)
	}
	behind := Open(b.T, slow)
	secretive := func(s *store.Store, id string, while func()) error {
		return s.Do(b.ctx, func(tx job.Tx) error {
			err := s.InsertNode(tx, &metal.Node{ID: id, Driver: "x", ProvisionState: metal.Enroll, DriverInfo: metal.Object{"redfish_password": "p"}})
			while()
			return err
		})
	}
	changed := make(chan struct{})
	var once sync.Once
	b.ok(secretive(behind, "early", func() {
		once.Do(func() {
			go func() { defer close(changed); change(secret.GenerateKey()) }()
			select {
			case <-changed:
				b.Error("the key was changed under a transaction that seals")
			case <-time.After(300 * time.Millisecond):
			}
		})
	}))
	<-changed
	if n, err := b.s.Node(b.ctx, nil, "early"); err != nil || n.DriverInfo["redfish_password"] != "p" {
		b.Errorf("what was sealed before the change is not read back: %v", err)
	}
	b.refused(secretive(behind, "late", func() {}), problem.Unavailable, "")
}
