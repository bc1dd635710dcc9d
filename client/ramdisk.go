package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"salvor/problem"
	"salvor/secret"
	"salvor/wire/agent"
	"salvor/wire/ironic"
)

// Lookup asks which node a ramdisk with these MACs is in. The node's UUID, if
// known, wins over the MACs.
func (c *Client) Lookup(ctx context.Context, version Version, macs []string, node string) (*ironic.LookupAnswer, error) {
	query := url.Values{"addresses": {strings.Join(macs, ",")}}
	if node != "" {
		query.Set("node_uuid", node)
	}
	request := Request{Method: http.MethodGet, Path: "/v1/lookup", Query: query, Version: version}
	return c.lookup(ctx, request)
}

// LookupBoot is Lookup by a ramdisk whose boot files carry the agent token. salvor tells machines apart by the token that share a MAC; other servers
// ignore the header.
func (c *Client) LookupBoot(ctx context.Context, version Version, macs []string, token secret.Value) (*ironic.LookupAnswer, error) {
	request := Request{Method: http.MethodGet, Path: "/v1/lookup", Query: url.Values{"addresses": {strings.Join(macs, ",")}}, Version: version}
	if !token.Empty() {
		request.Header = http.Header{agent.TokenHeader: {token.Reveal()}}
	}
	return c.lookup(ctx, request)
}

// PassthruLookup is Lookup by the door of Ironic up to 6.2.
func (c *Client) PassthruLookup(ctx context.Context, driver string, body ironic.PassthruLookup) (*ironic.LookupAnswer, error) {
	path := "/v1/drivers/" + url.PathEscape(driver) + "/vendor_passthru/lookup"
	return c.lookup(ctx, Request{Method: http.MethodPost, Path: path, Body: body})
}

func (c *Client) lookup(ctx context.Context, request Request) (*ironic.LookupAnswer, error) {
	var answer ironic.LookupAnswer
	if _, err := c.Do(ctx, request, &answer); err != nil {
		return nil, err
	}
	if answer.Node.UUID == "" {
		return nil, problem.Unavailablef("%s: answer names no node", request)
	}
	if answer.Config == nil {
		answer.Config = &ironic.LookupConfig{HeartbeatTimeout: answer.HeartbeatTimeout}
	}
	return &answer, nil
}

// Heartbeat says that a ramdisk is alive. The fields must be of the version spoken.
func (c *Client) Heartbeat(ctx context.Context, version Version, node string, body ironic.Heartbeat) error {
	path := "/v1/heartbeat/" + url.PathEscape(node)
	_, err := c.Do(ctx, Request{Method: http.MethodPost, Path: path, Body: body, Version: version}, nil)
	return err
}

// PassthruHeartbeat is Heartbeat by the door of Ironic up to 6.2.
func (c *Client) PassthruHeartbeat(ctx context.Context, node string, body ironic.PassthruHeartbeat) error {
	path := "/v1/nodes/" + url.PathEscape(node) + "/vendor_passthru/heartbeat"
	_, err := c.Do(ctx, Request{Method: http.MethodPost, Path: path, Body: body}, nil)
	return err
}
