package api

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
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
)

const (
	// tokensAtOnce bounds how many tokens keystone is asked about at a time.
	tokensAtOnce = 16
	// rememberTokens bounds the cache of good tokens, and that of bad ones.
	rememberTokens = 4096
	// refuseTime is how long a token is refused without a new question: a client that keeps
	// sending a bad one must not take the slots of others.
	refuseTime     = 5 * time.Second
	maxTokenBytes  = 16 << 10
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
	// Timeout of one question; CacheTime is how long an answer is remembered.
	Timeout, CacheTime time.Duration
	Log                *slog.Logger
}

// Keystone authenticates by tokens that it has OpenStack's identity service validate. It
// is safe for use by several goroutines.
type Keystone struct {
	opts  KeystoneOptions
	base  *http.Client
	now   func() time.Time
	slots chan struct{}
	key   []byte // of the names of tokens in the cache; new in each process

	mu      sync.Mutex
	service *gophercloud.ServiceClient // nil until keystone took the service user
	known   tokenCache
	refused tokenCache // on its own: bad tokens must not drive good ones out
}

// tokenCache maps the names of tokens to what is known of them.
type tokenCache map[[sha256.Size]byte]knownToken

// knownToken is what keystone said of a token, and until when that is believed.
type knownToken struct {
	who   access.Principal
	until time.Time
}

// NewKeystone asks nothing yet: keystone may be away when salvor starts. A CA file that
// cannot be read or holds no certificate is Invalid.
func NewKeystone(o KeystoneOptions) (*Keystone, error) {
	k := &Keystone{
		opts: o, now: time.Now, slots: make(chan struct{}, tokensAtOnce), key: make([]byte, 32),
		known: tokenCache{}, refused: tokenCache{},
	}
	_, _ = rand.Read(k.key) // never fails: it ends the program instead
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
	k.base = &http.Client{Timeout: o.Timeout, Transport: boundedAnswers{&http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, DisableKeepAlives: true, ResponseHeaderTimeout: o.Timeout,
	}}}
	return k, nil
}

// boundedAnswers cuts answers that are longer than any that keystone gives.
type boundedAnswers struct{ http.RoundTripper }

func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxTokenAnswer)
	}
	return resp, err
}

// Authenticate checks the token in X-Auth-Token.
func (k *Keystone) Authenticate(r *http.Request) (access.Principal, error) {
	token := r.Header.Get("X-Auth-Token")
	if token == "" || len(token) > maxTokenBytes || CheckText(token) != nil {
		return access.Principal{}, k.unauthorized()
	}
	name := k.name(token)
	if who, ok := k.remembered(k.known, name); ok {
		return who, nil
	}
	if _, bad := k.remembered(k.refused, name); bad {
		return access.Principal{}, k.unauthorized()
	}
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
	case <-r.Context().Done():
		return access.Principal{}, problem.Unavailablef("too many tokens to validate at once; ask again")
	}
	known, err := k.ask(r.Context(), token)
	if Status(err) == http.StatusUnauthorized {
		k.remember(k.refused, name, knownToken{until: k.now().Add(refuseTime)})
	}
	if err != nil {
		return access.Principal{}, err
	}
	k.remember(k.known, name, known)
	return known.who, nil
}

func (k *Keystone) unauthorized() error {
	return &Error{
		Status: http.StatusUnauthorized, Text: "The request you have made requires authentication.",
		Header: http.Header{"Www-Authenticate": {fmt.Sprintf("Keystone uri=%q", k.opts.PublicURL)}},
	}
}

// name stands for a token where the token itself must not lie.
func (k *Keystone) name(token string) (name [sha256.Size]byte) {
	m := hmac.New(sha256.New, k.key)
	m.Write([]byte(token))
	m.Sum(name[:0])
	return name
}

func (k *Keystone) remembered(in tokenCache, name [sha256.Size]byte) (access.Principal, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok := in[name]
	if !ok || !k.now().Before(known.until) {
		return access.Principal{}, false
	}
	return known.who, true
}

func (k *Keystone) remember(in tokenCache, name [sha256.Size]byte, known knownToken) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if len(in) >= rememberTokens {
		for other, old := range in {
			if !now.Before(old.until) {
				delete(in, other)
			}
		}
	}
	for other := range in { // still full: whichever comes first
		if len(in) < rememberTokens {
			break
		}
		delete(in, other)
	}
	in[name] = known
}

// tokenBody is what matters of keystone's answer.
type tokenBody struct {
	ExpiresAt time.Time `json:"expires_at"`
	User      struct {
		Name string `json:"name"`
	} `json:"user"`
	Project struct {
		ID     string `json:"id"`
		Name   string `json:"name"`
		Domain struct {
			ID string `json:"id"`
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
func (k *Keystone) ask(ctx context.Context, token string) (knownToken, error) {
	service, err := k.signedIn(ctx)
	if err != nil {
		return knownToken{}, k.away("log in as "+k.opts.Username, err)
	}
	got := tokens.Get(ctx, service, token)
	if gophercloud.ResponseCodeIs(got.Err, http.StatusNotFound) {
		return knownToken{}, k.unauthorized()
	}
	if got.Err != nil {
		return knownToken{}, k.away("validate a token", got.Err)
	}
	var body tokenBody
	if err := got.ExtractInto(&body); err != nil {
		return knownToken{}, k.away("read a token", err)
	}
	now := k.now()
	if !now.Before(body.ExpiresAt) {
		return knownToken{}, k.unauthorized()
	}
	until := now.Add(k.opts.CacheTime)
	if body.ExpiresAt.Before(until) {
		until = body.ExpiresAt
	}
	return knownToken{body.principal(), until}, nil
}

func (b *tokenBody) principal() access.Principal {
	p := access.Principal{User: b.User.Name, Role: access.Scoped, Scope: access.Scope{
		System: b.System.All, Project: b.Project.ID, ProjectName: b.Project.Name, ProjectDomain: b.Project.Domain.ID, Domain: b.Domain.ID,
	}}
	for _, r := range b.Roles {
		p.Scope.Roles = append(p.Scope.Roles, strings.ToLower(r.Name))
	}
	return p
}

// away tells the log why keystone did not answer, and the client only that it did not:
// the reason may name hosts and users.
func (k *Keystone) away(doing string, err error) error {
	var answer gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &answer) { // its own text holds headers and body
		err = fmt.Errorf("%s %s answered %d", answer.Method, answer.URL, answer.Actual)
	}
	k.opts.Log.Error("keystone can not be asked", "operation", doing, "error", err)
	return problem.Unavailablef("The Keystone service is temporarily unavailable; ask again.")
}

// signedIn gives a client with the token of the service user, which renews it by itself.
func (k *Keystone) signedIn(ctx context.Context) (*gophercloud.ServiceClient, error) {
	k.mu.Lock()
	service := k.service
	k.mu.Unlock()
	if service != nil {
		return service, nil
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
	service = &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: provider.IdentityBase + "v3/", Type: "identity"}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.service = service
	return service, nil
}
