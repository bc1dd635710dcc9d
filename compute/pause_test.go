package compute_test

import (
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/rescue"
)

// TestResumePauses: after an I/O error the pause between two tries doubles from a minute to an hour, and eight tries in vain are all. The tries begin anew after a
// guest has run for three hours.
func TestResumePauses(t *testing.T) {
	t.Parallel()
	full := compute.GuestPause{Reason: compute.PausedByIOError, Full: true}
	srv := &compute.Server{Power: compute.PowerPaused, Pause: full, AwaitsRoom: true}
	if next := srv.NextResume(); !next.IsZero() {
		t.Errorf("before the first try the next one is at %s, want at once", next)
	}
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	for try, minutes := range []int{1, 2, 4, 8, 16, 32, 60} {
		srv.CountResume(now)
		next := srv.NextResume()
		if want := time.Duration(minutes) * time.Minute; next.Sub(now) != want {
			t.Errorf("after try %d the next one is in %s, want in %s", try+1, next.Sub(now), want)
		}
		if n := len(srv.Resumes); n != try+1 || !srv.Resumes[n-1].Equal(now) {
			t.Errorf("after try %d at %s the tries are %v; want this one as the last", try+1, now, srv.Resumes)
		}
		now = next
	}
	srv.CountResume(now)
	srv.BeginStandstill(now.Add(3 * time.Hour))
	if next := srv.NextResume(); next.Year() != 9999 {
		t.Errorf("after eight tries in vain the next one is at %s, want never", next)
	}
	srv.BeginStandstill(now.Add(3*time.Hour + time.Second))
	if next := srv.NextResume(); !next.IsZero() {
		t.Errorf("after more than 3 h without an I/O error the next try is at %s, want at once", next)
	}
	if srv.CountResume(now.Add(4 * time.Hour)); len(srv.Resumes) != 1 {
		t.Errorf("after more than 3 h without an I/O error the tries are %v, want the last one alone", srv.Resumes)
	}
}

// TestStandStill: a server whose guest stands still is shown so, and should run as before. A rescue session that has not failed stays open.
func TestStandStill(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state   compute.VMState
		session *rescue.Session
		reason  compute.PauseReason
		want    compute.VMState
	}{
		"I/O error":                    {compute.Active, nil, compute.PausedByIOError, compute.Paused},
		"suspend to RAM":               {compute.Active, nil, compute.PausedBySleep, compute.Suspended},
		"managed save":                 {compute.Active, nil, compute.SavedOutside, compute.Suspended},
		"put back to a snapshot":       {compute.Active, nil, compute.PausedBySnapshot, compute.Paused},
		"post-copy that failed":        {compute.Active, nil, compute.PausedByPostcopy, compute.Paused},
		"for no reason told":           {compute.Active, nil, compute.PausedUnknown, compute.Paused},
		"in a rescue":                  {compute.Rescued, &rescue.Session{State: rescue.Ready}, compute.PausedByIOError, compute.Rescued},
		"in a rescue that failed":      {compute.Rescued, &rescue.Session{State: rescue.Failed}, compute.PausedByIOError, compute.Paused},
		"in a rescue without a record": {compute.Rescued, nil, compute.PausedByIOError, compute.Paused},
	} {
		srv := &compute.Server{State: c.state, Power: compute.PowerOn, Wanted: compute.PowerOn, Rescue: c.session}
		srv.StandStill(compute.PowerPaused, compute.GuestPause{Reason: c.reason, Disks: strings.Repeat("vda ", 1000), HasRoom: true})
		if srv.State != c.want || srv.Power != compute.PowerPaused || srv.Wanted != compute.PowerOn || !srv.StandsStill() {
			t.Errorf("%s: state %s, power %s, wanted %s, stands still: %v; want %s, paused, on, true", name, srv.State, srv.Power, srv.Wanted, srv.StandsStill(), c.want)
		}
		if srv.Pause.HasRoom || len(srv.Pause.Disks) > 1024 {
			t.Errorf("%s: the server keeps %d bytes about its disks, and room: %v; want 1024 bytes at most, and nothing about room", name, len(srv.Pause.Disks), srv.Pause.HasRoom)
		}
		srv.Wanted = compute.PowerOff
		if srv.StandsStill() {
			t.Errorf("%s: a server that should be off is said to stand still", name)
		}
	}
}

// TestLooksAtAGuestThatStandsStill: what a look at a guest that should run, and does not, asks for.
func TestLooksAtAGuestThatStandsStill(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	full := compute.GuestPause{Reason: compute.PausedByIOError, Disks: "vda: 3 MiB are left"}
	free := compute.GuestPause{Reason: compute.PausedByIOError, HasRoom: true}
	kept := compute.GuestPause{Reason: compute.PausedByIOError}
	saved := compute.GuestPause{Reason: compute.SavedOutside}
	for name, c := range map[string]struct {
		was    compute.GuestPause // as a former look found it, if any did
		tried  time.Duration      // since the last try to let it go on; 0: there was none
		power  compute.Power
		pause  compute.GuestPause
		first  bool
		wanted compute.GuestVerdict // without Reason
		says   string
	}{
		"paused for a moment":      {power: compute.PowerPaused, wanted: compute.GuestVerdict{Power: compute.PowerPaused}},
		"no room":                  {power: compute.PowerPaused, pause: full, wanted: compute.GuestVerdict{Power: compute.PowerPaused, Pause: full}, says: "I/O error of its disks: “vda: 3 MiB are left”"},
		"no room, known":           {was: full, power: compute.PowerPaused, pause: full},
		"no room, other disks":     {was: kept, power: compute.PowerPaused, pause: full, wanted: compute.GuestVerdict{Power: compute.PowerPaused, Pause: full}, says: "vda: 3 MiB are left"},
		"room":                     {was: full, power: compute.PowerPaused, pause: free, wanted: compute.GuestVerdict{Power: compute.PowerPaused, SetPower: compute.PowerOn, Resume: true, Pause: kept}, says: "there is room for its disks, so it goes on"},
		"room, tried 59 s ago":     {was: kept, tried: time.Minute - time.Second, power: compute.PowerPaused, pause: free},
		"room, tried a minute ago": {was: kept, tried: time.Minute, power: compute.PowerPaused, pause: free, wanted: compute.GuestVerdict{Power: compute.PowerPaused, SetPower: compute.PowerOn, Resume: true, Pause: kept}, says: "so it goes on"},
		"saved":                    {power: compute.PowerSaved, wanted: compute.GuestVerdict{Power: compute.PowerSaved, Pause: saved}, says: "its memory was saved on its host"},
		"saved, known":             {was: saved, power: compute.PowerSaved},
		"saved by its host's end":  {was: saved, power: compute.PowerSaved, first: true, wanted: compute.GuestVerdict{Power: compute.PowerSaved, SetPower: compute.PowerOn}, says: "its host has started again"},
		"goes on":                  {was: full, power: compute.PowerOn, wanted: compute.GuestVerdict{Power: compute.PowerOn, SettleState: true}, says: "it goes on"},
	} {
		srv := &compute.Server{State: compute.Active, Power: compute.PowerOn, Wanted: compute.PowerOn}
		if c.was.Reason != "" {
			srv.StandStill(map[bool]compute.Power{true: compute.PowerSaved, false: compute.PowerPaused}[c.was == saved], c.was)
		}
		srv.AwaitsRoom = true
		if c.tried > 0 {
			srv.CountResume(now.Add(-c.tried))
		}
		got := srv.CompareGuest(&compute.Guest{Power: c.power, Pause: c.pause}, compute.AgentHost, c.first, now)
		reason := got.Reason
		got.Reason = ""
		if got != c.wanted || !strings.Contains(reason, c.says) || c.says == "" && reason != "" {
			t.Errorf("%s: the verdict is %+v with the reason %q, want %+v with %q", name, got, reason, c.wanted, c.says)
		}
	}
}
