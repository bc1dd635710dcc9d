package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"salvor/problem"
)

const (
	// probeTime bounds the questions about one URL, their redirects included.
	probeTime = 10 * time.Second
	// foundTTL and missingTTL are the times for which a good and a bad answer are cached: a missing file may be there soon.
	foundTTL, missingTTL = time.Minute, 5 * time.Second
	// maxProbes bounds the requests at a time, maxRemembered the URLs in the cache.
	maxProbes, maxRemembered = 32, 4096
)

// Errors of Prober.Ask that are no obstacle to a fetcher with another network, trust store or client.
var (
	// ErrAddress is the refusal of an address by the guard.
	ErrAddress = errors.New("salvor may not fetch from there")
	// ErrRedirect is a redirect that Redirect refuses to follow.
	ErrRedirect = errors.New("its redirect is not followed")
	// ErrTrust is a server certificate that this machine does not trust.
	ErrTrust = errors.New("its certificate is not trusted")
)

// Prober asks web servers whether they serve URLs, by HEAD or by a GET of one byte, and reads no content. It caches the answers for a short
// time, and concurrent callers with the same URL share one request.
type Prober struct {
	client *http.Client
	now    func() time.Time
	slots  chan struct{}

	mu    sync.Mutex
	byURL map[string]*probe
}

// probe is the cache entry of a URL. Prober.mu guards its fields.
type probe struct {
	err  error         // nil where the server gives the content, or where that cannot be known
	at   time.Time     // of the last answer; zero: there was none
	done chan struct{} // closed when the running request ends; nil: no request runs
}

// NewProber returns a Prober that connects only to addresses that the guard allows.
func NewProber(g Guard, now func() time.Time) *Prober {
	client := Client(g)
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if err := Redirect(r, via); err != nil {
			return fmt.Errorf("%w: %w", ErrRedirect, err)
		}
		return nil
	}
	client.Transport = guardMarker{client.Transport}
	return &Prober{client: client, now: now, slots: make(chan struct{}, maxProbes), byURL: map[string]*probe{}}
}

// guardMarker wraps refusals of the guard in ErrAddress, to tell them from other errors.
type guardMarker struct{ inner http.RoundTripper }

func (m guardMarker) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := m.inner.RoundTrip(r)
	if problem.Is(err, problem.Forbidden) {
		err = fmt.Errorf("%w: %w", ErrAddress, err)
	}
	return resp, err
}

// Ask tells why a GET of the URL would fail: the server refuses, has no such file, or does not answer. It returns nil if the server would
// serve it, if that cannot be known (5xx, 405), and if ctx ends first. The error is problem.Invalid and contains no URL.
func (p *Prober) Ask(ctx context.Context, ref string) error {
	p.mu.Lock()
	e := p.entryLocked(ref)
	if e == nil {
		p.mu.Unlock()
		return nil
	}
	kept := foundTTL
	if e.err != nil {
		kept = missingTTL
	}
	if !e.at.IsZero() && p.now().Sub(e.at) < kept {
		defer p.mu.Unlock()
		return e.err
	}
	if e.done == nil {
		e.done = make(chan struct{})
		go p.question(ref, e)
	}
	done := e.done
	p.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return e.err // of the former answer, if ctx ended first
}

// entryLocked finds or makes the entry of a URL. A full cache evicts the oldest entry without a running request; nil: all entries have one.
func (p *Prober) entryLocked(ref string) *probe {
	if e := p.byURL[ref]; e != nil {
		return e
	}
	if len(p.byURL) >= maxRemembered {
		victim := ""
		for u, e := range p.byURL {
			if e.done == nil && (victim == "" || e.at.Before(p.byURL[victim].at)) {
				victim = u
			}
		}
		if victim == "" {
			return nil
		}
		delete(p.byURL, victim)
	}
	e := &probe{}
	p.byURL[ref] = e
	return e
}

// question requests the URL and stores the answer. It does not end with its caller's context: the next caller uses the answer.
func (p *Prober) question(ref string, e *probe) {
	p.slots <- struct{}{}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	got := p.look(ctx, ref)
	cancel()
	<-p.slots
	p.mu.Lock()
	defer p.mu.Unlock()
	e.err, e.at = got, p.now()
	close(e.done)
	e.done = nil
}

// look asks by HEAD. Some servers refuse HEAD where they serve GET, for example those of signed URLs, so it then asks for one byte by GET.
func (p *Prober) look(ctx context.Context, ref string) error {
	resp, err := p.request(ctx, http.MethodHead, ref)
	if err == nil && resp.StatusCode/100 != 2 {
		resp, err = p.request(ctx, http.MethodGet, ref)
	}
	if err != nil {
		return connectionError(err)
	}
	switch code := resp.StatusCode; code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return problem.Invalidf("the server answers %d %s", code, http.StatusText(code))
	}
	return nil
}

func (p *Prober) request(ctx context.Context, method, ref string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, ref, nil)
	if err != nil {
		return nil, problem.Invalidf("it is no URL")
	}
	if method == http.MethodGet {
		req.Header.Set("Range", "bytes=0-0")
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	return resp, nil
}

// connectionError says why there was no answer, without the URL. It returns nil for a failure of the name server, which proves nothing about
// the image.
func connectionError(err error) error {
	var wrapped *url.Error
	for errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var known *problem.Error
	var name *net.DNSError
	var untrusted *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &known):
		return problem.Invalidf("%w", err)
	case errors.As(err, &name) && name.IsNotFound:
		return problem.Invalidf("nobody knows the name of its server")
	case errors.As(err, &name):
		return nil
	case errors.As(err, &untrusted):
		return problem.Invalidf("%w here", ErrTrust)
	case errors.Is(err, syscall.ECONNREFUSED):
		return problem.Invalidf("nothing listens there")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return problem.Invalidf("the server does not answer")
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return problem.Invalidf("there is no way to the server")
	}
	return problem.Invalidf("the server gives no answer that HTTP knows")
}
