package native

import (
	"cmp"
	"net/http"
	"time"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// Bounds of a join token's life, in seconds.
const (
	tokenLife    = 3600
	maxTokenLife = 7 * 24 * 3600
)

func (s *server) hosts() []api.Route {
	hosts, tokens := s.Services.Hosts, s.Services.JoinTokens
	k := resourceCollection[compute.Host, compute.HostFilter]{
		path: "/hosts", many: "hosts",
		list: func(c *api.Call, f compute.HostFilter, p record.Page) ([]*compute.Host, error) {
			return hosts.List(c.R.Context(), f, p)
		},
		get: func(c *api.Call, ident string) (*compute.Host, error) { return hosts.Host(c.R.Context(), ident) },
		filter: func(c *api.Call) (f compute.HostFilter, err error) {
			f.Lost, err = parseBoolQuery(c, "lost")
			return f, err
		},
		view: s.viewHosts,
		id:   func(h *compute.Host) string { return h.ID },
	}
	t := resourceCollection[compute.JoinToken, compute.JoinTokenFilter]{
		path: "/join-tokens", many: "join_tokens",
		list: func(c *api.Call, f compute.JoinTokenFilter, p record.Page) ([]*compute.JoinToken, error) {
			return tokens.List(c.R.Context(), f, p)
		},
		get: func(c *api.Call, ident string) (*compute.JoinToken, error) { return tokens.Get(c.R.Context(), ident) },
		view: func(_ *api.Call, all []*compute.JoinToken) ([]map[string]any, error) {
			out := make([]map[string]any, len(all))
			for i, j := range all {
				out[i] = viewToken(j)
			}
			return out, nil
		},
		id: func(j *compute.JoinToken) string { return j.ID },
	}
	return append(t.routes(),
		api.Route{Method: http.MethodGet, Path: k.path, Do: k.page},
		api.Route{Method: http.MethodGet, Path: k.path + "/{ident}", Do: s.showHost},
		api.Route{Method: http.MethodPatch, Path: "/hosts/{ident}", Do: func(c *api.Call) error {
			var b struct {
				Disabled *bool   `json:"disabled"`
				Reason   *string `json:"disabled_reason"`
				Revoked  *bool   `json:"revoked"`
				Zone     *string `json:"zone"`
				Down     *bool   `json:"forced_down"`
				Node     *string `json:"node"` // UUID or name; empty: none
				Group    *string `json:"group"`
				Lost     *bool   `json:"lost"` // false: it was found again
			}
			if err := c.ReadExactly(&b); err != nil {
				return err
			}
			if b.Lost != nil && *b.Lost {
				return problem.Invalidf("Invalid input for field/attribute lost: a host becomes lost when it is removed with a reason: salvor host remove HOST --lost REASON")
			}
			node, err := s.nodeID(c, b.Node)
			if err != nil {
				return err
			}
			h, err := hosts.SetService(c.R.Context(), c.Arg("ident"), compute.Service{
				Disabled: b.Disabled, Reason: b.Reason, Revoked: b.Revoked, Zone: b.Zone, ForcedDown: b.Down, NodeID: node, Group: b.Group, Found: b.Lost != nil,
			}, c.Asker())
			if err != nil {
				return err
			}
			return k.show(c, http.StatusOK, h)
		}},
		api.Route{Method: http.MethodDelete, Path: "/hosts/{ident}", Do: func(c *api.Call) error {
			if err := hosts.Remove(c.R.Context(), c.Arg("ident"), c.Query.Get("lost"), c.Asker()); err != nil {
				return err
			}
			return c.Empty(http.StatusNoContent)
		}},
		api.Route{Method: http.MethodPost, Path: "/join-tokens", Do: s.issueToken},
		api.Route{Method: http.MethodDelete, Path: "/join-tokens/{ident}", Do: func(c *api.Call) error {
			if err := tokens.Remove(c.R.Context(), c.Arg("ident"), c.Asker()); err != nil {
				return err
			}
			return c.Empty(http.StatusNoContent)
		}},
	)
}

// issueToken makes a join token; its text is in this answer and nowhere else.
func (s *server) issueToken(c *api.Call) error {
	var b struct {
		Note      string `json:"note"`
		Host      string `json:"host"`
		ExpiresIn *int   `json:"expires_in"`
	}
	if err := c.ReadExactly(&b); err != nil {
		return err
	}
	life := tokenLife
	if b.ExpiresIn != nil {
		life = *b.ExpiresIn
	}
	if life < 1 || life > maxTokenLife {
		return problem.Invalidf("Invalid value for expires_in: %d; want 1 to %d seconds.", life, maxTokenLife)
	}
	if s.JoinToken == nil {
		return problem.Unsupportedf("VM hosts are not served: set [hosts]listen.")
	}
	j, clear, err := s.Services.JoinTokens.IssueFor(c.R.Context(), time.Duration(life)*time.Second, b.Note, b.Host, c.Asker())
	if err != nil {
		return err
	}
	view := viewToken(j)
	view["token"] = s.JoinToken(clear).Reveal()
	return c.JSON(http.StatusCreated, view)
}

func viewToken(j *compute.JoinToken) map[string]any {
	return map[string]any{
		"id": j.ID, "note": j.Note, "host": j.HostID, "expires_at": timeOrNull(j.ExpiresAt), "used_by": j.UsedBy, "used_at": timeOrNull(j.UsedAt), "created_at": timeOrNull(j.CreatedAt),
	}
}

// nodeID gives the UUID of the node that a host is said to be; empty: none, nil: it was not said.
func (s *server) nodeID(c *api.Call, ident *string) (*string, error) {
	if ident == nil || *ident == "" {
		return ident, nil
	}
	if s.Nodes == nil {
		return nil, problem.Unsupportedf("There are no nodes here.")
	}
	n, err := s.Nodes.Node(c.R.Context(), *ident)
	if err != nil {
		return nil, err
	}
	return &n.ID, nil
}

// viewHosts reads the lives, the fences and the moves of all hosts by one query each.
func (s *server) viewHosts(c *api.Call, all []*compute.Host) ([]map[string]any, error) {
	lives, err := s.Services.Liveness.All(c.R.Context())
	if err != nil {
		return nil, err
	}
	fences, err := s.fences(c)
	if err != nil {
		return nil, err
	}
	misplaced, err := s.misplaced(c)
	if err != nil {
		return nil, err
	}
	out := make([]map[string]any, len(all))
	for i, h := range all {
		life, state, status := lives[h.ID], "down", "enabled"
		if life.Up {
			state = "up"
		}
		if h.Disabled {
			status = "disabled"
		}
		f := fences.of(h.ID)
		out[i] = map[string]any{
			"id": h.ID, "number": h.Num, "name": h.Name, "kind": h.Kind, "cluster_id": h.ClusterID, "state": state, "status": status,
			"disabled": h.Disabled, "disabled_reason": h.DisabledReason, "forced_down": h.ForcedDown, "revoked": h.Revoked, "certificate_ends": timeOrNull(h.CertificateEnds), "zone": h.Zone,
			"node": h.NodeID, "group": h.Group, "fenced": f.view(), "suspected": life.Suspected, "thought": life.Verdict, "watchdog": life.Watchdog, "moves_open": f.open, "moves_uncleaned": f.uncleaned,
			"misplaced": len(misplaced[h.ID]), "misplaced_guests": append([]map[string]any{}, misplaced[h.ID]...),
			"lost": h.Lost, "lost_reason": h.LostReason, "lost_by": h.LostBy, "lost_at": timeOrNull(h.LostAt),
			"inventory": h.Inventory, "used_vcpus": h.UsedVCPUs, "used_ram_mib": h.UsedRAM, "used_disk_gib": h.UsedDisk, "quarantined_gib": h.Inventory.QuarantinedGiB(),
			"renewed_at": timeOrNull(life.RenewedAt), "servers": life.Servers, "drifted": life.Drifted, "created_at": timeOrNull(h.CreatedAt), "updated_at": timeOrNull(h.UpdatedAt),
		}
	}
	return out, nil
}

// misplaced shows the guests that run where they should not, by host.
func (s *server) misplaced(c *api.Call) (map[string][]map[string]any, error) {
	all, err := s.Services.GuestReports.MisplacedGuests(c.R.Context())
	out := map[string][]map[string]any{}
	for _, g := range all {
		out[g.HostID] = append(out[g.HostID], map[string]any{"server_id": g.ServerID, "boot_id": g.BootID, "epoch": g.Epoch,
			"incarnation": g.Incarnation, "power": g.Power, "since": timeOrNull(g.SeenAt)})
	}
	return out, err
}

func (s *server) clusters() []api.Route {
	clusters := s.Services.Clusters
	k := resourceCollection[compute.Cluster, compute.ClusterFilter]{
		path: "/clusters", many: "clusters",
		list: func(c *api.Call, f compute.ClusterFilter, p record.Page) ([]*compute.Cluster, error) {
			return clusters.List(c.R.Context(), f, p)
		},
		get: func(c *api.Call, ident string) (*compute.Cluster, error) { return clusters.Get(c.R.Context(), ident) },
		view: func(_ *api.Call, all []*compute.Cluster) ([]map[string]any, error) {
			out := make([]map[string]any, len(all))
			for i, r := range all {
				out[i] = map[string]any{
					"id": r.ID, "name": r.Name, "kind": cmp.Or(r.Kind, compute.GanetiCluster), "url": r.URL, "login": r.Login, "auth_url": r.AuthURL,
					"project": r.Project, "domain": r.Domain, "user": r.User, "insecure": r.Insecure, "problem": r.Problem,
					"created_at": timeOrNull(r.CreatedAt), "updated_at": timeOrNull(r.UpdatedAt),
				}
			}
			return out, nil
		},
		id: func(r *compute.Cluster) string { return r.ID },
	}
	return append(k.routes(),
		api.Route{Method: http.MethodPost, Path: "/clusters", Do: func(c *api.Call) error {
			var b struct {
				Name     string `json:"name"`
				URL      string `json:"url"`
				User     string `json:"user"`
				Password string `json:"password"`
				CA       string `json:"ca"`
				Insecure bool   `json:"insecure"`
				Kind     string `json:"kind"`
				Login    string `json:"login"`
				AuthURL  string `json:"auth_url"`
				Project  string `json:"project"`
				Domain   string `json:"domain"`
			}
			if err := c.ReadExactly(&b); err != nil {
				return err
			}
			r := &compute.Cluster{Name: b.Name, Kind: compute.ClusterKind(b.Kind), URL: b.URL, Login: b.Login, AuthURL: b.AuthURL, Project: b.Project, Domain: b.Domain, User: b.User, Password: secret.New(b.Password), CA: b.CA, Insecure: b.Insecure}
			if err := clusters.Create(c.R.Context(), r, c.Asker()); err != nil {
				return err
			}
			return k.show(c, http.StatusCreated, r)
		}},
		api.Route{Method: http.MethodDelete, Path: "/clusters/{ident}", Do: func(c *api.Call) error {
			if err := s.Services.Hosts.RemoveCluster(c.R.Context(), clusters, c.Arg("ident"), c.Query.Get("lost"), c.Asker()); err != nil {
				return err
			}
			return c.Empty(http.StatusNoContent)
		}},
	)
}
