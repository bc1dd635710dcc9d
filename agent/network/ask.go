package network

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// dhcpResult is how DHCP on one link ended.
type dhcpResult struct {
	link        netlink.Link
	offer       Offer
	keptAddress bool // no server answered; the address held stays
	err         error
}

// leases asks DHCP on the links and waits until ssh has an address: on all of its
// links, or on one while the others had their time.
func (s *Setup) leases(ctx context.Context, asking, ssh []netlink.Link, ready map[int]bool) ([]netip.Addr, error) {
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan dhcpResult, len(asking))
	open := map[int]bool{} // links by index
	for _, link := range asking {
		open[link.Attrs().Index] = true
		go func() { answers <- s.ask(ctx, link) }()
	}
	defer func() {
		cancel()
		for range open { // nobody changes the network once Run is over
			<-answers
		}
	}()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	first, lastReport := time.Time{}, time.Now()
	for {
		listen, err := s.listenable(ssh, ready)
		if err != nil {
			return nil, err
		}
		if len(listen) > 0 && first.IsZero() {
			first = time.Now()
		}
		if len(listen) > 0 && (!hasCarrier(open) || time.Since(first) > others) {
			s.leave(asking, ready)
			return listen, s.note(asking)
		}
		if time.Since(lastReport) > sayEvery {
			lastReport = time.Now()
			s.Log.Warn("waiting for an address for ssh", "since", time.Since(s.begun).Round(time.Second), "move", s.plan.Move, "links asking", len(open))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		case a := <-answers:
			delete(open, a.link.Attrs().Index)
			ready = s.take(a, ready)
		}
	}
}

// hasCarrier tells whether one of the links has a carrier: one without is not waited for.
func hasCarrier(links map[int]bool) bool {
	for index := range links {
		nic, err := net.InterfaceByIndex(index)
		if err == nil && nic.Flags&net.FlagRunning != 0 {
			return true
		}
	}
	return false
}

// take puts a lease on its link.
func (s *Setup) take(a dhcpResult, ready map[int]bool) map[int]bool {
	name := a.link.Attrs().Name
	if ready == nil {
		ready = map[int]bool{}
	}
	if a.err == nil && !a.keptAddress {
		a.err = s.useLease(a.link, a.offer)
	}
	if a.err != nil {
		s.Log.Error("no lease", "nic", name, "error", a.err)
		return ready
	}
	ready[a.link.Attrs().Index] = true
	if a.keptAddress {
		s.Log.Warn("no DHCP server answers: the address held is kept", "nic", name)
		return ready
	}
	s.Log.Info("lease taken", "nic", name, "address", a.offer.Address, "server", a.offer.Server, "after", time.Since(s.begun).Round(time.Millisecond))
	return ready
}

func (s *Setup) useLease(link netlink.Link, offer Offer) error {
	if err := dropAddresses(link, offer.Address); err != nil {
		return err
	}
	if s.plan.Move == MoveYes {
		renewIPv6(link.Attrs().Name)
	}
	if offer.MTU >= 576 && offer.MTU <= 65535 && offer.MTU < link.Attrs().MTU {
		if err := setLinkUp(link, offer.MTU); err != nil {
			s.Log.Warn("mtu of the lease not set", "nic", link.Attrs().Name, "error", err)
		}
	}
	for _, server := range offer.DNS {
		if !slices.Contains(s.dns, server) {
			s.dns = append(s.dns, server)
		}
	}
	return setAddress(link, offer.Address, offer.Routes)
}

// note leaves the address of each link that has one by DHCP, for init to keep the lease alive.
func (s *Setup) note(asking []netlink.Link) error {
	for _, link := range asking {
		held, err := listenAddresses([]netlink.Link{link})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(held, netip.Addr.Is4)
		if i < 0 {
			continue
		}
		if err := replaceFile(s.Root, TakenPrefix+link.Attrs().Name, []byte(held[i].String()+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// leave clears the links that got nothing: what they hold is the rescuing network's.
func (s *Setup) leave(asking []netlink.Link, ready map[int]bool) {
	if s.plan.Move == MoveNo {
		return
	}
	for _, link := range asking {
		if ready[link.Attrs().Index] {
			continue
		}
		if err := dropAddresses(link, netip.Prefix{}); err != nil {
			s.Log.Warn("old address left", "error", err)
		}
	}
}

// listenable are the addresses of ssh's links that are known to be the tenant's.
func (s *Setup) listenable(ssh []netlink.Link, ready map[int]bool) ([]netip.Addr, error) {
	found, err := listenAddresses(ssh)
	if err != nil {
		return nil, err
	}
	old := map[netip.Addr]bool{}
	for _, link := range ssh {
		if ready[link.Attrs().Index] || s.plan.Move == MoveNo {
			continue
		}
		for _, lease := range s.plan.Before {
			for _, text := range lease.Addresses {
				if prefix, err := netip.ParsePrefix(text); err == nil && lease.MAC == link.Attrs().HardwareAddr.String() {
					old[prefix.Addr()] = true
				}
			}
		}
	}
	return slices.DeleteFunc(found, func(a netip.Addr) bool { return old[a] }), nil
}

// ask is DHCP on one link, by the rule of the plan: which offers are the tenant's.
func (s *Setup) ask(ctx context.Context, link netlink.Link) dhcpResult {
	attributes := link.Attrs()
	nic := net.Interface{Index: attributes.Index, Name: attributes.Name, HardwareAddr: attributes.HardwareAddr}
	w, err := openWire(nic)
	if err != nil {
		return dhcpResult{link: link, err: err}
	}
	defer w.close()
	answered := map[netip.Addr]bool{}
	w.seen = func(offer Offer) {
		if !answered[offer.Server] {
			answered[offer.Server] = true
			s.Log.Info("offer of the network that is being left", "nic", nic.Name, "address", offer.Address, "server", offer.Server)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if timeout, keeps := s.silenceTimeout(); keeps && hasIPv4Address(link) {
		timer := time.AfterFunc(timeout, cancel)
		defer timer.Stop()
	}
	offer, err := w.lease(ctx, s.wanted)
	if err != nil && ctx.Err() != nil && s.plan.Move != MoveYes && hasIPv4Address(link) {
		return dhcpResult{link: link, keptAddress: true}
	}
	return dhcpResult{link: link, offer: offer, err: err}
}

// silenceTimeout is how long DHCP may stay silent before the address held is kept; a port
// that is surely moved keeps none.
func (s *Setup) silenceTimeout() (time.Duration, bool) {
	switch s.plan.Move {
	case MoveYes:
		return 0, false
	case MoveNo:
		return keepAfter, true
	}
	return unknownMove + keepAfter, true
}

// wanted tells whether an offer is to be taken now.
func (s *Setup) wanted(offer Offer) bool {
	switch s.plan.Move {
	case MoveNo:
		return true
	case MoveYes:
		return isFromOtherNetwork(s.plan.Before, offer)
	}
	return isFromOtherNetwork(s.plan.Before, offer) || time.Since(s.begun) > unknownMove
}

func hasIPv4Address(link netlink.Link) bool {
	held, err := listenAddresses([]netlink.Link{link})
	return err == nil && slices.ContainsFunc(held, netip.Addr.Is4)
}
