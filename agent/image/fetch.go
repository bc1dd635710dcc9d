package image

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"salvor/fetch"
	"salvor/problem"
	wire "salvor/wire/agent"
)

const (
	headerTime = 60 * time.Second
	peekSize   = 64 << 10
)

// Client makes a client for image servers: by no proxy but that of the order, and where a
// redirect leads to another server without what opens the first.
func Client(trust *tls.Config) *http.Client {
	transport := &http.Transport{
		TLSClientConfig: trust, Proxy: proxyOf, DialContext: (&net.Dialer{Timeout: headerTime}).DialContext,
		TLSHandshakeTimeout: headerTime, ResponseHeaderTimeout: headerTime, MaxResponseHeaderBytes: 64 << 10,
		DisableCompression: true, MaxIdleConnsPerHost: 2, IdleConnTimeout: headerTime,
	}
	return &http.Client{Transport: transport, CheckRedirect: fetch.Redirect}
}

type proxySettings struct {
	byScheme map[string]string
	without  []string
}

type proxyKey struct{}

// proxyOf reads the proxy of an order out of the request's context.
func proxyOf(req *http.Request) (*url.URL, error) {
	p, _ := req.Context().Value(proxyKey{}).(proxySettings)
	text := p.byScheme[req.URL.Scheme]
	host := req.URL.Hostname()
	for _, w := range p.without {
		w = strings.TrimPrefix(strings.TrimSpace(w), ".")
		if w == "*" || (w != "" && (host == w || strings.HasSuffix(host, "."+w))) {
			return nil, nil
		}
	}
	if text == "" {
		return nil, nil
	}
	return url.Parse(text)
}

// transientError is a failure that another try may not have.
type transientError struct{ err error }

func (t *transientError) Error() string { return t.err.Error() }
func (t *transientError) Unwrap() error { return t.err }

// imageStream is an answer under way. A server that stops sending is cut off.
type imageStream struct {
	url    *url.URL
	length int64 // -1: unknown
	body   io.ReadCloser
	reader *bufio.Reader
	idle   *time.Timer
	pause  time.Duration
	cancel context.CancelFunc
}

func (w Writer) open(ctx context.Context, info wire.Image, text string) (*imageStream, error) {
	resp, s, err := w.request(ctx, info, text, "")
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		s.close()
		err := fmt.Errorf("%s answers %d, want 200", redactURL(s.url), resp.StatusCode)
		if resp.StatusCode >= 500 {
			return nil, &transientError{err}
		}
		return nil, newFailure(wire.ErrDownload, "image %s: %w", info.ID, err)
	}
	return s, nil
}

// request sends one GET; span is the value of a Range header or empty.
func (w Writer) request(ctx context.Context, info wire.Image, text, span string) (*http.Response, *imageStream, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, nil, problem.Invalidf("image %s: %w", info.ID, err)
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, proxyKey{}, proxySettings{info.Proxies, strings.Split(info.NoProxy, ",")}))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel()
		return nil, nil, problem.Invalidf("image %s: its URL cannot be used", info.ID)
	}
	if err := setAuthorization(req, info); err != nil {
		cancel()
		return nil, nil, err
	}
	if span != "" {
		req.Header.Set("Range", span)
	}
	s := &imageStream{url: u, pause: w.Idle, cancel: cancel}
	s.idle = time.AfterFunc(w.Idle, cancel)
	resp, err := w.HTTP.Do(req)
	if err != nil {
		s.idle.Stop()
		cancel()
		return nil, nil, &transientError{fmt.Errorf("%s: %w", redactURL(u), stripURL(err))}
	}
	s.idle.Stop()
	s.body, s.length = resp.Body, resp.ContentLength
	s.reader = bufio.NewReaderSize(bodyReader{s}, peekSize)
	return resp, s, nil
}

// stripURL takes URLs, which may carry secrets, out of an error of net/http.
func stripURL(err error) error {
	var in *url.Error
	for errors.As(err, &in) {
		err = in.Err
	}
	if errors.Is(err, context.Canceled) {
		return errors.New("the server sent nothing for too long, or the command was ended")
	}
	return err
}

func setAuthorization(req *http.Request, info wire.Image) error {
	switch {
	case info.Authorization != "":
		value, err := base64.StdEncoding.DecodeString(info.Authorization)
		if err != nil || strings.ContainsAny(string(value), "\r\n\x00") {
			return problem.Invalidf("image %s: image_request_authorization is not base64 of a header", info.ID)
		}
		req.Header.Set("Authorization", string(value))
	case info.AuthStrategy == "http_basic":
		if info.User == "" || info.Password == "" {
			return problem.Invalidf("image %s: image_server_user and image_server_password are needed for http_basic", info.ID)
		}
		req.SetBasicAuth(info.User, info.Password)
	}
	return nil
}

// bodyReader reads the body. Only the server's time counts: a slow disk in between is no fault of it.
type bodyReader struct{ s *imageStream }

func (f bodyReader) Read(p []byte) (int, error) {
	f.s.idle.Reset(f.s.pause)
	n, err := f.s.body.Read(p)
	f.s.idle.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = &transientError{fmt.Errorf("%s: cut off: %w", redactURL(f.s.url), stripURL(err))}
	}
	return n, err
}

func (s *imageStream) peek() ([]byte, error) {
	head, err := s.reader.Peek(peekSize)
	if errors.Is(err, io.EOF) || errors.Is(err, bufio.ErrBufferFull) {
		return head, nil
	}
	return head, err
}

func (s *imageStream) close() {
	s.idle.Stop()
	s.cancel()
	_ = s.body.Close()
}

// Fetch reads a small document, as a config drive, whole. what names it in errors.
func (w Writer) Fetch(ctx context.Context, what, text string, most int64) ([]byte, error) {
	info := wire.Image{ID: what}
	return w.fetch(ctx, info, text, most)
}

func (w Writer) fetch(ctx context.Context, info wire.Image, text string, most int64) ([]byte, error) {
	var last error
	for try := range tries {
		s, err := w.open(ctx, info, text)
		if err == nil {
			var b []byte
			b, err = io.ReadAll(io.LimitReader(s.reader, most+1))
			s.close()
			if err == nil && int64(len(b)) > most {
				return nil, newFailure(wire.ErrDownload, "%s: %s is larger than %d bytes", info.ID, redactURL(s.url), most)
			}
			if err == nil {
				return b, nil
			}
		}
		var again *transientError
		if !errors.As(err, &again) {
			return nil, err
		}
		last = err
		if try+1 < tries && sleepContext(ctx, w.Pause) != nil {
			break
		}
	}
	return nil, newFailure(wire.ErrDownload, "%s: %w", info.ID, last)
}
