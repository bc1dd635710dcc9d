package compute

import (
	"context"
	"time"

	"salvor/record"
	"salvor/secret"
)

// Hosts is the service of hosts: how they join, live and are taken out of service.
type Hosts struct {
	*core
	records *record.Collection[Host, HostFilter]
	servers *Servers
}

func newHosts(c *core, s *Servers) *Hosts { return &Hosts{core: c, servers: s} }

// Host reads one by UUID or name.
func (s *Hosts) Host(ctx context.Context, ident string) (*Host, error) { return nil, errSoon }

// List reads a page.
func (s *Hosts) List(ctx context.Context, f HostFilter, p record.Page) ([]*Host, error) {
	return nil, errSoon
}

// Join lets a host in with a join token, which is used up; serial is that of the certificate that it is given. A host that
// joins again (same UUID from its disk) keeps its row.
func (s *Hosts) Join(ctx context.Context, token secret.Value, hostID, name, serial string) (*Host, error) {
	return nil, errSoon
}

// Certified notes the serial of a host's next certificate.
func (s *Hosts) Certified(ctx context.Context, hostID, serial string) error { return errSoon }

// Allow tells whether the host with this certificate may speak: NotFound or Forbidden (revoked). It is cheap.
func (s *Hosts) Allow(ctx context.Context, hostID, serial string) error { return errSoon }

// Renewal is what a host tells with its lease. Inventory and Guests are nil where nothing changed; Guests are all of them otherwise.
type Renewal struct {
	BootID, Name string
	Inventory    *Inventory
	Guests       []Guest
	HasGuests    bool // Guests were sent, though there may be none
	Did          []Deed
}

// Deed is what a host did without an order.
type Deed struct {
	ServerID, Text string
	At             time.Time
}

// Renewed answers a renewal. Servers is set where Guests were sent.
type Renewed struct {
	Resend  bool
	Servers map[string]WantedServer
}

// WantedServer is how a server should be.
type WantedServer struct {
	Power Power
	Epoch int64
	Busy  bool
}

// Renew keeps a host's lease and takes in what it tells. A new boot id is admitted and gets the open orders.
func (s *Hosts) Renew(ctx context.Context, hostID, serial string, r Renewal) (Renewed, error) {
	return Renewed{}, errSoon
}

// RunLeases writes leases in batches until ctx ends, and tends what is due (see Servers.Tend). onError is told of what failed.
func (s *Hosts) RunLeases(ctx context.Context, onError func(error)) {}

// Lives reads which hosts live, by host: renewed within Suspect and not forced down; hosts of clusters live while their cluster answers.
func (s *Hosts) Lives(ctx context.Context) (map[string]Life, error) { return nil, errSoon }

// Life is what is known of a host's life.
type Life struct {
	Up        bool
	RenewedAt time.Time
	Renewals  int64
	// Running servers on it.
	Servers int
}

// Service is what operators say of a host; nil leaves a field as it is.
type Service struct {
	Disabled   *bool
	Reason     *string
	ForcedDown *bool
	Revoked    *bool
	Zone       *string
}

// SetService changes what operators say of a host.
func (s *Hosts) SetService(ctx context.Context, ident string, v Service, who record.Asker) (*Host, error) {
	return nil, errSoon
}

// Ensure writes the row of a cluster's node: found by cluster and name, made if there is none.
func (s *Hosts) Ensure(ctx context.Context, clusterID, name string, inv Inventory) (*Host, error) {
	return nil, errSoon
}

// Remove deletes a host without servers.
func (s *Hosts) Remove(ctx context.Context, ident string, who record.Asker) error { return errSoon }

// JoinTokens is the service of join tokens.
type JoinTokens struct {
	*core
	*record.Collection[JoinToken, JoinTokenFilter]
}

func newJoinTokens(c *core) *JoinTokens {
	return &JoinTokens{core: c, Collection: record.NewCollection("join token", c.store.JoinTokens(), c.jobs, c.now)}
}

// Issue makes a token that lets one host in within ttl. The clear text is told here only.
func (s *JoinTokens) Issue(ctx context.Context, ttl time.Duration, note string, who record.Asker) (*JoinToken, secret.Value, error) {
	return nil, secret.Value{}, errSoon
}
