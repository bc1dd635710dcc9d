package netboot

import (
	"context"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"salvor/metal"
	"salvor/problem"
)

const (
	offerHold   = time.Minute     // how long an offered address is kept for its client
	declineHold = 5 * time.Minute // how long an address in conflict is kept from everybody

	portServer = 67
	portClient = 68
	portBINL   = 4011 // where PXE firmware asks the second server of a network
)

// dhcpResponder makes the DHCP answers of one interface. It does no I/O but Plans.
type dhcpResponder struct {
	Interface
	plans         Plans
	recordContact func(*metal.Node, string)
	addr          netip.Addr // our own on the interface: server identifier, TFTP server
	baseURL       string     // where a plan without a URL of its own has its files
	bios          string     // TFTP names of the boot loaders
	uefi          string
	pools         []*addressPool
	now           func() time.Time
}

// dhcpClient is what a request says of who sends it.
type dhcpClient struct {
	mac  string
	kind clientKind
	node *metal.Node     // nil: unknown
	plan *metal.BootPlan // nil: nothing to boot
}

// answer gives the reply to a request that came in on a port; nil is silence. An error
// is one of ours, and silence too.
func (r *dhcpResponder) answer(ctx context.Context, req *dhcpv4.DHCPv4, port int) (*dhcpv4.DHCPv4, error) {
	if req.OpCode != dhcpv4.OpcodeBootRequest || req.HWType != iana.HWTypeEthernet || len(req.ClientHWAddr) != 6 || req.ClientHWAddr[0]&1 != 0 {
		return nil, nil
	}
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform, dhcpv4.MessageTypeDecline, dhcpv4.MessageTypeRelease:
	default:
		return nil, nil
	}
	c := dhcpClient{mac: req.ClientHWAddr.String(), kind: kindOf(req)}
	node, err := r.plans.NodeByMAC(ctx, c.mac)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return nil, err
	}
	if err == nil {
		if plan, err := currentPlan(node); err == nil {
			c.node, c.plan = node, plan
		}
	}
	if r.Mode == Proxy || port == portBINL {
		return r.proxy(req, c, port)
	}
	return r.authoritative(req, c)
}

// authoritative answers as the network's own server.
func (r *dhcpResponder) authoritative(req *dhcpv4.DHCPv4, c dhcpClient) (*dhcpv4.DHCPv4, error) {
	p := r.pool(req)
	if p == nil {
		return nil, nil
	}
	served := c.plan != nil || r.Guests
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		if !served {
			return nil, nil
		}
		now := r.now()
		a, ok := p.offer(c.mac, toAddr(req.RequestedIPAddress()), now, now.Add(offerHold))
		if !ok {
			return nil, problem.Unavailablef("DHCP range %s to %s: no free address for %s", p.From, p.To, c.mac)
		}
		return r.lease(req, c, p, dhcpv4.MessageTypeOffer, a)
	case dhcpv4.MessageTypeRequest:
		return r.request(req, c, p, served)
	case dhcpv4.MessageTypeInform:
		// The answer goes to the address that the client says it has: only on this network.
		if !served || !p.Network.Contains(toAddr(req.ClientIPAddr)) {
			return nil, nil
		}
		return r.reply(req, c, p, dhcpv4.MessageTypeAck)
	case dhcpv4.MessageTypeDecline:
		p.decline(c.mac, toAddr(req.RequestedIPAddress()), r.now().Add(declineHold))
	case dhcpv4.MessageTypeRelease:
		p.release(c.mac, toAddr(req.ClientIPAddr))
	}
	return nil, nil
}

// request answers the four kinds of DHCPREQUEST (RFC 2131, 4.3.2): selecting, after a
// reboot, renewing and rebinding.
func (r *dhcpResponder) request(req *dhcpv4.DHCPv4, c dhcpClient, p *addressPool, served bool) (*dhcpv4.DHCPv4, error) {
	wanted := toAddr(req.RequestedIPAddress())
	if !wanted.IsValid() {
		wanted = toAddr(req.ClientIPAddr)
	}
	if id := toAddr(req.ServerIdentifier()); id.IsValid() && id != r.addr {
		// Another server was chosen. What it gives must not be given by us to somebody else;
		// but strangers, of whom anybody can invent many, take nothing from the range.
		if served {
			p.take(c.mac, wanted, r.now(), r.now().Add(r.LeaseTime))
		}
		return nil, nil
	}
	if served {
		now := r.now()
		if p.take(c.mac, wanted, now, now.Add(r.LeaseTime)) {
			return r.lease(req, c, p, dhcpv4.MessageTypeAck, wanted)
		}
		return r.refuse(req)
	}
	if p.hasLeased(c.mac, wanted) {
		return r.refuse(req)
	}
	// A stranger with an address that is not ours to judge. Where a restart forgot that it is, the lease ends by itself.
	return nil, nil
}

// lease is a reply that gives an address.
func (r *dhcpResponder) lease(req *dhcpv4.DHCPv4, c dhcpClient, p *addressPool, kind dhcpv4.MessageType, a netip.Addr) (*dhcpv4.DHCPv4, error) {
	resp, err := r.reply(req, c, p, kind)
	if err != nil {
		return nil, err
	}
	resp.YourIPAddr = a.AsSlice()
	resp.ClientIPAddr = req.ClientIPAddr
	resp.UpdateOption(dhcpv4.OptIPAddressLeaseTime(r.LeaseTime))
	resp.UpdateOption(dhcpv4.OptRenewTimeValue(r.LeaseTime / 2))
	resp.UpdateOption(dhcpv4.OptRebindingTimeValue(r.LeaseTime * 7 / 8))
	return resp, nil
}

// reply is a reply with the network's settings and what there is to boot.
func (r *dhcpResponder) reply(req *dhcpv4.DHCPv4, c dhcpClient, p *addressPool, kind dhcpv4.MessageType) (*dhcpv4.DHCPv4, error) {
	resp, err := r.bare(req, kind)
	if err != nil {
		return nil, err
	}
	n := p.Network.Masked()
	resp.UpdateOption(dhcpv4.OptSubnetMask(prefixMask(n)))
	resp.UpdateOption(dhcpv4.OptBroadcastAddress(broadcast(n).AsSlice()))
	if p.Gateway.IsValid() {
		resp.UpdateOption(dhcpv4.OptRouter(p.Gateway.AsSlice()))
	}
	if len(p.DNS) > 0 {
		resp.UpdateOption(dhcpv4.OptDNS(toIPs(p.DNS)...))
	}
	r.boot(resp, c)
	return resp, nil
}

// refuse is a DHCPNAK: the client has to start over.
func (r *dhcpResponder) refuse(req *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, error) {
	resp, err := r.bare(req, dhcpv4.MessageTypeNak)
	if err != nil {
		return nil, err
	}
	if !resp.GatewayIPAddr.IsUnspecified() {
		resp.SetBroadcast() // tells the relay that the client cannot be reached by address
	}
	return resp, nil
}

func (r *dhcpResponder) bare(req *dhcpv4.DHCPv4, kind dhcpv4.MessageType) (*dhcpv4.DHCPv4, error) {
	return dhcpv4.NewReplyFromRequest(req, dhcpv4.WithMessageType(kind), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(r.addr.AsSlice())))
}

// pool finds the range for a request: by the link that the relay names (RFC 3527), by
// the relay itself, or by our own address.
func (r *dhcpResponder) pool(req *dhcpv4.DHCPv4) *addressPool {
	key := r.addr
	if relay := toAddr(req.GatewayIPAddr); relay.IsValid() {
		key = relay
		if info := req.RelayAgentInfo(); info != nil {
			if link := toAddr(info.Get(dhcpv4.LinkSelectionSubOption)); link.IsValid() {
				key = link
			}
		}
	}
	for _, p := range r.pools {
		if p.Network.Masked().Contains(key) {
			return p
		}
	}
	return nil
}

// replyDestination tells where a reply goes. Clients without an address are reached by
// broadcast: a unicast to an address not yet taken would need an ARP entry.
func replyDestination(req, resp *dhcpv4.DHCPv4, from netip.AddrPort, port int) netip.AddrPort {
	all := netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), portClient)
	relay, own := toAddr(req.GatewayIPAddr), toAddr(req.ClientIPAddr)
	switch {
	case relay.IsValid():
		return netip.AddrPortFrom(relay, portServer)
	case resp.MessageType() == dhcpv4.MessageTypeNak:
		return all
	case port == portBINL && from.Addr().IsValid() && !from.Addr().IsUnspecified():
		return from
	case own.IsValid():
		return netip.AddrPortFrom(own, portClient)
	}
	return all
}
