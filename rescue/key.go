package rescue

import (
	"encoding/json"
	"strings"

	"golang.org/x/crypto/ssh"

	"salvor/problem"
	"salvor/secret"
)

// MaxKeys bounds the ssh keys of a session, MaxKey the bytes of one.
const (
	MaxKeys = 32
	MaxKey  = 16384
)

// CheckKeys refuses more than MaxKeys keys, and what is no public ssh key as ssh-keygen writes it to a .pub file: one line, without
// options. Such a request is Invalid.
func CheckKeys(keys []string) error {
	if len(keys) > MaxKeys {
		return problem.Invalidf("rescue: %d ssh keys are given; at most %d are taken", len(keys), MaxKeys)
	}
	for i, k := range keys {
		if len(k) > MaxKey || strings.ContainsAny(k, "\n\r\x00") {
			return problem.Invalidf("rescue: ssh key %d is not one line of at most %d bytes", i+1, MaxKey)
		}
		_, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(k))
		if err != nil || len(options) > 0 || len(rest) > 0 {
			return problem.Invalidf("rescue: ssh key %d is no public key of the form TYPE KEY COMMENT; give the line of a .pub file of ssh-keygen", i+1)
		}
	}
	return nil
}

// HostKey is the public ssh host key of a rescue system.
type HostKey struct {
	Key         string // "TYPE BASE64", as a line of known_hosts has it behind the name
	Fingerprint string // "SHA256:BASE64", as ssh shows it
}

// ParseHostKey reads a public key, with or without a comment behind it. A text that is none is Invalid.
func ParseHostKey(text string) (HostKey, error) {
	if len(text) > MaxKey {
		return HostKey{}, problem.Invalidf("the ssh host key takes %d bytes; at most %d are read", len(text), MaxKey)
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil || len(options) > 0 || len(rest) > 0 {
		return HostKey{}, problem.Invalidf("the ssh host key is no public key")
	}
	return HostKey{Key: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), Fingerprint: ssh.FingerprintSHA256(key)}, nil
}

// packedCredential is a credential with keys as a job's row holds it.
type packedCredential struct {
	Hash string   `json:"hash,omitempty"`
	Keys []string `json:"keys"`
	LUKS string   `json:"luks,omitempty"`
}

// Pack gives the credential as the one secret of a job's row. A hash alone is that itself, as the former release has it.
func (c Credential) Pack() (secret.Value, error) {
	if len(c.Keys) == 0 && c.LUKSKeys.Empty() {
		return c.Hash, nil
	}
	text, err := json.Marshal(packedCredential{c.Hash.Reveal(), c.Keys, c.LUKSKeys.Reveal()})
	return secret.New(string(text)), err
}

// UnpackCredential is the reverse of Pack.
func UnpackCredential(v secret.Value) (Credential, error) {
	if !strings.HasPrefix(v.Reveal(), "{") { // no crypt(3) hash begins so
		return Credential{Hash: v}, nil
	}
	var p packedCredential
	if json.Unmarshal([]byte(v.Reveal()), &p) != nil {
		return Credential{}, problem.Conflictf("the rescue credential cannot be read; ask for rescue again")
	}
	return Credential{Hash: secret.New(p.Hash), Keys: p.Keys, LUKSKeys: secret.New(p.LUKS)}, nil
}
