package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/test/must"
)

// TestOnlyOffReadTwiceIsACut: a BMC that takes the order and then reads anything but "power off", at the first or the second reading,
// has proven nothing.
func TestOnlyOffReadTwiceIsACut(t *testing.T) {
	t.Parallel()
	for name, readings := range map[string][]metal.Power{
		"on":                {metal.PowerOn, metal.PowerOn},
		"unknown":           {"unknown", "unknown"},
		"nothing":           {"", ""},
		"error":             {metal.PowerError, metal.PowerError},
		"off, then on":      {metal.PowerOff, metal.PowerOn},
		"off, then nothing": {metal.PowerOff, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newLot(t, site{node: true})
			y.pass(compute.Suspect + time.Second)
			asked := -1 // the first reading is that before the order
			y.reading = func() metal.Power {
				asked++
				if asked == 0 {
					return metal.PowerOn
				}
				return readings[min(asked-1, len(readings)-1)]
			}
			j, _ := y.fenced(t, compute.FenceArgs{})
			if !strings.Contains(j.Problem, "the BMC took the order to switch off, and says") {
				t.Errorf("said %q", j.Problem)
			}
			if !j.Failed() || len(y.receipts(t)) > 0 || y.held(t) != "" {
				t.Errorf("proven off: %s", y.picture(t))
			}
		})
	}
}

// TestACutIsNoProofBeforeTheHostIsSilent: a host renewed its lease a moment before the BMC read "power off". It is proven off only
// after compute.Suspect without a report, because the BMC may be that of another machine.
func TestACutIsNoProofBeforeTheHostIsSilent(t *testing.T) {
	t.Parallel()
	heard := time.Now()
	y := newLot(t, site{node: true})
	defer y.testHost().conduct(t)()
	id := y.ask(t, compute.FenceArgs{})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		j := must.Get(y.store.Job(context.Background(), nil, id))(t)
		if j.State != job.Ended {
			if j.Memo[fenceOff] != "" {
				y.pass(100 * time.Millisecond)
			}
			continue
		}
		all := y.receipts(t)
		if j.Failed() || len(all) != 1 || len(all[0].Proofs) != 1 || all[0].Proofs[0].Evidence != compute.PowerCut {
			t.Fatalf("%s; %s", j.Problem, y.picture(t))
		}
		if silent := all[0].Proofs[0].At.Sub(heard); silent < compute.Suspect {
			t.Errorf("proven off %s after its lease was renewed, want %s of silence", silent, compute.Suspect)
		}
		return
	}
	t.Fatal("the fence has not ended")
}
