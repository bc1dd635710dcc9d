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

// closeTimeout bounds the goodbye to a BMC, which is sent even if the operation was cut off.
const closeTimeout = time.Second

// lanSession is a session of the client in Go.
type lanSession struct {
	api  *client.Client
	conf ipmiSettings
	wire *filteredDialer
	open bool // the session is open
}

// runInLANSession runs fn in a session. A panic of the library over an answer that it cannot
// digest is the BMC's rubbish, not our end.
func runInLANSession(ctx context.Context, conf ipmiSettings, fn func(context.Context, commandSender) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = problem.Unavailablef("its answer makes no sense")
		}
	}()
	api, err := client.NewClient(conf.host, conf.port, conf.username, conf.password.Reveal())
	if err != nil {
		return problem.Invalidf("%s", driver.Sanitize(err.Error(), conf.password))
	}
	suites := make([]types.CipherSuiteID, 0, len(conf.ciphers))
	for _, c := range conf.ciphers {
		suites = append(suites, types.CipherSuiteID(c))
	}
	wire := &filteredDialer{ctx: ctx, address: conf.address(), api: api, guard: sessionGuard{password: conf.password}}
	api.WithUDPProxy(wire).WithCipherSuiteID(suites...).WithMaxPrivilegeLevel(privilegeLevels[conf.level])
	l := &lanSession{api: api, conf: conf, wire: wire}
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
	l.open = true
	return fn(ctx, l)
}

func (l *lanSession) send(ctx context.Context, netFn, command byte, data ...byte) ([]byte, error) {
	if err := driver.CheckLease(ctx); err != nil {
		return nil, driver.Trouble(err)
	}
	answer, err := l.api.RawCommand(ctx, types.NetFn(netFn), command, data, "raw")
	if err != nil {
		if answer, ok := types.IsResponseError(err); ok {
			return nil, classifyCompletionCode(netFn, command, byte(answer.CompletionCode()))
		}
		return nil, l.fault(ctx, err)
	}
	return answer.Response, nil
}

// fewTries is how often a login is tried that a BMC does not answer, or answers otherwise than was asked: a datagram may have been lost or
// forged.
const fewTries = 2

// fault gives an error of the library its kind. A completion code is one of the commands that open a session, or a console.
func (l *lanSession) fault(ctx context.Context, err error) error {
	var known *problem.Error
	if errors.As(err, &known) {
		return driver.Trouble(err, l.conf.password)
	}
	if answer, ok := types.IsResponseError(err); ok {
		command := byte(commandSetPrivilege)
		if l.open {
			command = commandActivatePayload
		}
		return classifyCompletionCode(netFnApp, command, byte(answer.CompletionCode()))
	}
	text := err.Error()
	silent := l.wire.guard.loginUnanswered.Load()
	switch other, opened := l.wire.guard.otherSuite.Load(), l.wire.guard.opened.Load(); {
	case other && opened && !silent: // the login failed with the suite that the BMC has; the library tells of the last one
		return wrongPassword()
	case other && !opened && !l.wire.guard.suiteUnanswered.Load():
		return problem.Tries(fewTries, problem.Unavailablef("the BMC, or someone on the way, answers with another cipher suite than %v; set %s to one that the BMC has, often 3", l.conf.ciphers, CipherKey))
	case silent && opened && ctx.Err() == nil && !errors.Is(err, syscall.ECONNREFUSED): // whatever it answered to the other suites
		return problem.Tries(fewTries, problem.Unavailablef("the BMC opens a session and does not answer the login; some do so where %s or %s is wrong", UsernameKey, PasswordKey))
	}
	if refusal := l.refusal(text); refusal != nil {
		return refusal
	}
	var timeout net.Error
	var name *net.DNSError
	switch {
	case errors.As(err, &name):
		return driver.Trouble(err, l.conf.password)
	case ctx.Err() != nil:
		return driver.Trouble(ctx.Err())
	case errors.Is(err, syscall.ECONNREFUSED):
		return driver.Trouble(syscall.ECONNREFUSED)
	case errors.As(err, &timeout) && timeout.Timeout(), strings.Contains(text, "no datagram matched"):
		return driver.Trouble(context.DeadlineExceeded)
	}
	return problem.Unavailablef("%s", problem.Quote(driver.Sanitize(text, l.conf.password)))
}

// refusal tells why the BMC opened no session, or nil if it never said no. The library's
// error does not tell reliably, so the status codes come from the wire.
func (l *lanSession) refusal(text string) error {
	switch {
	case strings.Contains(text, "RAKP4") && strings.Contains(text, client.ErrRAKPAuthentication.Error()):
		return wrongBMCKey()
	case strings.Contains(text, client.ErrRAKPAuthentication.Error()):
		return wrongPassword()
	}
	r, found := findRefusal(func(r sessionRefusal) bool { return l.wire.refused.Load()&(1<<r.code) != 0 })
	switch {
	case found && r.kind >= ofSuite && l.wire.guard.suiteUnanswered.Load(): // what it says to one suite is not what it says to all
		return driver.Trouble(context.DeadlineExceeded)
	case found:
		return r.fault(l.conf)
	}
	return nil
}
