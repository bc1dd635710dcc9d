// Package ironic runs servers on bare metal: each is a node of an endpoint of the Bare Metal API,
// ours or any other. It knows nodes by that API only; it knows no store, no job, and no other way to a machine.
package ironic

import (
	"context"
	"reflect"
	"sync"
	"time"

	"salvor/client"
	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
	"salvor/secret"
)

// Config is how an endpoint is reached.
type Config struct {
	URL string
	// Login is one of compute's.
	Login                    string
	AuthURL, Project, Domain string
	User                     string
	Password                 secret.Value
	// CA is PEM, trusted beside the system's; Insecure takes any certificate.
	CA       string
	Insecure bool
	// Timeout bounds a request; 0: a minute, for some actions are done before they are answered.
	Timeout time.Duration
}

// Endpoint drives the nodes of one endpoint. It is safe for use by several goroutines.
type Endpoint struct{ api *client.Client }

var _ hypervisor.BareMetal = (*Endpoint)(nil)

// rescueSince is the microversion that knows rescue: what is older is of no use to servers.
const rescueSince = client.Version(38)

// New makes an endpoint; it sends nothing. What is wrong with the configuration is problem.Invalid.
func New(c Config) (*Endpoint, error) {
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	conf := client.Config{Endpoint: c.URL, Timeout: c.Timeout, MaxBody: maxAnswer, Transport: transport}
	switch c.Login {
	case "", compute.LoginNone, compute.LoginKeystone:
	case compute.LoginBasic:
		conf.Username, conf.Password = c.User, c.Password
	default:
		return nil, problem.Invalidf("login %.50q is not known", c.Login)
	}
	api, err := client.New(conf)
	if err != nil {
		return nil, err
	}
	return &Endpoint{api}, nil
}

// check tells whether the endpoint speaks a version in which servers can be rescued.
func (e *Endpoint) check(ctx context.Context) error {
	served, err := e.api.Versions(ctx)
	if err != nil {
		return err
	}
	if served.Max < rescueSince {
		return problem.Unsupportedf("%s serves microversions up to %s; servers need %s", e.api.Endpoint(), served.Max, rescueSince)
	}
	return nil
}

// Endpoints gives the clients of endpoints. It keeps one as long as the endpoint's record says the same.
type Endpoints struct {
	// Find reads an endpoint's record by its UUID.
	Find func(ctx context.Context, id string) (*compute.Cluster, error)
	// Self is the address of our own API, for records that name compute.SelfURL; empty: it has none.
	Self func() string

	mu    sync.Mutex
	known map[string]cachedEndpoint
}

type cachedEndpoint struct {
	conf     Config
	endpoint *Endpoint
}

// ForHost is what drives the servers of an endpoint's host.
func (s *Endpoints) ForHost(ctx context.Context, h *compute.Host) (hypervisor.BareMetal, error) {
	if h.Kind != compute.IronicHost || h.ClusterID == "" {
		return nil, problem.Unsupportedf("host %s is no endpoint of the Bare Metal API", h.ID)
	}
	row, err := s.Find(ctx, h.ClusterID)
	if err != nil {
		return nil, err
	}
	return s.Endpoint(row)
}

// Endpoint is that of a record. It compares what matters of the record and not its version, which each look may raise.
func (s *Endpoints) Endpoint(row *compute.Cluster) (hypervisor.BareMetal, error) {
	conf := Config{
		URL: row.URL, Login: row.Login, AuthURL: row.AuthURL, Project: row.Project, Domain: row.Domain,
		User: row.User, Password: row.Password, CA: row.CA, Insecure: row.Insecure,
	}
	if conf.URL == compute.SelfURL {
		if conf.URL = s.Self(); conf.URL == "" {
			return nil, problem.Unavailablef("endpoint %s: this control plane's own address is not known yet; set [api]public_endpoint", row.Name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[row.ID]; ok && reflect.DeepEqual(known.conf, conf) {
		return known.endpoint, nil
	}
	made, err := New(conf)
	if err != nil {
		return nil, problem.New(problem.KindOf(err), "endpoint %s: %w", row.Name, err)
	}
	if s.known == nil {
		s.known = map[string]cachedEndpoint{}
	}
	s.known[row.ID] = cachedEndpoint{conf, made}
	return made, nil
}
