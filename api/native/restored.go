package native

import (
	"context"
	"net/http"

	"salvor/api"
	"salvor/job"
	"salvor/record"
	"salvor/restored"
	"salvor/wire/native"
)

// Restored takes the decision about a restored database.
type Restored interface {
	Report(ctx context.Context) (*restored.Report, error)
	ReadAgain(ctx context.Context) error
	Release(ctx context.Context, w restored.Wanted, requester record.Asker) ([]string, error)
}

// RestoredPath is the path of these routes. Only they may change something at the request of a user while the database is held.
const RestoredPath = root + "/restored"

func (s *server) restoredRoutes() []api.Route {
	if s.Restored == nil {
		return nil
	}
	return []api.Route{
		{Method: http.MethodGet, Path: "/restored", Do: s.showRestored},
		{Method: http.MethodPost, Path: "/restored/read", Do: withoutBody(func(c *api.Call) error {
			if err := s.Restored.ReadAgain(c.R.Context()); err != nil {
				return err
			}
			return c.Empty(http.StatusAccepted)
		})},
		{Method: http.MethodPost, Path: "/restored/release", Do: s.releaseRestored},
	}
}

func (s *server) showRestored(c *api.Call) error {
	r, err := s.Restored.Report(c.R.Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, viewRestored(r))
}

func viewRestored(r *restored.Report) native.Restored {
	out := native.Restored{Jobs: []native.RestoredJob{}, Differences: []native.RestoredDifference{}, Witnesses: []native.RestoredWitness{}}
	for _, w := range r.Witnesses {
		out.Witnesses = append(out.Witnesses, native.RestoredWitness{Witness: w.Name, Incarnation: w.ID, Counter: w.Counter, Contradicts: w.Contradicts, Unreadable: w.Unreadable})
	}
	held := r.Incarnation.Held
	if held == nil {
		return out
	}
	out.Held = &native.RestoredHeld{Since: held.Since.UTC(), Code: held.Code, Words: held.Summary(), Detail: held.Detail}
	out.Machines, out.Read = r.Nodes, r.Read
	for i := range r.Jobs {
		o := &r.Jobs[i]
		out.Jobs = append(out.Jobs, native.RestoredJob{ID: o.ID, Kind: string(o.Kind), SubjectKind: o.Subject.Kind, SubjectID: o.Subject.ID, Subject: orID(o.Name, o.Subject),
			State: string(o.State), Action: o.Action, Tries: o.Attempt, AskedAt: o.CreatedAt.UTC(), AskedBy: o.User, RequestID: o.RequestID, Effects: o.Effects})
	}
	for _, d := range r.Differences {
		out.Differences = append(out.Differences, native.RestoredDifference{SubjectKind: d.Subject.Kind, SubjectID: d.Subject.ID, Subject: orID(d.Name, d.Subject), What: d.What,
			Recorded: d.Recorded, Found: d.Found, Unreadable: d.Unreadable, ReadAt: d.ReadAt.UTC(), Release: d.Release})
	}
	return out
}

func orID(name string, s job.Subject) string {
	if name != "" {
		return name
	}
	return s.ID
}

func (s *server) releaseRestored(c *api.Call) error {
	var b native.RestoredRelease
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	lines, err := s.Restored.Release(c.R.Context(), restored.Wanted{Decision: b.Decision, Unread: b.Unread}, c.Asker())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, native.RestoredReleased{Lines: lines})
}
