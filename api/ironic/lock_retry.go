package ironic

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"salvor/api"
	"salvor/job"
)

const (
	firstLook = 10 * time.Millisecond
	nextLooks = 200 * time.Millisecond
)

// retryWhileLocked does what a request asks for. Where a node is locked by somebody's work, it
// waits up to the time that the configuration allows for its end: a client that switches a machine
// off and goes on at once is not refused, as Ironic does not refuse it. A refused handler
// has done nothing, so that it may begin again.
func (c *ironicCall) retryWhileLocked(do func(*ironicCall) error) error {
	if c.s.LockPatience <= 0 || c.R.Method == http.MethodGet || c.R.Method == http.MethodHead {
		return do(c)
	}
	read := &bytes.Buffer{}
	body := c.R.Body
	// Only bodies that a second try can have again are worth keeping.
	c.R.Body = io.NopCloser(io.TeeReader(body, &boundedBuffer{read, api.MaxBody}))
	end, pause := time.Now().Add(c.s.LockPatience), firstLook
	for {
		err := do(c)
		var locked job.Locked
		if !errors.As(err, &locked) || time.Now().Add(pause).After(end) || read.Len() >= api.MaxBody {
			return err
		}
		select {
		case <-c.R.Context().Done():
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, nextLooks)
		c.R.Body = io.NopCloser(io.MultiReader(bytes.NewReader(read.Bytes()), io.TeeReader(body, &boundedBuffer{read, api.MaxBody})))
	}
}

// boundedBuffer keeps up to so many bytes and drops the rest.
type boundedBuffer struct {
	*bytes.Buffer
	most int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if room := b.most - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
