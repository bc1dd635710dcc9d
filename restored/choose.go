package restored

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// restarts tells whether the job, if it continues, begins again at its first action, because the boot of its ramdisk is void. A
// rescue that has handed its credential over cannot restart: only a new request has a password.
func (o *OpenJob) restarts() bool {
	return o.node != nil && o.Class == job.Operation && o.State != job.Undoing && o.node.BootsRamdisk() && (o.Kind != "rescue" || !o.Secret.Empty()) &&
		o.Kind != metal.JobWriteRepair // it knows which disks are half-written
}

func (o *OpenJob) effects() map[string]string {
	at := "goes on at \"" + o.Action + "\""
	switch {
	case o.restarts():
		at = "begins again: the machine is switched off and booted into its ramdisk once more"
	case o.State == job.Undoing:
		at = "goes on to be undone"
	case o.Action == "":
		at = "begins"
	}
	out := map[string]string{
		record.ContinueJob: at,
		record.EndJob:      "fails; what it did is undone, which may switch the machine off",
	}
	switch {
	case o.node != nil:
		out[record.DropJob] = "is forgotten; no machine is touched"
		if o.Class == job.Operation {
			out[record.DropJob] += fmt.Sprintf("; the node is %q, in maintenance until you have looked", metal.DroppedState(o.node.ProvisionState))
		}
	case compute.CanDrop(&o.Job):
		out[record.DropJob] = "is forgotten; no host is asked for anything; the server shows the failure"
	}
	if o.Subject.Kind != job.Node("").Kind {
		out[record.EndJob] = "fails; what it did is undone"
	}
	if compute.CannotContinue(&o.Job, o.guest) != "" {
		delete(out, record.ContinueJob)
	}
	if compute.CannotEnd(&o.Job, o.guest) != "" {
		delete(out, record.EndJob)
	}
	return out
}

// refuses gives the reason why a choice is not possible; nil: it is possible.
func (o *OpenJob) refuses(choice string) error {
	if o.Effects[choice] != "" {
		return nil
	}
	action, why := "be dropped", "other records wait for it"
	switch choice {
	case record.ContinueJob:
		action, why = "go on", compute.CannotContinue(&o.Job, o.guest)
	case record.EndJob:
		action, why = "be ended", compute.CannotEnd(&o.Job, o.guest)
	}
	var can []string
	for _, other := range []string{record.ContinueJob, record.EndJob, record.DropJob} {
		if o.Effects[other] != "" {
			can = append(can, fmt.Sprintf("salvor db restored --%s %s", other, o.ID))
		}
	}
	return problem.Conflictf("Job %s (%s) cannot %s: %s. Run: %s", o.ID, o.Kind, action, why, strings.Join(can, ", or "))
}

// heldOnly returns an error if the database is not held.
func heldOnly(i record.Incarnation) error {
	if i.Held == nil {
		return problem.Conflictf("The database is not held: there is nothing to decide.")
	}
	return nil
}

// All names every job, or every node.
const All = "all"

// Choose stores a choice for jobs or nodes. A word names a job by its id, the beginning of its id, or its node or server; it names a
// node by name or UUID. "all" means all jobs without a choice, or all nodes.
func (s *Service) Choose(ctx context.Context, kind, choice string, which []string, asker record.Asker) error {
	return s.store.Do(ctx, func(tx job.Tx) error {
		p, err := s.look(ctx, tx)
		if err == nil {
			err = heldOnly(p.Incarnation)
		}
		if err != nil {
			return err
		}
		var ids []string
		switch {
		case kind == record.ChoiceOfJob && slices.Contains([]string{record.ContinueJob, record.EndJob, record.DropJob}, choice):
			ids, err = p.findJobs(choice, which)
		case kind == record.ChoiceOfNode && slices.Contains([]string{record.TakePower, record.EnforcePower}, choice):
			ids, err = s.findNodes(ctx, tx, which)
		default:
			err = problem.Invalidf("Invalid choice %.40q for a %.40q: want continue, end or drop for a job; take or enforce for a node.", choice, kind)
		}
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := s.store.SaveHeldChoice(tx, record.HeldChoice{Kind: kind, ID: id, Choice: choice, User: asker.User}); err != nil {
				return err
			}
		}
		return nil
	})
}

// shortID is the minimum length of a prefix that names a job.
const shortID = 8

func (p *picture) findJobs(choice string, which []string) ([]string, error) {
	var ids []string
	for _, word := range which {
		var found []OpenJob
		for _, o := range p.Jobs {
			if o.ID == word || len(word) >= shortID && strings.HasPrefix(o.ID, word) || o.Name == word && word != "" || o.Subject.ID == word ||
				word == All && o.Choice == "" && o.refuses(choice) == nil {
				found = append(found, o)
			}
		}
		if len(found) == 0 && word != All {
			return nil, problem.NotFoundf("No open job has the id %.60q, or is of a node or server of that name; run: salvor db restored", word)
		}
		for _, o := range found {
			if err := o.refuses(choice); err != nil {
				return nil, err
			}
			ids = append(ids, o.ID)
		}
	}
	return ids, nil
}

func (s *Service) findNodes(ctx context.Context, tx job.Tx, which []string) ([]string, error) {
	var ids []string
	for _, word := range which {
		if word != All {
			n, err := s.store.Node(ctx, tx, word)
			if err != nil {
				return nil, err
			}
			ids = append(ids, n.ID)
			continue
		}
		if err := s.eachNode(ctx, tx, func(nodes []*metal.Node, _ map[string]metal.HeldReading) error {
			for _, n := range nodes {
				ids = append(ids, n.ID)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// ReadAgain drops all readings, so that conductors read every machine again.
func (s *Service) ReadAgain(ctx context.Context) error {
	return s.store.Do(ctx, func(tx job.Tx) error { return s.store.DropReadings(tx) })
}
