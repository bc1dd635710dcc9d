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
	// keptFound and keptMissing are how long an answer is taken from memory: a file that lacked may be there soon.
	keptFound, keptMissing = time.Minute, 5 * time.Second
	// maxProbes are in work at once; maxProbed URLs are remembered.
	maxProbes, maxProbed = 32, 4096
)

// The errors of Prober.Ask that say nothing against who fetches by another way.
var (
	// ErrPlace is an address to which the guard does not let.
	ErrPlace = errors.New("salvor may not fetch from there")
	// ErrRedirect is a redirect that Redirect does not follow.
	ErrRedirect = errors.New("its redirect is not followed")
	// ErrTrust is a server that proves by no certificate that is trusted here.
	ErrTrust = errors.New("its certificate is not trusted")
)

// Prober asks web servers whether they give what URLs name, by HEAD or one byte, and reads no content. It remembers the answers for
// a short time, and all who ask for the same URL at once share one question.
type Prober struct {
	client *http.Client
	now    func() time.Time
	slots  chan struct{}

	mu    sync.Mutex
	byURL map[string]*probe
}

// probe is what is known of a URL. Its fields are guarded by Prober.mu.
type probe struct {
	err  error         // nil where the server gives the content, or where that cannot be known
	at   time.Time     // of the last answer; zero: there was none
	done chan struct{} // closed when the question in work ends; nil: none is
}

// NewProber makes a prober that goes where the guard lets.
func NewProber(g Guard, now func() time.Time) *Prober {
	client := Client(g)
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if err := Redirect(r, via); err != nil {
			return fmt.Errorf("%w: %w", ErrRedirect, err)
		}
		return nil
	}
	client.Transport = marked{client.Transport}
	return &Prober{client: client, now: now, slots: make(chan struct{}, maxProbes), byURL: map[string]*probe{}}
}

// marked tells a refusal of the guard from other errors.
type marked struct{ inner http.RoundTripper }

func (m marked) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := m.inner.RoundTrip(r)
	if problem.Is(err, problem.Forbidden) {
		err = fmt.Errorf("%w: %w", ErrPlace, err)
	}
	return resp, err
}

// Ask tells why a GET of the URL would give nothing: refused, not there, or no answer. It is nil where the server would give it, where
// that cannot be known (5xx, 405), and where nothing is known when ctx ends. The error is Invalid and names no URL.
func (p *Prober) Ask(ctx context.Context, ref string) error {
	p.mu.Lock()
	e := p.entryLocked(ref)
	if e == nil {
		p.mu.Unlock()
		return nil
	}
	kept := keptFound
	if e.err != nil {
		kept = keptMissing
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
	return e.err // the former one where there is no newer
}

// entryLocked finds or makes the entry of a URL. A full table loses one that no question is about; nil: each has one.
func (p *Prober) entryLocked(ref string) *probe {
	if e := p.byURL[ref]; e != nil {
		return e
	}
	if len(p.byURL) >= maxProbed {
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

// question goes on when the asker is gone: the next one has its answer.
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

// look asks by HEAD. Servers refuse HEAD where they would serve GET, as those of signed URLs do, so one byte decides.
func (p *Prober) look(ctx context.Context, ref string) error {
	resp, err := p.request(ctx, http.MethodHead, ref)
	if err == nil && resp.StatusCode/100 != 2 {
		resp, err = p.request(ctx, http.MethodGet, ref)
	}
	if err != nil {
		return silence(err)
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

// silence says why there was no answer, without the URL. A name server that fails says nothing of the image: nil.
func silence(err error) error {
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
