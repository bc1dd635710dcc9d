package api

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"salvor/problem"
	"salvor/wire/loose"
)

const (
	// freeBody is what anybody may send, in bytes.
	freeBody = 64 << 10
	// A stranger's body has to arrive within strangerTime and a second for each strangerRate bytes of it.
	strangerTime, strangerRate = 15 * time.Second, 64 << 10
	// hurriedTime is instead of strangerTime for whom the limits hold up.
	hurriedTime = 3 * time.Second
	// heldBytes are the larger bodies of strangers in memory while they arrive, all together. When they are more, the largest
	// unfinished one is cut off: a body that stands still takes no room from those that follow.
	heldBytes = 64 << 20
	// workedBytes are those in work, from the last byte to the answer: their cost is by size.
	workedBytes = 16 << 20
	// workWait is how long they wait for each other.
	workWait = 20 * time.Second
	// maxValues bounds the JSON values in them: a value needs far more memory than its text.
	maxValues = 1 << 18
)

// largeBodies are the larger bodies of those who have proved nothing.
type largeBodies struct {
	mu       sync.Mutex
	arriving map[*arrivingBody]bool
	held     int // bytes of them
	worked   int // bytes of those in work
	of       map[netip.Addr]int
	ended    chan struct{} // closed when one of those ends
}

func newBodies() largeBodies {
	return largeBodies{arriving: map[*arrivingBody]bool{}, of: map[netip.Addr]int{}, ended: make(chan struct{})}
}

// arrivingBody is a larger body that is on its way.
type arrivingBody struct {
	size int
	cut  func()
	gone bool // it was cut off
}

// add counts n more bytes of a; false: it was cut off for others.
func (b *largeBodies) add(a *arrivingBody, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.gone {
		return false
	}
	b.arriving[a] = true
	a.size += n
	b.held += n
	for b.held > heldBytes {
		largest := a
		for other := range b.arriving {
			if other.size > largest.size {
				largest = other
			}
		}
		b.dropLocked(largest)
		largest.gone = true
		if largest == a {
			return false
		}
		largest.cut()
	}
	return true
}

func (b *largeBodies) drop(a *arrivingBody) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked(a)
}

func (b *largeBodies) dropLocked(a *arrivingBody) {
	if b.arriving[a] {
		delete(b.arriving, a)
		b.held -= a.size
	}
}

// begin waits until a body that has arrived may be worked on; false: there is no room. Half of the room is the most that
// one source has, unless nobody else wants it.
func (b *largeBodies) begin(ctx context.Context, source netip.Addr, size int) bool {
	ctx, cancel := context.WithTimeout(ctx, workWait)
	defer cancel()
	for {
		b.mu.Lock()
		mine := b.of[source]
		if mine == 0 && b.worked == 0 || b.worked+size <= workedBytes && mine+size <= workedBytes/2 {
			b.worked += size
			b.of[source] += size
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

func (b *largeBodies) end(source netip.Addr, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.worked -= size
	if b.of[source] -= size; b.of[source] <= 0 {
		delete(b.of, source)
	}
	close(b.ended)
	b.ended = make(chan struct{})
}

// Arrive is before the body of a request is read that is admitted by what the body says: who is held up has to hurry.
func Arrive(r *http.Request) {
	v := requestStateOf(r)
	if v == nil {
		return
	}
	v.open = true
	l := v.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.config.Now()
	if shared, _ := l.refused.take(v.source, now); shared != nil {
		l.refused.release(v.source, shared, now)
		return
	}
	v.hurried = true
}

// readStranger reads the body of who has proved nothing. A larger one has its room until it is answered.
func (v *requestState) readStranger(w http.ResponseWriter, body io.Reader) (b []byte, err error) {
	until := http.NewResponseController(w)
	began, grace := time.Now(), strangerTime
	if v.hurried {
		grace = hurriedTime
	}
	all := &v.limits.bodies
	a := &arrivingBody{cut: func() { _ = until.SetReadDeadline(time.Unix(1, 0)) }}
	defer all.drop(a)
	defer func() { _ = until.SetReadDeadline(time.Now().Add(readTimeout)) }()
	part := make([]byte, 16<<10)
	for {
		// Who cannot set a deadline has no connection either.
		_ = until.SetReadDeadline(began.Add(grace + time.Duration(len(b))*time.Second/strangerRate))
		n, err := body.Read(part)
		b = append(b, part[:n]...)
		if grown := len(b) - freeBody - a.size; grown > 0 && !all.add(a, grown) {
			return nil, errBodies
		}
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

var errBodies = Later(5*time.Second, "Too many large requests are in work; ask again.")

// workOn has a larger body wait until there is room to work on it.
func (v *requestState) workOn(ctx context.Context, b []byte) error {
	if len(b) <= freeBody {
		return nil
	}
	if v.large > 0 {
		return nil
	}
	if !v.limits.bodies.begin(ctx, v.source, len(b)) {
		return errBodies
	}
	v.large = len(b)
	return nil
}

// checkValues bounds the values of a larger body, whoever sent it: a host's report is no more trusted than a stranger's.
func checkValues(b []byte) error {
	if len(b) > freeBody && loose.CountValues(b, maxValues) > maxValues {
		return problem.Invalidf("The request body holds more than %d values.", maxValues)
	}
	return nil
}
