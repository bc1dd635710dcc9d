package answer

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Transport reads each answer of inner whole, as ReadUpTo does, before its client sees the answer. The memory is given back when the client closes the
// body, which is after it has decoded the answer.
func Transport(inner http.RoundTripper, limit int64, values int) http.RoundTripper {
	return transport{inner, limit, values}
}

type transport struct {
	inner  http.RoundTripper
	limit  int64
	values int
}

// RoundTrip is http.RoundTripper's.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.inner.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	share, end := Of(r.Context()), func() {}
	if share == nil {
		share = NewShare()
		end = share.End
	}
	text, err := ReadUpTo(r.Context(), share, resp.Body, t.limit, t.values)
	_ = resp.Body.Close()
	if err != nil {
		end()
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	resp.Body = NewBody(text, end)
	return resp, nil
}

// Body is the body of an answer that was read whole.
type Body struct {
	io.Reader
	text []byte
	end  func()
}

// NewBody makes a body of a text. Closing the body calls end.
func NewBody(text []byte, end func()) *Body { return &Body{bytes.NewReader(text), text, end} }

// Text is all of the body, without a copy.
func (b *Body) Text() []byte { return b.text }

// Close is io.Closer's.
func (b *Body) Close() error {
	b.end()
	return nil
}
