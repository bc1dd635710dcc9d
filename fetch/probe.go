package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"salvor/problem"
)

const (
	// probeTime bounds the questions about one URL, their redirects included, and once more the wait for their turn. It is less than
	// the conductor waits, so that its first action sees who is silent.
	probeTime = 8 * time.Second
	// foundTTL and missingTTL are how long an answer is taken from memory: a file that lacked may be there soon.
	foundTTL, missingTTL = time.Minute, 5 * time.Second
	// maxProbes are in work at once; maxRemembered URLs are remembered.
	maxProbes, maxRemembered = 32, 4096
)

// The errors of Prober.Ask that count for who fetches from elsewhere too. All others may be due to where we ask from, or to who we are.
var (
	// ErrMissing is a server that says that it has no such content.
	ErrMissing = errors.New("it is not there")
	// ErrRedirect is a redirect that no HTTP client follows to its end.
	ErrRedirect = errors.New("its redirect is not followed")
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
	p := &Prober{client: client, now: now, slots: make(chan struct{}, maxProbes), byURL: map[string]*probe{}}
	client.CheckRedirect = p.redirect
	return p
}

// redirect is Redirect, and tells what nobody follows from what others may follow: a longer way, or one away from TLS.
func (p *Prober) redirect(r *http.Request, via []*http.Request) error {
	err := Redirect(r, via)
	if err == nil {
		return nil
	}
	round := slices.ContainsFunc(via, func(v *http.Request) bool { return v.URL.String() == r.URL.String() })
	if (round || r.URL.Scheme != "http" && r.URL.Scheme != "https") && !p.proxied(via[len(via)-1]) {
		return problem.Invalidf("%w: %v", ErrRedirect, err)
	}
	return problem.Invalidf("%v: %w", ErrRedirect, err)
}

// proxied tells whether a proxy of ours may have written the answer to a request. Inside TLS it cannot.
func (p *Prober) proxied(r *http.Request) bool {
	by, err := p.client.Transport.(guarded).inner.Proxy(r)
	return r.URL.Scheme == "http" && (err != nil || by != nil)
}

// Ask tells why a GET of the URL would give nothing: refused, not there, or no answer. It is nil where the server would give it, where
// that cannot be known (5xx, 405; a URL with a user, whose password is not sent for a question), and where nothing is known when ctx
// ends. The error is Invalid and names no URL.
func (p *Prober) Ask(ctx context.Context, ref string) error {
	p.mu.Lock()
	e := p.entryLocked(ref)
	if e == nil {
		p.mu.Unlock()
		return nil
	}
	if p.freshLocked(e) {
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
	if !p.freshLocked(e) { // ctx ended before, or the question had no turn
		return nil
	}
	return e.err
}

// freshLocked tells whether the last answer still counts.
func (p *Prober) freshLocked(e *probe) bool {
	kept := foundTTL
	if e.err != nil {
		kept = missingTTL
	}
	return !e.at.IsZero() && p.now().Sub(e.at) < kept
}

// entryLocked finds or makes the entry of a URL. A full table loses one that no question is about; nil: each has one.
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

// question goes on when the asker is gone: the next one has its answer.
func (p *Prober) question(ref string, e *probe) {
	asked, err := p.turn(ref)
	p.mu.Lock()
	defer p.mu.Unlock()
	if asked {
		e.err, e.at = err, p.now()
	}
	close(e.done)
	e.done = nil
}

// turn looks when there is a slot; false: there was none in time.
func (p *Prober) turn(ref string) (asked bool, err error) {
	select {
	case p.slots <- struct{}{}:
	case <-time.After(probeTime):
		return false, nil
	}
	defer func() { <-p.slots }()
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	return true, p.look(ctx, ref)
}

// look asks by HEAD. Servers refuse HEAD where they would serve GET, as those of signed URLs do, so one byte decides.
func (p *Prober) look(ctx context.Context, ref string) error {
	if u, err := url.Parse(ref); err == nil && u.User != nil {
		return nil // without its user the server's word would count for nothing
	}
	resp, err := p.request(ctx, http.MethodHead, ref)
	if err == nil && resp.StatusCode/100 != 2 {
		resp, err = p.request(ctx, http.MethodGet, ref)
	}
	if err != nil {
		return connectionError(err)
	}
	switch code := resp.StatusCode; code {
	case http.StatusNotFound, http.StatusGone:
		err := problem.Invalidf("the server answers %d %s: %w", code, http.StatusText(code), ErrMissing)
		if p.proxied(resp.Request) {
			err = problem.Invalidf("the server, or a proxy on the way, answers %d %s", code, http.StatusText(code))
		}
		return err
	case http.StatusUnauthorized, http.StatusForbidden:
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

// connectionError says why there was no answer, without the URL. A name server that fails says nothing of the image: nil.
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
	case problem.Is(err, problem.Forbidden):
		return problem.Invalidf("salvor may not fetch from there: %w", err)
	case errors.As(err, &known):
		return problem.Invalidf("%w", err)
	case errors.As(err, &name) && name.IsNotFound:
		return problem.Invalidf("nobody knows the name of its server")
	case errors.As(err, &name):
		return nil
	case errors.As(err, &untrusted):
		return problem.Invalidf("its certificate is not trusted here")
	case errors.Is(err, syscall.ECONNREFUSED):
		return problem.Invalidf("nothing listens there")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return problem.Invalidf("the server does not answer")
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return problem.Invalidf("there is no way to the server")
	}
	return problem.Invalidf("the server gives no answer that HTTP knows")
}
