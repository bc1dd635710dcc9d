package compute

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/record"
)

// Bounds of starting a crashed guest again. A server that crashes once more is in error, and its owner decides.
const (
	MaxRestarts   = 3
	RestartWindow = 10 * time.Minute
)

// recentRestarts are the tries that still count.
func (s *Server) recentRestarts(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(s.Restarts), func(at time.Time) bool { return now.Sub(at) >= RestartWindow })
}

// MayRestart tells whether a crashed guest may be started once more.
func (s *Server) MayRestart(now time.Time) bool { return len(s.recentRestarts(now)) < MaxRestarts }

// CountRestart counts a try, and says in words which one it is.
func (s *Server) CountRestart(now time.Time) string {
	s.Restarts = append(s.recentRestarts(now), now.UTC())
	return fmt.Sprintf("started again, try %d of %d in %s", len(s.Restarts), MaxRestarts, RestartWindow)
}

// EndRestarts puts a crashed server into error and tells its tries; last is why the last one failed, if that is known. The tries
// begin anew when somebody starts the server.
func (s *Server) EndRestarts(now time.Time, last string) {
	at := make([]string, len(s.Restarts))
	for i, t := range s.Restarts {
		at[i] = record.Moment(t)
	}
	s.State, s.Power, s.Wanted = Errored, PowerCrashed, PowerOff
	s.Fault = &Fault{Code: 500, CreatedAt: now.UTC(), Message: fmt.Sprintf("Instance %s crashed; it was started again %d times in %s (at %s) and does not keep running%s. "+
		"Read its console log (salvor console log %s), then start it: salvor server reboot --hard %s", s.ID, len(s.Restarts), RestartWindow,
		strings.Join(at, ", "), record.Because(last), s.label(), s.label())}
	s.Restarts = nil
}
