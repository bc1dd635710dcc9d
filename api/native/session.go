package native

import (
	"context"
	"encoding/json"
	"net/http"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// Nodes reads machines.
type Nodes interface {
	// Node reads one by UUID or name.
	Node(ctx context.Context, ident string) (*metal.Node, error)
	List(ctx context.Context, f metal.NodeFilter, p record.Page) ([]*metal.Node, error)
	// Contacts reads what was heard of these nodes, keyed by node.
	Contacts(ctx context.Context, ids []string) (map[string]metal.Contact, error)
	// CheckAll checks every operation that works on a machine, with the runbooks that the asker sees.
	CheckAll(ctx context.Context, ident string, seen metal.RunbookFilter) (*metal.Node, []metal.OperationCheck, error)
	// Ask inserts the job of a question to the machine's controller; Answer waits for its result.
	Ask(ctx context.Context, ident string, q metal.Question, asker record.Asker) (string, error)
	Answer(ctx context.Context, id string) (json.RawMessage, error)
	// Diagnose begins a diagnosis; Diagnoses are the kept ones of a node, newest first. ConfirmDiagnosis takes a user's statement that the node works.
	Diagnose(ctx context.Context, ident string, args metal.DiagnoseArgs, asker record.Asker) (metal.Diagnosis, error)
	Diagnoses(ctx context.Context, tx job.Tx, nodeID string) ([]metal.Diagnosis, error)
	ConfirmDiagnosis(ctx context.Context, ident, id, words string, asker record.Asker) (metal.Diagnosis, error)
	// ConsoleLog is what was kept of a node's console.
	ConsoleLog(ctx context.Context, nodeID string) (metal.ConsoleLog, error)
	// Provision takes a verb of the provision state machine; word is what the asker wrote.
	Provision(ctx context.Context, ident string, v metal.Verb, word string, args metal.ProvisionArgs, asker record.Asker) error
}

// nodeSessions say which state of a session a provision state is.
var nodeSessions = []struct {
	provision metal.State
	session   rescue.State
}{
	{metal.Rescuing, rescue.Preparing}, {metal.RescueWait, rescue.Booting}, {metal.Rescue, rescue.Ready}, {metal.RescueFailed, rescue.Failed},
	{metal.Unrescuing, rescue.Leaving}, {metal.UnrescueFailed, rescue.Failed},
}

// sessionRoutes tell of rescues: administrators of all, everybody else of those of his project.
func (s *server) sessionRoutes() []api.Route {
	return []api.Route{
		{Method: http.MethodGet, Path: "/rescue-sessions", Do: s.sessions},
		{Method: http.MethodGet, Path: "/rescue-sessions/{ident}", Do: s.session},
	}
}

// sessions lists the open rescue sessions, of servers or of nodes: kind chooses, servers come first. A page holds one kind.
func (s *server) sessions(c *api.Call) error {
	switch kind := c.Query.Get("kind"); kind {
	case "", "server":
		return s.serverSessions(c, kind == "")
	case "node":
		return s.nodeSessions(c)
	default:
		return problem.Invalidf("Invalid value for kind: %.40q; want server or node.", kind)
	}
}

func (s *server) serverSessions(c *api.Call, nodesToo bool) error {
	if err := c.Permitted(s.Policy, access.ComputeRules+"servers:show"); err != nil {
		return err
	}
	f := compute.ServerFilter{InRescue: true}
	if !c.Admin() {
		if f.Project = c.Project(); f.Project == "" {
			return problem.Forbiddenf("Rescue sessions are told to administrators, and to members of the project of a server: name a project.")
		}
	}
	limit, err := pageSize(c)
	if err != nil {
		return err
	}
	found, err := s.Services.Servers.List(c.R.Context(), f, record.Page{Limit: limit, Marker: c.Query.Get("marker")})
	if err != nil {
		return err
	}
	out := []map[string]any{}
	for _, srv := range found {
		if srv.Rescue != nil {
			out = append(out, viewServerSession(s.serverEntryOf(c, srv)))
		}
	}
	answer := map[string]any{"rescue_sessions": out}
	if _, err := s.project(c); err != nil {
		nodesToo = false // to whom machines are not shown
	}
	switch {
	case len(found) == limit:
		c.Query.Set("marker", found[limit-1].ID)
		answer["next"] = c.Base + root + "/rescue-sessions?" + c.Query.Encode()
	case nodesToo && s.Nodes != nil:
		answer["next"] = c.Base + root + "/rescue-sessions?kind=node"
	}
	return c.JSON(http.StatusOK, answer)
}

func (s *server) nodeSessions(c *api.Call) error {
	project, err := s.project(c)
	if err != nil {
		return err
	}
	out := []map[string]any{}
	for _, in := range nodeSessions {
		marker := ""
		for {
			found, err := s.Nodes.List(c.R.Context(), metal.NodeFilter{ProvisionState: in.provision, Project: project}, record.Page{Limit: maxPage, Marker: marker})
			if err != nil {
				return err
			}
			for _, n := range found {
				out = append(out, viewNodeSession(s.entryOf(c, n), in.session))
			}
			if len(found) < maxPage {
				break
			}
			marker = found[maxPage-1].ID
		}
	}
	return c.JSON(http.StatusOK, map[string]any{"rescue_sessions": out})
}

// session shows the session of a server or a node that the asker may see, by UUID or name. A server comes first.
func (s *server) session(c *api.Call) error {
	ident := c.Arg("ident")
	srv, err := s.serverOf(c, ident, "servers:show")
	if err == nil && srv.Rescue != nil {
		return c.JSON(http.StatusOK, viewServerSession(s.serverEntryOf(c, srv)))
	}
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	n, other := s.nodeOf(c, ident)
	switch {
	case other == nil:
		for _, in := range nodeSessions {
			if n.ProvisionState == in.provision {
				return c.JSON(http.StatusOK, viewNodeSession(s.entryOf(c, n), in.session))
			}
		}
	case !problem.Is(other, problem.NotFound):
		return other
	}
	return problem.NotFoundf("%.255s has no rescue session, or is no server and no node.", ident)
}

// viewServerSession shows the session of a server with where it is reached.
func viewServerSession(srv *compute.Server) map[string]any {
	view := viewSession("server", srv.ID, srv.Name, srv.Rescue.State, srv.Rescue)
	view["addresses"] = srv.Addresses()
	return view
}

// viewNodeSession shows the session of a node with where it is reached, as far as that is known.
func viewNodeSession(n *metal.Node, state rescue.State) map[string]any {
	view := viewSession("node", n.ID, n.Name, state, n.Rescue)
	addresses := []string{}
	if n.Rescue != nil && n.Rescue.Addresses != nil {
		addresses = n.Rescue.Addresses
	}
	view["addresses"] = addresses
	view["left_out"] = []string{}
	if n.Rescue != nil && n.Rescue.LeftOut != nil {
		view["left_out"] = n.Rescue.LeftOut
	}
	return view
}

// viewSession shows a session; r may be nil where only its state is known.
func viewSession(kind, id, name string, state rescue.State, r *rescue.Session) map[string]any {
	view := map[string]any{"kind": kind, "id": id, "name": name, "state": state}
	if r == nil {
		return view
	}
	view["started_at"], view["expires_at"], view["fingerprint"] = timeOrNull(r.StartedAt), timeOrNull(r.ExpiresAt), r.Fingerprint
	view["host_key"], view["notice"] = r.HostKey, r.Notice
	view["saved_power"], view["saved_device"], view["image"] = r.Saved.Power, r.Saved.Device, r.Image
	if r.Source != nil {
		view["rescue_image"], view["digest"], view["image_kind"] = r.Source.ImageID, r.Source.Digest, r.Source.Kind
	}
	return view
}
