package ipmi

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"

	"salvor/driver"
	"salvor/problem"
)

const netFnChassis = types.NetFn(0x00)

// closeTimeout bounds the goodbye to a BMC, which is sent even if the operation was cut off.
const closeTimeout = time.Second

// lan is a session of the client in Go.
type lan struct {
	api  *client.Client
	conf settings
}

// native runs fn in a session. A panic of the library over an answer that it cannot
// digest is the BMC's rubbish, not our end.
func native(ctx context.Context, conf settings, fn func(context.Context, channel) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = problem.Unavailablef("its answer makes no sense")
		}
	}()
	api, err := client.NewClient(conf.host, conf.port, conf.username, conf.password.Reveal())
	if err != nil {
		return problem.Invalidf("%s", driver.Said(err.Error(), conf.password))
	}
	suites := make([]types.CipherSuiteID, 0, len(conf.ciphers))
	for _, c := range conf.ciphers {
		suites = append(suites, types.CipherSuiteID(c))
	}
	api.WithUDPProxy(&dialer{ctx: ctx, address: conf.address()}).WithCipherSuiteID(suites...).WithMaxPrivilegeLevel(types.PrivilegeLevelAdministrator)
	l := &lan{api: api, conf: conf}
	if err := api.Connect(ctx); err != nil {
		// Without a session there is nobody to say goodbye to; this only closes the socket.
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_ = api.Close(gone)
		return l.fault(ctx, err)
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = api.Close(bye)
	}()
	return fn(ctx, l)
}

func (l *lan) chassis(ctx context.Context, command byte, data ...byte) ([]byte, error) {
	if err := driver.Pass(ctx); err != nil {
		return nil, driver.Trouble(err)
	}
	answer, err := l.api.RawCommand(ctx, netFnChassis, command, data, "chassis")
	if err != nil {
		return nil, l.fault(ctx, err)
	}
	return answer.Response, nil
}

// credentials are the words by which the library reports that a login was refused; its
// error of several cipher suites does not wrap them.
var credentials = []string{client.ErrRAKPAuthentication.Error(), types.RmcpStatusCodeUnauthorizedName.String(), types.RmcpStatusCodeInvalidIntegrityCheckValue.String()}

// fault gives an error of the library its kind.
func (l *lan) fault(ctx context.Context, err error) error {
	var known *problem.Error
	if errors.As(err, &known) {
		return driver.Trouble(err, l.conf.password)
	}
	if answer, ok := types.IsResponseError(err); ok {
		return refuse(byte(answer.CompletionCode()))
	}
	text := err.Error()
	for _, word := range credentials {
		if strings.Contains(text, word) {
			return problem.Invalidf("the BMC refuses %s or %s: %s", UsernameKey, PasswordKey, word)
		}
	}
	if strings.Contains(text, types.RmcpStatusCodeUnauthorizedRoleOfPriLevel.String()) {
		return problem.Invalidf("%s lacks the privilege of an administrator", UsernameKey)
	}
	for _, code := range []types.RmcpStatusCode{types.RmcpStatusCodeNoCipherSuiteMatch, types.RmcpStatusCodeInvalidAuthAlg, types.RmcpStatusCodeInvalidIntegrityAlg, types.RmcpStatusCodeInvalidConfidentAlg} {
		if strings.Contains(text, code.String()) {
			return problem.Invalidf("the BMC takes none of the cipher suites %v; set %s: %s", l.conf.ciphers, CipherKey, code)
		}
	}
	var timeout net.Error
	switch {
	case ctx.Err() != nil:
		return driver.Trouble(ctx.Err())
	case errors.Is(err, syscall.ECONNREFUSED):
		return driver.Trouble(syscall.ECONNREFUSED)
	case errors.As(err, &timeout) && timeout.Timeout(), strings.Contains(text, "no datagram matched"):
		return driver.Trouble(context.DeadlineExceeded)
	}
	return problem.Unavailablef("%s", driver.Said(text, l.conf.password))
}

// dialer connects the library to a BMC and keeps from it the datagrams that it would
// not survive: it parses some of them where nobody can recover from its panic.
type dialer struct {
	ctx     context.Context
	address string
}

// Dial ignores the address that the library makes up, which is wrong for IPv6.
func (d *dialer) Dial(_, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(d.ctx, "udp", d.address)
	if err != nil {
		return nil, err
	}
	return &sieve{conn}, nil
}

type sieve struct{ net.Conn }

// Read drops datagrams that are no IPMI messages.
func (s *sieve) Read(b []byte) (int, error) {
	for {
		n, err := s.Conn.Read(b)
		if err != nil || sound(b[:n]) {
			return n, err
		}
	}
}

func sound(datagram []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return (&types.Rmcp{}).Unpack(append([]byte(nil), datagram...)) == nil
}
