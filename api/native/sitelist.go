package native

import (
	"net/http"

	"salvor/api"
	"salvor/metal"
	"salvor/record"
)

// sites are made, listed and revoked by administrators.
func (s *server) sites() []api.Route {
	if s.Sites == nil {
		return nil
	}
	k := resourceCollection[metal.Site, metal.SiteFilter]{
		path: "/sites", many: "sites",
		list: func(c *api.Call, f metal.SiteFilter, p record.Page) ([]*metal.Site, error) {
			return s.Sites.List(c.R.Context(), f, p)
		},
		filter: func(c *api.Call) (metal.SiteFilter, error) { return metal.SiteFilter{Name: c.Query.Get("name")}, nil },
		get:    func(c *api.Call, ident string) (*metal.Site, error) { return s.Sites.Get(c.R.Context(), ident) },
		view: func(_ *api.Call, all []*metal.Site) ([]map[string]any, error) {
			out := make([]map[string]any, len(all))
			for i, site := range all {
				out[i] = viewSite(site)
			}
			return out, nil
		},
		id: func(site *metal.Site) string { return site.ID },
	}
	return append(k.routes(),
		api.Route{Method: http.MethodPost, Path: k.path, Do: func(c *api.Call) error {
			var b struct {
				Name  string `json:"name"`
				Group string `json:"conductor_group"`
			}
			if err := c.ReadExactly(&b); err != nil {
				return err
			}
			site, token, err := s.Sites.Issue(c.R.Context(), b.Name, b.Group, c.Asker())
			if err != nil {
				return err
			}
			view := viewSite(site)
			view["token"] = token.Reveal() // in this answer and nowhere else
			c.W.Header().Set("Cache-Control", "no-store")
			return c.JSON(http.StatusCreated, view)
		}},
		api.Route{Method: http.MethodDelete, Path: k.path + "/{ident}", Do: func(c *api.Call) error {
			if err := s.Sites.Remove(c.R.Context(), c.Arg("ident"), c.Asker()); err != nil {
				return err
			}
			return c.Empty(http.StatusNoContent)
		}})
}

func viewSite(site *metal.Site) map[string]any {
	return map[string]any{
		"id": site.ID, "name": site.Name, "conductor_group": site.Group, "created_by": site.By, "created_at": timeOrNull(site.CreatedAt),
	}
}
