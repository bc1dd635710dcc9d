// Package openstack has the client of a service of OpenStack, such as Neutron, Glance or Nova: how Keystone is reached, the login, and the
// service's endpoint. It bounds each answer in time and size and follows no redirect to another server. It must not know what a service is
// asked for.
package openstack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/gophercloud/gophercloud/v2"
	keystone "github.com/gophercloud/gophercloud/v2/openstack"

	"salvor/problem"
	"salvor/secret"
	peer "salvor/wire/answer"
	"salvor/wire/loose"
)

// Service is a kind of service.
type Service struct {
	// Name is what errors call it, such as "Neutron"; Type is its type in Keystone's catalog, such as "network".
	Name, Type string
	// Version is the path of its API below an endpoint that names no version, such as "v2.0".
	Version string
}

// The services that salvor asks.
var (
	Network = Service{Name: "Neutron", Type: "network", Version: "v2.0"}
	Image   = Service{Name: "Glance", Type: "image", Version: "v2"}
	Compute = Service{Name: "Nova", Type: "compute", Version: "v2.1"}
)

// Access says how a service is reached, and by whom.
type Access struct {
	// Section is the section of the configuration that says so, such as "neutron"; errors name it.
	Section string
	// Endpoint of the service, with or without its version; empty: the catalog of Keystone names it.
	Endpoint string
	// AuthURL of Keystone; empty: the service asks for no credentials, and Endpoint must be given.
	AuthURL string
	// A domain is given by id or by name; the id wins.
	Username, UserDomainID, UserDomainName          string
	ProjectName, ProjectDomainID, ProjectDomainName string
	Password                                        secret.Value
	// Region whose endpoint is used; empty: the first one of the catalog.
	Region string
	// Interfaces of the catalog in the order of preference: internal, public or admin; empty: public.
	Interfaces []string
	// CA is PEM that is trusted beside the system's; nil: none.
	CA       []byte
	Insecure bool // takes any certificate
	// Timeout bounds a request and its answer; 0: 45 s.
	Timeout time.Duration
}

// Client asks one service. It logs in to Keystone when it is first used, and again when its token is no longer accepted. It is safe for use
// by several goroutines.
type Client struct {
	service   Service
	access    Access
	transport http.RoundTripper

	login  chan struct{}              // held by whoever uses client
	client *gophercloud.ServiceClient // nil until Keystone took the user
	// acceptedAt is when Keystone or the service last took a request, in nanoseconds since 1970; 0: never.
	acceptedAt atomic.Int64
}

const (
	defaultTimeout = 45 * time.Second
	connectTimeout = 10 * time.Second
	// maxAnswer bounds an answer of Keystone or the service, in bytes; those of a Stream are their reader's to bound.
	maxAnswer = 16 << 20
	// maxRedirects bounds how often an answer leads on, each time to the same server.
	maxRedirects = 5
	// acceptedLately is the time after an accepted request in which a refused login is tried refusedTries times: a restarting Keystone, or a
	// memcached that lost a token, refuses for a moment.
	acceptedLately = 10 * time.Minute
	refusedTries   = 3
	// maxQuoted bounds what an error quotes of an answer, in characters.
	maxQuoted = 240
)

// New makes a client; nothing is asked yet. A CA without a certificate is Invalid, as is an access with neither AuthURL nor Endpoint.
func New(s Service, a Access) (*Client, error) {
	if a.Timeout == 0 {
		a.Timeout = defaultTimeout
	}
	if a.AuthURL == "" && a.Endpoint == "" {
		return nil, problem.Invalidf("[%s]: set auth_url, or endpoint_override where %s asks for no credentials", a.Section, s.Name)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.Insecure}
	if len(a.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(a.CA) {
			return nil, problem.Invalidf("[%s]cafile: holds no certificate", a.Section)
		}
		conf.RootCAs = pool
	}
	return &Client{service: s, access: a, login: make(chan struct{}, 1), transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext, TLSClientConfig: conf,
		TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: a.Timeout, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
	}}, nil
}

// Anonymous tells whether the service asks for no credentials.
func (c *Client) Anonymous() bool { return c.access.AuthURL == "" }

// ProjectName is the project that requests are made in.
func (c *Client) ProjectName() string { return c.access.ProjectName }

// Service gives the client of gophercloud, logged in. The errors of its requests go through Classify.
func (c *Client) Service(ctx context.Context) (*gophercloud.ServiceClient, error) {
	select {
	case c.login <- struct{}{}:
		defer func() { <-c.login }()
	case <-ctx.Done():
		return nil, problem.Unavailablef("log in to Keystone for %s: %w", c.service.Name, context.Cause(ctx))
	}
	if c.client != nil {
		return c.client, nil
	}
	client, err := c.logIn(ctx)
	if err != nil {
		return nil, err
	}
	c.client = client
	return client, nil
}

// Reach logs in and tells why the service does not answer. It asks for nothing: any answer will do but a refused token.
func (c *Client) Reach(ctx context.Context) error {
	service, err := c.Service(ctx)
	if err != nil {
		return err
	}
	answer, err := service.Get(ctx, service.ResourceBase, nil, &gophercloud.RequestOpts{KeepResponseBody: true})
	if err == nil {
		return answer.Body.Close()
	}
	var code gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &code) && code.Actual < http.StatusInternalServerError && code.Actual != http.StatusUnauthorized {
		return nil
	}
	return c.Classify(err, "ask "+c.service.Name+" at "+service.ResourceBase)
}

func (c *Client) logIn(ctx context.Context) (*gophercloud.ServiceClient, error) {
	a := c.access
	first := a.AuthURL
	if first == "" {
		first = a.Endpoint
	}
	p, err := keystone.NewClient(first)
	if err != nil {
		return nil, problem.Invalidf("[%s]: %w", a.Section, err)
	}
	p.HTTPClient = http.Client{Transport: boundedTransport{c.transport, a.Timeout, &c.acceptedAt}, CheckRedirect: sameServer}
	client := &gophercloud.ServiceClient{ProviderClient: p, Type: c.service.Type, Endpoint: a.Endpoint}
	if a.AuthURL != "" {
		if err := keystone.Authenticate(ctx, p, a.authOptions()); err != nil {
			return nil, c.Classify(err, "log in to Keystone for "+c.service.Name)
		}
	}
	if a.Endpoint == "" {
		if client.Endpoint, err = c.endpoint(p); err != nil {
			return nil, err
		}
	}
	if client.ResourceBase, err = c.resourceBase(client.Endpoint); err != nil {
		return nil, err
	}
	return client, nil
}

// authOptions are those of a login by password. A scope takes the project's domain by id or by name, never both.
func (a Access) authOptions() gophercloud.AuthOptions {
	out := gophercloud.AuthOptions{
		IdentityEndpoint: a.AuthURL, Username: a.Username, Password: a.Password.Reveal(), AllowReauth: true,
		DomainID: a.UserDomainID, DomainName: a.UserDomainName,
		Scope: &gophercloud.AuthScope{ProjectName: a.ProjectName, DomainID: a.ProjectDomainID, DomainName: a.ProjectDomainName},
	}
	if out.DomainID != "" {
		out.DomainName = ""
	}
	if out.Scope.DomainID != "" {
		out.Scope.DomainName = ""
	}
	return out
}

// endpoint finds the service in the catalog that came with the token.
func (c *Client) endpoint(p *gophercloud.ProviderClient) (string, error) {
	interfaces := c.access.Interfaces
	if len(interfaces) == 0 {
		interfaces = []string{"public"}
	}
	for _, kind := range interfaces {
		opts := gophercloud.EndpointOpts{Region: c.access.Region, Availability: gophercloud.Availability(kind)}
		opts.ApplyDefaults(c.service.Type)
		if found, err := p.EndpointLocator(opts); err == nil {
			return found, nil
		}
	}
	region := ""
	if c.access.Region != "" {
		region = " in region " + c.access.Region
	}
	return "", problem.Invalidf("[%s]: Keystone's catalog has no %s endpoint of type %s%s: add it there, or set endpoint_override",
		c.access.Section, strings.Join(interfaces, " or "), c.service.Type, region)
}

var versionSegment = regexp.MustCompile(`^v[0-9]+(\.[0-9]+)?$`)

// resourceBase adds the version to an endpoint that names none.
func (c *Client) resourceBase(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", problem.Invalidf("[%s]: the endpoint of %s is no http or https URL", c.access.Section, c.service.Name)
	}
	base := strings.TrimRight(endpoint, "/") + "/"
	for segment := range strings.SplitSeq(u.Path, "/") {
		if versionSegment.MatchString(segment) {
			return base, nil
		}
	}
	return base + c.service.Version + "/", nil
}

// sameServer refuses redirects to another server: a request carries a token, or the password.
func sameServer(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > maxRedirects || r.URL.Scheme != first.Scheme || r.URL.Host != first.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// streamKey marks the context of a request whose answer is long.
type streamKey struct{}

// Stream marks a GET whose answer may be of any length and take any time once it has begun, such as the bytes of an image.
func Stream(ctx context.Context) context.Context { return context.WithValue(ctx, streamKey{}, true) }

// boundedTransport bounds answers in time, size and values.
type boundedTransport struct {
	inner      http.RoundTripper
	timeout    time.Duration
	acceptedAt *atomic.Int64
}

// RoundTrip is http.RoundTripper's.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(streamKey{}) != nil && r.Method == http.MethodGet {
		return b.inner.RoundTrip(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), b.timeout)
	defer cancel()
	answer, err := peer.Transport(b.inner, maxAnswer, loose.MaxValues).RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < http.StatusMultipleChoices {
		b.acceptedAt.Store(time.Now().UnixNano())
	}
	return answer, nil
}

// Classify gives an error of a request its kind, without the request's headers and bodies: NotFound, Conflict, Invalid for what the
// service or Keystone refuses, else Unavailable. op says what was asked, such as "read port ID".
func (c *Client) Classify(err error, op string) error {
	if err == nil {
		return nil
	}
	var code gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &code) {
		var refused *gophercloud.ErrUnableToReauthenticate
		if errors.As(err, &refused) {
			return c.Classify(refused.ErrReauth, op+": log in to Keystone again")
		}
		return problem.Unavailablef("%s: %w", op, err)
	}
	text := problem.Quote(printable(secret.Hide(string(code.Body), c.access.Password)))
	name := c.service.Name
	switch code.Actual {
	case http.StatusNotFound:
		return problem.NotFoundf("%s: %s has none", op, name)
	case http.StatusConflict:
		return problem.Conflictf("%s: %s refuses (409): %s", op, name, text)
	case http.StatusUnauthorized, http.StatusForbidden:
		if code.Actual == http.StatusUnauthorized && time.Since(time.Unix(0, c.acceptedAt.Load())) < acceptedLately {
			return problem.Tries(refusedTries, problem.Unavailablef("%s: refused (401), and accepted minutes ago: check [%s]username and password if that goes on", op, c.access.Section))
		}
		return problem.Invalidf("%s: refused (%d): check [%s]username, password, project and its roles", op, code.Actual, c.access.Section)
	case http.StatusBadRequest:
		return problem.Invalidf("%s: %s refuses (400): %s", op, name, text)
	}
	return problem.Unavailablef("%s: %s answers %d", op, name, code.Actual)
}

// printable makes text of a peer fit for an error: one line, bounded.
func printable(text string) string {
	text = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)), " ")
	if runes := []rune(text); len(runes) > maxQuoted {
		text = string(runes[:maxQuoted]) + "..."
	}
	return text
}
