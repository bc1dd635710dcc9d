package native

import (
	"context"
	"net/http"

	"salvor/api"
	"salvor/compute"
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
	// CheckAll checks every operation that works on a machine.
	CheckAll(ctx context.Context, ident string) (*metal.Node, []metal.OperationCheck, error)
}

// nodeSessions say which state of a session a provision state is.
var nodeSessions = []struct {
	provision metal.State
	session   rescue.State
}{
	{metal.Rescuing, rescue.Preparing}, {metal.RescueWait, rescue.Booting}, {metal.Rescue, rescue.Ready}, {metal.RescueFailed, rescue.Failed},
	{metal.Unrescuing, rescue.Leaving}, {metal.UnrescueFailed, rescue.Failed},
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
	found, err := s.Services.Servers.List(c.R.Context(), compute.ServerFilter{InRescue: true}, record.Page{Limit: maxPage, Marker: c.Query.Get("marker")})
	if err != nil {
		return err
	}
	out := []map[string]any{}
	for _, srv := range found {
		if srv.Rescue != nil {
			out = append(out, viewSession("server", srv.ID, srv.Name, srv.Rescue.State, srv.Rescue))
		}
	}
	answer := map[string]any{"rescue_sessions": out}
	at := c.Base + root + "/rescue-sessions?kind="
	switch {
	case len(found) == maxPage:
		answer["next"] = at + "server&marker=" + found[maxPage-1].ID
	case nodesToo && s.Nodes != nil:
		answer["next"] = at + "node"
	}
	return c.JSON(http.StatusOK, answer)
}

func (s *server) nodeSessions(c *api.Call) error {
	out := []map[string]any{}
	for _, in := range nodeSessions {
		marker := ""
		for {
			found, err := s.Nodes.List(c.R.Context(), metal.NodeFilter{ProvisionState: in.provision}, record.Page{Limit: maxPage, Marker: marker})
			if err != nil {
				return err
			}
			for _, n := range found {
				out = append(out, viewSession("node", n.ID, n.Name, in.session, n.Rescue))
			}
			if len(found) < maxPage {
				break
			}
			marker = found[maxPage-1].ID
		}
	}
	return c.JSON(http.StatusOK, map[string]any{"rescue_sessions": out})
}

// viewSession shows a session; r may be nil where only its state is known.
func viewSession(kind, id, name string, state rescue.State, r *rescue.Session) map[string]any {
	view := map[string]any{"kind": kind, "id": id, "name": name, "state": state}
	if r == nil {
		return view
	}
	view["started_at"], view["expires_at"], view["fingerprint"] = moment(r.StartedAt), moment(r.ExpiresAt), r.Fingerprint
	view["saved_power"], view["saved_device"], view["image"] = r.Saved.Power, r.Saved.Device, r.Image
	if r.Source != nil {
		view["rescue_image"], view["digest"], view["image_kind"] = r.Source.ImageID, r.Source.Digest, r.Source.Kind
	}
	return view
}
