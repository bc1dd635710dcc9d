package compute

import (
	"errors"
	"slices"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// PlanRequest asks for a plan.
type PlanRequest struct {
	// Host to empty, and Dest to fill, by UUID or name; no Dest: the best host for each server.
	Host, Dest string
	// Servers narrows the plan to these; empty: all of the host.
	Servers []string
	// Consent names servers that may be re-imaged: their data are lost. ReimageAll consents for all.
	Consent    []string
	ReimageAll bool
	// DiscardVariables consents to new UEFI variables for servers whose variables lie on their host alone.
	DiscardVariables bool
	// Drain: the host lives.
	Drain bool
	// Parallel is how many are moved at a time; 0: as the host's group says.
	Parallel int
}

// PlanConsent says what the servers of a plan may lose.
type PlanConsent struct {
	// Servers, by UUID, may be re-imaged.
	Servers []string
	// DiscardVariables: all may begin with new UEFI variables.
	DiscardVariables bool
}

// ApplyConsent takes consent in.
func (p *Plan) ApplyConsent(consent PlanConsent) error {
	for i := range p.Items {
		if item := &p.Items[i]; consent.DiscardVariables {
			item.MayLoseVariables = true
			item.Consented = item.Consented || item.NeedsConsent && item.waitsForVariables()
		}
	}
	for _, id := range consent.Servers {
		i := slices.IndexFunc(p.Items, func(item PlanItem) bool { return item.ServerID == id })
		if i < 0 {
			return problem.Invalidf("plan %s has no server %s", p.ID, TruncateText(id))
		}
		p.Items[i].Consented = p.Items[i].Consented || p.Items[i].NeedsConsent
	}
	return nil
}

// NewJob is the one that runs the plan.
func (p *Plan) NewJob(who Who) (*job.Job, error) {
	kind := JobEvacuate
	if p.Drain {
		kind = JobDrain
	}
	j, err := NewJob("", kind, EvacuateArgs{PlanID: p.ID}, nil, who.Asker)
	if err == nil {
		j.Subject = HostSubject(p.HostID)
	}
	return j, err
}

// ReasonToStay is what the owner of a server that is not moved must know; empty: it is moved.
func (i *PlanItem) ReasonToStay() string {
	switch {
	case i.Disposition == Cannot:
		return "its host is being evacuated, and it stays: " + i.Why
	case !i.Consented && (i.NeedsConsent || i.Disposition == Reimage):
		return "its host is being evacuated, and it stays: " + i.Why + ". That needs consent"
	}
	return ""
}

// waitsForVariables tells whether the consent that a server needs is to the loss of its UEFI variables, and not of its data.
func (i *PlanItem) waitsForVariables() bool { return i.LosesVariables && i.Disposition != Reimage }

// ApplyMoves notes what became of each item's move. The newest counts.
func (p *Plan) ApplyMoves(moves []*Move) {
	newest := make(map[string]*Move, len(moves))
	for _, m := range moves {
		if was := newest[m.ServerID]; was == nil || was.Num < m.Num {
			newest[m.ServerID] = m
		}
	}
	for i := range p.Items {
		if m := newest[p.Items[i].ServerID]; m != nil {
			p.Items[i].MoveID, p.Items[i].Problem = m.ID, m.Problem
			if m.DestID != "" {
				p.Items[i].DestID = m.DestID
			}
		}
	}
}

// Progress is how far a plan that is run has come.
type Progress struct {
	Plan *Plan
	// Next are the items whose moves may begin now, in order; Going counts those that go on.
	Next  []PlanItem
	Going int
}

// Home tells whether the plan brings servers back to its host.
func (p *Plan) Home() bool {
	return p.Drain && len(p.Items) > 0 && p.Items[0].DestID == p.HostID
}

// Transient tells whether a move that could not begin may be asked for again.
func Transient(err error) bool {
	return errors.Is(err, ErrServerBusy) || errors.Is(err, record.ErrChanged) || problem.Is(err, problem.Unavailable)
}

// AskerOf is who asked for a job.
func AskerOf(j *job.Job) record.Asker { return record.Asker{RequestID: j.RequestID, User: j.User} }
