package image

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"salvor/api"
	"salvor/compute"
	"salvor/problem"
)

const (
	webDownload = "web-download"
	importTime  = 6 * time.Hour
	maxURL      = 2048
)

// importImage takes an image in from where it lies. The fetch goes on in the background; the
// image is saving meanwhile, and queued again with the reason in a property if it fails.
func (s *server) importImage(c *api.Call) error {
	var body struct {
		Method struct {
			Name string `json:"name"`
			URI  string `json:"uri"`
		} `json:"method"`
	}
	if err := c.ReadInto(&body); err != nil {
		return err
	}
	switch {
	case body.Method.Name != webDownload:
		return problem.Invalidf("The import method %.40q is not served: upload the data (PUT .../file), or use %s.", body.Method.Name, webDownload)
	case len(s.ImportHosts) == 0 || s.Web == nil:
		return problem.Forbiddenf("The import method %s is not enabled: no host is configured that images may be fetched from.", webDownload)
	}
	from, err := s.source(body.Method.URI)
	if err != nil {
		return err
	}
	t, i, err := s.begin(c)
	if err != nil {
		return err
	}
	go t.fetch(from, i.DiskFormat)
	return c.Empty(http.StatusAccepted)
}

// source reads a URL and holds it to the hosts that are configured.
func (s *server) source(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxURL || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return nil, problem.Invalidf("The uri of an import must be an http or https URL without user, of at most %d bytes.", maxURL)
	}
	if !s.permits(u) {
		return nil, problem.Forbiddenf("Images may not be fetched from host %.255s.", u.Host)
	}
	return u, nil
}

func (s *server) permits(u *url.URL) bool {
	return slices.ContainsFunc(s.ImportHosts, func(h string) bool { return h == "*" || h == u.Host || h == u.Hostname() })
}

// importClient follows redirects only to hosts that are configured too.
func (s *server) importClient() *http.Client {
	c := *s.Web
	rule := c.CheckRedirect
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if !s.permits(r.URL) {
			return errors.New("it redirects to a host that images may not be fetched from")
		}
		if rule == nil {
			return http.ErrUseLastResponse
		}
		return rule(r, via)
	}
	return &c
}

func (t *imageTransfer) fetch(from *url.URL, format string) {
	ctx, cancel := context.WithTimeout(t.s.Lifetime, importTime)
	defer cancel()
	body := &remoteBody{ctx: ctx, cancel: cancel, client: t.s.importClient(), from: from.String()}
	defer body.close()
	err := t.run(ctx, format, body)
	if err == nil {
		return
	}
	_, noted := t.s.update(context.WithoutCancel(ctx), t.id, t.requester, func(i *compute.Image) error {
		if i.Status == compute.ImageQueued {
			i.Properties[failedKey], i.Properties[problemKey] = "file", truncateText(api.UserText(err, t.requester.RequestID))
		}
		return nil
	})
	if noted != nil && !problem.Is(noted, problem.NotFound) {
		t.s.Log.Error("note that an import failed", "image", t.id, "error", noted)
	}
}

func truncateText(s string) string { return s[:min(len(s), maxText)] }

// remoteBody is the answer of another server, asked for at the first read and cut off if it stands still.
type remoteBody struct {
	ctx    context.Context
	cancel context.CancelFunc
	client *http.Client
	from   string
	body   io.ReadCloser
	left   int64 // -1: unknown
	idle   *time.Timer
}

func (r *remoteBody) Read(p []byte) (int, error) {
	if r.body == nil {
		if err := r.ask(); err != nil {
			return 0, err
		}
	}
	r.idle.Reset(idleTime)
	n, err := r.body.Read(p)
	r.idle.Stop()
	if r.left >= 0 {
		r.left -= int64(n)
	}
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.EOF) && r.left > 0 {
		return n, problem.Unavailablef("The data from the uri broke off; import it again.")
	}
	return n, err
}

// ask does not tell the URL in its errors: it may hold a secret.
func (r *remoteBody) ask() error {
	req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.from, nil)
	if err != nil {
		return problem.Invalidf("The uri of the import cannot be asked.")
	}
	resp, err := r.client.Do(req)
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	if err != nil {
		return problem.Unavailablef("The uri of the import does not answer: %w", err)
	}
	r.body, r.left, r.idle = resp.Body, resp.ContentLength, time.AfterFunc(idleTime, r.cancel)
	if resp.StatusCode != http.StatusOK {
		return problem.Invalidf("The uri of the import answers %d, want 200.", resp.StatusCode)
	}
	return nil
}

func (r *remoteBody) close() {
	if r.body != nil {
		r.idle.Stop()
		_ = r.body.Close() // it was read, or is of no use
	}
}
