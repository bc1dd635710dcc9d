package network

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
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
)

// Setup is one run.
type Setup struct {
	Root string
	Log  *slog.Logger

	plan   Plan
	begun  time.Time
	dns    []netip.Addr
	drives func() ([]byte, error)
}

// Run gives the machine the tenant's network as the plan says and returns once ssh
// has an address to listen on. The addresses are then in ListenFile and the plan is
// gone. It waits as long as that takes: a rescued machine has nothing else to do.
func (s *Setup) Run(ctx context.Context) error {
	s.begun = time.Now()
	if s.drives == nil {
		s.drives = configDrive
	}
	var err error
	if s.plan, err = ReadPlan(s.Root); err != nil {
		return err
	}
	config := s.config()
	listen, err := s.configure(ctx, config)
	if err != nil {
		return err
	}
	if err := s.writeResolver(); err != nil {
		s.Log.Warn("name servers not set", "error", err)
	}
	if err := s.writeListen(listen); err != nil {
		return err
	}
	RemovePlan(s.Root)
	s.Log.Info("tenant network is up", "ssh", listen, "took", time.Since(s.begun).Round(time.Millisecond))
	return nil
}

// config is what was sent, else what the disk's config drive says, else nil: DHCP.
func (s *Setup) config() *Config {
	text, from := []byte(s.plan.NetworkData), "the server"
	if len(text) == 0 {
		drive, err := s.drives()
		if err != nil {
			s.Log.Info("no network data: asking DHCP", "reason", err)
			return nil
		}
		text, from = drive, "the config drive"
	}
	config, err := ParseData(text)
	if err != nil {
		s.Log.Error("network data refused: asking DHCP instead", "from", from, "error", err)
		return nil
	}
	if len(config.Networks) == 0 {
		return nil
	}
	s.Log.Info("network data read", "from", from, "links", len(config.Links), "networks", len(config.Networks))
	return config
}

// configure follows the config; where it cannot be followed, or says nothing, every
// NIC asks DHCP.
func (s *Setup) configure(ctx context.Context, config *Config) ([]netip.Addr, error) {
	if config != nil {
		made, err := buildLinks(config)
		if err == nil {
			return s.applyConfig(ctx, config, made)
		}
		s.Log.Error("network data cannot be followed: asking DHCP instead", "error", err)
	}
	present, err := listNICs()
	if err != nil {
		return nil, err
	}
	var ssh, asking []netlink.Link
	for _, link := range present {
		if err := setLinkUp(link, 0); err != nil {
			s.Log.Warn("NIC left out", "nic", link.Attrs().Name, "error", err)
			continue
		}
		asking = append(asking, link)
		if s.listensOn(link.Attrs().HardwareAddr) || s.listensOn(link.Attrs().PermHWAddr) {
			ssh = append(ssh, link)
		}
	}
	return s.leases(ctx, asking, ssh, nil)
}

// listensOn tells whether ssh may listen on the NIC with this MAC.
func (s *Setup) listensOn(mac net.HardwareAddr) bool {
	return len(s.plan.SSHInterfaces) == 0 || slices.Contains(s.plan.SSHInterfaces, mac.String())
}

// applyConfig sets the static addresses of a config and asks DHCP where it says so.
func (s *Setup) applyConfig(ctx context.Context, config *Config, made map[string]netlink.Link) ([]netip.Addr, error) {
	s.dns = append(s.dns, config.DNS...)
	allowed := s.allowed(config)
	s.clearOthers(made)
	var ssh, asking []netlink.Link
	for _, link := range config.Links {
		if allowed[link.ID] {
			ssh = append(ssh, made[link.ID])
		}
		if err := dropAddresses(made[link.ID], netip.Prefix{}); err != nil {
			return nil, err
		}
		if s.plan.Move == MoveYes {
			renewIPv6(made[link.ID].Attrs().Name)
		}
	}
	ready := map[int]bool{}
	for _, n := range config.Networks {
		link := made[n.Link]
		switch n.Method {
		case Static:
			if err := setAddress(link, n.Address, n.Routes); err != nil {
				// One wrong route must not cost the others.
				s.Log.Error("network data only partly followed", "error", err)
			}
			ready[link.Attrs().Index] = true
		case DHCP4:
			asking = append(asking, link)
		}
	}
	return s.leases(ctx, asking, ssh, ready)
}

// clearOthers takes the rescuing network's addresses from the NICs that the config
// does not name.
func (s *Setup) clearOthers(made map[string]netlink.Link) {
	present, err := listNICs()
	if err != nil || s.plan.Move == MoveNo {
		return
	}
	for _, link := range present {
		named := func(other netlink.Link) bool { return other.Attrs().Index == link.Attrs().Index }
		if slices.ContainsFunc(slices.Collect(maps.Values(made)), named) {
			continue
		}
		if err := dropAddresses(link, netip.Prefix{}); err != nil {
			s.Log.Warn("old address left", "error", err)
		}
	}
}

// allowed are the ids of the links that ssh may listen on: the NICs named, and what
// was built on them.
func (s *Setup) allowed(config *Config) map[string]bool {
	allowed := map[string]bool{}
	for _, link := range config.Links { // in an order in which parents come first
		switch link.Kind {
		case Physical:
			allowed[link.ID] = s.listensOn(link.MAC)
		case Bond:
			allowed[link.ID] = s.listensOn(link.MAC) || slices.ContainsFunc(link.Members, func(id string) bool { return allowed[id] })
		case VLAN:
			allowed[link.ID] = s.listensOn(link.MAC) || allowed[link.Parent]
		}
	}
	return allowed
}

// writeListen is the last word to init.
func (s *Setup) writeListen(listen []netip.Addr) error {
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
