package secret

import (
	"testing"
	"time"

	"salvor/test/must"
)

// TestTokensOfAnEndedKeyEnd when those have ended that it signed last.
func TestTokensOfAnEndedKeyEnd(t *testing.T) {
	former := GenerateKey()
	k := must.Get(NewKey(former, GenerateKey()))(t)
	id := must.Get(KeyID(former))(t)
	token, at := k.Token("word"), time.Now()
	k.Use(k.IDs()[1])
	k.End(id, at)
	for after, good := range map[time.Duration]bool{0: true, time.Hour - 1: true, time.Hour: false, 48 * time.Hour: false} {
		if k.Derived(Life{Now: at.Add(after), For: time.Hour}, token, "word") != good {
			t.Errorf("%s after the end of its key the token is good: %v", after, !good)
		}
	}
}
