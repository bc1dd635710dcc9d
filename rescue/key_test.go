package rescue

import (
	"slices"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
)

// A key pair that ssh-keygen made for this test, and the fingerprint that ssh-keygen -l shows of it.
const (
	testKey         = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG6zbRXkp9CdSvOtcMjNVOyEAsdcbK/jYlSmblVCW5FM"
	testFingerprint = "SHA256:X2fWlozMuWktFTH2MKvcoebOVFAaBXGllnN/QncU6IM"
)

func TestKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	must.OK(t, CheckKeys([]string{testKey, testKey + " me@example"}))
	for name, keys := range map[string][]string{
		"empty":       {""},
		"two lines":   {testKey + "\n" + testKey},
		"a private":   {"-----BEGIN OPENSSH PRIVATE KEY-----"},
		"options":     {`command="id" ` + testKey},
		"cut off":     {testKey[:len(testKey)-8]},
		"too long":    {testKey + " " + strings.Repeat("x", MaxKey)},
		"too many":    slices.Repeat([]string{testKey}, MaxKeys+1),
		"the second":  {testKey, "ssh-ed25519"},
		"a NUL in it": {testKey + " \x00"},
	} {
		if err := CheckKeys(keys); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHostKeyHasTheFingerprintThatSSHShows(t *testing.T) {
	t.Parallel()
	for _, text := range []string{testKey, testKey + " root@rescue", testKey + "\n"} {
		got := must.Get(ParseHostKey(text))(t)
		if got.Key != testKey || got.Fingerprint != testFingerprint {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, text := range []string{"", "SHA256:abc", "ssh-ed25519 AAAA", testKey + "\n" + testKey, strings.Repeat("x", MaxKey+1)} {
		if got, err := ParseHostKey(text); !problem.Is(err, problem.Invalid) {
			t.Errorf("%.40q: %+v, %v", text, got, err)
		}
	}
}

// TestCredentialsArePacked: a password alone stays the bare hash that conductors of the former release read.
func TestCredentialsArePacked(t *testing.T) {
	t.Parallel()
	for _, c := range []Credential{{Hash: secret.New("$5$x")}, {Keys: []string{testKey}}, {Hash: secret.New("$6$y"), Keys: []string{testKey, testKey + " b"}}} {
		packed := must.Get(c.Pack())(t)
		if len(c.Keys) == 0 && !packed.Equal(c.Hash) {
			t.Errorf("%v is packed as %q", c, packed.Reveal())
		}
		got := must.Get(UnpackCredential(packed))(t)
		if !got.Hash.Equal(c.Hash) || !slices.Equal(got.Keys, c.Keys) {
			t.Errorf("%q became %+v", packed.Reveal(), got)
		}
	}
	if _, err := UnpackCredential(secret.New(`{"keys":`)); !problem.Is(err, problem.Conflict) {
		t.Errorf("rubbish: %v", err)
	}
}
