package network

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// Access says how Neutron is reached.
type Access struct {
	// Endpoint of Neutron; empty: the catalog of Keystone names it.
	Endpoint string
	// AuthURL of Keystone; empty: Neutron asks for no credentials, and Endpoint must be given.
	AuthURL                                        string
	Username, UserDomain, ProjectName, ProjectArea string // ProjectArea is the project's domain
	Password                                       secret.Value
	Region                                         string
	CA                                             []byte // PEM that is trusted beside the system's; nil: none
	Insecure                                       bool
	Timeout                                        time.Duration // of one request; 0: 45 s
}

// Cloud is a client of Neutron that logs in when it is first used.
type Cloud struct {
	access Access

	mu     sync.Mutex
	client *gophercloud.ServiceClient
	names  map[string]string // networks already found, by what they are called
}

// NewCloud makes a client; nothing is asked yet.
func NewCloud(a Access) *Cloud {
	if a.Timeout == 0 {
		a.Timeout = 45 * time.Second
	}
	return &Cloud{access: a, names: map[string]string{}}
}

// service gives the client, logged in.
func (c *Cloud) service(ctx context.Context) (*gophercloud.ServiceClient, error) {
	if err := driver.CheckLease(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return c.client, nil
	}
	a := c.access
	p, err := openstack.NewClient(firstOf(a.AuthURL, a.Endpoint))
	if err != nil {
		return nil, problem.Invalidf("[neutron]: %w", err)
	}
	transport, err := a.transport()
	if err != nil {
		return nil, err
	}
	p.HTTPClient = http.Client{Transport: limitedTransport{transport}, Timeout: a.Timeout}
	if a.AuthURL == "" {
		if a.Endpoint == "" {
			return nil, problem.Invalidf("[neutron]: set auth_url, or endpoint_override where Neutron asks for no credentials")
		}
		c.client = setClientEndpoint(&gophercloud.ServiceClient{ProviderClient: p}, a.Endpoint)
		return c.client, nil
	}
	err = openstack.Authenticate(ctx, p, gophercloud.AuthOptions{
		IdentityEndpoint: a.AuthURL, Username: a.Username, Password: a.Password.Reveal(), DomainName: a.UserDomain, AllowReauth: true,
		Scope: &gophercloud.AuthScope{ProjectName: a.ProjectName, DomainName: a.ProjectArea},
	})
	if err != nil {
		return nil, classifyNeutronError(err, "log in to Keystone")
	}
	client := &gophercloud.ServiceClient{ProviderClient: p}
	if a.Endpoint == "" {
		if client, err = openstack.NewNetworkV2(p, gophercloud.EndpointOpts{Region: a.Region}); err != nil {
			return nil, problem.Invalidf("[neutron]: Keystone's catalog has no network service in region %q: %w", a.Region, err)
		}
	} else {
		client = setClientEndpoint(client, a.Endpoint)
	}
	c.client = client
	return client, nil
}

// setClientEndpoint points a client at an endpoint, given with or without its version.
func setClientEndpoint(c *gophercloud.ServiceClient, endpoint string) *gophercloud.ServiceClient {
	c.Endpoint = strings.TrimSuffix(strings.TrimRight(endpoint, "/"), "/v2.0") + "/"
	c.ResourceBase = c.Endpoint + "v2.0/"
	c.Type = "network"
	return c
}

func (a Access) transport() (http.RoundTripper, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.Insecure}
	if len(a.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(a.CA) {
			return nil, problem.Invalidf("[neutron]cafile: holds no certificate")
		}
		conf.RootCAs = pool
	}
	return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute}, nil
}

// maxAnswer bounds one answer of Keystone or Neutron, in bytes.
const maxAnswer = 16 << 20

// limitedTransport cuts answers that are too long off.
type limitedTransport struct{ inner http.RoundTripper }

// RoundTrip is http.RoundTripper's.
func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.inner.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// vif is a Neutron port with its binding.
type vif struct {
	ports.Port
	portsbinding.PortsBindingExt
}

var errNoNetwork = errors.New("Neutron has no network")

// network gives the UUID of a network that is called by its UUID or name.
func (c *Cloud) network(ctx context.Context, ident string) (string, error) {
	c.mu.Lock()
	id, ok := c.names[ident]
	c.mu.Unlock()
	if ok {
		return id, nil
	}
	client, err := c.service(ctx)
	if err != nil {
		return "", err
	}
	opts := networks.ListOpts{Name: ident}
	if record.IsUUID(ident) {
		opts = networks.ListOpts{ID: ident}
	}
	pages, err := networks.List(client, opts).AllPages(ctx)
	if err != nil {
		return "", classifyNeutronError(err, "look for network "+ident)
	}
	found, err := networks.ExtractNetworks(pages)
	switch {
	case err != nil:
		return "", classifyNeutronError(err, "look for network "+ident)
	case len(found) == 0:
		return "", problem.Invalidf("%w %q that salvor's user may see", errNoNetwork, ident)
	case len(found) > 1:
		return "", problem.Invalidf("Neutron has %d networks called %q: name one by its UUID", len(found), ident)
	}
	c.mu.Lock()
	if record.IsUUID(ident) { // a name may come to mean another network
		c.names[ident] = found[0].ID
	}
	c.mu.Unlock()
	return found[0].ID, nil
}

func (c *Cloud) list(ctx context.Context, opts ports.ListOpts) ([]vif, error) {
	client, err := c.service(ctx)
	if err != nil {
		return nil, err
	}
	pages, err := ports.List(client, opts).AllPages(ctx)
	if err != nil {
		return nil, classifyNeutronError(err, "list the node's ports")
	}
	var out []vif
	err = ports.ExtractPortsInto(pages, &out)
	return out, classifyNeutronError(err, "list the node's ports")
}

func (c *Cloud) get(ctx context.Context, id string) (vif, error) {
	client, err := c.service(ctx)
	if err != nil {
		return vif{}, err
	}
	var v vif
	err = ports.Get(ctx, client, id).ExtractInto(&v)
	return v, classifyNeutronError(err, "read port "+id)
}

// create makes a port for a NIC, bound to it.
func (c *Cloud) create(ctx context.Context, n *metal.Node, p *metal.Port, network string, groups []string) (vif, error) {
	client, err := c.service(ctx)
	if err != nil {
		return vif{}, err
	}
	up := true
	opts := ports.CreateOpts{NetworkID: network, AdminStateUp: &up, MACAddress: p.Address, DeviceID: n.ID, DeviceOwner: owner}
	if c.access.AuthURL == "" {
		opts.ProjectID = c.access.ProjectName // which only a login would tell
	}
	if len(groups) > 0 {
		opts.SecurityGroups = &groups
	}
	var v vif
	err = ports.Create(ctx, client, portsbinding.CreateOptsExt{CreateOptsBuilder: opts, HostID: n.ID, VNICType: "baremetal", Profile: buildBindingProfile(p)}).ExtractInto(&v)
	return v, classifyNeutronError(err, "create a port for the NIC "+p.Address)
}

// bind gives a port to a NIC. One that is bound elsewhere is freed first, for a bound port keeps its MAC.
func (c *Cloud) bind(ctx context.Context, v vif, n *metal.Node, p *metal.Port) (vif, error) {
	if v.HostID != "" && strings.ToLower(v.MACAddress) != p.Address {
		if err := c.unbind(ctx, v.ID); err != nil {
			return v, err
		}
	}
	client, err := c.service(ctx)
	if err != nil {
		return v, err
	}
	opts := ports.UpdateOpts{}
	if strings.ToLower(v.MACAddress) != p.Address {
		opts.MACAddress = &p.Address
	}
	host := n.ID
	var out vif
	err = ports.Update(ctx, client, v.ID, portsbinding.UpdateOptsExt{UpdateOptsBuilder: opts, HostID: &host, VNICType: "baremetal", Profile: buildBindingProfile(p)}).ExtractInto(&out)
	return out, classifyNeutronError(err, "bind port "+v.ID)
}

func (c *Cloud) unbind(ctx context.Context, id string) error {
	client, err := c.service(ctx)
	if err != nil {
		return err
	}
	nobody := ""
	err = ports.Update(ctx, client, id, portsbinding.UpdateOptsExt{UpdateOptsBuilder: ports.UpdateOpts{}, HostID: &nobody, Profile: map[string]any{}}).Err
	return classifyNeutronError(err, "unbind port "+id)
}

func (c *Cloud) remove(ctx context.Context, id string) error {
	client, err := c.service(ctx)
	if err != nil {
		return err
	}
	err = ports.Delete(ctx, client, id).ExtractErr()
	if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		return nil
	}
	return classifyNeutronError(err, "delete port "+id)
}

// buildBindingProfile tells the switch's driver where the NIC is plugged in.
func buildBindingProfile(p *metal.Port) map[string]any {
	links := []any{}
	if len(p.LocalLink) > 0 {
		links = append(links, p.LocalLink)
	}
	out := map[string]any{"local_link_information": links}
	if p.PhysicalNetwork != "" {
		out["physical_network"] = p.PhysicalNetwork
	}
	return out
}

// classifyNeutronError gives an error of Neutron its kind, without the request's headers and bodies.
func classifyNeutronError(err error, op string) error {
	if err == nil {
		return nil
	}
	var code gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &code) {
		var late gophercloud.ErrUnableToReauthenticate
		if errors.As(err, &late) {
			return problem.Unavailablef("%s: Keystone gives no new token", op)
		}
		return problem.Unavailablef("%s: %w", op, err)
	}
	text := problem.Quote(driver.Sanitize(strings.TrimSpace(string(code.Body))))
	switch code.Actual {
	case http.StatusNotFound:
		return problem.NotFoundf("%s: Neutron has none", op)
	case http.StatusConflict:
		return problem.Conflictf("%s: Neutron refuses (409): %s", op, text)
	case http.StatusUnauthorized, http.StatusForbidden:
		return problem.Invalidf("%s: refused (%d): check [neutron]username, password and project", op, code.Actual)
	case http.StatusBadRequest:
		return problem.Invalidf("%s: Neutron refuses (400): %s", op, text)
	}
	return problem.Unavailablef("%s: Neutron answers %d", op, code.Actual)
}
