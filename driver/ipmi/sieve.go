package ipmi

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
)

// filteredDialer connects the library to a BMC by a sieve.
type filteredDialer struct {
	ctx     context.Context
	address string
	api     *client.Client
	guard   sessionGuard
	refused atomic.Uint32 // one bit for each status code with which a session was refused
}

// Dial ignores the address that the library makes up, which is wrong for IPv6.
func (d *filteredDialer) Dial(_, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(d.ctx, "udp", d.address)
	if err != nil {
		return nil, err
	}
	return &datagramFilter{conn, d}, nil
}

// datagramFilter stands between the library and the network. It notes why a BMC refuses a
// session, which the library loses, drops what the guard does not admit, and drops the
// datagrams that the library would not survive: it parses and decrypts them in
// goroutines where nobody can recover from its panic.
type datagramFilter struct {
	net.Conn
	dialer *filteredDialer
}

// Write lets the guard read along.
func (s *datagramFilter) Write(b []byte) (int, error) {
	s.dialer.guard.sent(b)
	return s.Conn.Write(b)
}

// Read gives the next datagram that can be believed and digested.
func (s *datagramFilter) Read(b []byte) (int, error) {
	for {
		n, err := s.Conn.Read(b)
		if err != nil {
			return n, err
		}
		if code := sessionStatus(b[:n]); code > 0 && code < 32 {
			s.dialer.refused.Or(1 << code)
		}
		admitted := s.dialer.guard.admits(b[:n])
		if kind, _ := splitPayload(b[:n]); kind == payloadOpenAnswer && !admitted {
			return 0, errOtherSuite // there is nothing to wait for
		}
		if admitted && isParsableDatagram(s.dialer.api, b[:n]) {
			return n, nil
		}
	}
}

var errOtherSuite = errors.New("the BMC answers with another cipher suite")

// isParsableDatagram has the library parse and decrypt a datagram here, where its panic ends
// nothing. A datagram that it parses to an error is let through: it copes with that.
func isParsableDatagram(api *client.Client, datagram []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	_ = api.ParseRmcpResponse(context.Background(), append([]byte(nil), datagram...), types.Command{}, &client.CommandRawResponse{})
	return true
}

// sessionStatus is the status code of an answer to Open Session, RAKP 1 or RAKP 3
// (IPMI 2.0, 13.17 to 13.24), 0 of everything else.
func sessionStatus(b []byte) byte {
	switch kind, p := splitPayload(b); kind {
	case payloadOpenAnswer, payloadRAKP2, payloadRAKP4:
		if len(p) > 1 {
			return p[1]
		}
	}
	return 0
}
