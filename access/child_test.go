package access_test

import (
	"testing"
	"time"

	"salvor/access"
)

// TestExpiredAtItsEnd: a token is refused at its very end.
func TestExpiredAtItsEnd(t *testing.T) {
	end := time.Unix(1e9, 0)
	token := access.Token{ExpiresAt: end}
	if !token.Expired(end) || !token.Expired(end.Add(time.Second)) || token.Expired(end.Add(-time.Nanosecond)) {
		t.Error("the end of a token is not its end")
	}
}
