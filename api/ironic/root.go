package ironic

import (
	"net/http"

	"salvor/metal"
	"salvor/wire/ironic"
)

const docs = "https://docs.openstack.org/ironic/latest/contributor/webapi.html"

func (c *ironicCall) apiVersion() ironic.APIVersion {
	return ironic.APIVersion{
		ID: "v1", Status: "CURRENT", Links: []ironic.Link{{Href: c.Base + "/v1/", Rel: "self"}},
		MinVersion: versionText(MinVersion), Version: versionText(MaxVersion),
	}
}

func (s *server) root(c *ironicCall) error {
	v := c.apiVersion()
	return c.JSON(http.StatusOK, ironic.Root{
		Name: "OpenStack Ironic API", Description: "salvor: the bare metal API of a control plane that brings machines back.",
		DefaultVersion: v, Versions: []ironic.APIVersion{v},
	})
}

// rootResource is shown in /v1 from the version that has it.
type rootResource struct {
	name  string
	since metal.Version
}

// rootResources are the kinds of records and what is none.
func (s *server) rootResources() []rootResource {
	all := []rootResource{
		{"nodes", 1}, {"drivers", 1}, {"lookup", 22}, {"heartbeat", 22}, {"conductors", 49}, {"events", 54}, {"shards", 82}, {"continue_inspection", 84},
	}
	for _, k := range s.kinds() {
		all = append(all, k.kind.root())
	}
	return all
}

func (s *server) v1(c *ironicCall) error {
	body := map[string]any{
		"id": "v1", "version": c.apiVersion(),
		"links": []ironic.Link{
			{Href: c.Base + "/v1/", Rel: "self"},
			{Href: docs, Rel: "describedby", Type: "text/html"},
		},
		"media_types": map[string]string{"base": "application/json", "type": "application/vnd.openstack.ironic.v1+json"},
	}
	for _, r := range s.resources {
		if c.version >= r.since {
			body[r.name] = c.links(r.name + "/")
		}
	}
	return c.JSON(http.StatusOK, body)
}
