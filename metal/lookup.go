package metal

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// Found is the answer of a lookup.
type Found struct {
	Node *Node
	// Contact is what was heard of the node when it was looked up.
	Contact Contact
	// Token is the agent token of this boot; empty: it was told before, or goes another way, and the answer shows the mask.
	Token secret.Value
	// RescueHash is the hash of the rescue password, for agents that take no commands; it comes with the token only.
	RescueHash secret.Value
}

// notFound is the one answer to every lookup that finds nothing it may tell.
var notFound = problem.NotFoundf("Resource could not be found.")

// Lookup finds the node of a booting ramdisk. An id wins over addresses, and among nodes that share an address wins the one whose boot has the token,
// which boot files carry; an empty token is that of a ramdisk that does not tell it. No node, several
// nodes and a state without a ramdisk look alike (NotFound). While the node's next boot is not
// committed yet it is Conflict. tell=false never tells the token.
func (s *Nodes) Lookup(ctx context.Context, id string, macs []string, token secret.Value, tell bool) (Found, error) {
	n, err := s.lookupNode(ctx, id, macs, token)
	if err != nil {
		return Found{}, err
	}
	if !n.within(ctx) {
		return Found{}, notFound
	}
	if s.opts.RestrictLookup && !n.expectsRamdisk() {
		return Found{}, notFound
	}
	if _, err := s.directory.Driver(ctx, n); problem.Is(err, problem.Unavailable) {
		return Found{}, problem.Invalidf("%w", err) // ramdisks expect a 400 where no conductor is
	} else if err != nil {
		return Found{}, err
	}
	found := Found{Node: n}
	if found.Contact, err = s.store.Contact(ctx, nil, n.ID); err != nil {
		return Found{}, err
	}
	expected := n.expectsRamdisk()
	// A hash that goes out with the token goes out once: not before the rescue waits for it.
	early := s.opts.RescuePasswordInLookup && n.ProvisionState == Rescuing
	if expected && (early || n.Plan == nil || n.Plan.BootNumber != n.BootNumber) {
		return Found{}, problem.Conflictf("Node %s: its boot is being prepared; ask again.", n.ID)
	}
	if !tell || !expected || n.Plan.CarryToken {
		return found, nil
	}
	// Told once, a token stays told: whoever asks again needs no transaction to hear that.
	if found.Contact.TokenTold >= n.BootNumber {
		return found, nil
	}
	err = s.jobs.Do(ctx, func(tx job.Tx) error {
		found.Token, found.RescueHash = secret.Value{}, secret.Value{}
		first, err := s.store.MarkTokenTold(tx, n.ID, n.BootNumber)
		if err != nil || !first {
			return err
		}
		found.Token = n.AgentToken(s.key)
		if s.opts.RescuePasswordInLookup && n.ProvisionState == RescueWait {
			found.RescueHash, err = s.rescueHash(tx, n)
		}
		return err
	})
	return found, err
}

func (s *Nodes) rescueHash(tx job.Tx, n *Node) (secret.Value, error) {
	open, err := s.jobs.Unended(tx, job.Node(n.ID))
	if err != nil {
		return secret.Value{}, err
	}
	for _, j := range open {
		if j.Kind == "rescue" {
			return j.Secret, nil
		}
	}
	return secret.Value{}, nil
}

func (s *Nodes) lookupNode(ctx context.Context, id string, macs []string, token secret.Value) (*Node, error) {
	if id != "" {
		n, err := s.store.Node(ctx, nil, id)
		if problem.Is(err, problem.NotFound) {
			return nil, notFound
		}
		return n, err
	}
	owners, err := s.store.NodesOfMACs(ctx, macs)
	if err != nil {
		return nil, err
	}
	if len(owners) == 1 {
		return s.store.Node(ctx, nil, owners[0])
	}
	if token.Empty() {
		return s.onlyOne(ctx, owners, (*Node).expectsRamdisk)
	}
	n, err := s.onlyOne(ctx, owners, func(n *Node) bool { return n.expectsRamdisk() && n.CarriesToken() && token.Equal(n.AgentToken(s.key)) })
	if problem.Is(err, problem.NotFound) { // its boot files may be older than the node's plan, or carry no token of the plan
		return s.onlyOne(ctx, owners, func(n *Node) bool { return n.expectsRamdisk() && !n.CarriesToken() })
	}
	return n, err
}

// expectsRamdisk tells whether a ramdisk was booted on the node that may look the node up.
func (n *Node) expectsRamdisk() bool { return n.ProvisionState.Info().Lookup || n.armedInRescue() }

// maxOwners bounds how many nodes onlyOne reads: a shared adapter may be a port of one node only, and a machine has few NICs.
const maxOwners = 16

// onlyOne is the node among several for which alone a condition holds. Machines of one make may have an adapter with the same MAC, which is a
// port of another node then.
func (s *Nodes) onlyOne(ctx context.Context, ids []string, holds func(*Node) bool) (*Node, error) {
	var found *Node
	if len(ids) > maxOwners {
		return nil, notFound
	}
	for _, id := range ids {
		n, err := s.store.Node(ctx, nil, id)
		if problem.Is(err, problem.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch {
		case !n.within(ctx) || !holds(n):
		case found != nil:
			return nil, notFound
		default:
			found = n
		}
	}
	if found == nil {
		return nil, notFound
	}
	return found, nil
}

// Heartbeat is what a ramdisk says of itself.
type Heartbeat struct {
	URL, Version, CA      string
	Token                 secret.Value
	Status, StatusMessage string
	// Legacy came through the door of agents that know no token: it needs none where the boot has none.
	Legacy bool
}

// LegacyAgent is the version that agents have which tell none through the old door.
const LegacyAgent = "legacy passthru"

// Heartbeat takes a word from a ramdisk. Only one with the token of the node's present boot counts.
// Conflict: the node is locked and this boot has not been heard before; ask again.
func (s *Nodes) Heartbeat(ctx context.Context, ident string, h Heartbeat) error {
	n, err := s.HeartbeatNode(ctx, ident, h)
	if err != nil {
		return err
	}
	return s.HeartbeatOf(ctx, n, h)
}

// HeartbeatNode reads the node of a heartbeat. An unknown node and a token that is not of the node's boot are answered alike,
// so that nobody learns which nodes there are.
func (s *Nodes) HeartbeatNode(ctx context.Context, ident string, h Heartbeat) (*Node, error) {
	refusal := notFound
	switch {
	case h.tokenless():
		refusal = errHoldsToken
	case h.Token.Empty():
		return nil, s.RefuseTokenless(ident)
	}
	n, err := s.store.Node(ctx, nil, ident)
	switch {
	case problem.Is(err, problem.NotFound):
		return nil, refusal
	case err != nil:
		return nil, err
	case !n.within(ctx):
		return nil, refusal
	case !s.proves(n, h):
		s.refused.add(n.ID, n.BootNumber, "", time.Time{})
		return nil, refusal
	}
	return n, nil
}

// proves tells whether a heartbeat has the token of the node's boot, or needs none.
func (s *Nodes) proves(n *Node, h Heartbeat) bool {
	if h.tokenless() {
		return n.noToken()
	}
	return n.BootNumber != 0 && n.Plan != nil && n.Plan.BootNumber == n.BootNumber && h.Token.Equal(n.AgentToken(s.key))
}

// HeartbeatOf is Heartbeat for a node that HeartbeatNode gave.
func (s *Nodes) HeartbeatOf(ctx context.Context, n *Node, h Heartbeat) error {
	err := s.takeHeartbeat(ctx, n, h)
	if h.Token.Empty() {
		return err
	}
	return s.refuse(n, err)
}

func (s *Nodes) takeHeartbeat(ctx context.Context, n *Node, h Heartbeat) error {
	if err := s.checkHeartbeat(h); err != nil {
		return err
	}
	c, err := s.store.Contact(ctx, nil, n.ID)
	if err != nil {
		return err
	}
	first := c.AgentBoot != n.BootNumber
	if err := n.compareHeartbeat(c, h); err != nil {
		return err
	}
	if first && n.Reservation != "" && !n.armedInRescue() {
		return Locked(n)
	}
	if h.tokenless() && c.TokenTold == n.BootNumber && (first || c.AgentVersion != LegacyAgent) {
		return errHoldsToken
	}
	if isUnchanged(n, c, h) {
		s.touchHeartbeat(n, h)
		return nil
	}
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		// The boot may have been voided since the token was checked.
		now, err := s.store.Node(ctx, tx, n.ID)
		if err != nil {
			return err
		}
		if now.BootNumber != n.BootNumber {
			return notFound
		}
		if err := s.jobs.Signal(tx, job.Node(n.ID)); err != nil {
			return err
		}
		if h.tokenless() && first { // from here on nobody is told the token of this boot
			if alone, err := s.store.MarkTokenTold(tx, n.ID, n.BootNumber); err != nil || !alone {
				return cmp.Or(err, errHoldsToken)
			}
		}
		c, err := s.store.Contact(ctx, tx, n.ID)
		if err != nil {
			return err
		}
		if err := now.compareHeartbeat(c, h); err != nil {
			return err
		}
		again := c.AgentBoot == now.BootNumber && c.AgentCA != h.CA
		c.NodeID, c.AgentURL, c.AgentVersion, c.AgentCA = n.ID, h.URL, h.Version, h.CA
		c.AgentStatus, c.AgentStatusMessage = h.Status, h.StatusMessage
		c.AgentBoot, c.HeartbeatAt = n.BootNumber, s.now()
		if err := s.store.SaveContact(tx, c); err != nil {
			return err
		}
		switch {
		case first:
			return s.note(tx, n.ID, record.Asker{}, "contact", "first heartbeat of boot "+formatInt(n.BootNumber)+" from "+h.URL)
		case again:
			return s.note(tx, n.ID, record.Asker{}, "contact", "the ramdisk of boot "+formatInt(n.BootNumber)+" started again: a heartbeat from "+h.URL)
		}
		return nil
	})
}

var (
	errNoToken    = problem.Invalidf("Agent token is required for heartbeat processing.")
	errHoldsToken = problem.Invalidf("Agent token is required for heartbeat processing. An agent that knows no token is served only where the boot of its node has none.")
)

func (h Heartbeat) tokenless() bool { return h.Legacy && h.Token.Empty() }

// noToken tells whether the node's boot is one whose token nobody carries. In a rescue
// such a boot has its password told with the token, so there too nothing goes without it.
func (n *Node) noToken() bool {
	return n.BootNumber > 0 && n.Plan != nil && n.Plan.BootNumber == n.BootNumber && !n.Plan.CarryToken &&
		n.ProvisionState.Info().Lookup && n.ProvisionState != Rescuing && n.ProvisionState != RescueWait
}

// checkHeartbeat refuses what no heartbeat may say, whoever sends it.
func (s *Nodes) checkHeartbeat(h Heartbeat) error {
	if err := s.checkCallback(h.URL); err != nil {
		return err
	}
	switch h.Status {
	case "", "start", "end", "error":
	default:
		return problem.Invalidf("agent_status must be start, end or error")
	}
	return checkCertificate(h.CA)
}

// checkCertificate refuses what could never be trusted when the agent is called back.
func checkCertificate(text string) error {
	if text == "" {
		return nil
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE" {
		return problem.Invalidf("agent_verify_ca is no PEM certificate")
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return problem.Invalidf("agent_verify_ca is no certificate that can be read: %w", err)
	}
	return nil
}

// callbackPath is what may follow the port: agents behind one address have a name each, as Metal3's FakeIPA has the node's id.
var callbackPath = regexp.MustCompile(`^(/[A-Za-z0-9_-]{1,64})?/?$`)

// checkCallback refuses an address at which no agent could ever be called. None at all
// is allowed, as in Ironic: an agent that takes no commands has no door.
func (s *Nodes) checkCallback(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return problem.Invalidf("Invalid callback_url: want http://HOST:PORT or https://HOST:PORT")
	}
	if u.Opaque != "" || !callbackPath.MatchString(u.EscapedPath()) {
		return problem.Invalidf("Invalid callback_url: after the port there may be one name of letters, digits, hyphens and underscores, such as the id of the node")
	}
	port, err := callbackPort(u)
	if err != nil {
		return err
	}
	if s.opts.RequireTLS && u.Scheme != "https" {
		return problem.Invalidf("TLS is required by the configuration ([agent]require_tls); callback_url %q is not https", text)
	}
	if s.opts.Callback != nil {
		if err := s.opts.Callback(u.Hostname(), port); err != nil {
			return problem.Invalidf("Invalid callback_url: %w ([agent]callback_networks)", err)
		}
	}
	return nil
}

// callbackPort refuses the ports of services that are no agent's: those below 1024, but
// for the two of the web.
func callbackPort(u *url.URL) (uint16, error) {
	text := u.Port()
	if text == "" {
		text = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	port, err := strconv.ParseUint(text, 10, 16)
	switch {
	case err != nil || port == 0:
		return 0, problem.Invalidf("Invalid callback_url: there is no port %s", text)
	case port < 1024 && port != 80 && port != 443:
		return 0, problem.Invalidf("Invalid callback_url: port %d is another service's", port)
	}
	return uint16(port), nil
}

// compareHeartbeat refuses an agent whose address or certificate changes within one boot. In a rescue that a repair has armed, the certificate may
// change: a power cut starts the same boot again, and a ramdisk makes a new certificate at each start.
func (n *Node) compareHeartbeat(c Contact, h Heartbeat) error {
	if c.AgentBoot != n.BootNumber {
		return nil
	}
	if c.AgentURL != "" && !strings.EqualFold(c.AgentURL, h.URL) {
		return problem.Invalidf(`Detected change in ramdisk provided "callback_url"`)
	}
	if startsAgain := n.armedInRescue() && c.AgentCA != "" && h.CA != ""; c.AgentCA != h.CA && !startsAgain {
		return problem.Invalidf(`Detected change in ramdisk provided "agent_verify_ca"`)
	}
	return nil
}
