package native

import (
	"math"
	"net/http"
	"time"

	"salvor/access"
	"salvor/api"
	"salvor/compute"
	"salvor/compute/service"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// madePasswordLength is how many symbols a made password has: more than 110 random bits.
const madePasswordLength = 20

// nodeRescueRoutes rescue machines with what Ironic's request has no place for.
func (s *server) nodeRescueRoutes() []api.Route {
	return []api.Route{{Method: http.MethodPost, Path: "/nodes/{ident}/rescue", Do: s.rescueNode}}
}

// rescueNode asks for the rescue of a node. Without a password and a key it makes a password, and shows it in this answer only.
func (s *server) rescueNode(c *api.Call) error {
	var b struct {
		Password  secret.Value `json:"password"`
		Keys      []string     `json:"keys"`       // of ssh
		ExpiresIn int64        `json:"expires_in"` // seconds; 0: the session does not end by itself
	}
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	n, err := s.nodeOf(c, c.Arg("ident"))
	if err != nil {
		return err
	}
	if !s.mayRescueNode(c, n) {
		return problem.Forbiddenf("Access was denied to the following resource: baremetal:node:set_provision_state")
	}
	if b.ExpiresIn < 0 || b.ExpiresIn > math.MaxInt32 {
		return problem.Invalidf("Invalid value for expires_in: %d; want seconds.", b.ExpiresIn)
	}
	answer := map[string]any{"id": n.ID, "name": n.Name}
	if b.Password.Empty() && len(b.Keys) == 0 {
		if b.Password, err = service.NewPassword(madePasswordLength); err != nil {
			return err
		}
		answer["password"] = b.Password.Reveal()
	}
	args := metal.ProvisionArgs{RescuePassword: b.Password, RescueKeys: b.Keys, RescueLasts: time.Duration(b.ExpiresIn) * time.Second}
	if err := s.Nodes.Provision(c.R.Context(), n.ID, metal.ToRescue, string(metal.ToRescue), args, c.Asker()); err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, answer)
}

func (s *server) mayRescueNode(c *api.Call, n *metal.Node) bool {
	return s.Policy.Allows("node:set_provision_state", c.Principal, nodeTarget(n))
}

// mayEnterNode tells whether the asker may know how the rescue system of a node is entered: whoever may rescue it, and all members of the
// project that owns or leases it. A reader may not.
func (s *server) mayEnterNode(c *api.Call, n *metal.Node) bool {
	project := c.Project()
	return s.mayRescueNode(c, n) || c.Principal.Rank(false) >= access.Worker && project != "" && (project == n.Owner || project == n.Lessee)
}

// mayEnterServer is the same of a server that the asker may see.
func (s *server) mayEnterServer(c *api.Call) bool {
	return c.Principal.Rank(false) >= access.Worker && c.Permitted(s.Policy, access.ComputeRules+"os-rescue") == nil
}

// entryOf gives the session of a node as the asker may see it.
func (s *server) entryOf(c *api.Call, n *metal.Node) *metal.Node {
	if n.Rescue == nil || s.mayEnterNode(c, n) {
		return n
	}
	locked := *n
	locked.Rescue = n.Rescue.Locked()
	return &locked
}

// serverEntryOf is the same of a server.
func (s *server) serverEntryOf(c *api.Call, srv *compute.Server) *compute.Server {
	if srv.Rescue == nil || s.mayEnterServer(c) {
		return srv
	}
	locked := *srv
	locked.Rescue, locked.NICs = srv.Rescue.Locked(), nil
	return &locked
}
