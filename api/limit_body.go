package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"salvor/problem"
)

const (
	// freeBody is what anybody may send, in bytes.
	freeBody = 64 << 10
	// Larger bodies of who has proved nothing are in work at the same time only so many, in all and of one source.
	largeBodies, largeOfOne = 4, 2
	// They wait so long for each other, and may take so long.
	largeWait, largeTime = 20 * time.Second, 30 * time.Second
	// maxValues bounds the JSON values in them: a value needs far more memory than its text.
	maxValues = 1 << 19
)

// bodies are the large bodies in work of those who have proved nothing.
type bodies struct {
	mu    sync.Mutex
	all   int
	of    map[netip.Addr]int
	ended chan struct{} // closed when one ends
}

// begin waits for a place; false: there is none.
func (b *bodies) begin(ctx context.Context, source netip.Addr) bool {
	ctx, cancel := context.WithTimeout(ctx, largeWait)
	defer cancel()
	for {
		b.mu.Lock()
		if b.all < largeBodies && b.of[source] < largeOfOne {
			b.all++
			b.of[source]++
			b.mu.Unlock()
			return true
		}
		ended := b.ended
		b.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return false
		}
	}
}

func (b *bodies) end(source netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.of[source]--; b.of[source] == 0 {
		delete(b.of, source)
	}
	close(b.ended)
	b.ended = make(chan struct{})
}

// readStranger reads the body of who has proved nothing. A large one has its place until it is answered.
func (v *visit) readStranger(w http.ResponseWriter, r *http.Request, body io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(body, freeBody))
	if err != nil || len(b) < freeBody {
		return b, err
	}
	if !v.large {
		if v.large = v.limits.bodies.begin(r.Context(), v.source); !v.large {
			return nil, Later(5*time.Second, "Too many large requests are in work; ask again.")
		}
	}
	until := http.NewResponseController(w)
	_ = until.SetReadDeadline(time.Now().Add(largeTime)) // who cannot has no connection either
	rest, err := io.ReadAll(body)
	_ = until.SetReadDeadline(time.Now().Add(readTimeout))
	b = append(b, rest...)
	if err == nil && values(b) > maxValues {
		err = problem.Invalidf("The request body holds more than %d values.", maxValues)
	}
	return b, err
}

// values counts at least as many values as the text holds.
func values(b []byte) int {
	return 1 + bytes.Count(b, []byte{','}) + bytes.Count(b, []byte{'['}) + bytes.Count(b, []byte{'{'})
}
