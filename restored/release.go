package restored

import (
	"context"
	"fmt"
	"time"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// Wanted is what an operator decided.
type Wanted struct {
	// Decision is AsItIs or EndOperations.
	Decision string
	// Unread: release although some machines were not read.
	Unread bool
}

// Release carries out the decision and ends the hold, in one transaction. It returns a line for each effect. Conductors work on the jobs, and end
// those that end, when they claim them.
func (s *Service) Release(ctx context.Context, w Wanted, asker record.Asker) ([]string, error) {
	if w.Decision != AsItIs && w.Decision != EndOperations {
		return nil, problem.Invalidf("Invalid decision %.40q about the open jobs: want %s or %s.", w.Decision, AsItIs, EndOperations)
	}
	var lines []string
	seen := s.seenWitnesses()
	err := s.store.Do(s.store.Long(ctx), func(tx job.Tx) error {
		p, err := s.look(ctx, tx, seen)
		if err != nil {
			return err
		}
		if lines, err = p.admit(w); err != nil {
			return err
		}
		return s.carryOut(ctx, tx, p, w.Decision, asker)
	})
	if err != nil {
		return nil, err
	}
	_, err = s.store.Incarnation(ctx) // so that this process sees the release at once
	return lines, err
}

// admit refuses a release too early, and returns its effects.
func (p *picture) admit(w Wanted) (lines []string, err error) {
	if p.Incarnation.Held == nil {
		return nil, problem.Conflictf("The database is not held: there is nothing to decide.")
	}
	if left := p.Nodes - p.Read; left > 0 && !w.Unread {
		return nil, problem.Conflictf("The database is not released: %d of %d machines were not read yet, so their differences are unknown. Wait, or give --unread with the release: salvor db restored --help", left, p.Nodes)
	}
	for i := range p.Jobs {
		o := &p.Jobs[i]
		lines = append(lines, fmt.Sprintf("%s: %s %s: %s", o.subject(), o.Kind, o.ID, o.Effects[w.Decision]))
	}
	for _, d := range p.Differences {
		lines = append(lines, fmt.Sprintf("%s: %s: recorded %s, found %s: %s", subjectName(d.Subject, d.Name), d.What, d.Recorded, found(d), d.Release))
	}
	if p.forgotten > 0 {
		lines = append(lines, fmt.Sprintf("power of %d nodes was not read in the last %.0f minutes: it becomes unknown; power sync records what it finds and switches none of them", p.forgotten, readingCounts.Minutes()))
	}
	for _, w := range p.Witnesses {
		if w.Contradicts != "" {
			lines = append(lines, fmt.Sprintf("witness %s: %s: that does not hold the database again", w.Name, w.Contradicts))
		}
	}
	return append(lines, fmt.Sprintf("epochs of servers, fences of hosts and boot numbers of nodes rise by at least %d, above those of earlier releases; boots and agent tokens that were open are void", record.NumberStep)), nil
}

func found(d record.Difference) string {
	if d.Unreadable != "" {
		return "nothing (" + d.Unreadable + ")"
	}
	return d.Found
}

func (o *OpenJob) subject() string { return subjectName(o.Subject, o.Name) }

func subjectName(s job.Subject, name string) string {
	if name == "" {
		name = s.ID
	}
	return s.Kind + " " + name
}

// carryOut writes the effects that admit returned.
func (s *Service) carryOut(ctx context.Context, tx job.Tx, p *picture, decision string, asker record.Asker) error {
	if err := s.store.FreeJobs(tx, record.NumberStep); err != nil {
		return err
	}
	for i := range p.Jobs {
		if err := s.decide(tx, &p.Jobs[i], decision, asker); err != nil {
			return fmt.Errorf("job %s: %w", p.Jobs[i].ID, err)
		}
	}
	err := s.eachNode(ctx, tx, func(nodes []*metal.Node, readings map[string]metal.HeldReading) error {
		for _, n := range nodes {
			if err := s.releaseNode(tx, n, p.power(n, readings[n.ID])); err != nil {
				return err
			}
		}
		return s.store.SaveNodes(tx, nodes)
	})
	if err == nil {
		err = s.servers.HeldDatabase.ReleaseServers(ctx, tx, p.guests, decision == EndOperations)
	}
	if err == nil {
		err = s.servers.HeldDatabase.ReleaseHosts(ctx, tx, p.Incarnation.ID)
	}
	for _, w := range p.Witnesses {
		if err == nil && w.Contradicts != "" {
			err = s.store.LoseWitness(tx, record.LostWitness{Name: w.Name, Witness: w.Witness, User: asker.User})
		}
	}
	if err != nil {
		return err
	}
	return s.store.ReleaseHold(tx)
}

// decide has a job go on or end.
func (s *Service) decide(tx job.Tx, o *OpenJob, decision string, asker record.Asker) (err error) {
	text := "goes on"
	switch {
	case o.causes[decision] != "":
		text, err = "is ended", s.store.EndWithoutUndo(tx, o.Job, o.causes[decision])
	case o.restarts():
		text, err = "begins again", s.store.RestartJob(tx, o.Job)
	default:
		err = s.store.Signal(tx, o.Subject) // the job must look again: the order that it waits for is void
	}
	if err != nil {
		return err
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
// older than readingCounts. Power sync switches no machine of unknown power. The recorded state stays if the driver reads no power. r is empty if
// the node was not read.
func (p *picture) power(n *metal.Node, r metal.HeldReading) metal.Power {
	switch {
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
