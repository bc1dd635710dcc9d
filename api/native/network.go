package native

import (
	"net/http"

	"salvor/api"
	"salvor/compute"
	"salvor/record"
)

// networkBody is the body of a creation and of a change; what is absent stays as it is.
type networkBody struct {
	Name    *string   `json:"name"`
	Project *string   `json:"project"`
	Bridge  *string   `json:"bridge"`
	CIDR    *string   `json:"cidr"`
	Gateway *string   `json:"gateway"`
	First   *string   `json:"first"`
	Last    *string   `json:"last"`
	DNS     *[]string `json:"dns"`
	MTU     *int      `json:"mtu"`
	Shared  *bool     `json:"shared"`
}

func (b *networkBody) fill(n *compute.Network) error {
	for from, to := range map[*string]*string{
		b.Name: &n.Name, b.Project: &n.Project, b.Bridge: &n.Bridge, b.CIDR: &n.CIDR, b.Gateway: &n.Gateway, b.First: &n.First, b.Last: &n.Last,
	} {
		if from != nil {
			*to = *from
		}
	}
	if b.DNS != nil {
		n.DNS = *b.DNS
	}
	if b.MTU != nil {
		n.MTU = *b.MTU
	}
	if b.Shared != nil {
		n.Shared = *b.Shared
	}
	return nil
}

func (s *server) networks() []api.Route {
	networks := s.Services.Networks
	k := resourceCollection[compute.Network, compute.NetworkFilter]{
		path: "/networks", many: "networks",
		list: func(c *api.Call, f compute.NetworkFilter, p record.Page) ([]*compute.Network, error) {
			return networks.List(c.R.Context(), f, p)
		},
		get: func(c *api.Call, ident string) (*compute.Network, error) { return networks.Get(c.R.Context(), ident) },
		filter: func(c *api.Call) (compute.NetworkFilter, error) {
			return compute.NetworkFilter{Name: c.Query.Get("name")}, nil
		},
		view: func(_ *api.Call, all []*compute.Network) ([]map[string]any, error) {
			out := make([]map[string]any, len(all))
			for i, n := range all {
				dns := n.DNS
				if dns == nil {
					dns = []string{}
				}
				out[i] = map[string]any{
					"id": n.ID, "number": n.Num, "name": n.Name, "project": n.Project, "bridge": n.Bridge, "cidr": n.CIDR, "gateway": n.Gateway,
					"first": n.First, "last": n.Last, "dns": dns, "mtu": n.MTU, "shared": n.Shared,
					"created_at": timeOrNull(n.CreatedAt), "updated_at": timeOrNull(n.UpdatedAt),
				}
			}
			return out, nil
		},
		id: func(n *compute.Network) string { return n.ID },
	}
	return append(k.routes(),
		api.Route{Method: http.MethodPost, Path: "/networks", Do: func(c *api.Call) error {
			var b networkBody
			if err := c.ReadExactly(&b); err != nil {
				return err
			}
			n := &compute.Network{}
			if err := b.fill(n); err != nil {
				return err
			}
			if err := networks.Create(c.R.Context(), n, c.Asker()); err != nil {
				return err
			}
			return k.show(c, http.StatusCreated, n)
		}},
		api.Route{Method: http.MethodPatch, Path: "/networks/{ident}", Do: func(c *api.Call) error {
			var b networkBody
			if err := c.ReadExactly(&b); err != nil {
				return err
			}
			n, err := networks.Update(c.R.Context(), c.Arg("ident"), c.Asker(), b.fill)
			if err != nil {
				return err
			}
			return k.show(c, http.StatusOK, n)
		}},
		api.Route{Method: http.MethodDelete, Path: "/networks/{ident}", Do: func(c *api.Call) error {
			if err := networks.Remove(c.R.Context(), c.Arg("ident"), c.Asker()); err != nil {
				return err
			}
			return c.Empty(http.StatusNoContent)
		}},
	)
}
