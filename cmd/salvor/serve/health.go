package serve

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"salvor/record"
)

const (
	// pulseAge is how long it is believed that the database answers.
	pulseAge = time.Second
	// pulsePatience bounds one question.
	pulsePatience = 10 * time.Second
)

// databaseProbe asks whether the database answers. However many strangers want to know it, that costs one question a second, and one at a
// time. It is safe for use by several goroutines.
type databaseProbe struct {
	now  func() time.Time // nil: time.Now
	mu   sync.Mutex
	done time.Time
	err  error
}

func (u *databaseProbe) feel(ctx context.Context, question func(context.Context) error) error {
	now := u.now
	if now == nil {
		now = time.Now
	}
	came := now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done.After(came) || u.err == nil && came.Sub(u.done) < pulseAge {
		return u.err // of a failure no more is remembered than who waited for it too
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pulsePatience) // whoever asked may go, and others wait for it
	defer cancel()
	u.err = question(ctx)
	u.done = now()
	return u.err
}

// askDatabase returns an error when the database does not answer in time.
func (p *ControlPlane) askDatabase(ctx context.Context) error {
	return p.pulse.feel(ctx, func(ctx context.Context) error {
		_, err := p.Store.Conductors(ctx)
		return err
	})
}

// health answers who watches processes. inside tells what is for who runs them, as the names of files.
func (p *ControlPlane) health(inside bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := p.askDatabase(r.Context()); err != nil {
			http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
			return
		}
		if text := p.stalled(); text != "" {
			http.Error(w, text, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
		if held := p.Store.Held(); held != nil {
			fmt.Fprintf(w, "held: nothing acts on the database and nothing is changed: %s; see: %s\n", held.Summary(), record.HeldNext)
			if inside {
				fmt.Fprintln(w, "held since "+record.Moment(held.Since)+":", held.Detail)
			}
		}
		p.tellCertificate(w, inside)
	}
}
