package native

import (
	"context"
	"net/http"
	"time"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/rescue"
)

// answerPatience is how long a cluster may take to answer a question.
const answerPatience = 30 * time.Second

func (s *server) servers() []api.Route {
	return []api.Route{
		{Method: http.MethodPost, Path: "/servers/adopt", Do: s.adopt},
		{Method: http.MethodPost, Path: "/servers/{ident}/modify", Do: s.modify},
		{Method: http.MethodPost, Path: "/reconcile/servers", Do: s.reconcile},
		{Method: http.MethodGet, Path: "/rescue-sessions", Do: s.sessions},
	}
}

// adopt takes an instance of a cluster in.
func (s *server) adopt(c *api.Call) error {
	var b struct {
		Cluster string `json:"cluster"`
		compute.ClusterAdoptArgs
	}
	if err := c.ReadInto(&b); err != nil {
		return err
	}
	if b.Project == "" {
		b.Project = c.Project()
	}
	servers := s.Services.Servers
	question, err := servers.AskAdoption(c.R.Context(), b.Cluster, b.ClusterAdoptArgs, who(c))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), answerPatience)
	defer cancel()
	var answer compute.Adopted
	if err := servers.Answer(ctx, question, &answer); err != nil {
		return err
	}
	srv, err := servers.Server(c.R.Context(), answer.ServerID, who(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, viewServer(srv))
}

// reconcile compares the rescue of servers with what their clusters tell, and mends what differs if it is asked to.
func (s *server) reconcile(c *api.Call) error {
	var b struct {
		Cluster string `json:"cluster"`
		Fix     bool   `json:"fix_unsynced_rescue"`
	}
	if err := c.ReadInto(&b); err != nil {
		return err
	}
	servers := s.Services.Servers
	questions, err := servers.AskReconcile(c.R.Context(), b.Cluster, b.Fix, who(c))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), answerPatience)
	defer cancel()
	all := []compute.Unsynced{}
	for _, q := range questions {
		var found []compute.Unsynced
		if err := servers.Answer(ctx, q, &found); err != nil {
			return err
		}
		all = append(all, found...)
	}
	return c.JSON(http.StatusOK, map[string]any{"servers": all})
}

// modify is the specification's management command: only settings change, the server stays off.
func (s *server) modify(c *api.Call) error {
	var b struct {
		Action      string `json:"action"`
		RescueImage int64  `json:"rescue_image"`
	}
	if err := c.ReadInto(&b); err != nil {
		return err
	}
	act := compute.Act{MustBeOff: true, Restore: true, Rescue: rescue.Request{Image: b.RescueImage}}
	switch b.Action {
	case "rescue":
		act.Action = compute.Rescue
	case "unrescue":
		act.Action = compute.Unrescue
	default:
		return problem.Invalidf("Invalid value for action: %.40q; want rescue or unrescue.", b.Action)
	}
	srv, err := s.Services.Servers.Act(c.R.Context(), c.Arg("ident"), act, who(c))
	if err != nil {
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
	return viewSession("server", srv.ID, srv.Name, srv.Rescue.State, srv.Rescue)
}
