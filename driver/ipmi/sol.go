package ipmi

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/transport"
	"github.com/bougou/go-ipmi/pkg/types"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// SOL reads the serial line of a machine over LAN (IPMI 2.0, 15). The payload is encrypted and authenticated.
type SOL struct{ *Driver }

var (
	_ driver.Console       = SOL{}
	_ driver.ConsoleReader = SOL{}
)

// solInstance is the payload instance that every BMC with SOL has.
const solInstance = 1

// Completion codes of Activate Payload (IPMI 2.0, table 24-2).
const (
	codePayloadActive   = 0x80
	codePayloadDisabled = 0x81
	codePayloadLimit    = 0x82
	codeNoEncryption    = 0x83
)

// StartConsole proves that the serial line can be read. Whoever keeps it reads it with ReadConsole.
func (s SOL) StartConsole(ctx context.Context, n *metal.Node) error {
	if n.ConsoleEnabled {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := false
	err := s.ReadConsole(ctx, n, func() { opened = true; cancel() }, io.Discard)
	if opened {
		return nil
	}
	return err
}

// StopConsole has nothing to stop: the reading ends with the record that asks for it.
func (s SOL) StopConsole(context.Context, *metal.Node) error { return nil }

// ConsoleInfo says that the console is kept, and that nobody can connect to it.
func (s SOL) ConsoleInfo(context.Context, *metal.Node) (metal.Object, error) {
	return metal.Object{"type": "log", "url": nil}, nil
}

// ReadConsole is driver.ConsoleReader's. It keeps one session of the BMC open. Other requests to the BMC wait only until it is open.
func (s SOL) ReadConsole(ctx context.Context, n *metal.Node, opened func(), w io.Writer) error {
	return s.named(n, "console", func(conf ipmiSettings) error {
		if s.needsTool(conf) {
			return errConsoleByTool
		}
		return s.repeatLogin(ctx, conf.login(), func() error { return s.readOnce(ctx, conf, opened, w) })
	})
}

// needsTool tells whether ipmitool speaks with the BMC, which reads no console.
func (s SOL) needsTool(conf ipmiSettings) bool { return s.Client == IPMITool || !conf.bmcKey.Empty() }

var errConsoleByTool = problem.Unsupportedf("only the client in Go reads the console; it does not know %s, and [ipmi]client must be %s", BMCKeyKey, Native)

// readOnce reads in one session, and keeps the turn at the BMC only until the line is open.
func (s SOL) readOnce(ctx context.Context, conf ipmiSettings, opened func(), w io.Writer) error {
	leave, err := s.enter(ctx, conf)
	if err != nil {
		return err
	}
	isOpen := false
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(driver.CallTimeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	if conf.host, err = s.allowed(ctx, conf); err == nil {
		err = runInLANSession(ctx, conf, func(ctx context.Context, sender commandSender) error {
			return sender.(*lanSession).readSOL(ctx, func() { late.Stop(); isOpen = true; leave(nil); opened() }, w)
		})
	}
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		err = driver.Trouble(context.DeadlineExceeded)
	}
	if !isOpen {
		leave(err)
	}
	return err
}

// readSOL activates the payload and passes on what comes, until ctx or the BMC ends it.
func (l *lanSession) readSOL(ctx context.Context, opened func(), w io.Writer) error {
	_, err := l.api.ActivatePayload(ctx, &transport.ActivatePayloadRequest{
		PayloadType: types.PayloadTypeSOL, PayloadInstance: solInstance, EnableEncryption: true, EnableAuthentication: true,
	})
	if err != nil {
		return l.solFault(ctx, err)
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_, _ = l.api.DeactivatePayload(bye, &transport.DeactivatePayloadRequest{PayloadType: types.PayloadTypeSOL, PayloadInstance: solInstance})
	}()
	opened()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer l.keepAlive(ctx, cancel)()
	if err := l.api.SOLStream(ctx, silence{ctx}, w, nil); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return driver.Trouble(cause)
		}
		return l.fault(ctx, err)
	}
	return nil
}

// aliveEvery is how often a session shows that it is used. Some BMCs end one after 30 s in which they were sent payloads of consoles alone, which is when
// the library shows it.
const aliveEvery = 10 * time.Second

// keepAlive shows that the session is used, until the returned function is called. It ends the reading where the conductor may not speak to BMCs any more.
func (l *lanSession) keepAlive(ctx context.Context, stop context.CancelCauseFunc) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(aliveEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if err := driver.CheckLease(ctx); err != nil {
					stop(err)
					return
				}
				bounded, cancel := context.WithTimeout(ctx, closeTimeout)
				_, _ = l.api.GetCurrentSessionInfo(bounded) // a session that has ended is seen by its reader
				cancel()
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

func (l *lanSession) solFault(ctx context.Context, err error) error {
	if answer, ok := types.IsResponseError(err); ok {
		switch answer.CompletionCode() {
		case codePayloadActive, codePayloadLimit:
			return problem.Conflictf("someone else reads the serial line, or did and has not closed it; end that with: ipmitool -I lanplus -H %s -U %s -a sol deactivate", l.conf.host, l.conf.username)
		case codeNoEncryption:
			return problem.Invalidf("the BMC encrypts no console with the cipher suites %v; set %s to 3 or 17", l.conf.ciphers, CipherKey)
		case codePayloadDisabled:
			return problem.Unsupportedf("the BMC has Serial over LAN switched off; switch it on with: ipmitool sol set enabled true")
		}
	}
	fault := l.fault(ctx, err)
	if code := completionCode(0); errors.As(fault, &code) && problem.Is(fault, problem.Unsupported) {
		return problem.Unsupportedf("the BMC has no Serial over LAN: %w", code)
	}
	return fault
}

// silence is the input of a console to which nobody types.
type silence struct{ ctx context.Context }

// Read waits for the end of the context.
func (s silence) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, io.EOF
}
