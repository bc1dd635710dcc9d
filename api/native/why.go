package native

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	wire "salvor/wire/native"
)

// Conductors tells who works.
type Conductors interface {
	Conductors(ctx context.Context) ([]metal.LiveConductor, error)
}

// whyRoutes say what a subject waits for, to all who may see it.
func (s *server) whyRoutes() []api.Route {
	return []api.Route{
		{Method: http.MethodGet, Path: "/nodes/{ident}/why", Do: s.whyNode},
		{Method: http.MethodGet, Path: "/nodes/{ident}/preflight", Do: s.preflightNode},
		{Method: http.MethodGet, Path: "/servers/{ident}/why", Do: s.whyServer},
		{Method: http.MethodGet, Path: "/hosts/{ident}/why", Do: s.whyHost},
	}
}

// nodeOf finds a node that the asker may see: any other is not there.
func (s *server) nodeOf(c *api.Call, ident string) (*metal.Node, error) {
	if s.Nodes == nil {
		return nil, problem.NotFoundf("There are no nodes here.")
	}
	n, err := s.Nodes.Node(c.R.Context(), ident)
	if err == nil && c.Principal.Role == access.Scoped && !s.Policy.Allows("node:get", c.Principal, nodeTarget(n)) {
		return nil, problem.NotFoundf("Node %s could not be found.", ident)
	}
	return n, err
}

func nodeTarget(n *metal.Node) access.Target { return access.Target{Owner: n.Owner, Lessee: n.Lessee} }

func (s *server) whyNode(c *api.Call) error {
	n, err := s.nodeOf(c, c.Arg("ident"))
	if err != nil {
		return err
	}
	ctx := c.R.Context()
	contacts, err := s.Nodes.Contacts(ctx, []string{n.ID})
	if err != nil {
		return err
	}
	at := metal.StatusInput{Node: s.entryOf(c, n), Contact: contacts[n.ID], Now: s.Now()}
	if at.Jobs, err = s.Jobs.Unended(nil, job.Node(n.ID)); err != nil {
		return err
	}
	var live []metal.LiveConductor
	if at.Conductors, live, err = s.conductors(ctx, n.ConductorGroup, at.Jobs); err != nil {
		return err
	}
	if s.Repairs != nil && s.mayRescueNode(c, n) {
		if at.Repairs, err = s.Repairs.Newest(ctx, n.ID); err != nil {
			return err
		}
	}
	at.Offered = slices.ContainsFunc(live, func(l metal.LiveConductor) bool {
		_, ok := l.Catalog.Driver(n.Driver)
		return ok
	})
	if c.Principal.Role == access.Scoped && !s.Policy.Allows("node:get:last_error", c.Principal, nodeTarget(n)) {
		at = at.Outside()
	}
	w := at.Why()
	return s.answerWhy(c, wire.Subject{Kind: "node", ID: n.ID, Name: n.Name}, &w)
}

// conductors reads the conductors of a group, and the place of a subject's leading job in the group's queue; live are the live conductors.
func (s *server) conductors(ctx context.Context, group string, jobs []job.Job) (record.Conductors, []metal.LiveConductor, error) {
	group = strings.ToLower(group)
	out := record.Conductors{Group: group, Owners: map[string]string{}}
	all, err := s.Conductors.Conductors(ctx)
	if err != nil {
		return out, nil, err
	}
	var live []metal.LiveConductor
	for _, one := range all {
		if one.Alive {
			out.Owners[one.Owner()] = one.Hostname
		}
		switch {
		case !slices.Contains(one.Groups, group):
		case one.Alive:
			live, out.Live = append(live, one), append(out.Live, one.Hostname)
		default:
			out.Dead = append(out.Dead, one.Hostname)
		}
	}
	ticks, err := s.Jobs.Ticks(ctx, []string{group})
	if err != nil {
		return out, live, err
	}
	out.Ticks = ticks[group]
	if lead := record.Lead(jobs); lead != nil {
		out.Queue, err = s.Jobs.Place(ctx, *lead)
	}
	return out, live, err
}

// serverOf finds a server that the asker may see, by UUID or by a name that only one has. rule is what the policy file may deny.
func (s *server) serverOf(c *api.Call, ident, rule string) (*compute.Server, error) {
	if err := c.Permitted(s.Policy, access.ComputeRules+rule); err != nil {
		return nil, err
	}
	ctx, requester := c.R.Context(), compute.Who{Asker: c.Asker(), Admin: c.Admin()}
	if !requester.Admin {
		requester.Project = c.Project()
		if requester.Project == "" {
			return nil, problem.NotFoundf("Server %s could not be found.", ident)
		}
	}
	if record.IsUUID(ident) {
		return s.Services.Servers.Server(ctx, ident, requester)
	}
	found, err := s.Services.Servers.List(ctx, compute.ServerFilter{Name: ident, Project: requester.Project}, record.Page{Limit: 2})
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, problem.NotFoundf("Server %s could not be found.", ident)
	case len(found) > 1:
		return nil, problem.Conflictf("Several servers are named %s: name one by its UUID.", ident)
	}
	return found[0], nil
}

func (s *server) whyServer(c *api.Call) error {
	srv, err := s.serverOf(c, c.Arg("ident"), "servers:show")
	if err != nil {
		return err
	}
	ctx := c.R.Context()
	at := compute.ServerSituation{Server: s.serverEntryOf(c, srv), Operator: c.Admin()}
	if at.Jobs, err = s.Jobs.Unended(nil, compute.Subject(srv.ID)); err != nil {
		return err
	}
	if at.Conductors, _, err = s.conductors(ctx, "", at.Jobs); err != nil {
		return err
	}
	moves, err := s.Services.Moves.List(ctx, compute.MoveFilter{ServerID: srv.ID, Open: true}, record.Page{Limit: 1})
	if err != nil {
		return err
	}
	if len(moves) > 0 {
		at.Move = moves[0]
	}
	if at.Elsewhere, at.ElsewhereOn, err = s.Services.GuestReports.Elsewhere(ctx, srv); err != nil {
		return err
	}
	if srv.HostID != "" {
		if err := s.readHost(ctx, &at); err != nil {
			return err
		}
	}
	w := at.Why()
	return s.answerWhy(c, wire.Subject{Kind: "server", ID: srv.ID, Name: srv.Name}, &w)
}

// readHost reads what there is of the host of a server.
func (s *server) readHost(ctx context.Context, at *compute.ServerSituation) error {
	h, err := s.Services.Hosts.Host(ctx, at.Server.HostID)
	if problem.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	at.Host = h
	open, err := s.Jobs.Unended(nil, compute.HostSubject(h.ID))
	if err != nil {
		return err
	}
	at.HostBusy = record.Lead(open) != nil
	if at.Life, at.Cluster, err = s.liveness(ctx, h); err != nil {
		return err
	}
	if !h.Fenced {
		return nil
	}
	if at.Fenced, err = s.openReceipt(ctx, h.ID); err != nil {
		return err
	}
	plan, err := s.newestPlan(ctx, h.ID)
	if err != nil || plan == nil {
		return err
	}
	if i := slices.IndexFunc(plan.Items, func(it compute.PlanItem) bool { return it.ServerID == at.Server.ID }); i >= 0 {
		at.Item = &plan.Items[i]
	}
	return nil
}

// liveness is how a host lives, and the cluster that drives it, if one does.
func (s *server) liveness(ctx context.Context, h *compute.Host) (compute.HostLiveness, *compute.Cluster, error) {
	lives, err := s.Services.Liveness.Of(ctx, []*compute.Host{h})
	if err != nil || h.ClusterID == "" {
		return lives[h.ID], nil, err
	}
	cl, err := s.Services.Clusters.Get(ctx, h.ClusterID)
	if problem.Is(err, problem.NotFound) {
		return lives[h.ID], nil, nil
	}
	return lives[h.ID], cl, err
}

func (s *server) openReceipt(ctx context.Context, hostID string) (*compute.Receipt, error) {
	found, err := s.Services.Fences.List(ctx, compute.ReceiptFilter{HostID: hostID, Open: true}, record.Page{Limit: 1})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// newestPlan is the newest plan of a host that was run; nil: there was none.
func (s *server) newestPlan(ctx context.Context, hostID string) (*compute.Plan, error) {
	plans, err := s.Services.Plans.List(ctx, compute.PlanFilter{HostID: hostID}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, p := range slices.Backward(plans) {
		if p.State != compute.PlanDrafted {
			return s.Services.Plans.Get(ctx, p.ID)
		}
	}
	return nil, nil
}

func (s *server) whyHost(c *api.Call) error {
	if !c.Admin() {
		return problem.NotFoundf("Host %s could not be found.", c.Arg("ident"))
	}
	ctx := c.R.Context()
	h, err := s.Services.Hosts.Host(ctx, c.Arg("ident"))
	if err != nil {
		return err
	}
	at := compute.HostSituation{Host: h, Now: s.Now()}
	if at.Life, at.Cluster, err = s.liveness(ctx, h); err != nil {
		return err
	}
	if at.Jobs, err = s.Jobs.Unended(nil, compute.HostSubject(h.ID)); err != nil {
		return err
	}
	if at.Conductors, _, err = s.conductors(ctx, "", at.Jobs); err != nil {
		return err
	}
	if at.Receipt, err = s.openReceipt(ctx, h.ID); err != nil {
		return err
	}
	if at.Receipt == nil {
		newest, err := s.newestFence(ctx, h)
		if err != nil {
			return err
		}
		at.Failure = newest.Problem
	}
	if at.Receipt != nil || h.ForcedDown {
		if err := s.readReceipt(ctx, &at); err != nil {
			return err
		}
	}
	all, err := s.Services.GuestReports.MisplacedGuests(ctx)
	if err != nil {
		return err
	}
	at.Misplaced = slices.DeleteFunc(all, func(g compute.GuestReport) bool { return g.HostID != h.ID })
	w := at.Why()
	return s.answerWhy(c, wire.Subject{Kind: "host", ID: h.ID, Name: h.Name}, &w)
}

// readReceipt reads what becomes of the servers of a host that is fenced.
func (s *server) readReceipt(ctx context.Context, at *compute.HostSituation) (err error) {
	if at.Plan, err = s.newestPlan(ctx, at.Host.ID); err != nil {
		return err
	}
	for _, which := range []struct {
		filter compute.MoveFilter
		count  *int
	}{{compute.MoveFilter{SourceID: at.Host.ID, Open: true}, &at.Going}, {compute.MoveFilter{SourceID: at.Host.ID, Uncleaned: true}, &at.Uncleaned}} {
		moves, err := s.Services.Moves.List(ctx, which.filter, record.Page{})
		if err != nil {
			return err
		}
		*which.count = len(moves)
	}
	return nil
}

func (s *server) answerWhy(c *api.Call, subject wire.Subject, w *record.Why) error {
	now := s.Now().UTC()
	if s.Stalled != nil {
		if trouble := s.Stalled(); trouble != "" {
			w.Problems, w.Status = append([]string{trouble}, w.Problems...), record.Stuck
		}
	}
	name := subject.Name
	if name == "" {
		name = subject.ID
	}
	out := wire.Why{
		Subject: subject, State: w.State, Since: utcOrNil(w.Since), Status: wire.Status(w.Status), Text: w.Text(subject.Kind, name, now),
		WaitsFor: w.WaitsFor, WaitsSince: utcOrNil(w.WaitsSince), Notes: append([]string{}, w.Notes...), Problems: append([]string{}, w.Problems...), Contacts: []wire.LastContact{}, Next: []wire.Command{}, Accepts: append([]string{}, w.Accepts...), At: now,
	}
	if j := w.Job; j != nil {
		out.Job = &wire.Job{ID: j.ID, Kind: string(j.Kind), State: string(j.State), Action: j.Action, Since: utcOrNil(j.ActionStartedAt), Attempt: j.Attempt,
			Crashes: j.Crashes, Conductor: w.Conductor, Problem: j.Problem, RequestID: j.RequestID, User: j.User, CreatedAt: j.CreatedAt.UTC()}
	}
	for _, word := range w.Contacts {
		out.Contacts = append(out.Contacts, wire.LastContact{From: word.From, At: utcOrNil(word.At), Text: word.Text, OK: word.OK})
	}
	if d := w.Deadline; d != nil {
		out.Deadline = &wire.Deadline{What: d.What, Seconds: d.Seconds, Running: d.Running, Then: d.Then}
	}
	for _, n := range w.Next {
		out.Next = append(out.Next, wire.Command{Run: n.Run, For: n.For})
	}
	if !c.Principal.SeesQuotations() {
		redactWhy(&out)
	}
	return c.JSON(http.StatusOK, out)
}

// redactWhy removes text of BMCs, agents and hosts.
func redactWhy(w *wire.Why) {
	w.Text, w.WaitsFor = problem.Redact(w.Text), problem.Redact(w.WaitsFor)
	for _, texts := range [][]string{w.Notes, w.Problems} {
		for i := range texts {
			texts[i] = problem.Redact(texts[i])
		}
	}
	for i := range w.Contacts {
		w.Contacts[i].Text = problem.Redact(w.Contacts[i].Text)
	}
	if w.Job != nil {
		w.Job.Problem = problem.Redact(w.Job.Problem)
	}
}

// utcOrNil is a time of an answer; nil for none.
func utcOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
