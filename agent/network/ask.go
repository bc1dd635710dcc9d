package network

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"salvor/networkdata"
)

// questions are what DHCP servers are asked, and what came of that.
type questions struct {
	ctx     context.Context
	running *sync.WaitGroup
	answers chan answer
	// open are the links that are asking, by question: the position of a network in the data, or below 0 the index of a link.
	open map[int]netlink.Link
	// ready are the links, by index, whose addresses are the tenant's.
	ready map[int]bool
	// leased are the links that asked for a lease of IPv4.
	leased []netlink.Link
	// renewed tells whether a lease must be renewed by this process.
	renewed bool
}

// answer is how a question ended.
type answer struct {
	question    int
	link        netlink.Link
	metric      int
	offer       Offer
	six         *lease6
	keptAddress bool // no server answered; the address held stays
	err         error
}

// start runs a question; it may answer more than once, until its function returns.
func (s *Setup) start(question int, link netlink.Link, run func(ctx context.Context, tell func(answer))) {
	s.open[question] = link
	s.running.Go(func() {
		run(s.ctx, func(a answer) {
			a.question, a.link = question, link
			select {
			case s.answers <- a:
			case <-s.ctx.Done():
			}
		})
	})
}

// ask asks for a lease of IPv4.
func (s *Setup) ask(question int, link netlink.Link, metric int) {
	s.leased = append(s.leased, link)
	s.start(question, link, func(ctx context.Context, tell func(answer)) {
		a := s.ask4(ctx, link)
		a.metric = metric
		tell(a)
	})
}

// ask6 asks by DHCPv6 for an address or for name servers.
func (s *Setup) ask6(question int, link netlink.Link, address bool) {
	s.start(question, link, func(ctx context.Context, tell func(answer)) {
		c := client6{nic: link.Attrs().Name, mac: link.Attrs().HardwareAddr, before: s.before6()}
		if !address {
			if dns, err := c.inform(ctx); err == nil {
				tell(answer{six: &lease6{dns: dns}})
			}
			return
		}
		c.hold(ctx, func(l lease6) { tell(answer{six: &l}) })
	})
}

// await waits until ssh has an address: on all of its links, or on one while the others had their time.
func (s *Setup) await(ctx context.Context) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	first, lastReport, lastTry := time.Time{}, time.Now(), time.Now()
	told := false
	for {
		listen, err := s.listenable()
		if err != nil {
			return err
		}
		if len(listen) > 0 && first.IsZero() {
			first = time.Now()
		}
		if len(listen) > 0 && (!hasCarrier(s.open) && len(s.routerless()) == 0 || time.Since(first) > others) {
			s.leave()
			if err := s.write(listen); err != nil {
				return err
			}
			s.Log.Info("tenant network is up", "ssh", listen, "took", time.Since(s.begun).Round(time.Millisecond))
			return nil
		}
		if !told && time.Since(s.begun) > cmp.Or(s.tellAfter, sayEvery) { // whoever looks at the console, or at the file, reads what the machine waits for
			told = true
			s.reportMissing()
			if err := s.report.write(s.Root); err != nil {
				s.Log.Warn("what was left out is not noted", "error", err)
			}
		}
		if time.Since(lastReport) > sayEvery {
			lastReport = time.Now()
			s.Log.Warn("waiting for an address for ssh", "since", time.Since(s.begun).Round(time.Second), "move", s.plan.Move, "links asking", len(s.open))
		}
		if err := s.turn(ctx, ticker.C, &lastTry); err != nil {
			return err
		}
	}
}

// turn waits for an answer or a tick, and tries now and then what is missing.
func (s *Setup) turn(ctx context.Context, tick <-chan time.Time, lastTry *time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case a := <-s.answers:
		delete(s.open, a.question)
		s.take(a)
	case <-tick:
	}
	if time.Since(*lastTry) < retryEvery {
		return nil
	}
	*lastTry = time.Now()
	if s.stack != nil && !s.stack.complete() {
		s.progress()
	}
	if s.asksEverywhere {
		if err := s.askEverywhere(); err != nil {
			s.Log.Warn("links not listed", "error", err)
		}
	}
	return nil
}

// follow goes on while something may come: a NIC that is not there yet, an answer, the end of a lease of IPv6. New addresses are added for ssh.
func (s *Setup) follow(ctx context.Context) error {
	ticker := time.NewTicker(retryEvery)
	defer ticker.Stop()
	lastTry := time.Now()
	var written []netip.Addr
	for len(s.open) > 0 || s.renewed || len(s.routerless()) > 0 || s.stack != nil && !s.stack.complete() {
		if err := s.turn(ctx, ticker.C, &lastTry); err != nil {
			return err
		}
		s.reportRouterless()
		listen, err := s.listenable()
		if err != nil {
			return err
		}
		if slices.Equal(listen, written) && !s.report.changed {
			continue
		}
		if err := s.write(listen); err != nil {
			return err
		}
		written = listen
	}
	return nil
}

// routerless are the positions of the networks whose links wait for an address by the advertisements of a router.
func (s *Setup) routerless() (out []int) {
	if s.stack == nil {
		return nil
	}
	for i, n := range s.stack.data.Networks {
		on := s.stack.made[n.Link]
		if n.Method != networkdata.Router6 && n.Method != networkdata.Info6 || on == nil {
			continue
		}
		held, err := listenAddresses([]netlink.Link{on})
		given := func(a netip.Addr) bool {
			return a.Is6() && !slices.ContainsFunc(s.stack.data.Networks, func(o networkdata.Network) bool { return o.Method == networkdata.Static && o.Address.Addr() == a })
		}
		if err == nil && !slices.ContainsFunc(held, given) {
			out = append(out, i)
		}
	}
	return out
}

// reportRouterless reports the networks that have no router, and removes from the report the networks that got one meanwhile.
func (s *Setup) reportRouterless() {
	without := s.routerless()
	for i := range s.stackNetworks() {
		what := fmt.Sprintf("router %d", i)
		if !slices.Contains(without, i) {
			s.report.clear(what)
			continue
		}
		n := s.stack.data.Networks[i]
		s.report.set(what, fmt.Sprintf("%s: no router on link %q has given an address; the kernel goes on listening", n.Name(), n.Link))
	}
}

// stackNetworks are the networks of the data that is followed.
func (s *Setup) stackNetworks() []networkdata.Network {
	if s.stack == nil {
		return nil
	}
	return s.stack.data.Networks
}

// hasCarrier tells whether one of the links has a carrier: one without is not waited for.
func hasCarrier(links map[int]netlink.Link) bool {
	for _, link := range links {
		nic, err := net.InterfaceByIndex(link.Attrs().Index)
		if err == nil && nic.Flags&net.FlagRunning != 0 {
			return true
		}
	}
	return false
}

// take puts what was answered on its link.
func (s *Setup) take(a answer) {
	name := a.link.Attrs().Name
	if s.stack != nil && s.stack.isMember(a.link) { // the bond was made after the question
		return
	}
	if a.six != nil {
		s.take6(a)
		return
	}
	if a.err == nil && !a.keptAddress {
		a.err = s.useLease(a)
	}
	if a.err != nil {
		s.Log.Error("no lease", "nic", name, "error", a.err)
		return
	}
	s.ready[a.link.Attrs().Index] = true
	s.report.clear(questionName(a.question))
	if a.keptAddress {
		s.Log.Warn("no DHCP server answers: the address held is kept", "nic", name)
		return
	}
	s.Log.Info("lease taken", "nic", name, "address", a.offer.Address, "server", a.offer.Server, "after", time.Since(s.begun).Round(time.Millisecond))
}

func questionName(question int) string { return fmt.Sprintf("answer %d", question) }

func (s *Setup) useLease(a answer) error {
	link, offer := a.link, a.offer
	if err := dropAddresses(link, append(s.fixedOn(link), offer.Address)...); err != nil {
		return err
	}
	if s.plan.Move == MoveYes && !s.ready[link.Attrs().Index] {
		renewIPv6(link.Attrs().Name)
	}
	if offer.MTU >= 576 && offer.MTU <= 65535 && offer.MTU < link.Attrs().MTU {
		if err := netlink.LinkSetMTU(link, offer.MTU); err != nil {
			s.Log.Warn("mtu of the lease not set", "nic", link.Attrs().Name, "error", err)
		}
	}
	s.addDNS(offer.DNS)
	if err := addAddress(link, offer.Address); err != nil {
		return err
	}
	s.setRoutes("the lease of "+link.Attrs().Name, link, offer.Address, withMetrics(offer.Routes, a.metric))
	s.routeBySource()
	return nil
}

// fixedOn are the addresses that the data give a link.
func (s *Setup) fixedOn(link netlink.Link) (out []netip.Prefix) {
	for _, n := range s.stackNetworks() {
		if on := s.stack.made[n.Link]; n.Method == networkdata.Static && on != nil && on.Attrs().Index == link.Attrs().Index {
			out = append(out, n.Address)
		}
	}
	return out
}

// withMetrics gives routes of a lease their metrics, those to one destination in their order.
func withMetrics(routes []Route, first int) []Route {
	out := slices.Clone(routes)
	for i := range out {
		out[i].Metric = first
		for _, r := range out[:i] {
			if r.To == out[i].To {
				out[i].Metric++
			}
		}
	}
	return out
}

func (s *Setup) addDNS(servers []netip.Addr) {
	for _, server := range servers {
		if server.IsValid() && !slices.Contains(s.dns, server) {
			s.dns = append(s.dns, server)
		}
	}
}

// note leaves the address of each link that has one by DHCP, for init to keep the lease alive.
func (s *Setup) note() error {
	for _, link := range s.leased {
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

// reportMissing tells which questions have no answer yet, and which networks have no router.
func (s *Setup) reportMissing() {
	s.reportRouterless()
	for question := range s.open {
		if question >= 0 {
			n := s.stack.data.Networks[question]
			s.report.set(questionName(question), fmt.Sprintf("%s: no DHCP server on link %q has answered; it is asked again", n.Name(), n.Link))
		}
	}
}

// leave reports what is missing, and removes the addresses of links that have no answer yet, because these addresses are the rescuing network's.
func (s *Setup) leave() {
	s.reportMissing()
	for _, link := range s.open {
		if s.plan.Move == MoveNo || s.ready[link.Attrs().Index] {
			continue
		}
		if err := dropAddresses(link); err != nil {
			s.Log.Warn("old address left", "error", err)
		}
	}
}

// listenable are the addresses of ssh's links that are known to be the tenant's.
func (s *Setup) listenable() ([]netip.Addr, error) {
	ssh := s.sshLinks()
	found, err := listenAddresses(ssh)
	if err != nil {
		return nil, err
	}
	old := map[netip.Addr]bool{}
	for _, link := range ssh {
		if s.ready[link.Attrs().Index] || s.plan.Move == MoveNo {
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

// ask4 is DHCP on one link, by the rule of the plan: which offers are the tenant's.
func (s *Setup) ask4(ctx context.Context, link netlink.Link) answer {
	attributes := link.Attrs()
	nic := net.Interface{Index: attributes.Index, Name: attributes.Name, HardwareAddr: attributes.HardwareAddr}
	w, err := openWire(nic)
	if err != nil {
		return answer{err: err}
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
		return answer{keptAddress: true}
	}
	return answer{offer: offer, err: err}
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
