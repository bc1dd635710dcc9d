package driver_test

import (
	"fmt"
	"testing"
	"time"

	"salvor/driver"
	"salvor/secret"
)

// TestLately: a login counts as accepted lately for ten minutes after the last time the BMC accepted it, and no other login does. A refusal ends
// that.
func TestLately(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := driver.Logins{Now: func() time.Time { return now }}
	login := driver.Login{Address: "a", Username: "u", Password: secret.New("p"), Method: "basic"}
	other := login
	other.Password = secret.New("q")
	check := func(when string, g driver.Login, want bool) {
		t.Helper()
		if got := l.Lately(g); got != want {
			t.Errorf("%s: Lately is %v, want %v", when, got, want)
		}
	}
	check("before any login", login, false)
	l.Accepted(login)
	check("at once", login, true)
	check("another password", other, false)
	now = now.Add(9 * time.Minute)
	check("after 9 minutes", login, true)
	l.Accepted(login)
	now = now.Add(9 * time.Minute)
	check("9 minutes after the second time", login, true)
	now = now.Add(2 * time.Minute)
	check("11 minutes after the second time", login, false)
	l.Accepted(login)
	l.Refused(t.Context(), login)
	check("after a refusal that counts", login, false)
	if none := (*driver.Logins)(nil); none.Lately(login) {
		t.Error("a nil *Logins: Lately is true, want false")
	}
}

// TestLatelyIsBounded: more logins than are remembered do not make the last of them forgotten.
func TestLatelyIsBounded(t *testing.T) {
	t.Parallel()
	var l driver.Logins
	var login driver.Login
	for i := range 20_000 {
		login = driver.Login{Address: fmt.Sprint(i)}
		l.Accepted(login)
	}
	if !l.Lately(login) {
		t.Error("the last of 20,000 accepted logins: Lately is false, want true")
	}
}
