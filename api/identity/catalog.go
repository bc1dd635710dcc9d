package identity

import (
	"net/http"
	"strings"

	"salvor/access"
	"salvor/api"
)

// Service is an entry of the catalog.
type Service struct {
	Type, Name string
	// Path of its endpoint, with {project} for the id of the token's project; tokens without one do not see such a service.
	Path string
}

// DefaultServices are the faces of salvor.
var DefaultServices = []Service{
	{"identity", "keystone", "/identity"},
	{"baremetal", "ironic", "/"},
	{"compute", "nova", "/compute/v2.1"},
	{"compute_legacy", "nova_legacy", "/compute/v2/{project}"},
	{"image", "glance", "/image"},
	{"block-storage", "cinder", "/volume/v3/{project}"},
	{"volumev3", "cinderv3", "/volume/v3/{project}"},
	{"cyclades_compute", "cyclades", "/cyclades/compute/v2.0"},
	{"salvor", "salvor", "/salvor/v1"},
}

// services is the catalog for a project; the same URL serves all three interfaces.
func (s *server) services(base, project string) []jsonObject {
	out := []jsonObject{}
	for _, service := range s.Services {
		if strings.Contains(service.Path, "{project}") && project == "" {
			continue
		}
		url := base + strings.ReplaceAll(service.Path, "{project}", project)
		var endpoints []jsonObject
		for _, side := range []string{"public", "internal", "admin"} {
			endpoints = append(endpoints, jsonObject{
				"id": access.IDOf("endpoint", service.Type+" "+side), "interface": side, "region": s.Region, "region_id": s.Region, "url": url,
			})
		}
		out = append(out, jsonObject{"id": access.IDOf("service", service.Type), "type": service.Type, "name": service.Name, "endpoints": endpoints})
	}
	return out
}

func (s *server) catalog(c *api.Call) error {
	return c.JSON(http.StatusOK, jsonObject{
		"catalog": s.services(c.Base, c.Principal.Scope.Project),
		"links":   jsonObject{"self": c.Base + "/identity/v3/auth/catalog", "previous": nil, "next": nil},
	})
}
