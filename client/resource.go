package client

import (
	"context"
	"net/http"
	"net/url"

	"salvor/wire/ironic"
)

// Collection is a kind of resource: where its list lies, and the key of the items in it.
type Collection struct{ Path, Envelope string }

// The collections that there are.
var (
	Nodes            = Collection{"/v1/nodes", "nodes"}
	Ports            = Collection{"/v1/ports", "ports"}
	Portgroups       = Collection{"/v1/portgroups", "portgroups"}
	Chassis          = Collection{"/v1/chassis", "chassis"}
	VolumeConnectors = Collection{"/v1/volume/connectors", "connectors"}
	VolumeTargets    = Collection{"/v1/volume/targets", "targets"}
	Allocations      = Collection{"/v1/allocations", "allocations"}
	DeployTemplates  = Collection{"/v1/deploy_templates", "deploy_templates"}
	Runbooks         = Collection{"/v1/runbooks", "runbooks"}
	InspectionRules  = Collection{"/v1/inspection_rules", "inspection_rules"}
	Drivers          = Collection{"/v1/drivers", "drivers"}
	Conductors       = Collection{"/v1/conductors", "conductors"}
)

func (col Collection) item(id string) string { return col.Path + "/" + url.PathEscape(id) }

// List reads a list, page after page.
func (c *Client) List(ctx context.Context, col Collection, q Query) ([]Record, error) {
	return listPages[Record](ctx, c, col.Path, col.Envelope, q)
}

// Get reads one by UUID or, where the kind has names, name; with names, only those fields.
func (c *Client) Get(ctx context.Context, col Collection, ident string, names ...string) (Record, error) {
	var r Record
	err := c.call(ctx, http.MethodGet, col.item(ident), fieldsQuery(names), nil, &r)
	return r, err
}

// Create makes one of the fields given.
func (c *Client) Create(ctx context.Context, col Collection, fields Record) (Record, error) {
	var r Record
	err := c.call(ctx, http.MethodPost, col.Path, nil, fields, &r)
	return r, err
}

// Patch changes one.
func (c *Client) Patch(ctx context.Context, col Collection, ident string, patch []ironic.PatchOperation) (Record, error) {
	var r Record
	err := c.call(ctx, http.MethodPatch, col.item(ident), nil, patch, &r)
	return r, err
}

// Delete forgets one.
func (c *Client) Delete(ctx context.Context, col Collection, ident string) error {
	return c.call(ctx, http.MethodDelete, col.item(ident), nil, nil, nil)
}

// Call asks for anything else below the API: body is sent as JSON unless nil, and the
// answer is decoded into out unless that is nil.
func (c *Client) Call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	return c.call(ctx, method, path, query, body, out)
}

// Send sends a request in the version that both sides know, unless it names one, and
// gives the answer as it is; a refusal is an error, as of Do.
func (c *Client) Send(ctx context.Context, request Request) (*Answer, error) {
	if request.Version == 0 {
		v, err := c.version(ctx)
		if err != nil {
			return nil, err
		}
		request.Version = v
	}
	return c.Do(ctx, request, nil)
}
