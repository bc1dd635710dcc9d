package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"salvor/access"
	"salvor/problem"
	"salvor/secret"
	"salvor/wire/answer"
)

const (
	// tokensAtOnce bounds how many tokens keystone is asked about at a time, and tokensOfSource how many of them one source may bring: made-up
	// tokens of one client must not hold all slots while keystone is slow.
	tokensAtOnce   = 16
	tokensOfSource = tokensAtOnce / 2
	// rememberTokens bounds the cache of good tokens, and that of bad ones.
	rememberTokens = 4096
	// refuseTime is how long a token is refused without a new question: a client that keeps
	// sending a bad one must not take the slots of others.
	refuseTime = 5 * time.Second
	// awayTime is how long keystone is not asked again after it did not answer; twice as long after each further time, up to awayMost.
	awayTime = 2 * time.Second
	awayMost = 30 * time.Second
	// slowestAnswer is how long one answer of a keystone that is there may take: a busy one that needs longer than a request waits must
	// answer the client's next try, or no try ever succeeds.
	slowestAnswer = time.Minute
	// connectTime is how long a connection to keystone may take: what does not accept one is not slow, but away.
	connectTime = 5 * time.Second
	// staleWait is how long a request waits for keystone whose token was good a while ago.
	staleWait      = 2 * time.Second
	maxTokenBytes  = 4 << 10 // what keystone signs is well below; web servers in front of it cut off longer headers
	maxTokenAnswer = 4 << 20 // a token carries the catalog
)

// KeystoneOptions are how keystone is asked about tokens.
type KeystoneOptions struct {
	// URL of the identity API; PublicURL is the one told to clients, URL if empty.
	URL, PublicURL string
	// Username and Password of the service user that asks, in its project. A domain is given by id or name.
	Username string
	Password secret.Value
	UserDomainID, UserDomainName,
	ProjectName, ProjectDomainID, ProjectDomainName string
	// CAFile holds the certificates that keystone's is checked against; empty: the system's.
	CAFile   string
	Insecure bool // does not check keystone's certificate
	// Timeout is how long a request waits for keystone; the question goes on, and its answer is cached for the client's next try.
	// CacheTime is how long an answer is believed, OutageTime how much longer while keystone is away.
	Timeout, CacheTime, OutageTime time.Duration
	Log                            *slog.Logger
}

// Keystone authenticates by tokens that it has OpenStack's identity service validate. It
// is safe for use by several goroutines.
type Keystone struct {
	opts   KeystoneOptions
	base   *http.Client
	now    func() time.Time
	slots  chan struct{}
	shares *sourceSlots
	known  *Memory[access.Principal]

	signing chan struct{}              // held by whoever uses service
	service *gophercloud.ServiceClient // nil until keystone took the service user

	mu   sync.Mutex
	away time.Time // until when it is not asked: it did not answer
	fail int       // how often in a row
}

// NewKeystone asks nothing yet: keystone may be away when salvor starts. A CA file that
// cannot be read or holds no certificate is Invalid.
func NewKeystone(o KeystoneOptions) (*Keystone, error) {
	k := &Keystone{opts: o, now: time.Now, slots: make(chan struct{}, tokensAtOnce), shares: newSourceSlots(tokensOfSource), signing: make(chan struct{}, 1)}
	k.known = NewMemory[access.Principal](MemoryLimits{Most: rememberTokens, Refuse: refuseTime, Question: 3 * max(slowestAnswer, o.Timeout), Wait: o.Timeout, StaleWait: min(staleWait, o.Timeout)}, func() time.Time { return k.now() })
	if k.opts.Log == nil {
		k.opts.Log = slog.Default()
	}
	if k.opts.PublicURL == "" {
		k.opts.PublicURL = o.URL
	}
	conf := &tls.Config{InsecureSkipVerify: o.Insecure}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, problem.Invalidf("[keystone_authtoken]cafile: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, problem.Invalidf("[keystone_authtoken]cafile: %s holds no certificate", o.CAFile)
		}
	}
	// Keystone under uwsgi closes connections without saying so; one that is not kept cannot be reset.
	slowest := max(slowestAnswer, o.Timeout)
	k.base = &http.Client{Timeout: slowest, Transport: boundedAnswers{&http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, DisableKeepAlives: true,
		DialContext: (&net.Dialer{Timeout: connectTime}).DialContext, TLSHandshakeTimeout: slowest,
	}}}
	return k, nil
}

// boundedAnswers bounds the answers of keystone in bytes and values. They do not wait for the answers of machines: slots bounds how many there are.
type boundedAnswers struct{ http.RoundTripper }

func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	text, err := answer.Read(r.Context(), nil, resp.Body, maxTokenAnswer)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = answer.NewBody(text, func() {})
	return resp, nil
}

// Authenticate checks the token that a request comes with.
func (k *Keystone) Authenticate(r *http.Request) (access.Principal, error) {
	token := TokenText(r)
	if token == "" || len(token) > maxTokenBytes || CheckText(token) != nil {
		return access.Principal{}, k.unauthorized()
	}
	source := clientSource(r)
	return k.known.Find(r.Context(), token, func(ctx context.Context) (none Verdict[access.Principal], _ error) {
		if err := k.absent(); err != nil {
			return none, err
		}
		release, err := k.shares.acquire(ctx, source)
		if err != nil {
			return none, Later(time.Second, "too many tokens of your address to validate at once; ask again")
		}
		defer release()
		select {
		case k.slots <- struct{}{}:
			defer func() { <-k.slots }()
		case <-ctx.Done():
			return none, Later(time.Second, "too many tokens to validate at once; ask again")
		}
		return k.ask(ctx, token)
	})
}

func (k *Keystone) unauthorized() error {
	return &Error{
		Status: http.StatusUnauthorized, Text: "The request you have made requires authentication.",
		Header: http.Header{"Www-Authenticate": {fmt.Sprintf("Keystone uri=%q", k.opts.PublicURL)}},
	}
}

// tokenBody is what matters of keystone's answer.
type tokenBody struct {
	ExpiresAt time.Time `json:"expires_at"`
	User      struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"user"`
	Project struct {
		ID     string `json:"id"`
		Name   string `json:"name"`
		Domain struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"domain"`
	} `json:"project"`
	Domain struct {
		ID string `json:"id"`
	} `json:"domain"`
	System struct {
		All bool `json:"all"`
	} `json:"system"`
	Roles []struct {
		Name string `json:"name"`
	} `json:"roles"`
}

// ask has keystone validate a token.
func (k *Keystone) ask(ctx context.Context, token string) (Verdict[access.Principal], error) {
	var none Verdict[access.Principal]
	service, err := k.signedIn(ctx)
	if err != nil {
		return none, k.unreachable("log in as "+k.opts.Username, err, true)
	}
	got := tokens.Get(ctx, service, token)
	if got.Err == nil || gophercloud.ResponseCodeIs(got.Err, http.StatusNotFound) {
		k.resetBackoff()
	}
	if gophercloud.ResponseCodeIs(got.Err, http.StatusNotFound) {
		return none, k.unauthorized()
	}
	if got.Err != nil {
		return none, k.unreachable("validate a token", got.Err, !k.alive(ctx, got.Err))
	}
	var body tokenBody
	if err := got.ExtractInto(&body); err != nil {
		return none, k.unreachable("read a token", err, false)
	}
	now := k.now()
	if !now.Before(body.ExpiresAt) {
		return none, k.unauthorized()
	}
	fresh := minTime(now.Add(k.opts.CacheTime), body.ExpiresAt)
	return Verdict[access.Principal]{Value: body.principal(), Fresh: fresh, Stale: minTime(fresh.Add(k.opts.OutageTime), body.ExpiresAt)}, nil
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (b *tokenBody) principal() access.Principal {
	p := access.Principal{User: b.User.Name, UserID: b.User.ID, Role: access.Scoped, Scope: access.Scope{
		System: b.System.All, Project: b.Project.ID, ProjectName: b.Project.Name, ProjectDomain: b.Project.Domain.ID, ProjectDomainName: b.Project.Domain.Name,
		Domain: b.Domain.ID,
	}}
	for _, r := range b.Roles {
		p.Scope.Roles = append(p.Scope.Roles, strings.ToLower(r.Name))
	}
	return p
}

// absent refuses at once while keystone is known to be away, so that requests do not wait for it one after the other.
func (k *Keystone) absent() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if left := k.away.Sub(k.now()); left > 0 {
		return errAway(left)
	}
	return nil
}

func errAway(left time.Duration) error {
	return Later(left+time.Second, "The Keystone service is temporarily unavailable; ask again.")
}

// unreachable tells the log why keystone did not answer, and the client only that it did not: the reason may name hosts and users.
// all tells that it concerns every token.
func (k *Keystone) unreachable(doing string, err error, all bool) error {
	var answer gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &answer) { // its own text holds headers and body
		err = fmt.Errorf("%s %s answered %d", answer.Method, answer.URL, answer.Actual)
	}
	k.opts.Log.Error("keystone can not be asked", "operation", doing, "error", err)
	if !all {
		return errAway(awayTime)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := min(awayTime<<min(k.fail, 10), awayMost)
	k.fail++
	k.away = k.now().Add(wait)
	return errAway(wait)
}

// alive tells whether keystone answers others, though it did not answer of one token: what it says of that, and a front
// that cuts off a connection for what is in it, says nothing of the others.
func (k *Keystone) alive(ctx context.Context, err error) bool {
	var answer gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &answer) && answer.Actual <= http.StatusInternalServerError {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.opts.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.opts.URL, nil)
	if err != nil {
		return false
	}
	resp, err := k.base.Do(r)
	if err != nil {
		return false
	}
	resp.Body.Close()
	if resp.StatusCode >= http.StatusInternalServerError {
		return false
	}
	k.resetBackoff()
	return true
}

func (k *Keystone) resetBackoff() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = 0
}

// signedIn gives a client with the token of the service user, which renews it by itself. One logs in at a time.
func (k *Keystone) signedIn(ctx context.Context) (*gophercloud.ServiceClient, error) {
	select {
	case k.signing <- struct{}{}:
		defer func() { <-k.signing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if k.service != nil {
		return k.service, nil
	}
	provider, err := openstack.NewClient(k.opts.URL)
	if err != nil {
		return nil, err
	}
	provider.HTTPClient = *k.base
	provider.UserAgent.Prepend("salvor")
	o := k.opts
	auth := tokens.AuthOptions{
		IdentityEndpoint: o.URL, Username: o.Username, Password: o.Password.Reveal(), DomainID: o.UserDomainID, DomainName: o.UserDomainName,
		Scope: tokens.Scope{ProjectName: o.ProjectName, DomainID: o.ProjectDomainID, DomainName: o.ProjectDomainName}, AllowReauth: true,
	}
	if err := openstack.AuthenticateV3(ctx, provider, &auth, gophercloud.EndpointOpts{}); err != nil {
		return nil, err
	}
	k.service = &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: provider.IdentityBase + "v3/", Type: "identity"}
	return k.service, nil
}
