package driver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"salvor/problem"
	"salvor/secret"
)

const (
	// loginRest is how long nobody logs in to a BMC unasked with what it refused: BMCs lock accounts.
	loginRest = time.Hour
	// maxRefused bounds how many refusals are remembered.
	maxRefused = 16384
)

// ErrLogin is a login that the BMC refused, now or lately.
var ErrLogin = errors.New("the BMC refuses")

// ErrLicence is the refusal of a BMC that lacks the licence for what it was asked.
var ErrLicence = errors.New("the BMC lacks a licence for it")

// Login is what somebody logs in with, and the keys of driver_info that hold it.
type Login struct {
	Address, Username string
	Password          secret.Value
	// Method tells how, such as the authentication type or the cipher suites: a BMC may refuse one and accept another.
	Method                   string
	UsernameKey, PasswordKey string
}

// Logins remembers which logins BMCs refused. The zero value is ready; it is safe for use by several goroutines; a nil one remembers
// nothing. What is remembered ends with the process.
type Logins struct {
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	mu      sync.Mutex
	refused map[[sha256.Size]byte]refusal
}

type refusal struct {
	at time.Time
	by string // the work that tried; empty: nobody had asked
}

type askerKey struct{}

// AskedFor marks work that a user wants to reach the BMC now: it may log in once where other work, such as power sync, may not. work
// is not empty.
func AskedFor(ctx context.Context, work string) context.Context {
	return context.WithValue(ctx, askerKey{}, work)
}

// Pass refuses a login that the BMC refused within the last hour, before the BMC is asked; the error is Invalid. A user's work passes
// once.
func (l *Logins) Pass(ctx context.Context, login Login) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	r, ok := l.refused[login.key()]
	l.mu.Unlock()
	age := l.now().Sub(r.at)
	work, _ := ctx.Value(askerKey{}).(string)
	if !ok || age >= loginRest || work != "" && work != r.by {
		return nil
	}
	when := func(t time.Time) string { return t.UTC().Format(time.TimeOnly) }
	return problem.Invalidf("%w %s or %s: it did at %s UTC, and BMCs lock accounts, so salvor does not log in by itself before %s UTC; set others, or ask for an operation, which logs in once",
		ErrLogin, login.UsernameKey, login.PasswordKey, when(r.at), when(r.at.Add(loginRest)))
}

// Refused notes that the BMC refused a login.
func (l *Logins) Refused(ctx context.Context, login Login) {
	if l == nil {
		return
	}
	work, _ := ctx.Value(askerKey{}).(string)
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == nil {
		l.refused = map[[sha256.Size]byte]refusal{}
	}
	for key := range l.refused { // any: whose refusal is forgotten is asked once more
		if len(l.refused) < maxRefused {
			break
		}
		delete(l.refused, key)
	}
	l.refused[login.key()] = refusal{now, work}
}

// Accepted forgets what was refused: the BMC takes the login now.
func (l *Logins) Accepted(login Login) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, login.key())
}

func (l *Logins) now() time.Time {
	if l.Now == nil {
		return time.Now()
	}
	return l.Now()
}

// key tells logins apart without keeping a password.
func (g Login) key() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", g.Address, g.Username, g.Password.Reveal(), g.Method))
}
