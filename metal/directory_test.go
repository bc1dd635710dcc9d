package metal_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

// void is a store that answers nothing until it is asked to.
type void struct {
	job.Leases
	silent bool
}

func (v *void) Conductors(ctx context.Context) ([]job.Conductor, error) {
	if v.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []job.Conductor{{ID: "c", Incarnation: "1", Hostname: "h", Groups: []string{""}, Description: []byte(`{}`)}}, nil
}

// TestDirectoryOfASilentStore: who is told what was read last does not wait for a reading, and who reads is told in time that it failed.
func TestDirectoryOfASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &void{}
		d := metal.NewDirectory(v, time.Now, time.Second, metal.ConductorSilence)
		must.Get(d.Conductors(t.Context()))(t)
		v.silent = true
		time.Sleep(time.Second)
		for range 3 {
			go func() { _, _ = d.Conductors(t.Context()) }()
		}
		synctest.Wait()
		began := time.Now()
		if err := d.Staffed(""); err != nil || time.Since(began) > 0 {
			t.Errorf("who lives, of what was read last: %v after %s", err, time.Since(began))
		}
		if _, _, err := d.Drivers(t.Context()); err == nil || time.Since(began) > 3*time.Second {
			t.Errorf("the drivers from a silent store: %v after %s", err, time.Since(began))
		}
		synctest.Wait()
		v.silent = false
		if _, err := d.Conductors(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
