package metal_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/job"
	"salvor/metal"
	"salvor/record"
	"salvor/repair"
	"salvor/rescue"
)

var (
	noon           = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	testConductors = record.Conductors{Live: []string{"c1"}, Owners: map[string]string{"id/1": "c1"}, Ticks: 1000}
)

// waits is a rescue that waits for its ramdisk, parked five minutes ago.
func waits() job.Job {
	return job.Job{ID: "j", Kind: "rescue", Class: job.Operation, State: job.Waiting, Action: "await ramdisk", WaitFor: "rescue ramdisk callback for node",
		Deadline: 2500, RequestID: "req-1", User: "ann", CreatedAt: noon.Add(-6 * time.Minute), ActionStartedAt: noon.Add(-5 * time.Minute)}
}

func with(j job.Job, change func(*job.Job)) job.Job {
	change(&j)
	return j
}

func inState(state metal.State) metal.StatusInput {
	return metal.StatusInput{
		Node:       &metal.Node{ID: "8d1f", Name: "kea", Driver: "redfish", ProvisionState: state, ProvisionedAt: noon.Add(-5 * time.Minute), BootNumber: 7, LastError: lastError(state)},
		Contact:    metal.Contact{PowerRead: metal.PowerOn, PowerReadAt: noon.Add(-30 * time.Second)},
		Conductors: testConductors, Offered: true, Now: noon,
	}
}

// newestRepair adds repairs r1, r2 and so on, newest first.
func newestRepair(repairs ...metal.Repair) func(*metal.StatusInput) {
	return func(s *metal.StatusInput) {
		for i, r := range repairs {
			r.ID = fmt.Sprint("r", i+1)
			s.Repairs = append(s.Repairs, r)
		}
	}
}

func lastError(state metal.State) string {
	if strings.HasSuffix(string(state), "failed") {
		return "it broke."
	}
	return ""
}

// TestWhyTellsTheBacklog: an operation that waits for a free conductor says how many wait before it, the limit and what helps.
func TestWhyTellsTheBacklog(t *testing.T) {
	s := inState(metal.Active)
	s.Jobs = []job.Job{{ID: "j", Kind: "rescue", Class: job.Operation, State: job.Ready, CreatedAt: noon.Add(-time.Minute)}}
	for _, tt := range []struct {
		place *job.Place
		mood  record.Status
		says  []string
	}{
		{nil, record.Working, []string{"has not begun and waits for a conductor to take it up."}},
		{&job.Place{Waiting: 1, Limit: 1000, Running: 4}, record.Working, []string{"a conductor to take it up."}},
		{&job.Place{Waiting: 1, Limit: 1000, Running: 300, Due: time.Minute}, record.Waiting, []string{"0 accepted jobs wait before it, and 300 run"}},
		{&job.Place{Before: 41, Waiting: 99, Running: 300, Limit: 1000}, record.Waiting, []string{
			"41 accepted jobs wait before it, and 300 run; of 99 that wait, [conductor]backlog_limit allows 1000", "workers_pool_size", "salvor conductor list"}},
		{&job.Place{Before: 41, Waiting: 99, Running: 300}, record.Waiting, []string{"41 accepted jobs wait before it, and 300 run."}},
	} {
		s.Conductors.Queue = tt.place
		w := s.Why()
		text := w.Text("node", "kea", noon)
		for _, says := range tt.says {
			if w.Status != tt.mood || !strings.Contains(text, says) {
				t.Errorf("%+v: %s %q, want %s %q", tt.place, w.Status, text, tt.mood, says)
			}
		}
	}
}

// TestWhyOfEveryState: whatever state a node is in, with and without somebody who works on it, the answer says what
// it waits for, and names a command wherever people are asked for.
func TestWhyOfEveryState(t *testing.T) {
	for _, info := range metal.States {
		for _, jobs := range [][]job.Job{
			nil,
			{waits()},
			{with(waits(), func(j *job.Job) { j.State, j.Owner, j.WaitFor = job.Running, "id/1", "" })},
			{with(waits(), func(j *job.Job) { j.State, j.Problem, j.WaitFor = job.Undoing, "the ramdisk did not come", "" })},
		} {
			s := inState(info.State)
			s.Jobs = jobs
			w := s.Why()
			text := w.Text("node", "kea", noon)
			failed := strings.HasSuffix(string(info.State), "failed") || info.State == metal.Error
			want := record.Idle
			switch {
			case len(jobs) == 0 && (failed || !info.Stable):
				want = record.Stuck
			case len(jobs) == 0:
			case strings.HasSuffix(string(info.State), "hold"):
				want = record.Stuck
			case jobs[0].State == job.Waiting:
				want = record.Waiting
			default:
				want = record.Working
			}
			if w.Status != want {
				t.Errorf("%s with %d jobs: %s, want %s: %s", info.State, len(jobs), w.Status, want, text)
			}
			if !strings.HasPrefix(text, `Node kea is in state "`+string(info.State)+`" since `) || strings.Contains(text, "NODE") || strings.Contains(text, "..") {
				t.Errorf("%s: %s", info.State, text)
			}
			if (failed || len(jobs) > 0) && len(w.Next) == 0 {
				t.Errorf("%s: nothing to do is named: %s", info.State, text)
			}
		}
	}
}

func TestWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		state metal.State
		job   func(*job.Job)
		so    func(*metal.StatusInput)
		mood  record.Status
		says  []string
		next  string
	}{
		"waits for the ramdisk": {metal.RescueWait, nil, nil, record.Waiting, []string{
			"Its rescue, asked for by ann 6 min ago (req-1), is at action \"await ramdisk\" since 2026-11-22 11:55:00 UTC (5 min) and waits for rescue ramdisk callback for node.",
			"Last heard: bmc: power on (30 s ago).", "The wait ends in 25 min, counted only while a conductor lives; then the rescue fails and is taken back."}, "salvor events node:kea --follow"},
		"never asked for its boot": {metal.RescueWait, nil, func(s *metal.StatusInput) { s.Node.Plan = &metal.BootPlan{Method: metal.BootIPXE} }, record.Waiting,
			[]string{"has not asked for its boot since"}, "salvor doctor"},
		"asked for its boot": {metal.RescueWait, nil, func(s *metal.StatusInput) {
			s.Node.Plan = &metal.BootPlan{Method: metal.BootIPXE}
			s.Contact.DHCPAt, s.Contact.DHCPWord = noon.Add(-time.Minute), "boot loader named"
		}, record.Waiting, []string{"has asked for its boot, and has fetched nothing yet", "dhcp: boot loader named (1 min ago)"}, ""},
		"fetched its boot": {metal.RescueWait, nil, func(s *metal.StatusInput) {
			s.Contact.DHCPAt, s.Contact.BootAt, s.Contact.BootWord = noon.Add(-time.Minute), noon.Add(-20*time.Second), "fetching kernel"
		}, record.Waiting, []string{"fetches its boot files", "boot: fetching kernel (20 s ago)"}, ""},
		"looked up": {metal.RescueWait, nil, func(s *metal.StatusInput) { s.Contact.LookupAt = noon.Add(-9 * time.Second) }, record.Waiting,
			[]string{"has booted and asked who it is"}, ""},
		"heard": {metal.CleanWait, nil, func(s *metal.StatusInput) {
			s.Contact.AgentBoot, s.Contact.HeartbeatAt, s.Contact.AgentURL = 7, noon.Add(-9*time.Second), "https://10.0.0.9:9999"
		}, record.Waiting, []string{"The ramdisk of this boot runs", "agent: heartbeat from https://10.0.0.9:9999 (9 s ago)"}, "salvor node abort kea"},
		"its heartbeats are refused": {metal.RescueWait, nil, func(s *metal.StatusInput) {
			s.Contact.LookupAt = noon.Add(-9 * time.Second)
			s.Contact.Refusals = metal.Refusals{RefusedBoot: 7, Refused: 15, RefusedAt: noon, RefusedReason: "address 10.0.0.9 may not be connected to", Unproven: 1}
		}, record.Waiting, []string{"15 heartbeats were refused, the last one because: address 10.0.0.9 may not be connected to", "1 call was refused because the token"}, ""},
		"heartbeats of an earlier boot were refused": {metal.RescueWait, nil, func(s *metal.StatusInput) {
			s.Contact.Refusals = metal.Refusals{RefusedBoot: 6, Refused: 15, RefusedReason: "no"}
		}, record.Waiting, nil, ""},
		"found off": {metal.DeployWait, nil, func(s *metal.StatusInput) { s.Contact.PowerRead = metal.PowerOff }, record.Waiting, []string{"found off while"}, ""},
		"no live conductor": {metal.RescueWait, nil, func(s *metal.StatusInput) {
			s.Conductors = record.Conductors{Group: "rack2", Dead: []string{"c9"}, Ticks: 1000}
		}, record.Stuck, []string{"No conductor lives (c9: silent) in conductor group rack2; it goes on where it stood", "has 25 min left, but its clock stands"}, "salvor conductor list"},
		"no conductor, nothing asked": {metal.Active, drop, func(s *metal.StatusInput) { s.Conductors = record.Conductors{} }, record.Stuck, []string{"No conductor is known; what is asked"}, "salvor conductor list"},
		"driver not offered":          {metal.Active, drop, func(s *metal.StatusInput) { s.Offered = false }, record.Stuck, []string{`offers its driver "redfish"`}, "salvor driver list"},
		"its conductor died": {metal.Rescuing, func(j *job.Job) { j.State, j.Owner, j.WaitFor = job.Running, "id/0", "" }, nil, record.Waiting,
			[]string{"waits for another conductor to take it over"}, ""},
		"works":  {metal.Rescuing, func(j *job.Job) { j.State, j.Owner, j.WaitFor, j.Deadline = job.Running, "id/1", "", 0 }, nil, record.Working, []string{"on conductor c1"}, ""},
		"begins": {metal.Rescuing, func(j *job.Job) { j.State, j.Owner, j.WaitFor, j.Deadline, j.Action = job.Running, "id/1", "", 0, "" }, nil, record.Working, []string{"is at its first action, on conductor c1"}, ""},
		"tries again": {metal.Rescuing, func(j *job.Job) {
			j.State, j.Attempt, j.WaitFor = job.Ready, 3, `try 4 of "power on"; the last one: no route to host`
		}, nil, record.Working, []string{"no route to host", "Trying this action ends in 25 min"}, ""},
		"taken back": {metal.Rescuing, func(j *job.Job) { j.State, j.Problem, j.WaitFor = job.Undoing, "no ramdisk.", "" }, nil, record.Working,
			[]string{"The rescue failed and is being taken back: no ramdisk.", "then taking it back is given up"}, ""},
		"kills conductors": {metal.Rescuing, func(j *job.Job) { j.State, j.Crashes = job.Ready, 4 }, nil, record.Waiting, []string{"4 conductors ended while they ran"}, ""},
		"waits for maintenance": {metal.RescueWait, func(j *job.Job) { j.WaitFor, j.Deadline = metal.EndOfMaintenance, 0 },
			func(s *metal.StatusInput) { s.Node.Maintenance, s.Node.MaintenanceReason = true, "fan" }, record.Stuck,
			[]string{"Someone put it into maintenance: fan."}, "salvor node maintenance unset kea"},
		"in maintenance": {metal.Active, drop, func(s *metal.StatusInput) { s.Node.Maintenance = true }, record.Idle, []string{"It is in maintenance."}, "salvor node maintenance unset kea"},
		"BMC unreachable": {metal.Active, drop, func(s *metal.StatusInput) {
			s.Node.Maintenance, s.Node.Fault, s.Node.MaintenanceReason = true, metal.PowerFailure, "Power sync gave up."
			s.Contact.PowerError, s.Contact.PowerFailures, s.Contact.PowerFailedAt = "connection refused", 4, noon
		}, record.Stuck, []string{"Power sync gave up.", "bmc: no answer: connection refused"}, "salvor node boot device show kea"},
		"BMC stutters": {metal.Active, drop, func(s *metal.StatusInput) { s.Contact.PowerError, s.Contact.PowerFailures = "timeout", 1 }, record.Idle,
			[]string{"Its BMC did not answer the last time: timeout."}, "salvor node boot device show kea"},
		"BMC refuses": {metal.Active, drop, func(s *metal.StatusInput) {
			s.Contact.PowerError, s.Contact.PowerFailures, s.Contact.PowerFailedAt, s.Contact.PowerRefused = "401", 2, noon, true
		}, record.Idle, []string{"Its BMC refused to tell the power 2 times in a row: 401.", "bmc: refusal: 401", "bmc: power on (30 s ago)"}, "salvor node boot device show kea"},
		"could not be taken back": {metal.RescueFailed, drop, func(s *metal.StatusInput) {
			s.Node.Maintenance, s.Node.Fault, s.Node.MaintenanceReason = true, "rescue abort failure", "The rescue operation could not be taken back: x"
		}, record.Stuck, []string{"because of a fault (rescue abort failure)", "Its last operation failed: it broke."}, "salvor node maintenance unset kea"},
		"held by a step": {metal.CleanHold, func(j *job.Job) { j.Kind, j.WaitFor, j.Deadline = "clean", "unhold", 0 }, nil, record.Stuck, []string{"A step holds it"}, "salvor node unhold kea"},
		"held off":       {metal.Active, drop, func(s *metal.StatusInput) { s.Node.PowerLock = "host vm1 is fenced" }, record.Idle, []string{"It is held off: host vm1 is fenced."}, ""},
		"reserved by a command beside a wait": {metal.RescueWait, nil, func(s *metal.StatusInput) {
			s.Jobs = append(s.Jobs, job.Job{Kind: "power", Class: job.Command, State: job.Running, Owner: "id/1", Action: "switch", CreatedAt: noon, ActionStartedAt: noon})
		}, record.Working, []string{"Its power, asked for 0 s ago, is at action \"switch\""}, ""},
		"a diagnosis in the background": {metal.Active, func(j *job.Job) {
			j.Kind, j.Class, j.State, j.Action = metal.JobDiagnose, job.Background, job.Running, "read the BMC"
		}, nil, record.Idle,
			[]string{"Its diagnose is under way in the background, at action \"read the BMC\".", "Nothing need be done, as far as was last heard."}, ""},
		"enrolled": {metal.Enroll, drop, nil, record.Idle, []string{"It is idle.", "Next: salvor node manage kea (log in to its BMC and read its power)."}, "salvor node manage kea"},
		"enrolled, and its BMC refused": {metal.Enroll, drop, func(s *metal.StatusInput) { s.Node.LastError = "401" }, record.Idle, []string{"Its last error: 401."},
			"salvor node set kea --driver-info KEY=VALUE"},
		"its diagnosis works": {metal.Rescue, func(j *job.Job) { j.ID, j.Class, j.State = "d1", job.Background, job.Ready }, func(s *metal.StatusInput) { s.Node.Rescue = &rescue.Session{Diagnosis: "d1"} }, record.Idle, nil, ""},
		"its diagnosis left it in rescue": {metal.Rescue, drop, func(s *metal.StatusInput) { s.Node.Rescue = &rescue.Session{Diagnosis: "d1"} }, record.Idle,
			[]string{"Diagnosis d1 booted it into rescue, has ended, and left it there."}, "salvor node unrescue kea"},
		"a repair waits for consent": {metal.Rescue, drop, newestRepair(metal.Repair{State: metal.RepairAwaitingConsent, Digest: "5f0c", Needs: []diagnose.Consent{diagnose.ConsentFiles, diagnose.ConsentBoot}, ConsentUntil: noon}),
			record.Waiting, []string{"Until 2026-11-22 12:00:00 UTC, repair r1 waits for a consent to its plan.", "salvor repair show kea"}, "salvor repair consent kea r1 --digest 5f0c --consent files,boot"},
		"a repair that may lose something waits for consent": {metal.Rescue, drop, newestRepair(metal.Repair{State: metal.RepairAwaitingConsent, Digest: "5f0c", Needs: []diagnose.Consent{diagnose.ConsentFiles},
			ConsentUntil: noon, Losses: []repair.Loss{{Finding: "fstab-device-missing", Text: "Programs that store data below /data start with an empty folder."}}}),
			record.Waiting, []string{"repair r1 waits for a consent to its plan", "With fstab-device-missing, the plan may lose: Programs that store data below /data start with an empty folder."}, "salvor repair consent kea r1 --digest 5f0c --consent files"},
		"a repair has its consent":  {metal.Rescue, drop, newestRepair(metal.Repair{State: metal.RepairAwaitingConsent, Consent: &metal.RepairConsent{}}), record.Idle, nil, ""},
		"a repair has to be proven": {metal.Active, drop, newestRepair(metal.Repair{State: metal.RepairBooting, ProofUntil: noon}), record.Waiting, []string{"Until 2026-11-22 12:00:00 UTC, its own system has to prove that it works since repair r1."}, "salvor repair confirm kea r1"},
		"a repair is unproven": {metal.Active, drop, newestRepair(metal.Repair{State: metal.RepairUnproven, UndoFiles: 2}), record.Idle,
			[]string{"It has not proved that it works since repair r1.", "salvor repair confirm kea r1"}, "salvor repair undo kea r1 --reboot"},
		"a repair failed after it was written": {metal.Rescue, drop, newestRepair(metal.Repair{State: metal.RepairUnproven, Problem: "the disks are written: the unrescue failed", UndoFiles: 2}), record.Idle,
			[]string{"It has not proved that it works since repair r1: the disks are written: the unrescue failed.", "salvor node unrescue kea"}, "salvor repair undo kea r1 --reboot"},
		"a repair is written, and its rescue has ended": {metal.Active, drop, newestRepair(metal.Repair{State: metal.RepairWritten, FinishedAt: noon, UndoFiles: 2}), record.Idle,
			[]string{"Repair r1 is written, and nothing has proved since that it works.", "salvor repair confirm kea r1"}, "salvor repair undo kea r1 --reboot"},
		"a repair is written, and its rescue is kept": {metal.Rescue, drop, newestRepair(metal.Repair{State: metal.RepairWritten, FinishedAt: noon}), record.Idle,
			[]string{"Repair r1 is written, and nothing has proved since that it works."}, "salvor node unrescue kea"},
		"a repair can no longer be taken back": {metal.Active, drop, newestRepair(metal.Repair{State: metal.RepairUnproven, UndoDropped: noon}), record.Idle,
			[]string{"Repair r1 cannot be taken back: its plan and what undoes it were dropped at 2026-11-22 12:00:00 UTC, because the repairs of its project took more than [repair]undo_project_max_mib."}, "salvor repair confirm kea r1"},
		"an undo is written": {metal.Active, drop, newestRepair(metal.Repair{State: metal.RepairWritten, FinishedAt: noon, Args: metal.RepairArgs{Undoes: "r0"}}), record.Idle, []string{"It is idle."}, ""},
		"a repair left the disks half-written": {metal.Rescue, drop, newestRepair(metal.Repair{State: metal.RepairFailed}, metal.Repair{State: metal.RepairInterrupted, UndoPages: 1}), record.Stuck,
			[]string{"Its disks are half-written by repair r2, and its own system must not boot."}, "salvor repair undo kea r2"},
		"nobody knows what a repair left on the disks": {metal.Rescue, drop, newestRepair(metal.Repair{State: metal.RepairInterrupted, Problem: "nobody knows"}), record.Idle,
			[]string{"Repair r1: nobody knows."}, "salvor diagnose kea"},
		"manageable": {metal.Manageable, drop, nil, record.Idle, []string{"Next: salvor node adopt kea (take it over with the system that it runs)."}, "salvor node provide kea"},
		"rests":      {metal.CleanWait, func(j *job.Job) { j.Memo = map[string]string{"rest": "yes"} }, nil, record.Waiting, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := inState(tt.state)
			s.Jobs = []job.Job{waits()}
			if tt.job != nil {
				tt.job(&s.Jobs[0])
			}
			if tt.so != nil {
				tt.so(&s)
			}
			w := s.Why()
			text := w.Text("node", "kea", noon)
			if w.Status != tt.mood {
				t.Errorf("%s, want %s: %s", w.Status, tt.mood, text)
			}
			for _, expected := range tt.says {
				if !strings.Contains(text, expected) {
					t.Errorf("%q is not in: %s", expected, text)
				}
			}
			found := tt.next == ""
			for _, n := range w.Next {
				found = found || n.Run == tt.next
			}
			if !found {
				t.Errorf("%q is not among %v", tt.next, w.Next)
			}
			if name == "its diagnosis works" && strings.Contains(text, "left it there") {
				t.Errorf("a diagnosis at work is said to have ended: %s", text)
			}
			if name == "rests" && w.Deadline != nil {
				t.Errorf("the end of a rest is told as a deadline: %+v", w.Deadline)
			}
		})
	}
}

// drop leaves no work: the job has ended.
func drop(j *job.Job) { j.State = job.Ended }

// TestWhyOutside: who may not see a node's errors is told of none of its infrastructure.
func TestWhyOutside(t *testing.T) {
	s := inState(metal.RescueFailed)
	s.Jobs = []job.Job{with(waits(), func(j *job.Job) {
		j.State, j.Attempt, j.WaitFor, j.Problem = job.Ready, 2, "try 3; the last one: bmc.secret.example refused", "bmc.secret.example refused"
	})}
	s.Node.LastError, s.Node.Fault, s.Node.Maintenance, s.Node.MaintenanceReason = "bmc.secret.example", metal.PowerFailure, true, "bmc.secret.example"
	s.Contact.PowerError, s.Contact.AgentURL, s.Contact.AgentStatusMessage = "bmc.secret.example", "https://secret.example", "secret.example"
	s.Contact.HeartbeatAt = noon
	for _, jobs := range [][]job.Job{s.Jobs, nil} {
		s.Jobs = jobs
		w := s.Outside().Why()
		if text := w.Text("node", "kea", noon); strings.Contains(text, "secret") || strings.Contains(text, "c1") {
			t.Errorf("told: %s", text)
		}
	}
}

// TestWhyTellsTheQuirks: what salvor does differently for a BMC is a note in words.
func TestWhyTellsTheQuirks(t *testing.T) {
	s := inState(metal.Active)
	metal.KeepBMC(s.Node, metal.BMC{ReadAt: noon, Quirks: []string{"settle=5s", "auth=session"}, QuirkTexts: []string{"logs in by the method session", "waits 5s after a power off"}})
	w := s.Why()
	if want := "for its BMC, salvor logs in by the method session, waits 5s after a power off"; !slices.Contains(w.Notes, want) {
		t.Errorf("notes %q, want %q", w.Notes, want)
	}
}
