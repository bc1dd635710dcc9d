// Package client speaks Ironic's REST API, salvor's own or the real one: how a
// request is sent, which microversion is spoken, how an error is read. It knows no
// command line, no store and no hardware, and it never asks twice by itself, unless
// Config.AskAgainFor says so: who calls knows whether asking again is safe.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"salvor/problem"
	"salvor/secret"
	"salvor/wire/ironic"
)

// DefaultURL is the API of a control plane on this machine with its ordinary configuration.
const DefaultURL = "http://127.0.0.1:6385"

const (
	defaultTimeout = 60 * time.Second
	defaultMaxBody = 64 << 20
	maxRedirects   = 3
)

// Config says where an API is and how to speak to it.
type Config struct {
	// Endpoint is the API's root, with or without the /v1 at its end.
	Endpoint string
	// Token is sent as X-Auth-Token unless it is empty.
	Token secret.Value
	// Username and Password are sent as HTTP basic authentication if Username is set and there is no token.
	Username string
	Password secret.Value
	// Timeout bounds each request with its answer; 0 means a minute.
	Timeout time.Duration
	// MaxBody bounds an answer in bytes; 0 means 64 MiB.
	MaxBody int64
	// Transport carries the requests; nil means one that all clients share, with the settings of http.DefaultTransport.
	Transport http.RoundTripper
	// AskAgainFor bounds how long the client repeats a request for a change that the server refused with 503 and Retry-After. Such an
	// answer means that nothing was changed. 0: never.
	AskAgainFor time.Duration
	// AskingAgain is called before each such wait; nil: no call.
	AskingAgain func(request Request, after time.Duration, why error)
	// Warned is called for each remark of the server on a change that it has made, such as a key that is probably misspelt; nil: no call.
	Warned func(text string)
	// UserAgent names the program.
	UserAgent string
	// Version is the microversion that calls without one of their own speak; 0 means the highest known to both sides.
	Version Version
}

// Client is safe for use by several goroutines.
type Client struct {
	config Config
	root   *url.URL
	http   *http.Client

	mu     sync.Mutex
	served *Range
}

// New checks the endpoint; it does not speak to it.
func New(config Config) (*Client, error) {
	root, err := url.Parse(strings.TrimSpace(config.Endpoint))
	if err != nil {
		return nil, problem.Invalidf("endpoint %q: not a URL", config.Endpoint)
	}
	if (root.Scheme != "http" && root.Scheme != "https") || root.Host == "" {
		return nil, problem.Invalidf("endpoint %q: want http://host:port or https://host:port", root.Redacted())
	}
	if root.User != nil {
		return nil, problem.Invalidf("endpoint %q: give user and password apart from the URL", root.Redacted())
	}
	root.Path = strings.TrimSuffix(strings.TrimRight(root.Path, "/"), "/v1")
	root.RawPath, root.RawQuery, root.Fragment = "", "", ""
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	if config.MaxBody == 0 {
		config.MaxBody = defaultMaxBody
	}
	if config.UserAgent == "" {
		config.UserAgent = "salvor"
	}
	if config.Transport == nil {
		config.Transport = sharedTransport
	}
	c := &Client{config: config, root: root}
	c.http = &http.Client{Transport: config.Transport, Timeout: config.Timeout, CheckRedirect: c.checkRedirect}
	return c, nil
}

// sharedTransport is not http.DefaultTransport, whose connections any code of the process may close amid a request: an httptest.Server does when it ends.
var sharedTransport = http.DefaultTransport.(*http.Transport).Clone()

// Endpoint is the root that requests go to, without /v1.
func (c *Client) Endpoint() string { return c.root.String() }

// checkRedirect follows a server that adds a slash, but takes a request with its
// credentials nowhere else.
func (c *Client) checkRedirect(next *http.Request, via []*http.Request) error {
	if next.URL.Host != c.root.Host || next.URL.Scheme != c.root.Scheme || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// Request is one call.
type Request struct {
	Method string
	// Path begins with a slash and is below the endpoint: "/v1/nodes".
	Path  string
	Query url.Values
	// Body is sent as JSON unless nil.
	Body any
	// Version is the microversion to speak; 0 sends no version header.
	Version Version
	// Header is added to the request.
	Header http.Header
}

// Answer is what an API said to a request that it took.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends the request and decodes the answer into out, unless out is nil. An
// answer with a status of 300 or more is an error that holds an *Error; no answer
// at all is of the kind Unavailable.
func (c *Client) Do(ctx context.Context, request Request, out any) (*Answer, error) {
	answer, err := c.sendUntilTaken(ctx, request)
	if err != nil {
		return nil, err
	}
	if answer.Status >= 300 {
		return nil, request.refused(answer)
	}
	c.passOnWarnings(answer)
	if out == nil {
		return answer, nil
	}
	return answer, answer.decode(request, out)
}

// maxWarnings bounds how many remarks of one answer are passed on.
const maxWarnings = 16

// passOnWarnings reads remarks in the form 299 salvor "TEXT".
func (c *Client) passOnWarnings(answer *Answer) {
	for i, value := range answer.Header.Values(ironic.WarningHeader) {
		quoted, ok := strings.CutPrefix(value, "299 salvor ")
		text, err := strconv.Unquote(quoted)
		if c.config.Warned != nil && ok && err == nil && i < maxWarnings {
			c.config.Warned(text)
		}
	}
}

func (a *Answer) decode(request Request, out any) error {
	if err := json.Unmarshal(a.Body, out); err != nil {
		return problem.Unavailablef("%s: answer is not the JSON expected: %w", request, err)
	}
	return nil
}

func (r Request) String() string { return r.Method + " " + r.Path }

// sendUntilTaken sends the request, and repeats it after each 503 with Retry-After, as long as the configuration allows.
func (c *Client) sendUntilTaken(ctx context.Context, request Request) (*Answer, error) {
	for waited := time.Duration(0); ; {
		answer, err := c.send(ctx, request)
		if err != nil || answer.Status != http.StatusServiceUnavailable || request.Method == http.MethodGet {
			return answer, err
		}
		// Bound the number of seconds before it becomes a duration.
		number, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		after := time.Duration(number) * time.Second
		if err != nil || number < 0 || number > int(c.config.AskAgainFor/time.Second) || waited+max(after, time.Second) > c.config.AskAgainFor {
			return answer, nil
		}
		after = max(after, time.Second)
		waited += after
		if c.config.AskingAgain != nil {
			c.config.AskingAgain(request, after, request.refused(answer))
		}
		pause := time.NewTimer(after)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return answer, nil
		}
	}
}

func (c *Client) send(ctx context.Context, request Request) (*Answer, error) {
	call, err := c.build(ctx, request)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(call)
	if err != nil {
		return nil, problem.Unavailablef("%s: %w", request, stripURL(err))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, c.config.MaxBody+1))
	if err != nil {
		return nil, problem.Unavailablef("%s: read answer: %w", request, stripURL(err))
	}
	if int64(len(body)) > c.config.MaxBody {
		return nil, problem.Unavailablef("%s: answer is larger than %d bytes", request, c.config.MaxBody)
	}
	return &Answer{Status: response.StatusCode, Header: response.Header, Body: body}, nil
}

func (c *Client) build(ctx context.Context, request Request) (*http.Request, error) {
	var body io.Reader
	if request.Body != nil {
		text, err := json.Marshal(request.Body)
		if err != nil {
			return nil, fmt.Errorf("%s: encode body: %w", request, err)
		}
		body = bytes.NewReader(text)
	}
	target := c.root.JoinPath(request.Path)
	target.RawQuery = request.Query.Encode()
	call, err := http.NewRequestWithContext(ctx, request.Method, target.String(), body)
	if err != nil {
		return nil, problem.Invalidf("%s: %w", request, err)
	}
	for key, values := range request.Header {
		call.Header[key] = values
	}
	call.Header.Set("Accept", "application/json")
	call.Header.Set("User-Agent", c.config.UserAgent)
	if body != nil {
		call.Header.Set("Content-Type", "application/json")
	}
	if request.Version != 0 {
		call.Header.Set(VersionHeader, request.Version.String())
	}
	switch {
	case !c.config.Token.Empty():
		call.Header.Set("X-Auth-Token", c.config.Token.Reveal())
	case c.config.Username != "":
		call.SetBasicAuth(c.config.Username, c.config.Password.Reveal())
	}
	return call, nil
}

// stripURL takes the URL out of an error of net/http: a query may hold a secret.
func stripURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
