package network

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"salvor/networkdata"
)

const (
	// unknownMove is how long a machine under another server waits for its port to be
	// moved before it takes a lease of the network that it was in.
	unknownMove = 10 * time.Second
	// keepAfter is how long to wait for any answer before the address held is kept.
	keepAfter = 3 * time.Second
	// others is how long the first NIC with an address waits for its siblings.
	others    = 2 * time.Second
	sayEvery  = 10 * time.Second
	pollEvery = 100 * time.Millisecond
	// retryEvery is how often a NIC is looked for that is not there, as one whose driver loads late.
	retryEvery = time.Second
)

// Setup is one run.
type Setup struct {
	Root string
	Log  *slog.Logger
	// Ready is called once ssh has an address to listen on. With it, Run goes on as long as something may still come; nil: Run returns then.
	Ready func() error

	// tellAfter is how long the machine may have no address before what is missing is told; 0: sayEvery.
	tellAfter time.Duration

	plan   Plan
	begun  time.Time
	dns    []netip.Addr
	drives func() ([]byte, error)

	stack  *stack // nil: there is no network_data that can be followed
	report *report
	// done has the networks of the data that are set up or asked for, and those that the kernel refuses, by their position.
	done map[int]bool
	// asksEverywhere tells that no network_data says anything better than to ask every link for a lease; everywhere are the links that are asked.
	asksEverywhere bool
	everywhere     []netlink.Link
	sources        []source

	questions
}

// Run gives the machine the tenant's network as the plan says. Once ssh has an address to listen on, the addresses are in ListenFile and the plan is
// gone. Run waits for that as long as it takes: a rescued machine has nothing else to do.
func (s *Setup) Run(ctx context.Context) error {
	s.begun = time.Now()
	if s.drives == nil {
		s.drives = configDrive
	}
	var err error
	if s.plan, err = ReadPlan(s.Root); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer func() {
		cancel()
		asking.Wait() // nobody changes the network once Run is over
	}()
	s.questions = questions{ctx: ctx, running: &asking, answers: make(chan answer), open: map[int]netlink.Link{}, ready: map[int]bool{}}
	s.report, s.done = newReport(s.Log), map[int]bool{}
	if data := s.data(); data != nil {
		s.stack = newStack(data, s.report)
		s.progress()
	}
	if s.asksEverywhere = len(s.done) == 0; s.asksEverywhere {
		if s.stack != nil && s.stack.data.AsksForNetworks() {
			s.report.set("all", networkdata.AllLeftOut)
		}
		if err := s.askEverywhere(); err != nil {
			return err
		}
	}
	s.clearOthers()
	if err := s.await(ctx); err != nil {
		return err
	}
	RemovePlan(s.Root)
	if s.Ready == nil {
		return nil
	}
	if err := s.Ready(); err != nil {
		return err
	}
	return s.follow(ctx)
}

// data is what was sent, else what the disk's config drive says; nil: neither can be read.
func (s *Setup) data() *networkdata.Data {
	text, from := []byte(s.plan.NetworkData), "the server"
	if len(text) == 0 {
		drive, err := s.drives()
		if err != nil {
			s.Log.Info("no network data: asking DHCP", "reason", err)
			return nil
		}
		text, from = drive, "the config drive"
	}
	data, err := networkdata.Parse(text)
	if err != nil {
		s.report.set("data", fmt.Sprintf("all of it, so that DHCP is asked on every link: %v", err))
		return nil
	}
	for _, text := range data.LeftOut {
		s.report.set(text, text)
	}
	s.addDNS(data.DNS) // also where no network can be had: a lease may name none
	s.Log.Info("network data read", "from", from, "links", len(data.Links), "networks", len(data.Networks))
	return data
}

// progress sets up what can be had of the data by now, and leaves alone what is set up.
func (s *Setup) progress() {
	for _, id := range s.stack.make() {
		on := s.stack.made[id]
		if err := dropAddresses(on); err != nil {
			s.Log.Warn("old address left", "error", err)
		}
		if s.plan.Move == MoveYes {
			renewIPv6(on.Attrs().Name)
		}
	}
	for i, n := range s.stack.data.Networks {
		what := fmt.Sprintf("network %d", i)
		link := s.stack.made[n.Link]
		switch {
		case s.done[i]:
			continue
		case link == nil:
			s.report.set(what, networkdata.NoLink(n))
			continue
		}
		s.done[i] = true
		s.report.clear(what)
		s.report.clear("all")
		switch n.Method {
		case networkdata.Static:
			s.setStatic(what, link, n)
		case networkdata.DHCP4:
			s.ask(i, link, n.Metric)
		case networkdata.DHCP6, networkdata.Info6:
			s.ask6(i, link, n.Method == networkdata.DHCP6)
		}
	}
	s.routeBySource()
}

// setStatic adds an address and, each by itself, the routes over it.
func (s *Setup) setStatic(what string, link netlink.Link, n networkdata.Network) {
	if err := addAddress(link, n.Address); err != nil {
		s.report.set(what, fmt.Sprintf("%s: %v", n.Name(), err))
		return
	}
	s.ready[link.Attrs().Index] = true
	s.setRoutes(n.Name(), link, n.Address, n.Routes)
}

func (s *Setup) setRoutes(name string, link netlink.Link, address netip.Prefix, routes []Route) {
	for _, route := range routes {
		if err := addRoute(link, address, route); err != nil {
			s.report.set(fmt.Sprintf("route %s %s %d", name, route.To, route.Metric), fmt.Sprintf("%s: %v", name, err))
			continue
		}
		s.addSource(link, address, route)
	}
}

// askEverywhere asks DHCP on every link that is not asked yet: on NICs, and on the bonds and VLANs of the data. A member of a bond is left out, because
// the kernel hands to the bond what the member receives.
func (s *Setup) askEverywhere() error {
	links, err := listNICs()
	if err != nil {
		return err
	}
	if s.stack != nil {
		links = slices.DeleteFunc(links, s.stack.isMember)
		for _, link := range s.stack.data.Links {
			if on := s.stack.made[link.ID]; on != nil && link.Kind != networkdata.Physical {
				links = append(links, on)
			}
		}
	}
	for _, link := range links {
		if slices.ContainsFunc(s.everywhere, sameLink(link)) {
			continue
		}
		if err := netlink.LinkSetUp(link); err != nil {
			s.Log.Warn("link left out", "link", link.Attrs().Name, "error", err)
			continue
		}
		s.ask(-link.Attrs().Index, link, firstMetric+len(s.everywhere))
		s.everywhere = append(s.everywhere, link)
	}
	return nil
}

// firstMetric is that of the default route of the first link, where no network_data orders them.
const firstMetric = 100

// sshLinks are the links on whose addresses ssh may listen.
func (s *Setup) sshLinks() (links []netlink.Link) {
	for _, nic := range s.everywhere {
		if s.listensOn(nic.Attrs().HardwareAddr.String()) || s.listensOn(nic.Attrs().PermHWAddr.String()) {
			links = append(links, nic)
		}
	}
	if s.stack == nil {
		return links
	}
	allowed := s.stack.data.LinksOn(s.listensOn)
	for _, link := range s.stack.data.Links {
		if on := s.stack.made[link.ID]; on != nil && allowed[link.ID] && !slices.ContainsFunc(links, sameLink(on)) {
			links = append(links, on)
		}
	}
	return links
}

func sameLink(as netlink.Link) func(netlink.Link) bool {
	return func(link netlink.Link) bool { return link.Attrs().Index == as.Attrs().Index }
}

// listensOn tells whether ssh may listen on the NIC with this MAC.
func (s *Setup) listensOn(mac string) bool {
	return len(s.plan.SSHInterfaces) == 0 || slices.Contains(s.plan.SSHInterfaces, mac)
}

// clearOthers takes the rescuing network's addresses from the NICs that are not used.
func (s *Setup) clearOthers() {
	present, err := listNICs()
	if err != nil || s.plan.Move == MoveNo {
		return
	}
	used := slices.Clone(s.everywhere)
	if s.stack != nil {
		for _, on := range s.stack.made {
			used = append(used, on)
		}
	}
	for _, nic := range present {
		if slices.ContainsFunc(used, sameLink(nic)) {
			continue
		}
		if err := dropAddresses(nic); err != nil {
			s.Log.Warn("old address left", "error", err)
		}
	}
}

// write leaves for init what ssh listens on, what was left out, the name servers, and the leases to keep alive.
func (s *Setup) write(listen []netip.Addr) error {
	if err := s.writeResolver(); err != nil {
		s.Log.Warn("name servers not set", "error", err)
	}
	if err := s.note(); err != nil {
		return err
	}
	if err := s.report.write(s.Root); err != nil {
		s.Log.Warn("what was left out is not noted", "error", err)
	}
	var text strings.Builder
	for _, a := range listen {
		fmt.Fprintln(&text, a)
	}
	if err := replaceFile(s.Root, ListenFile, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write the addresses for ssh: %w", err)
	}
	return nil
}

// writeResolver leaves the file alone where nobody named a server, unless what stands
// in it is of a network that was left.
func (s *Setup) writeResolver() error {
	if len(s.dns) == 0 && s.plan.Move != MoveYes {
		return nil
	}
	var text strings.Builder
	for i, a := range s.dns {
		if i < 3 { // the C library reads no more
			fmt.Fprintln(&text, "nameserver", a)
		}
	}
	return replaceFile(s.Root, resolver, []byte(text.String()), 0o644)
}
