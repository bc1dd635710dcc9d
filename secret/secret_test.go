package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"salvor/test/must"
)

const canary = "canary-9f2c"

// TestNothingPrintsASecret tries every way by which a value usually gets out.
func TestNothingPrintsASecret(t *testing.T) {
	v := New(canary)
	type record struct {
		Name     string
		Password Value
		Pointer  *Value
	}
	r := record{"m1", v, &v}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v, "r", r, "p", &v)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v, "r", r, "p", &v)
	asJSON := must.Get(json.Marshal(r))(t)
	for _, out := range []string{
		fmt.Sprint(v), fmt.Sprint(&v), fmt.Sprint(r), fmt.Sprintf("%v %+v %#v %s %q %x %X %d", v, v, v, v, v, v, v, v),
		fmt.Sprintf("%+v %#v", r, &r), fmt.Errorf("wrap %v %w", v, errors.New("x")).Error(), log.String(), string(asJSON),
	} {
		if strings.Contains(out, canary) || strings.Contains(out, fmt.Sprintf("%x", canary)) {
			t.Errorf("the secret is in %s", out)
		}
	}
	if v.Reveal() != canary || New("").String() != "" || !New("").Empty() {
		t.Error("a value must reveal what it holds")
	}
}

func TestKeySealsForOnePlace(t *testing.T) {
	a := must.Get(NewKey(GenerateKey()))(t)
	b := must.Get(NewKey(GenerateKey()))(t)
	rapid.Check(t, func(t *rapid.T) {
		plain, place := rapid.String().Draw(t, "plain"), rapid.String().Draw(t, "place")
		sealed := a.Seal(New(plain), place)
		if len(plain) > 3 && strings.Contains(sealed, plain) {
			t.Fatal("sealed shows the plain text")
		}
		if got, err := a.Open(sealed, place); err != nil || got.Reveal() != plain {
			t.Fatalf("open: %v", err)
		}
		if _, err := a.Open(sealed, place+"x"); err == nil {
			t.Fatal("opens at another place")
		}
		if _, err := b.Open(sealed, place); err == nil {
			t.Fatal("opens with another key")
		}
	})
	if _, err := NewKey([]byte("short")); err == nil {
		t.Error("a short key is taken")
	}
}

func TestTokensDifferByEveryWord(t *testing.T) {
	k := must.Get(NewKey(GenerateKey()))(t)
	if !k.Token("agent", "n", "1").Equal(k.Token("agent", "n", "1")) {
		t.Error("the same words give different tokens")
	}
	seen := map[string]bool{}
	for _, parts := range [][]string{{"agent", "n", "1"}, {"agent", "n", "2"}, {"agent", "n1"}, {"agent", "n", "1", ""}, {"agentn", "1"}} {
		token := k.Token(parts...).Reveal()
		if len(token) != 43 || seen[token] {
			t.Errorf("token of %v: %d characters, seen %v", parts, len(token), seen[token])
		}
		seen[token] = true
	}
	if s := fmt.Sprintf("%v %+v %#v", k, k, k); strings.Contains(s, "[") {
		t.Errorf("a key prints as %s", s)
	}
}

func TestHide(t *testing.T) {
	for _, text := range []string{canary, "Basic " + base64.StdEncoding.EncodeToString([]byte("someone:"+canary)), `{"x":"` + base64.RawURLEncoding.EncodeToString([]byte("a?>"+canary+"??>")) + `"}`} {
		if got := Hide("said: "+text+" is refused", New(""), New(canary)); !strings.Contains(got, Mask) || strings.Contains(got, text) || !strings.HasSuffix(got, " is refused") {
			t.Errorf("%s: %s", text, got)
		}
	}
	const plain = "GET /redfish/v1/Systems/437XR1138R2 is refused by c2FsdmFnZXI="
	if got := Hide(plain, New(canary)); got != plain {
		t.Errorf("%s", got)
	}
}

func TestMasked(t *testing.T) {
	for in, want := range map[string]string{
		"http://u:p@h/x?q#f": "http://u:" + Mask + "@h/x?q#f", "http://u@h/": "http://u@h/", "http://h/a:b@c": "http://h/a:b@c", "a://b:c@d@e": "a://b:" + Mask + "@e",
		"://": "://", "x:y@z": "x:y@z", "http://u:@h": "http://u:" + Mask + "@h",
	} {
		if have := InURL(in); have != want {
			t.Errorf("%s: %s, want %s", in, have, want)
		}
	}
	in := map[string]any{
		"deploy_kernel": "http://u:" + canary + "@h/k", "urls": []any{"http://u:" + canary + "@h/k"},
		"redfish_password": canary, "redfish_username": "admin", "list": []any{map[string]any{"auth_token": canary}},
		"deep": map[string]any{"SNMP_Community": canary, "empty_password": nil}, "number_secret": 7.0,
	}
	out := must.Get(json.Marshal(Masked(in)))(t)
	if strings.Contains(string(out), canary) || strings.Contains(string(out), "7") || !strings.Contains(string(out), "admin") || !strings.Contains(string(out), `"empty_password":null`) {
		t.Errorf("masked: %s", out)
	}
	if in["redfish_password"] != canary {
		t.Error("the original was changed")
	}
}
