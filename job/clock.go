package job

import (
	"context"
	"time"
)

const (
	// stepped is how much the clock of due times may fall behind our own before it was set back.
	stepped = time.Second
	// strangeEvery is how often due times that no right clock wrote are looked for.
	strangeEvery = 10 * time.Second
)

// watchClock makes free jobs due where the clock by which they are due was set back, while we looked or before:
// what was to be done in a second would be done in an hour. A clock that was set forward only makes tries come early.
func (r *Runner) watchClock(ctx context.Context) {
	wall, mono, looked := r.now().Round(0), time.Now(), time.Time{}
	every(ctx, beatEvery, func() {
		now := r.now().Round(0)
		behind := wall.Add(time.Since(mono)).Sub(now)
		after := now
		switch {
		case behind > stepped:
		case time.Since(looked) >= strangeEvery:
			after = now.Add(MaxDelay)
		default:
			wall, mono = now, time.Now()
			return
		}
		n, err := r.store.RescheduleEarlier(ctx, now, after, r.me.Groups)
		if err != nil {
			return // the next turn sees the same step
		}
		if n > 0 {
			r.log.Warn("the clock was set back; what was due later is due now", "by", max(behind, 0).Round(time.Millisecond), "jobs", n)
		}
		wall, mono, looked = now, time.Now(), time.Now()
	})
}
