package native

import (
	"cmp"
	"net/http"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

// hostGroup is the body of a creation and of a change; what is absent stays as it is.
type hostGroup struct {
	Name      *string             `json:"name"`
	Healing   *bool               `json:"healing"`
	SelfFence *bool               `json:"self_fence"`
	Require   *[]compute.Evidence `json:"require"`
	Reimage   *string             `json:"reimage"`
	Variables *string             `json:"variables"`
	MaxHosts  *int                `json:"max_hosts"`
	MaxShare  *int                `json:"max_share"`
	Parallel  *int                `json:"parallel"`
}

func (b *hostGroup) fill(g *compute.HostGroup) error {
	for name, n := range map[string]*int{"max_hosts": b.MaxHosts, "max_share": b.MaxShare, "parallel": b.Parallel} {
		if n != nil && *n < 1 {
			return problem.Invalidf("Invalid input for field/attribute %s: %d is less than 1; leave it out for what is usual. A group whose hosts are not healed has healing false.", name, *n)
		}
	}
	if b.Reimage != nil && *b.Reimage == "" {
		return problem.Invalidf("Invalid input for field/attribute reimage: want ask, never or always; leave it out for ask.")
	}
	if b.Variables != nil && *b.Variables == "" {
		return problem.Invalidf("Invalid input for field/attribute variables: want ask or discard; leave it out for ask.")
	}
	setIfPresent(&g.Name, b.Name)
	setIfPresent(&g.Healing, b.Healing)
	setIfPresent(&g.SelfFence, b.SelfFence)
	setIfPresent(&g.Require, b.Require)
	setIfPresent((*string)(&g.Reimage), b.Reimage)
	setIfPresent((*string)(&g.Variables), b.Variables)
	setIfPresent(&g.MaxHosts, b.MaxHosts)
	setIfPresent(&g.MaxShare, b.MaxShare)
	setIfPresent(&g.Parallel, b.Parallel)
	return nil
}

func setIfPresent[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func (s *server) hostGroups() []api.Route {
	groups := s.Services.HostGroups
	k := resourceCollection[compute.HostGroup, compute.HostGroupFilter]{
		path: "/host-groups", many: "host_groups",
		list: func(c *api.Call, f compute.HostGroupFilter, p record.Page) ([]*compute.HostGroup, error) {
			return groups.List(c.R.Context(), f, p)
		},
		get: func(c *api.Call, ident string) (*compute.HostGroup, error) { return groups.Get(c.R.Context(), ident) },
		filter: func(c *api.Call) (compute.HostGroupFilter, error) {
			return compute.HostGroupFilter{Name: c.Query.Get("name")}, nil
		},
		view: func(_ *api.Call, all []*compute.HostGroup) ([]map[string]any, error) {
			out := make([]map[string]any, len(all))
			for i, g := range all {
				out[i] = map[string]any{
					"id": g.ID, "number": g.Num, "name": g.Name, "healing": g.Healing, "self_fence": g.SelfFence, "require": append([]compute.Evidence{}, g.Require...),
					"reimage": g.Reimage, "variables": cmp.Or(g.Variables, compute.VariablesAsk), "max_hosts": g.MaxHosts, "max_share": g.MaxShare, "parallel": g.Parallel,
					"created_at": timeOrNull(g.CreatedAt), "updated_at": timeOrNull(g.UpdatedAt),
				}
			}
			return out, nil
		},
		id: func(g *compute.HostGroup) string { return g.ID },
	}
	return append(k.routes(),
		api.Route{Method: http.MethodPost, Path: k.path, Do: func(c *api.Call) error {
			var b hostGroup
			if err := c.ReadExactly(&b); err != nil {
				return err
			}
			g := compute.DefaultHostGroup()
			if err := b.fill(g); err != nil {
				return err
			}
			if err := groups.Create(c.R.Context(), g, c.Asker()); err != nil {
				return err
			}
			return k.show(c, http.StatusCreated, g)
		}},
		api.Route{Method: http.MethodPatch, Path: k.path + "/{ident}", Do: func(c *api.Call) error {
			var b hostGroup
			if err := c.ReadExactly(&b); err != nil {
				return err
			}
			g, err := groups.Update(c.R.Context(), c.Arg("ident"), c.Asker(), b.fill)
			if err != nil {
				return err
			}
			return k.show(c, http.StatusOK, g)
		}},
		api.Route{Method: http.MethodDelete, Path: k.path + "/{ident}", Do: func(c *api.Call) error {
			if err := groups.Remove(c.R.Context(), c.Arg("ident"), c.Asker()); err != nil {
				return err
			}
			return c.Empty(http.StatusNoContent)
		}},
	)
}
