package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/conductor/conductortest"
	"salvor/diagnose"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
)

// offersExaminer lets the control plane have a ramdisk that examines disks.
func (h *testHost) offersExaminer(t *testing.T) {
	t.Helper()
	must.OK(t, h.services.RescueImages.EnsureBuiltIn(t.Context(), compute.BuiltIn{KernelDigest: "sha256:" + strings.Repeat("c", 64), RamdiskDigest: "sha256:" + strings.Repeat("d", 64),
		Append: "console=ttyS0 salvor.rescue=channel"}))
}

func (h *testHost) diagnosis(t *testing.T) diagnose.Record {
	t.Helper()
	all := must.Get(h.services.Diagnoses.List(t.Context(), h.server))(t)
	if len(all) == 0 {
		t.Fatal("the server has no diagnosis")
	}
	return all[0]
}

// examines has the host answer with what an agent found.
func (h *testHost) examines() {
	h.tells = func(v compute.Verb, r *compute.Result) {
		if v == compute.Diagnose && r.ErrorKind == "" {
			r.Examination = json.RawMessage(`{"seconds": 3, "systems": [{"root": "/dev/vda1", "name": "Debian", "findings": [{"id": "fstab-device-missing", "stage": "target", "severity": "blocks-boot", "confidence": 0.9}]}]}`)
		}
	}
}

// A server that is off is examined where it is, and its report names the cause. The order names the disks and the ramdisk, and is dropped with its texts.
func TestDiagnoseServer(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Stopped})
	h.offersExaminer(t)
	h.examines()
	h.refuse = func(v compute.Verb, args *compute.Args) error {
		if v == compute.Console {
			return nil
		}
		if s := args.Spec; v != compute.Diagnose || len(s.Disks) != 2 || s.Rescue == nil || s.Rescue.Append != "salvor.rescue=channel quiet cryptomgr.notests mitigations=off" || s.Rescue.RamdiskImage.Digest != "sha256:"+strings.Repeat("d", 64) || args.Now.IsZero() {
			t.Errorf("the host is told to %s: %+v", v, args)
		}
		return nil
	}
	begun := must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, compute.Who{Admin: true}))(t)
	if _, err := h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, compute.Who{Admin: true}); !problem.Is(err, problem.Conflict) {
		t.Errorf("a second diagnosis at the same time: %v", err)
	}
	h.work(t)
	d := h.diagnosis(t)
	if d.ID != begun.ID || d.State != diagnose.Finished || d.Report.Verdict.Outcome != diagnose.CauseFound || d.Report.Verdict.Finding != "fstab-device-missing" || len(d.Report.Systems) != 1 || d.FinishedAt.IsZero() {
		t.Errorf("the diagnosis is %+v", d)
	}
	if left := must.Get(h.store.PruneOrders(t.Context(), time.Now().Add(time.Hour)))(t); left != 0 {
		t.Errorf("%d orders are left with what was found", left)
	}
	if s := h.now(t); s.State != compute.Stopped || s.Task != compute.NoTask {
		t.Errorf("the server is %s in task %q", s.State, s.Task)
	}
	for range 6 {
		must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, compute.Who{Admin: true}))(t)
		h.work(t)
	}
	if all := must.Get(h.services.Diagnoses.List(t.Context(), h.server))(t); len(all) != 5 {
		t.Errorf("%d diagnoses are kept", len(all))
	}
	h.refuse = nil
	h.act(t, compute.Act{Action: compute.Delete})
	h.work(t)
	if all := must.Get(h.services.Diagnoses.List(t.Context(), h.server))(t); len(all) != 0 {
		t.Errorf("%d diagnoses are left of a server that is gone", len(all))
	}
}

// What cannot be examined is said with what to do next, and no server is called healthy that nobody examined.
func TestDiagnoseServerNotExamined(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options hostOptions
		ramdisk bool
		refuse  error
		state   diagnose.State
		says    string
	}{
		"it runs":       {hostOptions{state: compute.Active}, true, nil, diagnose.Finished, "stop it"},
		"a cluster":     {hostOptions{state: compute.Stopped, kind: compute.GanetiHost}, true, nil, diagnose.Finished, "salvor-agent examine"},
		"no ramdisk":    {hostOptions{state: compute.Stopped}, false, nil, diagnose.Failed, "--profile diagnose"},
		"a former host": {hostOptions{state: compute.Stopped}, true, problem.Unsupportedf("update salvor on this host"), diagnose.Failed, "update salvor"},
		"a start":       {hostOptions{state: compute.Stopped}, true, problem.Conflictf("overtaken by a newer order"), diagnose.Failed, "overtaken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, c.options)
			if c.ramdisk {
				h.offersExaminer(t)
			}
			h.refuse = func(v compute.Verb, _ *compute.Args) error {
				if v == compute.Console {
					return nil
				}
				return c.refuse
			}
			must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, compute.Who{Admin: true}))(t)
			h.work(t)
			d := h.diagnosis(t)
			if d.State != c.state || d.Report.Verdict.Outcome != diagnose.NothingFound || len(d.Report.NotExamined) != 1 || !strings.Contains(d.Report.NotExamined[0].Why, c.says) || d.Problem != "" != (c.state == diagnose.Failed) {
				t.Errorf("the diagnosis is %+v", d)
			}
			if s := h.now(t); s.State != c.options.state || s.Fault != nil {
				t.Errorf("the server is %s, fault %v", s.State, s.Fault)
			}
		})
	}
}

// LUKS keys lie sealed in the rows of the job and of the order until the host has answered, and in no row afterwards.
func TestDiagnoseServerHandsOverLUKSKeys(t *testing.T) {
	t.Parallel()
	const uuid = "0dd1e5c4-0000-4000-8000-00000000000a"
	keys := []diagnose.LUKSKey{{Key: secret.New("open sesame")}, {UUID: uuid, Key: secret.New("barley")}}
	for name, examined := range map[string]bool{"examined": true, "not examined": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := compute.Stopped
			if !examined {
				state = compute.Active
			}
			h := newTestHost(t, hostOptions{state: state})
			h.offersExaminer(t)
			h.examines()
			d := must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, keys, compute.Who{Admin: true}))(t)
			h.work(t)
			byUUID := h.keys.LUKSKeysByUUID[uuid]
			if got := len(h.keys.LUKSKeys) == 1 && string(h.keys.LUKSKeys[0]) == "open sesame" && len(byUUID) == 1 && string(byUUID[0]) == "barley"; got != examined {
				t.Errorf("the host has %q, %q", h.keys.LUKSKeys, h.keys.LUKSKeysByUUID)
			}
			if j := must.Get(h.store.Job(t.Context(), nil, d.ID))(t); j.State != job.Ended || !j.Secret.Empty() {
				t.Errorf("the job is %s, with a secret: %v", j.State, !j.Secret.Empty())
			}
			if left := must.Get(h.store.PruneOrders(t.Context(), time.Now().Add(time.Hour)))(t); left != 0 {
				t.Errorf("%d orders are left", left)
			}
			h.spotless(t)
		})
	}
	h := newTestHost(t, hostOptions{state: compute.Stopped})
	if _, err := h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, []diagnose.LUKSKey{{}}, compute.Who{Admin: true}); !problem.Is(err, problem.Invalid) {
		t.Errorf("an empty key: %v", err)
	}
}

// The order of a diagnosis does not outlive its job: a host that comes back examines nothing for nobody.
func TestFailedDiagnosisDropsItsOrder(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(*testing.T, *testHost){
		"a silent host": func(t *testing.T, h *testHost) {
			h.con.Now = func() time.Time { return time.Now().Add(time.Hour) }
			h.untilDiagnosed(t)
			if d := h.diagnosis(t); d.State != diagnose.Failed || !strings.Contains(d.Problem, "did not examine the disks within") {
				t.Errorf("the diagnosis is %+v", d)
			}
		},
		"a deletion": func(t *testing.T, h *testHost) {
			h.act(t, compute.Act{Action: compute.Delete})
			h.untilDiagnosed(t)
			if s := h.now(t); s.State != compute.Deleted {
				t.Errorf("the server is %s", s.State)
			}
		},
		"an abort": func(t *testing.T, h *testHost) {
			must.OK(t, h.abort(t))
			h.untilDiagnosed(t)
			if d := h.diagnosis(t); d.State != diagnose.Failed || d.Problem != "aborted by request" {
				t.Errorf("the diagnosis is %+v, want it failed, and aborted by request", d)
			}
		},
		"another epoch": func(t *testing.T, h *testHost) {
			h.tx(t, func(tx job.Tx) error {
				s, err := h.store.Servers().Get(t.Context(), tx, h.server)
				if err != nil {
					return err
				}
				s.Epoch++
				return errors.Join(h.store.Servers().Save(tx, s), h.store.VoidOrders(tx, s.ID, s.Epoch))
			})
			h.untilDiagnosed(t)
			if d := h.diagnosis(t); d.State != diagnose.Failed || !strings.Contains(d.Problem, "diagnose it again") {
				t.Errorf("the diagnosis is %+v", d)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, hostOptions{state: compute.Stopped})
			h.offersExaminer(t)
			must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, compute.Who{Admin: true}))(t)
			stop := h.conduct(t)
			order := ""
			fixture.Poll(t, "the host has its order", func() bool { order = h.examinationOrder(); return order != "" }, h.picture)
			stop()
			ends(t, h)
			if _, err := h.store.Order(t.Context(), nil, order); !problem.Is(err, problem.NotFound) {
				t.Errorf("the order is still there: %v", err)
			}
			h.spotless(t)
		})
	}
}

// untilDiagnosed works until all jobs have ended, with a host that carries out no examination. It must be given no second one.
func (h *testHost) untilDiagnosed(t *testing.T) {
	t.Helper()
	defer h.conduct(t)()
	examinations := map[string]bool{}
	h.untilEnded(t, func() {
		if id := h.examinationOrder(); id != "" {
			examinations[id] = true
		}
	}, compute.Subject(h.server))
	if len(examinations) > 1 {
		t.Errorf("the host was given %d orders to examine", len(examinations))
	}
}

func TestSweepServerDiagnose(t *testing.T) {
	t.Parallel()
	conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
		h := newTestHost(t, hostOptions{state: compute.Stopped})
		h.offersExaminer(t)
		h.examines()
		w := h.world(compute.JobDiagnose, func(t *testing.T) {
			must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, compute.Who{Admin: true}))(t)
		}, func(t *testing.T) {
			if d := h.diagnosis(t); d.State != diagnose.Failed || d.Problem == "" {
				t.Errorf("a failed diagnosis is %+v", d)
			}
			h.spotless(t)
		})
		w.Picture = func(t *testing.T) string {
			d := h.diagnosis(t)
			return h.picture(t) + fmt.Sprintf("\ndiagnosis: %s problem %q systems %d gaps %q", d.State, d.Problem, len(d.Report.Systems), d.Report.NotExamined)
		}
		return w
	})
}

// examinationOrder is the id of the open order to examine disks; empty: there is none. All other orders are carried out.
func (h *testHost) examinationOrder() (id string) {
	var others []compute.Order
	for _, o := range h.openOrders() {
		if o.Verb == compute.Diagnose {
			id = o.ID
		} else {
			others = append(others, o)
		}
	}
	h.answer(others)
	return id
}

// TestDiagnoseServerReadsTheConsole: what the host keeps of the serial line is evidence, of a server that runs too, and not in a rescue. What lies on the
// disks goes before it.
func TestDiagnoseServerReadsTheConsole(t *testing.T) {
	t.Parallel()
	const panicked = "[    0.000000] Linux version 6.1.0-13-amd64\n[    2.1] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n"
	for name, tc := range map[string]struct {
		state   compute.VMState
		cause   string
		console bool
		refuse  error
	}{
		"off":             {compute.Stopped, "fstab-device-missing", true, nil},
		"on":              {compute.Active, "console-root-missing", true, nil},
		"in rescue":       {compute.Rescued, "", false, nil},
		"a silent reader": {compute.Stopped, "fstab-device-missing", false, problem.Conflictf("the log cannot be read")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, hostOptions{state: tc.state})
			h.offersExaminer(t)
			h.examines()
			examined := h.tells
			h.tells = func(v compute.Verb, r *compute.Result) {
				if examined(v, r); v == compute.Console && r.ErrorKind == "" {
					r.Console = panicked
				}
			}
			h.refuse = func(v compute.Verb, _ *compute.Args) error {
				if v != compute.Console {
					return nil
				}
				return tc.refuse
			}
			if tc.state == compute.Rescued {
				h.tx(t, func(tx job.Tx) error {
					s := must.Get(h.store.Servers().Get(t.Context(), tx, h.server))(t)
					s.Rescue = &rescue.Session{State: rescue.Ready}
					return h.store.Servers().Save(tx, s)
				})
			}
			must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, compute.Who{Admin: true}))(t)
			h.work(t)
			d := h.diagnosis(t)
			if d.State != diagnose.Finished || d.Report.Verdict.Finding != tc.cause || len(d.Report.Symptoms()) > 0 != tc.console {
				t.Errorf("the diagnosis is %+v", d)
			}
			told := slices.ContainsFunc(d.Report.NotExamined, func(g diagnose.Gap) bool { return g.What == "console" })
			if told != (tc.refuse != nil) {
				t.Errorf("not examined: %+v", d.Report.NotExamined)
			}
			if left := must.Get(h.store.PruneOrders(t.Context(), time.Now().Add(time.Hour)))(t); left != 0 {
				t.Errorf("%d orders are left with what was found", left)
			}
		})
	}
}

// TestDiagnoseServerInRescue: the host is told to ask the rescue system, which examines volumes too, and no ramdisk for helpers is needed.
func TestDiagnoseServerInRescue(t *testing.T) {
	t.Parallel()
	h := newTestHost(t, hostOptions{state: compute.Rescued})
	h.examines()
	h.tx(t, func(tx job.Tx) error {
		s := must.Get(h.store.Servers().Get(t.Context(), tx, h.server))(t)
		s.Power, s.Rescue = compute.PowerOn, &rescue.Session{State: rescue.Ready, Source: &rescue.Source{Access: rescue.ByChannel}}
		return h.store.Servers().Save(tx, s)
	})
	h.refuse = func(v compute.Verb, args *compute.Args) error {
		if v != compute.Diagnose || !args.InRescue || args.Spec != nil {
			t.Errorf("the host is told to %s: %+v", v, args)
		}
		return nil
	}
	must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, compute.Who{Admin: true}))(t)
	h.work(t)
	if d := h.diagnosis(t); d.State != diagnose.Finished || d.Report.Verdict.Finding != "fstab-device-missing" || len(d.Report.NotExamined) != 0 {
		t.Errorf("the diagnosis is %+v", d)
	}
}

// TestServerAtItsLogin: a server that runs works if its console shows a login since its host started it. A prompt of a rescue system before that start, or of
// a server that does not run, proves nothing.
func TestServerAtItsLogin(t *testing.T) {
	t.Parallel()
	mark := compute.ConsoleStartLine(time.Unix(1000, 0))
	const prompt = "web1 login: "
	for name, tc := range map[string]struct {
		state   compute.VMState
		change  func(*compute.Server)
		console string
		want    diagnose.Outcome
	}{
		"at its login":                           {compute.Active, nil, mark + prompt, diagnose.Works},
		"a rescue before the start":              {compute.Active, nil, "rescue login: " + mark, diagnose.NothingFound},
		"a host that marks no start":             {compute.Active, nil, prompt, diagnose.NothingFound},
		"a panic behind it":                      {compute.Active, nil, mark + prompt + "\n[ 9.1] Kernel panic - not syncing: Fatal exception\n", diagnose.CauseFound},
		"a panic before the start":               {compute.Active, nil, "[ 9.1] Kernel panic - not syncing: Fatal exception\n" + mark + prompt, diagnose.Works},
		"off":                                    {compute.Stopped, nil, mark + prompt, diagnose.CauseFound}, // by its disks
		"paused":                                 {compute.Paused, func(s *compute.Server) { s.Power = compute.PowerPaused }, mark + prompt, diagnose.NothingFound},
		"amid a task":                            {compute.Active, func(s *compute.Server) { s.Task = compute.Rebooting }, mark + prompt, diagnose.NothingFound},
		"a foreign server":                       {compute.Active, func(s *compute.Server) { s.Foreign = true }, mark + prompt, diagnose.NothingFound},
		"a server that its host says is crashed": {compute.Active, func(s *compute.Server) { s.Power = compute.PowerCrashed }, mark + prompt, diagnose.CauseFound}, // by its disks
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, hostOptions{state: tc.state})
			h.offersExaminer(t)
			h.examines()
			examined := h.tells
			h.tells = func(v compute.Verb, r *compute.Result) {
				if examined(v, r); v == compute.Console && r.ErrorKind == "" {
					r.Console = tc.console
				}
			}
			if tc.change != nil {
				h.tx(t, func(tx job.Tx) error {
					s := must.Get(h.store.Servers().Get(t.Context(), tx, h.server))(t)
					tc.change(s)
					return h.store.Servers().Save(tx, s)
				})
			}
			must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{}, nil, compute.Who{Admin: true}))(t)
			h.work(t)
			d := h.diagnosis(t)
			if v := d.Report.Verdict; d.State != diagnose.Finished || v.Outcome != tc.want || (v.Proof != nil) != (tc.want == diagnose.Works) {
				t.Errorf("the verdict is %+v of %+v, want %s; console:\n%s", v, d, tc.want, tc.console)
			}
			if p := d.Report.Verdict.Proof; p != nil && (p.Kind != diagnose.ProofLogin || !strings.Contains(p.Text, "started at 1970-01-01 00:16:40 UTC")) {
				t.Errorf("the proof is %+v", p)
			}
		})
	}
}

// TestDiagnoseServerOnlyReads: --only-read goes from the request to the host's order, of a server that is off and of one in rescue. A host of a former release,
// which drops it, examines nothing then.
func TestDiagnoseServerOnlyReads(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rescued, former, onlyRead bool
		orders                    []bool // to examine, each with its OnlyRead
	}{
		"off, and only to read":                         {onlyRead: true, orders: []bool{true}},
		"off":                                           {orders: []bool{false}},
		"in rescue, and only to read":                   {rescued: true, onlyRead: true, orders: []bool{true}},
		"off, on a former host":                         {former: true, orders: []bool{false}},
		"off, on a former host, and only to read":       {former: true, onlyRead: true},
		"in rescue, on a former host, and only to read": {rescued: true, former: true, onlyRead: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestHost(t, hostOptions{state: map[bool]compute.VMState{true: compute.Rescued, false: compute.Stopped}[tc.rescued]})
			h.offersExaminer(t)
			h.examines()
			h.tx(t, func(tx job.Tx) error {
				host := must.Get(h.store.Hosts().Get(t.Context(), tx, h.host.ID))(t)
				host.Inventory.OnlyReads = !tc.former
				s := must.Get(h.store.Servers().Get(t.Context(), tx, h.server))(t)
				if tc.rescued {
					s.Power, s.Rescue = compute.PowerOn, &rescue.Session{State: rescue.Ready, Source: &rescue.Source{Access: rescue.ByChannel}}
				}
				return errors.Join(h.store.Hosts().Save(tx, host), h.store.Servers().Save(tx, s))
			})
			var orders []bool
			h.refuse = func(v compute.Verb, args *compute.Args) error {
				if v == compute.Diagnose {
					orders = append(orders, args.OnlyRead)
				}
				return nil
			}
			must.Get(h.services.Diagnoses.Begin(t.Context(), h.server, compute.DiagnoseArgs{OnlyRead: tc.onlyRead}, nil, compute.Who{Admin: true}))(t)
			h.work(t)
			d := h.diagnosis(t)
			told := slices.ContainsFunc(d.Report.NotExamined, func(g diagnose.Gap) bool {
				return g.What == "disks" && strings.Contains(g.Why, "its host east runs salvor of a former release")
			})
			if d.State != diagnose.Finished || !slices.Equal(orders, tc.orders) || told != (len(tc.orders) == 0) {
				t.Errorf("the host has the orders %v to examine, want %v; the diagnosis is %+v", orders, tc.orders, d)
			}
		})
	}
}
