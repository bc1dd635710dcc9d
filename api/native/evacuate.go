package native

import (
	"context"
	"net/http"
	"strings"

	"salvor/api"
	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// Jobs tells of work that goes on; what it was asked with is not told.
type Jobs interface {
	Job(ctx context.Context, tx job.Tx, id string) (job.Job, error)
	Latest(ctx context.Context, s job.Subject, limit int) ([]job.Event, error)
	Unended(tx job.Tx, s job.Subject) ([]job.Job, error)
	Ticks(ctx context.Context, groups []string) (map[string]int64, error)
	Place(ctx context.Context, j job.Job) (*job.Place, error)
}

// maxHistory is how much of a host's timeline is told: the newest.
const maxHistory = 200

func (s *server) evacuation() []api.Route {
	return append(append(s.plans(), s.receipts()...),
		api.Route{Method: http.MethodGet, Path: "/moves", Do: s.moves().page},
		api.Route{Method: http.MethodGet, Path: "/moves/{ident}", Do: s.moves().one},
		api.Route{Method: http.MethodGet, Path: "/jobs/{ident}", Do: s.job},
		api.Route{Method: http.MethodGet, Path: "/hosts/{ident}/history", Do: s.hostHistory},
		api.Route{Method: http.MethodPost, Path: "/hosts/{ident}/fence", Do: s.fence},
		api.Route{Method: http.MethodPost, Path: "/hosts/{ident}/drain", Do: withoutBody(s.drain)},
		api.Route{Method: http.MethodPost, Path: "/hosts/{ident}/restore", Do: withoutBody(s.restore)},
		api.Route{Method: http.MethodPost, Path: "/hosts/{ident}/bring-home", Do: withoutBody(s.bringHome)},
	)
}

// fence begins a fence; how it ends is told by the job, and by the host.
func (s *server) fence(c *api.Call) error {
	var b struct {
		Attest   string                      `json:"attest"`
		Disputes []compute.ContradictionCode `json:"disputes"`
	}
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	id, err := s.Services.Fences.Fence(c.R.Context(), c.Arg("ident"), compute.FenceArgs{Words: b.Attest, Disputes: b.Disputes}, requesterOf(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, map[string]any{"job": id})
}

func (s *server) drain(c *api.Call) error {
	p, err := s.Services.Plans.Drain(c.R.Context(), c.Arg("ident"), requesterOf(c))
	if err != nil {
		return err
	}
	return s.showPlan(c, http.StatusAccepted, p)
}

func (s *server) restore(c *api.Call) error {
	h, err := s.Services.Plans.Restore(c.R.Context(), c.Arg("ident"), requesterOf(c))
	if err != nil {
		return err
	}
	views, err := s.viewHosts(c, []*compute.Host{h})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, views[0])
}

// bringHome moves the servers back that left a host.
func (s *server) bringHome(c *api.Call) error {
	p, err := s.Services.Plans.BringHome(c.R.Context(), c.Arg("ident"), requesterOf(c))
	if err != nil {
		return err
	}
	return s.showPlan(c, http.StatusAccepted, p)
}

func (s *server) job(c *api.Call) error {
	j, err := s.Jobs.Job(c.R.Context(), nil, c.Arg("ident"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{
		"id": j.ID, "kind": j.Kind, "subject": map[string]any{"kind": j.Subject.Kind, "id": j.Subject.ID}, "state": j.State, "action": j.Action,
		"waits_for": j.WaitFor, "problem": j.Problem, "user": j.User, "created_at": timeOrNull(j.CreatedAt), "ended_at": timeOrNull(j.EndedAt),
	})
}

func (s *server) hostHistory(c *api.Call) error {
	h, err := s.Services.Hosts.Host(c.R.Context(), c.Arg("ident"))
	if err != nil {
		return err
	}
	events, err := s.Jobs.Latest(c.R.Context(), compute.HostSubject(h.ID), maxHistory)
	if err != nil {
		return err
	}
	out := make([]map[string]any, len(events))
	for i, e := range events {
		out[i] = map[string]any{"at": timeOrNull(e.At), "type": e.Type, "severity": e.Severity, "text": e.Text, "user": e.User, "job": e.JobID}
	}
	return c.JSON(http.StatusOK, map[string]any{"events": out})
}

// hostOf reads the id of the host that a query names; empty where it names none.
func (s *server) hostOf(c *api.Call, ident string) (string, error) {
	return filterID(ident, func() (string, error) {
		h, err := s.Services.Hosts.Host(c.R.Context(), ident)
		if err != nil {
			return "", err
		}
		return h.ID, nil
	})
}

// filterID is the id of the record that a filter names by UUID or name; empty where the filter names none. A name that find does not know is refused. The
// record of a UUID may be gone while what came of the record is still listed.
func filterID(ident string, find func() (string, error)) (string, error) {
	if ident == "" {
		return "", nil
	}
	id, err := find()
	if problem.Is(err, problem.NotFound) && record.IsUUID(ident) {
		return strings.ToLower(ident), nil
	}
	return id, err
}

// hostNames reads the names of all hosts by their ids.
func (s *server) hostNames(c *api.Call) (map[string]string, error) {
	all, err := s.Services.Hosts.List(c.R.Context(), compute.HostFilter{WithLost: true}, record.Page{})
	out := make(map[string]string, len(all))
	for _, h := range all {
		out[h.ID] = h.Name
	}
	return out, err
}

func (s *server) receipts() []api.Route {
	fences := s.Services.Fences
	k := resourceCollection[compute.Receipt, compute.ReceiptFilter]{
		path: "/receipts", many: "receipts",
		list: func(c *api.Call, f compute.ReceiptFilter, p record.Page) ([]*compute.Receipt, error) {
			return fences.List(c.R.Context(), f, p)
		},
		filter: func(c *api.Call) (f compute.ReceiptFilter, err error) {
			if f.HostID, err = s.hostOf(c, c.Query.Get("host")); err != nil {
				return f, err
			}
			f.Open, err = parseBoolQuery(c, "open")
			return f, err
		},
		view: func(c *api.Call, all []*compute.Receipt) ([]map[string]any, error) {
			names, err := s.hostNames(c)
			out := make([]map[string]any, len(all))
			for i, r := range all {
				out[i] = viewReceipt(r)
				out[i]["host"] = names[r.HostID]
			}
			return out, err
		},
		id: func(r *compute.Receipt) string { return r.ID },
	}
	return []api.Route{{Method: http.MethodGet, Path: k.path, Do: k.page}}
}

func viewReceipt(r *compute.Receipt) map[string]any {
	return map[string]any{
		"id": r.ID, "number": r.Num, "host_id": r.HostID, "boot_id": r.BootID, "epoch": r.Epoch, "open": r.Open(), "proofs": r.Proofs, "by": r.By, "words": r.Words,
		"created_at": timeOrNull(r.CreatedAt), "closed_at": timeOrNull(r.ClosedAt), "closed": r.Closed, "back_boot_id": r.BackBootID,
	}
}

func (s *server) moves() resourceCollection[compute.Move, compute.MoveFilter] {
	moves := s.Services.Moves
	return resourceCollection[compute.Move, compute.MoveFilter]{
		path: "/moves", many: "moves",
		list: func(c *api.Call, f compute.MoveFilter, p record.Page) ([]*compute.Move, error) {
			status, err := oneOf(c, "status", compute.MoveStates...)
			if err != nil {
				return nil, err
			}
			return moves.ListByStatus(c.R.Context(), status, f, p)
		},
		get: func(c *api.Call, ident string) (*compute.Move, error) { return moves.Get(c.R.Context(), ident) },
		filter: func(c *api.Call) (f compute.MoveFilter, err error) {
			q := c.Query
			f.ServerID, err = filterID(q.Get("server"), func() (string, error) {
				srv, err := s.serverOf(c, q.Get("server"), "servers:show")
				if err != nil {
					return "", err
				}
				return srv.ID, nil
			})
			if err != nil {
				return f, err
			}
			if f.PlanID = strings.ToLower(q.Get("plan")); f.PlanID != "" && !record.IsUUID(f.PlanID) {
				return f, problem.NotFoundf("Plan %s could not be found: a plan is named by its UUID.", f.PlanID)
			}
			if f.State, err = oneOf(c, "state", compute.MoveStates...); err != nil {
				return f, err
			}
			if f.Kind, err = oneOf(c, "kind", compute.Evacuation, compute.LiveMigration, compute.Migration); err != nil {
				return f, err
			}
			if f.HostID, err = s.hostOf(c, q.Get("host")); err != nil {
				return f, err
			}
			if f.Open, err = parseBoolQuery(c, "open"); err != nil {
				return f, err
			}
			f.Uncleaned, err = parseBoolQuery(c, "uncleaned")
			return f, err
		},
		view: func(c *api.Call, all []*compute.Move) ([]map[string]any, error) {
			names, err := s.hostNames(c)
			out := make([]map[string]any, len(all))
			for i, m := range all {
				out[i] = viewMove(m, names)
			}
			return out, err
		},
		id: func(m *compute.Move) string { return m.ID },
	}
}

func viewMove(m *compute.Move, names map[string]string) map[string]any {
	return map[string]any{
		"id": m.ID, "number": m.Num, "server_id": m.ServerID, "kind": m.Kind, "state": m.State, "status": m.Status(), "disposition": m.Disposition,
		"source_id": m.SourceID, "source": names[m.SourceID], "destination_id": m.DestID, "destination": names[m.DestID],
		"receipt_id": m.ReceiptID, "plan_id": m.PlanID, "was_state": m.WasState, "was_power": m.WasPower, "clean_up": m.Clean, "words": m.Words, "problem": m.Problem,
		"user": m.User, "project": m.Project, "created_at": timeOrNull(m.CreatedAt), "updated_at": timeOrNull(m.UpdatedAt), "ended_at": timeOrNull(m.EndedAt),
	}
}
