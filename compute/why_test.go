package compute_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/rescue"
)

var (
	whyNow        = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	whyConductors = record.Conductors{Live: []string{"c1"}, Owners: map[string]string{"id/1": "c1"}, Ticks: 1000}
)

// drifted is what a backup tool and a person changed of a guest.
var drifted = []compute.Drift{{Part: "disk vda", Text: "lies in /pool/vda.ov", Disk: true, Remedy: "virsh blockcommit g vda --active --pivot --wait"},
	{Part: "graphics vnc", Text: "was added"}}

// renamed and detached are changes with which salvor does not define a guest.
var (
	renamed  = []compute.Drift{{Part: "name", Text: "was changed from salvor-1 to web", Remedy: "virsh domrename web salvor-1", Refuses: true, Off: true}}
	detached = []compute.Drift{{Part: "disk vdb", Text: "was removed", Remedy: "virsh attach-disk salvor-1 /pool/vdb vdb --config --serial vdb-1", Refuses: true}}
)

// TestWhyNamesNoCommandThatIsRefused: while salvor does not define a guest, each command that starts it comes after the one that ends the reason.
func TestWhyNamesNoCommandThatIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		so   func(*compute.Server)
		want []string
	}{
		{"off, in error", func(s *compute.Server) { s.State, s.Power, s.Drift = compute.Errored, compute.PowerOff, renamed },
			[]string{renamed[0].Remedy, "salvor server reboot --hard web1", "salvor server delete web1"}},
		{"on, in error", func(s *compute.Server) { s.State, s.Drift = compute.Errored, renamed },
			[]string{"salvor server stop web1", renamed[0].Remedy, "salvor server reboot --hard web1", "salvor server delete web1"}},
		{"a disk detached", func(s *compute.Server) { s.State, s.Power, s.Drift = compute.Errored, compute.PowerOff, detached },
			[]string{detached[0].Remedy, "salvor server reboot --hard web1", "salvor server delete web1"}},
		{"a rescue that failed", func(s *compute.Server) {
			s.State, s.Power, s.Drift = compute.Stopped, compute.PowerOff, renamed
			s.Rescue = &rescue.Session{State: rescue.Failed}
		}, []string{renamed[0].Remedy, "salvor server unrescue web1"}},
		{"active", func(s *compute.Server) { s.Drift = renamed }, []string{"salvor server stop web1", renamed[0].Remedy}},
	} {
		for _, operator := range []bool{true, false} {
			s := compute.ServerSituation{
				Server: &compute.Server{Name: "web1", State: compute.Active, Power: compute.PowerOn, Wanted: compute.PowerOn, LaunchedAt: whyNow.Add(-time.Hour)},
				Host:   &compute.Host{Name: "vm7"}, Life: compute.HostLiveness{Up: true, RenewedAt: whyNow.Add(-3 * time.Second)},
				Conductors: whyConductors, Operator: operator,
			}
			tt.so(s.Server)
			s.Server.Wanted = s.Server.Power
			want := tt.want
			if !operator { // an owner types no command on a host, and none that is refused until an administrator has
				want = slices.DeleteFunc(slices.Clone(want), func(c string) bool { return c != "salvor server delete web1" })
			}
			var got []string
			for _, c := range s.Why().Next {
				got = append(got, c.Run)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, operator %v: the commands are %q, want %q", tt.name, operator, got, want)
			}
		}
	}
}

func works(kind job.Kind, state job.State) job.Job {
	j := job.Job{ID: "j", Kind: kind, Class: job.Operation, State: state, Action: "define", CreatedAt: whyNow.Add(-time.Minute), ActionStartedAt: whyNow.Add(-20 * time.Second)}
	if state == job.Waiting {
		j.WaitFor, j.Deadline = "host vm7 to define the guest", 1090
	}
	return j
}

func checkWhy(t *testing.T, kind, name string, w record.Why, status record.Status, says []string, next string) {
	t.Helper()
	text := w.Text(kind, name, whyNow)
	if w.Status != status {
		t.Errorf("%s, want %s: %s", w.Status, status, text)
	}
	for _, expected := range says {
		if !strings.Contains(text, expected) {
			t.Errorf("%q is not in: %s", expected, text)
		}
	}
	if next != "" && next != "-" && !slices.ContainsFunc(w.Next, func(c record.Command) bool { return c.Run == next }) {
		t.Errorf("%q is not among %v", next, w.Next)
	}
	if next == "-" && len(w.Next) > 0 {
		t.Errorf("nothing should be done, but: %v", w.Next)
	}
	if strings.Contains(text, "..") || status == record.Stuck && len(w.Problems) == 0 {
		t.Errorf("%s", text)
	}
}

func TestWhyServer(t *testing.T) {
	fenced := func(s *compute.ServerSituation) {
		s.Host.Fenced, s.Life.Up, s.Fenced = true, false, &compute.Receipt{}
	}
	for name, tt := range map[string]struct {
		so   func(*compute.ServerSituation)
		mood record.Status
		says []string
		next string
	}{
		"runs": {func(s *compute.ServerSituation) {}, record.Idle, []string{`Server web1 is in state "active" since`, "host: vm7 renewed its lease (3 s ago)", "Nothing need be done, as far as was last heard."}, ""},
		"waits for its host": {func(s *compute.ServerSituation) {
			s.Server.Task, s.Jobs = compute.HardReboot, []job.Job{works("server power", job.Waiting)}
		}, record.Waiting, []string{`"active (rebooting_hard)"`, "waits for host vm7 to define the guest", "The wait ends in 1 min 30 s"}, "salvor events server:web1 --follow"},
		"task without work": {func(s *compute.ServerSituation) { s.Server.Task = compute.Rebooting }, record.Stuck, []string{"Nothing works on it, although its task rebooting says so."}, ""},
		"error": {func(s *compute.ServerSituation) {
			s.Server.State, s.Server.Fault = compute.Errored, &compute.Fault{Message: "no room."}
		}, record.Stuck, []string{"Its last operation failed: no room."}, "salvor server reboot --hard web1"},
		"never was": {func(s *compute.ServerSituation) {
			s.Server.State, s.Server.LaunchedAt, s.Host, s.Server.Fault = compute.Errored, time.Time{}, nil, &compute.Fault{Message: "No valid host was found."}
		}, record.Stuck, []string{"No valid host was found."}, "salvor server delete web1"},
		"rescued": {func(s *compute.ServerSituation) {
			s.Server.State, s.Server.Rescue = compute.Rescued, &rescue.Session{State: rescue.Ready, ExpiresAt: whyNow.Add(time.Hour)}
		}, record.Idle, []string{"ends by itself at 2026-11-22 13:00:00 UTC"}, "salvor server unrescue web1"},
		"rescue failed": {func(s *compute.ServerSituation) {
			s.Server.State, s.Server.Rescue = compute.Rescued, &rescue.Session{State: rescue.Failed}
		}, record.Stuck, nil, "salvor server unrescue web1"},
		"error in rescue": {func(s *compute.ServerSituation) {
			s.Server.State, s.Server.Rescue = compute.Errored, &rescue.Session{State: rescue.Failed}
		}, record.Stuck, nil, "salvor server unrescue web1"},
		"no conductor": {func(s *compute.ServerSituation) {
			s.Conductors, s.Jobs = record.Conductors{}, []job.Job{works("server power", job.Ready)}
		}, record.Stuck, []string{"No conductor is known; it goes on where it stood"}, "salvor conductor list"},
		"host silent": {func(s *compute.ServerSituation) {
			s.Life = compute.HostLiveness{RenewedAt: whyNow.Add(-time.Minute), Verdict: "its neighbours reach it"}
		}, record.Stuck, []string{"Its host vm7 is down: its neighbours reach it."}, "salvor fence vm7 --wait"},
		"cluster silent": {func(s *compute.ServerSituation) {
			s.Cluster = &compute.Cluster{Name: "gnt", Problem: "timeout"}
		}, record.Stuck, []string{"The cluster gnt that runs it does not answer: timeout."}, "salvor why host:vm7"},
		"host fenced": {fenced, record.Stuck, []string{"no plan moves it away"}, "salvor evacuate run vm7"},
		"needs consent": {func(s *compute.ServerSituation) {
			fenced(s)
			s.Item = &compute.PlanItem{NeedsConsent: true, Disposition: compute.Reimage}
		}, record.Stuck, []string{"Its move waits for consent"}, "salvor evacuate run vm7 --reimage web1"},
		"needs consent to new UEFI variables": {func(s *compute.ServerSituation) {
			fenced(s)
			s.Item = &compute.PlanItem{NeedsConsent: true, LosesVariables: true, Disposition: compute.KeepDisk}
		}, record.Stuck, []string{"Its move waits for consent: its UEFI variables lie on host vm7 alone"}, "salvor evacuate run vm7 --discard-variables"},
		"cannot move": {func(s *compute.ServerSituation) {
			fenced(s)
			s.Item = &compute.PlanItem{Disposition: compute.Cannot, Why: "no host has room"}
		}, record.Stuck, []string{"It stays on host vm7, which is fenced: no host has room."}, "salvor evacuate run vm7"},
		"moves": {func(s *compute.ServerSituation) {
			fenced(s)
			s.Move = &compute.Move{Kind: compute.Evacuation, State: compute.MovePreparing, Words: "paused: it begins anew"}
			s.Server.Task, s.Jobs = compute.Rebuilding, []job.Job{works(compute.JobMove, job.Waiting)}
		}, record.Waiting, []string{"It is being moved to another host (evacuation, pre-migrating).", "Paused: it begins anew."}, ""},
		"move by a doubted proof": {func(s *compute.ServerSituation) {
			fenced(s)
			s.Fenced.HeardAt, s.Move = whyNow, &compute.Move{Kind: compute.Evacuation, State: compute.MoveAccepted}
		}, record.Stuck, []string{"spoke again since it was fenced"}, "salvor fence vm7 --wait"},
		"an owner is told of no host": {func(s *compute.ServerSituation) { fenced(s); s.Operator = false }, record.Stuck,
			[]string{"Its host does not answer; an administrator has to"}, "-"},
		"will be mended": {func(s *compute.ServerSituation) { s.Server.Wanted, s.Server.Power = compute.PowerOn, compute.PowerOff }, record.Idle,
			[]string{"It should be on and was last seen off"}, ""},
		"crashed and runs again": {func(s *compute.ServerSituation) {
			s.Server.Restarts = []time.Time{whyNow.Add(-time.Hour - 3*time.Second)}
		}, record.Idle, []string{"It crashed and was started again at ", "(try 1 of 3 in 10m0s)"}, ""},
		"started by its owner after a crash": {func(s *compute.ServerSituation) {
			s.Server.Restarts = []time.Time{whyNow.Add(-48 * time.Hour)}
		}, record.Idle, []string{`"active"`}, ""},
		"deleted": {func(s *compute.ServerSituation) { s.Server.State = compute.Deleted }, record.Idle, []string{`"deleted"`}, "-"},
		"disk in an overlay": {func(s *compute.ServerSituation) { s.Server.Drift = drifted }, record.Idle,
			[]string{"Disk vda lies in /pool/vda.ov: it goes on there, and it is not moved or rebuilt until that ends", "Changed by someone other than salvor: graphics vnc was added"},
			"virsh blockcommit g vda --active --pivot --wait"},
		"an owner is told of no file": {func(s *compute.ServerSituation) { s.Server.Drift, s.Operator = drifted, false }, record.Idle,
			[]string{"may not be moved or rebuilt now"}, "-"},
		"renamed by hand": {func(s *compute.ServerSituation) {
			s.Server.State, s.Server.Power, s.Server.Fault, s.Server.Drift = compute.Errored, compute.PowerOff, &compute.Fault{Message: "its guest was renamed"}, renamed
		}, record.Stuck, []string{"Name was changed from salvor-1 to web: its guest is not started until that ends"}, renamed[0].Remedy},
		"renamed by hand, an owner": {func(s *compute.ServerSituation) {
			s.Server.State, s.Server.Power, s.Server.Fault, s.Server.Drift, s.Operator = compute.Errored, compute.PowerOff, &compute.Fault{Message: "its guest was renamed"}, renamed, false
		}, record.Stuck, []string{"administrator changed it beside salvor, so it may not be started now"}, "salvor server delete web1"},
		"renamed by hand, and runs": {func(s *compute.ServerSituation) { s.Server.Drift = renamed }, record.Idle,
			[]string{"its guest is not started until that ends"}, "salvor server stop web1"},
		"a disk of it detached by hand": {func(s *compute.ServerSituation) { s.Server.Drift = detached }, record.Idle,
			[]string{"Disk vdb was removed: its guest is not started until that ends", "on host vm7: end what was changed of disk vdb"}, detached[0].Remedy},
		"stands still": {func(s *compute.ServerSituation) {
			s.Server.StandStill(compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByIOError, Disks: "vda: 3 MiB are left in disk store vm7-pool"})
			s.Server.AwaitsRoom = true
			s.Server.CountResume(whyNow)
		}, record.Waiting, []string{"It waits for room for its disks", "stands still: I/O error of its disks: “vda: 3 MiB are left in disk store vm7-pool”", "at 2026-11-22 12:01:00 UTC at the earliest"},
			"salvor server unpause web1"},
		"stands still, and waits for no room": {func(s *compute.ServerSituation) {
			s.Server.StandStill(compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByIOError})
		}, record.Stuck, []string{"It should run and stands still: I/O error of its disks; salvor does not let it go on by itself"}, "salvor server unpause web1"},
		"suspended by hand": {func(s *compute.ServerSituation) {
			s.Server.StandStill(compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByUser})
		}, record.Stuck, []string{"It should run and stands still: suspended on its host."}, "salvor server unpause web1"},
		"managed save": {func(s *compute.ServerSituation) {
			s.Server.StandStill(compute.PowerSaved, compute.GuestPause{Reason: compute.SavedOutside})
		}, record.Stuck, []string{"It should run and stands still: its memory was saved on its host."}, "salvor server resume web1"},
		"saved to a file": {func(s *compute.ServerSituation) {
			s.Server.StandStill(compute.PowerOff, compute.GuestPause{Reason: compute.SavedToFile})
		}, record.Stuck, []string{"It should run and stands still: its memory was saved to a file", "on host vm7: let it go on with the memory"}, "virsh restore FILE"},
		"saved to a file, an owner": {func(s *compute.ServerSituation) {
			s.Server.StandStill(compute.PowerOff, compute.GuestPause{Reason: compute.SavedToFile})
			s.Operator = false
		}, record.Stuck, []string{"It should run and stands still: its memory was saved to a file"}, "salvor server start web1"},
		"a post-copy migration failed": {func(s *compute.ServerSituation) {
			s.Server.StandStill(compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByPostcopy})
			s.Server.GuestName = "salvor-1"
		}, record.Stuck, []string{"It should run and stands still: a post-copy migration failed"}, "virsh migrate salvor-1 DESTINATION --live --postcopy --postcopy-resume"},
		"a post-copy migration failed, an owner": {func(s *compute.ServerSituation) {
			s.Server.StandStill(compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByPostcopy})
			s.Operator = false
		}, record.Stuck, []string{"It should run and stands still: a post-copy migration failed"}, "salvor server reboot --hard web1"},
		"is let go on": {func(s *compute.ServerSituation) {
			s.Server.StandStill(compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByUser})
			s.Jobs = []job.Job{works("server power", job.Waiting)}
		}, record.Waiting, []string{"It should run and stands still: suspended on its host."}, "salvor events server:web1 --follow"},
		"an owner is told of no disk store": {func(s *compute.ServerSituation) {
			s.Server.StandStill(compute.PowerPaused, compute.GuestPause{Reason: compute.PausedByIOError, Disks: "vda: 3 MiB are left in disk store vm7-pool"})
			s.Server.AwaitsRoom = true
			s.Operator = false
		}, record.Waiting, []string{"stands still: I/O error of its disks; salvor lets it go on"}, "salvor server unpause web1"},
		"locked": {func(s *compute.ServerSituation) { s.Server.Locked, s.Server.LockedReason = true, "audit" }, record.Idle, []string{"It is locked: audit."}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := compute.ServerSituation{
				Server: &compute.Server{Name: "web1", State: compute.Active, Power: compute.PowerOn, Wanted: compute.PowerOn, LaunchedAt: whyNow.Add(-time.Hour)},
				Host:   &compute.Host{Name: "vm7"}, Life: compute.HostLiveness{Up: true, RenewedAt: whyNow.Add(-3 * time.Second)},
				Conductors: whyConductors, Operator: true,
			}
			tt.so(&s)
			w := s.Why()
			checkWhy(t, "server", "web1", w, tt.mood, tt.says, tt.next)
			if text := w.Text("server", "web1", whyNow); !s.Operator && strings.Contains(text, "vm7") {
				t.Errorf("an owner is told: %s", text)
			}
		})
	}
}

func TestWhyHost(t *testing.T) {
	receipt := &compute.Receipt{Record: record.Record{CreatedAt: whyNow.Add(-time.Minute)}, Proofs: []compute.Proof{{Evidence: compute.PowerCut}}}
	for name, tt := range map[string]struct {
		so   func(*compute.HostSituation)
		mood record.Status
		says []string
		next string
	}{
		"up":       {func(s *compute.HostSituation) {}, record.Idle, []string{`Host vm7 is in state "up".`, "Nothing need be done, as far as was last heard."}, ""},
		"disabled": {func(s *compute.HostSituation) { s.Host.Disabled, s.Host.DisabledReason = true, "drained by ann" }, record.Idle, []string{"It takes no new servers: drained by ann."}, "salvor host restore vm7"},
		"revoked":  {func(s *compute.HostSituation) { s.Host.Revoked = true }, record.Stuck, []string{"was revoked"}, "salvor host token create --host 4711"},
		"forced":   {func(s *compute.HostSituation) { s.Host.ForcedDown, s.Host.ForcedDownBy = true, "ann" }, record.Stuck, []string{"Someone said that it is down: ann."}, "salvor host set vm7 --forced-down=false"},
		"never":    {func(s *compute.HostSituation) { s.Life = compute.HostLiveness{} }, record.Stuck, []string{"never renewed its lease"}, "systemctl status salvor-host"},
		"silent": {func(s *compute.HostSituation) {
			s.Life.Up, s.Life.Verdict = false, "all 3 hosts fell silent: it is more likely that the control plane is cut off"
		}, record.Stuck, []string{"the control plane is cut off"}, "salvor fence vm7 --wait"},
		"suspected": {func(s *compute.HostSituation) {
			s.Life.Up, s.Life.Suspected, s.Life.Verdict = false, true, "its BMC says off"
			s.Failure = "the BMC did not answer"
		}, record.Stuck, []string{"It is called dead: its BMC says off.", "Its newest fence came to nothing: the BMC did not answer."}, "salvor fence vm7 --wait"},
		"being fenced": {func(s *compute.HostSituation) {
			s.Life.Up, s.Life.Suspected, s.Life.Verdict = false, true, "its BMC says off"
			s.Jobs = []job.Job{works(compute.JobFence, job.Waiting)}
		}, record.Waiting, []string{"Its host fence, asked for"}, "salvor events host:vm7 --follow"},
		"fenced, empty": {func(s *compute.HostSituation) { s.Receipt = receipt }, record.Waiting,
			[]string{"It is proven off by power.", "It waits for the host to come back since 2026-11-22 11:59:00 UTC (1 min)."}, "salvor host restore vm7"},
		"fenced, with servers": {func(s *compute.HostSituation) { s.Receipt, s.Life.Servers = receipt, 2 }, record.Stuck,
			[]string{"2 servers are still on it, and no plan is run."}, "salvor evacuate run vm7 --wait"},
		"fenced, moving": {func(s *compute.HostSituation) {
			s.Receipt, s.Life.Servers, s.Plan, s.Going = receipt, 1, &compute.Plan{State: compute.PlanRunning, Record: record.Record{ID: "p1"}}, 1
		}, record.Waiting, []string{"It waits for the end of plan p1; the end of 1 move"}, "salvor evacuate show vm7"},
		"fenced, to clean up": {func(s *compute.HostSituation) { s.Receipt, s.Uncleaned = receipt, 3 }, record.Waiting,
			[]string{"the host, to clean up after 3 servers that were moved"}, ""},
		"waits for consent": {func(s *compute.HostSituation) {
			s.Receipt, s.Life.Servers = receipt, 1
			s.Plan = &compute.Plan{State: compute.PlanPartly, Items: []compute.PlanItem{{Name: "web1", NeedsConsent: true}, {Name: "web2", NeedsConsent: true, Consented: true}}}
		}, record.Stuck, []string{"1 server waits for consent to be made anew from an image, which loses data: web1."}, "salvor evacuate run vm7 --reimage web1"},
		"waits for consent to new UEFI variables": {func(s *compute.HostSituation) {
			s.Receipt, s.Life.Servers = receipt, 1
			s.Plan = &compute.Plan{State: compute.PlanPartly, Items: []compute.PlanItem{{Name: "web1", NeedsConsent: true, LosesVariables: true, Disposition: compute.Reattach}}}
		}, record.Stuck, []string{"1 server waits for consent to begin with new UEFI variables, because their own lie on this host alone: web1."}, "salvor evacuate run vm7 --discard-variables"},
		"spoke again": {func(s *compute.HostSituation) {
			doubted := *receipt
			doubted.HeardAt = whyNow
			s.Receipt = &doubted
		}, record.Stuck, []string{"It spoke again since", "the boot that was fenced was heard"}, "salvor fence vm7 --wait"},
		"cluster": {func(s *compute.HostSituation) { s.Cluster = &compute.Cluster{Name: "gnt", Problem: "timeout"} }, record.Stuck,
			[]string{"The cluster gnt cannot be watched: timeout."}, "salvor cluster list"},
		"certificate ended": {func(s *compute.HostSituation) {
			s.Life.Up, s.Host.CertificateEnds = false, whyNow
		}, record.Stuck, []string{`"certificate ended"`, "Its certificate ended at 2026-11-22 12:00:00 UTC: it is not heard until it joins again."}, "salvor host token create --host 4711"},
		"certificate ends soon": {func(s *compute.HostSituation) { s.Host.CertificateEnds = whyNow.Add(24 * time.Hour) }, record.Idle,
			[]string{`"up"`, "Its certificate ends at 2026-11-23 12:00:00 UTC and was not renewed"}, ""},
		"certificate": {func(s *compute.HostSituation) { s.Host.CertificateEnds = whyNow.Add(20 * 24 * time.Hour) }, record.Idle, []string{`"up"`}, ""},
		"strays":      {func(s *compute.HostSituation) { s.Host.Strays = []string{"i-1"} }, record.Idle, []string{"It has 1 guest of which no record"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := compute.HostSituation{
				Host: &compute.Host{Record: record.Record{ID: "4711"}, Name: "vm7"}, Now: whyNow, Life: compute.HostLiveness{Up: true, RenewedAt: whyNow.Add(-3 * time.Second)}, Conductors: whyConductors,
			}
			tt.so(&s)
			checkWhy(t, "host", "vm7", s.Why(), tt.mood, tt.says, tt.next)
		})
	}
}
