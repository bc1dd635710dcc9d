package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"salvor/problem"
)

// API is one of the APIs beside Ironic's that the endpoint speaks.
type API struct {
	// Prefix is its root below the endpoint.
	Prefix string
	// Version is sent as OpenStack-API-Version; empty: the API has none.
	Version string
}

// The APIs that salvor has beside Ironic's.
var (
	Compute = API{"/compute/v2.1", "compute 2.88"}
	Image   = API{"/image/v2", ""}
	Block   = API{"/volume/v3", "volume 3.70"}
	Native  = API{"/salvor/v1", ""}
)

// Ask sends a request to an API: body is sent as JSON unless nil, and the answer is decoded into out unless that is nil.
func (c *Client) Ask(ctx context.Context, f API, method, path string, query url.Values, body, out any) error {
	request := Request{Method: method, Path: f.Prefix + path, Query: query, Body: body, Header: http.Header{}}
	if f.Version != "" {
		request.Header.Set("OpenStack-API-Version", f.Version)
	}
	answer, err := c.Do(ctx, request, nil)
	if err != nil || out == nil || len(answer.Body) == 0 {
		return err
	}
	return answer.decode(request, out)
}

// Upload sends bytes as they are; size is their number, -1 if it is not known.
func (c *Client) Upload(ctx context.Context, f API, path string, bytes io.Reader, size int64) error {
	request := Request{Method: http.MethodPut, Path: f.Prefix + path}
	call, err := c.build(ctx, request)
	if err != nil {
		return err
	}
	call.Body, call.ContentLength = io.NopCloser(bytes), size
	call.Header.Set("Content-Type", "application/octet-stream")
	// An upload takes as long as it takes: the context bounds it.
	unbounded := *c.http
	unbounded.Timeout = 0
	response, err := unbounded.Do(call)
	if err != nil {
		return problem.Unavailablef("%s: %w", request, stripURL(err))
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxMessage*8))
	if err != nil {
		return problem.Unavailablef("%s: read answer: %w", request, stripURL(err))
	}
	if response.StatusCode >= 300 {
		return request.refused(&Answer{Status: response.StatusCode, Header: response.Header, Body: answer})
	}
	return nil
}
