package network

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

const (
	askEvery     = 400 * time.Millisecond // while a port is likely being moved
	askFast      = 15 * time.Second
	askSlowly    = time.Second // after that
	askLong      = 2 * time.Minute
	askRarely    = 10 * time.Second // after askLong, when nobody waits for an answer any more
	ackWithin    = 1200 * time.Millisecond
	requestEvery = 400 * time.Millisecond
)

// dhcpSocket is one NIC as DHCP sees it before there is an address.
type dhcpSocket struct {
	fd  int
	nic net.Interface
	// seen is told each offer that was not taken, for the log.
	seen func(Offer)
}

// openWire needs CAP_NET_RAW.
func openWire(nic net.Interface) (*dhcpSocket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("dhcp on %s: open packet socket: %w", nic.Name, err)
	}
	err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: nic.Index})
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("dhcp on %s: bind packet socket: %w", nic.Name, err)
	}
	return &dhcpSocket{fd: fd, nic: nic, seen: func(Offer) {}}, nil
}

func networkOrder(v uint16) uint16 { return v<<8 | v>>8 }

func (w *dhcpSocket) close() { unix.Close(w.fd) }

func (w *dhcpSocket) send(packet []byte) error {
	to := &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: w.nic.Index, Halen: 6}
	copy(to.Addr[:], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	return unix.Sendto(w.fd, packet, 0, to)
}

// receive gives the next answer to us within the time, or false.
func (w *dhcpSocket) receive(ctx context.Context, xid uint32, until time.Time) (dhcpReply, bool) {
	buffer := make([]byte, 2048)
	for ctx.Err() == nil {
		left := time.Until(until)
		if left <= 0 {
			return dhcpReply{}, false
		}
		// Short turns, so that the end of the context is seen.
		turn := min(left, 100*time.Millisecond)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, int(turn/time.Millisecond)+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return dhcpReply{}, false
		}
		if n <= 0 {
			continue
		}
		size, _, err := unix.Recvfrom(w.fd, buffer, 0)
		if err != nil {
			continue // the link is down or the packet was bad; the next turn tells
		}
		if r, err := parseReply(buffer[:size], w.nic.HardwareAddr); err == nil && r.xid == xid {
			return r, true
		}
	}
	return dhcpReply{}, false
}

// lease asks until an offer is accepted and leased, or the context ends. What is not
// accepted is not requested, so a server that we are leaving keeps no lease for us.
func (w *dhcpSocket) lease(ctx context.Context, accept func(Offer) bool) (Offer, error) {
	begun := time.Now()
	xid := rand.Uint32()
	for {
		every := askEvery
		switch since := time.Since(begun); {
		case since > askLong:
			every = askRarely
		case since > askFast:
			every = askSlowly
		}
		// An error here is a link that is not up yet; asking goes on.
		_ = w.send(buildDHCPMessage(dhcpv4.MessageTypeDiscover, xid, w.nic.HardwareAddr, nil))
		until := time.Now().Add(every)
		for {
			r, ok := w.receive(ctx, xid, until)
			if !ok {
				break
			}
			if r.kind != dhcpv4.MessageTypeOffer {
				continue
			}
			if !accept(r.Offer) {
				w.seen(r.Offer)
				continue
			}
			if taken, ok := w.request(ctx, xid, r.Offer); ok {
				return taken, nil
			}
			xid = rand.Uint32()
		}
		if err := ctx.Err(); err != nil {
			return Offer{}, err
		}
	}
}

// request turns an offer into a lease; false if the server does not confirm it.
func (w *dhcpSocket) request(ctx context.Context, xid uint32, offer Offer) (Offer, bool) {
	end := time.Now().Add(ackWithin)
	for time.Now().Before(end) {
		_ = w.send(buildDHCPMessage(dhcpv4.MessageTypeRequest, xid, w.nic.HardwareAddr, &offer))
		until := time.Now().Add(requestEvery)
		for {
			r, ok := w.receive(ctx, xid, until)
			if !ok {
				break
			}
			if r.kind == dhcpv4.MessageTypeNak {
				return Offer{}, false
			}
			if r.kind == dhcpv4.MessageTypeAck && r.Server == offer.Server {
				return r.Offer, true
			}
		}
		if ctx.Err() != nil {
			return Offer{}, false
		}
	}
	return Offer{}, false
}

// isFromOtherNetwork tells whether an offer comes from another network than the leases that the
// machine held: by the server where both are known, else by the subnet.
func isFromOtherNetwork(before []Lease, offer Offer) bool {
	for _, lease := range before {
		for _, text := range lease.Addresses {
			prefix, err := netip.ParsePrefix(text)
			if err != nil || !prefix.Masked().Contains(offer.Address.Addr()) {
				continue
			}
			if server, err := netip.ParseAddr(lease.Server); err == nil && server != offer.Server {
				continue
			}
			return false
		}
	}
	return true
}
