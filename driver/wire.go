package driver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode"

	"salvor/problem"
	"salvor/secret"
	"salvor/wire/answer"
)

// MaxAnswer bounds the body of one answer of a BMC or an agent, in bytes.
const MaxAnswer = 4 << 20

var (
	errCut       = errors.New("it cut the connection before the end of its answer")
	errElsewhere = errors.New("it points to another host")
)

// HTTPConfig is the way HTTP takes to one BMC or agent: one request at a time, each past
// the gate of its context, bounded in time and size, by no proxy, and never to
// another host than Base's. A redirect is the answer.
type HTTPConfig struct {
	Base  *url.URL
	TLS   *tls.Config
	Locks *AddressLocks
	// Protocol names it to those who measure.
	Protocol string
	// Limit bounds the body of an answer in bytes; 0: MaxAnswer.
	Limit int64
	// Filter leaves out of an answer what its reader does not need, before the answer takes memory; nil: nothing is left out.
	Filter func(io.Reader) io.Reader
	// Timeout bounds one request; 0: CallTimeout.
	Timeout time.Duration
	// Control refuses addresses that may not be connected to, as a net.Dialer's; nil: none.
	Control func(network, address string, c syscall.RawConn) error
	// LogsIn tells whether a request logs in with Login. Logins may refuse such a request before it is sent, and learns its result; nil: no
	// login is refused.
	Logins *Logins
	Login  Login
	LogsIn func(*http.Request) bool
}

// DialFunc opens a connection, as the method DialContext of net.Dialer does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

type dialKey struct{}

// WithDial has the clients of HTTPConfig open connections by dial under the returned context. A test puts a BMC in memory behind dial and
// runs both under a clock of its own, so that pauses and deadlines cost no time.
func WithDial(ctx context.Context, dial DialFunc) context.Context {
	return context.WithValue(ctx, dialKey{}, dial)
}

// dial opens a connection by the function of WithDial, or else over the network.
func (w HTTPConfig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if dial, ok := ctx.Value(dialKey{}).(DialFunc); ok {
		return dial(ctx, network, address)
	}
	return (&net.Dialer{Timeout: CallTimeout, Control: w.Control}).DialContext(ctx, network, address)
}

// Client gives a client and what releases its connections.
func (w HTTPConfig) Client() (*http.Client, func()) {
	transport := &http.Transport{
		TLSClientConfig:        w.TLS,
		DialContext:            w.dial,
		TLSHandshakeTimeout:    CallTimeout,
		ResponseHeaderTimeout:  w.timeout(),
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        CallTimeout,
	}
	client := &http.Client{Transport: &lanedTransport{wire: w, inner: transport}}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, transport.CloseIdleConnections
}

func (w HTTPConfig) timeout() time.Duration { return cmp.Or(w.Timeout, CallTimeout) }

type lanedTransport struct {
	wire  HTTPConfig
	inner *http.Transport
}

// RoundTrip reads the whole answer before it leaves the lane, so that the next
// request does not overlap with a body still on its way.
func (t *lanedTransport) RoundTrip(req *http.Request) (_ *http.Response, err error) {
	if req.URL.Host != t.wire.Base.Host || req.URL.Scheme != t.wire.Base.Scheme || req.URL.User != nil {
		return nil, errElsewhere
	}
	leave, err := t.wire.Locks.Enter(req.Context(), req.URL.Host)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := CheckLease(req.Context()); err != nil {
		return nil, err
	}
	logsIn := t.wire.Logins != nil && t.wire.LogsIn(req)
	if logsIn {
		if err := t.wire.Logins.Pass(req.Context(), t.wire.Login); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	var refused error
	defer func() {
		if err != nil {
			refused = Trouble(err) // with its kind, and without the URL
		}
		Measured(req.Context(), t.wire.Protocol, began, refused)
	}()
	ctx, cancel := context.WithTimeout(req.Context(), t.wire.timeout())
	defer cancel()
	resp, err := t.inner.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case logsIn && resp.StatusCode == http.StatusUnauthorized:
		if !t.wire.Logins.Lately(t.wire.Login) { // else the caller asks again, and calls Refused in the end
			t.wire.Logins.Refused(req.Context(), t.wire.Login)
		}
		refused = problem.Invalidf("%w %s or %s", ErrLogin, t.wire.Login.UsernameKey, t.wire.Login.PasswordKey)
	case logsIn && resp.StatusCode < http.StatusMultipleChoices && strings.Trim(req.URL.Path, "/") != "redfish/v1": // shown without a login
		t.wire.Logins.Accepted(t.wire.Login)
	}
	limit := t.wire.Limit
	if limit == 0 {
		limit = MaxAnswer
	}
	share, end := answer.Of(ctx), func() {}
	if share == nil {
		share = answer.NewShare()
		end = share.End
	}
	var from io.Reader = resp.Body
	if t.wire.Filter != nil {
		from = t.wire.Filter(from)
	}
	text, err := answer.Read(ctx, share, from, limit)
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = answer.NewBody(text, end)
	return resp, nil
}

// Body gives the whole body of an answer of a Client of this package, without a copy. It stays valid after the body is closed.
func Body(resp *http.Response) []byte {
	if b, ok := resp.Body.(*answer.Body); ok {
		return b.Text()
	}
	return nil
}

// Trouble gives the error of an HTTP exchange its kind and takes the URL out of its
// text, for URLs carry tokens. What has a kind already keeps it. The secrets are
// masked should the peer have sent them back.
func Trouble(err error, secrets ...secret.Value) error {
	var in *url.Error
	for errors.As(err, &in) {
		err = in.Err
	}
	var known *problem.Error
	var shut leaseLostError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var verify *tls.CertificateVerificationError
	var alert tls.AlertError
	var plain tls.RecordHeaderError
	var name *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &shut):
		return problem.Unavailablef("%w", err)
	case errors.As(err, &known):
		return problem.New(known.Kind, "%w", err)
	case errors.As(err, &unknown), errors.As(err, &invalid), errors.As(err, &hostname), errors.As(err, &verify):
		return problem.Invalidf("its certificate is not trusted: %s", problem.Quote(Sanitize(err.Error(), secrets...)))
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		return problem.Invalidf("it does not speak TLS there; is its URL http, or its port another? %s", problem.Quote(Sanitize(err.Error(), secrets...)))
	case errors.As(err, &alert):
		return problem.Invalidf("it refuses TLS: %s", problem.Quote(Sanitize(err.Error(), secrets...)))
	case errors.As(err, &name) && name.IsNotFound:
		return problem.Tries(UnknownNameTries, problem.Unavailablef("nobody knows the name %s; is it spelled right? %s", Sanitize(name.Name), problem.Quote(Sanitize(err.Error(), secrets...))))
	case errors.Is(err, errElsewhere):
		return problem.Unavailablef("refused to follow: %w", err)
	case errors.Is(err, context.Canceled):
		return problem.Unavailablef("given up: %w", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return problem.Unavailablef("%w: nothing listens there", syscall.ECONNREFUSED)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return problem.Unavailablef("%w", errSilent)
	case IsCut(err):
		return problem.Unavailablef("%w", errCut)
	case strings.Contains(err.Error(), "response headers exceeded"):
		return problem.Unavailablef("the headers of its answer are longer than is read")
	}
	return problem.Unavailablef("%s", problem.Quote(Sanitize(wordsOfHTTP.Replace(err.Error()), secrets...)))
}

// wordsOfHTTP takes the name of Go's package, and its word for a connection, out of a text of net/http.
var wordsOfHTTP = strings.NewReplacer("net/http: ", "", "HTTP/1.x transport connection broken: ", "the connection broke: ")

// IsCut tells whether a peer ended the connection before the end of its answer.
func IsCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// UnknownNameTries is how often a name is asked for that does not exist; a name server that fails is no such answer.
const UnknownNameTries = 3

// errSilent is a deadline in words for the user.
var errSilent error = silentError{}

type silentError struct{}

func (silentError) Error() string { return "no answer in time" }

func (silentError) Unwrap() error { return context.DeadlineExceeded }

// Sanitize makes text of a peer fit for an error: secrets masked, one line, bounded.
func Sanitize(text string, secrets ...secret.Value) string {
	return SanitizeUpTo(sanitizedLength, text, secrets...)
}

// SanitizeUpTo is Sanitize with a bound of its own, in characters.
func SanitizeUpTo(most int, text string, secrets ...secret.Value) string {
	text = secret.Hide(text, secrets...)
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "..."
	}
	return text
}

const sanitizedLength = 240

// PollUntil calls read until it reports done, an error, or the time is up; it is how a
// driver waits for hardware to become what it was asked to be. A read that fails
// with Unavailable is tried again: a BMC may well not answer for a moment after an
// order; but not behind a shut gate. The error is nil or read's last one; done tells whether it came true. It
// takes ProveTimeout at most: an order that a BMC has lost wants to be given again,
// which is the caller's to do.
func PollUntil(ctx context.Context, read func(context.Context) (done bool, err error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ProveTimeout)
	defer cancel()
	pause := proveFirst
	var before error
	for first := true; ; first = false {
		began := time.Now()
		done, err := read(ctx)
		if err != nil && ctx.Err() != nil && !first && time.Since(began) < proveMost {
			return false, before // that the time ended in the middle of a look tells nothing of the machine
		}
		before = err
		var shut leaseLostError
		if done || errors.As(err, &shut) || (err != nil && !problem.Is(err, problem.Unavailable)) {
			return done, err
		}
		if Pause(ctx, pause) != nil {
			return false, err
		}
		pause = min(2*pause, proveMost)
	}
}

// NotTaken marks the error of an order that the machine has surely not got or taken, so that an order whose repetition is another order, such
// as a restart, can be given again.
func NotTaken(err error) error {
	if err == nil {
		return nil
	}
	return notTakenError{err}
}

// IsNotTaken tells whether an error has the mark of NotTaken.
func IsNotTaken(err error) bool {
	var mark notTakenError
	return errors.As(err, &mark)
}

type notTakenError struct{ error }

func (e notTakenError) Unwrap() error { return e.error }

// StatusText is the name of an HTTP status.
func StatusText(status int) string { return http.StatusText(status) }

// PauseFunc waits for a time, or until the context ends; the error is that of the context.
type PauseFunc func(ctx context.Context, d time.Duration) error

type pauseKey struct{}

// WithPause has Pause and PollUntil wait by pause under the returned context. A test gives a shorter pause, so that a driver that waits for
// hardware costs the test no time.
func WithPause(ctx context.Context, pause PauseFunc) context.Context {
	return context.WithValue(ctx, pauseKey{}, pause)
}

// Pause waits, by the function of WithPause if there is one; the error is that of the context.
func Pause(ctx context.Context, d time.Duration) error {
	if pause, ok := ctx.Value(pauseKey{}).(PauseFunc); ok {
		return pause(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// ProveTimeout bounds the wait for hardware to follow one order, as Ironic's
// power_state_change_timeout does.
const ProveTimeout = 60 * time.Second

const (
	proveFirst = 25 * time.Millisecond
	proveMost  = 2 * time.Second
)
