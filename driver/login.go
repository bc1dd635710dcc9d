package driver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

const (
	// loginPause is the time after a refusal in which salvor does not repeat the login by itself: BMCs lock accounts.
	loginPause = time.Hour
	// acceptedLately is the time after a login in which one refusal of the same login does not show that the password is wrong.
	acceptedLately = 10 * time.Minute
	// maxRefused bounds how many refusals are remembered, and how many accepted logins.
	maxRefused = 16384
)

// ErrLogin is the refusal of a login by the BMC, now or within loginPause. Wrap it before the names of the refused keys.
var ErrLogin = errors.New("the BMC refuses")

// ErrLicence is the refusal of a BMC that lacks the licence for what it was asked.
var ErrLicence = errors.New("the BMC lacks a licence for it")

// Login is the BMC's address with user name and password, and the keys of driver_info that hold these two.
type Login struct {
	Address, Username string
	Password          secret.Value
	// Method tells how, such as the authentication type or the cipher suites: a BMC may refuse one and accept another.
	Method                   string
	UsernameKey, PasswordKey string
}

// Logins remembers in memory which logins BMCs refused, and which they accepted. The zero value is ready, and is safe for use by several goroutines. A nil *Logins
// remembers nothing.
type Logins struct {
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	mu       sync.Mutex
	refused  map[[sha256.Size]byte]refusal
	accepted map[[sha256.Size]byte]time.Time
}

type refusal struct {
	at time.Time
	by string // the id of the user's work that logged in; empty: no user asked for it
}

type userRequestKey struct{}

// WithUserRequest marks the context of work that a user wants to reach the BMC now. That work may repeat a refused login once, where
// other work, such as power sync, may not. work is the id of the work, not empty.
func WithUserRequest(ctx context.Context, work string) context.Context {
	return context.WithValue(ctx, userRequestKey{}, work)
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
	work, _ := ctx.Value(userRequestKey{}).(string)
	if !ok || age >= loginPause || work != "" && work != r.by {
		return nil
	}
	return problem.Invalidf("%w %s or %s: it did so at %s, and BMCs lock accounts, so salvor does not log in by itself before %s; set other values of these keys, or ask for an operation, which logs in once",
		ErrLogin, login.UsernameKey, login.PasswordKey, record.Moment(r.at), record.Moment(r.at.Add(loginPause)))
}

// Refused notes that the BMC refused a login, and forgets that it accepted the login lately.
func (l *Logins) Refused(ctx context.Context, login Login) {
	if l == nil {
		return
	}
	work, _ := ctx.Value(userRequestKey{}).(string)
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == nil {
		l.refused = map[[sha256.Size]byte]refusal{}
	}
	makeRoom(l.refused)
	delete(l.accepted, login.key())
	l.refused[login.key()] = refusal{now, work}
}

// makeRoom removes elements of a map that has maxRefused. Any element will do: a forgotten refusal costs one more login, and a forgotten
// acceptance one repetition less.
func makeRoom[V any](remembered map[[sha256.Size]byte]V) {
	for key := range remembered {
		if len(remembered) < maxRefused {
			break
		}
		delete(remembered, key)
	}
}

// Accepted notes that the BMC accepts a login, and forgets its refusal.
func (l *Logins) Accepted(login Login) {
	if l == nil {
		return
	}
	key, now := login.key(), l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.refused, key)
	if l.accepted == nil {
		l.accepted = map[[sha256.Size]byte]time.Time{}
	}
	if _, known := l.accepted[key]; !known {
		makeRoom(l.accepted)
	}
	l.accepted[key] = now
}

// Lately tells whether the BMC accepted this login within the last ten minutes. A BMC that restarts or is short of sessions refuses such a
// login now and then, so the caller repeats the login with pauses before the caller calls Refused.
func (l *Logins) Lately(login Login) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	at, known := l.accepted[login.key()]
	l.mu.Unlock()
	return known && l.now().Sub(at) < acceptedLately
}

func (l *Logins) now() time.Time {
	if l.Now == nil {
		return time.Now()
	}
	return l.Now()
}

// key is a hash of the login, so that no password stays in memory.
func (g Login) key() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", g.Address, g.Username, g.Password.Reveal(), g.Method))
}
