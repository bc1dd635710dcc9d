package restored

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// The causes of jobs that an operator ended or dropped.
const (
	endedCause   = "ended: the database was restored"
	droppedCause = "dropped: the database was restored"
)

// Wanted are the options of a release.
type Wanted struct {
	// Rest is the choice for jobs without one; empty: every job must have one.
	Rest string
	// Unread: release although some machines were not read.
	Unread bool
	// DryRun: report the effects and change nothing.
	DryRun bool
}

// Release carries out the choices and ends the hold, in one transaction. It returns a line for each effect. Jobs that continue or
// are undone begin when conductors claim them.
func (s *Service) Release(ctx context.Context, w Wanted, asker record.Asker) ([]string, error) {
	if !slices.Contains([]string{"", record.ContinueJob, record.EndJob, record.DropJob}, w.Rest) {
		return nil, problem.Invalidf("Invalid choice %.40q for the rest: want continue, end or drop.", w.Rest)
	}
	if w.DryRun {
		p, err := s.look(ctx, nil)
		if err != nil {
			return nil, err
		}
		return p.admit(w)
	}
	var lines []string
	err := s.store.Do(s.store.Long(ctx), func(tx job.Tx) error {
		p, err := s.look(ctx, tx)
		if err != nil {
			return err
		}
		if lines, err = p.admit(w); err != nil {
			return err
		}
		return s.carryOut(ctx, tx, p, asker)
	})
	if err != nil {
		return nil, err
	}
	_, err = s.store.Incarnation(ctx) // so that this process sees the release at once
	return lines, err
}

// admit applies the choice for the rest, refuses the release if a decision is missing, and returns the effects of the release.
func (p *picture) admit(w Wanted) ([]string, error) {
	if err := heldOnly(p.Incarnation); err != nil {
		return nil, err
	}
	var lines, undecided, refusals []string
	for i := range p.Jobs {
		o := &p.Jobs[i]
		if o.Choice == "" && w.Rest != "" {
			if err := o.refuses(w.Rest); err != nil {
				refusals = append(refusals, err.Error())
				continue
			}
			o.Choice = w.Rest
		}
		if o.Choice == "" {
			undecided = append(undecided, fmt.Sprintf("%s (%s of %s)", o.ID, o.Kind, o.subject()))
			continue
		}
		if err := o.refuses(o.Choice); err != nil { // a later report of a host may have made the choice impossible
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s: %s %s: %s", o.subject(), o.Kind, o.ID, o.Effects[o.Choice]))
	}
	if len(undecided) > 0 {
		return nil, problem.Conflictf("The database is not released: %d open jobs have no choice: %s. Run: salvor db restored --continue JOB, --end JOB or --drop JOB for each, or salvor db restored --release --rest drop.",
			len(undecided), some(undecided))
	}
	if len(refusals) > 0 {
		return nil, problem.Conflictf("The database is not released: choose for %d open jobs first. %s", len(refusals), some(refusals))
	}
	if left := p.Nodes - p.Read; left > 0 && !w.Unread {
		return nil, problem.Conflictf("The database is not released: %d of %d machines were not read yet, so what differs there is not told. Wait, or run: salvor db restored --release --unread", left, p.Nodes)
	}
	for _, d := range p.Differences {
		name := d.Name
		if name == "" {
			name = d.Subject.ID
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s: recorded %s, found %s: %s", d.Subject.Kind, name, d.What, d.Recorded, found(d), d.Release))
	}
	if p.forgotten > 0 {
		lines = append(lines, fmt.Sprintf("power of %d nodes was not read in the last %.0f minutes: it becomes unknown; power sync records what it finds and switches none of them", p.forgotten, readingCounts.Minutes()))
	}
	return append(lines, fmt.Sprintf("epochs of servers, fences of hosts and boot numbers of nodes rise by at least %d, above those of earlier releases; boots and agent tokens that were open are void", record.NumberStep)), nil
}

func found(d record.Difference) string {
	if d.Unreadable != "" {
		return "nothing (" + d.Unreadable + ")"
	}
	return d.Found
}

func (o *OpenJob) subject() string {
	if o.Name != "" {
		return o.Subject.Kind + " " + o.Name
	}
	return o.Subject.Kind + " " + o.Subject.ID
}

// most bounds the items of a list in an error text.
const most = 20

func some(all []string) string {
	if len(all) > most {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", len(all)-most)
	}
	return strings.Join(all, ", ")
}

// carryOut writes the effects that admit returned.
func (s *Service) carryOut(ctx context.Context, tx job.Tx, p *picture, asker record.Asker) error {
	if err := s.store.FreeJobs(tx, record.NumberStep); err != nil {
		return err
	}
	for _, j := range p.others {
		if j.Kind == compute.JobWatch {
			continue
		}
		if err := s.store.DropJob(tx, j, problem.Conflictf(droppedCause)); err != nil { // nobody waits for its answer any more
			return err
		}
		if err := s.nodes.ShowDropped(ctx, tx, j, asker); err != nil {
			return err
		}
	}
	for i := range p.Jobs {
		if err := s.decide(ctx, tx, &p.Jobs[i], asker); err != nil {
			return fmt.Errorf("job %s: %w", p.Jobs[i].ID, err)
		}
	}
	// The choices for jobs may have changed their subjects, so all are read again.
	err := s.eachNode(ctx, tx, func(nodes []*metal.Node, readings map[string]metal.HeldReading) error {
		for _, n := range nodes {
			if err := s.releaseNode(tx, n, p.power(n, readings[n.ID])); err != nil {
				return err
			}
		}
		return s.store.SaveNodes(tx, nodes)
	})
	if err == nil {
		err = s.servers.HeldDatabase.ReleaseServers(ctx, tx, p.guests)
	}
	if err == nil {
		err = s.servers.HeldDatabase.ReleaseHosts(ctx, tx, p.Incarnation.ID)
	}
	if err != nil {
		return err
	}
	return s.store.ReleaseHold(tx)
}

func (s *Service) decide(ctx context.Context, tx job.Tx, o *OpenJob, asker record.Asker) error {
	text := ""
	switch o.Choice {
	case record.DropJob:
		o.SetCause(problem.Conflictf(droppedCause))
		if err := s.store.DropJob(tx, o.Job, problem.Conflictf(droppedCause)); err != nil {
			return err
		}
		if o.node != nil {
			return s.nodes.ShowDropped(ctx, tx, o.Job, asker)
		}
		return s.servers.HeldDatabase.ShowDropped(ctx, tx, o.Job)
	case record.EndJob:
		text = "is ended"
		if err := s.nodes.AbortJob(ctx, tx, o.Job, endedCause); err != nil {
			return err
		}
	case record.ContinueJob:
		text = "goes on"
		resume := func() error { return s.store.Signal(tx, o.Subject) } // the job must look again: the order that it waits for is void
		if o.restarts() {
			text, resume = "begins again", func() error { return s.store.RestartJob(tx, o.Job) }
		}
		if err := resume(); err != nil {
			return err
		}
	}
	return s.store.Append(tx, job.Event{Subject: o.Subject, At: s.now(), Type: "request", Severity: "info", JobID: o.ID, RequestID: asker.RequestID, User: asker.User,
		Text: fmt.Sprintf("the restored database was released: the %s that was open %s", o.Kind, text)})
}

// releaseNode changes a node and tells of its power. It does not save the node.
func (s *Service) releaseNode(tx job.Tx, n *metal.Node, power metal.Power) error {
	was := n.PowerState
	n.Released(power, s.now())
	if n.PowerState == was {
		return nil
	}
	text := fmt.Sprintf("power was recorded as %q and found as %q, which is recorded now", was, n.PowerState)
	if n.PowerState == metal.PowerUnknown {
		text = fmt.Sprintf("power was recorded as %q and not read shortly before, so it is unknown until power sync reads it", was)
	}
	return s.store.Append(tx, job.Event{Subject: job.Node(n.ID), At: s.now(), Type: "contact", Severity: "info", Text: "the restored database was released: " + text})
}

// power is the power state that the release records for a node: the state that was read, or unknown if the reading failed or is
// older than readingCounts. Power sync switches no machine of unknown power. The recorded state stays if the operator chose to
// enforce it, or if the driver reads no power. r is empty if the node was not read.
func (p *picture) power(n *metal.Node, r metal.HeldReading) metal.Power {
	switch {
	case p.choices[key(record.ChoiceOfNode, n.ID)] == record.EnforcePower:
		return n.PowerState
	case r.NodeID == "" || r.Facts.Unreadable[metal.FactPower] != "":
		return metal.PowerUnknown
	case r.Facts.Power == "":
		return n.PowerState
	case p.at.Sub(r.ReadAt).Abs() > readingCounts:
		return metal.PowerUnknown
	}
	return r.Facts.Power
}

// readingCounts is the maximum age of a power reading that the release records.
const readingCounts = 2 * time.Minute
