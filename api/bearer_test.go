package api

import (
	"bytes"
	"testing"
)

// TestKeystoneTakesBearers: a scraper shows its token as such programs do.
func TestKeystoneTakesBearers(t *testing.T) {
	i := newIdentity(t)
	i.subjects["tok"] = map[string]any{"expires_at": "2100-01-01T00:00:00.000000Z", "user": map[string]any{"name": "ann"}, "system": map[string]any{"all": true}}
	r := asking("")
	r.Header.Set("Authorization", "bearer tok")
	if who, err := i.keystone(t, "hush", &bytes.Buffer{}).Authenticate(r); err != nil || who.User != "ann" {
		t.Errorf("%+v, %v", who, err)
	}
}
