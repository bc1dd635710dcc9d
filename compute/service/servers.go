package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// Servers is the service of the records of servers: how they are made, change and end.
type Servers struct {
	*serviceCore
	reports   *GuestReports
	placement *hostPlacement
}

func noServer(ident any) error { return problem.NotFoundf("server %v could not be found", ident) }

// Server reads one by UUID; one that was deleted, or that who may not see, is NotFound.
func (s *Servers) Server(ctx context.Context, id string, who compute.Who) (*compute.Server, error) {
	return s.server(ctx, nil, id, who)
}

func (s *serviceCore) server(ctx context.Context, tx job.Tx, id string, who compute.Who) (*compute.Server, error) {
	if !record.IsUUID(id) {
		return nil, noServer(compute.TruncateText(id))
	}
	srv, err := s.store.Servers().Get(ctx, tx, strings.ToLower(id))
	if problem.Is(err, problem.NotFound) {
		return nil, noServer(id)
	}
	if err != nil {
		return nil, err
	}
	if srv.State == compute.Deleted || !who.Sees(srv.Project) {
		return nil, noServer(id)
	}
	return srv, nil
}

// ByNum reads one by its number, a deleted one too; one that who may not see is NotFound.
func (s *Servers) ByNum(ctx context.Context, num int64, who compute.Who) (*compute.Server, error) {
	srv, err := s.store.ServerByNum(ctx, nil, num)
	if problem.Is(err, problem.NotFound) || err == nil && !who.Sees(srv.Project) {
		return nil, noServer(num)
	}
	return srv, err
}

// List reads a page. It narrows by nobody's project: the caller sets ServerFilter.Project.
func (s *Servers) List(ctx context.Context, f compute.ServerFilter, p record.Page) ([]*compute.Server, error) {
	return s.store.Servers().List(ctx, nil, f, p)
}

// Marks reads the marks of a page.
func (s *Servers) Marks(ctx context.Context, f compute.ServerFilter, p record.Page) ([]record.Mark, error) {
	return s.store.Servers().Marks(ctx, f, p)
}

// Marked reads the servers of marks, by their Num.
func (s *Servers) Marked(ctx context.Context, nums []int64) (map[int64]*compute.Server, error) {
	return s.store.Servers().Marked(ctx, nums)
}

// Bounds of what users write.
const (
	maxName        = 255
	maxDescription = 255
	maxMetadata    = 128
	maxTags        = 50
	maxTag         = 60
)

// Update changes what users may write: name, description, metadata and tags. What else edit changes is not kept.
func (s *Servers) Update(ctx context.Context, id string, who compute.Who, edit func(*compute.Server) error) (*compute.Server, error) {
	var out *compute.Server
	err := s.change(ctx, func(tx job.Tx) error {
		srv, err := s.server(ctx, tx, id, who)
		if err != nil {
			return err
		}
		before, wish := *srv, *srv
		wish.Metadata, wish.Tags = maps.Clone(srv.Metadata), slices.Clone(srv.Tags)
		if err := edit(&wish); err != nil {
			return err
		}
		srv.Name, srv.Description, srv.Metadata, srv.Tags = strings.TrimSpace(wish.Name), wish.Description, wish.Metadata, wish.Tags
		if err := checkWords(srv); err != nil {
			return err
		}
		out = srv
		if err := s.save(tx, srv); err != nil {
			return err
		}
		changed := record.FieldNames{Unnamed: []string{"Version", "UpdatedAt"}}.Changed(&before, srv)
		if len(changed) == 0 {
			return nil
		}
		return s.note(tx, srv.ID, who.Asker, "request", compute.RecordUpdated+record.ListNames(changed))
	})
	return out, err
}

// checkWords holds what users write to its bounds.
func checkWords(s *compute.Server) error {
	switch {
	case s.Name == "" || len(s.Name) > maxName:
		return problem.Invalidf("name: a server's name has 1 to %d characters", maxName)
	case len(s.Description) > maxDescription:
		return problem.Invalidf("description is longer than %d characters", maxDescription)
	case len(s.Metadata) > maxMetadata:
		return problem.Invalidf("metadata: a server has at most %d items", maxMetadata)
	case len(s.Tags) > maxTags:
		return problem.Invalidf("tags: a server has at most %d", maxTags)
	}
	for k, v := range s.Metadata {
		if k == "" || len(k) > 255 || len(v) > 255 {
			return problem.Invalidf("metadata: keys have 1 to 255 characters, values at most 255")
		}
	}
	for i, tag := range s.Tags {
		if tag == "" || len(tag) > maxTag || strings.ContainsAny(tag, ",/") || slices.Contains(s.Tags[:i], tag) {
			return problem.Invalidf("tag %.70q: tags differ, have 1 to %d characters and neither comma nor slash", tag, maxTag)
		}
	}
	return nil
}

// Edit changes a server inside a conductor's transaction and tells a change of its state on the timeline.
func (s *Servers) Edit(ctx context.Context, tx job.Tx, id string, change func(*compute.Server)) error {
	_, err := s.edit(ctx, tx, id, change)
	return err
}

func (s *Servers) edit(ctx context.Context, tx job.Tx, id string, change func(*compute.Server)) (*compute.Server, error) {
	srv, err := s.store.Servers().Get(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	before, session, ran := srv.State, sessionState(srv), srv.Power == compute.PowerOn
	change(srv)
	if ran && srv.StandsStill() {
		srv.BeginStandstill(s.now())
	}
	if srv.Rescue != nil && srv.Rescue.State == rescue.Closed {
		srv.Rescue = nil // and with it its credential
	}
	if err := s.store.Servers().Save(tx, srv); err != nil {
		return nil, err
	}
	text := ""
	if srv.State != before {
		text = string(before) + " -> " + string(srv.State)
	}
	if now := sessionState(srv); now != session {
		text = strings.TrimPrefix(text+"; rescue "+compute.OrNone(session)+" -> "+compute.OrNone(now), "; ")
	}
	if text == "" {
		return srv, nil
	}
	e := job.Event{Subject: compute.Subject(id), Type: "state", Text: text, Severity: "info"}
	if srv.State == compute.Errored {
		e.Severity = "error"
	}
	return srv, s.jobs.Append(tx, e)
}

func sessionState(s *compute.Server) string {
	if s.Rescue == nil {
		return ""
	}
	return string(s.Rescue.State)
}

// Finish is Edit at the end of an operation that went well: the task is cleared after change. A deletion that was asked
// for meanwhile begins. The volumes of a server that is built become in use.
func (s *Servers) Finish(ctx context.Context, tx job.Tx, id string, change func(*compute.Server)) error {
	built := false
	srv, err := s.edit(ctx, tx, id, func(srv *compute.Server) {
		was := srv.State
		change(srv)
		if built = was == compute.Building && srv.State != compute.Building; built {
			srv.Fault = nil
		}
		clearTask(srv)
	})
	if err != nil {
		return err
	}
	if built && srv.State != compute.Deleted {
		if err := s.takeVolumes(ctx, tx, srv); err != nil {
			return err
		}
	}
	return s.beginDeletion(ctx, tx, srv)
}

// clearTask keeps a deletion that was asked for while another job ran.
func clearTask(s *compute.Server) {
	if s.Task != compute.Deleting || s.State == compute.Deleted {
		s.Task = compute.NoTask
	}
}

// Fail is Finish for a Definition's Failed. The server gets the problem as its fault, and is in Error unless only its power or a
// volume was concerned; the session of a rescue or an unrescue is Failed. change (nil: none) has the last word. No order outlives
// its job: those that the host has not carried out by now are void.
func (s *Servers) Fail(ctx context.Context, tx job.Tx, j *job.Job, change func(*compute.Server)) error {
	srv, err := s.edit(ctx, tx, j.Subject.ID, func(srv *compute.Server) {
		if srv.State == compute.Deleted {
			return
		}
		srv.Fault = &compute.Fault{Code: 500, Message: j.Problem, CreatedAt: s.now()}
		kind := compute.PlainKind(j.Kind)
		switch kind {
		case compute.JobReconcile: // it is tried again
		case compute.JobPower, compute.JobAttach, compute.JobDetach, compute.JobRestoreDisk:
			srv.Wanted = srv.Power
		default:
			srv.State = compute.Errored
		}
		if (kind == compute.JobRescue || kind == compute.JobUnrescue) && srv.InSession() {
			srv.Rescue.State = rescue.Failed
		}
		if kind == compute.JobDelete {
			srv.Task = compute.NoTask
		}
		if change != nil {
			change(srv)
		}
		srv.Epoch++
		clearTask(srv)
	})
	if err != nil {
		return err
	}
	if err := s.store.VoidOrders(tx, srv.ID, srv.Epoch); err != nil {
		return err
	}
	if err := s.volumeFailed(ctx, tx, j); err != nil {
		return err
	}
	return s.beginDeletion(ctx, tx, srv)
}

// beginDeletion inserts the job of a deletion that was asked for while another job ran, once nothing runs any more.
func (s *Servers) beginDeletion(ctx context.Context, tx job.Tx, srv *compute.Server) error {
	if srv.Task != compute.Deleting || srv.State == compute.Deleted {
		return nil
	}
	open, err := s.jobs.Unended(tx, compute.Subject(srv.ID))
	if err != nil {
		return err
	}
	for i := range open {
		if open[i].Class == job.Operation {
			return nil
		}
	}
	j, err := compute.NewJob(srv.ID, srv.JobKind(compute.JobDelete), nil, nil, record.Asker{})
	if err != nil {
		return err
	}
	return s.jobs.Insert(tx, j)
}

// Tend begins what nobody asks for: deletions that waited for another job, the watch of clusters, and the
// unrescue of expired sessions.
func (s *Actions) Tend(ctx context.Context) error {
	list, err := s.store.Servers().List(ctx, nil, compute.ServerFilter{Task: compute.Deleting}, record.Page{})
	if err != nil {
		return err
	}
	var failed []error
	for _, srv := range list {
		failed = append(failed, s.tendDeletion(ctx, srv.ID))
	}
	return errors.Join(append(failed, s.reconciler.WatchClusters(ctx), s.ExpireSessions(ctx))...)
}

func (s *Actions) tendDeletion(ctx context.Context, id string) error {
	return s.change(ctx, func(tx job.Tx) error {
		srv, err := s.store.Servers().Get(ctx, tx, id)
		if err != nil || srv.Task != compute.Deleting || srv.State == compute.Deleted {
			return ignoreNotFound(err)
		}
		open, err := s.jobs.Unended(tx, compute.Subject(id))
		if err != nil {
			return err
		}
		for i := range open {
			if compute.PlainKind(open[i].Kind) == compute.JobDelete {
				return nil
			}
		}
		free, err := s.supersede(tx, srv)
		if err != nil || !free {
			return err
		}
		if err := s.servers.beginDeletion(ctx, tx, srv); err != nil {
			return err
		}
		return s.save(tx, srv)
	})
}

func ignoreNotFound(err error) error {
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// save writes a server inside core.change.
func (c *serviceCore) save(tx job.Tx, srv *compute.Server) error {
	return conflictToChanged(c.store.Servers().Save(tx, srv))
}

func (c *serviceCore) note(tx job.Tx, id string, who record.Asker, kind, text string) error {
	return c.jobs.Append(tx, job.Event{Subject: compute.Subject(id), Type: kind, Text: text, Severity: "info", RequestID: who.RequestID, User: who.User})
}
