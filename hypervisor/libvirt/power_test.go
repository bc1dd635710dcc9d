package libvirt

import (
	"context"
	"testing"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/compute"
	"salvor/problem"
)

// script gives one look after the other, and repeats the last one.
type script struct {
	looks []powerLook
	count int
}

func (s *script) look() (powerLook, error) {
	at := min(s.count, len(s.looks)-1)
	s.count++
	return s.looks[at], nil
}

var (
	runs    = powerLook{power: compute.PowerOn}
	paused  = powerLook{power: compute.PowerPaused, pause: compute.PausedByUser}
	saving  = powerLook{power: compute.PowerPaused, saving: true}
	isSaved = powerLook{power: compute.PowerSaved}
	split   = powerLook{power: compute.PowerPaused, isSplit: true, pause: compute.PausedByPostcopy}
	isOff   = powerLook{power: compute.PowerOff}
	starts  = powerLook{power: compute.PowerOn, starting: true}
)

// TestAwaitSettled: a guest whose daemon was killed while it started it is shown as being started, and is off a moment later.
func TestAwaitSettled(t *testing.T) {
	s := &script{looks: []powerLook{starts, starts, {power: compute.PowerCrashed}}}
	if look, err := awaitSettled(t.Context(), "g", time.Minute, compute.PowerOn, false, s.look); err != nil || look.power != compute.PowerCrashed || s.count != 3 {
		t.Errorf("%s, %v after %d looks; want crashed after 3", look.power, err, s.count)
	}
	endless := &script{looks: []powerLook{starts}}
	if look, err := awaitSettled(t.Context(), "g", time.Minute, compute.PowerOff, true, endless.look); err != nil || look.power != compute.PowerOn || endless.count != 1 {
		t.Errorf("to be off: %s, %v after %d looks; want one", look.power, err, endless.count)
	}
	if _, err := awaitSettled(t.Context(), "g", 0, compute.PowerOn, false, endless.look); !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v, want unavailable", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := awaitSettled(ended, "g", time.Hour, compute.PowerOn, false, endless.look); !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v, want unavailable", err)
	}
}

// TestReachKeepsSavedMemory: memory that somebody saves while a guest is switched off is kept, unless the caller gives it up. A guest is not destroyed
// while its memory is being written.
func TestReachKeepsSavedMemory(t *testing.T) {
	kept, gone := problem.Conflict, problem.Unavailable
	for name, c := range map[string]struct {
		looks  []powerLook
		keep   bool
		within time.Duration
		fails  *problem.Kind
		moves  int
	}{
		"saved before":                   {[]powerLook{isSaved}, true, time.Minute, &kept, 0},
		"saved after the first look":     {[]powerLook{runs, isSaved}, true, time.Minute, &kept, 1},
		"being saved":                    {[]powerLook{saving, saving, isSaved}, true, time.Minute, &kept, 0},
		"runs, and a save begins":        {[]powerLook{{power: compute.PowerOn, saving: true}, isSaved}, true, time.Minute, &kept, 0},
		"was paused, and a save begins":  {[]powerLook{{power: compute.PowerPaused, pause: compute.PausedByUser, saving: true}, isSaved}, true, time.Minute, &kept, 0},
		"being saved without end":        {[]powerLook{saving}, true, 0, &gone, 0},
		"a snapshot's moment":            {[]powerLook{saving, runs, isOff}, true, time.Minute, nil, 1},
		"paused by a user":               {[]powerLook{paused, isOff}, true, time.Minute, nil, 1},
		"saved, and to be given up":      {[]powerLook{isSaved, isOff}, false, time.Minute, nil, 1},
		"being saved, and to be cut now": {[]powerLook{saving, isOff}, false, time.Minute, nil, 1},
	} {
		s, moves := &script{looks: c.looks}, 0
		err := reachPower(t.Context(), "g", c.within, compute.PowerOff, c.keep, s.look, func() error { return nil }, func(powerStep) error { moves++; return nil })
		switch {
		case c.fails == nil && err != nil:
			t.Errorf("%s: %v, want no error", name, err)
		case c.fails != nil && !problem.Is(err, *c.fails):
			t.Errorf("%s: %v, want an error of kind %s", name, err, *c.fails)
		}
		if moves != c.moves {
			t.Errorf("%s: %d moves, want %d", name, moves, c.moves)
		}
	}
}

// TestSplitMemoryDoesNotGoOn: a guest of which a post-copy migration has sent a part to another host is neither continued nor saved. It may be ended.
func TestSplitMemoryDoesNotGoOn(t *testing.T) {
	for want, fails := range map[compute.Power]bool{compute.PowerOn: true, compute.PowerSaved: true, compute.PowerOff: false} {
		s, moves := &script{looks: []powerLook{split, isOff}}, 0
		err := reachPower(t.Context(), "g", time.Minute, want, false, s.look, func() error { return nil }, func(powerStep) error { moves++; return nil })
		if problem.Is(err, problem.Conflict) != fails || (moves == 0) != fails {
			t.Errorf("to be %s: %v after %d moves; want a refusal without a move: %v", want, err, moves, fails)
		}
	}
}

// TestSaveJobs: the job of libvirt that saves a guest's memory is told from its other jobs, and from no job.
func TestSaveJobs(t *testing.T) {
	operation := func(o rpc.DomainJobOperation) rpc.TypedParam {
		return rpc.TypedParam{Field: rpc.DomainJobOperationStr, Value: *rpc.NewTypedParamValueInt(int32(o))}
	}
	elapsed := rpc.TypedParam{Field: "time_elapsed", Value: *rpc.NewTypedParamValueUllong(uint64(rpc.DomainJobOperationStrSave))}
	for name, c := range map[string]struct {
		params []rpc.TypedParam
		want   bool
	}{
		"no job":      {nil, false},
		"a save":      {[]rpc.TypedParam{elapsed, operation(rpc.DomainJobOperationStrSave)}, true},
		"a migration": {[]rpc.TypedParam{operation(rpc.DomainJobOperationStrMigrationOut), elapsed}, false},
		"a dump":      {[]rpc.TypedParam{operation(rpc.DomainJobOperationStrDump)}, false},
		"no word":     {[]rpc.TypedParam{{Field: rpc.DomainJobOperationStr, Value: *rpc.NewTypedParamValueString("save")}}, false},
	} {
		if got := isSaveJob(c.params); got != c.want {
			t.Errorf("%s: a save %v, want %v", name, got, c.want)
		}
	}
}

// TestShutdownWaitsForASave: a guest whose memory is being written is neither asked to end nor taken for one that cannot hear.
func TestShutdownWaitsForASave(t *testing.T) {
	for name, c := range map[string]struct {
		looks   []powerLook
		within  time.Duration
		soft    bool
		looked  int
		presses int
	}{
		"saved meanwhile":             {[]powerLook{runs, saving, saving, isSaved}, time.Minute, false, 4, 1},
		"a snapshot, then off":        {[]powerLook{saving, runs, isOff}, time.Minute, true, 3, 1},
		"paused by a user":            {[]powerLook{runs, paused}, time.Minute, false, 2, 1},
		"off in time":                 {[]powerLook{runs, isOff}, time.Minute, true, 2, 1},
		"saved longer than the bound": {[]powerLook{saving}, 0, false, 1, 0},
	} {
		s, presses := &script{looks: c.looks}, 0
		soft, err := awaitShutdown(t.Context(), "g", c.within, s.look, func() error { presses++; return nil })
		if err != nil || soft != c.soft || s.count != c.looked || presses != c.presses {
			t.Errorf("%s: soft %v, %d looks, %d presses, error %v; want %v, %d, %d", name, soft, s.count, presses, err, c.soft, c.looked, c.presses)
		}
	}
}

// TestMemoryIsWritten: the pauses in which somebody writes a guest's memory are told from those that last.
func TestMemoryIsWritten(t *testing.T) {
	for reason := rpc.DomainPausedUnknown; reason <= rpc.DomainPausedAPIError; reason++ {
		want := reason == rpc.DomainPausedSave || reason == rpc.DomainPausedDump || reason == rpc.DomainPausedSnapshot
		if got := isMemoryWritten(reason); got != want {
			t.Errorf("paused for reason %d: memory is written %v, want %v", reason, got, want)
		}
	}
}
