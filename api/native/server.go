package native

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// answerPatience is how long a cluster may take to answer a question.
const answerPatience = 30 * time.Second

func (s *server) servers() []api.Route {
	return []api.Route{
		{Method: http.MethodPost, Path: "/servers/adopt", Do: s.adopt},
		{Method: http.MethodPost, Path: "/servers/{ident}/abort", Do: s.abort},
		{Method: http.MethodPost, Path: "/reconcile/servers", Do: s.reconcile},
	}
}

// ownServers are the routes for orders that members of a server's project may give.
func (s *server) ownServers() []api.Route {
	return []api.Route{{Method: http.MethodPost, Path: "/servers/{ident}/modify", Do: s.modify}}
}

// adopt takes an instance of a cluster in.
func (s *server) adopt(c *api.Call) error {
	var b struct {
		Cluster string `json:"cluster"`
		compute.ClusterAdoptArgs
	}
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	if b.Project == "" {
		b.Project = c.Project()
	}
	clusters := s.Services.Reconciler
	question, err := clusters.AskAdoption(c.R.Context(), b.Cluster, b.ClusterAdoptArgs, requesterOf(c))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), answerPatience)
	defer cancel()
	var answer compute.Adopted
	if err := clusters.Answer(ctx, question, &answer); err != nil {
		return err
	}
	srv, err := s.Services.Servers.Server(c.R.Context(), answer.ServerID, requesterOf(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, viewServer(srv))
}

// abort aborts the open operation of a server.
func (s *server) abort(c *api.Call) error {
	var b struct{}
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	srv, err := s.Services.Actions.Abort(c.R.Context(), c.Arg("ident"), requesterOf(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, viewServer(srv))
}

// reconcile compares the rescue of servers with what their clusters tell, and mends what differs if it is asked to.
func (s *server) reconcile(c *api.Call) error {
	var b struct {
		Cluster string `json:"cluster"`
		Fix     bool   `json:"fix_unsynced_rescue"`
	}
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	clusters, err := s.clustersNamed(c, b.Cluster)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), answerPatience)
	defer cancel()
	found, failed := make([][]compute.Unsynced, len(clusters)), make([]error, len(clusters))
	var wg sync.WaitGroup
	for i, cl := range clusters {
		wg.Go(func() { found[i], failed[i] = s.reconcileCluster(ctx, cl, b.Fix, requesterOf(c)) })
	}
	wg.Wait()
	all, problems := []compute.Unsynced{}, []map[string]any{}
	for i, cl := range clusters {
		if failed[i] != nil {
			s.Log.Warn("a cluster was not compared", "cluster", cl.Name, "error", failed[i])
			problems = append(problems, map[string]any{"cluster": cl.Name, "problem": api.UserText(failed[i], api.Of(c.R.Context()).ID)})
		}
		all = append(all, found[i]...)
	}
	return c.JSON(http.StatusOK, map[string]any{"servers": all, "clusters": problems})
}

// clustersNamed is the one of that name; all for none.
func (s *server) clustersNamed(c *api.Call, name string) ([]*compute.Cluster, error) {
	if name == "" {
		return s.Services.Clusters.List(c.R.Context(), compute.ClusterFilter{}, record.Page{})
	}
	one, err := s.Services.Clusters.Get(c.R.Context(), name)
	return []*compute.Cluster{one}, err
}

// reconcileCluster waits for one cluster: what others tell is told though this one is away.
func (s *server) reconcileCluster(ctx context.Context, cl *compute.Cluster, fix bool, requester compute.Who) (found []compute.Unsynced, err error) {
	questions, err := s.Services.Reconciler.AskReconcile(ctx, cl.ID, fix, requester)
	if err != nil || len(questions) == 0 {
		return nil, err
	}
	err = s.Services.Reconciler.Answer(ctx, questions[0], &found)
	return found, err
}

// modify is the specification's management command: only settings change, the server stays off.
func (s *server) modify(c *api.Call) error {
	var b struct {
		Action      string   `json:"action"`
		RescueImage int64    `json:"rescue_image"`
		ExpiresIn   int64    `json:"expires_in"` // seconds; 0: as configured
		Keys        []string `json:"keys"`       // of ssh, beside the server's own
	}
	srv, err := s.serverOf(c, c.Arg("ident"), "servers:show")
	if err != nil {
		return err
	}
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	if b.ExpiresIn < 0 || b.ExpiresIn > math.MaxInt32 {
		return problem.Invalidf("Invalid value for expires_in: %d; want seconds.", b.ExpiresIn)
	}
	act := compute.Act{MustBeOff: true, Restore: true, Rescue: rescue.Request{
		Image: b.RescueImage, Keys: b.Keys, Expires: time.Duration(b.ExpiresIn) * time.Second}}
	rule := "os-rescue"
	switch b.Action {
	case "rescue":
		act.Action = compute.Rescue
	case "unrescue":
		act.Action, rule = compute.Unrescue, "os-unrescue"
	default:
		return problem.Invalidf("Invalid value for action: %.40q; want rescue or unrescue.", b.Action)
	}
	if err := c.Permitted(s.Policy, access.ComputeRules+rule); err != nil {
		return err
	}
	asker := requesterOf(c)
	if !asker.Admin {
		asker.Project = c.Project()
	}
	if srv, err = s.Services.Actions.Act(c.R.Context(), srv.ID, act, asker); err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, viewServer(srv))
}

func viewServer(srv *compute.Server) map[string]any {
	return map[string]any{
		"id": srv.ID, "number": srv.Num, "name": srv.Name, "state": srv.State, "task": srv.Task, "power": srv.Power,
		"host_id": srv.HostID, "rescue": viewRescue(srv),
	}
}

// viewRescue is the session of a server; null without one.
func viewRescue(srv *compute.Server) any {
	if srv.Rescue == nil {
		return nil
	}
	return viewServerSession(srv)
}
