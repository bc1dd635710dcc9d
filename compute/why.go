package compute

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/record"
	"salvor/rescue"
)

// ServerSituation is all that is known of a server at one moment.
type ServerSituation struct {
	Server     *Server
	Jobs       []job.Job // unended ones
	Conductors record.Conductors
	// Host is where it lives; nil: nowhere. Life, Fenced and Cluster are the host's: the open receipt or nil, and its cluster or nil.
	Host    *Host
	Life    HostLiveness
	Fenced  *Receipt
	Cluster *Cluster
	// HostBusy: the host has an open operation, so no fence of it can be requested.
	HostBusy bool
	// Move is the one that goes on; nil: none.
	Move *Move
	// Item is what the newest plan for its host says of it; nil: nothing.
	Item *PlanItem
	// Elsewhere are its guests that run on hosts that are not its own, in words, and those hosts.
	Elsewhere   []string
	ElsewhereOn []*Host
	// Operator may be told of hosts, and be named the commands of administrators.
	Operator bool
}

// Why says what a server waits for.
func (s ServerSituation) Why() record.Why {
	if !s.Operator {
		s = s.outside()
	}
	srv := s.Server
	w := record.Why{State: srv.stateText(), Since: srv.LaunchedAt}
	if srv.State == Deleted {
		w.Status, w.Since = record.Idle, srv.TerminatedAt
		s.elsewhere(&w)
		return w
	}
	if srv.State != Active && srv.State != Rescued {
		w.Since = time.Time{}
	}
	w.Work(s.Jobs, s.Conductors)
	if s.Operator && s.aborts() {
		w.Next = append(w.Next, record.Command{Run: "salvor server abort " + srv.label(), For: "give up what waits; what its host may have done is not taken back"})
	}
	s.rest(&w)
	s.standstill(&w)
	s.session(&w)
	if n := len(srv.Restarts); n > 0 && srv.LaunchedAt.Sub(srv.Restarts[n-1]) < RestartWindow {
		w.Notes = append(w.Notes, fmt.Sprintf("it crashed and was started again at %s (try %d of %d in %s)", record.Moment(srv.Restarts[n-1]), n, MaxRestarts, RestartWindow))
	}
	if !s.moved(&w) {
		s.place(&w)
	}
	s.elsewhere(&w)
	s.drift(&w)
	if srv.Locked {
		w.Notes = append(w.Notes, "it is locked"+record.Because(srv.LockedReason))
	}
	if w.Job != nil && w.Status != record.Stuck {
		w.Next = append(w.Next, record.Command{Run: "salvor events server:" + srv.label() + " --follow", For: "see what it does"})
	}
	w.AddConductors(s.Conductors)
	w.Accepts = s.accepts()
	return w
}

// accepts lists the actions of the Compute API that the server's state admits now. An open operation excludes all actions that need a job,
// except a deletion. A guest of it elsewhere excludes all actions that start it, continue it or change its disks.
func (s *ServerSituation) accepts() (out []string) {
	works := slices.ContainsFunc(s.Jobs, func(j job.Job) bool { return j.Class != job.Background })
	for _, r := range Rules {
		if slices.Contains(out, string(r.Action)) || r.Manner == CycladesSemantics || works && r.Job != "" && r.Action != Delete || len(s.Elsewhere) > 0 && r.NeedsOneGuest() {
			continue
		}
		_, err := Allow(s.Server, r.Action, NovaSemantics, s.Operator)
		if r.Action == Rebuild && dataElsewhere(s.Server.Drift) != nil {
			continue
		}
		if err == nil && MetalRefusal(s.Server, &Act{Action: r.Action}) == nil {
			out = append(out, string(r.Action))
		}
	}
	return out
}

const untold = "an administrator may see why"

// outside is the situation without what tells of hosts and of the machines that salvor runs on.
func (s ServerSituation) outside() ServerSituation {
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Problem != "" {
			j.Problem = untold
		}
		switch {
		case j.Attempt > 0:
			j.WaitFor = "another try of its action"
		case j.WaitFor != "":
			j.WaitFor = "what its action asked for"
		}
	}
	s.Conductors.Dead, s.Conductors.Owners = nil, maps.Clone(s.Conductors.Owners)
	for owner := range s.Conductors.Owners {
		s.Conductors.Owners[owner] = ""
	}
	if s.Move != nil {
		m := *s.Move
		m.Words = ""
		s.Move = &m
	}
	return s
}

// WorkIsKept says in an event of a failure that the work waits on for its host.
const WorkIsKept = "the work is done when the host is back, or at another host by an evacuation"

// Outside is an event of a server without what tells of hosts, and of what they and conductors said: for whom the server belongs to.
func Outside(e job.Event) job.Event {
	switch {
	case e.Type == "action" && e.Text != e.Action && e.Text != "undo "+e.Action:
		if e.Severity == "error" && strings.Contains(e.Text, WorkIsKept) {
			e.Text = e.Action + ": its host does not answer; " + WorkIsKept
		} else if e.Severity == "error" {
			e.Text = e.Action + ": did not succeed; " + untold
		} else {
			e.Text = e.Action + ": waits"
		}
	case e.Type == "contact":
		e.Text = "word of its host; " + untold
	}
	return e
}

// stateText is the state, and what is being done in it.
func (s *Server) stateText() string {
	if s.Task == NoTask {
		return string(s.State)
	}
	return string(s.State) + " (" + string(s.Task) + ")"
}

func (s *Server) label() string {
	if s.Name != "" {
		return s.Name
	}
	return s.ID
}

// rest is a server on which nothing works, although something does or went wrong by its record.
func (s *ServerSituation) rest(w *record.Why) {
	srv := s.Server
	if w.Job != nil {
		return
	}
	hard := record.Command{Run: "salvor server reboot --hard " + srv.label(), For: "try to start it anew"}
	drop := record.Command{Run: "salvor server delete " + srv.label(), For: "give it up"}
	switch {
	case srv.Task != NoTask && s.Move == nil:
		w.Block("nothing works on it, although its task " + string(srv.Task) + " says so")
		if s.Operator {
			w.Next = append(w.Next, record.Command{Run: "salvor server set " + srv.label() + " --state error", For: "end that task; then reboot, unrescue or delete it"})
		}
	case srv.State == Errored && srv.Rescue != nil && srv.Rescue.State.Open():
		w.Block(srv.failure(), s.starting(record.Command{Run: "salvor server unrescue " + srv.label(), For: "boot its own system"})...)
	case srv.State == Errored && srv.LaunchedAt.IsZero():
		w.Block(srv.failure(), drop)
	case srv.State == Errored:
		w.Block(srv.failure(), append(s.starting(hard), drop)...)
	case srv.Fault != nil:
		w.Problems = append(w.Problems, srv.failure())
	}
}

// starting is a command that starts or continues the server, unless that is refused because a guest of it runs elsewhere. If a change by
// somebody else keeps salvor from defining the guest, an operator is first told the commands that end the change.
func (s *ServerSituation) starting(c record.Command) []record.Command {
	i := slices.IndexFunc(s.Server.Drift, func(d Drift) bool { return d.Refuses })
	if len(s.Elsewhere) > 0 || i >= 0 && !s.Operator {
		return nil
	}
	var out []record.Command
	for ; i >= 0 && i < len(s.Server.Drift); i++ {
		if d := s.Server.Drift[i]; d.Refuses {
			out = append(out, s.ending(d)...)
		}
	}
	return append(out, c)
}

// ending are the commands that end a change by somebody else: the stop of the server first, where the hypervisor needs its guest off.
func (s *ServerSituation) ending(d Drift) (out []record.Command) {
	if d.Remedy == "" || s.Host == nil {
		return nil
	}
	when := ""
	switch {
	case d.Off:
		when = ", while the server is off"
	case d.Disk:
		when = ", while the server runs"
	}
	if _, err := Allow(s.Server, Stop, NovaSemantics, true); d.Off && s.Server.Power == PowerOn && err == nil {
		out = append(out, record.Command{Run: "salvor server stop " + s.Server.label(), For: "switch its guest off, because the next command needs that"})
	}
	return append(out, record.Command{Run: d.Remedy, For: "on host " + s.Host.Name + when + ": end what was changed of " + d.Part})
}

func (s *Server) failure() string {
	if s.Fault == nil {
		return "its last operation failed"
	}
	return "its last operation failed: " + s.Fault.Message
}

// standstill tells of a guest that should run and stands still, and what lets it go on.
func (s *ServerSituation) standstill(w *record.Why) {
	srv := s.Server
	if !srv.StandsStill() || srv.State == Deleted {
		return
	}
	pause := srv.Pause
	if !s.Operator {
		pause.Disks = "" // it names disk stores
	}
	text := "it should run and stands still: " + pause.Describe()
	if pause.Reason == PausedByIOError {
		text += "; " + srv.describeResume()
	}
	if w.Job != nil { // which may be to let it go on
		w.Problems = append(w.Problems, text)
		return
	}
	var next []record.Command
	if len(s.Elsewhere) == 0 {
		next = s.continuing(pause)
	}
	w.Block(text, next...)
	if pause.Reason == PausedByIOError && !srv.NextResume().Equal(never) {
		w.Status, w.WaitsFor, w.WaitsSince = record.Waiting, "room for its disks", srv.StandsStillSince
	}
}

// continuing are the commands that let a guest go on which stands still, the best first.
func (s *ServerSituation) continuing(pause GuestPause) (out []record.Command) {
	purpose, kept := "let it go on now", record.Command{}
	switch pause.Reason {
	case SavedToFile:
		purpose = "boot it anew, which gives the saved memory up"
		kept = record.Command{Run: "virsh restore FILE", For: "let it go on with the memory that was saved to FILE"}
	case PausedByPostcopy:
		purpose = "boot it anew, which gives its memory up"
		kept = record.Command{Run: "virsh migrate " + s.Server.GuestName + " DESTINATION --live --postcopy --postcopy-resume", For: "complete the migration that failed"}
	}
	if kept.Run != "" && s.Operator && s.Host != nil {
		kept.For = "on host " + s.Host.Name + ": " + kept.For
		out = append(out, kept)
	}
	return append(out, record.Command{Run: commandToContinue(pause.Continue(), s.Server.label()), For: purpose})
}

// session tells of an open rescue.
func (s *ServerSituation) session(w *record.Why) {
	r := s.Server.Rescue
	if r == nil || !r.State.Open() {
		return
	}
	back := record.Command{Run: "salvor server unrescue " + s.Server.label(), For: "boot its own system"}
	if !r.ExpiresAt.IsZero() {
		w.Notes = append(w.Notes, "its rescue session ends by itself at "+record.Moment(r.ExpiresAt))
	}
	switch {
	case w.Job != nil || s.Server.State == Errored || s.Server.Task != NoTask:
	case r.State == rescue.Failed:
		w.Block("its rescue session failed", s.starting(back)...)
	default:
		if addresses := s.Server.Addresses(); r.State == rescue.Ready {
			w.Notes = append(w.Notes, r.Entry(addresses)...)
			if r.HostKey != "" && len(addresses) > 0 {
				w.Next = append(w.Next, record.Command{Run: "salvor server ssh " + s.Server.label(), For: "log in to its rescue system"})
			}
		}
		w.Next = append(w.Next, s.starting(back)...)
	}
}

// moved is a server on its way from one host to another; false: it is not.
func (s *ServerSituation) moved(w *record.Why) bool {
	m := s.Move
	if m == nil {
		return false
	}
	w.Notes = append(w.Notes, "it is being moved to another host ("+string(m.Kind)+", "+string(m.State)+")")
	if w.Job == nil {
		w.Status, w.WaitsFor, w.WaitsSince = record.Waiting, "its move to go on", m.CreatedAt
	}
	if m.Words != "" {
		w.Notes = append(w.Notes, m.Words)
	}
	switch {
	case !s.Operator || s.Fenced == nil || s.Fenced.Proves():
	case s.Fenced.Former():
		w.Block("the host that it leaves was fenced before the database was restored: nothing is attached elsewhere by that proof", s.fenceHost())
	default:
		w.Block("the host that it leaves spoke again since it was fenced: nothing is attached elsewhere by that proof", s.fenceHost())
	}
	return true
}

// elsewhere is a server of which a guest runs where it should not.
func (s *ServerSituation) elsewhere(w *record.Why) {
	if !s.Operator {
		if len(s.Elsewhere) > 0 {
			w.Block("it may run already on another host; an administrator has to look")
		}
		return
	}
	for i, status := range s.Elsewhere {
		h := s.ElsewhereOn[i]
		w.Block("a guest of it runs where it should not, and holds its moves: "+status,
			record.Command{Run: "salvor why host:" + h.ID, For: "see what is known of that host"},
			record.Command{Run: "salvor fence " + h.ID + " --wait", For: "prove that host off, or end the guest there by its hypervisor"})
	}
}

// drift tells what somebody else than salvor changed of the guest, with the commands that end it.
func (s *ServerSituation) drift(w *record.Why) {
	for i, d := range s.Server.Drift {
		switch {
		case !s.Operator && i > 0:
		case !s.Operator && slices.ContainsFunc(s.Server.Drift, func(d Drift) bool { return d.Refuses }):
			w.Notes = append(w.Notes, "its host's administrator changed it beside salvor, so it may not be started now")
		case !s.Operator:
			w.Notes = append(w.Notes, "its host's administrator changed it beside salvor, so it may not be moved or rebuilt now")
		case d.Refuses:
			w.Problems = append(w.Problems, d.String()+": its guest is not started until that ends")
		case d.Disk:
			w.Problems = append(w.Problems, d.String()+": it goes on there, and it is not moved or rebuilt until that ends")
		default:
			w.Notes = append(w.Notes, "changed by someone other than salvor: "+d.String())
		}
		if !s.Operator {
			continue
		}
		for _, c := range s.ending(d) {
			if !slices.Contains(w.Next, c) { // a command that starts the server may have come after it already
				w.Next = append(w.Next, c)
			}
		}
	}
}

// place is where it lives: of a host that does not, it waits for somebody to fence it and to move its servers.
func (s *ServerSituation) place(w *record.Why) {
	srv, h := s.Server, s.Host
	switch {
	case h == nil && srv.State == Building && w.Job != nil:
	case h == nil:
		w.Notes = append(w.Notes, "it has no host")
	case !s.Operator && (h.Fenced || h.ForcedDown || !s.Life.Up):
		w.Block("its host does not answer; an administrator has to bring it back, or to move its servers away")
	case !s.Operator:
	case h.Fenced:
		s.fenced(w)
	case s.Cluster != nil && s.Cluster.Problem != "":
		w.Block("the cluster "+s.Cluster.Name+" that runs it does not answer: "+s.Cluster.Problem, whyHost(h))
	case !s.Life.Up:
		w.Block("its host "+h.Name+" is down"+record.Because(s.Life.Verdict), whyHost(h))
		if s.fenceable() {
			w.Next = append(w.Next, fenceCommand(h))
		}
	}
	if h == nil || !s.Operator {
		return
	}
	if !s.Life.RenewedAt.IsZero() {
		w.Contacts = append(w.Contacts, record.LastContact{From: "host", At: s.Life.RenewedAt, Text: h.Name + " renewed its lease", OK: s.Life.Up})
	}
	differs := slices.Contains([]Power{PowerOn, PowerOff}, srv.Wanted) && srv.Power != PowerUnknown && srv.Wanted != srv.Power && !srv.StandsStill()
	if w.Job == nil && s.Life.Up && differs {
		w.Problems = append(w.Problems, "it should be "+string(srv.Wanted)+" and was last seen "+string(srv.Power)+", and no operation works on that")
	}
}

// fenced is a server that is still on a host that is proven off.
func (s *ServerSituation) fenced(w *record.Why) {
	h, item := s.Host, s.Item
	again := record.Command{Run: "salvor evacuate run " + OrID(h), For: "move its servers to other hosts"}
	switch {
	case item == nil:
		w.Block("its host "+h.Name+" is fenced, and no plan moves it away", again)
	case item.NeedsConsent && !item.Consented && item.waitsForVariables():
		w.Block("its move waits for consent: its UEFI variables lie on host "+h.Name+" alone, and it would begin with new ones, without the boot entries and keys that it had",
			record.Command{Run: "salvor evacuate run " + OrID(h) + " --discard-variables", For: "move it; its UEFI variables are lost"})
	case item.NeedsConsent && !item.Consented:
		w.Block("its move waits for consent: its disk died with host "+h.Name+", and it can only be made anew from its image, which loses its data",
			record.Command{Run: "salvor evacuate run " + OrID(h) + " --reimage " + s.Server.label(), For: "make it anew elsewhere; its data are lost"})
	case item.Disposition == Cannot || item.Problem != "":
		w.Block("it stays on host "+h.Name+", which is fenced: "+cmp.Or(item.Problem, item.Why), again)
	default:
		w.Block("its host "+h.Name+" is fenced", again)
	}
}

// fenceHost is the command that fences the host of the server, or shows the state of its fence.
func (s *ServerSituation) fenceHost() record.Command {
	if !s.fenceable() {
		return whyHost(s.Host)
	}
	return fenceCommand(s.Host)
}

// fenceable tells whether a fence of the host can be requested. A host whose certificate was revoked needs an attestation by a
// person.
func (s *ServerSituation) fenceable() bool { return !s.HostBusy && !s.Host.Revoked }

func fenceCommand(h *Host) record.Command {
	return record.Command{Run: "salvor fence " + OrID(h) + " --wait", For: "prove that it is off, so that its servers may be moved"}
}

func whyHost(h *Host) record.Command {
	return record.Command{Run: "salvor why host:" + OrID(h), For: "see what is thought of its host"}
}

// aborts tells whether an operator can abort an open job of the server, so that `why` may print the command.
func (s *ServerSituation) aborts() bool {
	if s.Server.Metal() {
		return false
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		waits := j.State == job.Waiting || j.State == job.Undoing || j.Attempt > 0 || j.WaitFor != ""
		if j.State != job.Ended && waits && (j.Kind != JobMigrate || j.Action != LeaveSource) {
			return true
		}
	}
	return false
}
