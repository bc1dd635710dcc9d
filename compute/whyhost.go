package compute

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"salvor/job"
	"salvor/record"
)

// HostSituation is all that is known of a host at one moment.
type HostSituation struct {
	Host       *Host
	Now        time.Time
	Life       HostLiveness
	Jobs       []job.Job // unended ones
	Conductors record.Conductors
	// Cluster drives it; nil: it runs "salvor host".
	Cluster *Cluster
	// Receipt is the open one; nil: it is not fenced.
	Receipt *Receipt
	// Plan is the newest that was run for it and has not been drafted only; nil: none.
	Plan *Plan
	// Going are the moves away from it that go on, Uncleaned those after which it has to clean up.
	Going, Uncleaned int
	// Misplaced are guests that run on it and should not.
	Misplaced []GuestReport
	// Failure is why its newest fence came to nothing; empty: it did not.
	Failure string
}

// certificateWorry is what is left of a certificate when its end is told. It is long over since when it should have been renewed.
const certificateWorry = 7 * 24 * time.Hour

// Why says what a host waits for.
func (s HostSituation) Why() record.Why {
	h := s.Host
	w := record.Why{}
	w.Work(s.Jobs, s.Conductors)
	w.State = s.state(&w)
	if left := h.CertificateEnds.Sub(s.Now); !h.CertificateEnds.IsZero() && !h.Revoked && left > 0 && left < certificateWorry {
		w.Problems = append(w.Problems, "its certificate ends at "+record.Moment(h.CertificateEnds)+" and was not renewed at half of its life: see the log of \"salvor host\" there")
	}
	if s.Failure != "" && w.Job == nil && s.Receipt == nil {
		w.Problems = append(w.Problems, "its newest fence came to nothing: "+s.Failure)
	}
	for i, g := range s.Misplaced {
		if i == maxListed {
			w.Problems = append(w.Problems, fmt.Sprintf("and %d more guests run on it that should not", len(s.Misplaced)-i))
			break
		}
		w.Block("guest "+g.ServerID+" runs on it and should not ("+g.power()+", epoch "+fmt.Sprint(g.Epoch)+")",
			record.Command{Run: "salvor why server:" + g.ServerID, For: "see where its server lives; end the guest here by its hypervisor, unless it is the right one"})
	}
	if len(h.Strays) > 0 {
		w.Problems = append(w.Problems, fmt.Sprintf("it has %s of which no record says what they do there: %s", formatCount(len(h.Strays), "guest", "guests"), strings.Join(h.Strays, ", ")))
	}
	s.addContacts(&w)
	if w.Job != nil && w.Status != record.Stuck {
		w.Next = append(w.Next, record.Command{Run: "salvor events host:" + OrID(h) + " --follow", For: "see what it does"})
	}
	w.AddConductors(s.Conductors)
	return w
}

// state gives the host's state in a word, and what follows from it.
func (s *HostSituation) state(w *record.Why) string {
	h, busy := s.Host, w.Job != nil
	switch {
	case h.Revoked:
		w.Block("its certificate was revoked: it is not heard", record.Command{Run: "salvor host token create --host " + h.ID, For: "let it join again, after its revocation is taken back"})
		return "revoked"
	case s.Receipt != nil:
		s.fenced(w)
		return "fenced"
	case h.ForcedDown:
		w.Block("someone said that it is down" + record.Because(h.ForcedDownBy))
		if s.Going+s.Uncleaned == 0 {
			w.Next = append(w.Next, record.Command{Run: "salvor host set " + OrID(h) + " --forced-down=false", For: "take that back"})
		} else {
			w.Problems = append(w.Problems, "before that can be taken back, it waits for "+AwaitedOf("", s.Going, s.Uncleaned))
		}
		if !busy {
			w.Next = append(w.Next, fenceCommand(h))
		}
		return "forced down"
	case !h.CertificateEnds.IsZero() && !s.Now.Before(h.CertificateEnds):
		w.Block("its certificate ended at "+record.Moment(h.CertificateEnds)+": it is not heard until it joins again",
			record.Command{Run: "salvor host token create --host " + h.ID, For: "make a token for it; give it there: salvor host --join TOKEN"})
		return "certificate ended"
	case s.Cluster != nil && s.Cluster.Problem != "":
		w.Block("the cluster "+s.Cluster.Name+" cannot be watched: "+s.Cluster.Problem, record.Command{Run: "salvor cluster list", For: "see how it is reached"})
		return "down"
	case s.Life.Suspected:
		w.Problems = append(w.Problems, "it is called dead: "+s.Life.Verdict)
		if !busy {
			w.Status, w.Next = record.Stuck, append([]record.Command{fenceCommand(h)}, w.Next...)
		}
		return "suspected to be dead"
	case !s.Life.Up && s.Life.RenewedAt.IsZero() && s.Cluster == nil:
		w.Block("it has joined and never renewed its lease: is \"salvor host\" running there?",
			record.Command{Run: "systemctl status salvor-host", For: "look, on that host"})
		return "silent"
	case !s.Life.Up:
		w.Problems = append(w.Problems, "its lease is not renewed"+record.Because(s.Life.Verdict))
		if !busy {
			w.Status, w.Next = record.Stuck, append([]record.Command{{Run: "systemctl status salvor-host", For: "look, on that host"}, fenceCommand(h)}, w.Next...)
		}
		return "silent"
	case h.Disabled:
		w.Notes = append(w.Notes, "it takes no new servers"+record.Because(h.DisabledReason))
		if !busy {
			w.Next = append(w.Next, record.Command{Run: "salvor host restore " + OrID(h), For: "take it back into service"})
		}
		return "up, disabled"
	}
	return "up"
}

// fenced is a host that is proven off: what must come before it is taken back.
func (s *HostSituation) fenced(w *record.Why) {
	h, r, p := s.Host, s.Receipt, s.Plan
	w.Since = r.CreatedAt
	var how []string
	for _, proof := range r.Proofs {
		how = append(how, string(proof.Evidence))
	}
	w.Notes = append(w.Notes, "it is proven off by "+strings.Join(how, " and "))
	if !r.Proves() {
		if r.Former() {
			w.Block("that was before the database was restored: nothing is attached elsewhere by that proof")
		} else {
			w.Block("it spoke again since: nothing more is attached elsewhere by that proof")
		}
		if w.Job == nil {
			w.Next = append(w.Next, fenceCommand(h))
		}
		return
	}
	running := ""
	if p != nil && p.State == PlanRunning {
		running = p.ID
	}
	if w.Job == nil || w.Job.Kind != JobEvacuate {
		w.WaitsFor, w.WaitsSince = AwaitedOf(running, s.Going, s.Uncleaned), r.CreatedAt
	}
	if w.Status != record.Stuck {
		w.Status = record.Waiting
	}
	asking, variables := p.unconsented(true), p.unconsented(false)
	switch {
	case running != "" || s.Going > 0 || w.Job != nil:
		w.Next = append(w.Next, record.Command{Run: "salvor evacuate show " + OrID(h), For: "see how far its servers are"})
	case len(asking) > 0:
		w.Block(formatCount(len(asking), "server waits", "servers wait")+" for consent to be made anew from an image, which loses data: "+strings.Join(asking, ", "),
			record.Command{Run: "salvor evacuate run " + OrID(h) + " --reimage " + asking[0], For: "make it anew elsewhere; its data are lost"})
	case len(variables) > 0:
		w.Block(formatCount(len(variables), "server waits", "servers wait")+" for consent to begin with new UEFI variables, because their own lie on this host alone: "+strings.Join(variables, ", "),
			record.Command{Run: "salvor evacuate run " + OrID(h) + " --discard-variables", For: "move them; their UEFI variables are lost"})
	case s.Life.Servers > 0:
		w.Block(formatCount(s.Life.Servers, "server is", "servers are")+" still on it, and no plan is run",
			record.Command{Run: "salvor evacuate plan " + OrID(h), For: "see what would become of them"},
			record.Command{Run: "salvor evacuate run " + OrID(h) + " --wait", For: "move them to other hosts"})
	default:
		w.Next = append(w.Next, record.Command{Run: "salvor host restore " + OrID(h), For: "take it back into service when it is mended"})
	}
}

// unconsented names the servers of a plan that lack consent: to be made anew from their image, or else to begin with new UEFI variables.
func (p *Plan) unconsented(reimage bool) (names []string) {
	if p == nil {
		return nil
	}
	for i := range p.Items {
		if it := &p.Items[i]; it.NeedsConsent && !it.Consented && it.MoveID == "" && it.waitsForVariables() != reimage {
			names = append(names, cmp.Or(it.Name, it.ServerID))
		}
	}
	return names
}

// AwaitedOf ends the sentence "a fenced host waits for ...": what must come before it is taken back. plan is one that runs.
func AwaitedOf(plan string, going, uncleaned int) string {
	var pending []string
	if plan != "" {
		pending = append(pending, "the end of plan "+plan)
	}
	if going > 0 {
		pending = append(pending, "the end of "+formatCount(going, "move", "moves"))
	}
	if uncleaned > 0 {
		pending = append(pending, "the host, to clean up after "+formatCount(uncleaned, "server that was moved", "servers that were moved"))
	}
	if len(pending) == 0 {
		return "the host to come back"
	}
	return strings.Join(pending, "; ")
}

// formatCount says how many there are of something.
func formatCount(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// addContacts adds what was last heard of the host and of its cluster.
func (s *HostSituation) addContacts(w *record.Why) {
	if at := s.Life.RenewedAt; !at.IsZero() {
		text := "renewed its lease"
		if s.Life.Watchdog != "" {
			text += ", with " + s.Life.Watchdog + " armed"
		}
		w.Contacts = append(w.Contacts, record.LastContact{From: "host", At: at, Text: text, OK: s.Life.Up})
	}
	if s.Receipt != nil && !s.Receipt.HeardAt.IsZero() {
		w.Contacts = append(w.Contacts, record.LastContact{From: "host", At: s.Receipt.HeardAt, Text: "the boot that was fenced was heard", OK: false})
	}
	if s.Receipt != nil && !s.Receipt.OtherHeardAt.IsZero() {
		w.Contacts = append(w.Contacts, record.LastContact{From: "host", At: s.Receipt.OtherHeardAt, Text: "boot " + s.Receipt.OtherBootID + ", which was not fenced, was heard", OK: false})
	}
	if s.Cluster != nil {
		w.Contacts = append(w.Contacts, record.LastContact{From: "cluster", Text: cmp.Or(s.Cluster.Problem, s.Cluster.Name+" answers"), OK: s.Cluster.Problem == ""})
	}
}
