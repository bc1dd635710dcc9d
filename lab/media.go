package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"salvor/problem"
)

// maxImage bounds what a drive takes: more than any DVD.
const maxImage = 16 << 30

// imageClient fetches images. It uses no proxy: whatever it asks for lies inside the lab.
type imageClient struct{ http.Client }

func newImageClient() *imageClient {
	return &imageClient{http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// fetch writes what the URL gives to a file, whole or not at all.
func (c *imageClient) fetch(ctx context.Context, from, to string) error {
	u, err := url.Parse(from)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return problem.Invalidf("image %q: want an http or https URL", from)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return problem.Invalidf("image %q: %w", from, err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return problem.Unavailablef("fetch image: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return problem.Unavailablef("fetch image %s: HTTP status %s", from, resp.Status)
	}
	file, err := os.OpenFile(to+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fetch image: %w", err)
	}
	n, err := io.Copy(file, io.LimitReader(resp.Body, maxImage+1))
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	switch {
	case err != nil:
		return problem.Unavailablef("fetch image %s: %w", from, err)
	case n > maxImage:
		return problem.Invalidf("image %s: more than %d bytes", from, int64(maxImage))
	}
	if err := os.Rename(to+".part", to); err != nil {
		return fmt.Errorf("fetch image: %w", err)
	}
	return nil
}

func (m *qemuMachine) Insert(ctx context.Context, from string) error {
	m.change.Lock()
	defer m.change.Unlock()
	if err := m.http.fetch(ctx, from, filesOf(m.spec.Name).CD); err != nil {
		return fmt.Errorf("insert media into machine %s: %w", m.spec.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.image = from
	return nil
}

func (m *qemuMachine) Eject(ctx context.Context) error {
	m.change.Lock()
	defer m.change.Unlock()
	m.mu.Lock()
	r := m.run
	m.image = ""
	m.mu.Unlock()
	if r != nil && r.cd {
		// The drive stays, open and empty, as a real one that was ejected.
		if err := r.qmp.do(ctx, "eject", map[string]any{"id": "cd0", "force": true}, nil); err != nil {
			return fmt.Errorf("eject media of machine %s: %w", m.spec.Name, err)
		}
	}
	if err := os.Remove(filesOf(m.spec.Name).CD); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("eject media of machine %s: %w", m.spec.Name, err)
	}
	return nil
}

func (m *qemuMachine) Image() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.image
}
