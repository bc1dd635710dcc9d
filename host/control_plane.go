package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"salvor/problem"
	"salvor/secret"
	wire "salvor/wire/host"
)

const (
	maxAnswer   = 64 << 20 // orders carry config drives
	callTimeout = 15 * time.Second
	// poll is how long the control plane may hold a poll for orders.
	poll = 25 * time.Second
)

// controlPlaneClient is the client of the hosts' door. It trusts the authority that the host joined, no other.
type controlPlaneClient struct {
	root     *url.URL
	identity *hostIdentity
	http     *http.Client
	images   *http.Client // of other servers, for images by URL; nil: none is asked
	close    func()
}

func newControlPlaneClient(controller string, id *hostIdentity, web *http.Client) (*controlPlaneClient, error) {
	root, err := url.Parse(strings.TrimRight(controller, "/"))
	if err != nil || root.Scheme != "https" || root.Host == "" || root.Path != "" || root.User != nil {
		return nil, problem.Invalidf("--controller %q: want https://ADDRESS:PORT", controller)
	}
	d := &controlPlaneClient{root: root, identity: id, images: web}
	transport := d.transport(&tls.Config{
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if p := id.pair.Load(); p != nil {
				return &p.cert, nil
			}
			return &tls.Certificate{}, nil
		},
		InsecureSkipVerify: true, // in favour of VerifyConnection, which knows the authority of the moment
		VerifyConnection: func(s tls.ConnectionState) error {
			p := id.pair.Load()
			if p == nil {
				return errors.New("this host has joined no control plane")
			}
			return verifyServerCertificate(s, p.ca)
		},
	})
	d.http = &http.Client{Transport: transport, CheckRedirect: noRedirect}
	d.close = func() {
		transport.CloseIdleConnections()
		if web != nil {
			web.CloseIdleConnections()
		}
	}
	return d, nil
}

func (d *controlPlaneClient) transport(c *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig: c, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute,
		ResponseHeaderTimeout: poll + 10*time.Second, MaxIdleConnsPerHost: 4,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// verifyServerCertificate proves a server's certificate by one authority and the name that was asked for.
func verifyServerCertificate(s tls.ConnectionState, ca *x509.Certificate) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("no certificate")
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: s.ServerName, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

// join asks for the first certificate. The token carries the digest of the authority, so
// the first contact is proven as well as every later one.
func (d *controlPlaneClient) join(ctx context.Context, token secret.Value, name string) error {
	word, pin, err := splitToken(token)
	if err != nil {
		return err
	}
	csr, err := d.identity.request()
	if err != nil {
		return err
	}
	client := &http.Client{CheckRedirect: noRedirect, Transport: d.transport(&tls.Config{
		InsecureSkipVerify: true, // in favour of VerifyConnection, which knows the pin
		VerifyConnection: func(s tls.ConnectionState) error {
			for _, c := range s.PeerCertificates {
				if sum := sha256.Sum256(c.Raw); hex.EncodeToString(sum[:]) == pin {
					return verifyServerCertificate(s, c)
				}
			}
			return problem.Forbiddenf("the control plane is not the one that the join token is of")
		},
	})}
	defer client.CloseIdleConnections()
	var got wire.Certificate
	// The request holds the token in clear: it is made last.
	request := wire.Join{Token: word.Reveal(), HostID: d.identity.id, Name: name, CSR: csr}
	if err := d.callWith(ctx, client, http.MethodPost, wire.JoinPath, request, &got); err != nil {
		return fmt.Errorf("join %s: %w", d.root.Host, err)
	}
	return d.identity.admit(got.Certificate, got.CA)
}

// splitToken cuts the digest of the authority off a join token.
func splitToken(token secret.Value) (secret.Value, string, error) {
	text := strings.TrimSpace(token.Reveal())
	at := strings.LastIndexByte(text, '.')
	if at <= 0 || len(text) > 1024 {
		return secret.Value{}, "", problem.Invalidf("--join: this is no join token; make one with: salvor host token create")
	}
	pin := strings.ToLower(text[at+1:])
	if b, err := hex.DecodeString(pin); err != nil || len(b) != sha256.Size {
		return secret.Value{}, "", problem.Invalidf("--join: the end of the join token is missing; make one with: salvor host token create")
	}
	return secret.New(text[:at]), pin, nil
}

// recertify asks for the next certificate.
func (d *controlPlaneClient) recertify(ctx context.Context) error {
	csr, err := d.identity.request()
	if err != nil {
		return err
	}
	var got wire.Certificate
	if err := d.call(ctx, http.MethodPost, wire.CertPath, wire.CertificateRequest{CSR: csr}, &got); err != nil {
		return fmt.Errorf("renew the certificate: %w", err)
	}
	return d.identity.admit(got.Certificate, got.CA)
}

// call sends in as JSON, where it is not nil, and reads the answer into out.
func (d *controlPlaneClient) call(ctx context.Context, method, path string, in, out any) error {
	return d.callWith(ctx, d.http, method, path, in, out)
}

func (d *controlPlaneClient) callWith(ctx context.Context, client *http.Client, method, path string, in, out any) error {
	wait := callTimeout
	if method == http.MethodGet {
		wait += poll
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, d.root.String()+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if problem.Is(err, problem.Forbidden) { // by ourselves: no later try helps
		return unwrapURLError(err)
	}
	if err != nil {
		return problem.Unavailablef("ask the control plane: %w", unwrapURLError(err))
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return problem.Unavailablef("read the control plane's answer: %w", unwrapURLError(err))
	case answer.StatusCode >= 300:
		return decodeErrorResponse(answer.StatusCode, b)
	case len(b) > maxAnswer:
		return problem.Unavailablef("the control plane's answer is larger than %d bytes", maxAnswer)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return problem.Unavailablef("the control plane's answer is not understood: %w", err)
	}
	return nil
}

// unwrapURLError takes the URL out of an error: it is known, and long.
func unwrapURLError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

var kinds = map[int]problem.Kind{
	http.StatusBadRequest: problem.Invalid, http.StatusNotFound: problem.NotFound, http.StatusConflict: problem.Conflict,
	http.StatusForbidden: problem.Forbidden, http.StatusUnauthorized: problem.Forbidden, http.StatusRequestEntityTooLarge: problem.Invalid,
}

// decodeErrorResponse reads an error of the door.
func decodeErrorResponse(status int, body []byte) error {
	var answer struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(body, &answer)
	kind, ok := kinds[status]
	if !ok {
		kind = problem.Unavailable
	}
	if answer.Error == "" {
		answer.Error = http.StatusText(status)
	}
	if len(answer.Error) > 500 {
		answer.Error = answer.Error[:500]
	}
	return problem.New(kind, "%d: %s", status, answer.Error)
}

// image opens the bytes of an image from an offset: with the control plane by digest, else at its URL. It tells where the
// bytes that follow begin: a server that knows no ranges begins at 0.
func (d *controlPlaneClient) image(ctx context.Context, digest, address string, from int64) (io.ReadCloser, int64, error) {
	client := d.images
	if address == "" {
		client, address = d.http, d.root.String()+wire.ImagePath+digest
	}
	if client == nil {
		return nil, 0, problem.Unsupportedf("image address: this host fetches nothing but from its control plane")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, problem.Invalidf("image address: %w", unwrapURLError(err))
	}
	if s := r.URL.Scheme; s != "http" && s != "https" {
		return nil, 0, problem.Invalidf("image address: want http or https, have %q", s)
	}
	if from > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, 0, problem.Unavailablef("fetch an image from %s: %w", r.URL.Host, unwrapURLError(err))
	}
	switch answer.StatusCode {
	case http.StatusOK:
		return answer.Body, 0, nil
	case http.StatusPartialContent:
		if strings.HasPrefix(answer.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", from)) {
			return answer.Body, from, nil
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if from > 0 { // what is here is all that there is, or is of something else: the digest tells
			answer.Body.Close()
			return io.NopCloser(strings.NewReader("")), from, nil
		}
	}
	answer.Body.Close()
	kind := problem.Unavailable
	if answer.StatusCode == http.StatusNotFound || answer.StatusCode == http.StatusGone {
		kind = problem.NotFound
	}
	return nil, 0, problem.New(kind, "fetch an image from %s: status %d", r.URL.Host, answer.StatusCode)
}
