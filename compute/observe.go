package compute

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// young is for how long after a change of a server a host's word on it may be older than the change.
const young = 3 * RenewEvery

// openObservations are the servers on which a look has come to no end: the host must not act on them by its own word. True: it should look
// again soon, for the server has changed so lately that what was seen may be older.
type openObservations map[string]bool

func (o openObservations) again() bool {
	for _, soon := range o {
		if soon {
			return true
		}
	}
	return false
}

// observe takes in what a host with an agent sees on it: all guests. What differs from what should be is mended by jobs.
// first: it is the first look after the host's start, whose guests are off because the host was.
func (s *Servers) observe(ctx context.Context, hostID string, guests []Guest, first bool) (openObservations, error) {
	host, err := s.store.Hosts().Get(ctx, nil, hostID)
	if err != nil {
		return nil, err
	}
	here, err := s.store.Servers().List(ctx, nil, ServerFilter{HostID: hostID}, pageOf(0))
	if err != nil {
		return nil, err
	}
	left := openObservations{}
	byID := make(map[string]*Guest, len(guests))
	for i := range guests {
		byID[guests[i].ID] = &guests[i]
	}
	for _, srv := range here {
		g := byID[srv.ID]
		v := srv.look(g, host.Kind, first)
		if v == (guestVerdict{}) {
			continue
		}
		if (v.settle || v.restart) && host.Kind == AgentHost && s.now().Sub(srv.UpdatedAt) < young {
			left[srv.ID] = true
			continue
		}
		err := s.mend(ctx, srv, g, host.Kind, first)
		if errors.Is(err, errBusy) {
			left[srv.ID] = false
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	return left, nil
}

// guestVerdict is what a look at a guest asks for.
type guestVerdict struct {
	power  Power // to be written; empty: as it is
	settle bool  // and the state with it: the guest did it, and that is taken
	mend   Power // to be made so by a job; empty: nothing
	// restart: the guest ended by itself, and mend begins it anew.
	restart bool
	// crashed: the guest crashed and should run; it is started again so many times as MaxRestarts says.
	crashed bool
	why     string
}

// steady tells whether the server is in a state that a look may change.
func (s *Server) steady() bool {
	return slices.Contains([]VMState{Active, Stopped, Paused, Suspended, Rescued}, s.State)
}

// look compares a server with its guest; nil: there is none.
func (s *Server) look(g *Guest, kind HostKind, first bool) guestVerdict {
	switch {
	case s.Task != NoTask || !s.steady() || s.Wanted == PowerUnknown:
		return guestVerdict{} // somebody works on it, or nobody knows how it should be
	case g == nil && kind == GanetiHost:
		return guestVerdict{} // it may be on its way to another node
	case g == nil:
		return guestVerdict{power: PowerOff, mend: s.Wanted, why: "its host knows no such guest"}
	case g.Epoch != 0 && g.Epoch > s.Epoch:
		return guestVerdict{}
	case g.Power == PowerUnknown:
		return guestVerdict{}
	case kind == GanetiHost:
		if g.Power == s.Power && (s.State == Rescued || (s.State == Active) == (g.Power == PowerOn)) {
			return guestVerdict{}
		}
		return guestVerdict{power: g.Power, settle: true, why: "so it is at its cluster"}
	case g.Power == s.Power && g.Power == s.Wanted:
		return guestVerdict{}
	case g.Power == s.Wanted:
		return guestVerdict{power: g.Power}
	}
	return s.differs(g.Power, first)
}

// differs judges a guest whose power is not the wanted one.
func (s *Server) differs(is Power, first bool) guestVerdict {
	off := is == PowerOff || is == PowerCrashed
	switch {
	case off && s.Wanted == PowerOn && first:
		return guestVerdict{power: is, mend: PowerOn, why: "its host has started again"}
	case is == PowerOff && s.Wanted == PowerOn && s.inReadySession():
		// A rescue system has its credential in memory only: it begins anew by a job, which unlocks it.
		return guestVerdict{power: is, mend: PowerOn, restart: true, why: "its rescue system ended or began again"}
	case is == PowerCrashed && s.Wanted == PowerOn:
		return guestVerdict{power: is, restart: true, crashed: true}
	case is == PowerCrashed && s.Power != PowerCrashed:
		return guestVerdict{power: is, settle: true, why: "it crashed"}
	case off && s.Power == PowerOn:
		return guestVerdict{power: is, settle: true, why: "its own system powered it off"}
	case is == PowerOn && s.Power != PowerOn && (s.Wanted == PowerOff || s.Wanted == PowerPaused || s.Wanted == PowerSaved):
		return guestVerdict{power: is, mend: s.Wanted, why: "it runs, though it should not"}
	case off && s.Wanted == PowerOn:
		return guestVerdict{power: is, mend: PowerOn, why: "it should run"}
	case is == s.Power:
		return guestVerdict{}
	}
	return guestVerdict{power: is} // paused by an I/O error, say: only an operator knows
}

// inReadySession tells whether it runs a rescue system that was given its credential.
func (s *Server) inReadySession() bool { return s.InSession() && s.Rescue.State == rescue.Ready }

// errBusy ends a look at a server on which somebody works by now.
var errBusy = errors.New("busy")

// orBusy turns the refusal of holdChange into errBusy, so the next observation tries again.
func orBusy(err error) error {
	if problem.Is(err, problem.Conflict) {
		return errBusy
	}
	return err
}

// mend looks again in a transaction and does what the verdict says; errBusy: somebody works on the server, and nothing was done.
func (s *Servers) mend(ctx context.Context, seen *Server, g *Guest, kind HostKind, first bool) error {
	err := s.change(ctx, func(tx job.Tx) error {
		open, err := s.jobs.Unended(tx, Subject(seen.ID))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(open, func(j job.Job) bool { return j.Class != job.Ask }) {
			return errBusy
		}
		srv, err := s.store.Servers().Get(ctx, tx, seen.ID)
		if err != nil {
			return err
		}
		v := srv.look(g, kind, first)
		if v == (guestVerdict{}) || srv.Version != seen.Version {
			return errBusy // what was seen may be older than what was done since
		}
		if v.crashed {
			return s.takeCrash(ctx, tx, srv)
		}
		if v.mend != "" {
			if host, err := s.store.Hosts().Get(ctx, tx, srv.HostID); err != nil || host.Fenced || host.ForcedDown {
				return cmp.Or(err, errBusy) // nothing is begun there any more
			}
			if v.mend == PowerOn {
				if err := s.holdChange(ctx, tx, srv, true); err != nil {
					return orBusy(err)
				}
			}
			j, err := newJob(srv.ID, JobReconcile, PowerArgs{Power: v.mend, Why: v.why}, nil, record.Asker{})
			if err != nil {
				return err
			}
			if err := s.jobs.Insert(tx, j); err != nil {
				return err
			}
		}
		return s.take(ctx, tx, srv.ID, v)
	})
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// take writes what a verdict says of the row.
func (s *Servers) take(ctx context.Context, tx job.Tx, id string, v guestVerdict) error {
	if _, err := s.edit(ctx, tx, id, func(srv *Server) {
		srv.Power = v.power
		if v.mend != "" {
			srv.Task = Reconciling
		}
		if v.settle {
			srv.Settle(v.power)
			if srv.Wanted = v.power; v.power == PowerCrashed {
				srv.Wanted = PowerOff
			}
		}
	}); err != nil {
		return err
	}
	if v.why == "" {
		return nil
	}
	return s.note(tx, id, record.Asker{}, "contact", "found "+string(v.power)+": "+v.why)
}
