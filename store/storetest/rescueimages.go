package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
)

func rescueImage(i int) *rescue.Image {
	r := fillRecord[rescue.Image](i)
	r.DeletedAt, r.Default = time.Time{}, false
	return r
}

func testRescueImages(b *testEnv) {
	t := b.s.RescueImages()
	tableCase[rescue.Image, rescue.ImageFilter]{t, "Rescue image", rescueImage, (*rescue.Image).Head, nil, []string{"name"}}.test(b)
	taken := rescueImage(1)
	taken.ID = "x"
	refusedBoth(b, t, taken, rescueImage(8), func(i *rescue.Image) { i.Source.Location = taken.Source.Location },
		"A rescue image with location "+taken.Source.Location+" already exists.")
	// The default moves within a transaction, and there is never a second one.
	first, second := rescueImage(20), rescueImage(21)
	first.ID, second.ID, first.Default, second.Default = "first", "second", true, true
	b.do(func(tx job.Tx) error { return t.Insert(tx, first) })
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return t.Insert(tx, second) }), problem.Conflict, "Another rescue image is the default already.")
	b.do(func(tx job.Tx) error {
		first.Default = false
		if err := t.Save(tx, first); err != nil {
			return err
		}
		return t.Insert(tx, second)
	})
	first.Default = true
	b.refused(b.s.Do(b.ctx, func(tx job.Tx) error { return t.Save(tx, first) }), problem.Conflict, "Another rescue image is the default already.")
	// A removed one is found, but gives its location and its standing free.
	second.DeletedAt = beginning
	b.do(func(tx job.Tx) error {
		if err := t.Save(tx, second); err != nil {
			return err
		}
		return t.Save(tx, first)
	})
	heir := rescueImage(22)
	heir.ID, heir.Source.Location = "heir", second.Source.Location
	b.do(func(tx job.Tx) error { return t.Insert(tx, heir) })
	got := must.Get(t.Get(b.ctx, nil, "second"))(b)
	if !got.Deleted() || got.Source.Location != second.Source.Location || got.Num != second.Num {
		b.Errorf("a removed image: %+v", got)
	}
	checkListCounts(b, t, map[string]listCase[rescue.ImageFilter]{
		"there": {rescue.ImageFilter{}, 7}, "all": {rescue.ImageFilter{Deleted: true}, 8}, "default": {rescue.ImageFilter{Default: true}, 1},
		"name": {rescue.ImageFilter{Name: heir.Name}, 1}, "removed by name": {rescue.ImageFilter{Name: second.Name}, 0},
		"number": {rescue.ImageFilter{Num: heir.Num}, 1}, "removed by number": {rescue.ImageFilter{Num: second.Num, Deleted: true}, 1},
	})
	for num, there := range map[int64]bool{heir.Num: true, second.Num: false, 9999: false, 0: false} {
		err := b.s.Do(b.ctx, func(tx job.Tx) error { return b.s.UseRescueImage(tx, num) })
		if there {
			b.ok(err)
			continue
		}
		b.refused(err, problem.NotFound, fmt.Sprintf("Rescue image %d could not be found.", num))
	}
}

// testRescueAgainstRemove: of a rescue and a removal of its image one wins, in whatever order they look and write.
func testRescueAgainstRemove(b *testEnv) {
	stores := bothStores(b)
	for round := range 8 {
		image := rescueImage(round)
		image.ID = fmt.Sprint("image", round)
		b.do(func(tx job.Tx) error { return b.s.RescueImages().Insert(tx, image) })
		v := b.server(fmt.Sprint("server", round))
		var rescued, removed atomic.Bool
		countConcurrentWins(2, func(i int) bool {
			s := stores[(i+round)%2]
			if i == 0 {
				rescued.Store(s.Do(b.ctx, func(tx job.Tx) error {
					if err := s.UseRescueImage(tx, image.Num); err != nil {
						return err
					}
					now, err := s.Servers().Get(b.ctx, tx, v.ID)
					if err != nil {
						return err
					}
					inSession(image.Num, time.Time{})(now)
					return s.Servers().Save(tx, now)
				}) == nil)
				return true
			}
			removed.Store(s.Do(b.ctx, func(tx job.Tx) error {
				now, err := s.RescueImages().Get(b.ctx, tx, image.ID)
				if err != nil {
					return err
				}
				use, err := s.RescueImageUse(b.ctx, tx)
				if err != nil || use[image.Num] > 0 {
					return problem.Conflictf("in use: %v", err)
				}
				now.DeletedAt = beginning
				return s.RescueImages().Save(tx, now)
			}) == nil)
			return true
		})
		if rescued.Load() == removed.Load() {
			b.Fatalf("round %d: rescued %v, removed %v", round, rescued.Load(), removed.Load())
		}
	}
}

// sealedCompute keeps the canary wherever records of servers may hold a secret, and reads it back.
func sealedCompute(b *testEnv, canary string) {
	v := fillRecord[compute.Volume](1)
	v.CHAPPassword = secret.New(canary)
	keepTwice(b, b.s.Volumes(), v)
	l := fillRecord[compute.Cluster](1)
	l.Password = secret.New(canary)
	keepTwice(b, b.s.Clusters(), l)
	r := fillRecord[compute.Server](1)
	r.UserData = secret.New(canary)
	r.Rescue.Credential = rescue.Credential{Hash: secret.New(canary), Keys: []string{canary}}
	keepTwice(b, b.s.Servers(), r)
	o := sampleOrder("h", func(o *compute.Order) { o.Secret = secret.New(canary) })
	b.order(o)
	got := must.Get(b.s.Order(b.ctx, nil, o.ID))(b)
	if got.Secret.Reveal() != canary {
		b.Error("the order's secret is not read back")
	}
}

func keepTwice[R, F any](b *testEnv, t record.Table[R, F], r *R) {
	b.Helper()
	for range 2 {
		b.do(func(tx job.Tx) error { return insertOrSave(t, tx, r) })
	}
	sameAgain(b, t, r)
}
