package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/compute"
	"salvor/job"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/test/must"
	"salvor/wire/native"
)

// serverPlight is a situation of a server and its host.
type serverPlight struct {
	name   string
	server func(s *compute.Server)
	host   func(h *compute.Host)
	silent bool // the host holds no lease
	rows   func(w *remedyWalk, tx job.Tx, s *compute.Server, h *compute.Host) error
}

// pendingJob is a job of a server or host that nobody works on for minutes.
func pendingJob(kind job.Kind, subject job.Subject, state job.State, change func(*job.Job)) *job.Job {
	now := time.Now()
	j := &job.Job{Kind: kind, Class: job.Operation, Subject: subject, State: state, Action: "power on", Args: []byte("{}"), WaitFor: "host east to switch the guest",
		Due: now.Add(10 * time.Minute), ActionStartedAt: now}
	if kind == compute.JobFence {
		j.Action = "listen"
	}
	if change != nil {
		change(j)
	}
	return j
}

func ofServer(kind job.Kind, state job.State, change func(*job.Job)) func(*remedyWalk, job.Tx, *compute.Server, *compute.Host) error {
	return func(w *remedyWalk, tx job.Tx, s *compute.Server, _ *compute.Host) error {
		return w.p.Store.Insert(tx, pendingJob(kind, compute.Subject(s.ID), state, change))
	}
}

func receiptOf(heard time.Time) func(*remedyWalk, job.Tx, *compute.Server, *compute.Host) error {
	return func(w *remedyWalk, tx job.Tx, _ *compute.Server, h *compute.Host) error {
		return w.p.Store.Receipts().Insert(tx, &compute.Receipt{Record: record.Record{ID: uuid.NewString()}, HostID: h.ID, BootID: h.BootID, Epoch: 1, HeardAt: heard,
			Proofs: []compute.Proof{{Evidence: compute.PowerCut, Text: "off", At: time.Now()}}})
	}
}

var serverPlights = []serverPlight{
	{name: "nothing works on it"},
	{name: "its last operation failed", server: func(s *compute.Server) { s.Fault = &compute.Fault{Code: 500, Message: "no answer"} }},
	{name: "locked", server: func(s *compute.Server) { s.Locked = true }},
	{name: "waits for its host", server: func(s *compute.Server) { s.Task = compute.Starting }, rows: ofServer(compute.JobPower, job.Waiting, nil)},
	{name: "tries again", server: func(s *compute.Server) { s.Task = compute.Starting }, rows: ofServer(compute.JobPower, job.Ready, func(j *job.Job) { j.Attempt = 3 })},
	{name: "is taken back", server: func(s *compute.Server) { s.Task = compute.Rescuing },
		rows: ofServer(compute.JobRescue, job.Undoing, func(j *job.Job) { j.Attempt, j.Problem, j.ProblemKind = 2, "no answer", "unavailable" })},
	{name: "its task is nobody's", server: func(s *compute.Server) { s.Task = compute.Starting }},
	{name: "its host is silent", silent: true},
	{name: "its host is silent, and it waits", silent: true, server: func(s *compute.Server) { s.Task = compute.Starting }, rows: ofServer(compute.JobPower, job.Waiting, nil)},
	{name: "its host is forced down", silent: true, host: func(h *compute.Host) { h.ForcedDown, h.ForcedDownBy = true, "ann" }},
	{name: "its host is fenced", silent: true, host: func(h *compute.Host) { h.Fenced, h.Fences = true, 1 }, rows: receiptOf(time.Time{})},
	{name: "its host is fenced, and spoke", silent: true, host: func(h *compute.Host) { h.Fenced, h.Fences = true, 1 }, rows: receiptOf(time.Now())},
	{name: "its host is revoked", silent: true, host: func(h *compute.Host) { h.Revoked = true }},
	{name: "its host is disabled", host: func(h *compute.Host) { h.Disabled = true }},
	{name: "its host's certificate has ended", silent: true, host: func(h *compute.Host) { h.CertificateEnds = time.Now().Add(-time.Hour) }},
	{name: "its host is being fenced", silent: true, rows: func(w *remedyWalk, tx job.Tx, _ *compute.Server, h *compute.Host) error {
		return w.p.Store.Insert(tx, pendingJob(compute.JobFence, compute.HostSubject(h.ID), job.Ready, nil))
	}},
	{name: "its host is forced down, and being fenced", silent: true, host: func(h *compute.Host) { h.ForcedDown = true }, rows: func(w *remedyWalk, tx job.Tx, _ *compute.Server, h *compute.Host) error {
		return w.p.Store.Insert(tx, pendingJob(compute.JobFence, compute.HostSubject(h.ID), job.Ready, nil))
	}},
	{name: "a guest of it runs elsewhere", rows: func(w *remedyWalk, tx job.Tx, s *compute.Server, h *compute.Host) error {
		other := w.hostRow(h.Name + "-b")
		if err := w.p.Store.Hosts().Insert(tx, other); err != nil {
			return err
		}
		return w.p.Store.SaveGuestReport(tx, compute.GuestReport{HostID: other.ID, ServerID: s.ID, BootID: "boot-1", Epoch: 1, Power: compute.PowerOn, SeenAt: time.Now().Add(-time.Hour)})
	}},
}

// vmStates are those in which a server is found, as the walk makes them.
var vmStates = map[string]func(s *compute.Server){
	"building":  func(s *compute.Server) { s.State, s.LaunchedAt = compute.Building, time.Time{} },
	"active":    func(s *compute.Server) { s.Power, s.Wanted = compute.PowerOn, compute.PowerOn },
	"stopped":   func(s *compute.Server) { s.State = compute.Stopped },
	"paused":    func(s *compute.Server) { s.State, s.Power = compute.Paused, compute.PowerPaused },
	"suspended": func(s *compute.Server) { s.State, s.Power = compute.Suspended, compute.PowerSaved },
	"rescue": func(s *compute.Server) {
		s.State, s.Power, s.Wanted = compute.Rescued, compute.PowerOn, compute.PowerOn
		s.Rescue = &rescue.Session{State: rescue.Ready, ExpiresAt: time.Now().Add(time.Hour)}
	},
	"error": func(s *compute.Server) { s.State = compute.Errored },
	"error, never launched": func(s *compute.Server) {
		s.State, s.LaunchedAt = compute.Errored, time.Time{}
	},
	"error, in rescue": func(s *compute.Server) {
		s.State, s.Rescue = compute.Errored, &rescue.Session{State: rescue.Failed}
	},
}

func (w *remedyWalk) hostRow(name string) *compute.Host {
	return &compute.Host{Record: record.Record{ID: uuid.NewString()}, Name: name, Kind: compute.AgentHost, BootID: "boot-1", Inventory: compute.Inventory{
		HypervisorType: "fake", VCPUs: 8, RAM: 16384, Disk: 100}}
}

// placeServer makes a server and its host that are found so.
func (w *remedyWalk) placeServer(state func(*compute.Server), in serverPlight) (*compute.Server, *compute.Host) {
	w.Helper()
	w.count++
	h := w.hostRow(fmt.Sprintf("h%dx", w.count))
	s := &compute.Server{Record: record.Record{ID: uuid.NewString()}, Name: fmt.Sprintf("s%dx", w.count), GuestName: fmt.Sprintf("salvor-s%dx", w.count), HostID: h.ID, Epoch: 1,
		State: compute.Active, Power: compute.PowerOff, Wanted: compute.PowerOff, LaunchedAt: time.Now().Add(-time.Hour), Flavor: compute.Flavor{Name: "small", VCPUs: 1, RAM: 512, Disk: 2}}
	state(s)
	if in.server != nil {
		in.server(s)
	}
	if in.host != nil {
		in.host(h)
	}
	err := w.p.Store.Do(w.Context(), func(tx job.Tx) error {
		if err := w.p.Store.Hosts().Insert(tx, h); err != nil {
			return err
		}
		if err := w.p.Store.Servers().Insert(tx, s); err != nil || in.rows == nil {
			return err
		}
		return in.rows(w, tx, s, h)
	})
	if err == nil && !in.silent {
		err = w.p.Store.SaveLeases(w.Context(), []compute.Lease{{HostID: h.ID, BootID: "boot-1", RenewedAt: time.Now().Add(10 * time.Minute), Renewals: 1}})
	}
	if err != nil {
		w.Fatal(err)
	}
	return s, h
}

// remediesOf are the commands that why prints of a server and of its host, and those that --wait prints of a server that failed.
func (w *remedyWalk) remediesOf(s *compute.Server, h *compute.Host) (out []string) {
	w.Helper()
	c := must.Get(client.New(client.Config{Endpoint: w.url, Username: "admin", Password: secret.New("password")}))(w)
	for _, path := range []string{"/servers/" + s.ID + "/why", "/hosts/" + h.ID + "/why"} {
		var why native.Why
		must.OK(w, c.Ask(w.Context(), client.Native, http.MethodGet, path, nil, nil, &why))
		for _, next := range why.Next {
			if strings.HasPrefix(next.Run, "salvor ") {
				out = append(out, next.Run)
			}
		}
		out = append(out, commandsPrinted(strings.Join(append(append(why.Problems, why.Notes...), why.Text), "\n"))...)
	}
	return append(out, commandsPrinted(w.waitOf(c, s))...)
}

// waitOf gives the output of --wait for a server that does not reach the state, when its user gives up waiting.
func (w *remedyWalk) waitOf(c *client.Client, s *compute.Server) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second)
	defer cancel()
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetErr(writer(func() { time.AfterFunc(100*time.Millisecond, cancel) })) // it is looked at
	err := (&waitOption{}).server(&kit.Call{Command: cmd, API: c, Args: nil}, s.ID, s.Name, []string{"NONE"})
	if err == nil {
		w.Fatalf("server %s: the wait ended well", s.ID)
	}
	return err.Error()
}

type writer func()

func (f writer) Write(b []byte) (int, error) { f(); return len(b), nil }

// accepted tells whether a command was taken, whatever came of it: a fence that proves nothing was one.
func accepted(err error) bool {
	return err == nil || strings.Contains(err.Error(), "is not proven off") || strings.Contains(err.Error(), "context deadline exceeded") ||
		strings.Contains(err.Error(), "gave up waiting")
}

// TestEveryRemedyOfServersIsAccepted walks the states of servers and the situations of servers and hosts, and runs every command
// that is printed there.
func TestEveryRemedyOfServersIsAccepted(t *testing.T) {
	t.Parallel()
	waits := os.Getenv("SALVOR_SOAK") != "" // else three states are walked, and nothing waits for the end of what it asks for
	w := working(t)
	w.bound = 2 * time.Second // what comes of a command takes its time
	situations, refused := 0, 0
	for _, state := range slices.Sorted(maps.Keys(vmStates)) {
		make := vmStates[state]
		if !waits && !slices.Contains([]string{"active", "error", "rescue"}, state) {
			continue
		}
		for _, in := range serverPlights {
			s, h := w.placeServer(make, in)
			situations++
			used, done := false, map[string]bool{}
			lines := w.remediesOf(s, h)
			for i := range lines {
				if !waits {
					lines[i] = strings.TrimSuffix(lines[i], " --wait")
				}
			}
			for _, line := range lines {
				plain := strings.NewReplacer(s.Name, "SERVER", s.ID, "SERVER", h.Name, "HOST", h.ID, "HOST").Replace(line)
				reads := strings.Contains(line, " show ") || strings.Contains(line, " why ") || strings.Contains(line, " list") || strings.HasSuffix(line, "--follow")
				if done[plain] || w.ran[plain] > 2 && reads || w.ran[plain] > 30 {
					continue
				}
				was, on := s, h
				if done[plain] = true; used {
					s, h = w.placeServer(make, in)
				}
				used = !reads
				line = strings.NewReplacer(was.Name, s.Name, was.ID, s.ID, on.Name, h.Name, on.ID, h.ID).Replace(line)
				output, err := w.run(line, "")
				if err != nil && strings.Contains(err.Error(), "a host fence is going on") && !strings.Contains(in.name, "being fenced") {
					err = nil // the client asked again, and meets its own first request
				}
				if !accepted(err) {
					refused++
					t.Errorf("%s, %s: %v", state, in.name, err)
				}
				now := strings.NewReplacer(was.Name, s.Name, was.ID, s.ID, on.Name, h.Name, on.ID, h.ID)
				for i := range lines {
					lines[i] = now.Replace(lines[i])
				}
				no, typed := w.follow(line, output, lines)
				refused, used = refused+no, used || typed
				w.ran[plain]++
			}
		}
	}
	total := 0
	for line, times := range w.ran {
		total += times
		t.Logf("%4d %s", times, line)
	}
	t.Logf("%d situations, %d commands run, %d refused", situations, total, refused)
}
