package compute

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/job"
	"salvor/record"
)

// Bounds of starting a crashed guest again. A server that crashes once more is in error, and its owner decides.
const (
	MaxRestarts   = 3
	RestartWindow = 10 * time.Minute
	// restartPause is the pause before the next try when a start failed.
	restartPause = 10 * time.Second
)

// recentRestarts are the tries that still count.
func (s *Server) recentRestarts(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(s.Restarts), func(at time.Time) bool { return now.Sub(at) >= RestartWindow })
}

// MayRestart tells whether a crashed guest may be started once more.
func (s *Server) MayRestart(now time.Time) bool { return len(s.recentRestarts(now)) < MaxRestarts }

// countRestart counts a try, and says in words which one it is.
func (s *Server) countRestart(now time.Time) string {
	s.Restarts = append(s.recentRestarts(now), now.UTC())
	return fmt.Sprintf("started again, try %d of %d in %s", len(s.Restarts), MaxRestarts, RestartWindow)
}

// EndRestarts puts a crashed server into error and tells its tries; last is why the last one failed, if that is known. The tries
// begin anew when somebody starts the server.
func (s *Server) EndRestarts(now time.Time, last string) {
	at := make([]string, len(s.Restarts))
	for i, t := range s.Restarts {
		at[i] = t.Format(time.TimeOnly)
	}
	s.State, s.Power, s.Wanted = Errored, PowerCrashed, PowerOff
	s.Fault = &Fault{Code: 500, CreatedAt: now.UTC(), Message: fmt.Sprintf("Instance %s crashed; it was started again %d times in %s (at %s UTC) and does not keep running%s. "+
		"Read its console log (salvor console log %s), then start it: salvor server reboot --hard %s", s.ID, len(s.Restarts), RestartWindow,
		strings.Join(at, ", "), record.Because(last), s.label(), s.label())}
	s.Restarts = nil
}

// restart starts a crashed guest again by a job, as any start goes, and counts the try. Where its host is fenced or forced down, or
// something else works on the server, it starts nothing.
func (s *Servers) restart(ctx context.Context, tx job.Tx, srv *Server, due time.Time, why string) error {
	host, err := s.store.Hosts().Get(ctx, tx, srv.HostID)
	if err != nil || host.Fenced || host.ForcedDown {
		return cmp.Or(err, errBusy)
	}
	if err := s.holdChange(ctx, tx, srv, true); err != nil {
		return orBusy(err)
	}
	j, err := newJob(srv.ID, JobReconcile, PowerArgs{Power: PowerOn, Why: why, Crashed: true}, nil, record.Asker{})
	if err != nil {
		return err
	}
	j.Due = due
	if err := s.jobs.Insert(tx, j); err != nil {
		return err
	}
	words := ""
	if _, err := s.edit(ctx, tx, srv.ID, func(srv *Server) {
		srv.Task, srv.Power = Reconciling, PowerCrashed
		words = srv.countRestart(s.now())
	}); err != nil {
		return err
	}
	return s.note(tx, srv.ID, record.Asker{}, "contact", why+": "+words)
}

// takeCrash takes in that a guest crashed which should run: it is started again, or had its tries.
func (s *Servers) takeCrash(ctx context.Context, tx job.Tx, srv *Server) error {
	if srv.MayRestart(s.now()) {
		return s.restart(ctx, tx, srv, time.Time{}, "found "+string(PowerCrashed))
	}
	_, err := s.edit(ctx, tx, srv.ID, func(srv *Server) { srv.EndRestarts(s.now(), "") })
	return err
}

// RestartLater starts a crashed guest again after a start of it failed, in the transaction that told so.
func (s *Servers) RestartLater(ctx context.Context, tx job.Tx, id, why string) error {
	srv, err := s.store.Servers().Get(ctx, tx, id)
	if err != nil || srv.Task != NoTask || srv.Wanted != PowerOn || !srv.steady() {
		return ignoreNotFound(err)
	}
	open, err := s.jobs.Unended(tx, Subject(id))
	if err != nil || slices.ContainsFunc(open, func(j job.Job) bool { return j.Class == job.Operation }) {
		return err
	}
	if err := s.restart(ctx, tx, srv, s.now().Add(restartPause), "the start failed ("+why+")"); err != errBusy {
		return err
	}
	return nil
}
