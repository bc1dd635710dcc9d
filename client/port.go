package client

import (
	"context"
	"net/http"
	"net/url"

	"salvor/wire/ironic"
)

// Ports lists ports.
func (c *Client) Ports(ctx context.Context, q Query) ([]Record, error) {
	return list[Record](ctx, c, "/v1/ports", "ports", q)
}

// Port reads one port by UUID; with names, only those fields.
func (c *Client) Port(ctx context.Context, id string, names ...string) (Record, error) {
	var p Record
	err := c.call(ctx, http.MethodGet, "/v1/ports/"+url.PathEscape(id), fields(names), nil, &p)
	return p, err
}

// CreatePort makes a port of the fields given; "address" and "node_uuid" are the least.
func (c *Client) CreatePort(ctx context.Context, fields Record) (Record, error) {
	var p Record
	err := c.call(ctx, http.MethodPost, "/v1/ports", nil, fields, &p)
	return p, err
}

// PatchPort changes a port.
func (c *Client) PatchPort(ctx context.Context, id string, patch []ironic.PatchOperation) (Record, error) {
	var p Record
	err := c.call(ctx, http.MethodPatch, "/v1/ports/"+url.PathEscape(id), nil, patch, &p)
	return p, err
}

// DeletePort forgets a port.
func (c *Client) DeletePort(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/v1/ports/"+url.PathEscape(id), nil, nil, nil)
}
