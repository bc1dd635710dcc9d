// Package ganeti drives the guests of Ganeti clusters over their remote API (RAPI). A node of
// a cluster is a host. Each change of a guest is a job of Ganeti; the package waits for it and
// reports its failure in Ganeti's words. It knows guests as the cluster reports them,
// and ours by a tag. It must not know stores, our jobs, or the records of the control plane.
package ganeti

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"

	"salvor/problem"
	"salvor/secret"
	"salvor/wire/answer"
	"salvor/wire/loose"
)

// Config is how a cluster is reached.
type Config struct {
	// URL of RAPI, "https://master:5080"; without a port it is 5080.
	URL      string
	User     string
	Password secret.Value
	// CA is PEM of RAPI's certificate itself (rapi.pem of the cluster) or of who signs it; empty: the system's. Insecure takes any certificate.
	CA       string
	Insecure bool
	// Timeout bounds a request; 0: 20 s. JobTimeout bounds the wait for a job where who asks has set no
	// deadline; 0: 10 min.
	Timeout, JobTimeout time.Duration
}

const (
	defaultPort = "5080"
	// maxBulk and maxOne bound answers, in bytes: an instance is about 4 KiB.
	maxBulk, maxOne = 64 << 20, 4 << 20
	// maxValues bounds the JSON values of an answer about all instances, of which each has about 150.
	maxValues = 2_000_000
	maxWords  = 500 // of the cluster's in an error of ours
)

// Client speaks to one cluster. It is safe for use by several goroutines.
type Client struct {
	conf Config
	base *url.URL
	http *http.Client
	// first and longest are the pauses between two looks at a job.
	first, longest time.Duration
	names          nameCache
}

// New makes a client; it sends nothing. What is wrong with the configuration is problem.Invalid.
func New(c Config) (*Client, error) {
	base, err := url.Parse(c.URL)
	if err != nil || base.Scheme != "https" || base.Hostname() == "" || base.User != nil || base.RawQuery != "" {
		return nil, problem.Invalidf("RAPI's address %q: want https://MASTER[:%s], without user and query", sanitizeForeignText(c.URL), defaultPort)
	}
	if base.Port() == "" {
		base.Host = net.JoinHostPort(base.Hostname(), defaultPort)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	trust := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure}
	if c.CA != "" {
		known, err := parseCertificates(c.CA)
		if err != nil {
			return nil, problem.Invalidf("the CA of %s: %w", base.Host, err)
		}
		trust.InsecureSkipVerify = true // it is verified by ourselves
		trust.VerifyConnection = func(s tls.ConnectionState) error { return verifyRAPICertificate(s, known, base.Hostname()) }
	}
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	if c.JobTimeout == 0 {
		c.JobTimeout = 10 * time.Minute
	}
	transport := &http.Transport{
		TLSClientConfig: trust, Proxy: http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: c.Timeout / 2}).DialContext,
		TLSHandshakeTimeout: c.Timeout / 2, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
	}
	return &Client{
		conf: c, base: base, first: 100 * time.Millisecond, longest: time.Second,
		// A redirect would carry the password elsewhere.
		http: &http.Client{Transport: transport, Timeout: c.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// parseCertificates reads those of a PEM text; other blocks are skipped, for Ganeti keeps certificate and key in one file.
func parseCertificates(text string) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, problem.Invalidf("a certificate in it cannot be read: %s", sanitizeForeignText(err.Error()))
		}
		out = append(out, cert)
	}
	if len(out) == 0 {
		return nil, problem.Invalidf("it holds no certificate in PEM form")
	}
	return out, nil
}

// verifyRAPICertificate takes RAPI's certificate if it is one of the known ones itself, or is signed by one for the host's name. A cluster makes
// its own certificate at first, for a name that is not the master's: only knowing it whole proves anything.
func verifyRAPICertificate(s tls.ConnectionState, known []*x509.Certificate, host string) error {
	leaf, now := s.PeerCertificates[0], time.Now()
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, k := range known {
		if k.Equal(leaf) && now.After(k.NotBefore) && now.Before(k.NotAfter) {
			return nil
		}
		roots.AddCert(k)
	}
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: host}); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// get reads a resource into doc.
func (c *Client) get(ctx context.Context, limit int64, doc any, query url.Values, parts ...string) error {
	ctx, end := answer.Begin(ctx)
	defer end()
	body, err := c.send(ctx, http.MethodGet, limit, nil, query, parts...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, doc); err != nil {
		return problem.Unavailablef("RAPI of %s: the answer for %s makes no sense: %s", c.base.Host, path.Join(parts...), sanitizeForeignText(err.Error()))
	}
	return nil
}

// submit asks for work and returns its job's number. It is sent once: what became of a
// request whose answer was lost, the instance itself tells.
func (c *Client) submit(ctx context.Context, method string, body any, query url.Values, parts ...string) (jobID, error) {
	ctx, end := answer.Begin(ctx)
	defer end()
	text, err := c.send(ctx, method, maxOne, body, query, parts...)
	if err != nil {
		return 0, err
	}
	var id jobID
	if err := json.Unmarshal(text, &id); err != nil || id <= 0 {
		return 0, problem.Unavailablef("RAPI of %s: %s %s gave no job number but %s", c.base.Host, method, path.Join(parts...), sanitizeForeignText(string(text)))
	}
	return id, nil
}

func (c *Client) send(ctx context.Context, method string, limit int64, body any, query url.Values, parts ...string) ([]byte, error) {
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || strings.ContainsFunc(p, unicode.IsControl) {
			return nil, problem.Invalidf("RAPI: %q names nothing", sanitizeForeignText(p))
		}
	}
	at := c.base.JoinPath("2")
	for _, p := range parts {
		at = at.JoinPath(url.PathEscape(p))
	}
	at.RawQuery = query.Encode()
	var content io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), content)
	if err != nil {
		return nil, problem.Invalidf("RAPI: %s", sanitizeForeignText(err.Error()))
	}
	req.SetBasicAuth(c.conf.User, c.conf.Password.Reveal())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.trouble(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	values := loose.MaxValues
	if limit == maxBulk {
		values = maxValues
	}
	text, err := answer.ReadUpTo(ctx, answer.Of(ctx), resp.Body, limit, values)
	if errors.Is(err, answer.ErrTooLarge) {
		return nil, problem.Unavailablef("RAPI of %s: the answer for %s is longer than %d bytes", c.base.Host, path.Join(parts...), limit)
	}
	if err != nil {
		return nil, c.trouble(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, c.refusal(resp.StatusCode, method+" "+path.Join(parts...), text)
	}
	return text, nil
}

// trouble is an error of the wire.
func (c *Client) trouble(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return problem.Unavailablef("RAPI of %s: %w", c.base.Host, ctx.Err())
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return problem.Unavailablef("RAPI of %s: its certificate is not trusted (%s); give the cluster its CA", c.base.Host, c.hide(certificate.Error()))
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return problem.Unavailablef("RAPI of %s does not answer: %s", c.base.Host, c.hide(err.Error()))
}

// refusal gives an answer that is no 200 its kind. The words of Ganeti's errors are escaped for HTML.
func (c *Client) refusal(code int, what string, text []byte) error {
	var doc struct{ Message, Explain string }
	message := string(text)
	if json.Unmarshal(text, &doc) == nil && doc.Message != "" {
		message = html.UnescapeString(doc.Message)
		if doc.Explain != "" {
			message += " (" + html.UnescapeString(doc.Explain) + ")"
		}
	}
	message = c.hide(message)
	kind, hint := problem.Unavailable, ""
	switch code {
	case http.StatusUnauthorized:
		hint = "; the user or its password is not the cluster's"
	case http.StatusForbidden:
		kind, hint = problem.Forbidden, "; the user needs the right to write"
	case http.StatusNotFound:
		kind = problem.NotFound
	case http.StatusBadRequest, http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
		kind = problem.Invalid
	case http.StatusConflict:
		kind = problem.Conflict
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		kind = problem.Unsupported
	case http.StatusBadGateway:
		hint = "; RAPI does not reach the master daemon"
	case http.StatusServiceUnavailable:
		hint = "; the cluster's job queue is full or drained"
	}
	return problem.New(kind, "RAPI of %s: %s: %d: %s%s", c.base.Host, what, code, message, hint)
}

// hide is text of the wire without the password, also where it quotes the header that holds it.
func (c *Client) hide(text string) string {
	return sanitizeForeignText(secret.Hide(text, c.conf.Password))
}

// sanitizeForeignText is foreign text for an error of ours: short and in one line.
func sanitizeForeignText(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + "..."
	}
	return text
}
