package secret

import (
	"testing"
	"time"
)

// TestTokensOfAnEndedKeyEnd when those have ended that it signed last.
func TestTokensOfAnEndedKeyEnd(t *testing.T) {
	former := GenerateKey()
	k, err := NewKey(former, GenerateKey())
	if err != nil {
		t.Fatal(err)
	}
	id, err := KeyID(former)
	if err != nil {
		t.Fatal(err)
	}
	token, at := k.Token("word"), time.Now()
	k.Use(k.IDs()[1])
	k.End(id, at)
	for after, good := range map[time.Duration]bool{0: true, time.Hour - 1: true, time.Hour: false, 48 * time.Hour: false} {
		if k.Derived(Life{Now: at.Add(after), For: time.Hour}, token, "word") != good {
			t.Errorf("%s after the end of its key the token is good: %v", after, !good)
		}
	}
}
