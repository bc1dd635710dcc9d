package ironic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"salvor/compute"
	"salvor/problem"
	"salvor/wire/answer"
)

// maxAnswer bounds an answer in bytes, and maxValues its JSON values. A node is about 10 KiB and 150 values, and a page has 1000 nodes at most.
const (
	maxAnswer = 64 << 20
	maxValues = 1_000_000
)

// transport carries requests to the endpoint, with a token of Keystone where it wants one.
func (c Config) transport() (http.RoundTripper, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure}
	if c.CA != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM([]byte(c.CA)) {
			return nil, problem.Invalidf("its CA holds no certificate")
		}
		trust.RootCAs = pool
	}
	plain := answer.Transport(&http.Transport{
		TLSClientConfig: trust, Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute,
	}, maxAnswer, maxValues)
	if c.Login != compute.LoginKeystone {
		return plain, nil
	}
	return &keystoneTransport{conf: c, inner: plain}, nil
}

// keystoneTransport gives each request a token, a fresh one where the old one is taken no more.
type keystoneTransport struct {
	conf  Config
	inner http.RoundTripper

	mu    sync.Mutex
	token string
}

// RoundTrip is http.RoundTripper's. A request whose body can be had again is sent once more with a fresh token.
func (k *keystoneTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := k.login(r.Context(), "")
	if err != nil {
		return nil, err
	}
	resp, err := k.inner.RoundTrip(withAuthToken(r, token))
	if err != nil || resp.StatusCode != http.StatusUnauthorized || r.Body != nil && r.GetBody == nil {
		return resp, err
	}
	resp.Body.Close()
	if token, err = k.login(r.Context(), token); err != nil {
		return nil, err
	}
	again := withAuthToken(r, token)
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	return k.inner.RoundTrip(again)
}

func withAuthToken(r *http.Request, token string) *http.Request {
	out := r.Clone(r.Context())
	out.Header.Set("X-Auth-Token", token)
	return out
}

// login gives the token, another one than stale.
func (k *keystoneTransport) login(ctx context.Context, stale string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.token != "" && k.token != stale {
		return k.token, nil
	}
	p, err := openstack.NewClient(k.conf.AuthURL)
	if err != nil {
		return "", problem.Invalidf("Keystone's address: %w", err)
	}
	p.HTTPClient = http.Client{Transport: k.inner, Timeout: k.conf.Timeout}
	domain := k.conf.Domain
	if domain == "" {
		domain = "Default"
	}
	err = openstack.Authenticate(ctx, p, gophercloud.AuthOptions{
		IdentityEndpoint: k.conf.AuthURL, Username: k.conf.User, Password: k.conf.Password.Reveal(), DomainName: domain,
		Scope: &gophercloud.AuthScope{ProjectName: k.conf.Project, DomainName: domain},
	})
	if err != nil {
		if gophercloud.ResponseCodeIs(err, http.StatusUnauthorized) {
			return "", problem.Forbiddenf("Keystone does not let user %s in", k.conf.User)
		}
		return "", problem.Unavailablef("log in to Keystone: %w", err)
	}
	k.token = p.Token()
	return k.token, nil
}
