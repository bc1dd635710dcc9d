package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/problem"
)

// dialTimeout bounds the way to the daemon's first answer.
const dialTimeout = 10 * time.Second

// libvirtConnection is one connection. It is its own dialer, because a daemon that hangs must be left by closing the
// socket under the library, which would ask it for a goodbye.
type libvirtConnection struct {
	*rpc.Libvirt
	sockets []string

	mu     sync.Mutex
	conn   net.Conn
	closed bool
}

// Dial is for the library.
func (l *libvirtConnection) Dial() (net.Conn, error) {
	var failed error
	for _, socket := range l.sockets {
		conn, err := net.DialTimeout("unix", socket, dialTimeout)
		if err != nil {
			failed = errors.Join(failed, err)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			return nil, failed
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.closed {
			conn.Close()
			return nil, net.ErrClosed
		}
		l.conn = conn
		return conn, nil
	}
	return nil, failed
}

func (l *libvirtConnection) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		l.conn.Close()
	}
}

// connect makes a new connection, for at most dialTimeout.
func (h *Hypervisor) connect(ctx context.Context) (*libvirtConnection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	l := &libvirtConnection{sockets: h.sockets}
	l.Libvirt = rpc.NewWithDialer(l)
	done := make(chan error, 1)
	go func() { done <- l.ConnectToURI(h.name) }()
	select {
	case err := <-done:
		if err != nil {
			l.close()
			return nil, problem.Unavailablef("connect to libvirt at %s: %w", strings.Join(h.sockets, " or "), err)
		}
		return l, nil
	case <-ctx.Done():
		l.close()
		return nil, problem.Unavailablef("connect to libvirt at %s: no answer: %w", strings.Join(h.sockets, " or "), ctx.Err())
	}
}

// current is the connection that lives, or a new one.
func (h *Hypervisor) current(ctx context.Context) (*libvirtConnection, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.line != nil && h.line.IsConnected() {
		return h.line, nil
	}
	l, err := h.connect(ctx)
	if err != nil {
		return nil, err
	}
	h.line = l
	return l, nil
}

// drop gives a connection up, so that the next call makes another.
func (h *Hypervisor) drop(l *libvirtConnection) {
	h.mu.Lock()
	if h.line == l {
		h.line = nil
	}
	h.mu.Unlock()
	l.close()
}

// callLibvirt makes one call, which the library would wait for without end. A call that is not answered in time takes its
// connection with it; one whose caller goes away does not, for others use that too.
func callLibvirt[T any](ctx context.Context, h *Hypervisor, what string, within time.Duration, call func(*rpc.Libvirt) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	l, err := h.current(ctx)
	if err != nil {
		return none, fmt.Errorf("%s: %w", what, err)
	}
	done := make(chan answer, 1)
	go func() {
		value, err := call(l.Libvirt)
		done <- answer{value, err}
	}()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case a := <-done:
		if a.err == nil {
			return a.value, nil
		}
		if brokenLine(a.err) {
			h.drop(l)
		}
		return none, classifyLibvirtError(what, a.err)
	case <-ctx.Done():
		return none, problem.Unavailablef("%s: %w", what, ctx.Err())
	case <-timer.C:
		h.drop(l)
		return none, problem.Unavailablef("%s: libvirt did not answer within %s", what, within)
	}
}

// callOnly is ask for calls that answer nothing.
func callOnly(ctx context.Context, h *Hypervisor, what string, within time.Duration, call func(*rpc.Libvirt) error) error {
	_, err := callLibvirt(ctx, h, what, within, func(c *rpc.Libvirt) (struct{}, error) { return struct{}{}, call(c) })
	return err
}

// brokenLine tells an error of the connection from an answer of the daemon.
func brokenLine(err error) bool {
	var answered rpc.Error
	return !errors.As(err, &answered) && !errors.Is(err, rpc.ErrUnsupported)
}

// kinds are the daemon's errors that somebody else than we can mend.
var kinds = map[rpc.ErrorNumber]problem.Kind{
	rpc.ErrNoDomain: problem.NotFound, rpc.ErrNoSecret: problem.Conflict, rpc.ErrInvalidSecret: problem.Conflict,
	rpc.ErrOperationInvalid: problem.Conflict, rpc.ErrDomExist: problem.Conflict,
	rpc.ErrXMLError: problem.Invalid, rpc.ErrXMLDetail: problem.Invalid, rpc.ErrXMLInvalidSchema: problem.Invalid, rpc.ErrInvalidArg: problem.Invalid,
	rpc.ErrConfigUnsupported: problem.Unsupported, rpc.ErrArgumentUnsupported: problem.Unsupported,
	rpc.ErrOperationUnsupported: problem.Unsupported, rpc.ErrNoSupport: problem.Unsupported,
	rpc.ErrOperationDenied: problem.Forbidden, rpc.ErrAuthFailed: problem.Forbidden, rpc.ErrAccessDenied: problem.Forbidden,
	rpc.ErrOperationTimeout: problem.Unavailable, rpc.ErrNoConnect: problem.Unavailable, rpc.ErrRPC: problem.Unavailable,
	rpc.ErrResourceBusy: problem.Unavailable, rpc.ErrAgentUnresponsive: problem.Unavailable,
}

func classifyLibvirtError(what string, err error) error {
	var answered rpc.Error
	switch {
	case errors.Is(err, rpc.ErrUnsupported):
		return problem.Unsupportedf("%s: this libvirt cannot do that: %w", what, err)
	case !errors.As(err, &answered):
		return problem.Unavailablef("%s: the connection to libvirt broke: %w", what, err)
	case strings.Contains(answered.Message, `Failed to get "write" lock`):
		return problem.Conflictf("%s: a disk is in use by another guest: %w", what, err)
	}
	if kind, known := kinds[rpc.ErrorNumber(answered.Code)]; known {
		return problem.New(kind, "%s: libvirt: %w", what, err)
	}
	return fmt.Errorf("%s: libvirt: %w", what, err)
}

// isCode tells whether the daemon answered with this error.
func isCode(err error, code rpc.ErrorNumber) bool {
	var answered rpc.Error
	return errors.As(err, &answered) && rpc.ErrorNumber(answered.Code) == code
}
